//! The classifier: records in, incidents out, at the very record that decides one.
//!
//! In: records in their order, each with the time to put on its evidence. Out: `Event`s and
//! `Attached`s. Pure and bounded: what is open is forgotten after a while, and `oldest_open` tells
//! from where a restarted reader must read again to decide it the same way.

mod happen;
mod tell;

use jiff::Timestamp;

use crate::model::kernel::event::{Attached, Blame, Class, Device, Event, Line, MAX_TEXT, Origin};
use crate::model::kernel::incident::{At, Incident};
use crate::model::kernel::learned::Learned;
use crate::model::kernel::record::Record;
use crate::model::kernel::said::{Ata, Kind, Learn, Part, Rule, Said, Scsi};
use crate::model::kernel::{learned, name, rules};

/// Rules that no single record is of, and that weigh in a verdict (`fault`).
pub const BY_SOFTWARE: &str = "scsi-sense-by-software";
pub const WITHOUT_PLACE: &str = "block-medium-without-place";
pub const UNANSWERED: &str = "hba-reset-unanswered";

/// Incidents that are open at once; a machine with more failing drives has told enough.
const MOST_OPEN: usize = 64;
/// When something has been open without a pause for this many records, all is closed: a reader need
/// not go back farther.
const LONGEST_OPEN: u64 = 16_384;
/// How long a way that is in trouble explains what the devices behind it do.
const TROUBLE_MICROS: u64 = 300_000_000;
const TROUBLE_RECORDS: u64 = 4_096;
/// A record without a device is of the device of the records just before (3.10's SCSI, torn lines).
const NEAR_RECORDS: u64 = 8;
const MOST_ATTACHED: usize = 1_024;

/// What the classifier is to know of the host.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Kernel names that count as drives although they usually do not; `*` at the end stands for
    /// anything (`loop*`).
    pub admit: Vec<String>,
}

impl Scope {
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
    scope: Scope,
    learned: Learned,
    open: Vec<Incident>,
    /// Since when something has been open without a pause.
    open_since: Option<u64>,
    /// The device of the last SCSI and the last ATA record.
    last_scsi: Option<(Device, Option<Device>, u64)>,
    last_ata: Option<(Device, u64)>,
    /// `attempting task abort!` without a device.
    awaits: Option<Awaits>,
    /// The device of the last command that an adapter named by its address.
    addressed: Option<(String, Device, Option<Device>)>,
    /// `rejecting I/O to offline device`, whose disk's name comes with the block layer's record.
    rejecting: Option<(Device, At)>,
    /// `312 callbacks suppressed`, to be told with the next event.
    suppressed: Option<(u64, At)>,
    /// A network is down or has been: what SCSI disks behind it do is explained.
    network_trouble: Option<At>,
    /// A slot is empty: what NVMe drives do is explained.
    slot_trouble: Option<At>,
    attached: Vec<Attached>,
    excused: Vec<Excused>,
    last_seq: u64,
}

/// A request that was refused because it cannot be: the same request's error elsewhere in the log
/// is none either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excused {
    pub device: Device,
    pub sector: Option<u64>,
}

#[derive(Debug)]
struct Awaits {
    class: Class,
    blame: Blame,
    rule: &'static Rule,
    line: Line,
    address: String,
}

/// What is told of, and with which records.
struct Telling<'a> {
    rule: &'static str,
    said: &'a Said,
    line: Line,
    at: At,
}

impl Classifier {
    pub fn new(scope: Scope) -> Classifier {
        Classifier {
            scope,
            ..Classifier::default()
        }
    }

