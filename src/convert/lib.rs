//! Model → wire. In: parts of a snapshot. Out: messages of diskvitals.v1. It evaluates nothing; a
//! missing text becomes an empty one.

pub mod attachment;
pub mod cause;
pub mod check;
pub mod node_facts;
pub mod reasons;
pub mod smart;

use jiff::Timestamp;

use crate::node_facts::NodeFacts;
use diskvitals_finding::ids::FindingId;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::{
    Evidence, Finding, Health, SeenLevel, Status, Subject, UnknownCause, WitnessKind,
};
use diskvitals_host::clock;
use diskvitals_kernel_log::error_history::{ErrorHistory, FailedSector};
use diskvitals_kernel_log::event::Line;
use diskvitals_model::advice::{self, Action, Advice};
use diskvitals_model::assess::scrub::LastScrub;
use diskvitals_model::care::{CareState, CareTask};
use diskvitals_model::cordon::{self, Cordon};
use diskvitals_model::drive::{
    DriveDevice, DriveKind, FlashHealth, Location, Transport, WriteCache,
};
use diskvitals_model::label;
use diskvitals_model::lamp::LampOrder;
use diskvitals_model::link::{Compared, DriveLink};
use diskvitals_model::maintenance::{self, MaintenanceOrder, MaintenanceTarget};
use diskvitals_model::node_failure::{self, NodeFailure, NodeFailures};
use diskvitals_model::raid_report::RaidFamily;
use diskvitals_model::removal::{CanBePulled, Removal};
use diskvitals_model::replacement::{Step, StepKind};
use diskvitals_model::snapshot::{
    Drive, NodeContext, Presence, Snapshot, StoreStatus, UserMounts, Volume, VolumeUsage,
};
use diskvitals_model::snapshot_builder::{Change, ChangeKind, ChangedItem};
use diskvitals_model::source_update::SourceStatus;
use diskvitals_model::volume::{
    CsiStatus, ExpectedMount, MountRole, OperationalStatus, PodUse, UsageStatus, VolumeMount,
};
use diskvitals_wire as wire;
use diskvitals_wire::API_REVISION;

/// A time of the snapshot, as the wall clock has it.
pub fn time(at: Timestamp) -> prost_types::Timestamp {
    wall_time(clock::wall(at))
}

pub fn wall_time(at: Timestamp) -> prost_types::Timestamp {
    // The wire format requires nanoseconds that count forward, also before 1970.
    let (seconds, nanos) = (at.as_second(), at.subsec_nanosecond());
    if nanos < 0 {
        prost_types::Timestamp { seconds: seconds - 1, nanos: nanos + 1_000_000_000 }
    } else {
        prost_types::Timestamp { seconds, nanos }
    }
}

