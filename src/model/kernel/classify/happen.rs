//! What a record does to the incident that is open on its device: opens, joins, decides, excuses.
//!
//! In: an incident and what was said. Out: tellings. Each kind of record has its function; none
//! looks at text.

use crate::model::kernel::classify::*;
use crate::model::kernel::event::{Blame, Class, Device, Event, Line, Origin};
use crate::model::kernel::incident::{At, Command, Excuse, Incident, Told};
use crate::model::kernel::name;
use crate::model::kernel::said::{Ata, Kind, Part, Said, Scsi};
use crate::model::kernel::sense::Meaning;
use jiff::Timestamp;

impl Classifier {
    pub(super) fn happen(
        &mut self,
        incident: &mut Incident,
        telling: &Telling<'_>,
        out: &mut Vec<Event>,
    ) {
        let said = telling.said;
        let of_filesystem = is_of_filesystem(telling.rule);
        if !matches!(said.part, Part::Scsi(_)) {
            self.decide(incident, true, telling.at, telling.line.time, out);
        }
        match &said.part {
            Part::Cause(class, blame) if of_filesystem && incident.excuses(*class, telling.at) => {
                self.follow(incident, telling, out, Some(*blame))
            }
            Part::Cause(class, blame) => {
                if !of_filesystem {
                    incident.excuse = None;
                }
                if telling.rule == "hba-target-reset" && incident.device_reset {
                    let stronger = Telling {
                        rule: UNANSWERED,
                        said,
                        line: telling.line.clone(),
                        at: telling.at,
                    };
                    return self.tell(incident, &stronger, *class, *blame, true, out);
                }
                incident.device_reset |= telling.rule == "hba-device-reset";
                let blame = self.given_up(incident, telling.rule, *class, *blame);
                let new = !incident.told.has(*class);
                self.tell(incident, telling, *class, blame, new, out);
                if let Some((class, blame)) = said.then
                    && !incident.told.has(class)
                {
                    self.tell(incident, telling, class, blame, true, out);
                }
            }
            Part::Each(class, blame) => {
                incident.sector_seen = false;
                incident.excuse = None;
                self.tell(incident, telling, *class, *blame, true, out);
            }
            Part::Effect(class @ Class::Io, blame) if incident.ata.any_of_many => {
                let placeless = Said {
                    sector: None,
                    ..said.clone()
                };
                let telling = Telling {
                    rule: telling.rule,
                    said: &placeless,
                    line: telling.line.clone(),
                    at: telling.at,
                };
                self.effect(incident, &telling, *class, *blame, out);
            }
            Part::Effect(class, blame) => self.effect(incident, telling, *class, *blame, out),
            Part::Follow => {
                if telling.rule == "block-error" && !incident.told.has(Class::Medium) {
                    self.excuse(said);
                }
                self.follow(incident, telling, out, None);
            }
            Part::Excuse { medium } => {
                incident.excuse = Some(Excuse {
                    at: telling.at,
                    medium: *medium,
                    filesystem: of_filesystem,
                });
            }
            Part::Scsi(part) => self.scsi(incident, telling, part, out),
            Part::Ata(part) => self.ata(incident, telling, *part, out),
            Part::Suppressed(_) | Part::Learn(_) => {}
        }
    }

