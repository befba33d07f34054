//! What a record does to the incident that is open on its device: opens, joins, decides, excuses.
//!
//! In: an incident and what was said. Out: tellings. Each kind of record has its function; none
//! looks at text.

use crate::model::kernel_log::classify::*;
use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::{Blame, Class, DeviceName, Domain, Event, Line, LineOrigin};
use crate::model::kernel_log::incident::{
    ClassSet, ExpectedFailure, Incident, LogPosition, ScsiCommand,
};
use crate::model::kernel_log::parsed_record::{
    AtaRecord, DeviceKind, ParsedRecord, RecordKind, ScsiRecord,
};
use crate::model::kernel_log::rule::Role;
use crate::model::kernel_log::rules::derived;
use crate::model::kernel_log::scsi_sense::Interpretation;
use jiff::Timestamp;

impl Classifier {
    pub(super) fn update_incident(
        &mut self,
        incident: &mut Incident,
        context: &RecordContext<'_>,
        out: &mut Vec<Event>,
    ) {
        let parsed = context.parsed;
        let of_filesystem = context.rule.behavior.domain == Domain::Filesystem;
        if !matches!(parsed.kind, RecordKind::Scsi(_)) {
            self.decide_command(incident, true, context.position, context.line.time, out);
        }
        match &parsed.kind {
            RecordKind::Cause(class, blame)
                if of_filesystem && incident.is_expected(*class, context.position) =>
            {
                self.emit_continuation(incident, context, out, Some(*blame))
            }
            RecordKind::Cause(class, blame) => {
                if !of_filesystem {
                    incident.expected_failure = None;
                }
                let role = context.rule.behavior.role;
                if role == Some(Role::TargetReset) && incident.device_reset {
                    let stronger = RecordContext {
                        rule: &derived::RESET_UNANSWERED,
                        parsed: parsed,
                        line: context.line.clone(),
                        position: context.position,
                    };
                    return self.emit(incident, &stronger, *class, *blame, true, out);
                }
                incident.device_reset |= role == Some(Role::DeviceReset);
                let blame = removal_blame(incident, role, *class, *blame);
                let new = !incident.reported.contains(*class);
                self.emit(incident, context, *class, blame, new, out);
                if let Some((class, blame)) = parsed.secondary
                    && !incident.reported.contains(class)
                {
                    self.emit(incident, context, class, blame, true, out);
                }
            }
            RecordKind::SeparateCause(class, blame) => {
                incident.has_sector = false;
                incident.expected_failure = None;
                self.emit(incident, context, *class, *blame, true, out);
            }
            RecordKind::Effect(class @ Class::Io, blame) if incident.ata.failed_command_unknown => {
                let placeless = ParsedRecord {
                    sector: None,
                    ..parsed.clone()
                };
                let context = RecordContext {
                    rule: context.rule,
                    parsed: &placeless,
                    line: context.line.clone(),
                    position: context.position,
                };
                self.apply_effect(incident, &context, *class, *blame, out);
            }
            RecordKind::Effect(class, blame) => {
                self.apply_effect(incident, context, *class, *blame, out)
            }
            RecordKind::Continuation => {
                if context.rule.behavior.role == Some(Role::FailedRequest)
                    && !incident.reported.contains(Class::Medium)
                {
                    self.add_rejected_request(parsed);
                }
                self.emit_continuation(incident, context, out, None);
            }
            RecordKind::ExpectedFailure { medium } => {
                incident.expected_failure = Some(ExpectedFailure {
                    position: context.position,
                    medium: *medium,
                    filesystem: of_filesystem,
                });
            }
            RecordKind::Scsi(part) => self.apply_scsi(incident, context, part, out),
            RecordKind::Ata(part) => self.apply_ata(incident, context, *part, out),
            RecordKind::Suppressed(_) | RecordKind::Topology(_) => {}
        }
    }