    /// One record more. `time` is what its evidence carries: of arrival when read live, the
    /// kernel's otherwise.
    pub fn push(&mut self, record: &Record<'_>, time: Timestamp, out: &mut Vec<Event>) {
        let now = At {
            seq: record.seq,
            time: record.time,
        };
        if record.seq < self.last_seq {
            self.reboot();
        }
        self.last_seq = record.seq;
        if self.open_since.is_some() {
            self.expire(now, time, out);
        }
        // What is not the kernel's own anybody can write: it only counts as distance.
        if record.facility != 0 {
            return self.settle(record.seq);
        }
        let read = rules::table().read(&record.text);
        if self.awaits.is_some() {
            self.awaited(read.as_ref().map(|(_, said)| said), now, out);
        }
        if let Some((rule, mut said)) = read {
            self.resolve(&mut said, record, now);
            let line = Line {
                time,
                text: cut(&record.text),
                origin: Origin::KernelLog,
            };
            self.apply(
                &Telling {
                    rule: rule.name,
                    said: &said,
                    line,
                    at: now,
                },
                rule,
                out,
            );
        }
        self.settle(record.seq);
    }

    fn settle(&mut self, seq: u64) {
        if self.is_quiet() {
            self.open_since = None;
            // A reader that begins here has no device in mind either.
            (self.last_scsi, self.last_ata) = (None, None);
        } else if self.open_since.is_none() {
            self.open_since = Some(seq);
        }
    }

    /// No more records will come: what waited for them is decided as it is.
    pub fn finish(&mut self, time: Timestamp, out: &mut Vec<Event>) {
        let now = At {
            seq: self.last_seq,
            time: 0,
        };
        self.awaited(None, now, out);
        for mut incident in std::mem::take(&mut self.open) {
            self.decide(&mut incident, true, now, time, out);
        }
        self.open_since = None;
    }

    /// Sequence number from which records must be read again for what is open now to be decided the
    /// same way. None: nothing is open.
    pub fn oldest_open(&self) -> Option<u64> {
        self.open_since
    }

    /// Names that were given since the last call.
    pub fn attached(&mut self) -> Vec<Attached> {
        std::mem::take(&mut self.attached)
    }

    /// Devices whose errors turned out to be none since the last call: the host asked for what
    /// cannot be.
    pub fn excused(&mut self) -> Vec<Excused> {
        std::mem::take(&mut self.excused)
    }

    fn is_quiet(&self) -> bool {
        self.open.is_empty()
            && self.awaits.is_none()
            && self.suppressed.is_none()
            && self.network_trouble.is_none()
            && self.slot_trouble.is_none()
    }

    /// Names begin anew, and nothing of before is open.
    fn reboot(&mut self) {
        let (scope, attached) = (
            std::mem::take(&mut self.scope),
            std::mem::take(&mut self.attached),
        );
        *self = Classifier {
            scope,
            attached,
            ..Classifier::default()
        };
    }

    fn expire(&mut self, now: At, time: Timestamp, out: &mut Vec<Event>) {
        let all = self
            .open_since
            .is_some_and(|since| now.seq.saturating_sub(since) > LONGEST_OPEN);
        let mut at = 0;
        while at < self.open.len() {
            let over = all || self.open[at].is_over(now);
            if over
                || self.open[at]
                    .command
                    .is_some_and(|command| !command.decided && command.is_over(now))
            {
                let mut incident = self.open.swap_remove(at);
                self.decide(&mut incident, true, now, time, out);
                if over {
                    continue;
                }
                self.open.push(incident);
                let last = self.open.len() - 1;
                self.open.swap(at, last);
            }
            at += 1;
        }
        if self
            .suppressed
            .is_some_and(|(_, since)| all || now.is_beyond(since, 10_000_000, 64))
        {
            self.suppressed = None;
        }
        for trouble in [&mut self.network_trouble, &mut self.slot_trouble] {
            if trouble
                .is_some_and(|since| all || now.is_beyond(since, TROUBLE_MICROS, TROUBLE_RECORDS))
            {
                *trouble = None;
            }
        }
        if all {
            self.open_since = None;
        }
    }