    /// What became of a failure whose cause may have been told.
    fn effect(
        &mut self,
        incident: &mut Incident,
        telling: &Telling<'_>,
        class: Class,
        blame: Blame,
        out: &mut Vec<Event>,
    ) {
        if incident.excuses(class, telling.at) {
            if telling.said.sector.is_some() {
                self.excuse(telling.said);
            }
            return self.follow(incident, telling, out, None);
        }
        // An error without a cause: over a network, or of a slot that was emptied, it has one.
        let class = match self.learned.kind_of(&telling.said.device) {
            Kind::Network if class == Class::Io => Class::Transport,
            Kind::Direct
                if class == Class::Io
                    && self.slot_trouble.is_some()
                    && self.is_explained(&telling.said.device) =>
            {
                Class::Removed
            }
            _ => class,
        };
        let joins = match class {
            Class::Io => !incident.told.is_empty(),
            Class::FsError => {
                incident.told.has(Class::FsError) || incident.told.has(Class::FsShutdown)
            }
            Class::Medium => {
                incident.told.has(Class::Medium)
                    && !(incident.sector_seen && telling.said.sector.is_some())
            }
            Class::FsCorruption => incident.told.has(Class::FsCorruption),
            _ => incident.told.has(class),
        };
        if class == Class::Medium && telling.said.sector.is_some() {
            incident.sector_seen = true;
            if incident
                .command
                .is_some_and(|command| command.is_without_place(telling.said.sector))
            {
                let weaker = Telling {
                    rule: WITHOUT_PLACE,
                    said: telling.said,
                    line: telling.line.clone(),
                    at: telling.at,
                };
                return if joins {
                    self.follow(incident, &weaker, out, Some(blame))
                } else {
                    self.tell(incident, &weaker, class, Blame::Unclear, true, out)
                };
            }
        }
        if joins {
            self.follow(incident, telling, out, Some(blame));
        } else {
            self.tell(incident, telling, class, blame, true, out);
        }
    }

    fn follow(
        &mut self,
        incident: &mut Incident,
        telling: &Telling<'_>,
        out: &mut Vec<Event>,
        blame: Option<Blame>,
    ) {
        if !incident.told.is_empty() {
            let latest = incident.latest;
            self.tell(
                incident,
                telling,
                latest,
                blame.unwrap_or(Blame::No).min(Blame::Unclear),
                false,
                out,
            );
        }
    }

    fn scsi(
        &mut self,
        incident: &mut Incident,
        telling: &Telling<'_>,
        part: &Scsi,
        out: &mut Vec<Event>,
    ) {
        let fresh = Command {
            at: telling.at,
            ..Command::default()
        };
        if matches!(part, Scsi::Result { .. }) {
            self.decide(incident, true, telling.at, telling.line.time, out);
            incident.command = None;
            incident.excuse = None;
        }
        let command = incident.command.get_or_insert(fresh);
        if command.is_over(telling.at) {
            *command = fresh;
        }
        let mut whole = false;
        match part {
            Scsi::Result { host } => {
                command.host = Some(*host);
                incident.decisive = Some(telling.line.clone());
            }
            Scsi::Key(key) => {
                // Another command's, when its `Result` was lost.
                if command.key.is_some() && !command.probe {
                    *command = fresh;
                }
                command.key = Some(*key);
                incident.decisive = Some(telling.line.clone());
            }
            Scsi::Sense(sense) => command.sense = Some(*sense),
            Scsi::Cdb { write, place } => {
                command.write = Some(*write);
                command.place = *place;
                whole = command.key.is_some();
            }
            Scsi::Probe => {
                *command = Command {
                    probe: true,
                    ..fresh
                }
            }
            Scsi::Names | Scsi::Awaits(..) => {}
        }
        let undecided = !command.decided;
        self.decide(incident, whole, telling.at, telling.line.time, out);
        if !undecided {
            self.follow(incident, telling, out, None);
        }
    }