    /// What became of a failure whose cause may have been told.
    fn apply_effect(
        &mut self,
        incident: &mut Incident,
        context: &RecordContext<'_>,
        class: Class,
        blame: Blame,
        out: &mut Vec<Event>,
    ) {
        if incident.is_expected(class, context.position) {
            if context.parsed.sector.is_some() {
                self.add_rejected_request(context.parsed);
            }
            return self.emit_continuation(incident, context, out, None);
        }
        // An error without a cause: over a network, or of a slot that was emptied, it has one.
        let class = match self.device_map.kind_of(&context.parsed.device) {
            DeviceKind::Network if class == Class::Io => Class::Transport,
            DeviceKind::Direct
                if class == Class::Io
                    && self.slot_outage.is_some()
                    && self.has_path_outage(&context.parsed.device) =>
            {
                Class::Removed
            }
            _ => class,
        };
        let joins = match class {
            Class::Io => !incident.reported.is_empty(),
            Class::FsError => {
                incident.reported.contains(Class::FsError)
                    || incident.reported.contains(Class::FsShutdown)
            }
            Class::Medium => {
                incident.reported.contains(Class::Medium)
                    && !(incident.has_sector && context.parsed.sector.is_some())
            }
            Class::Timeout
            | Class::Transport
            | Class::Reset
            | Class::Removed
            | Class::FsCorruption
            | Class::FsShutdown
            | Class::ReadOnly => incident.reported.contains(class),
        };
        if class == Class::Medium && context.parsed.sector.is_some() {
            incident.has_sector = true;
            if incident
                .command
                .is_some_and(|command| command.lacks_error_location(context.parsed.sector))
            {
                let weaker = RecordContext {
                    rule: &derived::MEDIUM_WITHOUT_SECTOR,
                    parsed: context.parsed,
                    line: context.line.clone(),
                    position: context.position,
                };
                return if joins {
                    self.emit_continuation(incident, &weaker, out, Some(blame))
                } else {
                    self.emit(incident, &weaker, class, Blame::Unclear, true, out)
                };
            }
        }
        if joins {
            self.emit_continuation(incident, context, out, Some(blame));
        } else {
            self.emit(incident, context, class, blame, true, out);
        }
    }

    fn emit_continuation(
        &mut self,
        incident: &mut Incident,
        context: &RecordContext<'_>,
        out: &mut Vec<Event>,
        blame: Option<Blame>,
    ) {
        if !incident.reported.is_empty() {
            let latest = incident.latest_class;
            self.emit(
                incident,
                context,
                latest,
                blame.unwrap_or(Blame::No).min(Blame::Unclear),
                false,
                out,
            );
        }
    }

    fn apply_scsi(
        &mut self,
        incident: &mut Incident,
        context: &RecordContext<'_>,
        part: &ScsiRecord,
        out: &mut Vec<Event>,
    ) {
        let fresh = ScsiCommand {
            position: context.position,
            ..ScsiCommand::default()
        };
        if matches!(part, ScsiRecord::Result { .. }) {
            self.decide_command(incident, true, context.position, context.line.time, out);
            incident.command = None;
            incident.expected_failure = None;
        }
        let command = incident.command.get_or_insert(fresh);
        if command.is_expired(context.position) {
            *command = fresh;
        }
        let mut whole = false;
        match part {
            ScsiRecord::Result { host } => {
                command.host_byte = Some(*host);
                incident.decisive_line = Some(context.line.clone());
            }
            ScsiRecord::SenseKey(key) => {
                // Another command's, when its `Result` was lost.
                if command.sense_key.is_some() && !command.is_unit_ready_check {
                    *command = fresh;
                }
                command.sense_key = Some(*key);
                incident.decisive_line = Some(context.line.clone());
            }
            ScsiRecord::AdditionalSense(sense) => command.sense = Some(*sense),
            ScsiRecord::Cdb {
                is_write: write,
                block_range: place,
            } => {
                command.is_write = Some(*write);
                command.block_range = *place;
                whole = command.sense_key.is_some();
            }
            ScsiRecord::UnitNotReady => {
                *command = ScsiCommand {
                    is_unit_ready_check: true,
                    ..fresh
                }
            }
            ScsiRecord::DeviceContext | ScsiRecord::UnnamedRecovery(..) => {}
        }
        let undecided = !command.decided;
        self.decide_command(incident, whole, context.position, context.line.time, out);
        if !undecided {
            self.emit_continuation(incident, context, out, None);
        }
    }

