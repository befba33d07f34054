//! A fixed state and a stub of its owner, served over a real unix socket in a temporary folder.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diskvitals_daemon::api::server::{AgentCallers, Limits, NodeFacts, Server, SocketAccess, bind};
use diskvitals_daemon::state::handle::{
    Change, ChangeKind, ChangedItem, Command, CommandError, FreshReadings, Handle, Subscription,
    SubscriptionStart, WantedReading,
};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::{DriveId, FindingId, VolumeId};
use diskvitals_finding::kubelet::PodName;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Acknowledgement, Evidence, Finding, Health, Status, Subject};
use diskvitals_model::block::{BlockDevice, DiskStat, Inventory, Layer};
use diskvitals_model::drive::{DriveDevice, DriveFacts, DriveKind, Location, Transport};
use diskvitals_model::facts::checks::StartCheckError;
use diskvitals_model::lamp::LampOrder;
use diskvitals_model::maintenance::MaintenanceOrder;
use diskvitals_model::probe::Usage;
use diskvitals_model::removal::{CanBePulled, Removal};
use diskvitals_model::replacement::{Step, StepKind};
use diskvitals_model::snapshot::{Drive, Presence, Snapshot, Volume, VolumeUsage};
use diskvitals_model::source_update::SourceRequest;
use diskvitals_model::volume::{
    Condition, CsiStatus, MountRole, OperationalStatus, PodUse, Stack, UsageStatus, VolumeFacts,
    VolumeMount,
};
use diskvitals_provision::engine::Engine;
use diskvitals_wire::client::Client;
use jiff::Timestamp;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

pub fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

pub fn drive(name: &str, serial: &str) -> Drive {
    let device = DriveDevice {
        name: name.into(),
        dev: DevNo::new(8, 0),
        size_bytes: 1 << 40,
        state: Some("running".into()),
        hctl: Some("0:0:0:0".into()),
    };
    let facts = DriveFacts {
        id: DriveId::new(format!("MODEL_{serial}")),
        id_stable: true,
        identities: Vec::new(),
        place: DriveId::default(),
        name: name.into(),
        devices: vec![device],
        links: vec![format!("/dev/disk/by-id/ata-MODEL_{serial}")],
        vendor: None,
        model: Some("MODEL".into()),
        serial: Some(serial.into()),
        firmware: None,
        wwn: Some(format!("naa.5000{serial}").to_lowercase()),
        kind: DriveKind::Ssd,
        transport: Transport::Sata,
        size_bytes: 1 << 40,
        logical_block_size: 512,
        physical_block_size: 4096,
        rotational: Some(false),
        removable: false,
        write_cache: None,
        location: Location::default(),
        state: Some("running".into()),
        asleep: false,
        ..DriveFacts::default()
    };
    Drive {
        facts,
        presence: Presence::Present,
        first_seen: now(),
        last_seen: now(),
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
        care: Vec::new(),
        flash: None,
        links: Vec::new(),
        smart: None,
    }
}

