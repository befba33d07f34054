//! Real worker processes: the daemon's binary in worker mode is queried, stopped, killed and
//! abandoned.

use std::path::Path;
use std::time::Duration;

use diskvitals_finding::dev::DevNo;
use diskvitals_finding::failure_domain::{FailureDomain, FailureDomains};
use diskvitals_finding::path::HostPath;
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::{WorkerOutcome, WorkerPool, WorkerPoolConfig};
use diskvitals_source::jobs::{Job, JobResult};
use diskvitals_source::worker_main::{WorkerRole, arguments};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::programs::built_program;

/// Far more than a loaded machine needs; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(900);

fn recorded_tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("dir");
    std::fs::create_dir(dir.path().join("exec")).expect("exec");
    let answer = r#"{"statfs": {"total_bytes": 10, "available_bytes": 4, "used_bytes": 5, "total_inodes": 3, "available_inodes": 2, "used_inodes": 1}}"#;
    let probes = format!(
        r#"{{"/good": {answer}, "/also": {answer}, "/hangs": {{"hang": true}}, "/eio": {{"errno": 5, "operation": "readdir"}}}}"#
    );
    std::fs::write(dir.path().join("exec/probes.json"), probes).expect("probes");
    dir
}

fn workers(root: &Path, max_stuck: usize) -> WorkerPool<Job, JobResult> {
    let args = arguments(WorkerRole::HostMounts, &HostRoot::new(root));
    WorkerPool::start(WorkerPoolConfig {
        program: built_program("diskvitalsd").into(),
        args,
        active: 1,
        max_stuck,
    })
}

fn probe(path: &str) -> Job {
    Job::ProbeMount {
        path: HostPath::from(path),
        // A recorded tree answers by the path.
        id: 0,
        dev: DevNo::new(0, 0),
        is_btrfs: false,
    }
}

/// Our processes that work below `root`.
fn pids(root: &Path) -> Vec<Pid> {
    let own = std::process::id().to_string();
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let parent = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(1))
            .unwrap_or_default()
            .to_owned();
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if parent == own && String::from_utf8_lossy(&command).contains(root.to_str().expect("text"))
        {
            pids.push(Pid::from_raw(pid));
        }
    }
    pids
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let tried = tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    tried.await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn is_good(outcome: &WorkerOutcome<JobResult>) -> bool {
    matches!(outcome, WorkerOutcome::Completed(JobResult::ProbeMount(probe)) if probe.statfs.is_ok() && probe.readdir.is_ok())
}

/// Waits until one process has started and answered. Otherwise, on a loaded machine, `SHORT` may
/// end before the process has read its first request.
async fn running_workers(root: &Path) -> WorkerPool<Job, JobResult> {
    let workers = workers(root, 4);
    assert!(is_good(&workers.run("g", probe("/good"), PATIENCE).await));
    workers
}

