//! The members of a ZFS pool, as `zpool status` shows them: which of them hold the same data, and what
//! each has counted. Read by `source/zpool.rs`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::block::{BlockDevice, Inventory};
use crate::stack::Below;
use crate::volume::Stack;

const RESILVER: &str = "resilver";

/// What `zpool status` says of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Those at the top, with spares and cache devices.
    pub vdevs: Vec<Vdev>,
    /// Blocks that no copy could repair, since the last scrub but one (`error_count`).
    pub data_errors: u64,
    pub scan: Option<PoolScan>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vdev {
    /// `raidz2-0`, `/dev/disk/by-id/ata-…-part1`; of a missing member its GUID, in text.
    pub name: String,
    pub class: VdevClass,
    pub guid: Option<u64>,
    /// Of a member.
    pub path: Option<String>,
    /// None where the tool says nothing of it (draid in JSON, openzfs/zfs#18431).
    pub state: Option<VdevState>,
    /// Why: `too many errors`, `was /dev/sdb1`, `OPEN_FAILED`; may be empty.
    pub note: String,
    pub read_errors: u64,
    pub write_errors: u64,
    pub checksum_errors: u64,
    /// Requests of more than `zio_slow_io_ms`.
    pub slow_ios: u64,
    pub children: Vec<Vdev>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VdevClass {
    #[default]
    Normal,
    Special,
    Dedup,
    /// Its loss costs the last synchronous writes.
    Log,
    /// Its loss costs nothing.
    Cache,
    Spare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VdevState {
    Online,
    /// It has too many errors, and is still read.
    Degraded,
    Faulted,
    /// An administrator has taken it offline.
    Offline,
    Removed,
    Unavail,
    /// A spare that waits.
    Available,
    /// A spare that has taken a member's place.
    InUse,
}

/// The last scrub or resilver of the pool: only one is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolScan {
    pub is_resilver: bool,
    pub state: ScanState,
    /// Errors that it found and could not repair.
    pub errors: u64,
    /// By the wall clock.
    #[serde(default)]
    pub ended: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanState {
    Running,
    Paused,
    Finished,
    Canceled,
}

impl VdevState {
    /// A word of the text form or of the JSON: they differ (module/zcommon/zfs_comutil.c and
    /// lib/libzfs/libzfs_pool.c, zpool_state_to_name()).
    pub fn of_word(word: &str) -> Option<VdevState> {
        Some(match word {
            "ONLINE" => VdevState::Online,
            "DEGRADED" => VdevState::Degraded,
            "FAULTED" | "SPLIT" => VdevState::Faulted,
            "OFFLINE" | "CLOSED" => VdevState::Offline,
            "REMOVED" => VdevState::Removed,
            "UNAVAIL" | "CANT_OPEN" => VdevState::Unavail,
            "AVAIL" => VdevState::Available,
            "INUSE" => VdevState::InUse,
            _ => return None,
        })
    }

    /// As `zpool status` prints it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            VdevState::Online => "ONLINE",
            VdevState::Degraded => "DEGRADED",
            VdevState::Faulted => "FAULTED",
            VdevState::Offline => "OFFLINE",
            VdevState::Removed => "REMOVED",
            VdevState::Unavail => "UNAVAIL",
            VdevState::Available => "AVAIL",
            VdevState::InUse => "INUSE",
        }
    }
}

impl PoolStatus {
    /// Whether members are being filled.
    pub(crate) fn is_resilvering(&self) -> bool {
        self.running_scan() == Some(RESILVER)
    }

