//! The engine over a host of values.

mod crash;
mod fake;
mod laws;
mod life;
mod log;
mod refusals;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::attach::engine::tests::fake::Fake;
use crate::attach::engine::{
    CreateWish, Engine, EngineError, ExpandWish, PublishWish, Settings, StageWish, StaticVolume,
};
use crate::attach::fault::Fault;
use crate::attach::rules::sizes::Range;
use crate::attach::step::Wipe;
use crate::model::attach::{Access, AccessMode, Kind, PodOf};
use crate::model::report::Report;

pub const STAGING: &str = "/k/plugins/x/globalmount";

pub fn settings() -> Settings {
    Settings {
        driver: "csi.diskvitals.io".into(),
        folder: "/pool".into(),
        folder_given: true,
        group: Some("vg".into()),
        kubelet_root: "/k".into(),
        roots: vec!["/srv".into()],
        wipe: Wipe::Zero,
        statics: vec![
            StaticVolume {
                name: "fast".into(),
                kind: Kind::StaticDevice,
                path: "/dev/disk/by-id/fast".into(),
            },
            StaticVolume {
                name: "scratch".into(),
                kind: Kind::StaticDirectory,
                path: "/srv/scratch".into(),
            },
        ],
        patience: Duration::from_secs(5),
        look_every: Duration::from_secs(30),
    }
}

/// One daemon's engine over a world.
pub struct Daemon {
    pub engine: Engine,
    pub fake: Fake,
    pub settings: watch::Sender<Arc<Settings>>,
    pub reports: mpsc::Receiver<Report>,
    actor: JoinHandle<Result<std::convert::Infallible, EngineError>>,
}

impl Daemon {
    pub fn start(fake: Fake) -> Daemon {
        let settings = watch::Sender::new(Arc::new(settings()));
        let (reports, received) = mpsc::channel(10_000);
        let (engine, actor) = Engine::new(fake.clone(), settings.subscribe(), reports);
        Daemon {
            engine,
            fake,
            settings,
            reports: received,
            actor: tokio::spawn(actor.run()),
        }
    }

    pub async fn ready(fake: Fake) -> Daemon {
        let daemon = Daemon::start(fake);
        daemon.settled().await;
        daemon
    }

    /// The first look is over, and nothing is being put right.
    pub async fn settled(&self) {
        let mut views = self.engine.views();
        let idle = |view: &Arc<super::View>| {
            view.unknown.is_none() && view.volumes.values().all(|seen| seen.busy.is_none())
        };
        views.wait_for(idle).await.expect("the engine runs");
        self.engine.look_again().await;
    }

    /// Killed where it stands.
    pub async fn kill(self) -> Fake {
        self.actor.abort();
        let _ = self.actor.await;
        self.fake.restarted()
    }

    pub async fn create(&self, name: &str) -> Result<String, Fault> {
        Ok(self.engine.create(wish(name)).await?.provided.handle)
    }

    pub async fn stage(&self, handle: &str) -> Result<(), Fault> {
        self.engine
            .stage(StageWish {
                handle: handle.into(),
                staging_path: STAGING.into(),
                access: writer(),
            })
            .await
    }

    pub async fn publish(&self, handle: &str, pod: &str) -> Result<(), Fault> {
        self.engine.publish(publishing(handle, pod)).await
    }

    pub async fn unpublish(&self, handle: &str, pod: &str) -> Result<(), Fault> {
        self.engine.unpublish(handle.into(), target(pod)).await
    }

    pub async fn unstage(&self, handle: &str) -> Result<(), Fault> {
        self.engine.unstage(handle.into(), STAGING.into()).await
    }

    pub async fn grow(&self, handle: &str, size: u64) -> Result<super::Expanded, Fault> {
        let range = Range {
            required: size,
            limit: 0,
        };
        self.engine
            .expand(ExpandWish {
                handle: handle.into(),
                range,
                volume_path: None,
                device_only: false,
            })
            .await
    }
}

pub fn target(pod: &str) -> String {
    format!("/k/pods/{pod}/volumes/kubernetes.io~csi/pv/mount")
}

pub fn access(mode: AccessMode) -> Access {
    Access {
        mode,
        block: false,
        fs_type: None,
        mount_flags: Vec::new(),
    }
}

pub fn writer() -> Access {
    access(AccessMode::SingleNodeWriter)
}

pub fn wish(name: &str) -> CreateWish {
    let range = Range {
        required: 1 << 20,
        limit: 0,
    };
    CreateWish {
        name: name.into(),
        range,
        kind: None,
        accesses: vec![writer()],
        mkfs_options: String::new(),
    }
}

pub fn publishing(handle: &str, pod: &str) -> PublishWish {
    PublishWish {
        handle: handle.into(),
        staging_path: Some(STAGING.into()),
        target_path: target(pod),
        access: writer(),
        read_only: false,
        pod: Some(PodOf {
            uid: "u".into(),
            name: pod.into(),
            namespace: "shop".into(),
        }),
    }
}
