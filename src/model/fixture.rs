//! Small test hosts: devices, mounts and records in one line each.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::assess::{self, ActiveFindings, assess};
use crate::model::block::{BlockDevice, BtrfsFs, DiskStat, Inventory, Layer, LayerState, MdMember};
use crate::model::drive::{DriveDevice, DriveFacts, DriveKind, Location, Transport};
use crate::model::facts::{Facts, StoredVolume, Urgency};
use crate::model::finding::{FindingDetails, Judgement, Subject, UnknownHealth, Verdict};
use crate::model::ids::{DriveId, VolumeId};
use crate::model::kernel_log::event::{
    Blame, Class, DamagedCopies, DeviceName, Event, Line, LineOrigin, Operation,
};
use crate::model::kubelet::{KubeletRecords, KubeletVolume, PodName, Publication};
use crate::model::mount::{Mount, MountTable};
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::policy::{Policy, VolumeSettings};
use crate::model::probe::{MountProbe, ProbeError, StuckProbe, Usage};
use crate::model::provision::ProvisionState;
use crate::model::reason::Reason;
use crate::model::severity::Severity;
use crate::model::source_update::SourceUpdate;

pub(crate) const GIB: u64 = 1 << 30;

/// Seconds after a fixed moment.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(crate) fn mount(
    id: u32,
    parent: u32,
    dev: &str,
    root: &str,
    mount_point: &str,
    fs_type: &str,
    source: &str,
) -> Mount {
    Mount {
        id,
        parent,
        dev: dev.parse().unwrap(),
        root: root.into(),
        mount_point: mount_point.into(),
        options: ["rw".into(), "relatime".into()].into(),
        fs_type: fs_type.into(),
        source: source.into(),
        super_options: vec!["rw".into()].into(),
    }
}

pub(crate) fn drive(name: &str, dev: &str, serial: &str) -> DriveFacts {
    DriveFacts {
        id: DriveId::new(serial),
        id_stable: true,
        identities: vec![DriveId::new(serial)],
        place: DriveId::new(format!("path:{name}")),
        name: name.into(),
        devices: vec![DriveDevice {
            name: name.into(),
            dev: dev.parse().unwrap(),
            size_bytes: 100 * GIB,
            state: Some("running".into()),
            hctl: None,
        }],
        links: Vec::new(),
        vendor: None,
        model: Some("Test Disk".into()),
        serial: Some(serial.into()),
        firmware: None,
        wwn: None,
        kind: DriveKind::Ssd,
        transport: Transport::Sata,
        size_bytes: 100 * GIB,
        logical_block_size: 512,
        physical_block_size: 4096,
        rotational: Some(false),
        removable: false,
        write_cache: None,
        location: Location::default(),
        state: Some("running".into()),
        asleep: false,
    }
}

pub(crate) fn device(name: &str, dev: &str, layer: Layer, below: &[&str]) -> BlockDevice {
    BlockDevice {
        name: name.into(),
        dev: dev.parse().unwrap(),
        size_bytes: 100 * GIB,
        read_only: false,
        layer,
        underlying: below.iter().map(|name| (*name).to_owned()).collect(),
        drive: None,
        links: Vec::new(),
        has_udev_record: true,
        fs_type: None,
        fs_usage: None,
        fs_uuid: None,
        fs_uuid_sub: None,
        fs_label: None,
        iostats: true,
    }
}

pub(crate) fn dm(name: &str, dev: &str, mapped: &str, uuid: &str, below: &[&str]) -> BlockDevice {
    let layer = Layer::Dm {
        name: mapped.into(),
        uuid: Some(uuid.into()),
        volume_group: None,
        logical_volume: None,
    };
    device(name, dev, layer, below)
}

/// A host under construction, and the facts that its updates produced.
#[derive(Clone, Default)]
pub(crate) struct TestHost {
    pub inventory: Inventory,
    pub mounts: MountTable,
    pub kubelet: KubeletRecords,
    pub provision: Option<ProvisionState>,
    pub facts: Facts,
    pub settings: VolumeSettings,
    pub policy: Policy,
    pub active: BTreeMap<(Subject, Reason), Severity>,
}