    /// Tells what a SCSI command's report says, once it can be said.
    pub(super) fn decide_command(
        &mut self,
        incident: &mut Incident,
        whole: bool,
        now: LogPosition,
        time: Timestamp,
        out: &mut Vec<Event>,
    ) {
        let Some(mut command) = incident.command.filter(|command| !command.decided) else {
            return;
        };
        let meaning = command.interpret(whole);
        match meaning {
            Interpretation::Undecided if !whole => return,
            Interpretation::Undecided => {}
            Interpretation::Expected => {
                incident.expected_failure = Some(ExpectedFailure {
                    position: command.position,
                    medium: false,
                    filesystem: false,
                })
            }
            Interpretation::Cause(class, blame) => {
                let device = self.device_of_key(&incident.key);
                let also = match &self.last_scsi {
                    Some((name, also, _)) if *name == device => also.clone(),
                    _ => None,
                };
                let parsed = ParsedRecord {
                    other_name: also,
                    ..ParsedRecord::new(device, RecordKind::Cause(class, blame))
                };
                let line = incident
                    .decisive_line
                    .take()
                    .or_else(|| incident.first_unreported.clone())
                    .unwrap_or(Line {
                        time,
                        text: String::new(),
                        origin: LineOrigin::KernelLog,
                    });
                let rule = match class {
                    Class::Medium if command.is_software_sense() => &derived::SOFTWARE_SENSE,
                    Class::Medium => &derived::SENSE_MEDIUM,
                    Class::Timeout
                    | Class::Transport
                    | Class::Reset
                    | Class::Removed
                    | Class::Io
                    | Class::FsCorruption
                    | Class::FsError
                    | Class::FsShutdown
                    | Class::ReadOnly => &derived::COMMAND_FAILED,
                };
                let context = RecordContext {
                    rule,
                    parsed: &parsed,
                    line,
                    position: now,
                };
                let again = class == Class::Medium && incident.pending_repeats > 0;
                let new = if class == Class::Medium {
                    !again
                } else {
                    !incident.reported.contains(class)
                };
                incident.pending_repeats =
                    incident.pending_repeats.saturating_sub(u32::from(again));
                incident.has_sector = incident.has_sector && !new;
                self.emit(incident, &context, class, blame, new, out);
            }
        }
        command.decided = true;
        incident.command = Some(command);
    }

    fn device_of_key(&self, key: &str) -> DeviceName {
        match &self.last_scsi {
            Some((device, _, _)) if self.device_map.drive_key(device) == key => device.clone(),
            _ => device_name::parse(key).unwrap_or(DeviceName::Unnamed),
        }
    }

    fn apply_ata(
        &mut self,
        incident: &mut Incident,
        context: &RecordContext<'_>,
        part: AtaRecord,
        out: &mut Vec<Event>,
    ) {
        match part {
            AtaRecord::NcqLogUnreadable => incident.ata.ncq_log_unreadable = true,
            AtaRecord::Exception { queued } => {
                incident.ata.reported = ClassSet::default();
                incident.ata.failed_command_unknown =
                    std::mem::take(&mut incident.ata.ncq_log_unreadable) && queued > 1;
                incident.expected_failure = None;
                self.emit_continuation(incident, context, out, None);
            }
            AtaRecord::Error(class, blame) => {
                let new = !incident.ata.reported.contains(class);
                incident.ata.reported.insert(class);
                if new && class == Class::Medium {
                    incident.pending_repeats = 1;
                    incident.has_sector = false;
                }
                self.emit(incident, context, class, blame, new, out);
            }
            AtaRecord::DeviceError | AtaRecord::LinkReset => {
                self.emit_continuation(incident, context, out, None)
            }
            AtaRecord::ResetFailed => {
                incident.ata.failed_resets += 1;
                self.emit_continuation(incident, context, out, None);
            }
            AtaRecord::LinkDown => {
                incident.ata.link_down = true;
                self.emit_continuation(incident, context, out, None);
            }
            AtaRecord::Configured => {
                incident.ata.failed_resets = 0;
                incident.ata.link_down = false;
                self.emit_continuation(incident, context, out, None);
            }
            AtaRecord::Standby => incident.ata.in_standby = true,
            AtaRecord::Disabled if incident.ata.in_standby => {}
            AtaRecord::Disabled => {
                // A link that is down may have been unplugged; one that is up with a device that
                // does not answer its resets was not.
                let silent = !incident.ata.link_down && incident.ata.failed_resets > 0;
                let new = !incident.reported.contains(Class::Removed);
                self.emit(
                    incident,
                    context,
                    Class::Removed,
                    if silent { Blame::Yes } else { Blame::Unclear },
                    new,
                    out,
                );
            }
        }
    }
}

/// A controller that is given up after it did not answer has failed; one that was given up at
/// once may be missing a quirk.
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