    /// Which device a record is of, when its text alone does not say or another name is better.
    fn resolve(&mut self, said: &mut Said, record: &Record<'_>, now: At) {
        if let (Device::Block(name), Some(Device::Hctl(hctl))) = (&said.device, &said.also) {
            self.learned.letters(hctl, name);
        }
        let near = |seq: u64| now.seq.saturating_sub(seq) <= NEAR_RECORDS;
        if said.device == Device::Unnamed {
            if let Some(device) = record.device.and_then(field_device) {
                said.device = device;
            } else if let (Part::Scsi(_), Some((device, also, seq))) = (&said.part, &self.last_scsi)
            {
                if near(*seq) && !matches!(said.part, Part::Scsi(Scsi::Awaits(..))) {
                    said.device = device.clone();
                    said.also = also.clone();
                }
            } else if let (Part::Ata(_), Some((device, seq))) = (&said.part, &self.last_ata)
                && near(*seq)
            {
                said.device = device.clone();
            }
        }
        // Only records that open an incident: a reader that begins again there has the same
        // context.
        match (&said.part, &said.device) {
            (Part::Ata(_), Device::Ata { .. }) => {
                self.last_ata = Some((said.device.clone(), now.seq))
            }
            (Part::Scsi(_), Device::Hctl(_)) => {
                self.last_scsi = Some((said.device.clone(), said.also.clone(), now.seq))
            }
            (Part::Scsi(_), Device::Block(_)) if matches!(said.also, Some(Device::Hctl(_))) => {
                self.last_scsi = Some((said.device.clone(), said.also.clone(), now.seq));
            }
            _ => {}
        }
        if let Some(block) = self.learned.block_name(&said.device) {
            said.also = Some(std::mem::replace(&mut said.device, block));
        }
        self.rejected(said, now);
    }

    /// `sd 6:1:8:0: rejecting I/O to offline device`, and then the block layer's `dev sdi`: the two
    /// are one (scsi_prep_state_check()).
    fn rejected(&mut self, said: &mut Said, now: At) {
        match (&said.device, &said.part) {
            (Device::Hctl(_), Part::Effect(Class::Removed, _)) => {
                self.rejecting = Some((said.device.clone(), now))
            }
            (Device::Block(name), Part::Effect(..))
                if name.starts_with("sd") && name::whole(name) == name =>
            {
                let Some((Device::Hctl(hctl), at)) = self.rejecting.take() else {
                    return;
                };
                if !now.is_beyond(at, 1_000_000, 3) && self.learned.hctl_of(&said.device).is_none()
                {
                    if let Some(incident) =
                        self.open.iter_mut().find(|incident| incident.key == hctl)
                    {
                        incident.key = name.clone();
                    }
                    self.learned.letters(&hctl, name);
                    said.also = Some(Device::Hctl(hctl));
                }
            }
            _ => {}
        }
    }

    fn apply(&mut self, telling: &Telling<'_>, rule: &'static Rule, out: &mut Vec<Event>) {
        let said = telling.said;
        let of_filesystem = is_of_filesystem(telling.rule);
        match &said.part {
            Part::Learn(learn) => return self.learn(learn, telling, out),
            Part::Suppressed(count) => {
                self.suppressed = Some((*count, telling.at));
                return;
            }
            Part::Scsi(Scsi::Awaits(class, blame, address)) => {
                self.awaits = Some(Awaits {
                    class: *class,
                    blame: *blame,
                    rule,
                    line: telling.line.clone(),
                    address: address.clone(),
                });
                return;
            }
            _ => {}
        }
        if !of_filesystem && self.is_none_of_ours(said, &telling.line.text) {
            return;
        }
        if telling.rule.starts_with("iscsi")
            || telling.rule.starts_with("fc-")
            || telling.rule.starts_with("qla-loop")
            || telling.rule.starts_with("lpfc-link")
        {
            self.network_trouble = Some(telling.at);
        }
        if telling.rule.starts_with("uas-") {
            let host = match (&said.device, &said.also) {
                (Device::ScsiHost(host), _) => Some(*host),
                (Device::Hctl(hctl), _) | (_, Some(Device::Hctl(hctl))) => learned::host_of(hctl),
                _ => None,
            };
            if let Some(host) = host {
                self.learned.kind(&Device::ScsiHost(host), Kind::Usb);
            }
        }
        let key = if of_filesystem {
            format!("fs:{}", said.device)
        } else {
            self.learned.key(&said.device)
        };
        let mut incident = self.take(key, said, telling.at, telling.line.time, out);
        incident.touch(telling.at);
        // What is said of the report to come tells nothing by itself, and is no evidence.
        if said.part != Part::Ata(Ata::CulpritUnread) {
            if incident.first.is_none() && incident.untold == 0 {
                incident.first = Some(telling.line.clone());
            }
            incident.untold += 1;
        }
        self.happen(&mut incident, telling, out);
        self.open.push(incident);
    }

