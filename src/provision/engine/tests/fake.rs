//! A fake host: files, loop devices, filesystems and mounts as values, changed by steps as their
//! documentation specifies. It can fail, hang, or end the daemon before or after any step, and panics
//! on forbidden steps.

mod steps;

pub use steps::HIDDEN_AT;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::rules::paths;
use crate::step::{
    BindSource, Content, Device, DeviceIdentity, FormatProof, LogicalVolume, MountedFilesystem,
    OwnedPath, PathOwner, PoolCapacity, RecordFile, Remains, RootedPath, ScanState, Step,
    StepError, StepErrorKind, StepExecutor, StepOutput,
};
use diskvitals_finding::path::HostPath;

/// What happens to the step with a number, counted from the injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    CrashBefore,
    /// In the middle of it, where it has one.
    CrashDuring,
    CrashAfter,
    Fail(StepErrorKind),
    /// It is done, and nobody is told.
    FailAfter(StepErrorKind),
    /// The pool's disk, from this step on.
    Disk(PoolDisk),
}

/// The disk of the pool's folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolDisk {
    #[default]
    Good,
    ReadOnly,
    Dead,
    /// Steps are stuck after a minute, as `step::spec` says.
    Hung,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskContent {
    Blank,
    Filesystem(String),
    /// Somewhere in the middle: the areas of signatures are blank.
    Hidden,
    /// mkfs was cut off in the middle.
    InterruptedMkfs,
    Foreign,
}

#[derive(Clone, Debug)]
pub struct Image {
    pub size: u64,
    pub content: DiskContent,
    pub device: Option<(String, bool)>,
    /// Has been mounted, or bound, since it was made: what is on it is somebody's.
    pub used: bool,
    /// A logical volume that shows what others have left.
    pub unfinished: bool,
    /// What it says of itself.
    pub identity: Option<String>,
}

