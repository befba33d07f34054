//! The classifier: records in, incidents out, at the very record that decides one.
//!
//! In: records in their order, each with the time to put on its evidence. Out: `Event`s and
//! `Attached`s. Pure and bounded: what is open is forgotten after a while, and `oldest_open` tells
//! from where a restarted reader must read again to decide it the same way.

mod emit;
mod incident_update;

use jiff::Timestamp;

use crate::model::kernel_log::device_map::DeviceMap;
use crate::model::kernel_log::event::{
    Blame, Class, DeviceName, Domain, Event, Line, LineOrigin, MAX_LINE_BYTES, NameAssignment,
};
use crate::model::kernel_log::incident::{Incident, LogPosition};
use crate::model::kernel_log::parsed_record::{
    AtaRecord, DeviceKind, ParsedRecord, RecordKind, ScsiRecord, TopologyUpdate,
};
use crate::model::kernel_log::record::Record;
use crate::model::kernel_log::rule::{Role, Rule};
use crate::model::kernel_log::{device_map, device_name, rules};

/// Incidents that are open at once; a machine with more failing drives has told enough.
const MAX_OPEN_INCIDENTS: usize = 64;
/// When something has been open without a pause for this many records, all is closed: a reader need
/// not go back farther.
const MAX_OPEN_RECORDS: u64 = 16_384;
/// How long a way that is in trouble explains what the devices behind it do.
const OUTAGE_MICROS: u64 = 300_000_000;
const OUTAGE_RECORDS: u64 = 4_096;
/// A record without a device is of the device of the records just before (3.10's SCSI, torn lines).
const CONTEXT_RECORDS: u64 = 8;
const MAX_PENDING_NOTICES: usize = 1_024;

/// What the classifier is to know of the host.
#[derive(Clone, Debug, Default)]
pub struct ClassifierOptions {
    /// Kernel names that count as drives although they usually do not; `*` at the end stands for
    /// anything (`loop*`).
    pub admit: Vec<String>,
}

impl ClassifierOptions {
    fn admits(&self, name: &str) -> bool {
        self.admit
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == pattern,
            })
    }
}

#[derive(Debug, Default)]
pub struct Classifier {
    options: ClassifierOptions,
    device_map: DeviceMap,
    open_incidents: Vec<Incident>,
    /// Since when something has been open without a pause.
    open_since: Option<u64>,
    /// The device of the last SCSI and the last ATA record.
    last_scsi: Option<(DeviceName, Option<DeviceName>, u64)>,
    last_ata: Option<(DeviceName, u64)>,
    /// `attempting task abort!` without a device.
    unnamed_recovery: Option<UnnamedRecovery>,
    /// The device of the last command that an adapter named by its address.
    last_addressed: Option<(String, DeviceName, Option<DeviceName>)>,
    /// `rejecting I/O to offline device`, whose disk's name comes with the block layer's record.
    offline_rejection: Option<(DeviceName, LogPosition)>,
    /// `312 callbacks suppressed`, to be told with the next event.
    suppressed: Option<(u64, LogPosition)>,
    /// A network is down or has been: what SCSI disks behind it do is explained.
    network_outage: Option<LogPosition>,
    /// A slot is empty: what NVMe drives do is explained.
    slot_outage: Option<LogPosition>,
    name_assignments: Vec<NameAssignment>,
    rejected_requests: Vec<RejectedRequest>,
    last_seq: u64,
}

/// A request that was refused because it cannot be: the same request's error elsewhere in the log
/// is none either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedRequest {
    pub device: DeviceName,
    pub sector: Option<u64>,
}

#[derive(Debug)]
struct UnnamedRecovery {
    class: Class,
    blame: Blame,
    rule: &'static Rule,
    line: Line,
    address: String,
}

/// What is told of, and with which records.
struct RecordContext<'a> {
    rule: &'static Rule,
    parsed: &'a ParsedRecord,
    line: Line,
    position: LogPosition,
}

impl Classifier {
    pub fn new(scope: ClassifierOptions) -> Classifier {
        Classifier {
            options: scope,
            ..Classifier::default()
        }
    }

