//! What these tests share: the taker of steps, and a scene whose folder `mnt` is the root of all
//! places.

use std::path::Path;
use std::time::Duration;

use diskvitals::attach::step::{Device, Done, Place, Step, StepError, Steps, Trouble};
use diskvitals::attach::steps::WorkerSteps;
use diskvitals::host::root::HostRoot;
use diskvitals::model::path::HostPath;

use crate::support::Scene;

pub const MIB: u64 = 1 << 20;

pub struct Stage {
    pub scene: Scene,
    pub steps: WorkerSteps,
}

impl Stage {
    pub fn new() -> Stage {
        Stage::hurried(Duration::from_secs(120))
    }

    pub fn hurried(longest: Duration) -> Stage {
        let steps = WorkerSteps::hurried(
            &HostRoot::new("/"),
            env!("CARGO_BIN_EXE_diskvitalsd").into(),
            longest,
        );
        Stage {
            scene: Scene::new(),
            steps,
        }
    }

    pub async fn take(&self, step: Step) -> Result<Done, StepError> {
        self.steps.take("v", step).await
    }

    /// It is done, and done again it is done.
    pub async fn twice(&self, step: Step) -> Done {
        let first = self
            .take(step.clone())
            .await
            .unwrap_or_else(|error| panic!("{step:?}: {error:?}"));
        let second = self
            .take(step.clone())
            .await
            .unwrap_or_else(|error| panic!("again {step:?}: {error:?}"));
        assert_eq!(first, second, "{step:?}");
        first
    }

    pub async fn refused(&self, step: Step) -> (Trouble, String) {
        match self.take(step.clone()).await {
            Err(error) => (error.kind, error.message),
            Ok(done) => panic!("{step:?}: {done:?}"),
        }
    }

    pub fn image(&self, name: &str) -> HostPath {
        path(&self.scene.path("images").join(name))
    }

    /// An image of this size on a loop device.
    pub async fn attached(&self, name: &str, size: u64) -> Device {
        let image = self.image(name);
        self.twice(Step::MakeImage {
            image: image.clone(),
            size,
        })
        .await;
        device(
            self.twice(Step::AttachImage {
                image,
                read_only: false,
            })
            .await,
        )
    }

    pub fn place(&self, below: &str) -> Place {
        let root = path(&self.scene.path("mnt"));
        Place {
            path: root.join(below),
            root,
        }
    }

    pub fn at(&self, below: &str) -> std::path::PathBuf {
        self.scene.path("mnt").join(below)
    }
}

pub fn path(path: &Path) -> HostPath {
    HostPath::from(path)
}

pub fn device(done: Done) -> Device {
    match done {
        Done::Device(device) => device,
        other => panic!("no device: {other:?}"),
    }
}

pub fn format(device: &Device, fs_type: &str) -> Step {
    Step::Format {
        device: device.node.clone(),
        fs_type: fs_type.to_owned(),
        options: Vec::new(),
    }
}

pub fn mount(device: &Device, target: Place, fs_type: &str, read_only: bool) -> Step {
    let options = vec!["noatime".to_owned()];
    Step::Mount {
        device: device.node.clone(),
        target,
        fs_type: fs_type.to_owned(),
        options,
        read_only,
    }
}
