//! A host as values: files, loop devices, filesystems and mounts, that does what each step's
//! description says. It can fail, hang, or have the daemon die before or after any step; what it is
//! never allowed to do, it panics over.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::attach::step::{
    Content, Device, Done, Identity, LogicalVolume, Mounted, Place, Record, Room, Source, Step,
    StepError, Steps, Trouble,
};
use crate::model::path::HostPath;

/// What happens to the step with a number, counted from when it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    DieBefore,
    /// In the middle of it, where it has one.
    DieWithin,
    DieAfter,
    Fail(Trouble),
    /// It is done, and nobody is told.
    FailAfter(Trouble),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    Blank,
    Filesystem(String),
    /// mkfs was cut off in the middle.
    Half,
    Foreign,
}

#[derive(Clone, Debug)]
pub struct Image {
    pub size: u64,
    pub on: On,
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
            on: On::Blank,
            device: None,
            used: false,
            unfinished: false,
            identity: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedAt {
    pub what: String,
    pub read_only: bool,
    pub block: bool,
    pub options: Vec<String>,
}

#[derive(Debug, Default)]
pub struct World {
    pub records: BTreeMap<String, String>,
    pub unreadable: BTreeSet<String>,
    pub images: BTreeMap<String, Image>,
    pub logical: BTreeMap<String, (Image, Vec<String>)>,
    /// Configured devices.
    pub devices: BTreeMap<String, Image>,
    pub folders: BTreeSet<String>,
    pub mounts: BTreeMap<String, MountedAt>,
    pub targets: BTreeSet<String>,
    /// Where a process sits.
    pub held: BTreeSet<String>,
    pub total: u64,
    pub steps: usize,
    pub taken: Vec<String>,
    pub fate: Option<(usize, Fate)>,
    /// Of the next mkfs.
    pub format_fate: Option<Fate>,
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
pub struct Fake {
    pub world: Arc<Mutex<World>>,
    /// Turns true when the daemon dies: then no step does anything any more.
    pub dead: watch::Sender<bool>,
}

pub const UNIT: u64 = 4096;

impl Fake {
    pub fn new() -> Fake {
        let world = World {
            total: 100 << 30,
            ..World::default()
        };
        Fake {
            world: Arc::new(Mutex::new(world)),
            dead: watch::Sender::new(false),
        }
    }

    pub fn with<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        what(&mut self.world.lock().expect("no test panics while it looks"))
    }

    /// From now on, the step with this number, beginning with 0.
    pub fn at(&self, number: usize, fate: Fate) {
        self.with(|world| (world.steps, world.fate) = (0, Some((number, fate))));
    }

    pub fn at_format(&self, fate: Fate) {
        self.with(|world| world.format_fate = Some(fate));
    }

    pub fn rest(&self) {
        self.with(|world| world.fate = None);
    }

    /// The same world, another daemon.
    pub fn restarted(&self) -> Fake {
        self.rest();
        Fake {
            world: self.world.clone(),
            dead: watch::Sender::new(false),
        }
    }
}

fn error(kind: Trouble, message: impl Into<String>) -> StepError {
    StepError {
        kind,
        message: message.into(),
    }
}

impl Steps for Fake {
    async fn take(&self, target: &str, step: Step) -> Result<Done, StepError> {
        // A chance for others, as a worker gives it.
        tokio::task::yield_now().await;
        if *self.dead.borrow() || self.with(|world| world.hung.contains(target)) {
            return pending().await;
        }
        let looks =
            matches!(step, Step::FolderRoom { .. } | Step::GroupRoom { .. }) && target == "pool";
        let fate = self.with(|world| {
            if looks {
                return None;
            }
            world.steps += 1;
            world.taken.push(format!("{step:?}"));
            if matches!(step, Step::Format { .. }) && world.format_fate.is_some() {
                return world.format_fate.take();
            }
            world
                .fate
                .filter(|(number, _)| world.steps == number + 1)
                .map(|(_, fate)| fate)
        });
        match fate {
            Some(Fate::DieBefore) => {
                self.dead.send_replace(true);
                return pending().await;
            }
            Some(Fate::DieWithin) => {
                self.with(|world| world.begin(step));
                self.dead.send_replace(true);
                return pending().await;
            }
            Some(Fate::DieAfter) => {
                drop(self.with(|world| world.take(step)));
                self.dead.send_replace(true);
                return pending().await;
            }
            Some(Fate::Fail(kind)) => return Err(error(kind, "made to fail")),
            Some(Fate::FailAfter(kind)) => {
                drop(self.with(|world| world.take(step)));
                return Err(error(kind, "made to fail after it was done"));
            }
            None => {}
        }
        self.with(|world| world.take(step))
    }
}

impl World {
    fn images_of_all(&mut self) -> impl Iterator<Item = &mut Image> {
        self.images
            .values_mut()
            .chain(self.logical.values_mut().map(|(image, _)| image))
            .chain(self.devices.values_mut())
    }