pub fn volume(handle: &str, device: &str, drive: &DriveId) -> Volume {
    let path = |text: String| HostPath::new(text.into_bytes());
    let mount = |at: HostPath, role, pod_uid| VolumeMount {
        path: at,
        role,
        options: ["rw".into()].into(),
        super_options: ["rw".into()].into(),
        root: path("/".into()),
        pod_uid,
    };
    let staging =
        path(format!("/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/{handle}/globalmount"));
    let published = path(format!(
        "/var/lib/kubelet/pods/uid-{handle}/volumes/kubernetes.io~csi/pv-{handle}/mount"
    ));
    let facts = VolumeFacts {
        id: VolumeId::csi("d.example", handle),
        driver: Some("d.example".into()),
        handle: Some(handle.into()),
        pv: Some(format!("pv-{handle}")),
        block: false,
        ephemeral: false,
        device: Some(device.into()),
        source: Some(path(format!("/dev/{device}"))),
        fs_type: Some("ext4".into()),
        fs_uuid: Some(format!("uuid-{handle}")),
        fs_label: None,
        mounts: vec![
            mount(staging, MountRole::Staging, None),
            mount(published.clone(), MountRole::Pod, Some(format!("uid-{handle}"))),
        ],
        missing_mounts: Vec::new(),
        pods: vec![PodUse {
            uid: format!("uid-{handle}"),
            name: Some(PodName { namespace: "default".into(), name: format!("pod-{handle}") }),
            volume_name: format!("pv-{handle}"),
            path: published,
        }],
        drive_ids: vec![drive.clone()],
        stack: Stack::Drive(drive.clone()),
        devices: vec![device.into(), "sda".into()],
        device_gone: false,
        remote: false,
        provided: None,
    };
    let usage = Usage {
        total_bytes: 100 << 30,
        available_bytes: 60 << 30,
        used_bytes: 40 << 30,
        total_inodes: 1000,
        available_inodes: 900,
        used_inodes: 100,
    };
    Volume {
        facts: facts.into(),
        usage: VolumeUsage::Mounted { usage, at: now(), stale: None, full_at: None },
        csi_status: CsiStatus::Published,
        operational_status: OperationalStatus::Operative,
        usage_status: UsageStatus::InUse,
        health: Health::Good,
        health_unknown_why: String::new(),
        health_unknown_cause: None,
        redundancy: String::new(),
        scrubs: Vec::new(),
        condition: Some(Condition::default()),
        findings: Vec::new(),
        first_seen: now(),
        last_probe: Some(now()),
        errors: None,
    }
}

pub fn finding(subject: Subject, reason: Reason, severity: Severity, since: Timestamp) -> Finding {
    Finding {
        id: FindingId::new(&subject.to_string(), reason.name(), since),
        subject,
        reason,
        severity,
        status: Status::Degraded,
        message: "it is so".into(),
        since,
        last_seen: since,
        count: 1,
        evidence: vec![Evidence {
            source: "/proc/1/mountinfo".into(),
            time: since,
            text: "36 35 98:0 / /mnt rw - ext4 /dev/sda1 rw".into(),
            witness: diskvitals_finding::WitnessKind::KernelLog,
            present: true,
        }],
        clears_when: "it is not so".into(),
        advice: None,
        acknowledged: None,
        maintained: false,
        cleared: None,
        follows: None,
    }
}

fn block(
    name: &str,
    layer: Layer,
    below: &[&str],
    drive: Option<DriveId>,
) -> (String, BlockDevice) {
    let device = BlockDevice {
        name: name.into(),
        dev: DevNo::new(8, 0),
        size_bytes: 1 << 40,
        read_only: false,
        layer,
        underlying: below.iter().map(ToString::to_string).collect(),
        drive,
        links: Vec::new(),
        has_udev_record: true,
        fs_type: None,
        fs_usage: None,
        fs_uuid: None,
        fs_uuid_sub: None,
        fs_label: None,
        iostats: true,
    };
    (name.into(), device)
}

/// Drives sda and sdb; volume `a` is on sda's first partition, `b` on the second (below LVM); the
/// other volumes have no known drive.
pub fn snapshot(more: usize) -> Snapshot {
    let (mut one, other) = (drive("sda", "S1"), drive("sdb", "S2"));
    let id = one.facts.id.clone();
    let mut volumes = vec![volume("a", "sda1", &id), volume("b", "dm-0", &id)];
    Arc::make_mut(&mut volumes[1].facts).devices = vec!["dm-0".into(), "sda2".into(), "sda".into()];
    volumes.extend(
        (0..more).map(|n| volume(&format!("more{n:05}"), &format!("nbd{n}"), &other.facts.id)),
    );
    one.volumes = volumes[..2].iter().map(|volume| volume.facts.id.clone()).collect();
    let found = finding(
        Subject::Volume(volumes[0].facts.id.clone()),
        Reason::ReadOnly,
        Severity::Bad,
        now(),
    );
    volumes[0].findings.push(found.id.clone());
    volumes[0].health = Health::Bad;
    let lv = Layer::Dm {
        name: "vg-data".into(),
        uuid: Some("LVM-x".into()),
        volume_group: Some("vg".into()),
        logical_volume: Some("data".into()),
    };
    let devices = BTreeMap::from([
        block("sda", Layer::Disk, &[], Some(id)),
        block("sda1", Layer::Partition { number: 1, start_bytes: 0 }, &["sda"], None),
        block("sda2", Layer::Partition { number: 2, start_bytes: 1 << 30 }, &["sda"], None),
        block("dm-0", lv, &["sda2"], None),
        block("sdb", Layer::Disk, &[], Some(other.facts.id.clone())),
    ]);
    Snapshot {
        revision: 1000,
        settled: true,
        drives: [one, other].map(|drive| (drive.facts.id.clone(), Arc::new(drive))).into(),
        volumes: volumes
            .into_iter()
            .map(|volume| (volume.facts.id.clone(), Arc::new(volume)))
            .collect(),
        findings: BTreeMap::from([(found.id.clone(), Arc::new(found))]),
        inventory: Arc::new(Inventory { devices, ..Inventory::default() }),
        ..Snapshot::default()
    }
}

