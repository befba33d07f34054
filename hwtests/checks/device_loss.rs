//! Devices that hang, or are taken away, in the middle of a run: the check ends without a verdict
//! and says why, nothing else waits for it, and nothing is left.

use std::time::Duration;

use diskvitals::api::wire::check::{Mode, State, Verdict};
use diskvitals::api::wire::check_run::Ballot;
use diskvitals::api::wire::{Check, StartCheckRequest};
use diskvitals::model::check::Filesystem;
use tokio::time::Instant;

use super::fixture::{
    ALL, ENDS, ON_DEMAND, Volume, begin, check, ended, expect, get, nothing_is_left, of, of_device,
    on_a_server, start,
};
use crate::support::fuse::{Effect, Fault};
use crate::support::tools::{mount_device, run};
use crate::support::{Disk, SOON, Served, Testbed, eventually, pause};

/// Checkers have begun to read in earnest by then: superblocks and groups are behind them.
const BEFORE: usize = 12;

/// Of a mounted one, much is in the page cache.
const BEFORE_MOUNTED: usize = 3;

/// Reads are answered so often, then not any more.
fn hang_after(served: &Served, reads: usize) {
    served.fault(vec![Fault {
        effect: Effect::Hang,
        after: reads,
        ..Fault::reads(0..1 << 40)
    }]);
}

async fn hangs(served: &Served) {
    eventually("a read waits in the middle of the run", ENDS, async || {
        (served.held() > 0).then_some(())
    })
    .await;
}

#[track_caller]
fn tells_nothing(check: &Check) {
    println!(
        "{}: {:?}: {}",
        check.filesystem,
        check.verdict(),
        check.reason
    );
    assert!(
        matches!(check.verdict(), Verdict::Failed | Verdict::Inconclusive),
        "{check:#?}"
    );
    assert!(!check.reason.is_empty(), "{check:#?}");
    // Also where the kernel's log cannot be read, which would have the last word.
    assert!(
        check
            .runs
            .iter()
            .all(|run| run.ballot() != Ballot::Findings),
        "{check:#?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_hangs_during_a_run_times_out_and_delays_nothing_else() {
    for filesystem in ALL {
        let testbed = Testbed::new();
        let (served, disk) = on_a_server(&testbed, filesystem);
        let other = Volume::mount(&testbed, testbed.ext4("other.img", 64, &[]), "ext4", "");
        let daemon = start(
            &testbed,
            &format!("{ON_DEMAND}at_once = 2\ntimeout = \"10s\"\n"),
        )
        .await;
        hang_after(&served, BEFORE);
        // Not forced, it would be stopped as soon as the device counts as stalled.
        let begun = begin(
            &daemon.client,
            StartCheckRequest {
                force: true,
                ..of_device(&disk, filesystem)
            },
        )
        .await;
        hangs(&served).await;
        let since = Instant::now();
        expect(
            &check(&daemon.client, of(&other.at)).await,
            Verdict::Clean,
            Mode::Live,
        );
        let failed = loop {
            let asked = Instant::now();
            daemon.client.node().await;
            let now = get(&daemon.client, &begun.id).await;
            assert!(
                asked.elapsed() < Duration::from_secs(3),
                "an answer took {:?}",
                asked.elapsed()
            );
            assert!(
                matches!(now.verdict(), Verdict::Unspecified | Verdict::Failed),
                "{now:#?}"
            );
            if now.state() == State::Ended {
                break now;
            }
            assert!(since.elapsed() < ENDS, "it does not end: {now:#?}");
            pause(Duration::from_millis(100)).await;
        };
        println!(
            "{}: after {:?}: {}",
            filesystem.name(),
            since.elapsed(),
            failed.reason
        );
        expect(&failed, Verdict::Failed, Mode::Unmounted);
        assert!(!failed.cancelled && !failed.runs.is_empty(), "{failed:#?}");
        assert!(
            failed
                .runs
                .iter()
                .all(|run| run.ballot() == Ballot::Failed && run.exit_status.is_none()),
            "{failed:#?}"
        );
        // Not the verdict alone: it was its own time-out, and it began.
        assert!(
            failed.runs.iter().any(|run| run.output_bytes > 0),
            "{failed:#?}"
        );
        // Others go on also now that it hangs without a check that waits for it.
        expect(
            &check(&daemon.client, of(&other.at)).await,
            Verdict::Clean,
            Mode::Live,
        );

        served.fault(Vec::new());
        nothing_is_left(&testbed, Some(&other)).await;
        eventually("it can be checked again", ENDS, async || {
            let again = check(
                &daemon.client,
                StartCheckRequest {
                    force: true,
                    ..of_device(&disk, filesystem)
                },
            )
            .await;
            if again.verdict() == Verdict::Failed {
                // What hung may need a moment to go.
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

/// How a device goes away while a read of it waits.
#[derive(Clone, Copy, Debug)]
enum Removal {
    /// As a disk image that is cut off: the device has no sectors any more.
    Emptied,
    /// As a drive that is pulled: whatever is asked of it fails.
    Pulled,
}

fn remove(served: &Served, disk: &Disk, how: Removal) {
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
            tells_nothing(&ended(&daemon.client, &begun.id, ENDS).await);
            nothing_is_left(&testbed, None).await;
            daemon.stop().await;
        }
    }
}

/// The kernel meets the loss as well, and speaks of errors: they are the device's.
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
            // Whatever it answers: it brings the mount to notice.
            let written = tokio::task::spawn_blocking(move || {
                std::fs::File::create(file).and_then(|file| file.sync_all())
            });
            tells_nothing(&ended(&daemon.client, &begun.id, ENDS).await);
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