    /// One record more. `time` is what its evidence carries: of arrival when read live, the
    /// kernel's otherwise.
    pub fn push(&mut self, record: &Record<'_>, time: Timestamp, out: &mut Vec<Event>) {
        let now = LogPosition {
            seq: record.seq,
            time_us: record.time_us,
        };
        if record.seq < self.last_seq {
            self.reset_for_boot();
        }
        self.last_seq = record.seq;
        if self.open_since.is_some() {
            self.expire(now, time, out);
        }
        // What is not the kernel's own anybody can write: it only counts as distance.
        if record.facility != 0 {
            return self.update_open_since(record.seq);
        }
        let read = rules::table().parse(&record.text);
        if self.unnamed_recovery.is_some() {
            self.finish_unnamed_recovery(read.as_ref().map(|(_, parsed)| parsed), now, out);
        }
        if let Some((rule, mut parsed)) = read {
            self.resolve_device(&mut parsed, record, now);
            let line = Line {
                time,
                text: truncate(&record.text),
                origin: LineOrigin::KernelLog,
            };
            self.apply_record(
                &RecordContext {
                    rule,
                    parsed: &parsed,
                    line,
                    position: now,
                },
                out,
            );
        }
        self.update_open_since(record.seq);
    }

    fn update_open_since(&mut self, seq: u64) {
        if self.is_idle() {
            self.open_since = None;
            // A reader that begins here has no device in mind either.
            (self.last_scsi, self.last_ata) = (None, None);
        } else if self.open_since.is_none() {
            self.open_since = Some(seq);
        }
    }

    /// No more records will come: what waited for them is decided as it is.
    pub fn finish(&mut self, time: Timestamp, out: &mut Vec<Event>) {
        let now = LogPosition {
            seq: self.last_seq,
            time_us: 0,
        };
        self.finish_unnamed_recovery(None, now, out);
        for mut incident in std::mem::take(&mut self.open_incidents) {
            self.decide_command(&mut incident, true, now, time, out);
        }
        self.open_since = None;
    }

    /// Sequence number from which records must be read again for what is open now to be decided the
    /// same way. None: nothing is open.
    pub fn oldest_open(&self) -> Option<u64> {
        self.open_since
    }

    /// Names that were given since the last call.
    pub fn take_name_assignments(&mut self) -> Vec<NameAssignment> {
        std::mem::take(&mut self.name_assignments)
    }

    /// Devices whose errors turned out to be none since the last call: the host asked for what
    /// cannot be.
    pub fn take_rejected_requests(&mut self) -> Vec<RejectedRequest> {
        std::mem::take(&mut self.rejected_requests)
    }

    fn is_idle(&self) -> bool {
        self.open_incidents.is_empty()
            && self.unnamed_recovery.is_none()
            && self.suppressed.is_none()
            && self.network_outage.is_none()
            && self.slot_outage.is_none()
    }

    /// Names begin anew, and nothing of before is open.
    fn reset_for_boot(&mut self) {
        let (scope, attached) = (
            std::mem::take(&mut self.options),
            std::mem::take(&mut self.name_assignments),
        );
        *self = Classifier {
            options: scope,
            name_assignments: attached,
            ..Classifier::default()
        };
    }

    fn expire(&mut self, now: LogPosition, time: Timestamp, out: &mut Vec<Event>) {
        let all = self
            .open_since
            .is_some_and(|since| now.seq.saturating_sub(since) > MAX_OPEN_RECORDS);
        let mut at = 0;
        while at < self.open_incidents.len() {
            let over = all || self.open_incidents[at].is_expired(now);
            if over
                || self.open_incidents[at]
                    .command
                    .is_some_and(|command| !command.decided && command.is_expired(now))
            {
                let mut incident = self.open_incidents.swap_remove(at);
                self.decide_command(&mut incident, true, now, time, out);
                if over {
                    continue;
                }
                self.open_incidents.push(incident);
                let last = self.open_incidents.len() - 1;
                self.open_incidents.swap(at, last);
            }
            at += 1;
        }
        if self
            .suppressed
            .is_some_and(|(_, since)| all || now.is_beyond(since, 10_000_000, 64))
        {
            self.suppressed = None;
        }
        for trouble in [&mut self.network_outage, &mut self.slot_outage] {
            if trouble
                .is_some_and(|since| all || now.is_beyond(since, OUTAGE_MICROS, OUTAGE_RECORDS))
            {
                *trouble = None;
            }
        }
        if all {
            self.open_since = None;
        }
    }

