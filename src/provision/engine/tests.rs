//! The engine over a host of values.

mod availability;
mod crash;
mod dead_pool;
mod fake;
mod formatting;
mod invariants;
mod lifecycle;
mod log;
mod paths;
mod presence;
mod refusals;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::engine::tests::fake::FakeHost;
use crate::engine::{
    CreateRequest, Engine, EngineError, ExpandRequest, PublishRequest, Settings, StageRequest,
    StaticVolume,
};
use crate::error::ProvisionError;
use crate::rules::sizes::CapacityRange;
use crate::step::Wipe;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::provision::{AccessMode, BackingKind, PodRef, VolumeAccess};
use diskvitals_model::fixture::published;
use diskvitals_model::snapshot::{NodeContext, Snapshot};
use diskvitals_model::source_update::SourceUpdate;
use diskvitals_model::volume::Stack;

pub const STAGING: &str = "/k/plugins/kubernetes.io/csi/csi.diskvitals.io/0af10af10af10af10af10af10af10af10af10af10af10af10af10af10af10af1/globalmount";

pub fn settings() -> Settings {
    Settings {
        driver: "csi.diskvitals.io".into(),
        directory: "/pool".into(),
        directory_configured: true,
        volume_group: Some("vg".into()),
        kubelet_root: "/k".into(),
        static_roots: vec!["/srv".into()],
        wipe: Wipe::Zero,
        static_volumes: vec![
            StaticVolume {
                name: "fast".into(),
                kind: BackingKind::StaticDevice,
                path: "/dev/disk/by-id/fast".into(),
                expected: false,
            },
            StaticVolume {
                name: "scratch".into(),
                kind: BackingKind::StaticDirectory,
                path: "/srv/scratch".into(),
                expected: false,
            },
        ],
        request_timeout: Duration::from_secs(5),
        rescan_interval: Duration::from_secs(30),
    }
}

/// The pool's folder on the drive A, its volume group on B; both are good.
pub fn pool_snapshot() -> Snapshot {
    let drives = [("sda", "A"), ("sdb", "B")];
    let drive = |(name, serial)| (DriveId::new(serial), Arc::new(published(name, serial)));
    let stack = |serial| Stack::Drive(DriveId::new(serial));
    let context = NodeContext {
        pool: [(BackingKind::Loop, stack("A")), (BackingKind::Lvm, stack("B"))].into(),
        ..NodeContext::default()
    };
    Snapshot {
        settled: true,
        drives: drives.map(drive).into(),
        node_context: Arc::new(context),
        ..Snapshot::default()
    }
}

/// One daemon's engine over a fake host.
pub struct Daemon {
    pub engine: Engine,
    pub host: FakeHost,
    pub settings: watch::Sender<Arc<Settings>>,
    pub updates: mpsc::Receiver<SourceUpdate>,
    /// What is known of the drives below the pool.
    pub snapshots: watch::Sender<Arc<Snapshot>>,
    actor: JoinHandle<Result<std::convert::Infallible, EngineError>>,
}

impl Daemon {
    pub fn start(fake: FakeHost) -> Daemon {
        Daemon::start_with(fake, settings())
    }

    pub fn start_with(fake: FakeHost, settings: Settings) -> Daemon {
        let settings = watch::Sender::new(Arc::new(settings));
        let (reports, received) = mpsc::channel(10_000);
        let snapshots = watch::Sender::new(Arc::new(pool_snapshot()));
        let (engine, actor) =
            Engine::new(fake.clone(), settings.subscribe(), reports, snapshots.subscribe());
        Daemon {
            engine,
            snapshots,
            host: fake,
            settings,
            updates: received,
            actor: tokio::spawn(actor.run()),
        }
    }

    pub async fn ready(fake: FakeHost) -> Daemon {
        let daemon = Daemon::start(fake);
        daemon.wait_recovered().await;
        daemon
    }

