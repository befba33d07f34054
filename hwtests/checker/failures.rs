//! Runs whose checker, helper or device hangs, dies or disappears, and devices that are in use: the
//! run is FAILED and leaves nothing behind.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use diskvitals_fscheck::{Filesystem, Mode, RunActivity, RunResult, Termination};
use diskvitals_source::checks::runner::{self, OrphanedRuns, RunRequest};
use tokio::sync::watch;

use super::fixture::{ALL, make, order, processes, program, ran, script, text};
use crate::support::checkers::{loops_over, no_loops_over};
use crate::support::fuse::{Effect, Fault};
use crate::support::tools::{mount_device, run, umount};
use crate::support::{FuseServer, Mode as Server, SOON, Testbed, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checker_that_hangs_floods_crashes_or_eats_memory_fails_and_nothing_is_left() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 64, &[]);
    let base = order(&disk, Filesystem::Ext4, Mode::Unmounted);
    // The checker hangs, with a child that hangs as well.
    let marker = "424242.4242";
    let command = script(
        &testbed,
        "hangs",
        &format!("echo begun; trap '' TERM; sleep {marker} & sleep {marker}"),
    );
    let ran1 = ran(RunRequest { command, timeout: Duration::from_secs(3), ..base.clone() }).await;
    assert_eq!(
        (&ran1.run.termination, text(&ran1.run).as_str()),
        (&Termination::TimedOut, "begun\n"),
        "{:?}",
        ran1.run
    );
    eventually("its children are gone", SOON, async || processes(marker).is_empty().then_some(()))
        .await;
    // The checker floods its output: a bounded part is kept, all of it is counted, and memory use
    // does not grow.
    let command = script(
        &testbed,
        "floods",
        "head -c 10000000 /dev/zero | tr '\\0' 'x'; echo; yes | head -n 200000; exit 4",
    );
    let ran2 = ran(RunRequest { command, ..base.clone() }).await;
    assert_eq!(
        (&ran2.run.termination, ran2.run.output.written, ran2.run.output.kept),
        (&Termination::Exited(4), 10_400_001, 65536)
    );
    // The checker crashes.
    let command = script(&testbed, "crashes", "kill -SEGV $$");
    let ran3 = ran(RunRequest { command, ..base.clone() }).await;
    assert_eq!(
        (&ran3.run.termination, ran3.run.result),
        (&Termination::Signal(11), RunResult::Failed)
    );
    // The checker allocates without end: its memory limit refuses that.
    let command = script(&testbed, "eats", "exec dd if=/dev/zero of=/dev/null bs=600M count=1");
    let ran4 = ran(RunRequest { command, memory: 256 << 20, ..base.clone() }).await;
    assert_eq!(ran4.run.termination, Termination::Exited(1), "{}", text(&ran4.run));
    assert!(text(&ran4.run).contains("memory"), "{}", text(&ran4.run));
    // The checker does not exist, or is not executable.
    let ran5 = ran(RunRequest { command: "/nonexistent/e2fsck".into(), ..base.clone() }).await;
    assert!(
        matches!(&ran5.run.termination, Termination::NotStarted(why) if why.contains("install the package e2fsprogs")),
        "{:?}",
        ran5.run.termination
    );
    let command = script(&testbed, "no-program", "");
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o644)).expect("its mode");
    let ran6 = ran(RunRequest { command, ..base }).await;
    assert!(
        matches!(&ran6.run.termination, Termination::NotStarted(why) if why.contains("Permission denied")),
        "{:?}",
        ran6.run.termination
    );
    assert_eq!((ran5.run.result, ran6.run.result), (RunResult::Failed, RunResult::Failed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_dropped_or_whose_helper_is_killed_leaves_no_process_and_no_loop() {
    let testbed = Testbed::new();
    let disk = testbed.xfs("x.img");
    for kill_helper in [false, true] {
        let marker = if kill_helper { "434343.1" } else { "434343.2" };
        let command = script(&testbed, marker, &format!("exec sleep {marker}"));
        let prepared = runner::prepare(
            &program(),
            &OrphanedRuns::default(),
            RunRequest { command, ..order(&disk, Filesystem::Xfs, Mode::Unmounted) },
        )
        .await
        .expect("prepared");
        assert_eq!(loops_over(&testbed).len(), 1);
        let phase = watch::Sender::new(RunActivity::default());
        let run = tokio::spawn(async move { prepared.run(&phase).await });
        let checker =
            eventually("the checker runs", SOON, async || processes(marker).first().copied()).await;
        if kill_helper {
            let stat =
                std::fs::read_to_string(format!("/proc/{checker}/stat")).expect("its parent");
            let parent = stat
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.split(' ').nth(1))
                .and_then(|pid| pid.parse().ok())
                .expect("a number");
            nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(parent),
                nix::sys::signal::Signal::SIGKILL,
            )
            .expect("SIGKILL");
            let ran = run.await.expect("it ends");
            assert_eq!(
                (&ran.run.termination, ran.run.result),
                (&Termination::Signal(9), RunResult::Failed),
                "{:?}",
                ran.run
            );
            assert!(ran.run.failure_reason.contains("lost"), "{}", ran.run.failure_reason);
        } else {
            run.abort();
        }
        eventually("the checker is gone", SOON, async || {
            processes(marker).is_empty().then_some(())
        })
        .await;
        no_loops_over(&testbed).await;
    }
    // The run is prepared and never started.
    drop(
        runner::prepare(
            &program(),
            &OrphanedRuns::default(),
            order(&disk, Filesystem::Xfs, Mode::Unmounted),
        )
        .await
        .expect("prepared"),
    );
    no_loops_over(&testbed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_in_use_is_not_checked_as_unmounted() {
    let testbed = Testbed::new();
    for filesystem in ALL {
        let disk = make(&testbed, filesystem);
        let mount = testbed.path("mnt");
        mount_device(&disk.device, filesystem.name(), &mount, "");
        let ran1 = ran(order(&disk, filesystem, Mode::Unmounted)).await;
        umount(&mount);
        assert!(
            matches!(&ran1.run.termination, Termination::NotStarted(why) if why.contains("in use outside")),
            "{:?}",
            ran1.run.termination
        );
        // The device comes into use during the run.
        let go = testbed.path("go");
        let command = script(
            &testbed,
            "waits",
            &format!(
                "echo Pass 1; while [ ! -e {} ]; do sleep 0.02; done; echo done",
                go.display()
            ),
        );
        let prepared = runner::prepare(
            &program(),
            &OrphanedRuns::default(),
            RunRequest { command, ..order(&disk, filesystem, Mode::Unmounted) },
        )
        .await
        .expect("prepared");
        mount_device(&disk.device, filesystem.name(), &mount, "");
        std::fs::write(&go, b"").expect("go");
        let ran2 = prepared.run(&watch::Sender::new(RunActivity::default())).await;
        umount(&mount);
        std::fs::remove_file(&go).expect("go");
        assert_eq!(
            (&ran2.run.termination, ran2.run.result, text(&ran2.run).as_str()),
            (&Termination::Exited(0), RunResult::Failed, "Pass 1\ndone\n")
        );
        assert!(
            ran2.run.failure_reason.contains("taken into use meanwhile"),
            "{}",
            ran2.run.failure_reason
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_device_with_the_same_number_is_not_checked() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 64, &[]);
    let mut order = order(&disk, Filesystem::Ext4, Mode::Unmounted);
    order.device.name = "sdq7".to_owned();
    let ran = ran(order).await;
    assert!(
        matches!(&ran.run.termination, Termination::NotStarted(why) if why.contains("is gone, or is another device")),
        "{:?}",
        ran.run.termination
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loops_that_were_left_over_are_detached() {
    let testbed = Testbed::new();
    let disk = testbed.xfs("x.img");
    // As after a SIGKILL of every process, while another process (udev) has the loop open, so that
    // autoclear is delayed.
    let node = testbed.path("diskvitals-check");
    let number =
        std::fs::read_to_string(format!("/sys/block/{}/dev", disk.name())).expect("its number");
    let (major, minor) = number.trim().split_once(':').expect("two numbers");
    run("/usr/bin/mknod", &[&node, &"b", &major, &minor]);
    let ours = run("/usr/sbin/losetup", &[&"-r", &"--find", &"--show", &node]);
    let name = ours.trim_start_matches("/dev/");
    assert_eq!(loops_over(&testbed), [name]);
    // Other processes may have checks of their own.
    let of_ours = |lines: Vec<String>| {
        lines.into_iter().filter(|line| line.starts_with(&format!("{name},"))).collect::<Vec<_>>()
    };
    let warnings = of_ours(runner::detach_leftover_loops(&program()).await);
    assert_eq!(warnings, [format!("{name}, left over from a filesystem check, was detached")]);
    no_loops_over(&testbed).await;
    assert!(
        Path::new(&format!("/sys/block/{}/loop/backing_file", disk.name())).exists(),
        "others' loops stay"
    );
    assert_eq!(of_ours(runner::detach_leftover_loops(&program()).await), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unmount_during_a_run_is_complete_at_once() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 64, &[]);
    let mount = testbed.path("mnt");
    mount_device(&disk.device, "ext4", &mount, "");
    let marker = "454545.1";
    let command = script(&testbed, "waits", &format!("exec sleep {marker}"));
    let prepared = runner::prepare(
        &program(),
        &OrphanedRuns::default(),
        RunRequest { command, ..order(&disk, Filesystem::Ext4, Mode::Live) },
    )
    .await
    .expect("prepared");
    let phase = watch::Sender::new(RunActivity::default());
    let run = tokio::spawn(async move { prepared.run(&phase).await });
    eventually("the checker runs", SOON, async || processes(marker).first().copied()).await;
    umount(&mount);
    // No mount uses it anymore: it can be claimed (open(2), O_EXCL).
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        std::fs::File::options().read(true),
        nix::libc::O_EXCL,
    )
    .open(&disk.device)
    .expect("it is free");
    run.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_fails_when_its_device_fails_disappears_or_hangs() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let testbed = Testbed::new();
        let disk = make(&testbed, filesystem);
        disk.detach();
        let served = FuseServer::mount(&testbed.path("fuse"), &disk.image);
        let disk = testbed.attach(&served.file());
        // Reads fail.
        served.fault(vec![Fault::reads(0..1 << 40)]);
        let failed = ran(order(&disk, filesystem, Mode::Unmounted)).await.run;
        println!("{} on EIO: {:?} {}", filesystem.name(), failed.termination, text(&failed));
        assert!(
            failed.result == RunResult::Failed && failed.termination != Termination::Exited(0),
            "{failed:?}"
        );
        served.fault(Vec::new());
        // Reads are not answered: the checker cannot be killed, is handed over as unkillable, and
        // ends when the reads are answered.
        run("/usr/sbin/blockdev", &[&"--flushbufs", &disk.device]);
        let prepared = runner::prepare(
            &program(),
            &OrphanedRuns::default(),
            RunRequest {
                timeout: Duration::from_secs(2),
                ..order(&disk, filesystem, Mode::Unmounted)
            },
        )
        .await;
        let prepared = prepared.expect("prepared");
        served.fault(vec![Fault { effect: Effect::Hang, ..Fault::reads(0..1 << 40) }]);
        let started = Instant::now();
        let hung = prepared.run(&watch::Sender::new(RunActivity::default())).await.reap().await;
        println!(
            "{} on a hung device after {:?}: {:?} {}",
            filesystem.name(),
            started.elapsed(),
            hung.run.termination,
            hung.run.failure_reason
        );
        assert!(
            matches!(hung.run.termination, Termination::Stuck(_) | Termination::TimedOut)
                && hung.run.result == RunResult::Failed,
            "{:?}",
            hung.run
        );
        assert!(started.elapsed() < Duration::from_secs(10), "the run does not wait for it");
        // What waited in an interruptible state (for a page of the cache) ended with the kill.
        assert!(
            hung.unkillable.is_some() || hung.run.termination == Termination::TimedOut,
            "{:?}",
            hung.run
        );
        served.fault(Vec::new());
        if let Some(remains) = hung.unkillable {
            tokio::time::timeout(SOON, remains.exited())
                .await
                .expect("it ends with the answer of the device");
        }
        no_loops_over(&testbed).await;
        // The process has ended.
        let command = script(
            &testbed,
            "waits",
            &format!(
                "echo begun; while [ ! -e {} ]; do sleep 0.02; done",
                testbed.path("go").display()
            ),
        );
        let prepared = runner::prepare(
            &program(),
            &OrphanedRuns::default(),
            RunRequest { command, ..order(&disk, filesystem, Mode::ReadOnly) },
        )
        .await
        .expect("prepared");
        served.set(Server::Fail);
        std::fs::write(testbed.path("go"), b"").expect("go");
        let gone = prepared.run(&watch::Sender::new(RunActivity::default())).await.run;
        assert_eq!(gone.result, RunResult::Failed, "{gone:?}");
        no_loops_over(&testbed).await;
    }
}