/// A stub of the owner: it answers commands and publishes the test's snapshots.
#[derive(Clone)]
pub struct Owner {
    snapshots: Arc<watch::Sender<Arc<Snapshot>>>,
    changes: broadcast::Sender<Arc<Change>>,
    remembered: Arc<Mutex<Vec<Arc<Change>>>>,
    pub asked: Arc<Mutex<Vec<SourceRequest>>>,
    /// Readings of the I/O counters; each is returned once, then there are none.
    pub io: Arc<Mutex<VecDeque<Vec<DiskStat>>>>,
    pub bypassed: Arc<Mutex<Vec<(String, bool)>>>,
}

impl Owner {
    pub fn start(snapshot: Snapshot) -> (Owner, Handle) {
        let (snapshots, newest) = watch::channel(Arc::new(snapshot));
        let (commands, mut received) = mpsc::channel(16);
        let owner = Owner {
            snapshots: Arc::new(snapshots),
            changes: broadcast::channel(8).0,
            remembered: Arc::default(),
            asked: Arc::default(),
            io: Arc::default(),
            bypassed: Arc::default(),
        };
        let this = owner.clone();
        tokio::spawn(async move {
            while let Some(command) = received.recv().await {
                this.answer(command);
            }
        });
        (owner, Handle::new(newest, commands))
    }

    /// Applies the change, publishes the snapshot, and then the change event, as the owner does.
    pub fn change(&self, kind: ChangeKind, item: ChangedItem) -> u64 {
        let mut snapshot = (**self.snapshots.borrow()).clone();
        snapshot.revision += 1;
        match (&item, kind) {
            (ChangedItem::Drive(it), ChangeKind::Removed) => {
                drop(snapshot.drives.remove(&it.facts.id))
            }
            (ChangedItem::Drive(it), _) => {
                drop(snapshot.drives.insert(it.facts.id.clone(), it.clone()))
            }
            (ChangedItem::Volume(it), ChangeKind::Removed) => {
                drop(snapshot.volumes.remove(&it.facts.id))
            }
            (ChangedItem::Volume(it), _) => {
                drop(snapshot.volumes.insert(it.facts.id.clone(), it.clone()))
            }
            (ChangedItem::Finding(it), ChangeKind::Removed) => {
                drop(snapshot.findings.remove(&it.id))
            }
            (ChangedItem::Cause(it), ChangeKind::Removed) => drop(snapshot.causes.remove(&it.id)),
            (ChangedItem::Cause(it), _) => drop(snapshot.causes.insert(it.id.clone(), it.clone())),
            (ChangedItem::Check(it), ChangeKind::Removed) => drop(snapshot.checks.remove(&it.id)),
            (ChangedItem::Check(it), _) => drop(snapshot.checks.insert(it.id.clone(), it.clone())),
            (ChangedItem::Finding(it), _) => {
                drop(snapshot.findings.insert(it.id.clone(), it.clone()))
            }
        }
        let revision = snapshot.revision;
        let change = Arc::new(Change { revision, time: now(), kind, item });
        self.snapshots.send_replace(Arc::new(snapshot));
        self.remembered.lock().unwrap().push(change.clone());
        let _ = self.changes.send(change);
        revision
    }

