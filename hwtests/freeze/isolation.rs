//! Where a freezer runs: in a control group of its own and in the host's namespaces, or not at all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use diskvitals_finding::dev::DevNo;
use diskvitals_host::helper::Program;
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::{WorkerOutcome, WorkerPool, WorkerPoolConfig};
use diskvitals_source::checks::freezer::{FreezeError, Freezer};
use diskvitals_source::jobs::{Job, JobResult};
use diskvitals_source::worker_main::{WorkerRole, arguments};
use tokio::time::timeout;

use super::fixture::{Fixture, FuseVolume, LONG, THAW_LIMIT, Writer, freeze, order, refused};
use crate::programs::built_program;
use crate::support::{Mode, SOON};

/// Starts the freezer through another program that changes its environment.
fn through(freezer: Freezer, program: &str, arguments: &[&str]) -> Freezer {
    let before = arguments
        .iter()
        .map(std::ffi::OsString::from)
        .chain([freezer.program.program.into_os_string()]);
    let args = before.chain(freezer.program.args).collect();
    Freezer { program: Program { program: program.into(), args }, ..freezer }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freezer_in_a_pid_namespace_of_its_own_refuses() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    for arguments in [&["--pid", "--fork"][..], &["--pid", "--fork", "--mount-proc"]] {
        let error = refused(
            through(fixture.freezer(), "/usr/bin/unshare", arguments),
            order(&volume, LONG),
        )
        .await;
        assert!(matches!(&error, FreezeError::Refused(why) if why.contains("hostPID")), "{error}");
    }
    assert!(!volume.is_frozen());
}

/// A control group of the unified hierarchy, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn new() -> Group {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let line =
            mounts.lines().find(|line| line.contains(" - cgroup2 ")).expect("a unified hierarchy");
        let path = Path::new(line.split(' ').nth(4).expect("a path"))
            .join(format!("dvhw-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a group");
        Group(path)
    }

    /// A shell that enters the group, then does `what` with the program it is given.
    fn shell(&self, what: &str) -> [String; 2] {
        ["-c".into(), format!("echo 0 >{}/cgroup.procs && {what}", self.0.display())]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            // Busy until the killed processes in it have ended.
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::yield_now();
            let _ = nix::poll::poll(&mut [], 10_u16);
        }
        eprintln!("{} is left", self.0.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freezer_in_a_cgroup_namespace_that_it_cannot_leave_refuses() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let group = Group::new();
    let [flag, command] = group.shell(r#"exec unshare --cgroup "$0" "$@""#);
    let freezer = through(fixture.freezer(), "/bin/sh", &[&flag, &command]);
    match timeout(SOON, freezer.freeze(order(&volume, LONG))).await.expect("an answer") {
        Err(FreezeError::Refused(why)) => assert!(why.contains("cgroup namespace"), "{why}"),
        Err(error) => panic!("{error}"),
        // Where it may enter the namespace of PID 1, it leaves its own.
        Ok(frozen) => assert_eq!(frozen.thaw().await.early_reason, None),
    }
    assert!(!volume.is_frozen());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_freezer_survives_the_kill_of_the_daemons_control_group_and_thaws() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let writer = Writer::start(&volume);
    let group = Group::new();
    let [flag, command] = group.shell(r#"exec 3<&0; "$0" "$@" <&3 3<&- & exec 3<&-; wait"#);
    let freezer = through(fixture.freezer(), "/bin/sh", &[&flag, &command]);
    let mut frozen = freezer.freeze(order(&volume, LONG)).await.expect("frozen");
    let members = std::fs::read_to_string(group.0.join("cgroup.procs")).expect("readable");
    assert!(
        members.lines().count() == 1 && !members.contains(&fixture.freezer_process().to_string()),
        "{members}"
    );
    writer.is_held().await;
    // Like an OOM kill with memory.oom.group.
    std::fs::write(group.0.join("cgroup.kill"), "1").expect("killed");
    writer.continues(THAW_LIMIT).await;
    let why = timeout(SOON, frozen.wait_thawed_early()).await.expect("thawed");
    assert!(why.contains("the daemon has gone"), "{why}");
    fixture.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_syncs_the_filesystem_and_waits_as_long_as_the_device() {
    let fixture = Fixture::new();
    let slow = FuseVolume::new(&fixture);
    let args = arguments(WorkerRole::HostMounts, &HostRoot::new("/"));
    let spawn = WorkerPoolConfig {
        program: built_program("diskvitalsd").into(),
        args,
        active: 1,
        max_stuck: 4,
    };
    let workers: WorkerPool<Job, JobResult> = WorkerPool::start(spawn);
    let sync = |dev| Job::SyncFs { path: slow.volume.path.as_path().into(), dev };
    let (dev, limit) = (slow.volume.dev, Duration::from_secs(5));
    let answer = workers.run("a", sync(dev), limit).await;
    assert!(
        matches!(answer, WorkerOutcome::Completed(JobResult::SyncFs { elapsed }) if elapsed < limit),
        "{answer:?}"
    );
    let answer = workers.run("b", sync(DevNo::new(259, 77)), limit).await;
    assert!(
        matches!(&answer, WorkerOutcome::Completed(JobResult::Failed { error }) if error.contains("another filesystem")),
        "{answer:?}"
    );
    slow.hang_with_something_to_write();
    let answer = workers.run("c", sync(dev), Duration::from_millis(500)).await;
    assert!(matches!(answer, WorkerOutcome::Stuck { .. }), "{answer:?}");
    slow.served.set(Mode::Pass);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_freezer_has_a_control_group_of_its_own() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let frozen = freeze(&fixture, &volume, LONG).await;
    let pid = fixture.freezer_process();
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("readable");
    for line in groups.lines().filter(|line| line.starts_with("0::") || line.contains(":memory:")) {
        assert!(line.ends_with(":/") || line.ends_with(":/diskvitals-freeze"), "{groups}");
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("readable");
    // CAP_SYS_ADMIN is bit 21 (linux/capability.h).
    assert!(
        status.lines().any(|line| line.split_whitespace().eq(["CapPrm:", "0000000000200000"])),
        "{status}"
    );
    let locked = status.lines().find_map(|line| {
        line.strip_prefix("VmLck:")?.split_whitespace().next()?.parse::<u64>().ok()
    });
    assert!(locked.expect("a figure") > 1000, "{status}");
    let own: Vec<PathBuf> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("readable")
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .collect();
    assert!(own.contains(&PathBuf::from("/dev/null")), "{own:?}");
    frozen.thaw().await;
}
