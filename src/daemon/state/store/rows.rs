//! Drives and findings as rows, in both directions. Writing is by upsert, so repeating it changes
//! nothing.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::store::topics::text;
use crate::state::store::{StoreContents, WriteBatch, topics};
use diskvitals_finding::ids::FindingId;
use diskvitals_finding::{Acknowledgement, Clearance, Finding};
use diskvitals_model::facts::KnownDrive;
use diskvitals_model::timeline::{Moment, Rebase};

/// Rows that this version could not read. They stay unchanged, and a warning is logged.
#[derive(Debug, Default)]
pub(crate) struct UnreadableRows {
    drives: BTreeSet<String>,
    findings: BTreeSet<String>,
}

/// `now`: all times are moved onto the timeline that it is on.
pub(crate) fn load(
    connection: &Connection,
    now: &Moment,
) -> rusqlite::Result<(StoreContents, UnreadableRows)> {
    let rebase = Rebase::new(topics::last_write(connection)?.as_ref(), now);
    let (mut loaded, mut unreadable) = (StoreContents::default(), UnreadableRows::default());
    let mut statement = connection.prepare("SELECT id, known FROM drives ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        match json::<KnownDrive>(row, 1, &rebase) {
            Ok(known) => loaded.drives.push(known),
            Err(error) => unreadable.drives.extend(warn_skipped("drives", row, &error)),
        }
    }
    let mut statement = connection.prepare(
        "SELECT id, subject_kind, subject_id, reason, severity, status, message, since, last_seen, count, evidence, clears_when,
            cleared_time, cleared_why, user_made, follows, by, time, note
        FROM findings LEFT JOIN acknowledgements ON finding = id ORDER BY cleared_time DESC, id",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        match finding(row, &rebase) {
            Ok(finding) => loaded.findings.push(finding),
            Err(error) => unreadable.findings.extend(warn_skipped("findings", row, &error)),
        }
    }
    topics::load(connection, &rebase, &mut loaded)?;
    (loaded.clock_step, loaded.is_quiet_lost) = (rebase.step, rebase.is_quiet_lost);
    Ok((loaded, unreadable))
}

pub(crate) fn apply(
    transaction: &Transaction<'_>,
    write: &WriteBatch,
    unreadable: &UnreadableRows,
) -> rusqlite::Result<()> {
    if write.is_complete {
        let named = write.drives.upserted.iter().map(|(id, _)| id.as_str()).collect();
        delete_others(transaction, "drives", &named, &unreadable.drives)?;
        let named = write.findings.upserted.iter().map(|(id, _)| id.as_str()).collect();
        delete_others(transaction, "findings", &named, &unreadable.findings)?;
    }
    let mut delete = transaction.prepare_cached("DELETE FROM findings WHERE id = ?1")?;
    for id in &write.findings.deleted {
        delete.execute([id.as_str()])?;
    }
    let mut delete = transaction.prepare_cached("DELETE FROM drives WHERE id = ?1")?;
    for id in &write.drives.deleted {
        delete.execute([id.as_str()])?;
    }
    for (_, known) in &write.drives.upserted {
        put_drive(transaction, known)?;
    }
    // Cleared findings first: a new finding for the same subject and reason may follow in the same
    // write.
    let findings = write.findings.upserted.iter().map(|(_, finding)| finding);
    let (active, cleared): (Vec<_>, Vec<_>) = findings.partition(|finding| finding.is_active());
    for finding in cleared.into_iter().chain(active) {
        put_finding(transaction, finding)?;
    }
    topics::apply(transaction, write)
}

fn put_drive(transaction: &Transaction<'_>, known: &KnownDrive) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO drives (id, known, first_seen, last_seen, missing_since) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (id) DO UPDATE SET known = excluded.known, first_seen = excluded.first_seen, last_seen = excluded.last_seen,
            missing_since = excluded.missing_since",
    )?;
    let missing = known.missing_since.map(|since| since.to_string());
    let (first, last) = (known.first_seen.to_string(), known.last_seen.to_string());
    statement.execute(params![known.facts.id.as_str(), text(known)?, first, last, missing])?;
    Ok(())
}

