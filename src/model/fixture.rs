//! Small worlds for tests: devices, mounts and records in one line each.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::model::assess::{Active, assess};
use crate::model::attach::Provision;
use crate::model::block::{BlockDevice, DiskStat, Inventory, Layer, LayerState};
use crate::model::drive::{DriveDevice, DriveFacts, DriveKind, Location, Transport};
use crate::model::facts::{Change, Facts};
use crate::model::finding::{Judgement, Raised, Severity, Subject, Verdict};
use crate::model::ids::{DriveId, VolumeId};
use crate::model::kernel::event::{Blame, Class, Device, Event, Line, Operation, Origin};
use crate::model::kubelet::{KubeletRecords, KubeletVolume, PodName, Publication};
use crate::model::mount::{Mount, MountTable};
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::policy::{Policy, VolumeSettings};
use crate::model::probe::{MountProbe, ProbeError, Stuck, Usage};
use crate::model::reason::Reason;
use crate::model::report::Report;

pub const GIB: u64 = 1 << 30;

/// Seconds after a fixed moment.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

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
        options: vec!["rw".into(), "relatime".into()],
        fs_type: fs_type.into(),
        source: source.into(),
        super_options: vec!["rw".into()],
    }
}

pub fn drive(name: &str, dev: &str, serial: &str) -> DriveFacts {
    DriveFacts {
        id: DriveId::new(serial),
        id_stable: true,
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

pub fn device(name: &str, dev: &str, layer: Layer, below: &[&str]) -> BlockDevice {
    BlockDevice {
        name: name.into(),
        dev: dev.parse().unwrap(),
        size_bytes: 100 * GIB,
        read_only: false,
        layer,
        below: below.iter().map(|name| (*name).to_owned()).collect(),
        drive: None,
        links: Vec::new(),
        fs_type: None,
        fs_uuid: None,
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

/// A world under construction, and the facts it has been told to.
#[derive(Clone, Default)]
pub struct World {
    pub inventory: Inventory,
    pub mounts: MountTable,
    pub kubelet: KubeletRecords,
    pub provision: Option<Provision>,
    pub facts: Facts,
    pub settings: VolumeSettings,
    pub policy: Policy,
    pub active: BTreeMap<(Subject, Reason), Severity>,
}

impl World {
    /// A drive `name` with the identity `serial`, as a whole disk.
    pub fn disk(mut self, name: &str, dev: &str, serial: &str) -> World {
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

    /// Takes a drive's devices out, partitions too.
    pub fn pull(&mut self, name: &str) {
        let id = self.inventory.devices[name].drive.clone();
        self.inventory
            .drives
            .retain(|drive| Some(&drive.id) != id.as_ref());
        let gone = |device: &BlockDevice| {
            device.name == name
                || (matches!(device.layer, Layer::Partition { .. }) && device.below == [name])
        };
        self.inventory.devices.retain(|_, device| !gone(device));
    }

    pub fn with(mut self, device: BlockDevice) -> World {
        self.inventory.devices.insert(device.name.clone(), device);
        self
    }

    pub fn uuid(mut self, device: &str, uuid: &str) -> World {
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
    ) -> World {
        let id = self.mounts.mounts.len() as u32 + 10;
        self.mounts
            .mounts
            .push(mount(id, 1, dev, root, mount_point, fs_type, source));
        self
    }

    pub fn umount(&mut self, mount_point: &str) {
        self.mounts
            .mounts
            .retain(|mount| mount.mount_point != HostPath::from(mount_point));
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
    ) -> World {
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
                PodName {
                    namespace: "default".into(),
                    name: format!("pod-{uid}"),
                },
            );
        }
        self
    }

    pub fn volumes(&self) -> Vec<crate::model::volume::VolumeFacts> {
        let seen = crate::model::graph::Seen {
            inventory: &self.inventory,
            mounts: &self.mounts,
            kubelet: Some(&self.kubelet),
            layers: &self.facts.layers,
            provision: self.provision.as_ref(),
        };
        crate::model::graph::volumes(seen, &self.settings)
    }

    pub fn scan(&mut self, seconds: i64) -> Change {
        self.tell(
            Report::Inventory(Observation::ok(at(seconds), self.inventory.clone())),
            seconds,
        )
    }

    pub fn read_mounts(&mut self, seconds: i64) -> Change {
        self.tell(
            Report::Mounts(Observation::ok(at(seconds), self.mounts.clone())),
            seconds,
        )
    }

    pub fn read_kubelet(&mut self, seconds: i64) -> Change {
        self.tell(
            Report::Kubelet(Observation::ok(at(seconds), self.kubelet.clone())),
            seconds,
        )
    }

    pub fn tell_provision(&mut self, seconds: i64) -> Change {
        let provision = self.provision.clone().unwrap_or_default();
        self.tell(
            Report::Provision(Observation::ok(at(seconds), provision)),
            seconds,
        )
    }

    pub fn read_all(&mut self, seconds: i64) {
        self.scan(seconds);
        self.read_mounts(seconds);
        self.read_kubelet(seconds);
    }

    pub fn tell(&mut self, report: Report, seconds: i64) -> Change {
        self.facts.apply(report, &self.settings, at(seconds))
    }

    pub fn layer(&mut self, name: &str, state: LayerState, seconds: i64) -> Change {
        self.tell(
            Report::Layer {
                device: name.into(),
                state: Observation::ok(at(seconds), state),
            },
            seconds,
        )
    }

    pub fn probe(&mut self, path: &str, probe: MountProbe, seconds: i64) -> Change {
        let result = Observation::ok(at(seconds), probe);
        self.tell(
            Report::Probe {
                path: path.into(),
                result,
                took: std::time::Duration::ZERO,
            },
            seconds,
        )
    }

    pub fn stuck(&mut self, path: &str, seconds: i64) -> Change {
        let stuck = Stuck {
            since: at(seconds),
            waiting_in: Some("wait_on_page".into()),
            path: path.into(),
        };
        self.tell(
            Report::ProbeStuck {
                path: path.into(),
                stuck,
            },
            seconds,
        )
    }

    pub fn io(
        &mut self,
        dev: &str,
        name: &str,
        completed: u64,
        in_flight: u64,
        seconds: i64,
    ) -> Change {
        let line = format!("8 0 {name} {completed} {in_flight}");
        let stat = DiskStat {
            dev: dev.parse().unwrap(),
            name: name.into(),
            completed,
            in_flight,
            line,
        };
        self.tell(
            Report::DiskStats(Observation::ok(at(seconds), vec![stat])),
            seconds,
        )
    }

    /// Judges, and keeps what is active as the owner of the state would.
    pub fn judge(&mut self, seconds: i64) -> Vec<Judgement> {
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
        judgements
    }

    /// `SUBJECT REASON SEVERITY STATUS` of what is raised now.
    pub fn raised(&mut self, seconds: i64) -> Vec<String> {
        self.judge(seconds).iter().filter_map(line).collect()
    }

    pub fn one(&mut self, reason: Reason, seconds: i64) -> Option<Raised> {
        self.judge(seconds)
            .into_iter()
            .find_map(|judgement| match judgement.verdict {
                Verdict::Raised(raised) if judgement.reason == reason => Some(raised),
                _ => None,
            })
    }
}

pub fn line(judgement: &Judgement) -> Option<String> {
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

pub fn healthy(usage: Usage) -> MountProbe {
    MountProbe {
        statfs: Ok(usage),
        readdir: Ok(()),
    }
}

pub fn answers(errno: i32) -> MountProbe {
    let error = |operation: &str| ProbeError {
        operation: operation.into(),
        errno,
        text: format!("error {errno}"),
    };
    MountProbe {
        statfs: Err(error("statfs")),
        readdir: Err(error("readdir")),
    }
}

pub fn volume(id: &str) -> VolumeId {
    VolumeId::known(id)
}

pub fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time + SignedDuration::from_secs(seconds)
}

/// Whether a subject and reason are active.
pub fn is_active(active: &dyn Active, subject: &Subject, reason: Reason) -> bool {
    active.severity(subject, reason).is_some()
}

/// One incident on `device`, told by one record.
pub fn event(class: Class, device: &str, time: Timestamp, sectors: &[u64]) -> Event {
    let said = Line {
        time,
        text: format!("{} error, dev {device}, sectors {sectors:?}", class.name()),
        origin: Origin::KernelLog,
    };
    Event {
        seq: 1,
        class,
        blame: Blame::Unclear,
        device: Device::Block(device.into()),
        also: Vec::new(),
        count: 1,
        records: 1,
        suppressed: 0,
        sectors: sectors.to_vec(),
        more_sectors: 0,
        operation: Some(Operation::Read),
        corrected: false,
        rule: "test".into(),
        first: said.clone(),
        last: said,
    }
}
