//! The daemon or the shim is killed between any two calls and inside each: what was begun is
//! finished or undone, saying it again succeeds, nothing is left.

use std::time::Duration;

use tonic::{Code, Status};

use super::fixture::{Claimed, MIB, claim, configure, ext4, nothing_is_left, raw};
use crate::support::daemon::Arguments;
use crate::support::shim::{Csi, Shim};
use crate::support::{Daemon, SOON, Testbed, eventually, pause};
use diskvitals::csi::wire::VolumeCapability;

/// How long a call has gone on when the other side is killed; from "hardly begun" to "nearly done".
const INSIDE: [u64; 6] = [0, 2, 5, 10, 20, 60];
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

const LIFE: [Call; 6] = [
    Call::Create,
    Call::Stage,
    Call::Publish,
    Call::Unpublish,
    Call::Unstage,
    Call::Delete,
];

/// A volume in the middle of its life.
struct Story<'a> {
    testbed: &'a Testbed,
    capability: VolumeCapability,
    volume: Option<Claimed>,
}

impl Story<'_> {
    async fn say(&mut self, csi: &Csi, call: Call) -> Result<(), Status> {
        if call == Call::Create {
            let handle = csi.create("pvc-a", SIZE, self.capability.clone()).await?;
            self.volume = Some(claim(
                self.testbed,
                &handle,
                "pvc-a",
                self.capability.clone(),
            ));
            return Ok(());
        }
        let volume = self.volume.as_ref().expect("it was made");
        match call {
            Call::Create => Ok(()),
            Call::Stage => volume.stage(csi).await,
            Call::Publish => volume.publish(csi).await,
            Call::Unpublish => volume.unpublish(csi).await,
            Call::Unstage => volume.unstage(csi).await,
            Call::Delete => csi.delete(&volume.handle).await,
        }
    }

    /// As callers do it: again, until it is done.
    async fn insist(&mut self, csi: &Csi, call: Call) {
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            match self.say(csi, call).await {
                Ok(()) => return,
                Err(status) => {
                    let passing = matches!(
                        status.code(),
                        Code::Unavailable
                            | Code::Aborted
                            | Code::DeadlineExceeded
                            | Code::Cancelled
                    ) || status.code() == Code::Unknown
                        && status.message().contains("transport");
                    assert!(passing, "{call:?} after a kill: {status:?}");
                    assert!(
                        tokio::time::Instant::now() < deadline,
                        "{call:?} is not done within {SOON:?}: {status:?}"
                    );
                }
            }
            pause(Duration::from_millis(20)).await;
        }
    }

    /// What a pod would see.
    fn look(&self, after: Call) {
        let Some(volume) = &self.volume else { return };
        if after == Call::Publish && self.capability == ext4() {
            let file = volume.target.join("file");
            std::fs::write(&file, b"a pod's").expect("a pod writes");
            assert_eq!(std::fs::read(&file).expect("a pod reads"), b"a pod's");
        }
    }
}

async fn whole_life(
    capability: VolumeCapability,
    mut kill: impl AsyncFnMut(&mut Story<'_>, Call, Players) -> Players,
) {
    let testbed = Testbed::new();
    let arguments = configure(&testbed, "");
    let mut players = Players {
        daemon: Daemon::start_with(&arguments).await,
        shim: Shim::start(&testbed, &[]).await,
        arguments,
    };
    let mut story = Story {
        testbed: &testbed,
        capability,
        volume: None,
    };
    for call in LIFE {
        players = kill(&mut story, call, players).await;
        story.insist(&players.shim.csi, call).await;
        // And once more: said twice is done once.
        story.insist(&players.shim.csi, call).await;
        story.look(call);
    }
    nothing_is_left(&testbed, &players.shim.csi).await;
    players.daemon.stop().await;
}

struct Players {
    daemon: Daemon,
    shim: Shim,
    arguments: Arguments,
}

impl Players {
    async fn daemon_killed(self) -> Players {
        self.daemon.kill().await;
        Players {
            daemon: Daemon::start_with(&self.arguments).await,
            ..self
        }
    }

    async fn shim_killed(self, testbed: &Testbed) -> Players {
        self.shim.kill().await;
        Players {
            shim: Shim::start(testbed, &[]).await,
            ..self
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_between_any_two_calls_continues_after_its_restart() {
    for capability in [ext4(), raw()] {
        whole_life(capability, async |_, _, players| {
            players.daemon_killed().await
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_interrupted_by_sigkill_is_finished_or_undone() {
    for capability in [ext4(), raw()] {
        for after in INSIDE {
            whole_life(capability.clone(), async |story, call, players| {
                let csi = players.shim.csi.clone();
                // Answered or broken off: either is fine, it is said again.
                tokio::select! {
                    _ = story.say(&csi, call) => {}
                    () = pause(Duration::from_millis(after)) => {}
                }
                players.daemon_killed().await
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shim_killed_between_and_inside_calls_loses_no_state() {
    for after in INSIDE {
        whole_life(ext4(), async |story, call, players| {
            let csi = players.shim.csi.clone();
            tokio::select! {
                _ = story.say(&csi, call) => {}
                () = pause(Duration::from_millis(after)) => {}
            }
            players.shim_killed(story.testbed).await
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
        let handle = csi
            .create(&format!("pvc-{number}"), SIZE, ext4())
            .await
            .expect("made");
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
        eventually("it is published", SOON, async || {
            volume.publish(&csi).await.ok()
        })
        .await;
        std::fs::write(volume.target.join("file"), b"x").expect("written");
        volume.down(&csi).await;
    }
    nothing_is_left(&testbed, &csi).await;
    daemon.stop().await;
}
