//! Renames the subjects whose ids had another form in earlier versions, everywhere in the database,
//! in one transaction. Their findings, acknowledgements and histories stay theirs.

use std::collections::BTreeMap;

use rusqlite::{Connection, Transaction};

use crate::state::store::StoreContents;
use diskvitals_model::facts::former_ids::FormerIds;

/// Columns with ids, alone or within JSON and text.
const COLUMNS: [(&str, &[&str]); 4] = [
    ("drives", &["id", "known"]),
    ("findings", &["subject_id", "message", "evidence", "clears_when", "cleared_why"]),
    ("memories", &["subject", "memory"]),
    ("meta", &["value"]),
];

/// Returns whether anything has changed.
pub(crate) fn rename(
    connection: &mut Connection,
    loaded: &StoreContents,
) -> rusqlite::Result<bool> {
    let former = FormerIds::find(&loaded.drives, &loaded.volumes);
    if former == FormerIds::default() {
        return Ok(false);
    }
    let transaction = connection.transaction()?;
    replace_all(&transaction, &former.renamed)?;
    for id in &former.unknown_drives {
        transaction.execute("DELETE FROM drives WHERE id = ?1", [id.as_str()])?;
    }
    transaction.commit()?;
    tracing::info!(
        renamed = former.renamed.len(),
        begun_anew = former.unknown_drives.len(),
        "ids of long names have another form than in earlier versions"
    );
    Ok(true)
}

