//! Acknowledgements, and what a SIGKILL at any moment leaves: no confirmed acknowledgement is lost,
//! no finding is duplicated, the database is intact.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use diskvitals_wire::*;
use nix::sys::signal::{Signal, kill};
use tonic::Code;

use crate::support::daemon::Arguments;
use crate::support::tools::{bind, mount_device, statvfs, umount};
use crate::support::{Client, Daemon, SOON, Testbed, eventually, pause};

const DRIVER: &str = "k.csi.example.com";

fn id(handle: &str) -> String {
    format!("csi:{DRIVER}/{handle}")
}

/// Volumes that are directories of one ext4, published and bound. Returns the source and the pod's
/// path of each.
fn volumes(testbed: &Testbed, handles: &[&str]) -> Vec<(PathBuf, PathBuf)> {
    let disk = testbed.ext4("e.img", 48, &[]);
    let mount = testbed.path("mnt");
    mount_device(&disk.device, "ext4", &mount, "");
    handles
        .iter()
        .enumerate()
        .map(|(number, handle)| {
            let folder = mount.join(handle);
            std::fs::create_dir(&folder).expect("a folder");
            let pod = testbed.kubelet.publish(
                DRIVER,
                handle,
                &format!("pvc-{handle}"),
                &format!("4e000000-0000-4000-8000-{number:012}"),
            );
            bind(&folder, &pod);
            (folder, pod)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledged_finding_stays_visible_stops_counting_and_outlives_sigkill() {
    let testbed = Testbed::new();
    let paths = volumes(&testbed, &["a"]);
    let (source, pod) = &paths[0];
    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    client.normal(&id("a")).await;
    let counted = client.node().await.active_findings;

    umount(pod);
    let finding = client.raised(&id("a"), "NotMounted", SOON).await;
    for (finding, note) in [("no-such-finding", "x"), ("", "x")] {
        let status = client.acknowledge(finding, note).await.expect_err("refused");
        assert!(matches!(status.code(), Code::NotFound | Code::InvalidArgument), "{status}");
    }
    assert_eq!(
        client.acknowledge(&finding.id, "").await.expect_err("a note is needed").code(),
        Code::InvalidArgument
    );
    assert_eq!(
        client.unacknowledge(&finding.id).await.expect_err("not acknowledged").code(),
        Code::FailedPrecondition
    );
    let answer =
        client.acknowledge(&finding.id, "the pod is being moved").await.expect("acknowledged");
    assert_eq!(answer.acknowledged.as_ref().expect("now").note, "the pod is being moved");
    assert!(
        answer.acknowledged.as_ref().expect("now").by.contains('0'),
        "uid 0 has done it: {answer:#?}"
    );
    daemon.kill().await;

    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    let kept = client.finding(&id("a"), "NotMounted").await.expect("still so");
    assert_eq!(
        (&kept.id, kept.since, &kept.acknowledged),
        (&finding.id, finding.since, &answer.acknowledged)
    );
    eventually("the health of the node does not count it", SOON, async || {
        (client.node().await.health() != Health::Bad).then_some(())
    })
    .await;
    assert!(
        client.volume(&id("a")).await.condition.expect("a condition").abnormal,
        "acknowledged is not cured"
    );

    let open = client.unacknowledge(&finding.id).await.expect("undone");
    assert_eq!(open.acknowledged, None);
    eventually("the finding counts again", SOON, async || {
        (client.node().await.health() == Health::Bad).then_some(())
    })
    .await;
    client.acknowledge(&finding.id, "moved tonight").await.expect("acknowledged");
    bind(source, pod);
    let cleared = client.cleared(&finding.id, SOON).await;
    assert!(cleared.cleared.is_some());
    client.normal(&id("a")).await;

    // The problem recurs: it is another finding, which is not acknowledged.
    umount(pod);
    let again = client.raised(&id("a"), "NotMounted", SOON).await;
    assert_ne!(again.id, finding.id);
    assert_eq!(again.acknowledged, None, "an acknowledgement ends with its finding");
    bind(source, pod);
    client.cleared(&again.id, SOON).await;
    eventually("as many findings as at first", SOON, async || {
        (client.node().await.active_findings == counted).then_some(())
    })
    .await;
    daemon.stop().await;
}

/// OutOfSpace with a little space left is SUSPECT; with no space left it is worse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_ends_when_the_finding_becomes_worse() {
    let testbed = Testbed::new();
    let paths = volumes(&testbed, &["a"]);
    let (_, pod) = &paths[0];
    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    client.normal(&id("a")).await;
    let file = std::fs::File::create(pod.join("fill")).expect("the file");
    // `left` for an unprivileged user; below 0, part of root's reserve is used.
    let fill = |left: i64| {
        let stat = statvfs(pod);
        let have = std::fs::metadata(pod.join("fill")).expect("stat").len();
        let bytes = (have + stat.blocks_available() * stat.fragment_size())
            .checked_add_signed(-left)
            .expect("small");
        nix::fcntl::fallocate(
            &file,
            nix::fcntl::FallocateFlags::empty(),
            0,
            i64::try_from(bytes).expect("small"),
        )
        .expect("fills");
    };
    fill(1 << 20);
    let finding = client.raised(&id("a"), "OutOfSpace", SOON).await;
    assert_eq!(finding.severity(), Severity::Suspect, "{finding:#?}");
    client.acknowledge(&finding.id, "grows tomorrow").await.expect("acknowledged");
    fill(-(1 << 20));
    eventually("worse and open again", SOON, async || {
        let finding = client.finding(&id("a"), "OutOfSpace").await.expect("still so");
        (finding.severity() == Severity::Bad && finding.acknowledged.is_none()).then_some(())
    })
    .await;
    assert_eq!(
        client.finding(&id("a"), "OutOfSpace").await.expect("still so").id,
        finding.id,
        "the same finding"
    );
    daemon.stop().await;
}

/// Confirmed acknowledgements, and requests without an answer.
#[derive(Default)]
struct Ledger {
    /// The last acknowledged note by finding.
    notes: BTreeMap<String, String>,
    /// Sent when the daemon was killed: the finding may carry this note or the previous one.
    in_flight: Option<(String, String)>,
}

impl Ledger {
    fn check(&mut self, findings: &[Finding]) {
        let mut subjects = BTreeSet::new();
        for finding in findings.iter().filter(|finding| finding.cleared.is_none()) {
            let subject = finding.subject.as_ref().expect("a subject").id.clone();
            assert!(
                subjects.insert((subject.clone(), finding.reason.clone())),
                "{} of {subject} is there twice",
                finding.reason
            );
        }
        if let Some((id, note)) = self.in_flight.take() {
            let found = findings
                .iter()
                .find(|finding| finding.id == id)
                .and_then(|finding| finding.acknowledged.as_ref());
            if found.is_some_and(|found| found.note == note) {
                self.notes.insert(id, note);
            }
        }
        for (id, note) in &self.notes {
            let finding = findings
                .iter()
                .find(|finding| finding.id == *id)
                .unwrap_or_else(|| panic!("finding {id} is lost"));
            let acknowledged = finding
                .acknowledged
                .as_ref()
                .unwrap_or_else(|| panic!("the acknowledgement of {id} (`{note}`) is lost"));
            assert_eq!(acknowledged.note, *note, "of {id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_sigkills_lose_and_duplicate_no_finding() {
    const ROUNDS: usize = 100;
    let testbed = Testbed::new();
    let paths = volumes(&testbed, &["stays-a", "stays-b", "changes"]);
    let (source, pod) = &paths[2];
    let arguments = Arguments::of(&testbed);
    let daemon = Daemon::start(&testbed).await;
    // These two problems persist: their findings must survive every kill.
    let mut lasting = Vec::new();
    for (handle, (_, pod)) in ["stays-a", "stays-b"].into_iter().zip(&paths) {
        daemon.client.normal(&id(handle)).await;
        umount(pod);
        lasting.push(daemon.client.raised(&id(handle), "NotMounted", SOON).await);
    }
    // The daemon may be killed before a visible finding is on disk; an acknowledged one is on disk.
    let mut ledger = Ledger::default();
    for finding in &lasting {
        daemon.client.acknowledge(&finding.id, "at first").await.expect("acknowledged");
        ledger.notes.insert(finding.id.clone(), "at first".to_owned());
    }
    daemon.kill().await;

    let mut mounted = true;
    let mut changes = 0;
    for round in 0..ROUNDS {
        let mut daemon = Daemon::launch(&arguments);
        eventually("the daemon answers", SOON, async || {
            daemon.must_run();
            daemon.client.try_node().await.ok().filter(|node| round % 2 == 0 || node.settled)
        })
        .await;
        let findings = daemon.client.findings(true).await;
        ledger.check(&findings);
        for finding in &lasting {
            let kept = findings.iter().find(|kept| kept.id == finding.id).expect("kept");
            assert!(kept.cleared.is_none() && kept.since == finding.since, "{kept:#?}");
        }
        if round % 3 != 2 {
            if mounted {
                umount(pod)
            } else {
                bind(source, pod)
            }
            mounted = !mounted;
            changes += 1;
        }
        let target = &lasting[round % 2].id;
        let note = format!("round {round}");
        if round % 4 == 3 {
            // Killed a few milliseconds into the request.
            let client = Client::new(daemon.socket());
            let (target_id, text) = (target.clone(), note.clone());
            let request = tokio::spawn(async move { client.acknowledge(&target_id, &text).await });
            pause(Duration::from_micros(round as u64 * 97)).await;
            kill(daemon.pid(), Signal::SIGKILL).expect("SIGKILL");
            match request.await.expect("the question") {
                Ok(_) => drop(ledger.notes.insert(target.clone(), note)),
                Err(_) => ledger.in_flight = Some((target.clone(), note)),
            }
        } else {
            daemon.client.acknowledge(target, &note).await.expect("acknowledged");
            ledger.notes.insert(target.clone(), note);
        }
        daemon.kill().await;
    }

    // The state after the last SIGKILL.
    let database = rusqlite::Connection::open_with_flags(
        arguments.state_dir.join("state.db"),
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
    )
    .expect("opens");
    let verdict: String =
        database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("answers");
    assert_eq!(verdict, "ok");
    drop(database);
    assert_eq!(set_aside(&arguments.state_dir), Vec::<String>::new(), "no database was given up");

    let daemon = Daemon::start(&testbed).await;
    if !mounted {
        bind(source, pod);
    }
    daemon.client.normal(&id("changes")).await;
    let findings = daemon.client.findings(true).await;
    ledger.check(&findings);
    let of_changes = findings
        .iter()
        .filter(|finding| {
            finding.subject.as_ref().is_some_and(|subject| subject.id == id("changes"))
        })
        .count();
    assert!(of_changes <= changes / 2 + 1, "{of_changes} findings of {changes} changes");
    eventually("history is on disk", SOON, async || {
        (daemon.client.node().await.store == "ok").then_some(())
    })
    .await;
    for (_, (source, pod)) in lasting.iter().zip(&paths) {
        bind(source, pod);
    }
    for finding in &lasting {
        daemon.client.cleared(&finding.id, SOON).await;
    }
    daemon.stop().await;
}

/// Files beside the database that are not its own.
fn set_aside(state_dir: &std::path::Path) -> Vec<String> {
    let names = std::fs::read_dir(state_dir)
        .expect("the state directory")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| {
            name.starts_with("state.db")
                && !["state.db", "state.db-wal", "state.db-shm"].contains(&name.as_str())
        })
        .collect()
}