fn put_finding(transaction: &Transaction<'_>, finding: &Finding) -> rusqlite::Result<()> {
    let subject = value(&finding.subject)?;
    let mut statement = transaction.prepare_cached(
        "INSERT INTO findings (id, subject_kind, subject_id, reason, severity, status, message, since, last_seen, count, evidence, clears_when,
            cleared_time, cleared_why, follows, user_made)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
        ON CONFLICT (id) DO UPDATE SET subject_kind = excluded.subject_kind, subject_id = excluded.subject_id,
            severity = excluded.severity, status = excluded.status, message = excluded.message,
            since = excluded.since, last_seen = excluded.last_seen, count = excluded.count, evidence = excluded.evidence,
            clears_when = excluded.clears_when, cleared_time = excluded.cleared_time, cleared_why = excluded.cleared_why,
            follows = excluded.follows, user_made = excluded.user_made",
    )?;
    statement.execute(params![
        finding.id.as_str(),
        subject["kind"].as_str(),
        subject["id"].as_str(),
        finding.reason.name(),
        value(&finding.severity)?.as_str(),
        value(&finding.status)?.as_str(),
        finding.message,
        finding.since.to_string(),
        finding.last_seen.to_string(),
        i64::try_from(finding.count).unwrap_or(i64::MAX),
        text(&finding.evidence)?,
        finding.clears_when,
        finding.cleared.as_ref().map(|cleared| cleared.time.to_string()),
        finding.cleared.as_ref().map(|cleared| cleared.why.as_str()),
        finding.follows.as_ref().map(FindingId::as_str),
        finding.cleared.as_ref().is_some_and(|cleared| cleared.is_user_made),
    ])?;
    match &finding.acknowledged {
        None => transaction.prepare_cached("DELETE FROM acknowledgements WHERE finding = ?1")?.execute([finding.id.as_str()])?,
        Some(Acknowledgement { by, time, note }) => transaction
            .prepare_cached(
                "INSERT INTO acknowledgements (finding, by, time, note) VALUES (?1, ?2, ?3, ?4)
                ON CONFLICT (finding) DO UPDATE SET by = excluded.by, time = excluded.time, note = excluded.note",
            )?
            .execute(params![finding.id.as_str(), by, time.to_string(), note])?,
    };
    Ok(())
}

fn delete_others(
    transaction: &Transaction<'_>,
    table: &str,
    named: &BTreeSet<&str>,
    unreadable: &BTreeSet<String>,
) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare(&format!("SELECT id FROM {table}"))?;
    let ids: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut delete = transaction.prepare(&format!("DELETE FROM {table} WHERE id = ?1"))?;
    for id in ids.iter().filter(|id| !named.contains(id.as_str()) && !unreadable.contains(*id)) {
        delete.execute([id])?;
    }
    Ok(())
}

fn finding(row: &Row<'_>, rebase: &Rebase) -> rusqlite::Result<Finding> {
    let subject = serde_json::json!({"kind": row.get::<_, String>("subject_kind")?, "id": row.get::<_, String>("subject_id")?});
    let acknowledged = |by| -> rusqlite::Result<Acknowledgement> {
        let (time, note) = (parse_time(row, "time", rebase)?, row.get("note")?);
        Ok(Acknowledgement { by, time, note })
    };
    let acknowledged = row.get::<_, Option<String>>("by")?.map(acknowledged).transpose()?;
    let cleared = match row.get::<_, Option<String>>("cleared_time")? {
        None => None,
        Some(_) => Some(Clearance {
            time: parse_time(row, "cleared_time", rebase)?,
            why: row.get::<_, Option<String>>("cleared_why")?.unwrap_or_default(),
            is_user_made: row.get("user_made")?,
        }),
    };
    Ok(Finding {
        id: FindingId::known(row.get::<_, String>("id")?),
        subject: serde_json::from_value(subject).map_err(|error| conversion_error(1, error))?,
        reason: parse_enum(row, "reason")?,
        severity: parse_enum(row, "severity")?,
        status: parse_enum(row, "status")?,
        message: row.get("message")?,
        since: parse_time(row, "since", rebase)?,
        last_seen: parse_time(row, "last_seen", rebase)?,
        count: u64::try_from(row.get::<_, i64>("count")?).unwrap_or_default(),
        evidence: json(row, row.as_ref().column_index("evidence")?, rebase)?,
        clears_when: row.get("clears_when")?,
        advice: None,
        acknowledged,
        maintained: false,
        cleared,
        follows: row.get::<_, Option<String>>("follows")?.map(FindingId::known),
    })
}

/// A value that serde writes as one string.
fn parse_enum<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_value(serde_json::Value::String(text)).map_err(|error| {
        conversion_error(row.as_ref().column_index(column).unwrap_or_default(), error)
    })
}

fn parse_time(row: &Row<'_>, column: &str, rebase: &Rebase) -> rusqlite::Result<Timestamp> {
    parse_enum(row, column).map(|time| rebase.apply(time))
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize, rebase: &Rebase) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text)
        .and_then(|mut value| {
            rebase.apply_to_json(&mut value);
            serde_json::from_value(value)
        })
        .map_err(|error| conversion_error(column, error))
}

fn conversion_error(column: usize, error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}

fn value(value: &impl Serialize) -> rusqlite::Result<serde_json::Value> {
    serde_json::to_value(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn warn_skipped(table: &'static str, row: &Row<'_>, error: &rusqlite::Error) -> Option<String> {
    let id = row.get::<_, String>(0).ok();
    tracing::warn!(table, id, %error, "a row of the state database is not readable and is left alone");
    id
}
