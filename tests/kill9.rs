//! A daemon's state killed with SIGKILL a hundred times while findings come, go and are
//! acknowledged: every acknowledgement that was answered is on disk afterwards, nothing is there
//! twice, and the database is whole.
//!
//! The test starts its own binary again as the victim, which says on stdout what it was told is
//! stored.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use diskvitals_daemon::state::lock;
use diskvitals_daemon::state::owner::Owner;
use diskvitals_daemon::state::settings::SharedAssessmentSettings;
use diskvitals_daemon::state::store::{DATABASE, Store, StoreConfig};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::{SeenLevel, Subject};
use diskvitals_host::clock;
use diskvitals_host::timer_grid::TimerGrid;
use diskvitals_model::block::LayerState;
use diskvitals_model::snapshot::{Snapshot, StoreStatus};
use diskvitals_model::source_update::SourceUpdate;
use diskvitals_model::stack::MdState;
use rusqlite::Connection;
use tokio::sync::watch;

const VICTIM: &str = "DISKVITALS_TEST_KILL9_DIR";
const KILLS: u64 = 100;

/// An array of two members.
fn mirror(degraded: u32) -> LayerState {
    LayerState::Md(MdState {
        level: "raid1".to_owned(),
        raid_disks: 2,
        degraded,
        array_state: "clean".to_owned(),
        ..MdState::default()
    })
}

/// One device after the other fails and is acknowledged; every third, once acknowledged, recovers.
#[tokio::test]
async fn victim() {
    let Some(dir) = std::env::var_os(VICTIM) else {
        return;
    };
    let lock = lock::acquire(Path::new(&dir)).unwrap();
    let (store, events) = Store::spawn(StoreConfig::new(dir), Some(lock)).unwrap();
    let (_rules, rules) = watch::channel(SharedAssessmentSettings::default());
    let (owner, handles) = Owner::new(rules, store, events, TimerGrid::start());
    tokio::spawn(owner.run(std::future::pending()));
    let mut snapshots = handles.handle.snapshots();
    snapshots.wait_for(|snapshot| snapshot.node.store == StoreStatus::Ok).await.unwrap();
    let report = |device: String, degraded| {
        handles.reports.send(SourceUpdate::Layer {
            device,
            state: Observation::ok(clock::now(), mirror(degraded)),
        })
    };
    println!("open");
    for number in 0.. {
        let device = format!("{}-{number}", std::process::id());
        let subject = Subject::Device(device.clone());
        report(device.clone(), 1).await.unwrap();
        let find = |snapshot: &Arc<Snapshot>| {
            snapshot
                .findings
                .values()
                .find(|finding| finding.subject == subject)
                .map(|finding| finding.id.clone())
        };
        let snapshot =
            snapshots.wait_for(|snapshot| find(snapshot).is_some()).await.unwrap().clone();
        let id = find(&snapshot).unwrap();
        handles
            .handle
            .acknowledge(
                id.clone(),
                "uid 0".to_owned(),
                device.clone(),
                SeenLevel::default(),
                false,
            )
            .await
            .unwrap();
        if number % 3 == 2 {
            // Said before: from now on it may be over, and its acknowledgement with it.
            println!("recovers {id}");
            report(device, 0).await.unwrap();
        } else {
            println!("acknowledged {id}");
        }
        std::io::stdout().flush().unwrap();
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // The victim is this test itself, and is to be killed rudely.
fn a_hundred_kills_lose_no_confirmed_write_and_duplicate_none() {
    let dir = tempfile::tempdir().unwrap();
    let (mut acknowledged, mut known) = (BTreeSet::new(), BTreeSet::new());
    // Numerical Recipes' generator: the moments differ, and are the same in each run of the test.
    let mut random = 1u32;
    for kill in 0..KILLS {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--nocapture", "--test-threads=1"])
            .env(VICTIM, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(
            lines.by_ref().any(|line| line.ends_with("open")),
            "kill {kill}: the state could not be opened"
        );
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let wait = Duration::from_micros(u64::from(random >> 16) * 4);
        let pid = nix::unistd::Pid::from_raw(i32::try_from(victim.id()).unwrap());
        let killer = std::thread::spawn(move || {
            // A moment in the middle of whatever it does; nothing is awaited here that could be
            // waited for instead.
            std::thread::park_timeout(wait);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        });
        for line in lines {
            match line.split_once(' ') {
                Some(("acknowledged", id)) if id.len() == 12 => {
                    acknowledged.insert(id.to_owned());
                }
                Some(("recovers", id)) if id.len() == 12 => {}
                _ => continue,
            }
            known.extend(line.split_once(' ').map(|(_, id)| id.to_owned()));
        }
        killer.join().unwrap();
        victim.wait().unwrap();
        check(dir.path(), &acknowledged, &known, kill);
    }
    assert!(
        acknowledged.len() > 50,
        "only {} acknowledgements: the victim was killed before it did anything",
        acknowledged.len()
    );
}

fn check(dir: &Path, acknowledged: &BTreeSet<String>, known: &BTreeSet<String>, kill: u64) {
    // A copy, so that looking does not fold the log in for the next victim.
    let copy = tempfile::tempdir().unwrap();
    for end in ["", "-wal"] {
        let name = format!("{DATABASE}{end}");
        if dir.join(&name).exists() {
            std::fs::copy(dir.join(&name), copy.path().join(&name)).unwrap();
        }
    }
    let connection = Connection::open(copy.path().join(DATABASE)).unwrap();
    let integrity: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok", "kill {kill}");
    let mut statement =
        connection.prepare("SELECT id, subject_id, count, note FROM findings LEFT JOIN acknowledgements ON finding = id").unwrap();
    let rows: Vec<(String, String, i64, Option<String>)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut subjects = BTreeMap::new();
    for (id, subject, count, _) in &rows {
        assert_eq!(*count, 1, "kill {kill}: {id} counted twice");
        assert_eq!(subjects.insert(subject, id), None, "kill {kill}: {subject} is there twice");
    }
    let kept: BTreeMap<&str, Option<&str>> =
        rows.iter().map(|(id, _, _, note)| (id.as_str(), note.as_deref())).collect();
    let foreign = std::fs::read_dir(dir)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().contains("damaged"));
    assert_eq!(foreign.count(), 0, "kill {kill}");
    for id in known {
        assert!(kept.contains_key(id.as_str()), "kill {kill}: finding {id} is lost");
    }
    for id in acknowledged {
        assert!(
            kept.get(id.as_str()).is_some_and(Option::is_some),
            "kill {kill}: the acknowledgement of {id} is lost"
        );
    }
}