impl TestHost {
    /// A drive `name` with the identity `serial`, as a whole disk.
    pub(crate) fn disk(mut self, name: &str, dev: &str, serial: &str) -> TestHost {
        self.plug(name, dev, serial);
        self
    }

    pub(crate) fn plug(&mut self, name: &str, dev: &str, serial: &str) {
        self.inventory.drives.push(drive(name, dev, serial));
        self.inventory.drives.sort_by(|a, b| a.id.cmp(&b.id));
        let mut disk = device(name, dev, Layer::Disk, &[]);
        disk.drive = Some(DriveId::new(serial));
        self.inventory.devices.insert(name.into(), disk);
    }

    /// Removes a drive's devices, partitions too.
    pub(crate) fn pull(&mut self, name: &str) {
        let id = self.inventory.devices[name].drive.clone();
        self.inventory.drives.retain(|drive| Some(&drive.id) != id.as_ref());
        let gone = |device: &BlockDevice| {
            device.name == name
                || (matches!(device.layer, Layer::Partition { .. }) && device.underlying == [name])
        };
        self.inventory.devices.retain(|_, device| !gone(device));
    }

    pub(crate) fn with(mut self, device: BlockDevice) -> TestHost {
        self.inventory.devices.insert(device.name.clone(), device);
        self
    }

    pub(crate) fn uuid(mut self, device: &str, uuid: &str) -> TestHost {
        self.inventory.devices.get_mut(device).unwrap().fs_uuid = Some(uuid.into());
        self
    }

    pub(crate) fn mounted(
        mut self,
        dev: &str,
        root: &str,
        mount_point: &str,
        fs_type: &str,
        source: &str,
    ) -> TestHost {
        let id = self.mounts.mounts.len() as u32 + 10;
        self.mounts.mounts.push(mount(id, 1, dev, root, mount_point, fs_type, source));
        self
    }

    /// A FUSE filesystem that this user has mounted.
    pub(crate) fn user_mounted(
        self,
        uid: u32,
        dev: &str,
        mount_point: &str,
        fs_type: &str,
    ) -> TestHost {
        let mut host = self.mounted(dev, "/", mount_point, fs_type, "x");
        let mount = host.mounts.mounts.last_mut().unwrap();
        let owner = format!("user_id={uid}");
        mount.super_options = vec!["rw".into(), owner, "allow_other".into()].into();
        host
    }

    pub(crate) fn umount(&mut self, mount_point: &str) {
        self.mounts.mounts.retain(|mount| mount.mount_point != HostPath::from(mount_point));
    }

    pub(crate) fn mount_mut(&mut self, mount_point: &str) -> &mut Mount {
        self.mounts
            .mounts
            .iter_mut()
            .find(|mount| mount.mount_point == HostPath::from(mount_point))
            .unwrap()
    }

    pub(crate) fn csi(
        mut self,
        driver: &str,
        handle: &str,
        staging: Option<&str>,
        targets: &[(&str, &str)],
    ) -> TestHost {
        self.kubelet.volumes.push(KubeletVolume {
            driver: driver.into(),
            handle: handle.into(),
            pv: Some(format!("pv-{handle}")),
            block: false,
            ephemeral: false,
            staging: staging.map(HostPath::from),
            publications: targets
                .iter()
                .map(|(uid, path)| Publication {
                    pod_uid: (*uid).into(),
                    path: (*path).into(),
                    name: format!("pv-{handle}"),
                })
                .collect(),
            records: vec![HostPath::from("/var/lib/kubelet/vol_data.json")],
        });
        for (uid, _) in targets {
            self.kubelet.pods.insert(
                (*uid).into(),
                PodName { namespace: "default".into(), name: format!("pod-{uid}") },
            );
        }
        self
    }

