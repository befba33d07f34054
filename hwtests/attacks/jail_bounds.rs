//! A hostile checker that takes what others need, or looks at other processes of its user: what bounds
//! a run as a whole, and what is left of it.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use diskvitals_fscheck::{Filesystem, Mode, Run, RunActivity, RunResult, Termination};
use diskvitals_host::helper::Program;
use diskvitals_source::checks::runner::{self, OrphanedRuns, RunRequest};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::watch;

use crate::checker::fixture::{
    ALL, WITHOUT_CONTROL_GROUPS, fill, groups, make, order, program, ran, script, text, until,
};
use crate::support::tools::{mount_device, run, umount};
use crate::support::{Disk, Testbed};

const TIMEOUT: Duration = Duration::from_secs(60);

async fn run_script(testbed: &Testbed, disk: &Disk, memory: u64, body: &str) -> Run {
    let command = script(testbed, "attacker", body);
    let ran = ran(RunRequest {
        command,
        memory,
        timeout: TIMEOUT,
        ..order(disk, Filesystem::Ext4, Mode::Unmounted)
    })
    .await;
    assert!(ran.unkillable.is_none(), "{:?}", ran.run);
    ran.run
}

/// The processes, besides this one's, that a run of these tests left.
fn left(word: &str) -> Vec<i32> {
    crate::checker::fixture::processes(word)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_processes_of_a_run_are_bounded_together_and_a_run_that_wants_more_is_failed() {
    let testbed = Testbed::new();
    let disk = make(&testbed, Filesystem::Ext4);
    let body = r#"cat /proc/self/cgroup
        exec perl -e '$| = 1; $SIG{TERM} = $SIG{HUP} = "IGNORE"; shift; my $n = 0;
            for (1 .. 3000) { my $pid = fork(); last unless defined $pid;
                if ($pid == 0) { sleep 1000 while 1 } $n++ }
            print "forked $n\n"; sleep 5; exec "/usr/sbin/e2fsck", @ARGV' bound-attack "$@""#;
    let run = run_script(&testbed, &disk, 64 << 20, body).await;
    let output = text(&run);
    assert_eq!(run.result, RunResult::Failed, "{output}");
    assert_eq!(
        run.failure_reason,
        "e2fsck wanted more than the 96 processes and threads that a run may have (more with a \
         higher `checks.memory_bytes`), or than its slice or pod allows",
        "{output}"
    );
    assert!(run.duration < Duration::from_secs(20), "{:?}", run.duration);
    assert_eq!(left("bound-attack"), Vec::<i32>::new());
    for group in groups(&output) {
        until("the group is removed", || !group.exists()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_of_all_processes_of_a_run_is_bounded_and_that_cause_is_named() {
    let testbed = Testbed::new();
    let disk = make(&testbed, Filesystem::Ext4);
    // Each alone is within its address space; after them, the genuine checker says that all is well.
    let body = r#"exec perl -e '$| = 1; shift;
            for (1 .. 6) { my $pid = fork(); last unless defined $pid;
                if ($pid == 0) { my $all = "x" x (80 << 20); sleep 1000 while 1 } }
            sleep 20; exec "/usr/sbin/e2fsck", @ARGV' memory-attack "$@""#;
    let run = run_script(&testbed, &disk, 192 << 20, body).await;
    assert_eq!(run.result, RunResult::Failed, "{}", text(&run));
    assert!(
        run.failure_reason.starts_with(
            "e2fsck had a process killed for lack of memory: the processes of a run may use 280 MiB"
        ),
        "{}",
        run.failure_reason
    );
    assert_eq!(left("memory-attack"), Vec::<i32>::new());
}

/// What the bound must not change: one process reaches its own address space first, as ever, and the
/// cache of what it reads is no memory that it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_process_may_use_all_its_memory_and_read_more_than_that() {
    let testbed = Testbed::new();
    let disk = testbed.attach(&testbed.image("big.img", 1 << 30));
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &disk.device]);
    let body = r#"for last in "$@"; do :; done
        exec perl -e '$| = 1; my ($all, $piece) = ("x" x (72 << 20));
            open(my $in, "<", $ARGV[0]) or die; 1 while sysread($in, $piece, 1 << 20);
            my $size = 1 << 30; my $more = "y" x $size; print "not reached\n"' $last"#;
    let run = run_script(&testbed, &disk, 128 << 20, body).await;
    let output = text(&run);
    // Perl ends itself where malloc fails; the kernel killed nothing.
    assert_eq!(run.termination, Termination::Exited(1), "{output}");
    assert!(output.contains("Out of memory"), "{output}");
    assert!(!run.failure_reason.contains("killed"), "{}", run.failure_reason);
    assert!(run.peak_memory > Some(72 << 20), "{:?}", run.peak_memory);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_leaves_a_run_that_the_next_start_clears() {
    let testbed = Testbed::new();
    let disk = make(&testbed, Filesystem::Ext4);
    let body = r#"exec perl -e '$SIG{TERM} = $SIG{HUP} = "IGNORE"; fork(); sleep 1000 while 1' left-over-attack"#;
    let request = RunRequest {
        command: script(&testbed, "attacker", body),
        timeout: TIMEOUT,
        ..order(&disk, Filesystem::Ext4, Mode::Unmounted)
    };
    let orphans = OrphanedRuns::default();
    let prepared = runner::prepare(&program(), &orphans, request).await.expect("a prepared run");
    let running =
        tokio::spawn(
            async move { prepared.run(&watch::Sender::new(RunActivity::default())).await },
        );
    until("both processes run", || left("left-over-attack").len() == 2).await;
    let attacker = left("left-over-attack")[0];
    let text = std::fs::read_to_string(format!("/proc/{attacker}/cgroup")).expect("its group");
    let groups = groups(&text);
    for group in &groups {
        let mode = std::fs::metadata(group).expect("the group").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{}", group.display());
        // Nobody else can make groups in it, or hold the lock that says that it is supervised.
        let lock = format!(
            "setpriv --reuid=4001 --regid=4001 --clear-groups flock --nonblock {} true 2>&1 || :",
            group.display()
        );
        let said = run("/bin/sh", &[&"-c", &lock]);
        assert!(said.contains("Permission denied"), "{said}");
    }
    let stat = std::fs::read_to_string(format!("/proc/{attacker}/status")).expect("its status");
    let group: i32 = stat
        .lines()
        .find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
        .expect("its parent");

    // A start while it runs does not touch it.
    runner::detach_leftover_loops(&program()).await;
    assert_eq!(left("left-over-attack").len(), 2);

    // The supervisor is the parent of the first; with it, only the first ends.
    kill(Pid::from_raw(group), Signal::SIGKILL).expect("the supervisor");
    running.await.expect("a run");
    until("the child alone is left", || left("left-over-attack").len() == 1).await;
    assert!(groups.iter().all(|group| group.exists()), "{groups:?}");

    // Of a daemon that was in another group.
    let other = groups[0].with_file_name("dvhw-other");
    let elsewhere = other.join("diskvitals-check-4000001-0");
    std::fs::create_dir_all(&elsewhere).expect("a group");
    let lines = runner::detach_leftover_loops(&program()).await;
    assert!(!elsewhere.exists(), "{lines:?}");
    std::fs::remove_dir(&other).expect("an empty group");
    assert_eq!(left("left-over-attack"), Vec::<i32>::new(), "{lines:?}");
    assert!(!groups.iter().any(|group| group.exists()), "{groups:?}");
}

/// Its supervisor finds no control groups mounted, as the first process of its PID namespace. That one
/// outlives it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_without_control_groups_leaves_a_run_that_the_next_start_clears() {
    let testbed = Testbed::new();
    let disk = make(&testbed, Filesystem::Ext4);
    let [unshare, options @ .., _, _] = WITHOUT_CONTROL_GROUPS;
    let stays = "umount --recursive --lazy /sys/fs/cgroup && \"$@\"; while :; do sleep 1; done";
    let without = program_below(unshare, &[&options[..], &[stays, "sh"]].concat());
    let body = r#"exec perl -e '$SIG{TERM} = $SIG{HUP} = "IGNORE"; fork(); fork(); sleep 1000 while 1' orphan-attack"#;
    let request = RunRequest {
        command: script(&testbed, "attacker", body),
        timeout: TIMEOUT,
        ..order(&disk, Filesystem::Ext4, Mode::Unmounted)
    };
    let orphans = OrphanedRuns::default();
    let prepared = runner::prepare(&without, &orphans, request).await.expect("a prepared run");
    let running =
        tokio::spawn(
            async move { prepared.run(&watch::Sender::new(RunActivity::default())).await },
        );
    until("its processes run", || left("orphan-attack").len() == 4).await;
    // Another process with such an id, whose leader has ended: it has all but the filter.
    let stranger = r#"setsid setpriv --reuid=2130706999 --regid=2130706999 --clear-groups --no-new-privs \
        --bounding-set=-all sh -c 'perl -e "sleep 1000" stranger &' </dev/null >/dev/null 2>&1"#;
    run("/bin/sh", &[&"-c", &stranger]);
    until("the stranger runs", || left("stranger").len() == 1).await;

    // A start while it runs does not touch it.
    runner::detach_leftover_loops(&program()).await;
    assert_eq!(left("orphan-attack").len(), 4);

    let status = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/status"));
    let parent = |pid: i32| -> Option<i32> {
        let status = status(pid).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
    };
    let all = left("orphan-attack");
    let leader = all.iter().find(|pid| parent(**pid).is_none_or(|parent| !all.contains(&parent)));
    let supervisor = parent(*leader.expect("the first of them")).expect("its parent");
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).expect("the supervisor");
    until("its children alone are left", || left("orphan-attack").len() == 3).await;

    let lines = runner::detach_leftover_loops(&program()).await;
    assert_eq!(left("orphan-attack"), Vec::<i32>::new(), "{lines:?}");
    let stranger = left("stranger");
    assert_eq!(stranger.len(), 1, "{lines:?}");
    kill(Pid::from_raw(stranger[0]), Signal::SIGKILL).expect("it runs");
    running.abort();
}

