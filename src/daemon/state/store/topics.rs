//! Histories as rows: errors of the kernel log by subject, and the log position up to which they
//! count. Both are written in one transaction.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::state::store::{RowChanges, StoreContents, WriteBatch};
use diskvitals_finding::ids::VolumeId;
use diskvitals_model::facts::StoredVolume;
use diskvitals_model::timeline::{Moment, Rebase};

const ERRORS: &str = "errors";
const COUNTERS: &str = "counters";
const SMART: &str = "smart";
const SPACE: &str = "space";
const VOLUMES: &str = "volumes";
const CHECKS: &str = "checks";
const MAINTENANCE: &str = "maintenance";
const LAMPS: &str = "lamps";
const BOOT: &str = "boot";
const PROGRESS: &str = "kernel_log";
const LAST_WRITE: &str = "last_write";

/// Where the run that wrote the database was when it wrote last.
pub(crate) fn last_write(connection: &Connection) -> rusqlite::Result<Option<Moment>> {
    let stored = meta(connection, LAST_WRITE)?;
    Ok(stored.and_then(|text| parse_or_warn(&text, LAST_WRITE, |_| {})))
}

pub(crate) fn put_last_write(transaction: &Transaction<'_>, now: &Moment) -> rusqlite::Result<()> {
    put_meta(transaction, LAST_WRITE, &text(now)?)
}

fn meta(connection: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    connection
        .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
        .optional()
}

pub(crate) fn load(
    connection: &Connection,
    rebase: &Rebase,
    loaded: &mut StoreContents,
) -> rusqlite::Result<()> {
    loaded.errors = load_topic(connection, ERRORS, rebase)?;
    let rebased = |value: &mut Value| rebase.apply_to_json(value);
    loaded.progress =
        meta(connection, PROGRESS)?.and_then(|text| parse_or_warn(&text, PROGRESS, rebased));
    loaded.boot = meta(connection, BOOT)?;
    loaded.volumes = self::load_topic::<VolumeId, StoredVolume>(connection, VOLUMES, rebase)?
        .into_iter()
        .map(|(_, volume)| volume)
        .collect();
    if loaded.progress.is_none() {
        // Without the position up to which they count, the log would be counted a second time.
        loaded.errors.clear();
    }
    loaded.counters = load_topic(connection, COUNTERS, rebase)?;
    loaded.smart = load_topic(connection, SMART, rebase)?;
    loaded.space = load_topic(connection, SPACE, rebase)?;
    loaded.checks = load_topic(connection, CHECKS, rebase)?;
    loaded.maintenance = load_topic(connection, MAINTENANCE, rebase)?;
    loaded.lamps = load_topic(connection, LAMPS, rebase)?;
    Ok(())
}

pub(crate) fn apply(transaction: &Transaction<'_>, write: &WriteBatch) -> rusqlite::Result<()> {
    let topics = TopicWriter { transaction, is_complete: write.is_complete };
    topics.apply(ERRORS, &write.errors)?;
    topics.apply(COUNTERS, &write.counters)?;
    topics.apply(SMART, &write.smart)?;
    topics.apply(SPACE, &write.space)?;
    topics.apply(VOLUMES, &write.volumes)?;
    topics.apply(CHECKS, &write.checks)?;
    topics.apply(MAINTENANCE, &write.maintenance)?;
    topics.apply(LAMPS, &write.lamps)?;
    if let Some(boot) = &write.boot {
        put_meta(transaction, BOOT, boot)?;
    }
    if let Some(progress) = &write.progress {
        put_meta(transaction, PROGRESS, &text(progress.as_ref())?)?;
    }
    Ok(())
}

fn put_meta(transaction: &Transaction<'_>, key: &str, value: &str) -> rusqlite::Result<()> {
    let mut put = transaction
        .prepare_cached("INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value")?;
    put.execute(params![key, value])?;
    Ok(())
}