fn text_or_empty(value: &Option<impl ToString>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn strings<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

pub fn node(snapshot: &Snapshot, facts: &NodeFacts) -> wire::Node {
    let state = &snapshot.node;
    wire::Node {
        name: facts.name.clone(),
        kernel: facts.kernel.clone(),
        boot_id: facts.boot_id.clone(),
        machine_id: facts.machine_id.clone(),
        version: facts.version.clone(),
        api_revision: API_REVISION,
        started: Some(time(facts.started)),
        settled: snapshot.settled,
        // Before the first evaluation the health is unknown, never good.
        health: health(state.health.unwrap_or(Health::Unknown)),
        sources: state
            .sources
            .iter()
            .map(|(source, (status, since))| source_state(snapshot, *source, status, *since))
            .collect(),
        store: match &state.store {
            StoreStatus::Ok => "ok".to_owned(),
            StoreStatus::MemoryOnly(why) => why.clone(),
            StoreStatus::Opening => "opening".to_owned(),
        },
        drives: count(snapshot.drives.len()),
        volumes: count(snapshot.volumes.len()),
        active_findings: count(snapshot.findings.len()),
        stuck_probes: state.stuck_probes,
        warnings: state.warnings.clone(),
        limitations: facts.limitations.clone(),
        revision: snapshot.revision,
        pool_cordons: cordon::all(snapshot).map(|cordon| pool_cordon(&cordon)).collect(),
        node_failures: Some(node_failures(node_failure::assess(snapshot))),
        user_mounts: snapshot.node_context.user_mounts.iter().map(user_mounts).collect(),
        maintenance: all_maintenance(snapshot),
    }
}

/// By people, then by the configuration.
fn all_maintenance(snapshot: &Snapshot) -> Vec<wire::Maintenance> {
    let ordered = snapshot.maintenance.iter();
    let ordered = ordered.map(|(target, order)| maintenance(snapshot, target, order));
    let drives = snapshot.drives.values();
    let configured = drives.filter(|it| it.maintenance && it.maintenance_order.is_none());
    let configured = configured.map(|drive| wire::Maintenance {
        name: label::drive(drive),
        subject: Some(subject(snapshot, &Subject::Drive(drive.facts.id.clone()))),
        by: "the configuration".to_owned(),
        ..wire::Maintenance::default()
    });
    ordered.chain(configured).collect()
}

pub fn maintenance(
    snapshot: &Snapshot,
    target: &MaintenanceTarget,
    order: &MaintenanceOrder,
) -> wire::Maintenance {
    wire::Maintenance {
        name: maintenance::name(snapshot, target),
        subject: match target {
            MaintenanceTarget::Subject(it) => Some(subject(snapshot, it)),
            MaintenanceTarget::Node | MaintenanceTarget::Enclosure(_) => None,
        },
        by: order.by.clone(),
        note: order.note.clone(),
        since: Some(time(order.since)),
        until: Some(time(order.until())),
    }
}

fn user_mounts((uid, mounts): (&u32, &UserMounts)) -> wire::UserMounts {
    wire::UserMounts {
        uid: *uid,
        listed: count(mounts.listed),
        not_listed: count(mounts.not_listed),
    }
}

fn node_failures(found: NodeFailures) -> wire::NodeFailures {
    let failure = |failure: NodeFailure| wire::NodeFailure {
        reason: failure.reason.name().to_owned(),
        message: failure.message,
        since: Some(time(failure.since)),
    };
    wire::NodeFailures {
        failures: found.failures.into_iter().map(failure).collect(),
        unknown: found.unknown,
    }
}

fn pool_cordon(cordon: &Cordon) -> wire::PoolCordon {
    wire::PoolCordon {
        kind: cordon::name(cordon.kind).to_owned(),
        drive_id: cordon.drive.to_string(),
        reason: cordon.reason.name().to_owned(),
        since: Some(time(cordon.since)),
        message: cordon.text(clock::wall(cordon.since)),
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn source_state(
    snapshot: &Snapshot,
    source: Source,
    status: &SourceStatus,
    since: Timestamp,
) -> wire::SourceState {
    use wire::source_state::State;
    let (state, detail) = match status {
        SourceStatus::Active(detail) => (State::Active, detail),
        SourceStatus::Limited(detail) => (State::Limited, detail),
        SourceStatus::Down(detail) => (State::Down, detail),
        SourceStatus::Absent(detail) => (State::Absent, detail),
    };
    let is_missed = match (state, source) {
        (State::Limited | State::Down, _) => true,
        // Every drive is judged by it.
        (State::Absent, Source::KernelLog) => true,
        (State::Absent, Source::Smart) => snapshot.drives.values().any(|it| is_left_out(it)),
        _ => false,
    };
    wire::SourceState {
        name: source.name().to_owned(),
        state: state.into(),
        detail: detail.clone(),
        since: Some(time(since)),
        is_missed,
    }
}

fn findings(snapshot: &Snapshot, ids: &[FindingId]) -> Vec<wire::Finding> {
    let found = ids.iter().filter_map(|id| snapshot.findings.get(id));
    found.map(|it| finding(snapshot, it)).collect()
}

pub fn drive(snapshot: &Snapshot, drive: &Drive) -> wire::Drive {
    let facts = &drive.facts;
    let (presence, missing_since) = match drive.presence {
        Presence::Present => (wire::Presence::Present, None),
        Presence::Missing { since } => (wire::Presence::Missing, Some(time(since))),
    };
    wire::Drive {
        id: facts.id.to_string(),
        id_stable: facts.id_stable,
        name: facts.name.clone(),
        links: facts.links.clone(),
        vendor: text_or_empty(&facts.vendor),
        model: text_or_empty(&facts.model),
        serial: text_or_empty(&facts.serial),
        firmware: text_or_empty(&facts.firmware),
        wwn: text_or_empty(&facts.wwn),
        kind: drive_kind(facts.kind).into(),
        transport: transport(facts.transport).into(),
        size_bytes: facts.size_bytes,
        logical_block_size: facts.logical_block_size,
        physical_block_size: facts.physical_block_size,
        rotational: facts.rotational,
        removable: facts.removable,
        write_cache: match facts.write_cache {
            Some(WriteCache::WriteBack) => "write back".to_owned(),
            Some(WriteCache::WriteThrough) => "write through".to_owned(),
            None => String::new(),
        },
        location: Some(location(&facts.location)),
        state: text_or_empty(&facts.state),
        asleep: facts.asleep,
        devices: facts.devices.iter().map(drive_device).collect(),
        presence: presence.into(),
        first_seen: Some(time(drive.first_seen)),
        missing_since,
        health: health(drive.health),
        health_unknown_why: drive.health_unknown_why.clone(),
        health_unknown_cause: unknown_cause(drive.health_unknown_cause),
        health_basis: health_basis(snapshot, drive),
        findings: findings(snapshot, &drive.findings),
        maintenance: drive.maintenance,
        volume_ids: strings(&drive.volumes),
        member_of: drive.member_of.clone(),
        maintenance_order: drive.maintenance_order.as_deref().map(|order| {
            let target = MaintenanceTarget::Subject(Subject::Drive(facts.id.clone()));
            maintenance(snapshot, &target, order)
        }),
        errors: error_tallies(drive.errors.as_deref()),
        smart: drive.smart.as_deref().map(smart::of_drive),
        care: drive.care.iter().map(care_task).collect(),
        lamp: drive.lamp.as_deref().map(lamp),
        flash: drive.flash.map(flash_wear),
        drive_links: drive.links.iter().map(drive_link).collect(),
    }
}

pub fn lamp(order: &LampOrder) -> wire::Lamp {
    wire::Lamp {
        place: order.place.to_string(),
        by: order.by.clone(),
        since: Some(time(order.since)),
        until: Some(time(order.until())),
    }
}

fn flash_wear(flash: FlashHealth) -> wire::FlashWear {
    wire::FlashWear {
        used_percent: flash.used_percent().map(saturated),
        reserve_used_percent: flash.reserve_used_percent().map(saturated),
    }
}

fn drive_link(link: &DriveLink) -> wire::DriveLink {
    let now = |of: Option<Compared>| of.map_or(0, |of| saturated(of.now));
    let best = |of: Option<Compared>| of.map_or(0, |of| saturated(of.best));
    wire::DriveLink {
        kind: link.kind.name().to_owned(),
        file: link.file.clone(),
        lanes: now(link.lanes),
        best_lanes: best(link.lanes),
        rate: now(link.rate),
        best_rate: best(link.rate),
        max_lanes: link.max_lanes.map_or(0, saturated),
        max_rate: link.max_rate.map_or(0, saturated),
        shelf_lanes: now(link.shelf_lanes),
        best_shelf_lanes: best(link.shelf_lanes),
    }
}

fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn care_task(task: &CareTask) -> wire::CareTask {
    use wire::care_task::State;
    let (state, why) = match &task.state {
        CareState::Waits => (State::Waiting, ""),
        CareState::Held { why } => (State::Held, why.as_str()),
        CareState::Runs | CareState::Starts => (State::Running, ""),
    };
    wire::CareTask {
        kind: smart::self_test_kind(task.kind).into(),
        ended: task.ended.map(time),
        due: Some(time(task.due)),
        state: state.into(),
        why: why.to_owned(),
    }
}

/// Whether the drive can be pulled.
pub fn removal(snapshot: &Snapshot, of: &Drive, removal: Removal, step: Step) -> wire::Removal {
    let answer = |answer| match answer {
        CanBePulled::Yes => wire::removal::Answer::Yes.into(),
        CanBePulled::No => wire::removal::Answer::No.into(),
        CanBePulled::NotKnown => wire::removal::Answer::NotKnown.into(),
    };
    let objections = removal.objections.into_iter();
    wire::Removal {
        drive: Some(drive(snapshot, of)),
        answer: answer(removal.answer),
        objections: objections
            .map(|(why, text)| wire::removal::Objection { answer: answer(why), text })
            .collect(),
        step: Some(replacement_step(step)),
    }
}

fn replacement_step(step: Step) -> wire::ReplacementStep {
    use wire::replacement_step::Kind;
    let kind = match step.kind {
        StepKind::PutBack => Kind::PutBack,
        StepKind::NotKnown => Kind::NotKnown,
        StepKind::Save => Kind::Save,
        StepKind::Insert => Kind::Insert,
        StepKind::Unfit => Kind::Unfit,
        StepKind::Type => Kind::Type,
        StepKind::Wait => Kind::Wait,
        StepKind::Pull => Kind::Pull,
        StepKind::Done => Kind::Done,
    };
    wire::ReplacementStep {
        kind: kind.into(),
        text: step.text,
        commands: step.commands,
        warnings: step.warnings,
        replacement: step.replacement.map(|id| id.to_string()).unwrap_or_default(),
    }
}

/// Whether it is of a kind that has SMART, and the configuration excludes it.
fn is_left_out(drive: &Drive) -> bool {
    let has_smart = match drive.facts.kind {
        DriveKind::Hdd | DriveKind::Ssd | DriveKind::Nvme => true,
        DriveKind::Usb => !drive.facts.removable,
        DriveKind::Emmc | DriveKind::Virtual | DriveKind::Remote | DriveKind::Unknown => false,
    };
    has_smart && drive.smart.is_none() && drive.presence == Presence::Present
}

/// What a drive without SMART data is judged by.
fn health_basis(snapshot: &Snapshot, drive: &Drive) -> String {
    let has_answered = drive.smart.as_ref().is_some_and(|smart| smart.history.last.is_some());
    if drive.health != Health::Good || has_answered || drive.presence != Presence::Present {
        return String::new();
    }
    let array_driver = drive.facts.location.array_driver.as_deref();
    let smart = match array_driver.and_then(RaidFamily::of_driver) {
        // An array whose state nothing told is not good.
        Some(_) => "array state read from its controller",
        None if is_left_out(drive) => "SMART is not read",
        None => "no SMART",
    };
    let log = snapshot.node.sources.get(&Source::KernelLog);
    let log = match log.map(|(status, _)| status) {
        Some(SourceStatus::Active(_)) if drive.errors.is_none() => "kernel log clean",
        Some(SourceStatus::Limited(_)) if drive.errors.is_none() => {
            "no error in what was read of the kernel log"
        }
        Some(SourceStatus::Active(_) | SourceStatus::Limited(_)) => "old errors in the kernel log",
        _ => "only its error counters",
    };
    format!("{smart}; {log}")
}

fn error_tallies(history: Option<&ErrorHistory>) -> Vec<wire::ErrorTally> {
    let record = |line: &Line| {
        Some(wire::LogRecord { time: Some(time(line.time)), text: line.text.clone() })
    };
    let sector = |failed: &FailedSector| wire::FailedSector {
        device: failed.device.clone(),
        sector: failed.sector,
        times: failed.times,
    };
    let tallies = history.into_iter().flat_map(|history| &history.tallies);
    tallies
        .map(|(class, tally)| wire::ErrorTally {
            class: class.name().to_owned(),
            incidents: tally.incidents,
            records: tally.records,
            suppressed: tally.suppressed,
            corrected: tally.corrected,
            first: record(&tally.first),
            last: record(&tally.last),
            sectors: tally.sectors.iter().map(sector).collect(),
            more_sectors: tally.more_sectors,
        })
        .collect()
}

fn drive_device(device: &DriveDevice) -> wire::DriveDevice {
    wire::DriveDevice {
        name: device.name.clone(),
        dev: device.dev.to_string(),
        size_bytes: device.size_bytes,
        state: text_or_empty(&device.state),
        hctl: text_or_empty(&device.hctl),
    }
}

fn location(location: &Location) -> wire::Location {
    wire::Location {
        pci: text_or_empty(&location.pci),
        sas_address: text_or_empty(&location.sas_address),
        hctl: text_or_empty(&location.hctl),
        path: text_or_empty(&location.path),
        enclosure: text_or_empty(&location.enclosure),
        slot: text_or_empty(&location.slot),
        ata_port: location.ata_port.unwrap_or_default(),
        controllers: location.controllers.clone(),
        behind: text_or_empty(&location.raid_controller),
    }
}

fn drive_kind(kind: DriveKind) -> wire::DriveKind {
    match kind {
        DriveKind::Hdd => wire::DriveKind::Hdd,
        DriveKind::Ssd => wire::DriveKind::Ssd,
        DriveKind::Nvme => wire::DriveKind::Nvme,
        DriveKind::Emmc => wire::DriveKind::Emmc,
        DriveKind::Usb => wire::DriveKind::Usb,
        DriveKind::Virtual => wire::DriveKind::Virtual,
        DriveKind::Remote => wire::DriveKind::Remote,
        DriveKind::Unknown => wire::DriveKind::Unknown,
    }
}

fn transport(transport: Transport) -> wire::Transport {
    match transport {
        Transport::Sata => wire::Transport::Sata,
        Transport::Sas => wire::Transport::Sas,
        Transport::Scsi => wire::Transport::Scsi,
        Transport::Nvme => wire::Transport::Nvme,
        Transport::Usb => wire::Transport::Usb,
        Transport::Mmc => wire::Transport::Mmc,
        Transport::Virtio => wire::Transport::Virtio,
        Transport::Xen => wire::Transport::Xen,
        Transport::HyperV => wire::Transport::HyperV,
        Transport::Iscsi => wire::Transport::Iscsi,
        Transport::FibreChannel => wire::Transport::FibreChannel,
        Transport::NvmeFabrics => wire::Transport::NvmeFabrics,
        Transport::Nbd => wire::Transport::Nbd,
        Transport::Loop => wire::Transport::Loop,
        Transport::Raid => wire::Transport::Raid,
        Transport::Unknown => wire::Transport::Unknown,
    }
}

pub fn absent_volumes(context: &NodeContext) -> Vec<wire::AbsentVolume> {
    let absent = context.absent_volumes.iter();
    let message = |(handle, path): (&String, &HostPath)| wire::AbsentVolume {
        handle: handle.clone(),
        path: path.to_string(),
    };
    absent.map(message).collect()
}

pub fn volume(snapshot: &Snapshot, volume: &Volume) -> wire::Volume {
    let facts = &volume.facts;
    let (capacity, usage) = capacity_and_usage(volume.usage);
    wire::Volume {
        id: facts.id.to_string(),
        driver: text_or_empty(&facts.driver),
        handle: text_or_empty(&facts.handle),
        pv: text_or_empty(&facts.pv),
        block: facts.block,
        ephemeral: facts.ephemeral,
        device: text_or_empty(&facts.device),
        source: text_or_empty(&facts.source),
        filesystem: facts.fs_type.as_ref().map(|kind| wire::Filesystem {
            r#type: kind.clone(),
            uuid: text_or_empty(&facts.fs_uuid),
            label: text_or_empty(&facts.fs_label),
        }),
        mounts: facts.mounts.iter().map(mount).collect(),
        missing_mounts: facts.missing_mounts.iter().map(missing_mount).collect(),
        pods: facts.pods.iter().map(pod).collect(),
        drive_ids: strings(&facts.drive_ids),
        devices: facts.devices.clone(),
        capacity,
        usage,
        health: health(volume.health),
        health_unknown_why: volume.health_unknown_why.clone(),
        health_unknown_cause: unknown_cause(volume.health_unknown_cause),
        csi_status: match volume.csi_status {
            CsiStatus::Published => wire::CsiStatus::Published,
            CsiStatus::Staged => wire::CsiStatus::Staged,
            CsiStatus::Created => wire::CsiStatus::Created,
            CsiStatus::Failed => wire::CsiStatus::Failed,
            CsiStatus::Removed => wire::CsiStatus::Removed,
            CsiStatus::None => wire::CsiStatus::None,
        }
        .into(),
        operational_status: match volume.operational_status {
            OperationalStatus::Operative => wire::OperationalStatus::Operative,
            OperationalStatus::Inoperative => wire::OperationalStatus::Inoperative,
            OperationalStatus::Missing => wire::OperationalStatus::Missing,
        }
        .into(),
        usage_status: match volume.usage_status {
            UsageStatus::InUse => wire::UsageStatus::InUse,
            UsageStatus::Idle => wire::UsageStatus::Idle,
            UsageStatus::Released => wire::UsageStatus::Released,
            UsageStatus::Failed => wire::UsageStatus::Failed,
        }
        .into(),
        condition: volume.condition.as_ref().map(|condition| wire::Condition {
            abnormal: condition.abnormal,
            message: condition.message.clone(),
        }),
        findings: findings(snapshot, &volume.findings),
        first_seen: Some(time(volume.first_seen)),
        last_probe: volume.last_probe.map(time),
        remote: facts.remote,
        errors: error_tallies(volume.errors.as_deref()),
        device_name: facts
            .device
            .as_ref()
            .map(|name| label::device(&snapshot.inventory, name))
            .unwrap_or_default(),
        device_names: facts
            .devices
            .iter()
            .map(|name| label::device(&snapshot.inventory, name))
            .collect(),
        redundancy: volume.redundancy.clone(),
        scrubs: volume.scrubs.iter().map(last_scrub).collect(),
    }
}

fn last_scrub(scrub: &LastScrub) -> wire::LastScrub {
    wire::LastScrub {
        name: scrub.name.clone(),
        kind: scrub.kind.word().to_owned(),
        ended: scrub.ended.map(time),
        found: scrub.found,
    }
}

fn capacity_and_usage(usage: VolumeUsage) -> (Option<wire::Capacity>, Option<wire::Usage>) {
    let capacity = |total_bytes, total_inodes| Some(wire::Capacity { total_bytes, total_inodes });
    match usage {
        VolumeUsage::NotMeasured | VolumeUsage::Unknown => (None, None),
        VolumeUsage::Block { size_bytes } => (capacity(size_bytes, 0), None),
        VolumeUsage::Mounted { usage, at, stale, full_at } => (
            capacity(usage.total_bytes, usage.total_inodes),
            Some(wire::Usage {
                used_bytes: usage.used_bytes,
                available_bytes: usage.available_bytes,
                used_inodes: usage.used_inodes,
                available_inodes: usage.available_inodes,
                time: Some(time(at)),
                stale_since: stale.map(time),
                full_at: full_at.map(time),
            }),
        ),
    }
}

fn mount_role(role: MountRole) -> i32 {
    match role {
        MountRole::Host => wire::MountRole::Host,
        MountRole::Staging => wire::MountRole::Staging,
        MountRole::Pod => wire::MountRole::Pod,
    }
    .into()
}

fn mount(mount: &VolumeMount) -> wire::VolumeMount {
    wire::VolumeMount {
        path: mount.path.to_string(),
        role: mount_role(mount.role),
        options: mount.options.to_vec(),
        super_options: mount.super_options.to_vec(),
        root: mount.root.to_string(),
        pod_uid: text_or_empty(&mount.pod_uid),
    }
}

fn missing_mount(expected: &ExpectedMount) -> wire::VolumeMount {
    wire::VolumeMount {
        path: expected.path.to_string(),
        role: mount_role(expected.role),
        pod_uid: text_or_empty(&expected.pod_uid),
        ..wire::VolumeMount::default()
    }
}

fn pod(pod: &PodUse) -> wire::PodUse {
    let name = pod.name.as_ref();
    wire::PodUse {
        uid: pod.uid.clone(),
        namespace: name.map(|name| name.namespace.clone()).unwrap_or_default(),
        name: name.map(|name| name.name.clone()).unwrap_or_default(),
        volume_name: pod.volume_name.clone(),
        path: pod.path.to_string(),
    }
}

pub fn health(health: Health) -> i32 {
    match health {
        Health::Good => wire::Health::Good,
        Health::Suspect => wire::Health::Suspect,
        Health::Bad => wire::Health::Bad,
        Health::Unknown => wire::Health::Unknown,
    }
    .into()
}

fn unknown_cause(cause: Option<UnknownCause>) -> i32 {
    match cause {
        None => wire::UnknownCause::Unspecified,
        Some(UnknownCause::Failed | UnknownCause::NoSmart) => wire::UnknownCause::Failed,
        Some(UnknownCause::Pending) => wire::UnknownCause::Pending,
        Some(UnknownCause::Asleep) => wire::UnknownCause::Asleep,
    }
    .into()
}

pub fn subject(snapshot: &Snapshot, subject: &Subject) -> wire::Subject {
    let (kind, id) = match subject {
        Subject::Drive(id) => (wire::SubjectKind::Drive, id.to_string()),
        Subject::Volume(id) => (wire::SubjectKind::Volume, id.to_string()),
        Subject::Device(name) => (wire::SubjectKind::Device, name.clone()),
        Subject::Source(source) => (wire::SubjectKind::Source, source.name().to_owned()),
    };
    wire::Subject { kind: kind.into(), id, name: label::subject(snapshot, subject) }
}

pub fn severity(severity: Severity) -> wire::Severity {
    match severity {
        Severity::Info => wire::Severity::Info,
        Severity::Suspect => wire::Severity::Suspect,
        Severity::Bad => wire::Severity::Bad,
    }
}

/// What the caller of an acknowledgement has seen, as far as it says so.
pub fn seen_level(request: &wire::AcknowledgeFindingRequest) -> SeenLevel {
    SeenLevel {
        severity: match request.seen_severity() {
            wire::Severity::Unspecified => None,
            wire::Severity::Info => Some(Severity::Info),
            wire::Severity::Suspect => Some(Severity::Suspect),
            wire::Severity::Bad => Some(Severity::Bad),
        },
        status: match request.seen_status() {
            wire::FindingStatus::Unspecified => None,
            wire::FindingStatus::Information => Some(Status::Information),
            wire::FindingStatus::Degraded => Some(Status::Degraded),
            wire::FindingStatus::Inaccessible => Some(Status::Inaccessible),
            wire::FindingStatus::DataLoss => Some(Status::DataLoss),
        },
    }
}

pub fn finding(snapshot: &Snapshot, finding: &Finding) -> wire::Finding {
    wire::Finding {
        id: finding.id.to_string(),
        subject: Some(subject(snapshot, &finding.subject)),
        severity: severity(finding.severity).into(),
        status: match finding.status {
            Status::Information => wire::FindingStatus::Information,
            Status::Degraded => wire::FindingStatus::Degraded,
            Status::Inaccessible => wire::FindingStatus::Inaccessible,
            Status::DataLoss => wire::FindingStatus::DataLoss,
        }
        .into(),
        reason: finding.reason.name().to_owned(),
        message: finding.message.clone(),
        since: Some(time(finding.since)),
        last_seen: Some(time(finding.last_seen)),
        count: finding.count,
        evidence: finding.evidence.iter().map(self::evidence).collect(),
        clears_when: finding.clears_when.clone(),
        acknowledged: finding.acknowledged.as_ref().map(|ack| wire::Acknowledgement {
            by: ack.by.clone(),
            time: Some(time(ack.time)),
            note: ack.note.clone(),
        }),
        cleared: finding.cleared.as_ref().map(|cleared| wire::Cleared {
            time: Some(time(cleared.time)),
            why: cleared.why.clone(),
        }),
        follows: finding.follows.as_ref().map(ToString::to_string).unwrap_or_default(),
        action: advice::for_finding(snapshot, finding),
        maintained: finding.maintained.then_some(true),
    }
}

/// A change for a watcher. The findings inside a drive or volume are those of `snapshot`.
pub fn change(snapshot: &Snapshot, change: &Change) -> wire::WatchEvent {
    use wire::watch_event::Change as Kind;
    let kind = match change.kind {
        ChangeKind::Added => Kind::Added,
        ChangeKind::Modified => Kind::Modified,
        ChangeKind::Removed => Kind::Removed,
    };
    wire::WatchEvent {
        revision: change.revision,
        time: Some(time(change.time)),
        change: kind.into(),
        item: Some(item(snapshot, &change.item)),
    }
}

pub fn item(snapshot: &Snapshot, of: &ChangedItem) -> wire::watch_event::Item {
    use wire::watch_event::Item;
    match of {
        ChangedItem::Drive(it) => Item::Drive(drive(snapshot, it)),
        ChangedItem::Volume(it) => Item::Volume(volume(snapshot, it)),
        ChangedItem::Check(it) => Item::Check(check::check(it)),
        ChangedItem::Finding(it) => Item::Finding(finding(snapshot, it)),
        ChangedItem::Cause(it) => Item::Cause(cause::cause(snapshot, it)),
    }
}

pub fn advice(advice: &Advice) -> wire::Advice {
    use wire::advice::Action as Wire;
    let action = match advice.action {
        Action::Nothing => Wire::Nothing,
        Action::Watch => Wire::Watch,
        Action::Cool => Wire::Cool,
        Action::LookAtPath => Wire::LookAtPath,
        Action::ReseatCable => Wire::ReseatCable,
        Action::PlanReplacement => Wire::PlanReplacement,
        Action::BringBack => Wire::BringBack,
        Action::ReplaceNow => Wire::ReplaceNow,
    };
    wire::Advice {
        drive_id: advice.drive.to_string(),
        health: health(advice.health),
        action: action.into(),
        sentence: advice.sentence.clone(),
    }
}

fn evidence(evidence: &Evidence) -> wire::Evidence {
    wire::Evidence {
        source: evidence.source.clone(),
        time: Some(time(evidence.time)),
        text: evidence.text.clone(),
        witness: match evidence.witness {
            WitnessKind::KernelLog => wire::WitnessKind::KernelLog,
            WitnessKind::Inventory => wire::WitnessKind::Inventory,
            WitnessKind::Probe => wire::WitnessKind::Probe,
            WitnessKind::Smart => wire::WitnessKind::Smart,
            WitnessKind::Counter => wire::WitnessKind::Counter,
            WitnessKind::Check => wire::WitnessKind::Check,
            WitnessKind::MountTable => wire::WitnessKind::MountTable,
            WitnessKind::Layer => wire::WitnessKind::Layer,
            WitnessKind::Other => wire::WitnessKind::Other,
        }
        .into(),
        present: evidence.present,
    }
}
