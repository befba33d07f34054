//! What makes the node as a whole unfit, with a filesystem that the kernel makes read-only: the
//! container runtime's, on a loop device over a file that fails.

use std::path::PathBuf;

use diskvitals_host::clock::now;
use diskvitals_wire::NodeFailures;
use jiff::SignedDuration;
use nix::sys::signal::{Signal, kill};

use crate::device_failures::{until_options_are_read_only, write_and_sync};
use crate::kernel_errors::on_a_server;
use crate::support::daemon::{Arguments, config};
use crate::support::fuse::{Fault, FuseServer, Mode};
use crate::support::tools::{mount_device, run, umount};
use crate::support::{Daemon, Disk, SOON, Testbed, eventually};

/// Uses up the records of mounts of ext4 that the kernel writes in 30 seconds, 64 of them
/// (fs/ext4/super.c, ext4_mount_msg_ratelimit): the next mount has none.
fn use_up_records_of_mounts(testbed: &Testbed, disk: &Disk) {
    let at = testbed.path("mnt/other");
    for _ in 0..64 {
        mount_device(&disk.device, "ext4", &at, "");
        umount(&at);
    }
}

async fn until(daemon: &Daemon, what: &str, is_it: impl Fn(&NodeFailures) -> bool) -> NodeFailures {
    let mut shown = NodeFailures::default();
    eventually(what, SOON, async || {
        let found = daemon.client.node().await.node_failures?;
        // For a test that fails: what it was instead.
        if found != shown {
            eprintln!("waiting until {what}: {found:#?}");
            shown = found.clone();
        }
        is_it(&found).then_some(found)
    })
    .await
}

fn reasons(found: &NodeFailures) -> Vec<&str> {
    let failures = found.failures.iter();
    failures.map(|failure| failure.reason.as_str()).collect()
}

const BYTES: u64 = 64 << 20;

/// A filesystem with the folder of a container runtime, as the configuration has it.
fn runtime_on_a_server(testbed: &Testbed) -> (FuseServer, Disk, PathBuf) {
    let image = testbed.image("e.img", BYTES);
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
    let (served, disk) = on_a_server(testbed, &image);
    let runtime = testbed.path("mnt/runtime");
    mount_device(&disk.device, "ext4", &runtime, "");
    let below = runtime.join("containerd");
    std::fs::create_dir(&below).expect("the runtime's folder");
    let line = format!("[volumes]\nruntime_directories = [\"{}\"]\n", below.display());
    std::fs::write(testbed.path("diskvitals.toml"), config().replace("[volumes]\n", &line))
        .expect("the configuration");
    (served, disk, runtime)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filesystem_of_the_container_runtime_that_hangs_or_becomes_read_only_fails_the_node() {
    let testbed = Testbed::new();
    let (served, disk, runtime) = runtime_on_a_server(&testbed);
    let below = runtime.join("containerd");
    let daemon = Daemon::start_with(&Arguments::of(&testbed)).await;
    until(&daemon, "the node is fit, and all of it is known", |found| {
        found.failures.is_empty() && found.unknown.is_empty()
    })
    .await;

    served.set(Mode::Hang);
    let file = below.join("f");
    let writer = tokio::task::spawn_blocking(move || write_and_sync(&file));
    let hung = until(&daemon, "it hangs", |found| !found.failures.is_empty()).await;
    assert_eq!(reasons(&hung), ["SystemFilesystemHung"], "{hung:#?}");
    let message = &hung.failures[0].message;
    assert!(message.starts_with(&format!("{}: ", below.display())), "{message}");
    served.set(Mode::Pass);
    writer.await.expect("it ends").expect("it is written");
    until(&daemon, "it answers again", |found| {
        found.failures.is_empty() && found.unknown.is_empty()
    })
    .await;

    served.fault(vec![Fault::writes(0..BYTES)]);
    let fail_a_write = || {
        // It fails; the test examines how the kernel reports it.
        let _ = std::fs::File::create(below.join("f")).and_then(|file| file.sync_all());
    };
    let read_only = eventually("it is read-only", SOON, async || {
        fail_a_write();
        let found = daemon.client.node().await.node_failures?;
        reasons(&found).contains(&"SystemFilesystemReadOnly").then_some(found)
    })
    .await;
    assert_eq!(read_only.failures.len(), 1, "{read_only:#?}");

    served.fault(Vec::new());
    use_up_records_of_mounts(&testbed, &testbed.ext4("other.img", 16, &[]));
    // Without a record of the kernel, and in less time than the daemon needs to read the mount table.
    kill(daemon.pid(), Signal::SIGSTOP).expect("it is stopped");
    umount(&runtime);
    run("/usr/sbin/fsck.ext4", &[&"-p", &disk.device]);
    mount_device(&disk.device, "ext4", &runtime, "");
    kill(daemon.pid(), Signal::SIGCONT).expect("it continues");
    until(&daemon, "it is writable again", |found| {
        found.failures.is_empty() && found.unknown.is_empty()
    })
    .await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filesystem_that_was_repaired_before_the_daemon_read_of_it_is_fit() {
    let testbed = Testbed::new();
    let (served, disk, runtime) = runtime_on_a_server(&testbed);
    let daemon = Daemon::start_with(&Arguments::of(&testbed)).await;
    let is_fit = |found: &NodeFailures| found.failures.is_empty() && found.unknown.is_empty();
    until(&daemon, "the node is fit, and all of it is known", is_fit).await;

    // A record that the daemon reads at once: with it, it measures how late those after the stop are.
    let live = || daemon.log().matches("history=false").count();
    let before = live();
    let other = testbed.ext4("other.img", 16, &[]);
    eventually("the record is read", SOON, async || (live() > before).then_some(())).await;
    kill(daemon.pid(), Signal::SIGSTOP).expect("it is stopped");
    served.fault(vec![Fault::writes(0..BYTES)]);
    until_options_are_read_only(&runtime).await;
    served.fault(Vec::new());
    use_up_records_of_mounts(&testbed, &other);
    umount(&runtime);
    run("/usr/sbin/fsck.ext4", &[&"-p", &disk.device]);
    // The superblock has the time of the mount in whole seconds, by a clock that is milliseconds behind.
    let failed = now();
    eventually("more than a second later", SOON, async || {
        (now().duration_since(failed) > SignedDuration::from_millis(1100)).then_some(())
    })
    .await;
    mount_device(&disk.device, "ext4", &runtime, "");
    kill(daemon.pid(), Signal::SIGCONT).expect("it continues");

    let failed = eventually("the failed writes are reported", SOON, async || {
        let findings = daemon.client.findings(false).await.into_iter();
        findings.into_iter().find(|finding| finding.reason == "IoErrors")
    })
    .await;
    let subject = failed.subject.expect("a subject").id;
    daemon.client.probed_anew(&[&subject]).await;
    // The records of the failure and of the mount may be in two readings, one after the other.
    until(&daemon, "the node is fit again", is_fit).await;
    daemon.stop().await;
}
