//! Small test hosts: devices, mounts and records in one line each.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::assess::{self, ActiveFinding, ActiveFindings, assess};
use crate::block::{BlockDevice, DiskStat, Inventory, Layer, LayerState};
use crate::drive::{DriveDevice, DriveFacts, DriveKind, Location, Transport};
use crate::facts::{Facts, StoredVolume, Urgency};
use crate::policy::{Policy, VolumeSettings};
use crate::probe::{MountProbe, ProbeError, StuckProbe, Usage};
use crate::snapshot::{Drive, Presence, Snapshot};
use crate::source_update::SourceUpdate;
use crate::stack::{BtrfsFs, MdMember};
use diskvitals_finding::ids::{DriveId, FindingId, VolumeId};
use diskvitals_finding::kubelet::{KubeletRecords, KubeletVolume, PodName, Publication};
use diskvitals_finding::mount::{Mount, MountTable};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::ProvisionState;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{
    Finding, FindingDetails, Health, Judgement, Status, Subject, UnknownHealth, Verdict,
};

pub use diskvitals_kernel_log::fixture::{at, event};

pub const GIB: u64 = 1 << 30;

pub fn mount(
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

pub fn drive(name: &str, dev: &str, serial: &str) -> DriveFacts {
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
        command_timeout: Some(30),
        lowered_link_speed: None,
        flash: None,
        asleep: false,
    }
}

