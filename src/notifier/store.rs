//! The queue on disk: the planner's state and the messages that are not delivered yet, in one SQLite
//! file. Why SQLite: a transition that was planned and the messages that came of it must be on disk
//! together, or neither; otherwise a crash between the two loses a message or sends it under another
//! id.
//!
//! In: changes, one transaction each. Out: what was stored, at the start. Blocking: it runs on the
//! store's thread.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use crate::message::Notification;
use diskvitals_host::clock;

pub(crate) const DATABASE: &str = "queue.db";

/// `PRAGMA user_version`.
const VERSION: u32 = 1;
const SCHEMA: &str = "
    CREATE TABLE planner (one INTEGER PRIMARY KEY CHECK (one = 1), state TEXT NOT NULL) STRICT;
    CREATE TABLE deliveries (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        target TEXT NOT NULL,
        notification TEXT NOT NULL,
        UNIQUE (id, target)
    ) STRICT;
    PRAGMA user_version = 1;";

#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("making {}", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("opening {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error("{} is in use: another diskvitals-notify runs; give another --state-dir", .0.display())]
    Locked(PathBuf),
    #[error("writing {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
}

/// A message that waits for a target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredDelivery {
    pub target: String,
    pub notification: Notification,
}

/// What a run left behind.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Stored {
    pub planner: Option<String>,
    pub deliveries: Vec<StoredDelivery>,
}

/// What has changed since the last successful write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub planner: Option<String>,
    /// Target and message.
    pub added: Vec<(String, std::sync::Arc<Notification>)>,
    /// Id and target.
    pub removed: Vec<(String, String)>,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.planner.is_none() && self.added.is_empty() && self.removed.is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    path: PathBuf,
}

enum Unfit {
    Failed(rusqlite::Error),
    Damaged(String),
}

impl Store {
    pub(crate) fn open(dir: &Path) -> Result<(Store, Stored), StoreError> {
        std::fs::create_dir_all(dir)
            .map_err(|source| StoreError::Folder { path: dir.to_owned(), source })?;
        let path = dir.join(DATABASE);
        let failed = |source: rusqlite::Error| match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::Locked(path.clone())
            }
            _ => StoreError::Open { path: path.clone(), source },
        };
        match try_open(&path) {
            Ok(opened) => Ok(opened),
            Err(Unfit::Failed(source)) => Err(failed(source)),
            Err(Unfit::Damaged(why)) => {
                let kept =
                    dir.join(format!("{DATABASE}.unusable-{}", clock::wall_now().as_second()));
                let moved = std::fs::rename(&path, &kept);
                for end in ["-wal", "-shm"] {
                    // Absent unless the process was killed.
                    let _ = std::fs::remove_file(dir.join(format!("{DATABASE}{end}")));
                }
                moved.map_err(|source| StoreError::Folder { path: kept.clone(), source })?;
                tracing::error!(queue = %path.display(), why, kept_as = %kept.display(), "the queue cannot be used and is set aside; present problems are announced again");
                try_open(&path).map_err(|unfit| match unfit {
                    Unfit::Failed(source) => failed(source),
                    Unfit::Damaged(_) => failed(rusqlite::Error::InvalidQuery),
                })
            }
        }
    }

    pub(crate) fn write(&mut self, changes: &Changes) -> Result<(), StoreError> {
        let path = &self.path;
        let failed = |source| StoreError::Write { path: path.clone(), source };
        write(&mut self.connection, changes).map_err(failed)
    }
}

fn write(connection: &mut Connection, changes: &Changes) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    if let Some(state) = &changes.planner {
        transaction.execute("INSERT OR REPLACE INTO planner VALUES (1, ?1)", [state])?;
    }
    for (target, notification) in &changes.added {
        let body = serde_json::to_string(notification.as_ref())
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        transaction.execute(
            "INSERT OR IGNORE INTO deliveries (id, target, notification) VALUES (?1, ?2, ?3)",
            params![notification.id, target, body],
        )?;
    }
    for (id, target) in &changes.removed {
        transaction
            .execute("DELETE FROM deliveries WHERE id = ?1 AND target = ?2", params![id, target])?;
    }
    transaction.commit()
}

