//! The daemon or the shim is killed between any two calls and during each call: what was started is
//! finished or undone, a repeated call succeeds, and nothing is left behind.

use std::time::Duration;

use tonic::{Code, Status};

use super::fixture::{MIB, Volume, claim, configure, ext4, nothing_is_left, raw};
use crate::support::daemon::Arguments;
use crate::support::shim::{Csi, Shim};
use crate::support::{Daemon, SOON, Testbed, eventually, pause};
use diskvitals_csi::wire::VolumeCapability;

/// Milliseconds from the start of a call to the kill of the other process: from hardly started to
/// nearly done.
const KILL_DELAYS_MS: [u64; 6] = [0, 2, 5, 10, 20, 60];
const SIZE: i64 = 16 * MIB;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Create,
    Stage,
    Publish,
    Unpublish,
    Unstage,
    Delete,
}

const CALLS: [Call; 6] =
    [Call::Create, Call::Stage, Call::Publish, Call::Unpublish, Call::Unstage, Call::Delete];

/// A volume in the middle of its life.
struct Lifecycle<'a> {
    testbed: &'a Testbed,
    capability: VolumeCapability,
    volume: Option<Volume>,
}

impl Lifecycle<'_> {
    async fn send(&mut self, csi: &Csi, call: Call) -> Result<(), Status> {
        if call == Call::Create {
            let handle = csi.create("pvc-a", SIZE, self.capability.clone()).await?;
            self.volume = Some(claim(self.testbed, &handle, "pvc-a", self.capability.clone()));
            return Ok(());
        }
        let volume = self.volume.as_ref().expect("it was created");
        match call {
            Call::Create => Ok(()),
            Call::Stage => volume.stage(csi).await,
            Call::Publish => volume.publish(csi).await,
            Call::Unpublish => volume.unpublish(csi).await,
            Call::Unstage => volume.unstage(csi).await,
            Call::Delete => csi.delete(&volume.handle).await,
        }
    }

    /// Retries until the call succeeds, as callers do.
    async fn retry(&mut self, csi: &Csi, call: Call) {
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            match self.send(csi, call).await {
                Ok(()) => return,
                Err(status) => {
                    let transient = matches!(
                        status.code(),
                        Code::Unavailable
                            | Code::Aborted
                            | Code::DeadlineExceeded
                            | Code::Cancelled
                    ) || status.code() == Code::Unknown
                        && status.message().contains("transport");
                    assert!(transient, "{call:?} after a kill: {status:?}");
                    assert!(
                        tokio::time::Instant::now() < deadline,
                        "{call:?} is not done within {SOON:?}: {status:?}"
                    );
                }
            }
            pause(Duration::from_millis(20)).await;
        }
    }

    /// The state that a pod would see.
    fn assert_usable(&self, after: Call) {
        let Some(volume) = &self.volume else { return };
        if after == Call::Publish && self.capability == ext4() {
            let file = volume.target.join("file");
            std::fs::write(&file, b"a pod's").expect("a pod writes");
            assert_eq!(std::fs::read(&file).expect("a pod reads"), b"a pod's");
        }
    }
}

async fn run_lifecycle(
    capability: VolumeCapability,
    mut kill: impl AsyncFnMut(&mut Lifecycle<'_>, Call, Processes) -> Processes,
) {
    let testbed = Testbed::new();
    let arguments = configure(&testbed, "");
    let mut processes = Processes {
        daemon: Daemon::start_with(&arguments).await,
        shim: Shim::start(&testbed, &[]).await,
        arguments,
    };
    let mut lifecycle = Lifecycle { testbed: &testbed, capability, volume: None };
    for call in CALLS {
        processes = kill(&mut lifecycle, call, processes).await;
        lifecycle.retry(&processes.shim.csi, call).await;
        // A repeated call changes nothing.
        lifecycle.retry(&processes.shim.csi, call).await;
        lifecycle.assert_usable(call);
    }
    nothing_is_left(&testbed, &processes.shim.csi).await;
    processes.daemon.stop().await;
}

struct Processes {
    daemon: Daemon,
    shim: Shim,
    arguments: Arguments,
}

impl Processes {
    async fn daemon_killed(self) -> Processes {
        self.daemon.kill().await;
        Processes { daemon: Daemon::start_with(&self.arguments).await, ..self }
    }

    async fn shim_killed(self, testbed: &Testbed) -> Processes {
        self.shim.kill().await;
        Processes { shim: Shim::start(testbed, &[]).await, ..self }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_between_any_two_calls_continues_after_its_restart() {
    for capability in [ext4(), raw()] {
        run_lifecycle(capability, async |_, _, processes| processes.daemon_killed().await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_interrupted_by_sigkill_is_finished_or_undone() {
    for capability in [ext4(), raw()] {
        for after in KILL_DELAYS_MS {
            run_lifecycle(capability.clone(), async |lifecycle, call, processes| {
                let csi = processes.shim.csi.clone();
                // Answered or aborted: both are acceptable, the call is repeated.
                tokio::select! {
                    _ = lifecycle.send(&csi, call) => {}
                    () = pause(Duration::from_millis(after)) => {}
                }
                processes.daemon_killed().await
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shim_killed_between_and_inside_calls_loses_no_state() {
    for after in KILL_DELAYS_MS {
        run_lifecycle(ext4(), async |lifecycle, call, processes| {
            let csi = processes.shim.csi.clone();
            tokio::select! {
                _ = lifecycle.send(&csi, call) => {}
                () = pause(Duration::from_millis(after)) => {}
            }
            processes.shim_killed(lifecycle.testbed).await
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_during_staging_leaves_no_volume_half_staged() {
    let testbed = Testbed::new();
    let arguments = configure(&testbed, "");
    let daemon = Daemon::start_with(&arguments).await;
    let shim = Shim::start(&testbed, &[]).await;
    let csi = shim.csi.clone();
    let mut volumes = Vec::new();
    for number in 0..8 {
        let handle = csi.create(&format!("pvc-{number}"), SIZE, ext4()).await.expect("made");
        volumes.push(claim(&testbed, &handle, &format!("pvc-{number}"), ext4()));
    }
    let mut coming = tokio::task::JoinSet::new();
    for volume in volumes.clone() {
        let csi = csi.clone();
        coming.spawn(async move {
            let _ = volume.stage(&csi).await;
        });
    }
    pause(Duration::from_millis(80)).await;
    daemon.kill().await;
    coming.join_all().await;
    let daemon = Daemon::start_with(&arguments).await;
    for volume in &volumes {
        eventually("it comes up", SOON, async || volume.stage(&csi).await.ok()).await;
        eventually("it is published", SOON, async || volume.publish(&csi).await.ok()).await;
        std::fs::write(volume.target.join("file"), b"x").expect("written");
        volume.down(&csi).await;
    }
    nothing_is_left(&testbed, &csi).await;
    daemon.stop().await;
}