    pub(crate) fn volumes(&self) -> Vec<crate::model::volume::VolumeFacts> {
        let seen = crate::model::graph::GraphInput {
            inventory: &self.inventory,
            mounts: &self.mounts,
            kubelet: Some(&self.kubelet),
            layers: &self.facts.layers,
            provision: self.provision.as_ref(),
        };
        crate::model::graph::volumes(seen, &self.settings)
    }

    pub(crate) fn scan(&mut self, seconds: i64) -> Urgency {
        self.apply(
            SourceUpdate::Inventory(Observation::ok(at(seconds), self.inventory.clone())),
            seconds,
        )
    }

    pub(crate) fn read_mounts(&mut self, seconds: i64) -> Urgency {
        self.apply(SourceUpdate::Mounts(Observation::ok(at(seconds), self.mounts.clone())), seconds)
    }

    pub(crate) fn read_kubelet(&mut self, seconds: i64) -> Urgency {
        self.apply(
            SourceUpdate::Kubelet(Observation::ok(at(seconds), self.kubelet.clone())),
            seconds,
        )
    }

    pub(crate) fn read_provision(&mut self, seconds: i64) -> Urgency {
        let provision = self.provision.clone().unwrap_or_default();
        self.apply(SourceUpdate::Provision(Observation::ok(at(seconds), provision)), seconds)
    }

    pub(crate) fn read_all(&mut self, seconds: i64) {
        self.scan(seconds);
        self.read_mounts(seconds);
        self.read_kubelet(seconds);
    }

    pub(crate) fn apply(&mut self, report: SourceUpdate, seconds: i64) -> Urgency {
        self.facts.apply(report, &self.settings, at(seconds))
    }

    pub(crate) fn restore_volumes(&mut self, stored: Vec<StoredVolume>, seconds: i64) {
        self.facts.restore_volumes(stored, &self.settings, at(seconds));
    }

    pub(crate) fn layer(&mut self, name: &str, state: LayerState, seconds: i64) -> Urgency {
        self.apply(
            SourceUpdate::Layer { device: name.into(), state: Observation::ok(at(seconds), state) },
            seconds,
        )
    }

    pub(crate) fn probe(&mut self, path: &str, probe: MountProbe, seconds: i64) -> Urgency {
        let result = Observation::ok(at(seconds), probe);
        self.apply(
            SourceUpdate::Probe { path: path.into(), result, duration: std::time::Duration::ZERO },
            seconds,
        )
    }

    pub(crate) fn stuck(&mut self, path: &str, seconds: i64) -> Urgency {
        let stuck = StuckProbe {
            since: at(seconds),
            waiting_in: Some("wait_on_page".into()),
            path: path.into(),
        };
        self.apply(SourceUpdate::ProbeStuck { path: path.into(), stuck }, seconds)
    }

    pub(crate) fn io(
        &mut self,
        dev: &str,
        name: &str,
        completed: u64,
        in_flight: u64,
        seconds: i64,
    ) -> Urgency {
        let line = format!("8 0 {name} {completed} {in_flight}");
        let stat = DiskStat {
            dev: dev.parse().unwrap(),
            name: name.into(),
            completed,
            sectors_written: 0,
            in_flight,
            transfers: Default::default(),
            line: line.into(),
        };
        self.apply(SourceUpdate::DiskStats(Observation::ok(at(seconds), vec![stat])), seconds)
    }

    /// Judges, and keeps the active findings as the owner of the state would.
    pub(crate) fn judge(&mut self, seconds: i64) -> Vec<Judgement> {
        let judgements = assess(&self.facts, &self.active, &self.policy, at(seconds));
        for judgement in &judgements {
            let key = (judgement.subject.clone(), judgement.reason);
            match &judgement.verdict {
                Verdict::Raised(raised) => {
                    self.active.insert(key, raised.severity);
                }
                Verdict::Clear => {
                    self.active.remove(&key);
                }
                Verdict::Unknown { .. } => {}
            }
        }
        self.active.retain(|(subject, _), _| !self.facts.is_removed(subject));
        judgements
    }