    pub fn of_node(&mut self, node: &HostPath) -> Option<&mut Image> {
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
        self.mounts.values().any(|mount| mount.what == device)
    }

    fn device(image: &Image) -> Result<Done, StepError> {
        let Some((name, read_only)) = image.device.clone() else {
            return Ok(Done::Nothing);
        };
        let (node, identity) = (
            format!("/dev/{name}").as_str().into(),
            image.identity.clone(),
        );
        Ok(Done::Device(Device {
            node,
            name,
            size: image.size,
            read_only,
            identity,
        }))
    }

    fn at(target: &Place) -> Result<String, StepError> {
        let path = target.path.to_string();
        if path.contains("link") {
            Err(error(Trouble::Path, format!("{path} leads through a link")))
        } else {
            Ok(path)
        }
    }

    fn mount(&mut self, target: &Place, mount: MountedAt) -> Result<Done, StepError> {
        let path = World::at(target)?;
        match self.mounts.get(&path) {
            Some(there) if there.what == mount.what => {}
            Some(there) => {
                return Err(error(
                    Trouble::Exists,
                    format!("{} is mounted there", there.what),
                ));
            }
            None => {
                if let Some(image) = self.by_name(&mount.what) {
                    image.used = true;
                }
                self.mounts.insert(path.clone(), mount);
            }
        }
        self.targets.insert(path);
        self.most_mounted = self.most_mounted.max(self.mounts.len());
        Ok(Done::Nothing)
    }

