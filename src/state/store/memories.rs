//! Memories as rows: what the kernel's log has said of each thing, and how far the log is counted. Both are written in one transaction.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::facts::StoredVolume;
use crate::model::ids::VolumeId;
use crate::state::store::{Loaded, Write};

const ERRORS: &str = "errors";
const COUNTERS: &str = "counters";
const VOLUMES: &str = "volumes";
const BOOT: &str = "boot";
const PROGRESS: &str = "kernel_log";

pub fn load(connection: &Connection, loaded: &mut Loaded) -> rusqlite::Result<()> {
    loaded.errors = topic(connection, ERRORS)?;
    let meta = |key: &str| -> rusqlite::Result<Option<String>> {
        connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional()
    };
    loaded.progress = meta(PROGRESS)?.and_then(|text| read(&text, PROGRESS));
    loaded.boot = meta(BOOT)?;
    loaded.volumes = self::topic::<VolumeId, StoredVolume>(connection, VOLUMES)?.into_iter().map(|(_, volume)| volume).collect();
    if loaded.progress.is_none() {
        // Without the place up to which they count, the log would be counted into them a second time.
        loaded.errors.clear();
    }
    loaded.counters = topic(connection, COUNTERS)?;
    Ok(())
}

pub fn apply(transaction: &Transaction<'_>, write: &Write) -> rusqlite::Result<()> {
    if write.everything {
        let named: BTreeSet<String> = write.errors.iter().map(|(subject, _)| text(subject)).collect::<Result<_, _>>()?;
        delete_others(transaction, ERRORS, &named)?;
        let named: BTreeSet<String> = write.counters.iter().map(|(key, _)| text(key)).collect::<Result<_, _>>()?;
        delete_others(transaction, COUNTERS, &named)?;
        let named: BTreeSet<String> = write.volumes.iter().map(|(id, _)| text(id)).collect::<Result<_, _>>()?;
        delete_others(transaction, VOLUMES, &named)?;
    }
    for subject in &write.forgotten_errors {
        delete(transaction, ERRORS, subject)?;
    }
    for key in &write.forgotten_counters {
        delete(transaction, COUNTERS, key)?;
    }
    for id in &write.forgotten_volumes {
        delete(transaction, VOLUMES, id)?;
    }
    for (id, volume) in &write.volumes {
        put(transaction, VOLUMES, id, volume)?;
    }
    if let Some(boot) = &write.boot {
        meta(transaction, BOOT, boot)?;
    }
    for (key, memory) in &write.counters {
        put(transaction, COUNTERS, key, memory.as_ref())?;
    }
    for (subject, memory) in &write.errors {
        put(transaction, ERRORS, subject, memory.as_ref())?;
    }
    if let Some(progress) = &write.progress {
        meta(transaction, PROGRESS, &text(progress.as_ref())?)?;
    }
    Ok(())
}

fn meta(transaction: &Transaction<'_>, key: &str, value: &str) -> rusqlite::Result<()> {
    let mut put = transaction
        .prepare_cached("INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value")?;
    put.execute(params![key, value])?;
    Ok(())
}

fn topic<K: DeserializeOwned, V: DeserializeOwned>(connection: &Connection, topic: &str) -> rusqlite::Result<Vec<(K, V)>> {
    let mut statement = connection.prepare("SELECT subject, memory FROM memories WHERE topic = ?1 ORDER BY subject")?;
    let mut rows = statement.query([topic])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (subject, memory): (String, String) = (row.get(0)?, row.get(1)?);
        found.extend(read(&subject, topic).zip(read(&memory, topic)));
    }
    Ok(found)
}

fn put(transaction: &Transaction<'_>, topic: &str, subject: &impl Serialize, memory: &impl Serialize) -> rusqlite::Result<()> {
    let mut put = transaction.prepare_cached(
        "INSERT INTO memories (topic, subject, memory) VALUES (?1, ?2, ?3)
        ON CONFLICT (topic, subject) DO UPDATE SET memory = excluded.memory",
    )?;
    put.execute(params![topic, text(subject)?, text(memory)?])?;
    Ok(())
}