fn load_topic<K: DeserializeOwned, V: DeserializeOwned>(
    connection: &Connection,
    topic: &str,
    rebase: &Rebase,
) -> rusqlite::Result<Vec<(K, V)>> {
    let mut statement = connection
        .prepare("SELECT subject, memory FROM memories WHERE topic = ?1 ORDER BY subject")?;
    let mut rows = statement.query([topic])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (subject, memory): (String, String) = (row.get(0)?, row.get(1)?);
        let memory = parse_or_warn(&memory, topic, |value| rebase.apply_to_json(value));
        found.extend(parse_or_warn(&subject, topic, |_| {}).zip(memory));
    }
    Ok(found)
}

struct TopicWriter<'a> {
    transaction: &'a Transaction<'a>,
    /// Rows that are not written are deleted.
    is_complete: bool,
}

impl TopicWriter<'_> {
    fn apply<K: Serialize, V: Serialize>(
        &self,
        topic: &str,
        rows: &RowChanges<K, V>,
    ) -> rusqlite::Result<()> {
        let mut delete = self
            .transaction
            .prepare_cached("DELETE FROM memories WHERE topic = ?1 AND subject = ?2")?;
        let mut put = self.transaction.prepare_cached(
            "INSERT INTO memories (topic, subject, memory) VALUES (?1, ?2, ?3)
            ON CONFLICT (topic, subject) DO UPDATE SET memory = excluded.memory",
        )?;
        for subject in &rows.deleted {
            delete.execute(params![topic, text(subject)?])?;
        }
        let mut named = BTreeSet::new();
        for (subject, memory) in &rows.upserted {
            let subject = text(subject)?;
            put.execute(params![topic, subject, text(memory)?])?;
            named.insert(subject);
        }
        if self.is_complete {
            let mut statement =
                self.transaction.prepare("SELECT subject FROM memories WHERE topic = ?1")?;
            let known: Vec<String> =
                statement.query_map([topic], |row| row.get(0))?.collect::<Result<_, _>>()?;
            for subject in known.iter().filter(|subject| !named.contains(*subject)) {
                delete.execute([topic, subject])?;
            }
        }
        Ok(())
    }
}

/// A history that this version cannot read is dropped and starts again.
fn parse_or_warn<T: DeserializeOwned>(
    stored: &str,
    topic: &str,
    change: impl FnOnce(&mut Value),
) -> Option<T> {
    serde_json::from_str(stored)
        .and_then(|mut value| {
            change(&mut value);
            serde_json::from_value(value)
        })
        .inspect_err(
            |error| tracing::warn!(topic, %error, "a memory in the state database is not readable"),
        )
        .ok()
}