    /// Tells what a SCSI command's report says, once it can be said.
    pub(super) fn decide(
        &mut self,
        incident: &mut Incident,
        whole: bool,
        now: At,
        time: Timestamp,
        out: &mut Vec<Event>,
    ) {
        let Some(mut command) = incident.command.filter(|command| !command.decided) else {
            return;
        };
        let meaning = command.meaning(whole);
        match meaning {
            Meaning::Open if !whole => return,
            Meaning::Open => {}
            Meaning::Excuse => {
                incident.excuse = Some(Excuse {
                    at: command.at,
                    medium: false,
                    filesystem: false,
                })
            }
            Meaning::Cause(class, blame) => {
                let device = self.device_of_key(&incident.key);
                let also = match &self.last_scsi {
                    Some((name, also, _)) if *name == device => also.clone(),
                    _ => None,
                };
                let said = Said {
                    also,
                    ..Said::new(device, Part::Cause(class, blame))
                };
                let line = incident
                    .decisive
                    .take()
                    .or_else(|| incident.first.clone())
                    .unwrap_or(Line {
                        time,
                        text: String::new(),
                        origin: Origin::KernelLog,
                    });
                let rule = match class {
                    Class::Medium if command.is_by_software() => BY_SOFTWARE,
                    Class::Medium => "scsi-sense-medium",
                    _ => "scsi-command-failed",
                };
                let telling = Telling {
                    rule,
                    said: &said,
                    line,
                    at: now,
                };
                let again = class == Class::Medium && incident.credit > 0;
                let new = if class == Class::Medium {
                    !again
                } else {
                    !incident.told.has(class)
                };
                incident.credit = incident.credit.saturating_sub(u32::from(again));
                incident.sector_seen = incident.sector_seen && !new;
                self.tell(incident, &telling, class, blame, new, out);
            }
        }
        command.decided = true;
        incident.command = Some(command);
    }

    fn device_of_key(&self, key: &str) -> Device {
        match &self.last_scsi {
            Some((device, _, _)) if self.learned.key(device) == key => device.clone(),
            _ => name::any(key).unwrap_or(Device::Unnamed),
        }
    }

    fn ata(
        &mut self,
        incident: &mut Incident,
        telling: &Telling<'_>,
        part: Ata,
        out: &mut Vec<Event>,
    ) {
        match part {
            Ata::CulpritUnread => incident.ata.culprit_unread = true,
            Ata::Exception { queued } => {
                incident.ata.told = Told::default();
                incident.ata.any_of_many =
                    std::mem::take(&mut incident.ata.culprit_unread) && queued > 1;
                incident.excuse = None;
                self.follow(incident, telling, out, None);
            }
            Ata::Outcome(class, blame) => {
                let new = !incident.ata.told.has(class);
                incident.ata.told.add(class);
                if new && class == Class::Medium {
                    incident.credit = 1;
                    incident.sector_seen = false;
                }
                self.tell(incident, telling, class, blame, new, out);
            }
            Ata::DeviceError | Ata::Reset => self.follow(incident, telling, out, None),
            Ata::NotBack => {
                incident.ata.not_back += 1;
                self.follow(incident, telling, out, None);
            }
            Ata::LinkDown => {
                incident.ata.link_down = true;
                self.follow(incident, telling, out, None);
            }
            Ata::Works => {
                incident.ata.not_back = 0;
                incident.ata.link_down = false;
                self.follow(incident, telling, out, None);
            }
            Ata::Stopped => incident.ata.stopped = true,
            Ata::Disabled if incident.ata.stopped => {}
            Ata::Disabled => {
                // A link that is down may have been unplugged; one that is up with a device that
                // does not answer its resets was not.
                let silent = !incident.ata.link_down && incident.ata.not_back > 0;
                let new = !incident.told.has(Class::Removed);
                self.tell(
                    incident,
                    telling,
                    Class::Removed,
                    if silent { Blame::Yes } else { Blame::Unclear },
                    new,
                    out,
                );
            }
        }
    }

    /// A controller that is given up after it did not answer has failed; one that was given up at
    /// once may be missing a quirk.
    fn given_up(&self, incident: &Incident, rule: &str, class: Class, blame: Blame) -> Blame {
        let answered_not = incident.told.has(Class::Timeout);
        if class == Class::Removed
            && blame == Blame::Unclear
            && rule.starts_with("nvme-")
            && answered_not
        {
            Blame::Yes
        } else {
            blame
        }
    }
}