/// The daemon's helper on a kernel that has no Landlock: its calls fail with ENOSYS.
fn without_landlock(testbed: &Testbed) -> Program {
    let wrapper = testbed.path("without-landlock");
    // A filter of classic BPF: load the number, and refuse 444 to 446 (seccomp(2)).
    let text = r#"#!/usr/bin/perl
        my $filter = join "", map { pack "S C C L", @$_ } ([0x20, 0, 0, 0], [0x35, 0, 2, 444],
            [0x25, 1, 0, 446], [0x06, 0, 0, 0x00050000 | 38], [0x06, 0, 0, 0x7fff0000]);
        my $program = pack "S x6 P", 5, $filter;
        syscall(SECCOMP, 1, 0, $program) == 0 or die "seccomp: $!";
        exec @ARGV or die;
        "#;
    let number = nix::libc::SYS_seccomp.to_string();
    std::fs::write(&wrapper, text.replace("SECCOMP", &number)).expect("a script");
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    program_below(wrapper.to_str().expect("a path"), &[])
}

/// The daemon's helper, started by another program.
fn program_below(wrapper: &str, args: &[&str]) -> Program {
    let genuine = program();
    Program {
        program: wrapper.into(),
        args: args
            .iter()
            .map(Into::into)
            .chain([genuine.program.into()])
            .chain(genuine.args)
            .collect(),
    }
}