pub(super) fn text(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::state::store::schema::{MIGRATIONS, migrate};
    use diskvitals_finding::Subject;
    use diskvitals_finding::ids::{DriveId, VolumeId};
    use diskvitals_kernel_log::error_history::ErrorHistory;
    use diskvitals_kernel_log::event::{Class, Cursor};
    use diskvitals_model::counters::{CounterDevice, CounterHistory as Counters, CounterReading};
    use diskvitals_model::facts::kernel_log::LogProgress;
    use diskvitals_model::fixture::{at, event};
    use diskvitals_model::lamp::{LampOrder, LampPlace};
    use diskvitals_model::maintenance::{MaintenanceOrder, MaintenanceTarget};
    use diskvitals_model::space_history::SpaceHistory;

    fn write_and_reload(connection: &mut Connection, write: &WriteBatch) -> StoreContents {
        let transaction = connection.transaction().unwrap();
        apply(&transaction, write).unwrap();
        transaction.commit().unwrap();
        let mut loaded = StoreContents::default();
        let now = Moment {
            boot_id: String::new(),
            time: at(9999),
            boottime: std::time::Duration::ZERO,
            wall: at(9999),
        };
        load(connection, &Rebase::new(None, &now), &mut loaded).unwrap();
        loaded
    }

    fn put<K, V>(put: Vec<(K, V)>) -> RowChanges<K, V> {
        RowChanges { upserted: put, deleted: Vec::new() }
    }

    fn gone<K, V>(subject: K) -> RowChanges<K, V> {
        RowChanges { upserted: Vec::new(), deleted: vec![subject] }
    }

    fn drive() -> Subject {
        Subject::Drive(DriveId::new("A"))
    }

    fn volume() -> Subject {
        Subject::Volume(VolumeId::known("fs:u"))
    }

    #[test]
    fn writes_read_back_and_are_idempotent() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, MIGRATIONS).unwrap();
        let mut memory = ErrorHistory::default();
        memory.add(&event(Class::Medium, "sda", at(1), &[7]));
        let reading = CounterReading {
            device: CounterDevice::Block("sda".into()),
            source: "scsi".into(),
            file: "f".into(),
            values: [("iotmo_cnt".to_owned(), 3)].into(),
            details: Default::default(),
        };
        let mut counters = Counters::default();
        counters.update(&reading, at(1));
        let progress = LogProgress {
            cursor: Some(Cursor {
                boot_id: "b".into(),
                counted_to: Some(9),
                reread_from: 4,
                lost: 2,
            }),
            ..LogProgress::default()
        };
        let mut space = SpaceHistory::default();
        space.record(at(1), 100, 40);
        let target = MaintenanceTarget::Subject(drive());
        let (by, note) = ("uid 0 (root)".to_owned(), "2027-01-15T08:00:00Z".to_owned());
        let order = Arc::new(MaintenanceOrder { by, note, since: at(9000), seconds: 7200 });
        let place = LampPlace::Vmd { slot: "1".to_owned() };
        let lamp = Arc::new(LampOrder { by: String::new(), since: at(9000), place });
        let write = WriteBatch {
            errors: put(vec![
                (drive(), Arc::new(memory.clone())),
                (volume(), Arc::new(memory.clone())),
            ]),
            progress: Some(Arc::new(progress.clone())),
            counters: put(vec![((drive(), "scsi".into()), Arc::new(counters.clone()))]),
            smart: put(vec![(DriveId::new("A"), Arc::default())]),
            space: put(vec![(volume(), Arc::new(space.clone()))]),
            maintenance: put(vec![(target.clone(), order.clone())]),
            lamps: put(vec![(DriveId::new("A"), lamp.clone())]),
            ..WriteBatch::default()
        };
        write_and_reload(&mut connection, &write);
        let loaded = write_and_reload(&mut connection, &write);
        assert_eq!((loaded.errors.len(), &loaded.errors[0]), (2, &(drive(), memory)));
        assert_eq!(
            (loaded.progress, loaded.counters),
            (Some(progress), vec![((drive(), "scsi".into()), counters)])
        );
        assert_eq!(loaded.smart, vec![(DriveId::new("A"), Default::default())]);
        assert_eq!(loaded.space, vec![(volume(), space)]);
        // Its end is later than now.
        assert_eq!(loaded.maintenance, vec![(target, order)]);
        assert_eq!(loaded.lamps, vec![(DriveId::new("A"), lamp)]);
        let less = WriteBatch {
            errors: gone(volume()),
            counters: gone((drive(), "scsi".into())),
            ..WriteBatch::default()
        };
        let loaded = write_and_reload(&mut connection, &less);
        assert_eq!((loaded.errors.len(), loaded.counters.len(), loaded.smart.len()), (1, 0, 1));
        let nothing = write_and_reload(
            &mut connection,
            &WriteBatch { is_complete: true, ..WriteBatch::default() },
        );
        assert!(nothing.errors.is_empty() && nothing.smart.is_empty() && nothing.space.is_empty());
    }

    #[test]
    fn error_history_without_log_progress_is_discarded() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, MIGRATIONS).unwrap();
        let write =
            WriteBatch { errors: put(vec![(drive(), Arc::default())]), ..WriteBatch::default() };
        assert!(write_and_reload(&mut connection, &write).errors.is_empty());
        connection
            .execute("INSERT INTO meta (key, value) VALUES (?1, 'junk')", [PROGRESS])
            .unwrap();
        assert!(write_and_reload(&mut connection, &write).errors.is_empty());
    }
}
