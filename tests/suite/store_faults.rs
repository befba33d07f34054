//! The store when its disk is damaged, newer than the program, read-only, full or slow: the store
//! reports the fault, keeps all confirmed data, and continues.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use diskvitals_daemon::state::lock;
use diskvitals_daemon::state::store::{
    DATABASE, RowChanges, Store, StoreConfig, StoreContents, StoreEvent, WriteBatch,
};
use diskvitals_finding::ids::{FindingId, VolumeId};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Acknowledgement, Clearance, Evidence, Finding, Status, Subject};
use diskvitals_model::snapshot::StoreStatus;
use jiff::Timestamp;
use nix::mount::MsFlags;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::tmpfs::Tmpfs;

const LONG: Duration = Duration::from_secs(60);

fn at(second: i64) -> Timestamp {
    Timestamp::new(1_700_000_000 + second, 123_456_789).unwrap()
}

fn finding(number: i64) -> Finding {
    Finding {
        id: FindingId::known(format!("{number:012x}")),
        subject: Subject::Volume(VolumeId::filesystem(&format!("volume {number}"))),
        reason: Reason::OutOfSpace,
        severity: Severity::Suspect,
        status: Status::Degraded,
        message: "1.5 % free — “café”".to_owned(),
        since: at(number),
        last_seen: at(number + 5),
        count: 3,
        evidence: vec![Evidence {
            source: "statfs /data".to_owned(),
            time: at(1),
            text: "x".repeat(200),
            witness: diskvitals_finding::WitnessKind::KernelLog,
            // It is not stored.
            present: false,
        }],
        clears_when: "4 % are free".to_owned(),
        advice: None,
        acknowledged: Some(Acknowledgement {
            by: "uid 0 (root)".to_owned(),
            time: at(2),
            note: "bought a disk".to_owned(),
        }),
        maintained: false,
        cleared: None,
        follows: None,
    }
}

fn cleared(number: i64) -> Finding {
    Finding {
        acknowledged: None,
        cleared: Some(Clearance {
            time: at(99),
            why: "the condition is over".to_owned(),
            is_user_made: true,
        }),
        ..finding(number)
    }
}

fn findings(all: &[Finding]) -> WriteBatch {
    WriteBatch {
        findings: RowChanges {
            upserted: all.iter().map(|one| (one.id.clone(), Arc::new(one.clone()))).collect(),
            deleted: Vec::new(),
        },
        ..WriteBatch::default()
    }
}

fn config(dir: &Path) -> StoreConfig {
    StoreConfig {
        min_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_millis(200),
        ..StoreConfig::new(dir)
    }
}

async fn opened(dir: &Path) -> (Store, mpsc::Receiver<StoreEvent>, StoreContents) {
    let (store, mut events) = Store::spawn(config(dir), None).unwrap();
    match timeout(LONG, events.recv()).await.unwrap().unwrap() {
        StoreEvent::Opened(loaded) => (store, events, *loaded),
        other => panic!("{other:?}"),
    }
}

async fn write(store: &Store, write: WriteBatch) -> Result<(), String> {
    let (stored, answer) = oneshot::channel();
    store.write(write, vec![stored]).unwrap();
    timeout(LONG, answer).await.unwrap().unwrap()
}

async fn kept(dir: &Path) -> Vec<Finding> {
    let (store, _, loaded) = opened(dir).await;
    assert!(store.close(LONG).await);
    loaded.findings
}

async fn set_aside(dir: &Path, kind: &str) -> Vec<PathBuf> {
    assert_eq!(kept(dir).await, [], "a new one is begun");
    let prefix = format!("{DATABASE}.{kind}-2");
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix));
    names.sort();
    names
}

/// A state directory that contains two findings.
async fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut events, loaded) = opened(dir.path()).await;
    assert_eq!(loaded, StoreContents::default());
    write(&store, findings(&[finding(1), cleared(2)])).await.unwrap();
    assert!(matches!(events.recv().await, Some(StoreEvent::Status(StoreStatus::Ok))));
    assert!(store.close(LONG).await);
    dir
}