    /// The first half of it.
    fn begin(&mut self, step: Step) {
        match step {
            Step::Format { device, .. } | Step::FormatAgain { device, .. } => {
                self.of_node(&device).expect("formatted device is there").on = On::Half;
            }
            Step::MakeLogicalVolume {
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

    fn take(&mut self, step: Step) -> Result<Done, StepError> {
        let missing =
            |what: &dyn std::fmt::Display| error(Trouble::NotFound, format!("{what} is not there"));
        match step {
            Step::FolderRoom { folder } if self.folder_missing && folder.to_string() == "/pool" => {
                Err(missing(&folder))
            }
            Step::ReadRecords { .. } if self.folder_missing => Ok(Done::Records {
                records: Vec::new(),
            }),
            Step::FolderRoom { .. } | Step::GroupRoom { .. } => Ok(Done::Room(Room {
                total: self.total,
                available: self.total - self.used(),
                unit: UNIT,
            })),
            Step::ReadRecords { folder } => {
                let folder = format!("{folder}/");
                let records = self.records.iter().filter_map(|(path, text)| {
                    let text = if self.unreadable.contains(path) {
                        Err("input/output error".to_owned())
                    } else {
                        Ok(text.clone())
                    };
                    Some(Record {
                        name: path.strip_prefix(&folder)?.to_owned(),
                        text,
                    })
                });
                Ok(Done::Records {
                    records: records.collect(),
                })
            }
            Step::WriteRecord { folder, name, text } => {
                self.records.insert(folder.join(name).to_string(), text);
                Ok(Done::Nothing)
            }
            Step::RemoveRecord { folder, name } => {
                self.records.remove(&folder.join(name).to_string());
                Ok(Done::Nothing)
            }
            Step::MakeImage { image, size } => {
                if size > self.total - self.used() {
                    return Err(error(Trouble::Full, "no space left on device"));
                }
                self.images
                    .entry(image.to_string())
                    .or_insert(Image::blank(size));
                Ok(Done::Nothing)
            }
            Step::GrowImage { .. } | Step::GrowLogicalVolume { .. } if self.growing_broken => {
                Err(error(Trouble::Failed, "it cannot be grown"))
            }
            Step::GrowImage { image, size } => {
                let room = self.total - self.used();
                let found = self
                    .images
                    .get_mut(&image.to_string())
                    .ok_or_else(|| missing(&image))?;
                if size.saturating_sub(found.size) > room {
                    return Err(error(Trouble::Full, "no space left on device"));
                }
                found.size = found.size.max(size);
                Ok(Done::Nothing)
            }
            Step::RemoveImage { image, .. } => {
                if let Some(found) = self.images.get(&image.to_string()) {
                    if let Some((name, _)) = &found.device {
                        assert!(
                            !self.is_mounted(name),
                            "{name} is removed while it is mounted"
                        );
                        return Err(error(Trouble::Held, format!("it is attached as {name}")));
                    }
                    self.images.remove(&image.to_string());
                }
                Ok(Done::Nothing)
            }
            Step::AttachImage { image, read_only } => {
                self.made += 1;
                let name = format!("loop{}", self.made);
                let found = self
                    .images
                    .get_mut(&image.to_string())
                    .ok_or_else(|| missing(&image))?;
                found.device.get_or_insert((name, read_only));
                World::device(found)
            }
            Step::DetachImage { image } => {
                let Some(found) = self.images.get(&image.to_string()) else {
                    return Ok(Done::Nothing);
                };
                if let Some((name, _)) = found.device.clone() {
                    if self.is_mounted(&name) {
                        return Err(error(Trouble::Held, format!("{name} is mounted")));
                    }
                    self.images
                        .get_mut(&image.to_string())
                        .expect("there")
                        .device = None;
                }
                Ok(Done::Nothing)
            }
            Step::FindImage { image } => self
                .images
                .get(&image.to_string())
                .map_or(Ok(Done::Nothing), World::device),
            Step::LogicalVolumes { .. } if self.group_broken => {
                Err(error(Trouble::Failed, "the volume group does not answer"))
            }
            Step::LogicalVolumes { tag, .. } => {
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
                Ok(Done::LogicalVolumes {
                    volumes: volumes.collect(),
                })
            }
            Step::MakeLogicalVolume {
                name, size, tags, ..
            } => {
                self.logical
                    .entry(name)
                    .or_insert((Image::blank(size), tags))
                    .0
                    .unfinished = false;
                Ok(Done::Nothing)
            }
            Step::TagLogicalVolume { .. } => Ok(Done::Nothing),
            Step::GrowLogicalVolume { name, size, .. } => {
                let (image, _) = self.logical.get_mut(&name).ok_or_else(|| missing(&name))?;
                image.size = image.size.max(size);
                Ok(Done::Nothing)
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
                Ok(Done::Nothing)
            }
            Step::ActivateLogicalVolume { name, .. } => {
                self.made += 1;
                let device = format!("dm-{}", self.made);
                let (image, _) = self.logical.get_mut(&name).ok_or_else(|| missing(&name))?;
                if image.unfinished {
                    return Err(error(
                        Trouble::Foreign,
                        format!("{name} was never finished"),
                    ));
                }
                image.device.get_or_insert((device, false));
                World::device(image)
            }
            Step::DeactivateLogicalVolume { name, .. } => {
                let device = self
                    .logical
                    .get(&name)
                    .and_then(|(image, _)| image.device.clone());
                if let Some((device, _)) = device {
                    if self.is_mounted(&device) {
                        return Err(error(Trouble::Held, format!("{device} is mounted")));
                    }
                    self.logical.get_mut(&name).expect("there").0.device = None;
                }
                Ok(Done::Nothing)
            }
            Step::ResolveDevice { path } => self
                .devices
                .get(&path.to_string())
                .map_or(Err(missing(&path)), World::device),
            Step::CheckFolder { path, roots } => {
                let allowed = roots.iter().any(|root| {
                    path.strip_prefix(root)
                        .is_some_and(|below| !below.is_empty())
                });
                if self.folders.contains(&path.to_string()) && allowed {
                    Ok(Done::Nothing)
                } else {
                    Err(missing(&path))
                }
            }
            Step::LookAt { device } => {
                let image = self.of_node(&device).ok_or_else(|| missing(&device))?;
                Ok(Done::Content(match &image.on {
                    On::Blank => Content::Blank,
                    On::Filesystem(fs_type) => Content::Filesystem {
                        fs_type: fs_type.clone(),
                        uuid: None,
                        size: None,
                    },
                    On::Half | On::Foreign => Content::Foreign {
                        what: "something else".into(),
                    },
                }))
            }
            Step::Format {
                device, fs_type, ..
            } => {
                let image = self.of_node(&device).ok_or_else(|| missing(&device))?;
                assert_eq!(
                    image.on,
                    On::Blank,
                    "{device} is formatted and was not blank"
                );
                image.on = On::Filesystem(fs_type);
                Ok(Done::Nothing)
            }
            // Nobody holds anything here.
            Step::Holders { .. } => Ok(Done::Holders {
                holders: Vec::new(),
            }),
            Step::FormatAgain {
                device,
                was,
                fs_type,
                ..
            } => {
                let image = self.of_node(&device).ok_or_else(|| missing(&device))?;
                if !was.is_same(&Identity {
                    size: image.size,
                    name: image.identity.clone(),
                }) {
                    return Err(error(Trouble::Foreign, "it is another device"));
                }
                if image.on == On::Foreign || image.used {
                    return Err(error(Trouble::Foreign, "something else is there"));
                }
                image.on = On::Filesystem(fs_type);
                Ok(Done::Nothing)
            }
            Step::Blank { device } => {
                let image = self.of_node(&device).ok_or_else(|| missing(&device))?;
                assert!(!image.used, "{device} was in use, and is made blank");
                image.on = On::Blank;
                Ok(Done::Nothing)
            }
            Step::Mount {
                device,
                target,
                fs_type,
                options,
                read_only,
            } => {
                let image = self.of_node(&device).ok_or_else(|| missing(&device))?;
                assert_eq!(image.on, On::Filesystem(fs_type));
                let (what, _) = image.device.clone().expect("attached");
                self.mount(
                    &target,
                    MountedAt {
                        what,
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
                    Source::Folder { path } => path.to_string(),
                    Source::Staged { place, device } => {
                        let path = World::at(&place)?;
                        let what = self
                            .mounts
                            .get(&path)
                            .ok_or_else(|| missing(&path))?
                            .what
                            .clone();
                        if format!("/dev/{what}") != device.to_string() {
                            return Err(error(
                                Trouble::Foreign,
                                format!("{what} is mounted at {path}"),
                            ));
                        }
                        what
                    }
                };
                self.mount(
                    &target,
                    MountedAt {
                        what,
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
                let image = self.of_node(&device).ok_or_else(|| missing(&device))?;
                let (what, _) = image.device.clone().expect("attached");
                self.mount(
                    &target,
                    MountedAt {
                        what,
                        read_only,
                        block: true,
                        options: Vec::new(),
                    },
                )
            }
            Step::Unmount { target, .. } => {
                let path = World::at(&target)?;
                if self.held.contains(&path) {
                    return Err(error(
                        Trouble::Held,
                        format!("{path} is held by postgres (pid 7)"),
                    ));
                }
                self.mounts.remove(&path);
                Ok(Done::Nothing)
            }
            Step::RemoveTarget { target } => {
                let path = World::at(&target)?;
                assert!(
                    !self.mounts.contains_key(&path),
                    "{path} is removed while something is mounted there"
                );
                self.targets.remove(&path);
                Ok(Done::Nothing)
            }
            Step::WhatIsMounted { target } => {
                let mounted = self.mounts.get(&World::at(&target)?).map(|mount| {
                    let (source, root) = if mount.block {
                        ("devtmpfs".to_owned(), format!("/{}", mount.what))
                    } else if mount.what.starts_with('/') {
                        ("sda1".to_owned(), mount.what.clone())
                    } else {
                        (format!("/dev/{}", mount.what), "/".to_owned())
                    };
                    let fs_type = "ext4".into();
                    Mounted {
                        source,
                        fs_type,
                        options: Vec::new(),
                        read_only: mount.read_only,
                        root: root.as_str().into(),
                    }
                });
                Ok(Done::Mounted { mounted })
            }
            Step::GrowFilesystem { at, .. } => {
                let path = World::at(&at)?;
                self.mounts
                    .get(&path)
                    .map(|_| Done::Nothing)
                    .ok_or_else(|| missing(&path))
            }
        }
    }
}
