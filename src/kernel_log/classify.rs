//! The classifier of kernel records: reports an incident at the record that decides it.
//!
//! In: records in order, each with the time for its evidence. Out: `Event`s and `NameAssignment`s.
//! Pure and bounded: open incidents expire. A restarted reader that begins at `oldest_open` obtains
//! the same decisions.

mod host_state;
mod incident_update;
mod topology;

use jiff::Timestamp;

use crate::classify::host_state::HostState;
use crate::classify::incident_update::IncidentUpdate;
use crate::event::{
    Blame, Class, DeviceName, Domain, Event, FullRead, Line, MAX_LINE_BYTES, NameAssignment,
};
use crate::incident::{Incident, LogPosition};
use crate::parsed_record::{AtaRecord, DeviceKind, ParsedRecord, RecordKind, ScsiRecord};
use crate::record::Record;
use crate::rule::{Role, Rule};
use crate::{device_map, rules};

/// Maximum number of open incidents; with more failing drives, the oldest is decided early.
const MAX_OPEN_INCIDENTS: usize = 64;
/// After this many records without an idle moment, all incidents are closed: a reader never has to
/// return farther.
const MAX_OPEN_RECORDS: u64 = 16_384;
const MAX_PENDING_NOTICES: usize = 1_024;

/// The classifier's configuration for this host.
#[derive(Clone, Debug, Default)]
pub struct ClassifierOptions {
    /// Kernel names that count as drives although they usually do not; a final `*` matches any end
    /// (`loop*`).
    pub admit: Vec<String>,
    /// The owner of the events knows from sysfs which devices there are and what is between them and the
    /// host. Then no record excuses an error: not one that names a kind of device, nor one of an outage.
    pub knows_devices: bool,
}

impl ClassifierOptions {
    fn admits(&self, name: &str) -> bool {
        self.admit.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        })
    }
}

#[derive(Debug, Default)]
pub struct Classifier {
    host: HostState,
    open_incidents: Vec<Incident>,
    /// The record since which at least one incident has been open without a pause.
    open_since: Option<u64>,
    /// `attempting task abort!` without a device.
    unnamed_recovery: Option<UnnamedRecovery>,
    /// The last command for which an adapter printed an address, with its device.
    last_addressed: Option<(String, DeviceName, Option<DeviceName>)>,
    pending: PendingNotices,
    name_assignments: Vec<NameAssignment>,
    full_reads: Vec<FullRead>,
    last_seq: u64,
}

/// Notices that wait for the next event or the next batch.
#[derive(Debug, Default)]
struct PendingNotices {
    /// `312 callbacks suppressed`; the next rate-limited event reports the count.
    suppressed: Option<(u64, LogPosition)>,
    rejected_requests: Vec<RejectedRequest>,
}

impl PendingNotices {
    fn add_rejected_request(&mut self, parsed: &ParsedRecord) {
        if self.rejected_requests.len() < MAX_PENDING_NOTICES {
            self.rejected_requests
                .push(RejectedRequest { device: parsed.device.clone(), sector: parsed.sector });
        }
    }
}

/// A request that the device rejected as impossible, as the block layer reports it. An excerpt of a
/// log can begin in the middle of a report: the analysis of a whole log does not count the same
/// failed request without its cause. The daemon never takes an error back.
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

/// A parsed record with its rule and its evidence.
#[derive(Clone, Copy)]
struct RecordContext<'a> {
    rule: &'static Rule,
    parsed: &'a ParsedRecord,
    line: &'a Line,
    position: LogPosition,
}

impl Classifier {
    pub fn new(options: ClassifierOptions) -> Classifier {
        Classifier { host: HostState::new(options), ..Classifier::default() }
    }