    /// Which device a record is of, when its text alone does not say or another name is better.
    fn resolve_device(&mut self, parsed: &mut ParsedRecord, record: &Record<'_>, now: LogPosition) {
        if let (DeviceName::Block(name), Some(DeviceName::Hctl(hctl))) =
            (&parsed.device, &parsed.other_name)
        {
            self.device_map.assign_name(hctl, name);
        }
        let near = |seq: u64| now.seq.saturating_sub(seq) <= CONTEXT_RECORDS;
        if parsed.device == DeviceName::Unnamed {
            if let Some(device) = record.device.and_then(device_from_field) {
                parsed.device = device;
            } else if let (RecordKind::Scsi(_), Some((device, also, seq))) =
                (&parsed.kind, &self.last_scsi)
            {
                if near(*seq)
                    && !matches!(
                        parsed.kind,
                        RecordKind::Scsi(ScsiRecord::UnnamedRecovery(..))
                    )
                {
                    parsed.device = device.clone();
                    parsed.other_name = also.clone();
                }
            } else if let (RecordKind::Ata(_), Some((device, seq))) = (&parsed.kind, &self.last_ata)
                && near(*seq)
            {
                parsed.device = device.clone();
            }
        }
        // Only records that open an incident: a reader that begins again there has the same
        // context.
        match (&parsed.kind, &parsed.device) {
            (RecordKind::Ata(_), DeviceName::Ata { .. }) => {
                self.last_ata = Some((parsed.device.clone(), now.seq))
            }
            (RecordKind::Scsi(_), DeviceName::Hctl(_)) => {
                self.last_scsi = Some((parsed.device.clone(), parsed.other_name.clone(), now.seq))
            }
            (RecordKind::Scsi(_), DeviceName::Block(_))
                if matches!(parsed.other_name, Some(DeviceName::Hctl(_))) =>
            {
                self.last_scsi = Some((parsed.device.clone(), parsed.other_name.clone(), now.seq));
            }
            _ => {}
        }
        if let Some(block) = self.device_map.block_name(&parsed.device) {
            parsed.other_name = Some(std::mem::replace(&mut parsed.device, block));
        }
        self.link_offline_rejection(parsed, now);
    }

    /// `sd 6:1:8:0: rejecting I/O to offline device`, and then the block layer's `dev sdi`: the two
    /// are one (scsi_prep_state_check()).
    fn link_offline_rejection(&mut self, parsed: &mut ParsedRecord, now: LogPosition) {
        match (&parsed.device, &parsed.kind) {
            (DeviceName::Hctl(_), RecordKind::Effect(Class::Removed, _)) => {
                self.offline_rejection = Some((parsed.device.clone(), now))
            }
            (DeviceName::Block(name), RecordKind::Effect(..))
                if name.starts_with("sd") && device_name::whole_disk(name) == name =>
            {
                let Some((DeviceName::Hctl(hctl), at)) = self.offline_rejection.take() else {
                    return;
                };
                if !now.is_beyond(at, 1_000_000, 3)
                    && self.device_map.hctl_of(&parsed.device).is_none()
                {
                    if let Some(incident) = self
                        .open_incidents
                        .iter_mut()
                        .find(|incident| incident.key == hctl)
                    {
                        incident.key = name.clone();
                    }
                    self.device_map.assign_name(&hctl, name);
                    parsed.other_name = Some(DeviceName::Hctl(hctl));
                }
            }
            _ => {}
        }
    }

    fn apply_record(&mut self, context: &RecordContext<'_>, out: &mut Vec<Event>) {
        let parsed = context.parsed;
        let of_filesystem = context.rule.behavior.domain == Domain::Filesystem;
        match &parsed.kind {
            RecordKind::Topology(learn) => return self.apply_topology(learn, context, out),
            RecordKind::Suppressed(count) => {
                self.suppressed = Some((*count, context.position));
                return;
            }
            RecordKind::Scsi(ScsiRecord::UnnamedRecovery(class, blame, address)) => {
                self.unnamed_recovery = Some(UnnamedRecovery {
                    class: *class,
                    blame: *blame,
                    rule: context.rule,
                    line: context.line.clone(),
                    address: address.clone(),
                });
                return;
            }
            _ => {}
        }
        if !of_filesystem && self.is_excluded(parsed, &context.line.text) {
            return;
        }
        let role = context.rule.behavior.role;
        if role == Some(Role::NetworkOutage) {
            self.network_outage = Some(context.position);
        }
        if role == Some(Role::UsbStorage) {
            let host = match (&parsed.device, &parsed.other_name) {
                (DeviceName::ScsiHost(host), _) => Some(*host),
                (DeviceName::Hctl(hctl), _) | (_, Some(DeviceName::Hctl(hctl))) => {
                    device_map::scsi_host_of(hctl)
                }
                _ => None,
            };
            if let Some(host) = host {
                self.device_map
                    .set_kind(&DeviceName::ScsiHost(host), DeviceKind::Usb);
            }
        }
        let key = if of_filesystem {
            format!("fs:{}", parsed.device)
        } else {
            self.device_map.drive_key(&parsed.device)
        };
        let mut incident =
            self.take_incident(key, parsed, context.position, context.line.time, out);
        incident.touch(context.position);
        // What is said of the report to come tells nothing by itself, and is no evidence.
        if parsed.kind != RecordKind::Ata(AtaRecord::NcqLogUnreadable) {
            if incident.first_unreported.is_none() && incident.unreported_records == 0 {
                incident.first_unreported = Some(context.line.clone());
            }
            incident.unreported_records += 1;
        }
        self.update_incident(&mut incident, context, out);
        self.open_incidents.push(incident);
    }