impl Image {
    pub fn blank(size: u64) -> Image {
        Image {
            size,
            content: DiskContent::Blank,
            device: None,
            used: false,
            unfinished: false,
            identity: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeMount {
    pub source: String,
    pub read_only: bool,
    pub block: bool,
    pub options: Vec<String>,
}

#[derive(Debug, Default)]
pub struct HostState {
    pub records: BTreeMap<String, String>,
    pub unreadable: BTreeSet<String>,
    pub images: BTreeMap<String, Image>,
    pub logical: BTreeMap<String, (Image, Vec<String>)>,
    /// Configured devices.
    pub devices: BTreeMap<String, Image>,
    pub folders: BTreeSet<String>,
    pub mounts: BTreeMap<String, FakeMount>,
    pub targets: BTreeSet<String>,
    /// The kubelet's records: driver and handle.
    pub vol_data: BTreeMap<String, (String, String)>,
    /// The bytes that one part of a scan reads; 0: all.
    pub scan_part: u64,
    /// Folders and files that are not empty.
    pub occupied: BTreeSet<String>,
    /// Where a process sits.
    pub in_use: BTreeSet<String>,
    pub total: u64,
    pub steps: usize,
    pub executed: Vec<String>,
    pub injected_fault: Option<(usize, InjectedFault)>,
    /// Of the next mkfs.
    pub format_fault: Option<InjectedFault>,
    /// Targets (handles) whose steps never come back.
    pub hung: BTreeSet<String>,
    pub group_broken: bool,
    /// Nothing can be grown.
    pub growing_broken: bool,
    /// Its disk is not mounted.
    pub folder_missing: bool,
    pub pool_disk: PoolDisk,
    /// Loop devices that cannot be detached, by their files.
    pub other_loops: BTreeMap<String, String>,
    pub made: u32,
    pub most_mounted: usize,
}

#[derive(Clone)]
pub struct FakeHost {
    pub state: Arc<Mutex<HostState>>,
    /// Turns true when the daemon dies: then no step does anything.
    pub crashed: watch::Sender<bool>,
    /// No unmount ends while it is true.
    pub is_unmount_held: watch::Sender<bool>,
}

pub const UNIT: u64 = 4096;

impl FakeHost {
    pub fn new() -> FakeHost {
        let state = HostState { total: 100 << 30, ..HostState::default() };
        FakeHost {
            state: Arc::new(Mutex::new(state)),
            crashed: watch::Sender::new(false),
            is_unmount_held: watch::Sender::new(false),
        }
    }

    pub fn with_state<T>(&self, what: impl FnOnce(&mut HostState) -> T) -> T {
        what(&mut self.state.lock().expect("no test panics while it looks"))
    }

    /// From now on, the step with this number, beginning with 0.
    pub fn inject_at(&self, number: usize, fate: InjectedFault) {
        self.with_state(|state| (state.steps, state.injected_fault) = (0, Some((number, fate))));
    }

    pub fn inject_at_format(&self, fate: InjectedFault) {
        self.with_state(|state| state.format_fault = Some(fate));
    }

    pub fn stop_injecting(&self) {
        self.with_state(|state| state.injected_fault = None);
    }

    /// The same state, another daemon.
    pub fn restarted(&self) -> FakeHost {
        self.stop_injecting();
        FakeHost {
            state: self.state.clone(),
            crashed: watch::Sender::new(false),
            is_unmount_held: watch::Sender::new(false),
        }
    }
}

fn error(kind: StepErrorKind, message: impl Into<String>) -> StepError {
    StepError { kind, message: message.into() }
}

impl StepExecutor for FakeHost {
    async fn execute(&self, target: &str, step: Step) -> Result<StepOutput, StepError> {
        // A chance for others, as a worker gives it.
        tokio::task::yield_now().await;
        if *self.crashed.borrow() || self.with_state(|state| state.hung.contains(target)) {
            return pending().await;
        }
        let looks =
            matches!(step, Step::DirectoryCapacity { .. } | Step::VolumeGroupCapacity { .. })
                && target == "pool";
        let fate = self.with_state(|state| {
            if looks {
                return None;
            }
            state.steps += 1;
            state.executed.push(format!("{step:?}"));
            if matches!(step, Step::Format { .. }) && state.format_fault.is_some() {
                return state.format_fault.take();
            }
            state
                .injected_fault
                .filter(|(number, _)| state.steps == number + 1)
                .map(|(_, fate)| fate)
        });
        match fate {
            Some(InjectedFault::CrashBefore) => {
                self.crashed.send_replace(true);
                return pending().await;
            }
            Some(InjectedFault::CrashDuring) => {
                self.with_state(|state| state.execute_half(step));
                self.crashed.send_replace(true);
                return pending().await;
            }
            Some(InjectedFault::CrashAfter) => {
                drop(self.with_state(|state| state.execute(step)));
                self.crashed.send_replace(true);
                return pending().await;
            }
            Some(InjectedFault::Fail(kind)) => return Err(error(kind, "made to fail")),
            Some(InjectedFault::FailAfter(kind)) => {
                drop(self.with_state(|state| state.execute(step)));
                return Err(error(kind, "made to fail after it was done"));
            }
            Some(InjectedFault::Disk(disk)) => self.with_state(|state| state.pool_disk = disk),
            None => {}
        }
        if matches!(step, Step::Unmount { .. }) {
            let mut held = self.is_unmount_held.subscribe();
            held.wait_for(|held| !held).await.expect("the test runs");
        }
        let disk = self.with_state(|state| state.pool_disk);
        match disk {
            PoolDisk::Hung if needs_pool_disk(&step) => {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Err(error(StepErrorKind::Stuck, "not finished after 60 s"))
            }
            PoolDisk::Dead if needs_pool_disk(&step) => {
                Err(error(StepErrorKind::Other, "Input/output error"))
            }
            PoolDisk::ReadOnly
                if needs_pool_disk(&step) && !matches!(step, Step::ReadRecords { .. }) =>
            {
                Err(error(StepErrorKind::Other, "Read-only file system"))
            }
            _ => self.with_state(|state| state.execute(step)),
        }
    }
}

fn needs_pool_disk(step: &Step) -> bool {
    matches!(
        step,
        Step::ReadRecords { .. }
            | Step::WriteRecord { .. }
            | Step::RemoveRecord { .. }
            | Step::CreateImage { .. }
            | Step::GrowImage { .. }
            | Step::RemoveImage { .. }
            | Step::AttachImage { .. }
    )
}

impl HostState {
    fn images_of_all(&mut self) -> impl Iterator<Item = &mut Image> {
        self.images
            .values_mut()
            .chain(self.logical.values_mut().map(|(image, _)| image))
            .chain(self.devices.values_mut())
    }

    pub fn by_node(&mut self, node: &HostPath) -> Option<&mut Image> {
        let node = node.to_string();
        self.images_of_all().find(|image| {
            image.device.as_ref().is_some_and(|(name, _)| format!("/dev/{name}") == node)
        })
    }

    fn by_name(&mut self, name: &str) -> Option<&mut Image> {
        self.images_of_all()
            .find(|image| image.device.as_ref().is_some_and(|(device, _)| device == name))
    }

    fn used(&self) -> u64 {
        self.images.values().map(|image| image.size).sum()
    }

    fn is_mounted(&self, device: &str) -> bool {
        self.mounts.values().any(|mount| mount.source == device)
    }

    fn device(image: &Image) -> Result<StepOutput, StepError> {
        let Some((name, read_only)) = image.device.clone() else {
            return Ok(StepOutput::Empty);
        };
        let (node, identity) = (format!("/dev/{name}").as_str().into(), image.identity.clone());
        Ok(StepOutput::Device(Device { node, name, size: image.size, read_only, identity }))
    }

    fn checked_path(target: &RootedPath) -> Result<String, StepError> {
        let path = target.path.to_string();
        if path.contains("link") {
            Err(error(StepErrorKind::InvalidPath, format!("{path} leads through a link")))
        } else {
            Ok(path)
        }
    }

    fn is_recorded(&self, place: &RootedPath, owner: &PathOwner) -> Result<bool, StepError> {
        let record = paths::kubelet_record(place, owner)
            .map_err(|why| error(StepErrorKind::InvalidPath, why))?;
        match self.vol_data.get(&record.to_string()) {
            None => Ok(false),
            Some((driver, handle)) if (driver, handle) == (&owner.driver, &owner.handle) => {
                Ok(true)
            }
            Some((_, handle)) => Err(error(
                StepErrorKind::ForeignData,
                format!("{record} gives it to volume {handle}"),
            )),
        }
    }

    fn check_target(&self, target: &OwnedPath) -> Result<String, StepError> {
        let path = HostState::checked_path(&target.place)?;
        if !self.is_recorded(&target.place, &target.owner)? && self.occupied.contains(&path) {
            return Err(error(StepErrorKind::ForeignData, format!("{path} is not empty")));
        }
        Ok(path)
    }

    fn mount(&mut self, target: &OwnedPath, mount: FakeMount) -> Result<StepOutput, StepError> {
        let path = HostState::checked_path(&target.place)?;
        if !self.mounts.contains_key(&path) {
            self.check_target(target)?;
        }
        match self.mounts.get(&path) {
            Some(there) if there.source == mount.source => {}
            Some(there) => {
                return Err(error(
                    StepErrorKind::AlreadyExists,
                    format!("{} is mounted there", there.source),
                ));
            }
            None => {
                if let Some(image) = self.by_name(&mount.source) {
                    image.used = true;
                }
                self.mounts.insert(path.clone(), mount);
            }
        }
        self.targets.insert(path);
        self.most_mounted = self.most_mounted.max(self.mounts.len());
        Ok(StepOutput::Empty)
    }
}
