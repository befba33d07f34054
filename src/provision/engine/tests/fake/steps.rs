//! The effect of each step on the fake host.

use super::*;

pub const HIDDEN_AT: u64 = 200 << 20;

impl HostState {
    /// The first half of the step.
    pub(super) fn execute_half(&mut self, step: Step) {
        match step {
            Step::Format { device, .. } | Step::RepeatFormat { device, .. } => {
                self.by_node(&device).expect("formatted device is there").content =
                    DiskContent::InterruptedMkfs;
            }
            Step::CreateLogicalVolume { name, size, tags, .. } => {
                self.logical
                    .entry(name)
                    .or_insert((Image { unfinished: true, ..Image::blank(size) }, tags));
            }
            _ => {}
        }
    }

    pub(super) fn execute(&mut self, step: Step) -> Result<StepOutput, StepError> {
        let missing = |what: &dyn std::fmt::Display| {
            error(StepErrorKind::NotFound, format!("{what} is not there"))
        };
        match step {
            Step::DirectoryCapacity { folder }
                if self.folder_missing && folder.to_string() == "/pool" =>
            {
                Err(missing(&folder))
            }
            Step::ReadRecords { .. } if self.folder_missing => {
                Ok(StepOutput::Records { records: Vec::new() })
            }
            Step::DirectoryCapacity { .. } | Step::VolumeGroupCapacity { .. } => {
                Ok(StepOutput::Capacity(PoolCapacity {
                    total: self.total,
                    available: self.total - self.used(),
                    unit: UNIT,
                    physical_volumes: Vec::new(),
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
                    Some(RecordFile { name: path.strip_prefix(&folder)?.to_owned(), text })
                });
                Ok(StepOutput::Records { records: records.collect() })
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
                self.images.entry(image.to_string()).or_insert(Image::blank(size));
                Ok(StepOutput::Empty)
            }
            Step::GrowImage { .. } | Step::GrowLogicalVolume { .. } if self.growing_broken => {
                Err(error(StepErrorKind::Other, "it cannot be grown"))
            }
            Step::GrowImage { image, size } => {
                let room = self.total - self.used();
                let found =
                    self.images.get_mut(&image.to_string()).ok_or_else(|| missing(&image))?;
                if size.saturating_sub(found.size) > room {
                    return Err(error(StepErrorKind::NoSpace, "no space left on device"));
                }
                found.size = found.size.max(size);
                Ok(StepOutput::Empty)
            }
            Step::RemoveImage { image, .. } => {
                if let Some(found) = self.images.get(&image.to_string()) {
                    if let Some((name, _)) = &found.device {
                        assert!(!self.is_mounted(name), "{name} is removed while it is mounted");
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
                let found =
                    self.images.get_mut(&image.to_string()).ok_or_else(|| missing(&image))?;
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
                    self.images.get_mut(&image.to_string()).expect("there").device = None;
                }
                Ok(StepOutput::Empty)
            }
            Step::FindImage { image } => {
                self.images.get(&image.to_string()).map_or(Ok(StepOutput::Empty), HostState::device)
            }
            Step::ListLogicalVolumes { .. } if self.group_broken => {
                Err(error(StepErrorKind::Other, "the volume group does not answer"))
            }
            Step::ListLogicalVolumes { tag, .. } => {
                let tagged = self.logical.iter().filter(|(_, (_, tags))| tags.contains(&tag));
                let volumes = tagged.map(|(name, (image, tags))| LogicalVolume {
                    name: name.clone(),
                    size: image.size,
                    tags: tags.clone(),
                    device: image.device.clone().map(|(name, _)| name),
                    open: false,
                    unfinished: image.unfinished,
                });
                Ok(StepOutput::LogicalVolumes { volumes: volumes.collect() })
            }
            Step::CreateLogicalVolume { name, size, tags, .. } => {
                self.logical.entry(name).or_insert((Image::blank(size), tags)).0.unfinished = false;
                Ok(StepOutput::Empty)
            }
            Step::TagLogicalVolume { .. } => Ok(StepOutput::Empty),
            Step::GrowLogicalVolume { name, size, .. } => {
                let (image, _) = self.logical.get_mut(&name).ok_or_else(|| missing(&name))?;
                image.size = image.size.max(size);
                Ok(StepOutput::Empty)
            }
            Step::RemoveLogicalVolume { name, .. } => {
                let device = self.logical.get(&name).and_then(|(image, _)| image.device.clone());
                if let Some((device, _)) = device {
                    assert!(!self.is_mounted(&device), "{device} is removed while it is mounted");
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
                let device = self.logical.get(&name).and_then(|(image, _)| image.device.clone());
                if let Some((device, _)) = device {
                    if self.is_mounted(&device) {
                        return Err(error(StepErrorKind::InUse, format!("{device} is mounted")));
                    }
                    self.logical.get_mut(&name).expect("there").0.device = None;
                }
                Ok(StepOutput::Empty)
            }
            Step::ResolveDevice { path } => {
                self.devices.get(&path.to_string()).map_or(Err(missing(&path)), HostState::device)
            }
            Step::CheckDirectory { path, roots } => {
                let allowed = roots
                    .iter()
                    .any(|root| path.strip_prefix(root).is_some_and(|below| !below.is_empty()));
                if self.folders.contains(&path.to_string()) && allowed {
                    Ok(StepOutput::Empty)
                } else {
                    Err(missing(&path))
                }
            }
            Step::ProbeContent { device } => {
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                Ok(StepOutput::Content(match &image.content {
                    DiskContent::Blank | DiskContent::Hidden => Content::Blank,
                    DiskContent::Filesystem(fs_type) => {
                        Content::Filesystem { fs_type: fs_type.clone(), uuid: None, size: None }
                    }
                    DiskContent::InterruptedMkfs => Content::Unknown { at: 0 },
                    DiskContent::Foreign => Content::Foreign { what: "something else".into() },
                }))
            }
            Step::Scan { device, state, tracked } => {
                let part = self.scan_part;
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                let name = match tracked {
                    true => image.identity.clone(),
                    false => state.device.name.clone(),
                };
                let found = DeviceIdentity { size: image.size, name };
                let mut now = if state.device == found && state.data_at.is_none() {
                    state
                } else {
                    ScanState { device: found, ..ScanState::default() }
                };
                if image.content == DiskContent::Hidden {
                    now.data_at = Some(HIDDEN_AT);
                } else {
                    let part = if part == 0 { image.size } else { part };
                    now.position = (now.position + part).min(image.size);
                }
                Ok(StepOutput::Scanned(now))
            }
            Step::Format { device, fs_type, proof, .. } => {
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                let blank = image.content == DiskContent::Blank;
                match proof {
                    FormatProof::New => assert!(blank && !image.used, "{device} is not new"),
                    FormatProof::Scanned { state, .. } => {
                        assert!(blank && state.is_complete(), "{device} is not blank");
                        assert_eq!(state.device.size, image.size);
                    }
                    FormatProof::Authorized { .. } => {
                        let is = |content| image.content == content;
                        assert!(
                            blank || is(DiskContent::Hidden) || is(DiskContent::InterruptedMkfs),
                            "{device} has a signature"
                        );
                    }
                }
                image.content = DiskContent::Filesystem(fs_type);
                Ok(StepOutput::Empty)
            }
            Step::FindRemains { at, image, device } => {
                let image = image.map(|image| image.to_string()).unwrap_or_default();
                let attached = self.images.get(&image).and_then(|image| image.device.clone());
                let other = self.other_loops.get(&image).cloned();
                let loops: Vec<String> =
                    attached.map(|(name, _)| name).into_iter().chain(other).collect();
                let at = at.map(|path| path.to_string());
                let is_left = |path: &String, mount: &FakeMount| {
                    at.as_ref() == Some(path)
                        || loops.contains(&mount.source)
                        || device.as_ref() == Some(&mount.source)
                };
                let left = self.mounts.iter().filter(|(path, mount)| is_left(path, mount));
                let mounts = left.map(|(path, _)| path.as_str().into()).collect();
                Ok(StepOutput::Remains(Remains { mounts, loops }))
            }
            // Nobody holds anything here.
            Step::ListPodHolds { .. } => Ok(StepOutput::PodHolds { found: Default::default() }),
            Step::ListOpeners { .. } => Ok(StepOutput::Openers { openers: Vec::new() }),
            Step::RepeatFormat { device, expected: was, fs_type, .. } => {
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
            Step::CheckTarget { target } => self.check_target(&target).map(|_| StepOutput::Empty),
            Step::Mount { device, target, fs_type, options, read_only } => {
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                assert_eq!(image.content, DiskContent::Filesystem(fs_type));
                let (what, _) = image.device.clone().expect("attached");
                self.mount(&target, FakeMount { source: what, read_only, block: false, options })
            }
            Step::Bind { source, target, read_only } => {
                let what = match source {
                    BindSource::Directory { path } => path.to_string(),
                    BindSource::Staged { place, device } => {
                        let path = HostState::checked_path(&place)?;
                        let what =
                            self.mounts.get(&path).ok_or_else(|| missing(&path))?.source.clone();
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
                    FakeMount { source: what, read_only, block: false, options: Vec::new() },
                )
            }
            Step::BindDevice { device, target, read_only } => {
                let image = self.by_node(&device).ok_or_else(|| missing(&device))?;
                let (what, _) = image.device.clone().expect("attached");
                self.mount(
                    &target,
                    FakeMount { source: what, read_only, block: true, options: Vec::new() },
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
            Step::RemoveTarget { target, owner } => {
                let path = HostState::checked_path(&target)?;
                if owner.is_some_and(|owner| self.is_recorded(&target, &owner).is_err()) {
                    return Ok(StepOutput::Empty);
                }
                assert!(
                    !self.mounts.contains_key(&path),
                    "{path} is removed while something is mounted there"
                );
                self.targets.remove(&path);
                Ok(StepOutput::Empty)
            }
            Step::FindMount { target, folder } => {
                let mounted = self.mounts.get(&HostState::checked_path(&target)?).map(|mount| {
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
                        shows_folder: folder.is_some_and(|folder| {
                            folder.as_bytes().ends_with(mount.source.as_bytes())
                        }),
                    }
                });
                Ok(StepOutput::Mounted { mounted })
            }
            Step::GrowFilesystem { at, .. } => {
                let path = HostState::checked_path(&at)?;
                self.mounts.get(&path).map(|_| StepOutput::Empty).ok_or_else(|| missing(&path))
            }
        }
    }
}