    /// The first look is over, and nothing is being put right.
    pub async fn wait_recovered(&self) {
        let mut views = self.engine.subscribe();
        let idle = |view: &Arc<super::EngineView>| {
            view.records_error.is_none()
                && view.volumes.values().all(|seen| seen.activity.is_none())
        };
        views.wait_for(idle).await.expect("the engine runs");
        self.engine.rescan().await;
    }

    /// As `wait_recovered`, where recovery may fail and is tried again.
    pub async fn wait_recovered_or_failed(&self) {
        let mut views = self.engine.subscribe();
        let read = |view: &Arc<super::EngineView>| view.records_error.is_none();
        views.wait_for(read).await.expect("the engine runs");
    }

    /// Killed where it stands.
    pub async fn kill(self) -> FakeHost {
        self.actor.abort();
        let _ = self.actor.await;
        self.host.restarted()
    }

    pub async fn create(&self, name: &str) -> Result<String, ProvisionError> {
        Ok(self.engine.create(create_request(name)).await?.provided.handle)
    }

    pub async fn stage(&self, handle: &str) -> Result<(), ProvisionError> {
        self.engine
            .stage(StageRequest {
                handle: handle.into(),
                staging_path: staging_of(handle),
                access: writer(),
            })
            .await
    }

    pub async fn publish(&self, handle: &str, pod: &str) -> Result<(), ProvisionError> {
        self.engine.publish(publish_request(handle, pod)).await
    }

    pub async fn unpublish(&self, handle: &str, pod: &str) -> Result<(), ProvisionError> {
        self.engine.unpublish(handle.into(), target(pod)).await
    }

    pub async fn unstage(&self, handle: &str) -> Result<(), ProvisionError> {
        self.engine.unstage(handle.into(), staging_of(handle)).await
    }

    pub async fn grow(
        &self,
        handle: &str,
        size: u64,
    ) -> Result<super::request::ExpandResponse, ProvisionError> {
        let range = CapacityRange { required: size, limit: 0 };
        self.engine
            .expand(ExpandRequest {
                handle: handle.into(),
                range,
                volume_path: None,
                device_only: false,
            })
            .await
    }
}

/// Where the kubelet stages another volume.
pub fn staging(number: usize) -> String {
    format!("/k/plugins/kubernetes.io/csi/csi.diskvitals.io/{number:064x}/globalmount")
}

/// The path of `scratch` differs, so that it is staged beside another volume.
fn staging_of(handle: &str) -> String {
    if handle == "scratch" { staging(3) } else { STAGING.into() }
}

pub fn block_target(pod: &str) -> String {
    format!("/k/plugins/kubernetes.io/csi/volumeDevices/publish/pv/{pod}")
}

pub const BLOCK_STAGING: &str = "/k/plugins/kubernetes.io/csi/volumeDevices/staging/pv";

pub fn target(pod: &str) -> String {
    format!("/k/pods/{pod}/volumes/kubernetes.io~csi/pv/mount")
}

pub fn access(mode: AccessMode) -> VolumeAccess {
    VolumeAccess { mode, block: false, fs_type: None, mount_flags: Vec::new() }
}

pub fn writer() -> VolumeAccess {
    access(AccessMode::SingleNodeWriter)
}

pub fn create_request(name: &str) -> CreateRequest {
    let range = CapacityRange { required: 1 << 20, limit: 0 };
    CreateRequest {
        name: name.into(),
        range,
        kind: None,
        accesses: vec![writer()],
        mkfs_options: String::new(),
    }
}

pub fn publish_request(handle: &str, pod: &str) -> PublishRequest {
    PublishRequest {
        handle: handle.into(),
        staging_path: Some(staging_of(handle)),
        target_path: target(pod),
        access: writer(),
        read_only: false,
        pod: Some(PodRef { uid: "u".into(), name: pod.into(), namespace: "shop".into() }),
    }
}