/// Without CAP_DAC_OVERRIDE, no group can be made in the root of a hierarchy. In a PID namespace whose first
/// process has no control groups mounted, none can be made at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_control_group_can_be_made_a_wrapper_works_and_a_fork_bomb_meets_a_limit() {
    let no_override = program_below("/usr/bin/setpriv", &["--bounding-set=-dac_override"]);
    let hidden = program_below(WITHOUT_CONTROL_GROUPS[0], &WITHOUT_CONTROL_GROUPS[1..]);
    for (program, is_hidden) in [(no_override, false), (hidden, true)] {
        let testbed = Testbed::new();
        let disk = make(&testbed, Filesystem::Ext4);
        let lines = runner::detach_leftover_loops(&program).await;
        let is_weaker = lines.iter().any(|line| line.starts_with("no control group bounds the "));
        // Where this test is in no hierarchy's root, a group is made without that capability.
        assert!(is_weaker || !is_hidden, "{lines:?}");
        let request = RunRequest {
            command: script(&testbed, "wrapper", "/usr/sbin/e2fsck \"$@\"\n"),
            ..order(&disk, Filesystem::Ext4, Mode::Unmounted)
        };
        let wrapped = run_by(&program, request).await;
        assert_eq!(
            (wrapped.result, wrapped.failure_reason.as_str()),
            (RunResult::Clean, ""),
            "{}",
            text(&wrapped)
        );

        let body = r#"exec perl -e '$| = 1; $SIG{TERM} = $SIG{HUP} = "IGNORE"; my $n = 0;
            for (1 .. 3000) { my $pid = fork(); last unless defined $pid;
                if ($pid == 0) { sleep 1000 while 1 } $n++ }
            print "forked $n\n"' unbounded-attack"#;
        let request = RunRequest {
            command: script(&testbed, "attacker", body),
            memory: 64 << 20,
            timeout: TIMEOUT,
            ..order(&disk, Filesystem::Ext4, Mode::Unmounted)
        };
        let run = run_by(&program, request).await;
        let output = text(&run);
        assert_eq!(run.result, RunResult::Failed, "{output}");
        let forked =
            output.lines().find_map(|line| line.strip_prefix("forked ")?.parse::<u32>().ok());
        // 96 and what is beyond the group's own limit.
        assert!(
            forked.is_none_or(|forked| (90..160).contains(&forked))
                && (forked.is_some() || !is_weaker),
            "{output} {}",
            run.failure_reason
        );
        until("no process is left", || left("unbounded-attack").is_empty()).await;
    }
}