fn replace_all(
    transaction: &Transaction<'_>,
    renamed: &BTreeMap<String, String>,
) -> rusqlite::Result<()> {
    for (table, columns) in COLUMNS {
        let set: Vec<String> =
            columns.iter().map(|it| format!("{it} = replace({it}, ?1, ?2)")).collect();
        let has: Vec<String> = columns.iter().map(|it| format!("instr({it}, ?1) > 0")).collect();
        // Rows of both ids are of a daemon that was replaced by an earlier one for a while, whose
        // rows are the newer ones.
        let mut update = transaction.prepare(&format!(
            "UPDATE OR REPLACE {table} SET {} WHERE {}",
            set.join(", "),
            has.join(" OR ")
        ))?;
        // An id that one has now may be one that another one had: none has either meanwhile.
        let mark = |number: usize| format!("\u{1}{number}\u{1}");
        for (number, from) in renamed.keys().enumerate() {
            update.execute([from, &mark(number)])?;
        }
        for (number, to) in renamed.values().enumerate() {
            update.execute([&mark(number), to])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::state::store::{DATABASE, RowChanges, WriteBatch, open};
    use diskvitals_finding::ids::{DriveId, FindingId, VolumeId, former_id};
    use diskvitals_finding::reason::Reason;
    use diskvitals_finding::severity::Severity;
    use diskvitals_finding::{Acknowledgement, Finding, Status, Subject};
    use diskvitals_kernel_log::error_history::ErrorHistory;
    use diskvitals_kernel_log::event::Class;
    use diskvitals_model::fixture::{TestHost, at, event};

    const DRIVER: &str = "csi.example.com";
    const STAGED: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/d/x/globalmount";

    fn long(name: &str) -> String {
        format!("{name}{}", "-long".repeat(32))
    }

    /// A volume with a long handle, and one at a long mount point. One drive has a long location,
    /// the other one a long serial number.
    fn host() -> (TestHost, [Subject; 3]) {
        let (handle, path, serial) = (long("handle"), long("/srv"), long("S2"));
        let id = DriveId::new(format!("Test_Disk_{serial}"));
        let mut host = TestHost::default()
            .disk("sda", "8:0", "S1")
            .disk("sdb", "8:16", id.as_str())
            .mounted("8:0", "/", STAGED, "ext4", "/dev/sda")
            .mounted("8:16", "/", &path, "ext4", "/dev/sdb")
            .csi(DRIVER, &handle, Some(STAGED), &[]);
        for drive in &mut host.inventory.drives {
            match drive.name.as_str() {
                "sda" => {
                    drive.location.path = Some(long("pci-1"));
                    drive.place = DriveId::new(long("path:pci-1"));
                }
                _ => {
                    (drive.id, drive.identities) = (id.clone(), vec![id.clone()]);
                    drive.serial = Some(serial.clone());
                }
            }
        }
        for device in host.inventory.devices.values_mut().filter(|it| it.name == "sdb") {
            device.drive = Some(id.clone());
        }
        host.read_all(1);
        let volumes = [VolumeId::csi(DRIVER, &handle), VolumeId::mount(&path.as_str().into())];
        let [one, other] = volumes.map(Subject::Volume);
        (host, [one, other, Subject::Drive(id)])
    }

    /// The names of all long ids of the host.
    fn names() -> [String; 4] {
        [
            VolumeId::csi_name(DRIVER, &long("handle")),
            VolumeId::mount_name(&long("/srv").as_str().into()),
            long("path:pci-1"),
            format!("Test_Disk_{}", long("S2")),
        ]
    }

    fn finding(number: usize, subject: &Subject) -> Finding {
        Finding {
            id: FindingId::known(format!("{number:012x}")),
            subject: subject.clone(),
            reason: Reason::IoErrors,
            severity: Severity::Bad,
            status: Status::Degraded,
            message: format!("{subject} has errors"),
            since: at(1),
            last_seen: at(2),
            count: 1,
            evidence: Vec::new(),
            clears_when: "none for a week".to_owned(),
            advice: None,
            acknowledged: Some(Acknowledgement {
                by: "uid 0 (root)".to_owned(),
                time: at(3),
                note: "seen".to_owned(),
            }),
            maintained: false,
            cleared: None,
            follows: None,
        }
    }

    /// The state directory with the history of the host.
    fn stored() -> tempfile::TempDir {
        let (host, subjects) = host();
        let mut errors = ErrorHistory::default();
        errors.add(&event(Class::Medium, "sda", at(1), &[7]));
        let errors = Arc::new(errors);
        let findings = subjects.iter().enumerate().map(|(number, subject)| {
            let finding = finding(number, subject);
            (finding.id.clone(), Arc::new(finding))
        });
        let write = WriteBatch {
            drives: rows(host.facts.drives.clone()),
            volumes: rows(host.facts.stored_volumes()),
            findings: rows(findings),
            errors: rows(subjects.iter().map(|subject| (subject.clone(), errors.clone()))),
            progress: Some(Arc::default()),
            ..WriteBatch::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let (mut database, _) = open::open(dir.path(), "").unwrap();
        database.write(std::iter::once(&write)).unwrap();
        dir
    }

    fn rows<K, V>(rows: impl IntoIterator<Item = (K, V)>) -> RowChanges<K, V> {
        RowChanges { upserted: rows.into_iter().collect(), deleted: Vec::new() }
    }

    fn sql(dir: &tempfile::TempDir) -> Connection {
        Connection::open(dir.path().join(DATABASE)).unwrap()
    }

    /// Makes the ids those of an earlier version.
    fn make_former(dir: &tempfile::TempDir) {
        let sql = sql(dir);
        for name in names() {
            let ids = [DriveId::new(&name).to_string(), former_id(&name)];
            for (table, columns) in COLUMNS {
                for it in columns {
                    let update = format!("UPDATE {table} SET {it} = replace({it}, ?1, ?2)");
                    sql.execute(&update, ids.each_ref()).unwrap();
                }
            }
        }
    }

    fn contents(dir: &tempfile::TempDir) -> Vec<String> {
        let sql = sql(dir);
        let mut found = Vec::new();
        for (table, columns) in COLUMNS {
            for it in columns {
                let mut all = sql
                    .prepare(&format!("SELECT {it} FROM {table} WHERE {it} IS NOT NULL ORDER BY 1"))
                    .unwrap();
                let rows = all.query_map([], |row| row.get::<_, String>(0)).unwrap();
                found.extend(rows.map(Result::unwrap));
            }
        }
        found
    }

    #[test]
    fn all_that_was_stored_under_former_ids_has_the_present_ones_after_a_start() {
        let dir = stored();
        let present = contents(&dir);
        make_former(&dir);
        let former = contents(&dir);
        for name in names() {
            let has = |texts: &[String], id: &str| texts.iter().any(|it| it.contains(id));
            let (now, then) = (DriveId::new(&name), former_id(&name));
            assert!(has(&present, now.as_str()) && !has(&present, &then), "{name}");
            assert!(has(&former, &then) && !has(&former, now.as_str()), "{name}");
        }
        let (_, loaded) = open::open(dir.path(), "").unwrap();
        assert_eq!(contents(&dir), present);
        let subjects: Vec<&Subject> = loaded.findings.iter().map(|it| &it.subject).collect();
        assert_eq!(subjects, host().1.each_ref());
        assert!(loaded.findings.iter().all(|it| it.acknowledged.is_some()));
        assert_eq!((loaded.errors.len(), loaded.volumes.len(), loaded.drives.len()), (3, 2, 2));
    }

    #[test]
    fn a_start_that_ends_in_between_renames_nothing_and_the_next_one_all() {
        let dir = stored();
        let present = contents(&dir);
        make_former(&dir);
        let former = contents(&dir);
        sql(&dir)
            .execute_batch(
                "CREATE TRIGGER full BEFORE UPDATE ON memories BEGIN SELECT RAISE(ABORT, 'full'); END",
            )
            .unwrap();
        open::open(dir.path(), "").unwrap_err();
        assert_eq!(contents(&dir), former);
        sql(&dir).execute_batch("DROP TRIGGER full").unwrap();
        open::open(dir.path(), "").unwrap();
        assert_eq!(contents(&dir), present);
    }

    /// Whoever chose a name could choose it to be the id that another one has now.
    #[test]
    fn a_name_that_is_the_present_id_of_another_one_takes_nothing_of_it() {
        let dir = stored();
        let mut sql = sql(&dir);
        sql.execute_batch(
            "DELETE FROM memories; INSERT INTO memories VALUES ('errors', '<1>', 'one'), ('errors', '<2>', 'two')",
        )
        .unwrap();
        let transaction = sql.transaction().unwrap();
        let renamed = [("<1>", "<2>"), ("<2>", "<3>")];
        let renamed = renamed.map(|(from, to)| (from.to_owned(), to.to_owned()));
        replace_all(&transaction, &renamed.into()).unwrap();
        transaction.commit().unwrap();
        let mut all = sql.prepare("SELECT subject || memory FROM memories ORDER BY 1").unwrap();
        let rows = all.query_map([], |row| row.get::<_, String>(0)).unwrap();
        assert_eq!(rows.map(Result::unwrap).collect::<Vec<_>>(), ["<2>one", "<3>two"]);
    }

    /// A daemon of an earlier version ran for a while.
    #[test]
    fn where_both_ids_are_stored_the_former_one_is_newer() {
        let dir = stored();
        let id = VolumeId::csi(DRIVER, &long("handle")).to_string();
        let newer = format!("{{\"kind\":\"volume\",\"id\":\"{id}\"}}");
        make_former(&dir);
        sql(&dir)
            .execute("INSERT INTO memories VALUES ('errors', ?1, 'of the later version')", [&newer])
            .unwrap();
        let (_, loaded) = open::open(dir.path(), "").unwrap();
        assert_eq!(loaded.errors.len(), 3);
    }

    #[test]
    fn a_drive_whose_name_is_not_stored_is_no_missing_drive() {
        let dir = stored();
        make_former(&dir);
        sql(&dir)
            .execute(
                "UPDATE drives SET known = replace(known, '\"serial\":\"S2', '\"serial\":\"S3')",
                [],
            )
            .unwrap();
        let (_, loaded) = open::open(dir.path(), "").unwrap();
        let drives: Vec<&str> = loaded.drives.iter().map(|it| it.facts.name.as_str()).collect();
        assert_eq!(drives, ["sda"]);
    }
}