pub fn device(name: &str, dev: &str, layer: Layer, below: &[&str]) -> BlockDevice {
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

pub fn dm(name: &str, dev: &str, mapped: &str, uuid: &str, below: &[&str]) -> BlockDevice {
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
pub struct TestHost {
    pub inventory: Inventory,
    pub mounts: MountTable,
    pub kubelet: KubeletRecords,
    pub provision: Option<ProvisionState>,
    pub facts: Facts,
    pub settings: VolumeSettings,
    pub policy: Policy,
    pub active: ActiveFindings,
}

impl TestHost {
    /// A drive `name` with the identity `serial`, as a whole disk.
    pub fn disk(mut self, name: &str, dev: &str, serial: &str) -> TestHost {
        self.plug(name, dev, serial);
        self
    }

    pub fn plug(&mut self, name: &str, dev: &str, serial: &str) {
        self.inventory.drives.push(drive(name, dev, serial));
        self.inventory.drives.sort_by(|a, b| a.id.cmp(&b.id));
        let mut disk = device(name, dev, Layer::Disk, &[]);
        disk.drive = Some(DriveId::new(serial));
        self.inventory.devices.insert(name.into(), disk);
    }

    /// Removes a drive's devices, partitions too.
    pub fn pull(&mut self, name: &str) {
        let id = self.inventory.devices[name].drive.clone();
        self.inventory.drives.retain(|drive| Some(&drive.id) != id.as_ref());
        let gone = |device: &BlockDevice| {
            device.name == name
                || (matches!(device.layer, Layer::Partition { .. }) && device.underlying == [name])
        };
        self.inventory.devices.retain(|_, device| !gone(device));
    }

    pub fn with(mut self, device: BlockDevice) -> TestHost {
        self.inventory.devices.insert(device.name.clone(), device);
        self
    }

    pub fn uuid(mut self, device: &str, uuid: &str) -> TestHost {
        self.inventory.devices.get_mut(device).unwrap().fs_uuid = Some(uuid.into());
        self
    }

    pub fn mounted(
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
    pub fn user_mounted(self, uid: u32, dev: &str, mount_point: &str, fs_type: &str) -> TestHost {
        let mut host = self.mounted(dev, "/", mount_point, fs_type, "x");
        let mount = host.mounts.mounts.last_mut().unwrap();
        let owner = format!("user_id={uid}");
        mount.super_options = vec!["rw".into(), owner, "allow_other".into()].into();
        host
    }

    pub fn umount(&mut self, mount_point: &str) {
        self.mounts.mounts.retain(|mount| mount.mount_point != HostPath::from(mount_point));
    }

    pub fn mount_mut(&mut self, mount_point: &str) -> &mut Mount {
        self.mounts
            .mounts
            .iter_mut()
            .find(|mount| mount.mount_point == HostPath::from(mount_point))
            .unwrap()
    }

    pub fn csi(
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

    pub fn volumes(&self) -> Vec<crate::volume::VolumeFacts> {
        let seen = crate::graph::GraphInput {
            inventory: &self.inventory,
            mounts: &self.mounts,
            btrfs: &BTreeMap::new(),
            kubelet: Some(&self.kubelet),
            layers: &self.facts.layers,
            provision: self.provision.as_ref(),
        };
        crate::graph::volumes(seen, &self.settings)
    }

    pub fn scan(&mut self, seconds: i64) -> Urgency {
        self.apply(
            SourceUpdate::Inventory(Observation::ok(at(seconds), self.inventory.clone())),
            seconds,
        )
    }

    pub fn read_mounts(&mut self, seconds: i64) -> Urgency {
        self.apply(SourceUpdate::Mounts(Observation::ok(at(seconds), self.mounts.clone())), seconds)
    }

    pub fn read_kubelet(&mut self, seconds: i64) -> Urgency {
        self.apply(
            SourceUpdate::Kubelet(Observation::ok(at(seconds), self.kubelet.clone())),
            seconds,
        )
    }

    pub fn read_provision(&mut self, seconds: i64) -> Urgency {
        let provision = self.provision.clone().unwrap_or_default();
        self.apply(SourceUpdate::Provision(Observation::ok(at(seconds), provision)), seconds)
    }

    pub fn read_all(&mut self, seconds: i64) {
        self.scan(seconds);
        self.read_mounts(seconds);
        self.read_kubelet(seconds);
    }

    pub fn apply(&mut self, report: SourceUpdate, seconds: i64) -> Urgency {
        self.facts.apply(report, &self.settings, at(seconds))
    }

    pub fn restore_volumes(&mut self, stored: Vec<StoredVolume>, seconds: i64) {
        self.facts.restore_volumes(stored, &self.settings, at(seconds));
    }

    pub fn layer(&mut self, name: &str, state: LayerState, seconds: i64) -> Urgency {
        self.apply(
            SourceUpdate::Layer { device: name.into(), state: Observation::ok(at(seconds), state) },
            seconds,
        )
    }

    pub fn probe(&mut self, path: &str, probe: MountProbe, seconds: i64) -> Urgency {
        let result = Observation::ok(at(seconds), probe);
        self.apply(
            SourceUpdate::Probe { path: path.into(), result, duration: std::time::Duration::ZERO },
            seconds,
        )
    }

    pub fn stuck(&mut self, path: &str, seconds: i64) -> Urgency {
        let stuck = StuckProbe {
            since: at(seconds),
            waiting_in: Some("wait_on_page".into()),
            path: path.into(),
        };
        self.apply(SourceUpdate::ProbeStuck { path: path.into(), stuck }, seconds)
    }

    pub fn io(
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
    pub fn judge(&mut self, seconds: i64) -> Vec<Judgement> {
        let judgements = assess(&self.facts, &self.active, &self.policy, at(seconds));
        for judgement in &judgements {
            let key = (judgement.subject.clone(), judgement.reason);
            match &judgement.verdict {
                Verdict::Raised(raised) => {
                    let level = (raised.severity, raised.status);
                    let since = self.active.get(&key).map(|known| known.since);
                    let since = since.or(raised.since).unwrap_or(at(seconds));
                    self.active.insert(key, ActiveFinding { level, since });
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
    pub fn raised(&mut self, seconds: i64) -> Vec<String> {
        self.judge(seconds).iter().filter_map(raised_line).collect()
    }

    pub fn raised_for(&mut self, reason: Reason, seconds: i64) -> Option<FindingDetails> {
        self.judge(seconds).into_iter().find_map(|judgement| match judgement.verdict {
            Verdict::Raised(raised) if judgement.reason == reason => Some(raised),
            _ => None,
        })
    }
}

pub fn raised_line(judgement: &Judgement) -> Option<String> {
    match &judgement.verdict {
        Verdict::Raised(raised) => Some(format!(
            "{} {} {:?} {:?}",
            judgement.subject, judgement.reason, raised.severity, raised.status
        )),
        _ => None,
    }
}

pub fn usage(total: u64, available: u64) -> Usage {
    Usage {
        total_bytes: total,
        available_bytes: available,
        used_bytes: total - available,
        total_inodes: 1000,
        available_inodes: 900,
        used_inodes: 100,
    }
}

pub fn healthy_probe(usage: Usage) -> MountProbe {
    MountProbe { statfs: Ok(usage), readdir: Ok(()), btrfs: None, mount_id: None }
}

pub fn failing_probe(errno: i32) -> MountProbe {
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

pub fn volume(id: &str) -> VolumeId {
    VolumeId::known(id)
}

/// A finding that began with the host.
#[cfg(test)]
pub(crate) fn active_at(level: assess::Level) -> ActiveFinding {
    ActiveFinding { level, since: at(0) }
}

/// Whether a subject and reason are active.
pub fn is_active(active: &ActiveFindings, subject: &Subject, reason: Reason) -> bool {
    active.contains_key(&(subject.clone(), reason))
}

/// Why the health is unknown, by the default limits; an answer of a drive is as old as it is then.
pub fn unknown_at(seconds: i64, facts: &Facts, subject: &Subject) -> Option<UnknownHealth> {
    assess::health_unknown(facts, subject, &Policy::default(), at(seconds))
}

/// A mounted btrfs whose members have the ids 1, 2, …
pub fn btrfs(uuid: &str, devices: &[&str], profile: &str) -> BtrfsFs {
    BtrfsFs {
        uuid: uuid.into(),
        devices: devices.iter().map(|name| (*name).to_owned()).collect(),
        member_ids: (1..).take(devices.len()).collect(),
        data_profiles: vec![profile.into()],
        metadata_profiles: vec![profile.into()],
        ..BtrfsFs::default()
    }
}

pub fn md_member(device: &str, state: &str, slot: Option<u32>) -> MdMember {
    MdMember { device: device.into(), state: state.into(), slot, errors: 0, bad_blocks: Vec::new() }
}

/// A drive of a snapshot, in order.
pub fn published(name: &str, serial: &str) -> Drive {
    Drive {
        facts: drive(name, "8:0", serial),
        presence: Presence::Present,
        first_seen: at(0),
        last_seen: at(0),
        health: Health::Good,
        health_unknown_why: String::new(),
        health_unknown_cause: None,
        findings: Vec::new(),
        maintenance: false,
        maintenance_order: None,
        lamp: None,
        member_of: Vec::new(),
        volumes: Vec::new(),
        errors: None,
        smart: None,
        care: Vec::new(),
        flash: None,
        links: Vec::new(),
    }
}

/// Puts a BAD finding into a snapshot.
pub fn add_finding(snapshot: &mut Snapshot, subject: Subject, reason: Reason) {
    let id = FindingId::new(&subject.to_string(), reason.name(), at(0));
    match &subject {
        Subject::Drive(drive) => {
            Arc::make_mut(snapshot.drives.get_mut(drive).expect("known")).findings.push(id.clone())
        }
        Subject::Volume(volume) => Arc::make_mut(snapshot.volumes.get_mut(volume).expect("known"))
            .findings
            .push(id.clone()),
        Subject::Device(_) | Subject::Source(_) => {}
    }
    let finding = Finding {
        id: id.clone(),
        subject,
        reason,
        severity: Severity::Bad,
        status: Status::Inaccessible,
        message: "it is so".into(),
        since: at(0),
        last_seen: at(0),
        count: 1,
        evidence: Vec::new(),
        clears_when: String::new(),
        advice: None,
        acknowledged: None,
        maintained: false,
        cleared: None,
        follows: None,
    };
    snapshot.findings.insert(id, Arc::new(finding));
}
