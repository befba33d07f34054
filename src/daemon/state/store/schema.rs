//! The tables and their migrations, one per version, in `PRAGMA user_version`. A migration is never
//! changed after its release.

use rusqlite::Connection;

pub(crate) const MIGRATIONS: &[&str] = &[
    // Times are RFC 3339 text in UTC, so that nothing is rounded and people can read them: on the
    // timeline of the run that wrote them, which is the wall clock at its start. `known`
    // and `evidence` are JSON of the model's types.
    "CREATE TABLE drives (
        id TEXT PRIMARY KEY,
        known TEXT NOT NULL,
        first_seen TEXT NOT NULL,
        last_seen TEXT NOT NULL,
        missing_since TEXT
    ) STRICT;
    CREATE TABLE findings (
        id TEXT PRIMARY KEY,
        subject_kind TEXT NOT NULL,
        subject_id TEXT NOT NULL,
        reason TEXT NOT NULL,
        severity TEXT NOT NULL,
        status TEXT NOT NULL,
        message TEXT NOT NULL,
        since TEXT NOT NULL,
        last_seen TEXT NOT NULL,
        count INTEGER NOT NULL,
        evidence TEXT NOT NULL,
        clears_when TEXT NOT NULL,
        cleared_time TEXT,
        cleared_why TEXT
    ) STRICT;
    CREATE UNIQUE INDEX one_active_finding ON findings (subject_kind, subject_id, reason) WHERE cleared_time IS NULL;
    CREATE TABLE acknowledgements (
        finding TEXT PRIMARY KEY REFERENCES findings (id) ON DELETE CASCADE,
        by TEXT NOT NULL,
        time TEXT NOT NULL,
        note TEXT NOT NULL
    ) STRICT;
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;",
    // Histories of a drive, a volume or a device, besides its findings: `errors` (the kernel log,
    // one tally per class of incident), `counters`. `meta` has the position in the log up to which
    // they count, written in the same transaction.
    "CREATE TABLE memories (
        topic TEXT NOT NULL,
        subject TEXT NOT NULL,
        memory TEXT NOT NULL,
        PRIMARY KEY (topic, subject)
    ) STRICT, WITHOUT ROWID;",
    // The id of the finding that announces the common cause.
    "ALTER TABLE findings ADD COLUMN follows TEXT;",
    // Of a cleared one: a user could make it.
    "ALTER TABLE findings ADD COLUMN user_made INTEGER NOT NULL DEFAULT 0;",
];

pub(crate) fn version(connection: &Connection) -> rusqlite::Result<usize> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))
        .map(|version| version as usize)
}

/// Each step is one transaction, version included: after a crash between two steps, the next start
/// continues with the second.
pub(crate) fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    for (step, sql) in migrations.iter().enumerate().skip(version(connection)?) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(
            None,
            "user_version",
            i64::try_from(step + 1).unwrap_or(i64::MAX),
        )?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_grows_from_the_one_before_and_a_failed_step_leaves_it() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert_eq!(version(&connection).unwrap(), 0);
        let mut steps = MIGRATIONS.to_vec();
        for released in 1..=MIGRATIONS.len() {
            migrate(&mut connection, &MIGRATIONS[..released]).unwrap();
            assert_eq!(version(&connection).unwrap(), released);
        }
        steps.push("ALTER TABLE meta ADD COLUMN time TEXT; SYNTAX ERROR");
        migrate(&mut connection, &steps).unwrap_err();
        assert_eq!(version(&connection).unwrap(), MIGRATIONS.len());
        connection.execute("INSERT INTO meta (key, value) VALUES ('a', 'b')", []).unwrap();
        steps.pop();
        steps.push("ALTER TABLE meta ADD COLUMN time TEXT");
        migrate(&mut connection, &steps).unwrap();
        assert_eq!(version(&connection).unwrap(), steps.len());
        migrate(&mut connection, &steps).unwrap();
        assert_eq!(
            connection
                .query_row("SELECT value FROM meta WHERE time IS NULL", [], |row| {
                    row.get::<_, String>(0)
                })
                .unwrap(),
            "b"
        );
    }
}