    /// The incident that is open on this device, or a new one.
    fn take_incident(
        &mut self,
        key: String,
        parsed: &ParsedRecord,
        now: LogPosition,
        time: Timestamp,
        out: &mut Vec<Event>,
    ) -> Incident {
        if let Some(at) = self
            .open_incidents
            .iter()
            .position(|incident| incident.key == key)
        {
            return self.open_incidents.swap_remove(at);
        }
        // The SCSI layer tells again what libata has told of a port whose disk is not known yet:
        // now it is.
        if let (RecordKind::Scsi(_), Some(DeviceName::Hctl(hctl))) =
            (&parsed.kind, &parsed.other_name)
        {
            let port = self.open_incidents.iter().position(|incident| {
                (incident.pending_repeats > 0 || incident.ata.failed_command_unknown)
                    && ata_port_of(&incident.key)
                        .is_some_and(|port| self.device_map.host_of_port(port).is_none())
            });
            if let (Some(at), Some(host), ":0:0:0") = (
                port,
                device_map::scsi_host_of(hctl),
                hctl.trim_start_matches(|c: char| c.is_ascii_digit()),
            ) {
                let mut incident = self.open_incidents.swap_remove(at);
                if let Some(port) = ata_port_of(&incident.key) {
                    self.device_map.link_port_to_host(port, host);
                }
                incident.key = key;
                return incident;
            }
        }
        if self.open_incidents.len() >= MAX_OPEN_INCIDENTS {
            let mut oldest = self.open_incidents.swap_remove(0);
            self.decide_command(&mut oldest, true, now, time, out);
        }
        Incident::open(key, now)
    }

    /// `attempting task abort!`: the command's record comes next, or what comes next is something
    /// else.
    fn finish_unnamed_recovery(
        &mut self,
        next: Option<&ParsedRecord>,
        now: LogPosition,
        out: &mut Vec<Event>,
    ) {
        let Some(UnnamedRecovery {
            class,
            blame,
            rule,
            line,
            address,
        }) = self.unnamed_recovery.take()
        else {
            return;
        };
        let mut parsed = match next {
            Some(next)
                if matches!(next.kind, RecordKind::Scsi(_))
                    && matches!(next.device, DeviceName::Hctl(_) | DeviceName::Block(_)) =>
            {
                ParsedRecord {
                    other_name: next.other_name.clone(),
                    ..ParsedRecord::new(next.device.clone(), RecordKind::Cause(class, blame))
                }
            }
            _ => match &self.last_addressed {
                Some((known, device, also)) if *known == address && !address.is_empty() => {
                    ParsedRecord {
                        other_name: also.clone(),
                        ..ParsedRecord::new(device.clone(), RecordKind::Cause(class, blame))
                    }
                }
                _ => ParsedRecord::new(DeviceName::Unnamed, RecordKind::Cause(class, blame)),
            },
        };
        self.last_addressed = Some((address, parsed.device.clone(), parsed.other_name.clone()));
        if let Some(block) = self.device_map.block_name(&parsed.device) {
            parsed.other_name = Some(std::mem::replace(&mut parsed.device, block));
        }
        self.apply_record(
            &RecordContext {
                rule,
                parsed: &parsed,
                line,
                position: now,
            },
            out,
        );
    }