    /// `SUBJECT REASON SEVERITY STATUS` of each finding that is raised now.
    pub(crate) fn raised(&mut self, seconds: i64) -> Vec<String> {
        self.judge(seconds).iter().filter_map(raised_line).collect()
    }

    pub(crate) fn raised_for(&mut self, reason: Reason, seconds: i64) -> Option<FindingDetails> {
        self.judge(seconds).into_iter().find_map(|judgement| match judgement.verdict {
            Verdict::Raised(raised) if judgement.reason == reason => Some(raised),
            _ => None,
        })
    }
}

pub(crate) fn raised_line(judgement: &Judgement) -> Option<String> {
    match &judgement.verdict {
        Verdict::Raised(raised) => Some(format!(
            "{} {} {:?} {:?}",
            judgement.subject, judgement.reason, raised.severity, raised.status
        )),
        _ => None,
    }
}

pub(crate) fn usage(total: u64, available: u64) -> Usage {
    Usage {
        total_bytes: total,
        available_bytes: available,
        used_bytes: total - available,
        total_inodes: 1000,
        available_inodes: 900,
        used_inodes: 100,
    }
}

pub(crate) fn healthy_probe(usage: Usage) -> MountProbe {
    MountProbe { statfs: Ok(usage), readdir: Ok(()), btrfs: None, mount_id: None }
}

pub(crate) fn failing_probe(errno: i32) -> MountProbe {
    let error = |operation: &str| ProbeError {
        operation: operation.into(),
        errno,
        text: format!("error {errno}"),
    };
    MountProbe {
        statfs: Err(error("statfs")),
        readdir: Err(error("readdir")),
        btrfs: None,
        mount_id: None,
    }
}

pub(crate) fn volume(id: &str) -> VolumeId {
    VolumeId::known(id)
}

/// Whether a subject and reason are active.
pub(crate) fn is_active(active: &ActiveFindings, subject: &Subject, reason: Reason) -> bool {
    active.contains_key(&(subject.clone(), reason))
}

/// One incident on `device`, from one record.
pub(crate) fn event(class: Class, device: &str, time: Timestamp, sectors: &[u64]) -> Event {
    let said = Line {
        time,
        text: format!("{} error, dev {device}, sectors {sectors:?}", class.name()),
        origin: LineOrigin::KernelLog,
    };
    Event {
        seq: 1,
        class,
        blame: Blame::Unclear,
        device: DeviceName::Block(device.into()),
        other_names: Vec::new(),
        count: 1,
        records: 1,
        suppressed: 0,
        sectors: sectors.to_vec(),
        more_sectors: 0,
        operation: Some(Operation::Read),
        damaged: DamagedCopies::ALL,
        rule: "test".into(),
        first: said.clone(),
        last: said,
    }
}

/// Why the health is unknown, by the default limits; an answer of a drive is as old as it is then.
pub(crate) fn unknown_at(seconds: i64, facts: &Facts, subject: &Subject) -> Option<UnknownHealth> {
    assess::health_unknown(facts, subject, &Policy::default(), at(seconds))
}

/// A mounted btrfs whose members have the ids 1, 2, …
pub(crate) fn btrfs(uuid: &str, devices: &[&str], profile: &str) -> BtrfsFs {
    BtrfsFs {
        uuid: uuid.into(),
        devices: devices.iter().map(|name| (*name).to_owned()).collect(),
        member_ids: (1..).take(devices.len()).collect(),
        data_profiles: vec![profile.into()],
        metadata_profiles: vec![profile.into()],
        ..BtrfsFs::default()
    }
}

pub(crate) fn md_member(device: &str, state: &str, slot: Option<u32>) -> MdMember {
    MdMember { device: device.into(), state: state.into(), slot, errors: 0, bad_blocks: Vec::new() }
}