#[tokio::test]
async fn many_targets_are_answered_by_one_process() {
    let tree = recorded_tree();
    let workers = workers(tree.path(), 4);
    for _ in 0..50 {
        assert!(is_good(&workers.run("a", probe("/good"), PATIENCE).await));
    }
    match workers.run("e", probe("/eio"), PATIENCE).await {
        WorkerOutcome::Completed(JobResult::ProbeMount(probe)) => {
            assert!(probe.statfs.is_ok());
            assert_eq!(
                probe.readdir.expect_err("an error").to_string(),
                "readdir: I/O error (EIO)"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(pids(tree.path()).len(), 1);
}

#[tokio::test]
async fn a_hung_target_is_stuck_and_delays_no_other() {
    let tree = recorded_tree();
    let workers = running_workers(tree.path()).await;
    let hangs = workers.run("h", probe("/hangs"), SHORT);
    let others = async {
        for _ in 0..20 {
            assert!(is_good(&workers.run("g", probe("/good"), PATIENCE).await));
        }
    };
    let (hangs, ()) = tokio::join!(hangs, others);
    let WorkerOutcome::Stuck { since, waiting_in, late: Some(_late) } = hangs else {
        panic!("{hangs:?}")
    };
    assert!(waiting_in.is_some_and(|state| state.starts_with('S')), "it sleeps in a read");
    assert_eq!(*workers.stuck_count().borrow(), 1);
    // A second request reports at once since when the first hangs.
    let again = tokio::time::timeout(PATIENCE, workers.run("h", probe("/hangs"), SHORT))
        .await
        .expect("at once");
    assert!(
        matches!(again, WorkerOutcome::Stuck { since: first, late: None, .. } if first == since)
    );
}

#[tokio::test]
async fn a_late_answer_is_used_and_frees_the_target() {
    let tree = recorded_tree();
    let workers = running_workers(tree.path()).await;
    let stopped = pids(tree.path());
    stopped.iter().for_each(|pid| kill(*pid, Signal::SIGSTOP).expect("stopped"));
    let WorkerOutcome::Stuck { waiting_in, late: Some(late), .. } =
        workers.run("g", probe("/good"), SHORT).await
    else {
        panic!("it was stopped")
    };
    assert!(waiting_in.is_some_and(|state| state.starts_with('T')));
    assert!(
        is_good(&workers.run("other", probe("/also"), PATIENCE).await),
        "another process took its place"
    );
    stopped.iter().for_each(|pid| kill(*pid, Signal::SIGCONT).expect("goes on"));
    let answer = tokio::time::timeout(PATIENCE, late)
        .await
        .expect("in time")
        .expect("told")
        .expect("an answer");
    assert!(matches!(answer, JobResult::ProbeMount(probe) if probe.statfs.is_ok()));
    until("nothing is stuck", || *workers.stuck_count().borrow() == 0).await;
    assert!(is_good(&workers.run("g", probe("/good"), PATIENCE).await));
}

#[tokio::test]
async fn a_stuck_process_that_dies_frees_the_target_with_an_error() {
    let tree = recorded_tree();
    let workers = running_workers(tree.path()).await;
    let WorkerOutcome::Stuck { late: Some(late), .. } =
        workers.run("h", probe("/hangs"), SHORT).await
    else {
        panic!("it hangs")
    };
    pids(tree.path()).iter().for_each(|pid| kill(*pid, Signal::SIGKILL).expect("killed"));
    assert!(tokio::time::timeout(PATIENCE, late).await.expect("in time").expect("told").is_err());
    until("nothing is stuck", || *workers.stuck_count().borrow() == 0).await;
    until("no zombie is left", || pids(tree.path()).is_empty()).await;
}

#[tokio::test]
async fn the_number_of_stuck_processes_is_limited() {
    let tree = recorded_tree();
    let workers = workers(tree.path(), 2);
    for target in ["1", "2"] {
        assert!(matches!(
            workers.run(target, probe("/hangs"), SHORT).await,
            WorkerOutcome::Stuck { .. }
        ));
    }
    let WorkerOutcome::Refused(why) = workers.run("3", probe("/good"), PATIENCE).await else {
        panic!("refused")
    };
    assert!(why.contains("2 others do not answer"), "{why}");
}

#[tokio::test]
async fn a_failure_domain_has_its_share_of_stuck_processes_and_gets_it_back() {
    let tree = recorded_tree();
    let workers = workers(tree.path(), 8);
    let pod = |uid: &str| FailureDomains::from([FailureDomain::Pod(uid.into())]);
    let (a, b) = (pod("a"), pod("b"));
    // Asked at the same time: those beyond the share wait until the first ones are stuck.
    let mut asked = tokio::task::JoinSet::new();
    for target in ["1", "2", "3", "4", "5"] {
        let (workers, a) = (workers.clone(), a.clone());
        asked.spawn(async move { workers.run_in(&a, target, probe("/hangs"), SHORT).await });
    }
    let outcomes = asked.join_all().await;
    let is_stuck = |outcome: &&WorkerOutcome<JobResult>| {
        matches!(outcome, WorkerOutcome::Stuck { late: Some(_), .. })
    };
    assert_eq!(outcomes.iter().filter(is_stuck).count(), 3, "{outcomes:?}");
    let refused = "not tried while 3 others of pod a do not answer (limit 3 of 8)";
    let is_refused = |outcome: &&WorkerOutcome<JobResult>| matches!(outcome, WorkerOutcome::Refused(why) if why == refused);
    assert_eq!(outcomes.iter().filter(is_refused).count(), 2, "{outcomes:?}");
    assert!(is_good(&workers.run_in(&b, "b", probe("/good"), PATIENCE).await));

    pids(tree.path()).iter().for_each(|pid| kill(*pid, Signal::SIGKILL).expect("killed"));
    until("nothing is stuck", || *workers.stuck_count().borrow() == 0).await;
    // The idle process was killed too: the first request may find that out.
    let _ = workers.run("b", probe("/good"), PATIENCE).await;
    assert!(is_good(&workers.run_in(&a, "a", probe("/good"), PATIENCE).await));
}

#[tokio::test]
async fn a_process_that_dies_or_talks_junk_is_a_failure_and_is_replaced() {
    let tree = recorded_tree();
    let workers = running_workers(tree.path()).await;
    pids(tree.path()).iter().for_each(|pid| kill(*pid, Signal::SIGKILL).expect("killed"));
    assert!(matches!(workers.run("g", probe("/good"), PATIENCE).await, WorkerOutcome::Failed(_)));
    assert!(is_good(&workers.run("g", probe("/good"), PATIENCE).await));

    let junk: WorkerPool<Job, JobResult> = WorkerPool::start(WorkerPoolConfig {
        program: "/bin/echo".into(),
        args: vec!["junk".into()],
        active: 1,
        max_stuck: 1,
    });
    assert!(
        matches!(junk.run("g", probe("/good"), PATIENCE).await, WorkerOutcome::Failed(why) if why.contains("makes no sense"))
    );
    let missing: WorkerPool<Job, JobResult> = WorkerPool::start(WorkerPoolConfig {
        program: "/nonexistent".into(),
        args: vec![],
        active: 1,
        max_stuck: 1,
    });
    assert!(
        matches!(missing.run("g", probe("/good"), PATIENCE).await, WorkerOutcome::Failed(why) if why.contains("starting a child process"))
    );
}

#[tokio::test]
async fn workers_end_when_the_daemons_pipe_closes() {
    let tree = recorded_tree();
    let workers = running_workers(tree.path()).await;
    let WorkerOutcome::Stuck { late, .. } = workers.run("h", probe("/hangs"), SHORT).await else {
        panic!("it hangs")
    };
    assert!(is_good(&workers.run("g", probe("/good"), PATIENCE).await));
    assert_eq!(pids(tree.path()).len(), 2);
    workers.close();
    until("the idle one has ended", || pids(tree.path()).len() == 1).await;
    drop(late);
    assert!(matches!(workers.run("g", probe("/good"), PATIENCE).await, WorkerOutcome::Failed(_)));
}