    /// The incident that is open on this device, or a new one.
    fn take(
        &mut self,
        key: String,
        said: &Said,
        now: At,
        time: Timestamp,
        out: &mut Vec<Event>,
    ) -> Incident {
        if let Some(at) = self.open.iter().position(|incident| incident.key == key) {
            return self.open.swap_remove(at);
        }
        // The SCSI layer tells again what libata has told of a port whose disk is not known yet:
        // now it is.
        if let (Part::Scsi(_), Some(Device::Hctl(hctl))) = (&said.part, &said.also) {
            let port = self.open.iter().position(|incident| {
                (incident.credit > 0 || incident.ata.any_of_many)
                    && port_of(&incident.key)
                        .is_some_and(|port| self.learned.host_of_port(port).is_none())
            });
            if let (Some(at), Some(host), ":0:0:0") = (
                port,
                learned::host_of(hctl),
                hctl.trim_start_matches(|c: char| c.is_ascii_digit()),
            ) {
                let mut incident = self.open.swap_remove(at);
                if let Some(port) = port_of(&incident.key) {
                    self.learned.same(port, host);
                }
                incident.key = key;
                return incident;
            }
        }
        if self.open.len() >= MOST_OPEN {
            let mut oldest = self.open.swap_remove(0);
            self.decide(&mut oldest, true, now, time, out);
        }
        Incident::open(key, now)
    }

    /// `attempting task abort!`: the command's record comes next, or what comes next is something
    /// else.
    fn awaited(&mut self, next: Option<&Said>, now: At, out: &mut Vec<Event>) {
        let Some(Awaits {
            class,
            blame,
            rule,
            line,
            address,
        }) = self.awaits.take()
        else {
            return;
        };
        let mut said = match next {
            Some(next)
                if matches!(next.part, Part::Scsi(_))
                    && matches!(next.device, Device::Hctl(_) | Device::Block(_)) =>
            {
                Said {
                    also: next.also.clone(),
                    ..Said::new(next.device.clone(), Part::Cause(class, blame))
                }
            }
            _ => match &self.addressed {
                Some((known, device, also)) if *known == address && !address.is_empty() => Said {
                    also: also.clone(),
                    ..Said::new(device.clone(), Part::Cause(class, blame))
                },
                _ => Said::new(Device::Unnamed, Part::Cause(class, blame)),
            },
        };
        self.addressed = Some((address, said.device.clone(), said.also.clone()));
        if let Some(block) = self.learned.block_name(&said.device) {
            said.also = Some(std::mem::replace(&mut said.device, block));
        }
        self.apply(
            &Telling {
                rule: rule.name,
                said: &said,
                line,
                at: now,
            },
            rule,
            out,
        );
    }

