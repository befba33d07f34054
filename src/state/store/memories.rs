//! Memories as rows: what the kernel's log has said of each thing, and how far the log is counted. Both are written in one transaction.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::finding::Subject;
use crate::state::store::{Loaded, Write};

const ERRORS: &str = "errors";
const PROGRESS: &str = "kernel_log";

pub fn load(connection: &Connection, loaded: &mut Loaded) -> rusqlite::Result<()> {
    loaded.errors = topic(connection, ERRORS)?;
    let progress: Option<String> =
        connection.query_row("SELECT value FROM meta WHERE key = ?1", [PROGRESS], |row| row.get(0)).optional()?;
    loaded.progress = progress.and_then(|text| read(&text, PROGRESS));
    if loaded.progress.is_none() {
        // Without the place up to which they count, the log would be counted into them a second time.
        loaded.errors.clear();
    }
    Ok(())
}

pub fn apply(transaction: &Transaction<'_>, write: &Write) -> rusqlite::Result<()> {
    if write.everything {
        let named: BTreeSet<String> = write.errors.iter().map(|(subject, _)| text(subject)).collect::<Result<_, _>>()?;
        delete_others(transaction, ERRORS, &named)?;
    }
    for subject in &write.forgotten_errors {
        let mut delete = transaction.prepare_cached("DELETE FROM memories WHERE topic = ?1 AND subject = ?2")?;
        delete.execute(params![ERRORS, text(subject)?])?;
    }
    for (subject, memory) in &write.errors {
        put(transaction, ERRORS, subject, memory.as_ref())?;
    }
    if let Some(progress) = &write.progress {
        let mut put = transaction
            .prepare_cached("INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value")?;
        put.execute(params![PROGRESS, text(progress.as_ref())?])?;
    }
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

fn put(transaction: &Transaction<'_>, topic: &str, subject: &Subject, memory: &impl Serialize) -> rusqlite::Result<()> {
    let mut put = transaction.prepare_cached(
        "INSERT INTO memories (topic, subject, memory) VALUES (?1, ?2, ?3)
        ON CONFLICT (topic, subject) DO UPDATE SET memory = excluded.memory",
    )?;
    put.execute(params![topic, text(subject)?, text(memory)?])?;
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