    /// Clients that have a watch.
    pub fn watchers(&self) -> usize {
        self.changes.receiver_count()
    }

    /// Publishes a snapshot without change events.
    pub fn modify(&self, change: impl FnOnce(&mut Snapshot)) {
        self.snapshots.send_modify(|snapshot| change(Arc::make_mut(snapshot)));
    }

    pub fn settle(&self) {
        self.snapshots.send_modify(|snapshot| Arc::make_mut(snapshot).settled = true);
    }

    fn answer(&self, command: Command) {
        match command {
            Command::Subscribe { resume, reply } => {
                let snapshot = self.snapshots.borrow().clone();
                let remembered = self.remembered.lock().unwrap();
                let first = snapshot.revision - remembered.len() as u64;
                let start = match resume {
                    Some(after) if after >= first && after <= snapshot.revision => {
                        SubscriptionStart::Resume(
                            remembered
                                .iter()
                                .filter(|change| change.revision > after)
                                .cloned()
                                .collect(),
                        )
                    }
                    _ => SubscriptionStart::Snapshot(snapshot),
                };
                let _ = reply.send(Subscription { start, changes: self.changes.subscribe() });
            }
            Command::Acknowledge { finding, by, note, seen, is_repaired: _, reply } => {
                let ack = Acknowledgement { by, time: now(), note };
                let found = self.snapshots.borrow().findings.get(&finding).cloned();
                if found
                    .iter()
                    .any(|found| seen.severity.is_some_and(|severity| found.severity > severity))
                {
                    let _ = reply.send(Err(CommandError::Worsened(finding)));
                    return;
                }
                let answer = found
                    .map(|found| Arc::new(Finding { acknowledged: Some(ack), ..(*found).clone() }));
                if let Some(found) = &answer {
                    self.change(ChangeKind::Modified, ChangedItem::Finding(found.clone()));
                }
                let _ = reply.send(answer.ok_or(CommandError::NoSuchFinding(finding)));
            }
            Command::StartMaintenance { target: _, by, note, length, reply } => {
                let order = MaintenanceOrder { by, note, since: now(), seconds: length.as_secs() };
                let _ = reply.send(Ok(Arc::new(order)));
            }
            Command::EndMaintenance { target, reply } => {
                let name = format!("{target:?}");
                let _ = reply.send(Err(CommandError::NotInMaintenance(name)));
            }
            Command::RememberLamp { drive: _, by, place, reply } => {
                let _ = reply.send(Ok(Arc::new(LampOrder { by, since: now(), place })));
            }
            Command::ForgetLamp { drive: _ } => {}
            Command::JudgeRemoval { drive, with: _, reply } => {
                let is_known = self.snapshots.borrow().drives.contains_key(&drive);
                let objections = vec![(CanBePulled::No, "no sound copy of / elsewhere".to_owned())];
                let removal = Removal { answer: CanBePulled::No, objections };
                let step = Step {
                    kind: StepKind::Save,
                    text: "Copy what is on it first.".to_owned(),
                    commands: Vec::new(),
                    warnings: Vec::new(),
                    replacement: None,
                };
                let _ = reply.send(is_known.then_some((removal, step)));
            }
            Command::Unacknowledge { finding, reply } => {
                let _ = reply.send(Err(CommandError::NotAcknowledged(finding)));
            }
            Command::ReadAgain { requests, wanted, patience, reply } => {
                self.asked.lock().unwrap().extend(requests);
                let probes = wanted.iter().filter(|it| matches!(it, WantedReading::Probe(_)));
                let text = format!("{} mounts within {} s", probes.count(), patience.as_secs());
                let inventory = wanted.contains(&WantedReading::Hardware);
                let _ = reply.send(FreshReadings {
                    snapshot: self.snapshots.borrow().clone(),
                    inventory,
                    kernel_log: wanted.iter().any(|it| matches!(it, WantedReading::KernelLog(_))),
                    missing: Vec::from_iter(inventory.then_some(text)),
                });
            }
            Command::StartCheck { request: asked, reply } => {
                let refused = StartCheckError::NotCheckable(format!(
                    "{:?} is not checked in this play",
                    asked.target
                ));
                let _ = reply.send(Err(refused.into()));
            }
            Command::CancelCheck { check, reply } => {
                let found = self.snapshots.borrow().checks.get(&check).cloned();
                let _ = reply.send(found.ok_or(CommandError::NoSuchCheck(check)));
            }
            Command::Refresh(request) => self.asked.lock().unwrap().push(request),
            Command::ReadIo { reply } => {
                if let Some(reading) = self.io.lock().unwrap().pop_front() {
                    let _ = reply.send(Arc::new(reading));
                }
            }
            Command::SetBypassed { driver, bypassed } => {
                self.bypassed.lock().unwrap().push((driver, bypassed))
            }
        }
    }
}