    /// `resilver` or `scrub`, while one runs.
    pub(crate) fn running_scan(&self) -> Option<&'static str> {
        let scan = self.scan.as_ref().filter(|scan| scan.state == ScanState::Running)?;
        Some(if scan.is_resilver { RESILVER } else { "scrub" })
    }

    /// The vdevs of which none may be lost.
    fn of_data(&self) -> impl Iterator<Item = &Vdev> {
        let holds = |vdev: &&Vdev| {
            matches!(vdev.class, VdevClass::Normal | VdevClass::Special | VdevClass::Dedup)
        };
        self.vdevs.iter().filter(holds)
    }

    /// The members that hold data now, spares in use among them.
    pub(crate) fn working(&self) -> impl Iterator<Item = &Vdev> {
        let works = |leaf: &&Vdev| {
            matches!(leaf.state, None | Some(VdevState::Online | VdevState::Degraded))
        };
        self.of_data().flat_map(Vdev::leaves).filter(works)
    }

    /// How many further members may fail in the worst case; None: it has no redundancy.
    pub(crate) fn tolerates(&self) -> Option<usize> {
        let filling = self.is_resilvering();
        let left = self.of_data().map(|vdev| vdev.left(filling));
        // A pool of one mirror and one single disk has none.
        left.min().flatten()
    }

    /// How many of how many members hold data, the others parity or copies.
    pub(crate) fn data_share(&self) -> (usize, usize) {
        self.of_data().fold((0, 0), |(data, all), vdev| {
            let width = vdev.children.len().max(1);
            (data + width.saturating_sub(vdev.parity()), all + width)
        })
    }

    /// `raidz2`, `mirror`: of the vdevs that hold data.
    pub(crate) fn layout(&self) -> String {
        let mut kinds: Vec<&str> = self.of_data().map(Vdev::kind).collect();
        kinds.dedup();
        match kinds.as_slice() {
            [""] => "stripe".to_owned(),
            [kind] => (*kind).to_owned(),
            _ => "ZFS".to_owned(),
        }
    }

    /// The last scan, if it is a scrub that has ended.
    pub(crate) fn finished_scrub(&self) -> Option<&PoolScan> {
        let scan = self.scan.as_ref();
        scan.filter(|scan| !scan.is_resilver && scan.state == ScanState::Finished)
    }

    /// Members of which the pool should have the data, and has not, with the vdev at the top.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = (&Vdev, &Vdev)> {
        self.members().filter(|(_, leaf)| {
            !matches!(leaf.class, VdevClass::Spare | VdevClass::Cache)
                && !matches!(leaf.state, None | Some(VdevState::Online | VdevState::InUse))
        })
    }

    /// Spares that stand in for a member.
    pub(crate) fn spares_in_use(&self) -> impl Iterator<Item = &Vdev> {
        let of_class = self.vdevs.iter().filter(|vdev| vdev.class == VdevClass::Spare);
        of_class.filter(|spare| spare.state == Some(VdevState::InUse))
    }

    /// Every member, with the vdev at the top that it belongs to.
    pub fn members(&self) -> impl Iterator<Item = (&Vdev, &Vdev)> {
        self.vdevs.iter().flat_map(|top| top.leaves().into_iter().map(move |leaf| (top, leaf)))
    }

    pub(crate) fn stack(&self, inventory: &Inventory, pool: &str, below: Below) -> Stack {
        let filling = self.is_resilvering();
        let mut parts = Vec::new();
        for top in self.of_data() {
            parts.push(top.stack(inventory, pool, filling, &mut *below));
        }
        Stack::all_of(parts)
    }
}

