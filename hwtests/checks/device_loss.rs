//! Devices that hang or are removed during a run: the check ends without a verdict and gives the
//! reason, nothing else waits for it, and nothing is left behind.

use std::time::Duration;

use diskvitals_fscheck::Filesystem;
use diskvitals_wire::check::{Mode, State, Verdict};
use diskvitals_wire::check_run::Ballot;
use diskvitals_wire::{Check, StartCheckRequest};
use tokio::time::Instant;

use super::fixture::{
    ALL, CHECK_LIMIT, ON_DEMAND, Volume, begin, check, ended, expect, get, nothing_is_left, of,
    of_device, on_a_server, start,
};
use crate::support::fuse::{Effect, Fault};
use crate::support::tools::{mount_device, run};
use crate::support::{Disk, FuseServer, SOON, Testbed, eventually, pause};

/// By then the helper has read the UUID, and a checker the superblocks and groups; it is reading
/// metadata in bulk.
const BEFORE: usize = 16;

/// Much of a mounted filesystem is in the page cache.
const BEFORE_MOUNTED: usize = 3;

/// So many reads are answered; all later reads hang.
fn hang_after(served: &FuseServer, reads: usize) {
    served.fault(vec![Fault { effect: Effect::Hang, after: reads, ..Fault::reads(0..1 << 40) }]);
}

async fn hangs(served: &FuseServer) {
    eventually("a read waits in the middle of the run", CHECK_LIMIT, async || {
        (served.held() > 0).then_some(())
    })
    .await;
}

#[track_caller]
fn is_inconclusive(check: &Check) {
    println!("{}: {:?}: {}", check.filesystem, check.verdict(), check.reason);
    assert!(matches!(check.verdict(), Verdict::Failed | Verdict::Inconclusive), "{check:#?}");
    assert!(!check.reason.is_empty(), "{check:#?}");
    // Also where the kernel log cannot be read, which would otherwise decide.
    assert!(check.runs.iter().all(|run| run.ballot() != Ballot::Findings), "{check:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_hangs_during_a_run_times_out_and_delays_nothing_else() {
    for filesystem in ALL {
        let testbed = Testbed::new();
        let (served, disk) = on_a_server(&testbed, filesystem);
        let other = Volume::mount(&testbed, testbed.ext4("other.img", 64, &[]), "ext4", "");
        let daemon = start(&testbed, &format!("{ON_DEMAND}at_once = 2\ntimeout = \"10s\"\n")).await;
        hang_after(&served, BEFORE);
        // Forced: otherwise the check would be stopped as soon as the device counts as stalled.
        let begun = begin(
            &daemon.client,
            StartCheckRequest { force: true, ..of_device(&disk, filesystem) },
        )
        .await;
        hangs(&served).await;
        let since = Instant::now();
        expect(&check(&daemon.client, of(&other.at)).await, Verdict::Clean, Mode::Live);
        let failed = loop {
            let started = Instant::now();
            daemon.client.node().await;
            let now = get(&daemon.client, &begun.id).await;
            assert!(
                started.elapsed() < Duration::from_secs(3),
                "an answer took {:?}",
                started.elapsed()
            );
            assert!(matches!(now.verdict(), Verdict::Unspecified | Verdict::Failed), "{now:#?}");
            if now.state() == State::Ended {
                break now;
            }
            assert!(since.elapsed() < CHECK_LIMIT, "it does not end: {now:#?}");
            pause(Duration::from_millis(100)).await;
        };
        println!("{}: after {:?}: {}", filesystem.name(), since.elapsed(), failed.reason);
        expect(&failed, Verdict::Failed, Mode::Unmounted);
        assert!(!failed.cancelled && !failed.runs.is_empty(), "{failed:#?}");
        assert!(
            failed
                .runs
                .iter()
                .all(|run| run.ballot() == Ballot::Failed && run.exit_status.is_none()),
            "{failed:#?}"
        );
        // The verdict alone proves nothing: the check must have started and reached its own
        // time-out.
        assert!(
            failed.runs.iter().any(|run| run.output_bytes > 0 || run.bytes_read > 0),
            "{failed:#?}"
        );
        // Other checks still run while it hangs without a check that waits for it.
        expect(&check(&daemon.client, of(&other.at)).await, Verdict::Clean, Mode::Live);

        served.fault(Vec::new());
        nothing_is_left(&testbed, Some(&other)).await;
        eventually("another check of the device", CHECK_LIMIT, async || {
            let again = check(
                &daemon.client,
                StartCheckRequest { force: true, ..of_device(&disk, filesystem) },
            )
            .await;
            if again.verdict() == Verdict::Failed {
                // A hung process may need a moment to end.
                assert!(again.reason.contains("hung"), "{again:#?}");
                return None;
            }
            expect(&again, Verdict::Clean, Mode::Unmounted);
            Some(())
        })
        .await;
        nothing_is_left(&testbed, Some(&other)).await;
        daemon.stop().await;
    }
}

/// How a device disappears while a read of it waits.
#[derive(Clone, Copy, Debug)]
enum Removal {
    /// Like a truncated disk image: the device has no sectors anymore.
    Emptied,
    /// Like a pulled drive: every request fails.
    Pulled,
}

fn remove(served: &FuseServer, disk: &Disk, how: Removal) {
    match how {
        Removal::Emptied => {
            std::fs::File::options()
                .write(true)
                .open(&disk.image)
                .and_then(|file| file.set_len(0))
                .expect("the image is cut off");
            served.fault(Vec::new());
            run("/usr/sbin/losetup", &[&"--set-capacity", &disk.device]);
        }
        Removal::Pulled => served.die(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_removed_during_a_run_is_not_reported_as_damaged() {
    for filesystem in ALL {
        for how in [Removal::Emptied, Removal::Pulled] {
            let testbed = Testbed::new();
            let (served, disk) = on_a_server(&testbed, filesystem);
            let daemon = start(&testbed, ON_DEMAND).await;
            hang_after(&served, BEFORE);
            let begun = begin(&daemon.client, of_device(&disk, filesystem)).await;
            hangs(&served).await;
            remove(&served, &disk, how);
            is_inconclusive(&ended(&daemon.client, &begun.id, CHECK_LIMIT).await);
            nothing_is_left(&testbed, None).await;
            daemon.stop().await;
        }
    }
}

/// The kernel notices the loss as well and logs errors; they are the device's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mounted_device_removed_during_a_run_is_not_reported_as_damaged() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        for how in [Removal::Emptied, Removal::Pulled] {
            let testbed = Testbed::new();
            let (served, disk) = on_a_server(&testbed, filesystem);
            let at = testbed.path("mnt/mounted");
            mount_device(&disk.device, filesystem.name(), &at, "");
            let daemon = start(&testbed, ON_DEMAND).await;
            hang_after(&served, BEFORE_MOUNTED);
            let begun = begin(&daemon.client, of(&at)).await;
            hangs(&served).await;
            remove(&served, &disk, how);
            let file = at.join("written-after");
            // Any result will do: the access makes the mount notice the loss.
            let written = tokio::task::spawn_blocking(move || {
                std::fs::File::create(file).and_then(|file| file.sync_all())
            });
            is_inconclusive(&ended(&daemon.client, &begun.id, CHECK_LIMIT).await);
            tokio::time::timeout(SOON, written)
                .await
                .expect("nothing holds the writer")
                .expect("no panic")
                .ok();
            nothing_is_left(&testbed, None).await;
            daemon.stop().await;
        }
    }
}
