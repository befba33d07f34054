//! The effect of a record on its device's open incident: opens, joins, decides or explains it.
//!
//! In: an incident, a parsed record, the state of the host. Out: `Event`s. Each kind of record has
//! its function; none reads the text.

use jiff::Timestamp;

use crate::classify::host_state::HostState;
use crate::classify::{PendingNotices, RecordContext};
use crate::event::{Blame, Class, DamagedCopies, Domain, Event, Line};
use crate::incident::{ClassSet, ExpectedFailure, Incident, LogPosition, ScsiCommand};
use crate::parsed_record::{AtaRecord, ParsedRecord, RecordKind, ScsiRecord};
use crate::rule::Role;
use crate::rules::derived;
use crate::scsi_sense::Interpretation;

/// One record's effect on one incident. `apply` handles a record, `finish_command` the end of an
/// undecided SCSI command.
pub(super) struct IncidentUpdate<'a> {
    pub incident: &'a mut Incident,
    pub host: &'a HostState,
    pub pending: &'a mut PendingNotices,
    pub out: &'a mut Vec<Event>,
}

impl IncidentUpdate<'_> {
    pub(crate) fn apply(&mut self, context: &RecordContext<'_>) {
        let parsed = &ParsedRecord {
            damaged: self.incident.count_copies(context.parsed),
            ..context.parsed.clone()
        };
        let context = &RecordContext { parsed, ..*context };
        let of_filesystem = context.rule.family.domain == Domain::Filesystem;
        if !matches!(parsed.kind, RecordKind::Scsi(_)) {
            self.finish_command(context.position, context.line.time);
        }
        let role = context.rule.family.role;
        if role != Some(Role::Redundancy) {
            self.incident.has_request |= parsed.sector.is_some();
        }
        match &parsed.kind {
            RecordKind::Cause(class, blame)
                if of_filesystem && self.incident.is_expected(*class, context.position) =>
            {
                self.emit_continuation(context, Some(*blame))
            }
            RecordKind::Cause(class, blame) => {
                if !of_filesystem {
                    self.incident.expected_failure = None;
                }
                let role = context.rule.family.role;
                if role == Some(Role::TargetReset) && self.incident.device_reset {
                    let stronger = RecordContext { rule: &derived::RESET_UNANSWERED, ..*context };
                    return self.emit(&stronger, *class, *blame, true);
                }
                self.incident.device_reset |= role == Some(Role::DeviceReset);
                let blame = removal_blame(self.incident, role, *class, *blame);
                let new = !self.incident.reported.contains(*class)
                    || *class == Class::FsCorruption && self.incident.is_worse(parsed.damaged);
                self.emit(context, *class, blame, new);
                if let Some((class, blame)) = parsed.secondary
                    && !self.incident.reported.contains(class)
                {
                    self.emit(context, class, blame, true);
                }
            }
            RecordKind::SeparateCause(class, blame) => {
                self.incident.has_sector = false;
                self.incident.expected_failure = None;
                self.emit(context, *class, *blame, true);
            }
            RecordKind::Effect(class @ Class::Io, blame)
                if self.incident.ata.failed_command_unknown
                    || role == Some(Role::Redundancy) && self.incident.has_request =>
            {
                let without_sector = ParsedRecord { sector: None, ..parsed.clone() };
                let context = RecordContext { parsed: &without_sector, ..*context };
                self.apply_effect(&context, *class, *blame);
            }
            RecordKind::Effect(class, blame) => self.apply_effect(context, *class, *blame),
            RecordKind::Continuation => {
                if context.rule.family.role == Some(Role::FailedRequest)
                    && !self.incident.reported.contains(Class::Medium)
                {
                    self.pending.add_rejected_request(parsed);
                }
                self.emit_continuation(context, None);
            }
            RecordKind::BeyondEnd => {
                self.incident.expected_failure = Some(ExpectedFailure {
                    beyond_end: true,
                    ..ExpectedFailure::of_request(context.position)
                });
            }
            RecordKind::ExpectedFailure { medium } => {
                self.incident.expected_failure = Some(ExpectedFailure {
                    medium: *medium,
                    filesystem: of_filesystem,
                    ..ExpectedFailure::of_request(context.position)
                });
            }
            RecordKind::Scsi(part) => self.apply_scsi(context, part),
            RecordKind::Ata(part) => self.apply_ata(context, *part),
            RecordKind::Suppressed(_) | RecordKind::Topology(_) => {}
        }
    }

    /// Applies the consequence of a failure whose cause may have been reported already.
    fn apply_effect(&mut self, context: &RecordContext<'_>, class: Class, blame: Blame) {
        let beyond_end = self.incident.expected_failure.is_some_and(|failure| failure.beyond_end);
        // A request beyond the end never reached the device: what the device failed is another one.
        let is_other_request = beyond_end && context.rule.family.role == Some(Role::FailedRequest);
        if self.incident.is_expected(class, context.position) && !is_other_request {
            if context.parsed.sector.is_some() {
                self.pending.add_rejected_request(context.parsed);
            }
            return self.emit_continuation(context, None);
        }
        let class = self.host.explain_io(class, &context.parsed.device);
        let joins = match class {
            Class::Io => !self.incident.reported.is_empty(),
            Class::FsError => {
                let reported = self.incident.reported;
                let is_repair = context.parsed.damaged == DamagedCopies::NONE;
                reported.contains(Class::FsError)
                    || reported.contains(Class::FsShutdown)
                    || is_repair && reported.contains(Class::FsCorruption)
            }
            Class::Medium => {
                self.incident.reported.contains(Class::Medium)
                    && !(self.incident.has_sector && context.parsed.sector.is_some())
            }
            Class::FsCorruption => {
                let damaged = context.parsed.damaged;
                self.incident.reported.contains(class)
                    && !(damaged.is_all() && self.incident.is_worse(damaged))
            }
            Class::Timeout
            | Class::Transport
            | Class::Reset
            | Class::Removed
            | Class::ArrayState
            | Class::FsShutdown
            | Class::ReadOnly => self.incident.reported.contains(class),
        };
        if class == Class::Medium && context.parsed.sector.is_some() {
            self.incident.has_sector = true;
            if self
                .incident
                .command
                .is_some_and(|command| command.lacks_error_location(context.parsed.sector))
            {
                let weaker = RecordContext { rule: &derived::MEDIUM_WITHOUT_SECTOR, ..*context };
                return if joins {
                    self.emit_continuation(&weaker, Some(blame))
                } else {
                    self.emit(&weaker, class, Blame::Unclear, true)
                };
            }
        }
        if joins {
            self.emit_continuation(context, Some(blame));
        } else {
            self.emit(context, class, blame, true);
        }
    }

    fn emit_continuation(&mut self, context: &RecordContext<'_>, blame: Option<Blame>) {
        if !self.incident.reported.is_empty() {
            let latest = self.incident.latest_class;
            self.emit(context, latest, blame.unwrap_or(Blame::No).min(Blame::Unclear), false);
        }
    }

    fn apply_scsi(&mut self, context: &RecordContext<'_>, part: &ScsiRecord) {
        let fresh = ScsiCommand { position: context.position, ..ScsiCommand::default() };
        if matches!(part, ScsiRecord::Result { .. }) {
            self.finish_command(context.position, context.line.time);
            self.incident.command = None;
            self.incident.expected_failure = None;
        }
        let command = self.incident.command.get_or_insert(fresh);
        if command.is_expired(context.position) {
            *command = fresh;
        }
        let mut whole = false;
        match part {
            ScsiRecord::Result { host } => {
                command.host_byte = Some(*host);
                self.incident.decisive_line = Some(context.line.clone());
            }
            ScsiRecord::SenseKey(key) => {
                // The command belongs to another report, whose `Result` was lost.
                if command.sense_key.is_some() && !command.is_unit_ready_check {
                    *command = fresh;
                }
                command.sense_key = Some(*key);
                self.incident.decisive_line = Some(context.line.clone());
            }
            ScsiRecord::AdditionalSense(sense) => command.sense = Some(*sense),
            ScsiRecord::Cdb { is_write, block_range } => {
                command.is_write = Some(*is_write);
                command.block_range = *block_range;
                whole = command.sense_key.is_some();
            }
            ScsiRecord::UnitNotReady => {
                *command = ScsiCommand { is_unit_ready_check: true, ..fresh }
            }
            ScsiRecord::DeviceContext | ScsiRecord::UnnamedRecovery(..) => {}
        }
        let undecided = !command.decided;
        self.decide_command(whole, context.position, context.line.time);
        if !undecided {
            self.emit_continuation(context, None);
        }
    }

    /// No more records of the SCSI command will come: it is decided as it is.
    pub(crate) fn finish_command(&mut self, now: LogPosition, time: Timestamp) {
        self.decide_command(true, now, time);
    }

    /// Emits the result of a SCSI command's report, once it can be decided.
    fn decide_command(&mut self, whole: bool, now: LogPosition, time: Timestamp) {
        let Some(mut command) = self.incident.command.filter(|command| !command.decided) else {
            return;
        };
        let meaning = command.interpret(whole);
        match meaning {
            Interpretation::Undecided if !whole => return,
            Interpretation::Undecided => {}
            Interpretation::Expected => {
                self.incident.expected_failure = Some(ExpectedFailure::of_request(command.position))
            }
            Interpretation::Cause(class, blame) => {
                let device = self.host.device_of_key(&self.incident.key);
                let parsed = ParsedRecord {
                    other_name: self.host.recent_other_name(&device),
                    ..ParsedRecord::new(device, RecordKind::Cause(class, blame))
                };
                let line = self
                    .incident
                    .decisive_line
                    .take()
                    .or_else(|| self.incident.first_unreported.clone())
                    .unwrap_or_else(|| Line::of_kernel_log(time, String::new()));
                let rule = match class {
                    Class::Medium if command.is_software_sense() => &derived::SOFTWARE_SENSE,
                    Class::Medium => &derived::SENSE_MEDIUM,
                    Class::Timeout
                    | Class::Transport
                    | Class::Reset
                    | Class::Removed
                    | Class::Io
                    | Class::ArrayState
                    | Class::FsCorruption
                    | Class::FsError
                    | Class::FsShutdown
                    | Class::ReadOnly => &derived::COMMAND_FAILED,
                };
                let context = RecordContext { rule, parsed: &parsed, line: &line, position: now };
                let again = class == Class::Medium && self.incident.pending_repeats > 0;
                let new = if class == Class::Medium {
                    !again
                } else {
                    !self.incident.reported.contains(class)
                };
                self.incident.pending_repeats =
                    self.incident.pending_repeats.saturating_sub(u32::from(again));
                self.incident.has_sector = self.incident.has_sector && !new;
                self.emit(&context, class, blame, new);
            }
        }
        command.decided = true;
        self.incident.command = Some(command);
    }

    fn apply_ata(&mut self, context: &RecordContext<'_>, part: AtaRecord) {
        match part {
            AtaRecord::NcqLogUnreadable => self.incident.ata.ncq_log_unreadable = true,
            AtaRecord::Exception { queued } => {
                self.incident.ata.reported = ClassSet::default();
                self.incident.ata.failed_command_unknown =
                    std::mem::take(&mut self.incident.ata.ncq_log_unreadable) && queued > 1;
                self.incident.expected_failure = None;
                self.emit_continuation(context, None);
            }
            AtaRecord::Error(class, blame) => {
                let new = !self.incident.ata.reported.contains(class);
                self.incident.ata.reported.insert(class);
                if new && class == Class::Medium {
                    self.incident.pending_repeats = 1;
                    self.incident.has_sector = false;
                }
                self.emit(context, class, blame, new);
            }
            AtaRecord::DeviceError | AtaRecord::LinkReset => self.emit_continuation(context, None),
            AtaRecord::ResetFailed => {
                self.incident.ata.failed_resets += 1;
                self.emit_continuation(context, None);
            }
            AtaRecord::InternalTimeout => {
                self.incident.ata.failed_resets += 1;
                let new = !self.incident.reported.contains(Class::Timeout);
                self.emit(context, Class::Timeout, Blame::Unclear, new);
            }
            AtaRecord::LinkDown => {
                self.incident.ata.link_down = true;
                self.emit_continuation(context, None);
            }
            AtaRecord::Configured => {
                self.incident.ata.failed_resets = 0;
                self.incident.ata.link_down = false;
                self.emit_continuation(context, None);
            }
            AtaRecord::Standby => self.incident.ata.in_standby = true,
            AtaRecord::Disabled if self.incident.ata.in_standby => {}
            AtaRecord::Disabled => {
                // A device whose link is down may have been unplugged; a device that does not
                // respond to its resets over a working link was not.
                let silent = !self.incident.ata.link_down && self.incident.ata.failed_resets > 0;
                let new = !self.incident.reported.contains(Class::Removed);
                self.emit(
                    context,
                    Class::Removed,
                    if silent { Blame::Yes } else { Blame::Unclear },
                    new,
                );
            }
        }
    }

    /// Emits an event with the records since the last report. `new`: counts as an incident.
    pub(crate) fn emit(
        &mut self,
        context: &RecordContext<'_>,
        class: Class,
        blame: Blame,
        new: bool,
    ) {
        let parsed = context.parsed;
        let suppressed = if context.rule.family.is_rate_limited {
            self.pending.suppressed.take().map_or(0, |(count, _)| count)
        } else {
            0
        };
        self.incident.reported.insert(class);
        if new {
            if class == Class::FsCorruption {
                let reported = &mut self.incident.reported_damage;
                *reported = reported.worst_of(parsed.damaged);
            }
            self.incident.latest_class = class;
        }
        let first = self
            .incident
            .first_unreported
            .take()
            .filter(|_| new)
            .unwrap_or_else(|| context.line.clone());
        let records = std::mem::take(&mut self.incident.unreported_records).max(u64::from(new));
        self.out.push(Event {
            seq: context.position.seq,
            class,
            blame: self.host.adjust_blame(class, blame, &parsed.device, context.rule.family.role),
            device: parsed.device.clone(),
            other_names: parsed.other_name.iter().cloned().collect(),
            count: u64::from(new),
            records,
            suppressed,
            sectors: parsed.sector.into_iter().collect(),
            more_sectors: 0,
            operation: parsed.operation,
            damaged: parsed.damaged,
            rule: context.rule.name.to_owned(),
            first,
            last: context.line.clone(),
        });
    }
}

/// A controller that is removed after it did not respond has failed. One that is removed at once
/// may need a quirk.
fn removal_blame(incident: &Incident, role: Option<Role>, class: Class, blame: Blame) -> Blame {
    let answered_not = incident.reported.contains(Class::Timeout);
    if class == Class::Removed
        && blame == Blame::Unclear
        && role == Some(Role::NvmeController)
        && answered_not
    {
        Blame::Yes
    } else {
        blame
    }
}