    fn learn(&mut self, learn: &Learn, telling: &Telling<'_>, out: &mut Vec<Event>) {
        let said = telling.said;
        match learn {
            Learn::Attached | Learn::Mounted => {
                let (Device::Block(name) | Device::Nvme(name)) = &said.device else {
                    return;
                };
                let filesystem = *learn == Learn::Mounted;
                if let Some(Device::Block(host)) = &said.also
                    && name::is_card_host(host)
                {
                    self.learned.card(host, name);
                }
                // What is open under the name is of what had it before.
                let key = if filesystem {
                    format!("fs:{name}")
                } else {
                    self.learned.key(&said.device)
                };
                if let Some(at) = self.open.iter().position(|incident| incident.key == key) {
                    let mut former = self.open.swap_remove(at);
                    self.decide(&mut former, true, telling.at, telling.line.time, out);
                }
                if self.attached.len() >= MOST_ATTACHED {
                    self.attached.remove(0);
                }
                self.attached.push(Attached {
                    seq: telling.at.seq,
                    name: name.clone(),
                    at: telling.line.time,
                    filesystem,
                });
            }
            Learn::Host { host, driver } => self.learned.host(*host, driver),
            Learn::Port(port) => self.learned.port(*port),
            Learn::Same => {
                if let (Device::Ata { port, .. }, Some(Device::Hctl(hctl))) =
                    (&said.device, &said.also)
                    && let Some(host) = learned::host_of(hctl)
                {
                    self.learned.same(*port, host);
                }
            }
            Learn::Model(model) => {
                if is_virtual_model(model) {
                    self.learned.kind(&said.device, Kind::Virtual);
                }
            }
            Learn::Kind(kind) => self.learned.kind(&said.device, *kind),
            Learn::UsbReset(path) => {
                if let Some(host) = self.learned.usb_host(path) {
                    let said =
                        Said::new(Device::ScsiHost(host), Part::Cause(Class::Reset, Blame::No));
                    let key = self.learned.key(&said.device);
                    let mut incident = self.take(key, &said, telling.at, telling.line.time, out);
                    incident.touch(telling.at);
                    let new = !incident.told.has(Class::Reset);
                    let telling = Telling {
                        rule: telling.rule,
                        said: &said,
                        line: telling.line.clone(),
                        at: telling.at,
                    };
                    self.tell(&mut incident, &telling, Class::Reset, Blame::No, new, out);
                    self.open.push(incident);
                }
            }
            Learn::SlotEmptied => self.slot_trouble = Some(telling.at),
            Learn::Unplugged(path) => {
                if let Some(host) = self.learned.usb_host(path) {
                    self.learned.kind(&Device::ScsiHost(host), Kind::Usb);
                }
            }
            Learn::Guest => self.learned.guest = true,
            Learn::Boot => self.reboot(),
        }
    }
}

/// The journal's and the filesystems' records are of the filesystem on a device, the rest of the
/// device.
fn is_of_filesystem(rule: &str) -> bool {
    [
        "ext4-",
        "jbd2-",
        "xfs-",
        "btrfs-",
        "fat-",
        "f2fs-",
        "dm-thin",
        "dm-integrity",
        "dm-verity",
        "dm-crypt",
    ]
    .iter()
    .any(|family| rule.starts_with(family))
}

/// Those whose records the kernel leaves out when there are many.
fn is_rate_limited(rule: &str) -> bool {
    ["block-", "ext4-", "btrfs-", "scsi-", "nvme-status"]
        .iter()
        .any(|family| rule.starts_with(family))
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

fn port_of(key: &str) -> Option<u32> {
    key.strip_prefix("ata")?.parse().ok()
}

/// `DEVICE=` of /dev/kmsg: `b8:16`, `+scsi:6:0:0:0`, `+pci:0000:03:00.0`.
fn field_device(field: &str) -> Option<Device> {
    if let Some(number) = field.strip_prefix('b') {
        return number.parse().ok().map(Device::Number);
    }
    let (bus, name) = field.strip_prefix('+')?.split_once(':')?;
    match bus {
        "scsi" => name::any(name),
        "pci" => Some(Device::Pci(name.to_owned())),
        _ => None,
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
