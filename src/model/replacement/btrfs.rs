//! btrfs: `btrfs replace` copies while the old device still answers (btrfs-replace(8)).

use crate::facts::KnownDrive;
use crate::replacement::{Guide, Need, NewDrive, Step, StepKind, quoted};
use crate::stack::{BtrfsFs, StorageStack};
use diskvitals_finding::ids::DriveId;

impl<'a> Guide<'a> {
    pub(super) fn btrfs(&self) -> Vec<Need<'_>> {
        let of_drive = self.inventory.btrfs.iter();
        let of_drive = of_drive.filter(|fs| self.has_member(fs, self.id()) || self.is_lost(fs));
        of_drive.map(|fs| self.btrfs_need(fs)).collect()
    }

    /// It lacks members, and was on the drive that is out.
    fn is_lost(&self, fs: &BtrfsFs) -> bool {
        let volumes = self.known.volumes.iter().filter_map(|id| self.facts.volumes.get(id));
        let mut devices = volumes.flat_map(|volume| &volume.facts.devices);
        self.is_missing() && fs.missing_devices > 0 && devices.any(|it| fs.has_member(it))
    }

    /// Where it is mounted, quoted for a shell.
    pub(super) fn mount_of(&self, fs: &BtrfsFs) -> String {
        let volumes = self.facts.volumes.values();
        let mut on = volumes
            .filter(|it| it.facts.device.as_ref().is_some_and(|device| fs.has_member(device)));
        let mount = on.find_map(|it| it.facts.mounts.first());
        let path = mount.and_then(|it| std::str::from_utf8(it.path.as_bytes()).ok());
        let path = path.filter(|it| !it.chars().any(char::is_control));
        path.map_or_else(|| "MOUNT_POINT".to_owned(), quoted)
    }

    fn btrfs_need(&self, fs: &'a BtrfsFs) -> Need<'_> {
        let (name, mount) = (fs.name(self.inventory, ""), self.mount_of(fs));
        let own = fs.devices.iter().find(|device| self.is_on(device, self.id()));
        let filled = fs.devices.iter().find(|device| self.is_target(fs, device));
        if let Some(target) = filled.filter(|_| own.is_some()) {
            return Need::Step(Step::new(
                StepKind::Wait,
                format!(
                    "{name}: {target} is being filled, or was added. `btrfs replace status {mount}` shows how far it is; leave all drives in until it has finished."
                ),
            ));
        }
        let stack = name.clone();
        let step = move |new: &KnownDrive| {
            let Some(disk) = self.disk_of(&new.facts.id) else {
                return Step::new(StepKind::NotKnown, "The new drive has no block device.");
            };
            let to = self.path(&disk.name);
            match own {
                Some(own) => {
                    let spare = if self.is_sick() { "-r " } else { "" };
                    let from = self.path(own);
                    Step::type_in(
                        format!(
                            "Fill the new drive while the old one stays in {name}. No freeze and no suspend meanwhile: they cancel it. It must not be smaller."
                        ),
                        [format!("btrfs replace start {spare}{from} {to} {mount}")],
                    )
                }
                None => {
                    let (id, note) = match fs.missing_ids.as_slice() {
                        [one] => (one.to_string(), String::new()),
                        _ => (
                            "DEVID".to_owned(),
                            format!(
                                " DEVID is the id that `btrfs filesystem show {mount}` calls missing."
                            ),
                        ),
                    };
                    Step::type_in(
                        format!(
                            "Fill the new drive from the other members of {name}.{note} Afterwards `btrfs filesystem resize {id}:max {mount}` uses a larger one in full, and a balance with the filter soft converts what was written without a copy."
                        ),
                        [format!("btrfs replace start {id} {to} {mount}")],
                    )
                }
            }
        };
        let step = Box::new(step);
        Need::New(NewDrive { stack, is_on_old: own.is_some(), take_out: None, step })
    }

    /// A device beyond the members by number: the target of a replacement has the id 0, which is not
    /// among them.
    fn is_target(&self, fs: &BtrfsFs, device: &str) -> bool {
        let is_more = fs.devices.len() > fs.member_ids.len() && !fs.member_ids.is_empty();
        let drives = self.inventory.drives_below(device);
        is_more && !drives.contains(self.id()) && self.is_newest(drives.into_iter().next())
    }

    fn is_newest(&self, drive: Option<&DriveId>) -> bool {
        let first = |id: &DriveId| self.facts.drives.get(id).map(|it| it.first_seen);
        drive.and_then(first) >= Some(self.known.first_seen)
    }
}
