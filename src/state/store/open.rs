//! Opening the database: settings, check, migration, loading. A database that is damaged or newer
//! than this program is set aside as a whole, and a new one is created.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::host::clock;
use crate::state::store::rows::{self, UnreadableRows};
use crate::state::store::schema::{self, MIGRATIONS};
use crate::state::store::{StoreContents, WriteBatch};

pub const DATABASE: &str = "state.db";

/// Beyond this size the check at the start would take seconds on a slow disk; damage is then
/// noticed when it is read.
const MAX_CHECKED_BYTES: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("opening {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error("setting aside {}", path.display())]
    SetAside {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is on a read-only filesystem", path.display())]
    ReadOnly { path: PathBuf },
}

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    unreadable: UnreadableRows,
}

enum OpenFailure {
    Damaged(String),
    Newer(usize),
    Failed(rusqlite::Error),
}

pub(crate) fn open(dir: &Path) -> Result<(Database, StoreContents), OpenError> {
    let path = dir.join(DATABASE);
    let unfit = match try_open(&path) {
        Ok(opened) => return Ok(opened),
        Err(OpenFailure::Failed(source)) => return Err(failed(path, source)),
        Err(unfit) => unfit,
    };
    let (kind, why) = match unfit {
        OpenFailure::Newer(version) => (
            "newer",
            format!(
                "its version is {version}, this program knows up to {}",
                MIGRATIONS.len()
            ),
        ),
        OpenFailure::Damaged(why) => ("damaged", why),
        OpenFailure::Failed(source) => return Err(failed(path, source)),
    };
    let kept = set_aside(dir, kind).map_err(|source| OpenError::SetAside {
        path: path.clone(),
        source,
    })?;
    tracing::error!(
        database = %path.display(), why, kept_as = %kept.display(),
        "the state database cannot be used and is set aside; history and acknowledgements begin anew"
    );
    try_open(&path).map_err(|unfit| match unfit {
        OpenFailure::Failed(source) => failed(path, source),
        // A new database is neither, unless the disk returns wrong data.
        OpenFailure::Damaged(_) | OpenFailure::Newer(_) => OpenError::Open {
            path,
            source: rusqlite::Error::InvalidQuery,
        },
    })
}

impl Database {
    /// Writes all batches in one transaction.
    pub(crate) fn write<'a>(
        &mut self,
        writes: impl Iterator<Item = &'a WriteBatch>,
    ) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for write in writes {
            rows::apply(&transaction, write, &self.unreadable)?;
        }
        transaction.commit()
    }
}

fn failed(path: PathBuf, source: rusqlite::Error) -> OpenError {
    match source.sqlite_error_code() {
        Some(ErrorCode::ReadOnly) => OpenError::ReadOnly { path },
        _ => OpenError::Open { path, source },
    }
}

fn try_open(path: &Path) -> Result<(Database, StoreContents), OpenFailure> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(classify)?;
    connection
        .busy_timeout(Duration::from_secs(2))
        .map_err(classify)?;
    // A database to be set aside stays unchanged: closing would merge the WAL and delete it.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(classify)?;
    let version = schema::version(&connection).map_err(classify)?;
    if version > MIGRATIONS.len() {
        return Err(OpenFailure::Newer(version));
    }
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .map_err(classify)?;
    if mode != "wal" {
        tracing::warn!(
            mode,
            "the state directory's filesystem has no shared memory maps; the database works without a write-ahead log"
        );
    }
    for (name, value) in [
        ("synchronous", "FULL"),
        ("foreign_keys", "ON"),
        ("trusted_schema", "OFF"),
    ] {
        connection
            .pragma_update(None, name, value)
            .map_err(classify)?;
    }
    // All our memory is locked: half a mebibyte of cache is enough for these tables.
    connection
        .pragma_update(None, "cache_size", -512)
        .map_err(classify)?;
    connection
        .pragma_update(None, "journal_size_limit", 4 << 20)
        .map_err(classify)?;
    if std::fs::metadata(path).is_ok_and(|file| file.len() <= MAX_CHECKED_BYTES) {
        let check: String = connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(classify)?;
        if check != "ok" {
            return Err(OpenFailure::Damaged(check));
        }
    }
    schema::migrate(&mut connection, MIGRATIONS).map_err(classify)?;
    let (loaded, unreadable) = rows::load(&connection).map_err(classify)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
        .map_err(classify)?;
    Ok((
        Database {
            connection,
            unreadable,
        },
        loaded,
    ))
}

/// Decides whether an error means a damaged file or a failed access.
fn classify(error: rusqlite::Error) -> OpenFailure {
    let rusqlite::Error::SqliteFailure(failure, _) = &error else {
        return OpenFailure::Damaged(error.to_string());
    };
    match failure.code {
        // Unknown is SQLITE_ERROR: an expected table or column is missing.
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown => {
            OpenFailure::Damaged(error.to_string())
        }
        _ if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ => {
            OpenFailure::Damaged(error.to_string())
        }
        _ => OpenFailure::Failed(error),
    }
}

/// Renames the WAL first: beside a new database, it would be replayed into it.
fn set_aside(dir: &Path, kind: &str) -> io::Result<PathBuf> {
    let stamp = clock::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let named = |number: u32| match number {
        0 => format!("{DATABASE}.{kind}-{stamp}"),
        _ => format!("{DATABASE}.{kind}-{stamp}.{number}"),
    };
    // Only names from the same second can exist; a thousand of them indicate a loop elsewhere.
    let name = (0..1000).map(named).find(|name| {
        ["-wal", "-shm", ""]
            .iter()
            .all(|end| !dir.join(format!("{name}{end}")).exists())
    });
    let name = name.ok_or_else(|| io::Error::new(io::ErrorKind::AlreadyExists, "no free name"))?;
    for end in ["-wal", "-shm", ""] {
        match std::fs::rename(
            dir.join(format!("{DATABASE}{end}")),
            dir.join(format!("{name}{end}")),
        ) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    File::open(dir)?.sync_all()?;
    Ok(dir.join(name))
}
