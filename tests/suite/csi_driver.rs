//! The shim as a process, in modes driver and controller, with a fake daemon that the test
//! configures: every answer, every refusal, and the results while the daemon is absent, hangs or
//! has no data.

mod away;
mod bad_input;
mod dialects;
mod fake;
mod lifecycle;
mod lists;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use diskvitals_csi::wire;
use diskvitals_csi::wire::controller_client::ControllerClient;
use diskvitals_csi::wire::identity_client::IdentityClient;
use diskvitals_csi::wire::node_client::NodeClient;
use diskvitals_csi::wire::volume_capability::access_mode::Mode;
use diskvitals_csi::wire::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use diskvitals_wire as daemon;
use fake::Fake;
use tempfile::TempDir;
use tokio::time::Instant;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::child::Process;
use crate::programs::built_program;

/// For a loaded machine; a passing test never waits this long.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const DRIVER: &str = "csi.diskvitals.io";
pub const NODE: &str = "worker-1";
pub const TOPOLOGY: &str = "topology.diskvitals.io/node";

pub struct Shim {
    /// The first field, so that the process ends before its folder is removed.
    _process: Process,
    _dir: TempDir,
    pub daemon: Fake,
    channel: Channel,
}

impl Shim {
    /// Starts with a daemon and waits until the shim is ready.
    pub async fn start(arguments: &[&str]) -> Shim {
        let mut shim = Shim::alone(arguments).await;
        shim.daemon.come();
        shim.ready().await;
        shim
    }

    /// Starts without a daemon.
    pub async fn alone(arguments: &[&str]) -> Shim {
        let dir = tempfile::tempdir().expect("dir");
        let process = start(dir.path(), arguments);
        let endpoint =
            Endpoint::from_shared(format!("unix://{}", dir.path().join("csi.sock").display()))
                .expect("an endpoint");
        let channel = awaited("the shim listens", async || endpoint.connect().await.ok()).await;
        Shim { _process: process, daemon: Fake::new(dir.path()), _dir: dir, channel }
    }

    pub async fn ready(&self) {
        let mut identity = self.identity();
        let mut probe = async || {
            identity
                .probe(wire::ProbeRequest {})
                .await
                .expect("an answer")
                .into_inner()
                .ready
                .expect("said")
                .then_some(())
        };
        awaited("the shim is ready", async || probe().await).await;
    }

    pub fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone())
    }

    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Adds a healthy volume that the daemon provides.
    pub fn provide(&self, handle: &str) {
        let volume = daemon::ProvidedVolume {
            handle: handle.into(),
            kind: daemon::ProvidedKind::Loop.into(),
            size_bytes: 1 << 20,
            ..Default::default()
        };
        self.daemon.state().provided.insert(handle.into(), volume);
    }

    /// Adds the volume to the daemon's snapshot of the node, with these findings.
    pub fn set_volume(&self, handle: &str, health: daemon::Health, findings: Vec<daemon::Finding>) {
        let message =
            if findings.is_empty() { "nothing is known against it" } else { "something is wrong" };
        let volume = daemon::Volume {
            id: format!("csi:{DRIVER}/{handle}"),
            driver: DRIVER.into(),
            handle: handle.into(),
            health: health.into(),
            condition: Some(daemon::Condition {
                abnormal: !findings.is_empty(),
                message: message.into(),
            }),
            findings,
            ..Default::default()
        };
        self.daemon.state().volumes.insert((DRIVER.into(), handle.into()), volume);
    }
}

#[allow(clippy::disallowed_methods)] // A test starts the program it tests.
fn start(dir: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(built_program("diskvitals-csi"));
    command.arg("--endpoint").arg(format!("unix://{}", dir.join("csi.sock").display()));
    command.arg("--agent").arg(dir.join("agent.sock")).args(["--node-id", NODE]).args(arguments);
    Process(command.spawn().expect("starts"))
}

/// Repeats `attempt` until it returns a value.
pub async fn awaited<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = attempt().await {
            return result;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn mounted(mode: Mode) -> wire::VolumeCapability {
    let mount = MountVolume {
        fs_type: "ext4".into(),
        mount_flags: vec!["noatime".into()],
        ..Default::default()
    };
    wire::VolumeCapability {
        access_type: Some(AccessType::Mount(mount)),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

pub fn block(mode: Mode) -> wire::VolumeCapability {
    wire::VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})), ..mounted(mode) }
}

pub fn finding(
    severity: daemon::Severity,
    status: daemon::FindingStatus,
    reason: &str,
    message: &str,
) -> daemon::Finding {
    daemon::Finding {
        severity: severity.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        ..Default::default()
    }
}

pub fn here() -> wire::Topology {
    wire::Topology { segments: [(TOPOLOGY.to_owned(), NODE.to_owned())].into() }
}

#[track_caller]
pub fn refused<T: std::fmt::Debug>(
    answer: Result<tonic::Response<T>, tonic::Status>,
    code: Code,
    words: &str,
) {
    let status = answer.expect_err("refused");
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(words), "`{}` lacks `{words}`", status.message());
}