#[tokio::test]
async fn stored_state_is_restored_exactly_and_rewriting_duplicates_nothing() {
    let dir = filled().await;
    let (store, _events, _) = opened(dir.path()).await;
    write(&store, findings(&[finding(1), cleared(2)])).await.unwrap();
    assert!(store.close(LONG).await);
    // Cleared findings come first.
    assert_eq!(kept(dir.path()).await, [cleared(2), finding(1)]);
    let (store, _events, _) = opened(dir.path()).await;
    write(&store, WriteBatch { is_complete: true, ..findings(&[finding(1)]) }).await.unwrap();
    assert!(store.close(LONG).await);
    assert_eq!(kept(dir.path()).await, [finding(1)]);
}

#[tokio::test]
async fn a_cleared_finding_makes_room_for_the_next_in_one_write() {
    let dir = filled().await;
    let (store, _events, _) = opened(dir.path()).await;
    let over = Finding { id: finding(1).id, ..cleared(1) };
    let next = Finding { id: FindingId::known("aaaaaaaaaaaa"), ..finding(1) };
    write(&store, findings(&[next.clone(), over])).await.unwrap();
    assert!(store.close(LONG).await);
    assert!(kept(dir.path()).await.contains(&next));
}

#[tokio::test]
async fn a_garbage_database_is_set_aside_under_a_dated_name() {
    let dir = filled().await;
    std::fs::write(dir.path().join(DATABASE), vec![0x5a; 8192]).unwrap();
    std::fs::write(dir.path().join(format!("{DATABASE}-wal")), b"not a log").unwrap();
    let names = set_aside(dir.path(), "damaged").await;
    assert_eq!(std::fs::read(&names[0]).unwrap(), vec![0x5a; 8192]);
    assert!(names.iter().any(|path| path.to_str().unwrap().ends_with("-wal")), "{names:?}");
}

#[tokio::test]
async fn a_truncated_database_and_one_with_overwritten_pages_are_set_aside() {
    for damage in
        [|bytes: &mut Vec<u8>| bytes.truncate(5000), |bytes: &mut Vec<u8>| bytes[4096..].fill(0xff)]
    {
        let dir = filled().await;
        let path = dir.path().join(DATABASE);
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        assert!(!set_aside(dir.path(), "damaged").await.is_empty());
    }
}

#[tokio::test]
async fn a_truncated_write_ahead_log_is_replayed_up_to_the_last_commit() {
    let dir = filled().await;
    let other = tempfile::tempdir().unwrap();
    let (store, _events, _) = opened(dir.path()).await;
    write(&store, findings(&[finding(3)])).await.unwrap();
    let wal = std::fs::read(dir.path().join(format!("{DATABASE}-wal"))).unwrap();
    std::fs::copy(dir.path().join(DATABASE), other.path().join(DATABASE)).unwrap();
    std::fs::write(other.path().join(format!("{DATABASE}-wal")), &wal[..wal.len() - 100]).unwrap();
    assert!(store.close(LONG).await);
    let kept = kept(other.path()).await;
    assert!(
        kept.contains(&finding(1)) && kept.contains(&cleared(2)) && !kept.contains(&finding(3))
    );
}