/// A server in this process. Stops when dropped.
pub struct Served {
    pub dir: tempfile::TempDir,
    pub owner: Owner,
    pub callers: watch::Sender<AgentCallers>,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    pub async fn start(snapshot: Snapshot) -> Served {
        Served::with(snapshot, Limits::default()).await
    }

    pub async fn with(snapshot: Snapshot, limits: Limits) -> Served {
        Served::build(snapshot, |server| server.with_limits(limits)).await
    }

    /// Starts with the node's own volumes.
    pub async fn with_volumes(snapshot: Snapshot, engine: Engine) -> Served {
        Served::build(snapshot, |server| server.with_volumes(engine, "csi.diskvitals.io".into()))
            .await
    }

    pub async fn build(snapshot: Snapshot, change: impl FnOnce(Server) -> Server) -> Served {
        Served::within(tempfile::tempdir().unwrap(), snapshot, change).await
    }

    /// On the sockets of a server that was stopped.
    pub async fn again(stopped: Served, snapshot: Snapshot) -> Served {
        Served::within(stopped.dir, snapshot, |server| server).await
    }

    async fn within(
        dir: tempfile::TempDir,
        snapshot: Snapshot,
        change: impl FnOnce(Server) -> Server,
    ) -> Served {
        let (owner, handle) = Owner::start(snapshot);
        let (callers, allowed) = watch::channel(AgentCallers::default());
        let (stop, stopped) = oneshot::channel();
        let main = bind(&dir.path().join("main.sock"), SocketAccess::Group).await.unwrap();
        let agent = bind(&dir.path().join("csi/agent.sock"), SocketAccess::Anyone).await.unwrap();
        let server = change(Server::new(handle, node(), allowed));
        let task = tokio::spawn(async move {
            let until = async move { drop(stopped.await) };
            server.serve(main, Some(agent), until).await.unwrap();
        });
        Served { dir, owner, callers, stop: Some(stop), task }
    }

    /// The uid may do everything on the agent's socket.
    pub fn allow(&self, uid: u32) {
        self.callers
            .send_replace(AgentCallers { allow_uids: vec![uid], ..AgentCallers::default() });
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("main.sock")
    }

    pub fn agent_socket(&self) -> PathBuf {
        self.dir.path().join("csi/agent.sock")
    }

    pub async fn client(&self) -> Client {
        client(&self.socket()).await
    }

    /// Stops the server; it has ended when this returns.
    pub async fn stop(&mut self) {
        drop(self.stop.take());
        (&mut self.task).await.unwrap();
    }
}

pub async fn client(socket: &Path) -> Client {
    Client::connect(socket, Duration::from_secs(30)).await.unwrap()
}

pub fn node() -> NodeFacts {
    NodeFacts {
        name: "node1".into(),
        kernel: "6.12.0".into(),
        boot_id: "b".into(),
        machine_id: "m".into(),
        version: "0.1.0".into(),
        started: now(),
        limitations: Vec::new(),
    }
}

/// A raw client, for requests that the typed client does not send.
pub async fn channel(socket: &Path) -> tonic::transport::Channel {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: tonic::transport::Uri| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
    });
    tonic::transport::Endpoint::from_static("http://localhost")
        .connect_with_connector(connector)
        .await
        .unwrap()
}

pub async fn within<T>(seconds: u64, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(seconds), future).await.expect("in time")
}
