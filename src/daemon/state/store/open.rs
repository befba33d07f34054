//! Opening the database: settings, check, migration, loading. A database that is damaged or newer
//! than this program is set aside as a whole, and a new one is created.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::state::store::rows::{self, UnreadableRows};
use crate::state::store::schema::{self, MIGRATIONS};
use crate::state::store::{StoreContents, WriteBatch, former_ids, topics};
use diskvitals_host::clock;
use diskvitals_model::timeline::Moment;

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
    boot_id: String,
    path: PathBuf,
    files: DatabaseFiles,
}

/// Device and inode of the database and of its write-ahead log; None without such a file. SQLite
/// continues to write to files that were removed or replaced.
#[derive(Debug, PartialEq)]
struct DatabaseFiles([Option<(u64, u64)>; 2]);

impl DatabaseFiles {
    fn at(path: &Path) -> DatabaseFiles {
        DatabaseFiles(["", "-wal"].map(|end| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            let file = std::fs::symlink_metadata(name).ok()?;
            Some((file.dev(), file.ino()))
        }))
    }
}

enum OpenFailure {
    Damaged(String),
    Newer(usize),
    Failed(rusqlite::Error),
}

pub(crate) fn open(dir: &Path, boot_id: &str) -> Result<(Database, StoreContents), OpenError> {
    let path = dir.join(DATABASE);
    let unfit = match try_open(&path, boot_id) {
        Ok(opened) => return Ok(opened),
        Err(OpenFailure::Failed(source)) => return Err(failed(path, source)),
        Err(unfit) => unfit,
    };
    let (kind, why) = match unfit {
        OpenFailure::Newer(version) => (
            "newer",
            format!("its version is {version}, this program knows up to {}", MIGRATIONS.len()),
        ),
        OpenFailure::Damaged(why) => ("damaged", why),
        OpenFailure::Failed(source) => return Err(failed(path, source)),
    };
    let kept = set_aside(dir, kind)
        .map_err(|source| OpenError::SetAside { path: path.clone(), source })?;
    tracing::error!(
        database = %path.display(), why, kept_as = %kept.display(),
        "the state database cannot be used and is set aside; history and acknowledgements begin anew"
    );
    try_open(&path, boot_id).map_err(|unfit| match unfit {
        OpenFailure::Failed(source) => failed(path, source),
        // A new database is neither, unless the disk returns wrong data.
        OpenFailure::Damaged(_) | OpenFailure::Newer(_) => {
            OpenError::Open { path, source: rusqlite::Error::InvalidQuery }
        }
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
        topics::put_last_write(&transaction, &moment(&self.boot_id))?;
        transaction.commit()
    }

    /// The files that were opened are still those of the state directory.
    pub(crate) fn is_in_place(&self) -> bool {
        self.files == DatabaseFiles::at(&self.path)
    }
}

fn moment(boot_id: &str) -> Moment {
    let (time, boottime, wall) = clock::read_all();
    Moment { boot_id: boot_id.to_owned(), time, boottime, wall }
}

fn failed(path: PathBuf, source: rusqlite::Error) -> OpenError {
    match source.sqlite_error_code() {
        Some(ErrorCode::ReadOnly) => OpenError::ReadOnly { path },
        _ => OpenError::Open { path, source },
    }
}

/// Whatever the umask: the history names drives, volumes and pods. SQLite gives the files beside the
/// database the mode of the database.
fn keep_private(path: &Path) {
    let private = Permissions::from_mode(0o600);
    let created =
        File::options().write(true).create(true).truncate(false).mode(0o600).open(path).and_then(
            |file| match file.metadata()?.mode() & 0o077 {
                0 => Ok(()),
                _ => file.set_permissions(private),
            },
        );
    // SQLite says next why the file cannot be written.
    if let Err(error) = created {
        tracing::debug!(path = %path.display(), %error, "the database's mode was not set");
    }
}

fn try_open(path: &Path, boot_id: &str) -> Result<(Database, StoreContents), OpenFailure> {
    keep_private(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(classify)?;
    connection.busy_timeout(Duration::from_secs(2)).map_err(classify)?;
    // A database to be set aside stays unchanged: closing would merge the WAL and delete it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(classify)?;
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
    for (name, value) in
        [("synchronous", "FULL"), ("foreign_keys", "ON"), ("trusted_schema", "OFF")]
    {
        connection.pragma_update(None, name, value).map_err(classify)?;
    }
    // All our memory is locked, and these tables are read at the start only.
    connection.pragma_update(None, "cache_size", -128).map_err(classify)?;
    connection.pragma_update(None, "journal_size_limit", 4 << 20).map_err(classify)?;
    if std::fs::metadata(path).is_ok_and(|file| file.len() <= MAX_CHECKED_BYTES) {
        let check: String = connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(classify)?;
        if check != "ok" {
            return Err(OpenFailure::Damaged(check));
        }
    }
    schema::migrate(&mut connection, MIGRATIONS).map_err(classify)?;
    let now = moment(boot_id);
    let (mut loaded, mut unreadable) = rows::load(&connection, &now).map_err(classify)?;
    if former_ids::rename(&mut connection, &loaded).map_err(classify)? {
        (loaded, unreadable) = rows::load(&connection, &now).map_err(classify)?;
    }
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
        .map_err(classify)?;
    Ok((
        Database {
            connection,
            unreadable,
            boot_id: boot_id.to_owned(),
            path: path.to_owned(),
            files: DatabaseFiles::at(path),
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
    let stamp = clock::wall_now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let named = |number: u32| match number {
        0 => format!("{DATABASE}.{kind}-{stamp}"),
        _ => format!("{DATABASE}.{kind}-{stamp}.{number}"),
    };
    // Only names from the same second can exist; a thousand of them indicate a loop elsewhere.
    let name = (0..1000).map(named).find(|name| {
        ["-wal", "-shm", ""].iter().all(|end| !dir.join(format!("{name}{end}")).exists())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use diskvitals_finding::Subject;
    use diskvitals_finding::ids::DriveId;
    use diskvitals_kernel_log::error_history::ErrorHistory;
    use diskvitals_kernel_log::event::Class;
    use diskvitals_model::facts::kernel_log::LogProgress;
    use diskvitals_model::fixture::event;

    fn errors(time: Timestamp) -> WriteBatch {
        let mut history = ErrorHistory::default();
        history.add(&event(Class::Medium, "sda", time, &[7]));
        let mut write = WriteBatch {
            progress: Some(Arc::new(LogProgress::default())),
            ..WriteBatch::default()
        };
        let subject = Subject::Drive(DriveId::new("A"));
        write.errors.upserted = vec![(subject, Arc::new(history))];
        write
    }

    /// The age of errors that were a minute old when the last run wrote, now, with a clock that was
    /// ahead of today's by `ahead`.
    fn age_after_restart(ahead: SignedDuration, boot: &str) -> (SignedDuration, StoreContents) {
        let dir = tempfile::tempdir().unwrap();
        let (mut database, _) = open(dir.path(), "a").unwrap();
        let time = clock::now() + ahead;
        let write = errors(time - SignedDuration::from_mins(1));
        database.write(std::iter::once(&write)).unwrap();
        let last = Moment { time, wall: time, ..moment("a") };
        let transaction = database.connection.transaction().unwrap();
        topics::put_last_write(&transaction, &last).unwrap();
        transaction.commit().unwrap();
        drop(database);
        let (_, loaded) = open(dir.path(), boot).unwrap();
        let last_seen = loaded.errors[0].1.last_seen().unwrap();
        (clock::now().duration_since(last_seen), loaded)
    }

    #[test]
    fn errors_that_were_stored_with_a_wrong_clock_have_their_true_age_after_a_start() {
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        for ahead in [2, -2, 2000, -2000].map(days) {
            let (age, loaded) = age_after_restart(ahead, "a");
            assert!((60..120).contains(&age.as_secs()), "{ahead}: {age}");
            let wrong_by = (loaded.clock_step + ahead).abs();
            assert!(wrong_by < SignedDuration::from_mins(1), "{wrong_by}");
        }
    }

    #[test]
    fn between_boots_errors_age_by_bounded_wall_time() {
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        for (ahead, aged, is_quiet_lost) in [(2, 0, false), (-2, 2, true), (-2000, 28, true)] {
            let (age, loaded) = age_after_restart(days(ahead), "b");
            // What was stored in an earlier boot is at least as old as this one.
            let up = SignedDuration::try_from(clock::boottime()).unwrap();
            let least = (days(aged) + SignedDuration::from_mins(1)).max(up);
            let more = (age - least).as_secs();
            assert!((-60..60).contains(&more), "{ahead}: {age}");
            assert_eq!(loaded.is_quiet_lost, is_quiet_lost);
        }
    }

    #[test]
    fn the_database_is_readable_by_its_owner_only_whatever_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(DATABASE);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        drop(open(dir.path(), "").unwrap());
        assert_eq!(mode(&path), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let (_database, _) = open(dir.path(), "").unwrap();
        for file in std::fs::read_dir(dir.path()).unwrap() {
            assert_eq!(mode(&file.unwrap().path()) & 0o077, 0);
        }
    }
}
