//! The names of a cause, as people know them.

use crate::cause::{Cause, CauseKind, Grouping, Origin};
use crate::label;
use crate::snapshot::{Presence, Volume};
use crate::stack;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::{CauseId, DriveId, VolumeId};
use diskvitals_finding::source::Source;

impl Grouping<'_> {
    /// The cause with its names, and without findings.
    pub(super) fn described(&self, origin: &Origin) -> Cause {
        let inventory = &self.snapshot.inventory;
        let device = |kind, prefix: &str, name: &str| {
            let label = label::device(inventory, name);
            Cause {
                detail: self.stack(name).map(|stack| stack.figure()).unwrap_or_default(),
                // A dm device has another number after each boot.
                explain: plain_name(&label).unwrap_or(name).to_owned(),
                ..named(kind, prefix, Subject::Device(name.to_owned()), label)
            }
        };
        match origin {
            Origin::Array(name) => device(CauseKind::Array, "array", name),
            Origin::Pool(name) => device(CauseKind::Pool, "pool", name),
            Origin::Device(name) => device(CauseKind::Device, "device", name),
            Origin::Drive(id) => self.described_drive(id),
            Origin::Volume(id) => self.described_volume(id),
            Origin::Source(source) => described_source(*source),
            Origin::Filesystem(uuid) => {
                let id = CauseId::new("mount", VolumeId::filesystem(uuid).as_str());
                if let Some(volume) = self.volumes_of(uuid).next() {
                    let described = self.described_volume(&volume.facts.id);
                    return Cause { id, ..described };
                }
                let devices = self.facts.devices_with_uuid(uuid);
                let name = devices.first().map(|name| name.as_str());
                let name = name.unwrap_or_default();
                let fs_type = inventory.devices.get(name).and_then(|it| it.fs_type.clone());
                Cause {
                    id,
                    detail: format!("{}, not mounted", fs_type.as_deref().unwrap_or("filesystem")),
                    ..device(CauseKind::Device, "device", name)
                }
            }
            Origin::MultiDevice(uuid) => {
                let stack = stack::of_uuid(inventory, uuid);
                let members = stack.map(|stack| stack.members(inventory, "")).unwrap_or_default();
                let member = members.into_iter().next().unwrap_or_default();
                let name = stack.map_or_else(|| uuid.clone(), |it| it.name(inventory, ""));
                Cause {
                    id: CauseId::new("array", uuid),
                    detail: stack.map(|stack| stack.figure()).unwrap_or_default(),
                    explain: member.clone(),
                    ..named(CauseKind::Array, "array", Subject::Device(member), name)
                }
            }
        }
    }

    fn described_drive(&self, id: &DriveId) -> Cause {
        let subject = Subject::Drive(id.clone());
        let name = label::subject(self.snapshot, &subject);
        let cause = Cause {
            id: CauseId::new("drive", id.as_str()),
            explain: id.to_string(),
            ..named(CauseKind::Drive, "drive", subject, name)
        };
        let Some(drive) = self.snapshot.drives.get(id) else {
            return cause;
        };
        let facts = &drive.facts;
        let text = |value: &Option<String>| value.as_deref().unwrap_or_default().trim().to_owned();
        let explain = match drive.presence {
            Presence::Present if !facts.name.is_empty() => facts.name.clone(),
            _ => id.to_string(),
        };
        Cause {
            slot: text(&facts.location.slot),
            model: text(&facts.model),
            serial: text(&facts.serial),
            explain,
            ..cause
        }
    }

    fn described_volume(&self, id: &VolumeId) -> Cause {
        let subject = Subject::Volume(id.clone());
        let name = label::subject(self.snapshot, &subject);
        let volume = self.snapshot.volumes.get(id);
        Cause {
            id: CauseId::new("mount", id.as_str()),
            detail: volume.map(|volume| self.on_device(volume)).unwrap_or_default(),
            explain: explain_name(&name, id),
            ..named(CauseKind::Mount, "mount", subject, name)
        }
    }

    /// `ext4 on vg/home`.
    fn on_device(&self, volume: &Volume) -> String {
        let facts = &volume.facts;
        let device = facts.device.as_ref();
        let device = device.map(|name| label::device(&self.snapshot.inventory, name));
        let parts = [facts.fs_type.clone(), device];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" on ")
    }
}

fn described_source(source: Source) -> Cause {
    let subject = Subject::Source(source);
    Cause {
        id: CauseId::new("source", source.name()),
        explain: subject.to_string(),
        ..named(CauseKind::Source, "source", subject, source.label().to_owned())
    }
}

fn named(kind: CauseKind, prefix: &str, subject: Subject, name: String) -> Cause {
    Cause { id: CauseId::new(prefix, &name), kind, subject, name, ..Cause::default() }
}

/// The volume's name, if a shell takes it as it is; otherwise its id.
fn explain_name(name: &str, id: &VolumeId) -> String {
    let name = name.strip_prefix("pod ").unwrap_or(name);
    let name = name.strip_prefix("pv ").unwrap_or(name);
    plain_name(name).unwrap_or(id.as_str()).to_owned()
}

/// The name, if a shell takes it as it is.
fn plain_name(name: &str) -> Option<&str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._:@+-".contains(c);
    (name.len() <= 200 && name.chars().all(is_plain)).then_some(name)
}