fn try_open(path: &Path) -> Result<(Store, Stored), Unfit> {
    let judge = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Unfit::Damaged(error.to_string())
        }
        _ => Unfit::Failed(error),
    };
    let connection = Connection::open(path).map_err(judge)?;
    // One process, and its writes are on disk when they are confirmed.
    connection
        .execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -256; BEGIN EXCLUSIVE; COMMIT;",
        )
        .map_err(judge)?;
    let version: u32 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(judge)?;
    match version {
        0 => connection.execute_batch(&format!("BEGIN; {SCHEMA} COMMIT;")).map_err(judge)?,
        VERSION => {}
        newer => {
            return Err(Unfit::Damaged(format!(
                "its version is {newer}, this program knows {VERSION}"
            )));
        }
    }
    let stored = load(&connection).map_err(judge)?;
    let path = path.to_owned();
    Ok((Store { connection, path }, stored))
}

fn load(connection: &Connection) -> rusqlite::Result<Stored> {
    let planner =
        connection.query_row("SELECT state FROM planner", [], |row| row.get(0)).optional()?;
    let mut query =
        connection.prepare("SELECT target, notification, id FROM deliveries ORDER BY seq")?;
    let rows = query.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    })?;
    let mut deliveries = Vec::new();
    for row in rows {
        let (target, body, id) = row?;
        match serde_json::from_str(&body) {
            Ok(notification) => deliveries.push(StoredDelivery { target, notification }),
            Err(error) => {
                tracing::error!(id, %error, "a message in the queue cannot be read and is not sent");
            }
        }
    }
    Ok(Stored { planner, deliveries })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::tests_support::sample;

    fn added(id: &str) -> Changes {
        let notification = Arc::new(Notification { id: id.to_owned(), ..sample() });
        Changes {
            planner: Some(format!("{{\"after\": \"{id}\"}}")),
            added: vec![
                ("mail".to_owned(), notification.clone()),
                ("chat".to_owned(), notification),
            ],
            removed: Vec::new(),
        }
    }

    #[test]
    fn what_is_not_delivered_is_there_after_a_restart_in_order_and_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let (mut store, stored) = Store::open(dir.path()).expect("opened");
        assert_eq!(stored, Stored::default());
        store.write(&added("one")).expect("written");
        store.write(&added("two")).expect("written");
        store.write(&added("two")).expect("written");
        let delivered =
            Changes { removed: vec![("one".to_owned(), "mail".to_owned())], ..Changes::default() };
        store.write(&delivered).expect("written");
        assert!(matches!(Store::open(dir.path()), Err(StoreError::Locked(_))));
        drop(store);
        let (_store, stored) = Store::open(dir.path()).expect("opened");
        assert_eq!(stored.planner.as_deref(), Some("{\"after\": \"two\"}"));
        let left: Vec<(&str, &str)> = stored
            .deliveries
            .iter()
            .map(|delivery| (delivery.target.as_str(), delivery.notification.id.as_str()))
            .collect();
        assert_eq!(left, [("chat", "one"), ("mail", "two"), ("chat", "two")]);
    }

    #[test]
    fn a_damaged_queue_is_set_aside() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join(DATABASE), vec![b'x'; 8192]).expect("written");
        let (mut store, stored) = Store::open(dir.path()).expect("opened");
        assert_eq!(stored, Stored::default());
        store.write(&added("one")).expect("written");
        let kept = std::fs::read_dir(dir.path()).expect("readable").flatten();
        let names: Vec<_> = kept.map(|entry| entry.file_name()).collect();
        assert!(names.iter().any(|name| name.to_string_lossy().contains("unusable")), "{names:?}");
    }
}