async fn run_by(program: &Program, request: RunRequest) -> Run {
    let prepared = runner::prepare(program, &OrphanedRuns::default(), request).await;
    let prepared = prepared.expect("a prepared run");
    let activity = watch::Sender::new(RunActivity::default());
    prepared.run(&activity).await.reap().await.run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_landlock_a_checker_sees_no_process_and_works_as_ever() {
    let testbed = Testbed::new();
    let program = without_landlock(&testbed);
    let spies = make(&testbed, Filesystem::Ext4);
    let body = r#"echo /proc/*; cat /proc/self/environ || echo refused"#;
    let request = RunRequest {
        command: script(&testbed, "spy", body),
        ..order(&spies, Filesystem::Ext4, Mode::Unmounted)
    };
    let spied = run_by(&program, request).await;
    let output = text(&spied);
    assert!(
        output.starts_with(
            "/proc/cpuinfo /proc/devices /proc/filesystems /proc/meminfo /proc/mounts \
             /proc/partitions /proc/self /proc/swaps\n"
        ) && output.ends_with("refused\n"),
        "{output} {}",
        spied.failure_reason
    );

    for filesystem in ALL {
        let testbed = Testbed::new();
        let disk = make(&testbed, filesystem);
        let mount = testbed.path("mnt");
        mount_device(&disk.device, filesystem.name(), &mount, "");
        fill(&mount, 300);
        for mode in [Mode::Live, Mode::ReadOnly, Mode::Unmounted] {
            match mode {
                Mode::ReadOnly => run("/usr/bin/mount", &[&"-o", &"remount,ro", &mount]),
                Mode::Unmounted => {
                    umount(&mount);
                    String::new()
                }
                _ => run("/usr/bin/sync", &[&"-f", &mount]),
            };
            let usual = ran(order(&disk, filesystem, mode)).await.run;
            let without = run_by(&program, order(&disk, filesystem, mode)).await;
            assert_eq!(
                (usual.result, &usual.termination),
                (without.result, &without.termination),
                "{} {}: {}\n{} {}",
                filesystem.name(),
                mode.name(),
                text(&usual),
                text(&without),
                without.failure_reason
            );
        }
    }
}