#[tokio::test]
async fn a_newer_database_is_set_aside_with_its_log_and_neither_is_touched() {
    let dir = filled().await;
    let other = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(dir.path().join(DATABASE)).unwrap();
    connection.pragma_update(None, "user_version", 9999).unwrap();
    let read = |dir: &Path, name: &str| std::fs::read(dir.join(name)).unwrap();
    let wal_name = format!("{DATABASE}-wal");
    for name in [DATABASE, &wal_name] {
        std::fs::copy(dir.path().join(name), other.path().join(name)).unwrap();
    }
    let (database, wal) = (read(other.path(), DATABASE), read(other.path(), &wal_name));
    assert!(!wal.is_empty());
    drop(connection);
    let names = set_aside(other.path(), "newer").await;
    assert_eq!(std::fs::read(&names[0]).unwrap(), database);
    let log = names.iter().find(|path| path.to_str().unwrap().ends_with("-wal")).unwrap();
    assert_eq!(std::fs::read(log).unwrap(), wal);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_skipped_and_kept() {
    let dir = filled().await;
    let path = dir.path().join(DATABASE);
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute("UPDATE findings SET reason = 'FromTheFuture' WHERE cleared_time IS NULL", [])
        .unwrap();
    let (store, _events, loaded) = opened(dir.path()).await;
    assert_eq!(loaded.findings, [cleared(2)]);
    write(&store, WriteBatch { is_complete: true, ..findings(&loaded.findings) }).await.unwrap();
    assert!(store.close(LONG).await);
    let count = |sql| {
        rusqlite::Connection::open(&path)
            .unwrap()
            .query_row(sql, [], |row| row.get::<_, u32>(0))
            .unwrap()
    };
    assert_eq!(count("SELECT count(*) FROM findings"), 2);
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_used_is_named_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    std::fs::write(&state, b"a file").unwrap();
    let (store, mut events) = Store::spawn(config(&state), None).unwrap();
    match timeout(LONG, events.recv()).await.unwrap() {
        Some(StoreEvent::Status(StoreStatus::MemoryOnly(why))) => {
            assert!(why.contains(state.to_str().unwrap()), "{why}")
        }
        other => panic!("{other:?}"),
    }
    let error = write(&store, findings(&[finding(1)])).await.unwrap_err();
    assert!(error.contains(state.to_str().unwrap()), "{error}");
    std::fs::remove_file(&state).unwrap();
    assert!(matches!(timeout(LONG, events.recv()).await.unwrap(), Some(StoreEvent::Opened(_))));
    write(&store, findings(&[finding(1)])).await.unwrap();
    assert!(matches!(
        timeout(LONG, events.recv()).await.unwrap(),
        Some(StoreEvent::Status(StoreStatus::Ok))
    ));
    assert!(store.close(LONG).await);
}

/// The state directory as an administrator or a clean-up program may change it under the daemon.
#[tokio::test]
async fn nothing_is_confirmed_into_files_that_were_removed_and_a_new_history_begins() {
    let removals: [fn(&Path); 4] = [
        |dir| std::fs::remove_dir_all(dir).unwrap(),
        |dir| std::fs::rename(dir, dir.with_extension("moved")).unwrap(),
        |dir| std::fs::remove_file(dir.join(format!("{DATABASE}-wal"))).unwrap(),
        |dir| std::fs::remove_file(dir.join("lock")).unwrap(),
    ];
    for remove in removals {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("state");
        let (store, mut events, _) = opened(&dir).await;
        write(&store, findings(&[finding(1)])).await.unwrap();
        assert!(matches!(events.recv().await, Some(StoreEvent::Status(StoreStatus::Ok))));
        remove(&dir);
        let error = write(&store, findings(&[finding(2)])).await.unwrap_err();
        assert!(error.contains("were removed or replaced"), "{error}");
        loop {
            match timeout(LONG, events.recv()).await.unwrap().unwrap() {
                StoreEvent::Reopened => break,
                StoreEvent::Status(StoreStatus::MemoryOnly(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        let everything = WriteBatch { is_complete: true, ..findings(&[finding(1), finding(2)]) };
        write(&store, everything).await.unwrap();
        assert!(lock::acquire(&dir).is_err(), "it is locked again");
        assert!(store.close(LONG).await);
        assert_eq!(kept(&dir).await, [finding(1), finding(2)]);
    }
}

#[tokio::test]
async fn a_directory_locked_by_another_is_used_as_soon_as_it_is_free() {
    let dir = filled().await;
    let held = lock::acquire(dir.path()).unwrap();
    let (store, mut events) = Store::spawn(config(dir.path()), None).unwrap();
    match timeout(LONG, events.recv()).await.unwrap() {
        Some(StoreEvent::Status(StoreStatus::MemoryOnly(why))) => {
            assert!(why.contains("is used by another diskvitalsd"), "{why}")
        }
        other => panic!("{other:?}"),
    }
    drop(held);
    match timeout(LONG, events.recv()).await.unwrap() {
        Some(StoreEvent::Opened(loaded)) => assert_eq!(loaded.findings, [cleared(2), finding(1)]),
        other => panic!("{other:?}"),
    }
    assert!(store.close(LONG).await);
}

#[tokio::test]
async fn a_full_disk_means_memory_until_there_is_room_and_loses_nothing_confirmed() {
    let Some(tmpfs) = Tmpfs::mount() else { return };
    let dir = tmpfs.path().join("state");
    let (store, mut events, _) = opened(&dir).await;
    write(&store, findings(&[finding(0)])).await.unwrap();
    assert!(matches!(events.recv().await, Some(StoreEvent::Status(StoreStatus::Ok))));
    let mut confirmed = vec![finding(0)];
    let error = loop {
        let number = i64::try_from(confirmed.len()).unwrap();
        let big = Finding { message: "y".repeat(30_000), ..finding(number) };
        match write(&store, findings(std::slice::from_ref(&big))).await {
            Ok(()) => confirmed.push(big),
            Err(error) => break error,
        }
    };
    assert!(error.contains("full"), "{error}");
    assert!(matches!(
        timeout(LONG, events.recv()).await.unwrap(),
        Some(StoreEvent::Status(StoreStatus::MemoryOnly(_)))
    ));
    tmpfs.remount(MsFlags::empty(), Some("size=64m"));
    // The owner also writes everything on each open.
    loop {
        match timeout(LONG, events.recv()).await.unwrap().unwrap() {
            StoreEvent::Reopened => {
                confirmed.push(finding(5000));
                drop(write(&store, WriteBatch { is_complete: true, ..findings(&confirmed) }).await);
            }
            StoreEvent::Status(StoreStatus::Ok) => break,
            StoreEvent::Status(_) => {}
            StoreEvent::Opened(_) => panic!("opened before"),
        }
    }
    assert!(store.close(LONG).await);
    let kept = kept(&dir).await;
    assert!(confirmed.iter().all(|finding| kept.contains(finding)));
}

#[tokio::test]
async fn a_filesystem_that_turns_read_only_means_memory_and_says_why() {
    let Some(tmpfs) = Tmpfs::mount() else { return };
    let dir = tmpfs.path().join("state");
    tmpfs.remount(MsFlags::MS_RDONLY, None);
    let (store, mut events) = Store::spawn(config(&dir), None).unwrap();
    match timeout(LONG, events.recv()).await.unwrap() {
        Some(StoreEvent::Status(StoreStatus::MemoryOnly(why))) => {
            assert!(why.contains("Read-only file system"), "{why}")
        }
        other => panic!("{other:?}"),
    }
    tmpfs.remount(MsFlags::empty(), None);
    assert!(matches!(timeout(LONG, events.recv()).await.unwrap(), Some(StoreEvent::Opened(_))));
    write(&store, findings(&[finding(1)])).await.unwrap();
    assert!(store.close(LONG).await);
    assert_eq!(kept(&dir).await, [finding(1)]);
}

#[tokio::test]
async fn a_slow_disk_does_not_block_the_owner() {
    let (store, _ops, _end, _events, _) = Store::fake();
    let mut refused = 0;
    for number in 0..1000 {
        refused += u32::from(store.write(findings(&[finding(number)]), Vec::new()).is_err());
    }
    assert!(refused > 900);
    assert!(!store.close(Duration::from_millis(10)).await);
}
