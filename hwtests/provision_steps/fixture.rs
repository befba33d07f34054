//! What these tests share: the taker of steps, and a testbed whose folder `mnt` is the root of all
//! places.

use std::path::Path;
use std::time::Duration;

use diskvitals::host::root::HostRoot;
use diskvitals::model::path::HostPath;
use diskvitals::provision::executor::WorkerExecutor;
use diskvitals::provision::step::{
    Device, RootedPath, Step, StepError, StepErrorKind, StepExecutor, StepOutput,
};

use crate::support::Testbed;

pub const MIB: u64 = 1 << 20;

pub struct Fixture {
    pub testbed: Testbed,
    pub steps: WorkerExecutor,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::hurried(Duration::from_secs(120))
    }

    pub fn hurried(longest: Duration) -> Fixture {
        let steps = WorkerExecutor::with_max_timeout(
            &HostRoot::new("/"),
            env!("CARGO_BIN_EXE_diskvitalsd").into(),
            longest,
        );
        Fixture {
            testbed: Testbed::new(),
            steps,
        }
    }

    pub async fn take(&self, step: Step) -> Result<StepOutput, StepError> {
        self.steps.execute("v", step).await
    }

    /// It is done, and done again it is done.
    pub async fn twice(&self, step: Step) -> StepOutput {
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

    pub async fn refused(&self, step: Step) -> (StepErrorKind, String) {
        match self.take(step.clone()).await {
            Err(error) => (error.kind, error.message),
            Ok(done) => panic!("{step:?}: {done:?}"),
        }
    }

    pub fn image(&self, name: &str) -> HostPath {
        path(&self.testbed.path("images").join(name))
    }

    /// An image of this size on a loop device.
    pub async fn attached(&self, name: &str, size: u64) -> Device {
        let image = self.image(name);
        self.twice(Step::CreateImage {
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

    pub fn place(&self, below: &str) -> RootedPath {
        let root = path(&self.testbed.path("mnt"));
        RootedPath {
            path: root.join(below),
            root,
        }
    }

    pub fn at(&self, below: &str) -> std::path::PathBuf {
        self.testbed.path("mnt").join(below)
    }
}

pub fn path(path: &Path) -> HostPath {
    HostPath::from(path)
}

pub fn device(done: StepOutput) -> Device {
    match done {
        StepOutput::Device(device) => device,
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

pub fn mount(device: &Device, target: RootedPath, fs_type: &str, read_only: bool) -> Step {
    let options = vec!["noatime".to_owned()];
    Step::Mount {
        device: device.node.clone(),
        target,
        fs_type: fs_type.to_owned(),
        options,
        read_only,
    }
}