    /// Classifies the next record. `time` is the time of its evidence: the time of arrival for live
    /// records, the kernel's time for others.
    pub fn push(&mut self, record: &Record<'_>, time: Timestamp, out: &mut Vec<Event>) {
        let now = LogPosition { seq: record.seq, time_us: record.time_us };
        if record.seq < self.last_seq {
            self.reset_for_boot();
        }
        self.last_seq = record.seq;
        if self.open_since.is_some() {
            self.expire(now, time, out);
        }
        // Any process can write records of other facilities, and choose texts that the kernel appends
        // to a line: they only count as distance.
        if record.facility != 0 || !record.begins_line {
            return self.update_open_since(record.seq);
        }
        let read = rules::table().parse(&record.text);
        if self.unnamed_recovery.is_some() {
            self.finish_unnamed_recovery(read.as_ref().map(|(_, parsed)| parsed), now, out);
        }
        if let Some((rule, mut parsed)) = read {
            if let Some(renamed) =
                self.host.resolve_device(&mut parsed, rule.family.role, record, now)
                && let Some(incident) =
                    self.open_incidents.iter_mut().find(|incident| incident.key == renamed.hctl)
            {
                incident.key = renamed.block;
            }
            let text = &record.text[..record.text.floor_char_boundary(MAX_LINE_BYTES)];
            let context = RecordContext {
                rule,
                parsed: &parsed,
                line: &Line::of_kernel_log(time, text.to_owned()),
                position: now,
            };
            self.apply_record(&context, out);
        }
        self.update_open_since(record.seq);
    }

    fn update_open_since(&mut self, seq: u64) {
        if self.is_idle() {
            self.open_since = None;
            self.host.forget_context();
        } else if self.open_since.is_none() {
            self.open_since = Some(seq);
        }
    }

    /// No more records will come: undecided commands are decided as they are.
    pub fn finish(&mut self, time: Timestamp, out: &mut Vec<Event>) {
        let now = LogPosition { seq: self.last_seq, time_us: 0 };
        self.finish_unnamed_recovery(None, now, out);
        for mut incident in std::mem::take(&mut self.open_incidents) {
            self.update(&mut incident, out).finish_command(now, time);
        }
        self.open_since = None;
    }

    /// Sequence number from which a new reader must start to decide the open incidents equally.
    /// None: no incident is open.
    pub fn oldest_open(&self) -> Option<u64> {
        self.open_since
    }

    /// Names that the kernel assigned since the last call.
    pub fn take_name_assignments(&mut self) -> Vec<NameAssignment> {
        std::mem::take(&mut self.name_assignments)
    }

    /// Begins and ends of reads of whole devices since the last call.
    pub fn take_full_reads(&mut self) -> Vec<FullRead> {
        std::mem::take(&mut self.full_reads)
    }

    /// No bridge, network or hypervisor is known between the host and the device.
    pub fn is_attached_directly(&self, device: &DeviceName) -> bool {
        self.host.devices.kind_of(device) == DeviceKind::Direct
    }

    /// The log reports that something was unplugged, since the boot.
    pub fn has_unplugged_device(&self) -> bool {
        self.host.devices.has_unplugged_device
    }

    /// Requests that devices rejected as impossible since the last call.
    pub fn take_rejected_requests(&mut self) -> Vec<RejectedRequest> {
        std::mem::take(&mut self.pending.rejected_requests)
    }

    fn is_idle(&self) -> bool {
        self.open_incidents.is_empty()
            && self.unnamed_recovery.is_none()
            && self.pending.suppressed.is_none()
            && !self.host.has_outage()
    }

    /// Resets the state for a new boot: names and sequence numbers start again.
    fn reset_for_boot(&mut self) {
        let name_assignments = std::mem::take(&mut self.name_assignments);
        *self = Classifier { name_assignments, ..Classifier::new(self.host.take_options()) };
    }