impl Vdev {
    /// `mirror`, `raidz2`, `draid1:4d:6c:1s`, `spare`, `replacing`; empty for a member.
    pub(crate) fn kind(&self) -> &str {
        match self.name.rsplit_once('-') {
            Some((kind, number))
                if !self.children.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) =>
            {
                kind
            }
            _ => "",
        }
    }

    /// How many of its children may be lost (zpoolconcepts(7), Virtual Devices).
    fn parity(&self) -> usize {
        let kind = self.kind();
        let digit = |prefix: &str| {
            let digit = kind.strip_prefix(prefix)?.chars().next().unwrap_or('1').to_digit(10)?;
            Some(digit as usize)
        };
        match kind {
            "mirror" => self.children.len().saturating_sub(1),
            _ => digit("raidz").or_else(|| digit("draid")).unwrap_or(0),
        }
    }

    /// Whether what it holds can be read. While members are filled, the new one of a pair holds not
    /// yet what the old one did.
    fn holds_data(&self, filling: bool) -> bool {
        match self.kind() {
            // Which of the two is the old one, JSON does not say.
            "spare" | "replacing" if filling => self.lost(filling) == 0,
            "spare" | "replacing" => self.lost(filling) < self.children.len(),
            _ => matches!(
                self.state,
                Some(VdevState::Online | VdevState::Degraded | VdevState::InUse)
            ),
        }
    }

    fn lost(&self, filling: bool) -> usize {
        self.children.iter().filter(|child| !child.holds_data(filling)).count()
    }

    /// None: a single member, or one whose place is being filled.
    fn left(&self, filling: bool) -> Option<usize> {
        match self.parity() {
            0 => None,
            parity => Some(parity.saturating_sub(self.lost(filling))),
        }
    }

    /// As `zpool status` shows it.
    pub(crate) fn row(&self) -> String {
        let state = self.state.map_or("", VdevState::word);
        let counts = [self.read_errors, self.write_errors, self.checksum_errors];
        let counts = counts.map(|count| count.to_string()).join(" ");
        let slow = match self.slow_ios {
            0 => String::new(),
            count => format!(" {count} slow"),
        };
        format!("{} {state} {counts}{slow} {}", self.name, self.note).trim_end().to_owned()
    }

    pub(crate) fn leaves(&self) -> Vec<&Vdev> {
        match self.children.is_empty() {
            true => vec![self],
            false => self.children.iter().flat_map(Vdev::leaves).collect(),
        }
    }

    fn stack(&self, inventory: &Inventory, pool: &str, filling: bool, below: Below) -> Stack {
        if self.children.is_empty() {
            let device = self.device(inventory);
            return device.map(|device| below(&device.name)).unwrap_or_default();
        }
        let mut parts = Vec::new();
        for child in self.children.iter().filter(|child| child.holds_data(filling)) {
            parts.push(child.stack(inventory, pool, filling, &mut *below));
        }
        let lost = self.lost(filling);
        let parity = match self.kind() {
            // Both, until the new one is filled; then either.
            "spare" | "replacing" if !filling => self.children.len().saturating_sub(1),
            _ => self.parity(),
        };
        match parity {
            0 => Stack::all_of(parts),
            _ if parts.len() == 1 && lost >= parity => Stack::all_of(parts),
            parity => Stack::Redundant {
                level: format!("{} of {pool}", self.kind()),
                tolerates: parity.saturating_sub(lost),
                parts,
            },
        }
    }

    /// By the GUID in its label, which udev knows; otherwise by its path.
    pub(crate) fn device<'a>(&self, inventory: &'a Inventory) -> Option<&'a BlockDevice> {
        let devices = || inventory.devices.values();
        let guid = self.guid.map(|guid| guid.to_string());
        let by_guid = |it: &&BlockDevice| guid.is_some() && it.fs_uuid_sub == guid;
        let path = self.path.as_deref().unwrap_or(&self.name);
        let by_path = |it: &&BlockDevice| {
            path.strip_prefix("/dev/") == Some(it.name.as_str())
                || it.links.iter().any(|link| link == path)
        };
        devices().find(by_guid).or_else(|| devices().find(by_path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Layer;
    use crate::fixture::device;
    use diskvitals_finding::ids::DriveId;

    fn leaf(name: &str, state: VdevState) -> Vdev {
        Vdev { name: format!("/dev/{name}"), state: Some(state), ..Vdev::default() }
    }

    fn group(name: &str, children: Vec<Vdev>) -> Vdev {
        let state = Some(VdevState::Online);
        Vdev { name: name.into(), state, children, ..Vdev::default() }
    }

    fn pool(vdevs: Vec<Vdev>) -> PoolStatus {
        PoolStatus { vdevs, ..PoolStatus::default() }
    }

    /// `raidz1 of tank 1 [sda, sdb]`.
    fn shown(stack: &Stack) -> String {
        let all = |parts: &[Stack]| parts.iter().map(shown).collect::<Vec<_>>().join(", ");
        match stack {
            Stack::Nothing => "nothing".into(),
            Stack::Drive(id) => id.to_string(),
            Stack::All(parts) => format!("({})", all(parts)),
            Stack::Redundant { level, tolerates, parts } => {
                format!("{level} {tolerates} [{}]", all(parts))
            }
            Stack::Undetermined { level, parts } => format!("{level} ? [{}]", all(parts)),
        }
    }

    fn stack(status: &PoolStatus) -> String {
        let mut inventory = Inventory::default();
        for name in ["sda", "sdb", "sdc", "sdd", "sde"] {
            inventory.devices.insert(name.into(), device(name, "8:0", Layer::Disk, &[]));
        }
        shown(&status.stack(&inventory, "tank", &mut |name| Stack::Drive(DriveId::new(name))))
    }

    use VdevState::{Degraded, Faulted, InUse, Online, Unavail};

    #[test]
    fn what_may_still_fail_follows_from_the_members_that_hold_data() {
        let two = |kind: &str, a, b| group(kind, vec![leaf("sda", a), leaf("sdb", b)]);
        let three = |kind: &str, c| {
            let mut vdev = two(kind, Online, Online);
            vdev.children.push(leaf("sdc", c));
            vdev
        };
        for (vdevs, expected, tolerates) in [
            (vec![two("mirror-0", Online, Online)], "mirror of tank 1 [sda, sdb]", Some(1)),
            (vec![two("mirror-0", Online, Degraded)], "mirror of tank 1 [sda, sdb]", Some(1)),
            (vec![two("mirror-0", Online, Unavail)], "sda", Some(0)),
            (vec![three("raidz1-0", Online)], "raidz1 of tank 1 [sda, sdb, sdc]", Some(1)),
            (vec![three("raidz1-0", Faulted)], "raidz1 of tank 0 [sda, sdb]", Some(0)),
            (vec![three("raidz2-0", Faulted)], "raidz2 of tank 1 [sda, sdb]", Some(1)),
            (
                vec![three("draid2:1d:3c:0s-0", Online)],
                "draid2:1d:3c:0s of tank 2 [sda, sdb, sdc]",
                Some(2),
            ),
            (vec![leaf("sda", Online), leaf("sdb", Online)], "(sda, sdb)", None),
            (
                vec![two("mirror-0", Online, Online), leaf("sdd", Online)],
                "(mirror of tank 1 [sda, sdb], sdd)",
                None,
            ),
        ] {
            let status = pool(vdevs);
            assert_eq!((stack(&status).as_str(), status.tolerates()), (expected, tolerates));
        }
    }

    #[test]
    fn a_lost_log_cache_or_spare_loses_no_data_and_a_special_vdev_does() {
        let of = |class, name: &str| Vdev { class, ..leaf(name, Online) };
        let mirror = group("mirror-0", vec![leaf("sda", Online), leaf("sdb", Online)]);
        let others = [VdevClass::Log, VdevClass::Cache, VdevClass::Spare];
        let mut vdevs = vec![mirror];
        vdevs.extend(others.map(|class| of(class, "sdc")));
        assert_eq!(stack(&pool(vdevs.clone())), "mirror of tank 1 [sda, sdb]");
        vdevs.push(of(VdevClass::Special, "sdd"));
        assert_eq!(stack(&pool(vdevs)), "(mirror of tank 1 [sda, sdb], sdd)");
    }

    #[test]
    fn a_spare_holds_the_data_once_it_is_filled() {
        let pair = group("spare-1", vec![leaf("sdb", Unavail), leaf("sdc", Online)]);
        let spare = Vdev { class: VdevClass::Spare, ..leaf("sdc", InUse) };
        let mirror = group("mirror-0", vec![leaf("sda", Online), pair]);
        let mut status = pool(vec![mirror, spare]);
        assert_eq!(stack(&status), "mirror of tank 1 [sda, sdc]");
        assert_eq!(status.spares_in_use().count(), 1);
        let lacking: Vec<&str> = status.lacking().map(|(_, it)| it.name.as_str()).collect();
        assert_eq!(lacking, ["/dev/sdb"]);
        let state = ScanState::Running;
        status.scan = Some(PoolScan { is_resilver: true, state, errors: 0, ended: None });
        assert_eq!((stack(&status).as_str(), status.tolerates()), ("sda", Some(0)));
    }

    #[test]
    fn a_member_is_found_by_the_guid_of_its_label_before_its_path() {
        let mut inventory = Inventory::default();
        let mut sdb = device("sdb", "8:16", Layer::Disk, &[]);
        sdb.fs_uuid_sub = Some("17002345678901234567".into());
        inventory.devices.insert("sdb".into(), sdb);
        inventory.devices.insert("sda".into(), device("sda", "8:0", Layer::Disk, &[]));
        let vdev = Vdev { guid: Some(17002345678901234567), ..leaf("sda", Online) };
        assert_eq!(vdev.device(&inventory).map(|it| it.name.as_str()), Some("sdb"));
        assert_eq!(leaf("sda", Online).device(&inventory).map(|it| it.name.as_str()), Some("sda"));
    }
}