fn delete(transaction: &Transaction<'_>, topic: &str, subject: &impl Serialize) -> rusqlite::Result<()> {
    let mut delete = transaction.prepare_cached("DELETE FROM memories WHERE topic = ?1 AND subject = ?2")?;
    delete.execute(params![topic, text(subject)?])?;
    Ok(())
}

fn delete_others(transaction: &Transaction<'_>, topic: &str, named: &BTreeSet<String>) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare("SELECT subject FROM memories WHERE topic = ?1")?;
    let known: Vec<String> = statement.query_map([topic], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut delete = transaction.prepare("DELETE FROM memories WHERE topic = ?1 AND subject = ?2")?;
    for subject in known.iter().filter(|subject| !named.contains(*subject)) {
        delete.execute([topic, subject])?;
    }
    Ok(())
}

/// A memory that this version cannot read is forgotten: what the log said begins anew.
fn read<T: DeserializeOwned>(stored: &str, topic: &str) -> Option<T> {
    serde_json::from_str(stored).inspect_err(|error| tracing::warn!(topic, %error, "a memory in the state database is not readable")).ok()
}

fn text(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::counters::{Counted, Memory as Counters, Reading};
    use crate::model::facts::kernel::Progress;
    use crate::model::finding::Subject;
    use crate::model::fixture::{at, event};
    use crate::model::ids::{DriveId, VolumeId};
    use crate::model::kernel::event::{Class, Cursor};
    use crate::model::kernel::memory::Memory;
    use crate::state::store::schema::{MIGRATIONS, migrate};

    fn kept(connection: &mut Connection, write: &Write) -> Loaded {
        let transaction = connection.transaction().unwrap();
        apply(&transaction, write).unwrap();
        transaction.commit().unwrap();
        let mut loaded = Loaded::default();
        load(connection, &mut loaded).unwrap();
        loaded
    }

    fn drive() -> Subject {
        Subject::Drive(DriveId::new("A"))
    }

    fn volume() -> Subject {
        Subject::Volume(VolumeId::known("fs:u"))
    }

    #[test]
    fn what_is_written_is_read_and_written_twice_is_written_once() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, MIGRATIONS).unwrap();
        let mut memory = Memory::default();
        memory.take(&event(Class::Medium, "sda", at(1), &[7]));
        let reading = Reading {
            of: Counted::Block("sda".into()),
            source: "scsi".into(),
            file: "f".into(),
            values: [("iotmo_cnt".to_owned(), 3)].into(),
            details: Default::default(),
        };
        let mut counters = Counters::default();
        counters.take(&reading, at(1));
        let progress =
            Progress { cursor: Some(Cursor { boot_id: "b".into(), counted_to: Some(9), reread_from: 4, lost: 2 }), ..Progress::default() };
        let write = Write {
            errors: vec![(drive(), Arc::new(memory.clone())), (volume(), Arc::new(memory.clone()))],
            progress: Some(Arc::new(progress.clone())),
            counters: vec![((drive(), "scsi".into()), Arc::new(counters.clone()))],
            ..Write::default()
        };
        kept(&mut connection, &write);
        let loaded = kept(&mut connection, &write);
        assert_eq!((loaded.errors.len(), &loaded.errors[0]), (2, &(drive(), memory)));
        assert_eq!((loaded.progress, loaded.counters), (Some(progress), vec![((drive(), "scsi".into()), counters)]));
        let less = Write { forgotten_errors: vec![volume()], forgotten_counters: vec![(drive(), "scsi".into())], ..Write::default() };
        let loaded = kept(&mut connection, &less);
        assert_eq!((loaded.errors.len(), loaded.counters.len()), (1, 0));
        let nothing = kept(&mut connection, &Write { everything: true, ..Write::default() });
        assert!(nothing.errors.is_empty());
    }

    #[test]
    fn without_the_place_up_to_which_they_count_memories_of_the_log_are_not_used() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, MIGRATIONS).unwrap();
        let write = Write { errors: vec![(drive(), Arc::default())], ..Write::default() };
        assert!(kept(&mut connection, &write).errors.is_empty());
        connection.execute("INSERT INTO meta (key, value) VALUES (?1, 'junk')", [PROGRESS]).unwrap();
        assert!(kept(&mut connection, &write).errors.is_empty());
    }
}