    fn update<'a>(
        &'a mut self,
        incident: &'a mut Incident,
        out: &'a mut Vec<Event>,
    ) -> IncidentUpdate<'a> {
        IncidentUpdate { incident, host: &self.host, pending: &mut self.pending, out }
    }

    fn expire(&mut self, now: LogPosition, time: Timestamp, out: &mut Vec<Event>) {
        let all =
            self.open_since.is_some_and(|since| now.seq.saturating_sub(since) > MAX_OPEN_RECORDS);
        let mut at = 0;
        while at < self.open_incidents.len() {
            let over = all || self.open_incidents[at].is_expired(now);
            if over
                || self.open_incidents[at]
                    .command
                    .is_some_and(|command| !command.decided && command.is_expired(now))
            {
                let mut incident = self.open_incidents.swap_remove(at);
                self.update(&mut incident, out).finish_command(now, time);
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
            .pending
            .suppressed
            .is_some_and(|(_, since)| all || now.is_beyond(since, 10_000_000, 64))
        {
            self.pending.suppressed = None;
        }
        self.host.expire_outages(now, all);
        if all {
            self.open_since = None;
        }
    }

    fn apply_record(&mut self, context: &RecordContext<'_>, out: &mut Vec<Event>) {
        let parsed = context.parsed;
        let of_filesystem = context.rule.family.domain == Domain::Filesystem;
        match &parsed.kind {
            RecordKind::Topology(learn) => return self.apply_topology(learn, context, out),
            RecordKind::Suppressed(count) => {
                self.pending.suppressed = Some((*count, context.position));
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
        if !of_filesystem && self.host.is_excluded(parsed, &context.line.text) {
            return;
        }
        let role = context.rule.family.role;
        if let Some(unplugged) = self.host.unplugged_disk(&parsed.device) {
            if role == Some(Role::CacheFlush) && !unplugged.is_reported {
                return;
            }
            if matches!(
                parsed.kind,
                RecordKind::Cause(..) | RecordKind::SeparateCause(..) | RecordKind::Effect(..)
            ) {
                self.report_unplugged_disk(&parsed.device, context, out);
            }
        }
        if role == Some(Role::NetworkOutage) {
            self.host.network_outage = Some(context.position);
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
                self.host.devices.set_kind(&DeviceName::ScsiHost(host), DeviceKind::Usb);
            }
        }
        let key = self.incident_key(&parsed.device, of_filesystem);
        let mut incident = self.take_incident(key, context, out);
        // This record only announces the report to come, and is no evidence.
        if parsed.kind != RecordKind::Ata(AtaRecord::NcqLogUnreadable) {
            if incident.first_unreported.is_none() && incident.unreported_records == 0 {
                incident.first_unreported = Some(context.line.clone());
            }
            incident.unreported_records += 1;
        }
        self.update(&mut incident, out).apply(context);
        self.open_incidents.push(incident);
    }

    fn incident_key(&self, device: &DeviceName, of_filesystem: bool) -> String {
        if of_filesystem { format!("fs:{device}") } else { self.host.devices.drive_key(device) }
    }

    fn take_open_incident(&mut self, key: &str) -> Option<Incident> {
        let at = self.open_incidents.iter().position(|incident| incident.key == key)?;
        Some(self.open_incidents.swap_remove(at))
    }

    /// The open incident of this device, or a new one, with this record as its last.
    fn take_incident(
        &mut self,
        key: String,
        context: &RecordContext<'_>,
        out: &mut Vec<Event>,
    ) -> Incident {
        let mut incident = self.find_or_open_incident(key, context, out);
        incident.touch(context.position);
        incident
    }

    fn find_or_open_incident(
        &mut self,
        key: String,
        context: &RecordContext<'_>,
        out: &mut Vec<Event>,
    ) -> Incident {
        if let Some(incident) = self.take_open_incident(&key) {
            return incident;
        }
        // The SCSI layer repeats libata's report of a port whose disk was unknown until now.
        if let (RecordKind::Scsi(_), Some(DeviceName::Hctl(hctl))) =
            (&context.parsed.kind, &context.parsed.other_name)
        {
            let port = self.open_incidents.iter().position(|incident| {
                (incident.pending_repeats > 0 || incident.ata.failed_command_unknown)
                    && ata_port_of(&incident.key)
                        .is_some_and(|port| self.host.devices.host_of_port(port).is_none())
            });
            if let (Some(at), Some(host), ":0:0:0") = (
                port,
                device_map::scsi_host_of(hctl),
                hctl.trim_start_matches(|c: char| c.is_ascii_digit()),
            ) {
                let mut incident = self.open_incidents.swap_remove(at);
                if let Some(port) = ata_port_of(&incident.key) {
                    self.host.devices.link_port_to_host(port, host);
                }
                incident.key = key;
                return incident;
            }
        }
        if self.open_incidents.len() >= MAX_OPEN_INCIDENTS {
            let mut oldest = self.open_incidents.swap_remove(0);
            self.update(&mut oldest, out).finish_command(context.position, context.line.time);
        }
        Incident::open(key, context.position)
    }

    /// `attempting task abort!`: the next record contains the command's device, or is unrelated.
    fn finish_unnamed_recovery(
        &mut self,
        next: Option<&ParsedRecord>,
        now: LogPosition,
        out: &mut Vec<Event>,
    ) {
        let Some(UnnamedRecovery { class, blame, rule, line, address }) =
            self.unnamed_recovery.take()
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
        self.host.prefer_block_name(&mut parsed);
        let context = RecordContext { rule, parsed: &parsed, line: &line, position: now };
        self.apply_record(&context, out);
    }
}

fn ata_port_of(key: &str) -> Option<u32> {
    key.strip_prefix("ata")?.parse().ok()
}
