//! Fixture of the step tests: the executor, and a testbed whose directory `mnt` is the root of all
//! target paths, in the kubelet's layout.

use std::path::{Path, PathBuf};
use std::time::Duration;

use diskvitals_finding::path::HostPath;
use diskvitals_host::root::HostRoot;
use diskvitals_provision::executor::WorkerExecutor;
use diskvitals_provision::step::{
    Device, FormatProof, OwnedPath, PathOwner, PathRole, RootedPath, Step, StepError,
    StepErrorKind, StepExecutor, StepOutput,
};

use crate::programs::built_program;
use crate::support::Testbed;

pub const MIB: u64 = 1 << 20;
pub const DRIVER: &str = "csi.diskvitals.io";

pub struct Fixture {
    pub testbed: Testbed,
    pub steps: WorkerExecutor,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with_max_timeout(Duration::from_secs(120))
    }

    pub fn with_max_timeout(longest: Duration) -> Fixture {
        let steps = WorkerExecutor::with_max_timeout(
            &HostRoot::new("/"),
            built_program("diskvitalsd").into(),
            longest,
        );
        Fixture { testbed: Testbed::new(), steps }
    }

    pub async fn run(&self, step: Step) -> Result<StepOutput, StepError> {
        self.steps.execute("v", step).await
    }

    /// The step succeeds, and its repetition succeeds as well.
    pub async fn twice(&self, step: Step) -> StepOutput {
        let first =
            self.run(step.clone()).await.unwrap_or_else(|error| panic!("{step:?}: {error:?}"));
        let second = self
            .run(step.clone())
            .await
            .unwrap_or_else(|error| panic!("again {step:?}: {error:?}"));
        assert_eq!(first, second, "{step:?}");
        first
    }

    pub async fn refused(&self, step: Step) -> (StepErrorKind, String) {
        match self.run(step.clone()).await {
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
        self.twice(Step::CreateImage { image: image.clone(), size }).await;
        device(self.twice(Step::AttachImage { image, read_only: false }).await)
    }

    /// The kubelet's path for this name, whose folder exists: a staging path for `staged`, else a
    /// pod's.
    pub fn target(&self, name: &str) -> RootedPath {
        let at = self.at(name);
        std::fs::create_dir_all(at.parent().expect("a folder")).expect("the kubelet's folder");
        RootedPath { path: path(&at), root: path(&self.testbed.path("mnt")) }
    }

    /// The same, as a path of the volume `v`.
    pub fn owned(&self, name: &str) -> OwnedPath {
        owned(self.target(name))
    }

    /// A file below the path of a name: `pod/file`.
    pub fn at(&self, below: &str) -> PathBuf {
        let (name, file) = below.split_once('/').unwrap_or((below, ""));
        let at = self.testbed.path("mnt").join(match name {
            "staged" => {
                format!("plugins/kubernetes.io/csi/{DRIVER}/{}/globalmount", "0af1".repeat(16))
            }
            "dev" => "plugins/kubernetes.io/csi/volumeDevices/publish/pv/pod".to_owned(),
            pod => format!("pods/{pod}/volumes/kubernetes.io~csi/pv/mount"),
        });
        if file.is_empty() { at } else { at.join(file) }
    }
}

pub fn owned(place: RootedPath) -> OwnedPath {
    let is = |form: &str| place.path.to_string().contains(form);
    let owner = PathOwner {
        driver: DRIVER.to_owned(),
        handle: "v".to_owned(),
        role: if is("/globalmount") { PathRole::Stage } else { PathRole::Publish },
        block: Some(is("/volumeDevices/")),
    };
    OwnedPath { place, owner }
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
        proof: FormatProof::New,
    }
}

pub fn mount(device: &Device, target: RootedPath, fs_type: &str, read_only: bool) -> Step {
    let target = owned(target);
    let options = vec!["noatime".to_owned()];
    Step::Mount {
        device: device.node.clone(),
        target,
        fs_type: fs_type.to_owned(),
        options,
        read_only,
    }
}
