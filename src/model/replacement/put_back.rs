//! The wrong drive is out: it goes back before anything is typed.

use crate::facts::KnownDrive;
use crate::replacement::{Guide, Step, StepKind, drive_words, have_in_common};
use crate::stack::BtrfsFs;
use diskvitals_finding::ids::DriveId;

impl<'a> Guide<'a> {
    /// Only while the drive itself is in: otherwise both may have been pulled on purpose.
    pub(super) fn put_back(&self) -> Option<Step> {
        if self.is_missing() {
            return None;
        }
        if let Some(wrong) = self.wrongly_pulled() {
            return Some(Step::new(
                StepKind::PutBack,
                format!(
                    "{} is out, and not {}. Put it back into its slot now, and type nothing before that: nothing is created, forced or added. If nobody has pulled it, it has failed: replace it first.",
                    drive_words(wrong),
                    drive_words(self.known)
                ),
            ));
        }
        self.returned_to_md().or_else(|| self.returned_to_btrfs())
    }

    fn wrongly_pulled(&self) -> Option<&'a KnownDrive> {
        let missing = |id: &DriveId| {
            let known = self.facts.drives.get(id).filter(|it| it.missing_since.is_some());
            known.filter(|it| it.facts.id != *self.id())
        };
        let of_md = self.arrays_of_drive().into_iter();
        let mut of_md = of_md.flat_map(|(name, md)| self.lost_drives(name, md));
        if let Some(wrong) = of_md.find_map(missing) {
            return Some(wrong);
        }
        let of_btrfs = self.inventory.btrfs.iter().filter(|fs| self.has_member(fs, self.id()));
        let mut of_btrfs = of_btrfs.flat_map(|fs| &fs.pulled);
        if let Some(wrong) = of_btrfs.find_map(|pulled| missing(pulled.drive.as_ref()?)) {
            return Some(wrong);
        }
        // Of what has not been read since: a drive that went while this one was being looked for.
        let lit = self.facts.lamps.get(self.id())?;
        let mut drives = self.facts.drives.values();
        drives.find(|it| {
            let is_after = it.missing_since.is_some_and(|since| since > lit.since);
            is_after && it.facts.id != *self.id() && it.in_use && have_in_common(it, self.known)
        })
    }

    /// md uses a member that is back only if it is told to; with its bitmap that takes seconds.
    fn returned_to_md(&self) -> Option<Step> {
        for (name, md) in self.arrays_of_drive() {
            for id in self.lost_drives(name, md) {
                let back = self.facts.drives.get(id).filter(|it| it.missing_since.is_none());
                let Some(back) = back.filter(|it| it.facts.id != *self.id()) else { continue };
                let devices = self.devices_of(id);
                let device = devices.into_iter().find(|device| {
                    self.is_member_of(name, device)
                        && !md.members.iter().any(|it| it.device == device.name)
                });
                let Some(device) = device else { continue };
                let path = self.path(&device.name);
                return Some(Step::type_in(
                    format!(
                        "{} is back and is no member of {name} yet. If it was pulled by mistake, add it again; if mdadm refuses that, its copy is too old: read its SMART data first.",
                        drive_words(back)
                    ),
                    [format!("mdadm /dev/{name} --re-add {path}")],
                ));
            }
        }
        None
    }

    /// btrfs uses a device that is back only after the next mount.
    fn returned_to_btrfs(&self) -> Option<Step> {
        let of_drive = self.inventory.btrfs.iter().filter(|fs| self.has_member(fs, self.id()));
        for fs in of_drive {
            let is_back = |id: &DriveId| {
                self.facts.drives.get(id).is_some_and(|it| it.missing_since.is_none())
            };
            let mut pulled = fs.pulled.iter().filter_map(|it| it.drive.as_ref());
            let Some(back) = pulled.find(|id| is_back(id) && *id != self.id()) else { continue };
            let back = self.facts.drives.get(back)?;
            let mount = self.mount_of(fs);
            return Some(Step::type_in(
                format!(
                    "{} is back, and the filesystem does not use it before its next mount. Stop what uses {mount}. After that the scrub brings it up to date.",
                    drive_words(back)
                ),
                [
                    format!("umount {mount}"),
                    "btrfs device scan".to_owned(),
                    format!("mount {mount}"),
                    format!("btrfs scrub start -B {mount}"),
                ],
            ));
        }
        None
    }

    pub(super) fn has_member(&self, fs: &BtrfsFs, drive: &DriveId) -> bool {
        fs.devices.iter().any(|device| self.is_on(device, drive))
            || fs.pulled.iter().any(|it| it.drive.as_ref() == Some(drive))
    }
}
