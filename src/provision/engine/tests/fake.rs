//! A host as values: files, loop devices, filesystems and mounts, that does what each step's
//! description says. It can fail, hang, or have the daemon die before or after any step; what it is
//! never allowed to do, it panics over.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::model::path::HostPath;
use crate::provision::step::{
    BindSource, Content, Device, DeviceIdentity, LogicalVolume, MountedFilesystem, PoolCapacity,
    RecordFile, RootedPath, Step, StepError, StepErrorKind, StepExecutor, StepOutput,
};

/// What happens to the step with a number, counted from when it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    CrashBefore,
    /// In the middle of it, where it has one.
    CrashDuring,
    CrashAfter,
    Fail(StepErrorKind),
    /// It is done, and nobody is told.
    FailAfter(StepErrorKind),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskContent {
    Blank,
    Filesystem(String),
    /// mkfs was cut off in the middle.
    InterruptedMkfs,
    Foreign,
}

#[derive(Clone, Debug)]
pub(crate) struct Image {
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
    pub(crate) fn blank(size: u64) -> Image {
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
pub(crate) struct FakeMount {
    pub source: String,
    pub read_only: bool,
    pub block: bool,
    pub options: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct HostState {
    pub records: BTreeMap<String, String>,
    pub unreadable: BTreeSet<String>,
    pub images: BTreeMap<String, Image>,
    pub logical: BTreeMap<String, (Image, Vec<String>)>,
    /// Configured devices.
    pub devices: BTreeMap<String, Image>,
    pub folders: BTreeSet<String>,
    pub mounts: BTreeMap<String, FakeMount>,
    pub targets: BTreeSet<String>,
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
    pub made: u32,
    pub most_mounted: usize,
}

#[derive(Clone)]
pub(crate) struct FakeHost {
    pub state: Arc<Mutex<HostState>>,
    /// Turns true when the daemon dies: then no step does anything any more.
    pub crashed: watch::Sender<bool>,
}

pub(crate) const UNIT: u64 = 4096;

impl FakeHost {
    pub(crate) fn new() -> FakeHost {
        let world = HostState {
            total: 100 << 30,
            ..HostState::default()
        };
        FakeHost {
            state: Arc::new(Mutex::new(world)),
            crashed: watch::Sender::new(false),
        }
    }

    pub(crate) fn with_state<T>(&self, what: impl FnOnce(&mut HostState) -> T) -> T {
        what(&mut self.state.lock().expect("no test panics while it looks"))
    }

    /// From now on, the step with this number, beginning with 0.
    pub(crate) fn inject_at(&self, number: usize, fate: InjectedFault) {
        self.with_state(|world| (world.steps, world.injected_fault) = (0, Some((number, fate))));
    }

    pub(crate) fn inject_at_format(&self, fate: InjectedFault) {
        self.with_state(|world| world.format_fault = Some(fate));
    }

    pub(crate) fn stop_injecting(&self) {
        self.with_state(|world| world.injected_fault = None);
    }

    /// The same world, another daemon.
    pub(crate) fn restarted(&self) -> FakeHost {
        self.stop_injecting();
        FakeHost {
            state: self.state.clone(),
            crashed: watch::Sender::new(false),
        }
    }
}

fn error(kind: StepErrorKind, message: impl Into<String>) -> StepError {
    StepError {
        kind,
        message: message.into(),
    }
}

impl StepExecutor for FakeHost {
    async fn execute(&self, target: &str, step: Step) -> Result<StepOutput, StepError> {
        // A chance for others, as a worker gives it.
        tokio::task::yield_now().await;
        if *self.crashed.borrow() || self.with_state(|world| world.hung.contains(target)) {
            return pending().await;
        }
        let looks = matches!(
            step,
            Step::DirectoryCapacity { .. } | Step::VolumeGroupCapacity { .. }
        ) && target == "pool";
        let fate = self.with_state(|world| {
            if looks {
                return None;
            }
            world.steps += 1;
            world.executed.push(format!("{step:?}"));
            if matches!(step, Step::Format { .. }) && world.format_fault.is_some() {
                return world.format_fault.take();
            }
            world
                .injected_fault
                .filter(|(number, _)| world.steps == number + 1)
                .map(|(_, fate)| fate)
        });
        match fate {
            Some(InjectedFault::CrashBefore) => {
                self.crashed.send_replace(true);
                return pending().await;
            }
            Some(InjectedFault::CrashDuring) => {
                self.with_state(|world| world.execute_half(step));
                self.crashed.send_replace(true);
                return pending().await;
            }
            Some(InjectedFault::CrashAfter) => {
                drop(self.with_state(|world| world.execute(step)));
                self.crashed.send_replace(true);
                return pending().await;
            }
            Some(InjectedFault::Fail(kind)) => return Err(error(kind, "made to fail")),
            Some(InjectedFault::FailAfter(kind)) => {
                drop(self.with_state(|world| world.execute(step)));
                return Err(error(kind, "made to fail after it was done"));
            }
            None => {}
        }
        self.with_state(|world| world.execute(step))
    }
}

impl HostState {
    fn images_of_all(&mut self) -> impl Iterator<Item = &mut Image> {
        self.images
            .values_mut()
            .chain(self.logical.values_mut().map(|(image, _)| image))
            .chain(self.devices.values_mut())
    }

    pub(crate) fn by_node(&mut self, node: &HostPath) -> Option<&mut Image> {
        let node = node.to_string();
        self.images_of_all().find(|image| {
            image
                .device
                .as_ref()
                .is_some_and(|(name, _)| format!("/dev/{name}") == node)
        })
    }

    fn by_name(&mut self, name: &str) -> Option<&mut Image> {
        self.images_of_all().find(|image| {
            image
                .device
                .as_ref()
                .is_some_and(|(device, _)| device == name)
        })
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
        let (node, identity) = (
            format!("/dev/{name}").as_str().into(),
            image.identity.clone(),
        );
        Ok(StepOutput::Device(Device {
            node,
            name,
            size: image.size,
            read_only,
            identity,
        }))
    }

    fn checked_path(target: &RootedPath) -> Result<String, StepError> {
        let path = target.path.to_string();
        if path.contains("link") {
            Err(error(
                StepErrorKind::InvalidPath,
                format!("{path} leads through a link"),
            ))
        } else {
            Ok(path)
        }
    }

    fn mount(&mut self, target: &RootedPath, mount: FakeMount) -> Result<StepOutput, StepError> {
        let path = HostState::checked_path(target)?;
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

    /// The first half of it.
    fn execute_half(&mut self, step: Step) {
        match step {
            Step::Format { device, .. } | Step::RepeatFormat { device, .. } => {
                self.by_node(&device)
                    .expect("formatted device is there")
                    .content = DiskContent::InterruptedMkfs;
            }
            Step::CreateLogicalVolume {
                name, size, tags, ..
            } => {
                self.logical.entry(name).or_insert((
                    Image {
                        unfinished: true,
                        ..Image::blank(size)
                    },
                    tags,
                ));
            }
            _ => {}
        }
    }

    fn execute(&mut self, step: Step) -> Result<StepOutput, StepError> {
        let missing = |what: &dyn std::fmt::Display| {
            error(StepErrorKind::NotFound, format!("{what} is not there"))
        };
        match step {
            Step::DirectoryCapacity { folder }
                if self.folder_missing && folder.to_string() == "/pool" =>
            {
                Err(missing(&folder))
            }
            Step::ReadRecords { .. } if self.folder_missing => Ok(StepOutput::Records {
                records: Vec::new(),
            }),
            Step::DirectoryCapacity { .. } | Step::VolumeGroupCapacity { .. } => {
                Ok(StepOutput::Capacity(PoolCapacity {
                    total: self.total,
                    available: self.total - self.used(),
                    unit: UNIT,
                }))
            }
            Step::ReadRecords { folder } => {
                let folder = format!("{folder}/");
                let records = self.records.iter().filter_map(|(path, text)| {
                    let text = if self.unreadable.contains(path) {
                        Err("input/output error".to_owned())
                    } else {
                        Ok(text.clone())
                    };
                    Some(RecordFile {
                        name: path.strip_prefix(&folder)?.to_owned(),
                        text,
                    })
                });
                Ok(StepOutput::Records {
                    records: records.collect(),
                })
            }
            Step::WriteRecord { folder, name, text } => {
                self.records.insert(folder.join(name).to_string(), text);
                Ok(StepOutput::Empty)
            }
            Step::RemoveRecord { folder, name } => {
                self.records.remove(&folder.join(name).to_string());
                Ok(StepOutput::Empty)
            }
            Step::CreateImage { image, size } => {
                if size > self.total - self.used() {
                    return Err(error(StepErrorKind::NoSpace, "no space left on device"));
                }
                self.images
                    .entry(image.to_string())
                    .or_insert(Image::blank(size));
                Ok(StepOutput::Empty)
            }
            Step::GrowImage { .. } | Step::GrowLogicalVolume { .. } if self.growing_broken => {
                Err(error(StepErrorKind::Other, "it cannot be grown"))
            }
            Step::GrowImage { image, size } => {
                let room = self.total - self.used();
                let found = self
                    .images
                    .get_mut(&image.to_string())
                    .ok_or_else(|| missing(&image))?;
                if size.saturating_sub(found.size) > room {
                    return Err(error(StepErrorKind::NoSpace, "no space left on device"));
                }
                found.size = found.size.max(size);
                Ok(StepOutput::Empty)
            }
            Step::RemoveImage { image, .. } => {
                if let Some(found) = self.images.get(&image.to_string()) {
                    if let Some((name, _)) = &found.device {
                        assert!(
                            !self.is_mounted(name),
                            "{name} is removed while it is mounted"
                        );
                        return Err(error(
                            StepErrorKind::InUse,
                            format!("it is attached as {name}"),
                        ));
                    }
                    self.images.remove(&image.to_string());
                }
                Ok(StepOutput::Empty)
            }
            Step::AttachImage { image, read_only } => {
                self.made += 1;
                let name = format!("loop{}", self.made);
                let found = self
                    .images
                    .get_mut(&image.to_string())
                    .ok_or_else(|| missing(&image))?;
                found.device.get_or_insert((name, read_only));
                HostState::device(found)
            }
            Step::DetachImage { image } => {
                let Some(found) = self.images.get(&image.to_string()) else {
                    return Ok(StepOutput::Empty);
                };
                if let Some((name, _)) = found.device.clone() {
                    if self.is_mounted(&name) {
                        return Err(error(StepErrorKind::InUse, format!("{name} is mounted")));
                    }
                    self.images
                        .get_mut(&image.to_string())
                        .expect("there")
                        .device = None;
                }
                Ok(StepOutput::Empty)
            }
            Step::FindImage { image } => self
                .images
                .get(&image.to_string())
                .map_or(Ok(StepOutput::Empty), HostState::device),
            Step::ListLogicalVolumes { .. } if self.group_broken => Err(error(
                StepErrorKind::Other,
                "the volume group does not answer",
            )),
            Step::ListLogicalVolumes { tag, .. } => {
                let tagged = self
                    .logical
                    .iter()
                    .filter(|(_, (_, tags))| tags.contains(&tag));
                let volumes = tagged.map(|(name, (image, tags))| LogicalVolume {
                    name: name.clone(),
                    size: image.size,
                    tags: tags.clone(),
                    device: image.device.clone().map(|(name, _)| name),
                    open: false,
                    unfinished: image.unfinished,
                });
                Ok(StepOutput::LogicalVolumes {
                    volumes: volumes.collect(),
                })
            }
            Step::CreateLogicalVolume {
                name, size, tags, ..
            } => {
                self.logical
                    .entry(name)
                    .or_insert((Image::blank(size), tags))
                    .0
                    .unfinished = false;
                Ok(StepOutput::Empty)
            }
            Step::TagLogicalVolume { .. } => Ok(StepOutput::Empty),
            Step::GrowLogicalVolume { name, size, .. } => {
                let (image, _) = self.logical.get_mut(&name).ok_or_else(|| missing(&name))?;
                image.size = image.size.max(size);
                Ok(StepOutput::Empty)
            }
            Step::RemoveLogicalVolume { name, .. } => {
                let device = self
                    .logical
                    .get(&name)
                    .and_then(|(image, _)| image.device.clone());
                if let Some((device, _)) = device {
                    assert!(
                        !self.is_mounted(&device),
                        "{device} is removed while it is mounted"
                    );
                }
                self.logical.remove(&name);
                Ok(StepOutput::Empty)
            }
            Step::ActivateLogicalVolume { name, .. } => {
                self.made += 1;
                let device = format!("dm-{}", self.made);
                let (image, _) = self.logical.get_mut(&name).ok_or_else(|| missing(&name))?;
                if image.unfinished {
                    return Err(error(
                        StepErrorKind::ForeignData,
                        format!("{name} was never finished"),
                    ));
                }
                image.device.get_or_insert((device, false));
                HostState::device(image)
            }
            Step::DeactivateLogicalVolume { name, .. } => {
                let device = self
                    .logical
                    .get(&name)
                    .and_then(|(image, _)| image.device.clone());
                if let Some((device, _)) = device {
                    if self.is_mounted(&device) {
                        return Err(error(StepErrorKind::InUse, format!("{device} is mounted")));
                    }
                    self.logical.get_mut(&name).expect("there").0.device = None;
                }
                Ok(StepOutput::Empty)
            }
            Step::ResolveDevice { path } => self
                .devices
                .get(&path.to_string())
                .map_or(Err(missing(&path)), HostState::device),
            Step::CheckDirectory { path, roots } => {
                let allowed = roots.iter().any(|root| {
                    path.strip_prefix(root)
                        .is_some_and(|below| !below.is_empty())
                });
                if self.folders.contains(&path.to_string()) && allowed {
                    Ok(StepOutput::Empty)
                } else {
                    Err(missing(&path))
                }
            }
            Step::ProbeContent { device } => {
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                Ok(StepOutput::Content(match &image.content {
                    DiskContent::Blank => Content::Blank,
                    DiskContent::Filesystem(fs_type) => Content::Filesystem {
                        fs_type: fs_type.clone(),
                        uuid: None,
                        size: None,
                    },
                    DiskContent::InterruptedMkfs | DiskContent::Foreign => Content::Foreign {
                        what: "something else".into(),
                    },
                }))
            }
            Step::Format {
                device, fs_type, ..
            } => {
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                assert_eq!(
                    image.content,
                    DiskContent::Blank,
                    "{device} is formatted and was not blank"
                );
                image.content = DiskContent::Filesystem(fs_type);
                Ok(StepOutput::Empty)
            }
            // Nobody holds anything here.
            Step::ListOpeners { .. } => Ok(StepOutput::Openers {
                openers: Vec::new(),
            }),
            Step::RepeatFormat {
                device,
                expected: was,
                fs_type,
                ..
            } => {
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                if !was.is_certainly_same(&DeviceIdentity {
                    size: image.size,
                    name: image.identity.clone(),
                }) {
                    return Err(error(StepErrorKind::ForeignData, "it is another device"));
                }
                if image.content == DiskContent::Foreign || image.used {
                    return Err(error(StepErrorKind::ForeignData, "something else is there"));
                }
                image.content = DiskContent::Filesystem(fs_type);
                Ok(StepOutput::Empty)
            }
            Step::WipeSignatures { device } => {
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                assert!(!image.used, "{device} was in use, and is made blank");
                image.content = DiskContent::Blank;
                Ok(StepOutput::Empty)
            }
            Step::Mount {
                device,
                target,
                fs_type,
                options,
                read_only,
            } => {
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                assert_eq!(image.content, DiskContent::Filesystem(fs_type));
                let (what, _) = image.device.clone().expect("attached");
                self.mount(
                    &target,
                    FakeMount {
                        source: what,
                        read_only,
                        block: false,
                        options,
                    },
                )
            }
            Step::Bind {
                source,
                target,
                read_only,
            } => {
                let what = match source {
                    BindSource::Directory { path } => path.to_string(),
                    BindSource::Staged { place, device } => {
                        let path = HostState::checked_path(&place)?;
                        let what = self
                            .mounts
                            .get(&path)
                            .ok_or_else(|| missing(&path))?
                            .source
                            .clone();
                        if format!("/dev/{what}") != device.to_string() {
                            return Err(error(
                                StepErrorKind::ForeignData,
                                format!("{what} is mounted at {path}"),
                            ));
                        }
                        what
                    }
                };
                self.mount(
                    &target,
                    FakeMount {
                        source: what,
                        read_only,
                        block: false,
                        options: Vec::new(),
                    },
                )
            }
            Step::BindDevice {
                device,
                target,
                read_only,
            } => {
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                let (what, _) = image.device.clone().expect("attached");
                self.mount(
                    &target,
                    FakeMount {
                        source: what,
                        read_only,
                        block: true,
                        options: Vec::new(),
                    },
                )
            }
            Step::Unmount { target, .. } => {
                let path = HostState::checked_path(&target)?;
                if self.in_use.contains(&path) {
                    return Err(error(
                        StepErrorKind::InUse,
                        format!("{path} is held by postgres (pid 7)"),
                    ));
                }
                self.mounts.remove(&path);
                Ok(StepOutput::Empty)
            }
            Step::RemoveTarget { target } => {
                let path = HostState::checked_path(&target)?;
                assert!(
                    !self.mounts.contains_key(&path),
                    "{path} is removed while something is mounted there"
                );
                self.targets.remove(&path);
                Ok(StepOutput::Empty)
            }
            Step::FindMount { target } => {
                let mounted = self
                    .mounts
                    .get(&HostState::checked_path(&target)?)
                    .map(|mount| {
                        let (source, root) = if mount.block {
                            ("devtmpfs".to_owned(), format!("/{}", mount.source))
                        } else if mount.source.starts_with('/') {
                            ("sda1".to_owned(), mount.source.clone())
                        } else {
                            (format!("/dev/{}", mount.source), "/".to_owned())
                        };
                        let fs_type = "ext4".into();
                        MountedFilesystem {
                            source,
                            fs_type,
                            options: Vec::new(),
                            read_only: mount.read_only,
                            root: root.as_str().into(),
                        }
                    });
                Ok(StepOutput::Mounted { mounted })
            }
            Step::GrowFilesystem { at, .. } => {
                let path = HostState::checked_path(&at)?;
                self.mounts
                    .get(&path)
                    .map(|_| StepOutput::Empty)
                    .ok_or_else(|| missing(&path))
            }
        }
    }
}