    fn apply_topology(
        &mut self,
        learn: &TopologyUpdate,
        context: &RecordContext<'_>,
        out: &mut Vec<Event>,
    ) {
        let parsed = context.parsed;
        match learn {
            TopologyUpdate::DiskAttached | TopologyUpdate::FilesystemMounted => {
                let (DeviceName::Block(name) | DeviceName::Nvme(name)) = &parsed.device else {
                    return;
                };
                let filesystem = *learn == TopologyUpdate::FilesystemMounted;
                if let Some(DeviceName::Block(host)) = &parsed.other_name
                    && device_name::is_mmc_host(host)
                {
                    self.device_map.add_card(host, name);
                }
                // What is open under the name is of what had it before.
                let key = if filesystem {
                    format!("fs:{name}")
                } else {
                    self.device_map.drive_key(&parsed.device)
                };
                if let Some(at) = self
                    .open_incidents
                    .iter()
                    .position(|incident| incident.key == key)
                {
                    let mut former = self.open_incidents.swap_remove(at);
                    self.decide_command(
                        &mut former,
                        true,
                        context.position,
                        context.line.time,
                        out,
                    );
                }
                if self.name_assignments.len() >= MAX_PENDING_NOTICES {
                    self.name_assignments.remove(0);
                }
                self.name_assignments.push(NameAssignment {
                    seq: context.position.seq,
                    name: name.clone(),
                    at: context.line.time,
                    is_filesystem: filesystem,
                });
            }
            TopologyUpdate::ScsiHost { host, driver } => {
                self.device_map.add_scsi_host(*host, driver)
            }
            TopologyUpdate::AtaPort(port) => self.device_map.add_ata_port(*port),
            TopologyUpdate::AtaPortOfHost => {
                if let (DeviceName::Ata { port, .. }, Some(DeviceName::Hctl(hctl))) =
                    (&parsed.device, &parsed.other_name)
                    && let Some(host) = device_map::scsi_host_of(hctl)
                {
                    self.device_map.link_port_to_host(*port, host);
                }
            }
            TopologyUpdate::Model(model) => {
                if is_virtual_model(model) {
                    self.device_map
                        .set_kind(&parsed.device, DeviceKind::Virtual);
                }
            }
            TopologyUpdate::Kind(kind) => self.device_map.set_kind(&parsed.device, *kind),
            TopologyUpdate::UsbReset(path) => {
                if let Some(host) = self.device_map.host_of_usb_path(path) {
                    let parsed = ParsedRecord::new(
                        DeviceName::ScsiHost(host),
                        RecordKind::Cause(Class::Reset, Blame::No),
                    );
                    let key = self.device_map.drive_key(&parsed.device);
                    let mut incident =
                        self.take_incident(key, &parsed, context.position, context.line.time, out);
                    incident.touch(context.position);
                    let new = !incident.reported.contains(Class::Reset);
                    let context = RecordContext {
                        rule: context.rule,
                        parsed: &parsed,
                        line: context.line.clone(),
                        position: context.position,
                    };
                    self.emit(&mut incident, &context, Class::Reset, Blame::No, new, out);
                    self.open_incidents.push(incident);
                }
            }
            TopologyUpdate::SlotEmptied => self.slot_outage = Some(context.position),
            TopologyUpdate::UsbDisconnect(path) => {
                if let Some(host) = self.device_map.host_of_usb_path(path) {
                    self.device_map
                        .set_kind(&DeviceName::ScsiHost(host), DeviceKind::Usb);
                }
            }
            TopologyUpdate::VirtualMachine => self.device_map.is_virtual_machine = true,
            TopologyUpdate::Boot => self.reset_for_boot(),
        }
    }
}

fn is_virtual_model(model: &str) -> bool {
    [
        "QEMU",
        "VMware",
        "VBOX",
        "Msft",
        "Virtual",
        "VIRTUAL",
        "LIO-ORG",
        "IET",
        "scsi_debug",
        "Google  PersistentDisk",
        "Google",
        "XENSRC",
        "Nutanix",
        "NUTANIX",
    ]
    .iter()
    .any(|word| model.contains(word))
}

fn ata_port_of(key: &str) -> Option<u32> {
    key.strip_prefix("ata")?.parse().ok()
}

/// `DEVICE=` of /dev/kmsg: `b8:16`, `+scsi:6:0:0:0`, `+pci:0000:03:00.0`.
fn device_from_field(field: &str) -> Option<DeviceName> {
    if let Some(number) = field.strip_prefix('b') {
        return number.parse().ok().map(DeviceName::Number);
    }
    let (bus, name) = field.strip_prefix('+')?.split_once(':')?;
    match bus {
        "scsi" => device_name::parse(name),
        "pci" => Some(DeviceName::Pci(name.to_owned())),
        _ => None,
    }
}

fn truncate(text: &str) -> String {
    let mut end = text.len().min(MAX_LINE_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
