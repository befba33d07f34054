//! The next step of replacing a drive. Pure.
//!
//! In: the facts, the active findings, and the drive. Out: one step, which follows from the state of the
//! node alone: it is the same after a reboot, and the next one appears only when the state shows that the
//! last one is done. The commands are for a person to read and type; the daemon runs none of them.
//!
//! What a stack needs next is in `replacement/`, a file for each. Whether the drive can be pulled,
//! `removal` decides. No command here destroys what it does not replace: a test holds the words.

mod btrfs;
mod fitness;
mod lvm;
mod md;
mod outside;
mod put_back;
mod zfs;

use std::collections::BTreeSet;

use crate::assess::ActiveFindings;
use crate::block::{BlockDevice, Inventory, Layer};
use crate::facts::{Facts, KnownDrive};
use crate::label;
use crate::removal::{self, CanBePulled, Removal};
use crate::stack::{StorageStack, progress_text};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::severity::Severity;
use diskvitals_text::naming::slot_name;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Another drive is out: it goes back before anything is typed.
    PutBack,
    /// Something is not read, or not understood.
    NotKnown,
    /// It holds what has no sound copy elsewhere.
    Save,
    /// The new drive goes in.
    Insert,
    /// The new drive is not fit: nothing is printed that writes to it.
    Unfit,
    /// The commands are to be typed.
    Type,
    /// Something runs, and ends by itself.
    Wait,
    /// The drive comes out.
    Pull,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub kind: StepKind,
    /// What to do, and why.
    pub text: String,
    /// To be typed in this order, each after the last one has succeeded.
    pub commands: Vec<String>,
    /// What to know of the new drive before it is used.
    pub warnings: Vec<String>,
    /// The new drive, if it is known.
    pub replacement: Option<DriveId>,
}

impl Step {
    fn new(kind: StepKind, text: impl Into<String>) -> Step {
        let (commands, warnings) = (Vec::new(), Vec::new());
        Step { kind, text: text.into(), commands, warnings, replacement: None }
    }

    fn type_in(text: impl Into<String>, commands: impl IntoIterator<Item = String>) -> Step {
        Step { commands: commands.into_iter().collect(), ..Step::new(StepKind::Type, text) }
    }
}

/// None: no such drive is known. `with`: the new drive, if a person has named it.
pub fn next_step(
    facts: &Facts,
    active: &ActiveFindings,
    drive: &DriveId,
    with: Option<&DriveId>,
) -> Option<(Removal, Step)> {
    let known = facts.drives.get(drive)?;
    let removal = removal::removal(facts, active, drive)?;
    let step = match facts.inventory() {
        None => Step::new(StepKind::NotKnown, "The devices have not been read."),
        Some(inventory) => {
            let guide = Guide { facts, inventory, active, known, removal: &removal };
            guide.next(with)
        }
    };
    Some((removal, step))
}

/// What each stack decides with.
struct Guide<'a> {
    facts: &'a Facts,
    inventory: &'a Inventory,
    active: &'a ActiveFindings,
    /// The drive that is replaced.
    known: &'a KnownDrive,
    removal: &'a Removal,
}

/// What a stack needs next.
enum Need<'a> {
    /// It needs no new drive for this.
    Step(Step),
    New(NewDrive<'a>),
}

/// A stack needs a new drive.
struct NewDrive<'a> {
    /// Its name, for people.
    stack: String,
    /// The old drive still holds a copy for it.
    is_on_old: bool,
    /// What takes the old drive out of it first, where there is no free bay.
    take_out: Option<String>,
    /// Once the new drive is there and fit.
    step: Box<dyn Fn(&KnownDrive) -> Step + 'a>,
}

impl<'a> Guide<'a> {
    fn next(&self, with: Option<&DriveId>) -> Step {
        if let Some(step) = self.put_back().or_else(|| self.outside()) {
            return step;
        }
        if let Some(error) = self.facts.inventory.error() {
            let text = format!("The devices could not be read again: {error}.");
            return Step::new(StepKind::NotKnown, text);
        }
        if let Some(name) = self.unread_layer() {
            let text = format!("The state of {name} is not known. Nothing is typed before it is.");
            return Step::new(StepKind::NotKnown, text);
        }
        let needs = self.md().into_iter().chain(self.lvm()).chain(self.btrfs()).chain(self.zfs());
        let mut needs: Vec<Need<'_>> = needs.collect();
        if needs.is_empty() {
            return self.without_use();
        }
        // What needs no new drive comes first: it may be what removes the old one.
        let at = needs.iter().position(|need| matches!(need, Need::Step(_))).unwrap_or(0);
        match needs.swap_remove(at) {
            Need::Step(step) => step,
            Need::New(need) => self.with_new_drive(with, &need),
        }
    }

    /// The state of an array or pool that is not current: what it lacks is not known.
    fn unread_layer(&self) -> Option<String> {
        let mut devices = self.inventory.devices.values();
        let is_unread = |device: &&BlockDevice| {
            let layer = self.facts.layers.get(&device.name);
            let is_current =
                layer.is_some_and(|it| it.stuck.is_none() && it.state.value().is_some());
            device.layer.has_state() && !is_current
        };
        devices.find(is_unread).map(|device| label::device(self.inventory, &device.name))
    }

    fn with_new_drive(&self, with: Option<&DriveId>, need: &NewDrive<'_>) -> Step {
        let new = match self.new_drive(with) {
            Ok(new) => new,
            Err(step) => return step,
        };
        let Some(new) = new else { return self.insert(need) };
        let replacement = Some(new.facts.id.clone());
        let warnings = self.warnings(new);
        if let Some(unfit) = self.unfit(new) {
            return Step { replacement, warnings, ..unfit };
        }
        let step = (need.step)(new);
        let text = format!("{} The new drive is {}.", step.text, drive_words(new));
        Step { replacement, warnings, text, ..step }
    }

    /// Replace first and pull afterwards: the copies stay while the new drive is filled.
    fn insert(&self, need: &NewDrive<'_>) -> Step {
        let (stack, name) = (&need.stack, &self.known.facts.name);
        let is_pullable = self.removal.answer == CanBePulled::Yes;
        if self.is_missing() {
            let place = self.place();
            let text =
                format!("Put the new drive into {place}. {stack} lacks a copy until it is filled.");
            return Step::new(StepKind::Insert, text);
        }
        if !need.is_on_old && is_pullable {
            return self.pull();
        }
        let without_bay = match (&need.take_out, is_pullable) {
            (Some(command), true) => format!(
                "Without a free bay, and only with a backup, take {name} out of {stack} first: `{command}`."
            ),
            (None, true) => {
                format!("Without a free bay, pull {name} first, and only with a backup.")
            }
            (_, false) => "Without a free bay it has to wait: it cannot be pulled now.".to_owned(),
        };
        let text = format!(
            "Put the new drive into a free bay, and leave {name} in: {stack} keeps its copies while the new drive is filled. {without_bay}"
        );
        Step::new(StepKind::Insert, text)
    }

    fn pull(&self) -> Step {
        let name = &self.known.facts.name;
        let serial = self.known.facts.serial.as_deref().unwrap_or("this one, which is not known");
        let place = self.place();
        let text = format!(
            "Nothing here needs {name}. Compare the serial on its label with {serial}, then pull it from {place}."
        );
        Step::new(StepKind::Pull, text)
    }

    /// Nothing that can be given a copy elsewhere is on it.
    fn without_use(&self) -> Step {
        let name = &self.known.facts.name;
        if self.is_missing() {
            return match self.lacking() {
                Some(stack) => Step::new(
                    StepKind::NotKnown,
                    format!("{stack} lacks a member, and nothing shows whether it was {name}."),
                ),
                None => Step::new(
                    StepKind::Done,
                    format!(
                        "{name} is out, and nothing here lacks a copy. Turn off its lamp, if it is lit."
                    ),
                ),
            };
        }
        match self.removal.answer {
            CanBePulled::Yes => self.pull(),
            CanBePulled::No => Step::new(
                StepKind::Save,
                format!(
                    "Copy what is on {name} elsewhere first: it has no other sound copy here, or something runs that needs it."
                ),
            ),
            CanBePulled::NotKnown => Step::new(
                StepKind::NotKnown,
                format!(
                    "Not all that is on {name} is understood: find out what needs it before you pull it."
                ),
            ),
        }
    }

    /// An array, pool or filesystem that lacks a member.
    fn lacking(&self) -> Option<String> {
        let lacks = |stack: &dyn StorageStack| stack.lacking().is_some_and(|count| count > 0);
        let states = self.facts.layers.iter();
        let layers = states.filter_map(|(name, layer)| {
            let stack = layer.state.last_known()?.stack()?;
            (self.inventory.devices.contains_key(name) && lacks(stack))
                .then(|| label::device(self.inventory, name))
        });
        let btrfs = self.inventory.btrfs.iter().filter(|fs| lacks(*fs));
        layers.chain(btrfs.map(|fs| fs.name(self.inventory, ""))).next()
    }

    fn is_missing(&self) -> bool {
        self.known.missing_since.is_some()
    }

    fn id(&self) -> &DriveId {
        &self.known.facts.id
    }

    /// `slot 3 of enclosure 0x500304801a2b3c7f`, or its port.
    fn place(&self) -> String {
        place_of(self.known)
    }

    /// Whether the device is on this drive and no other.
    fn is_on(&self, device: &str, drive: &DriveId) -> bool {
        let drives = self.inventory.drives_below(device);
        drives.len() == 1 && drives.contains(drive)
    }

    /// The disk and its partitions.
    fn devices_of(&self, drive: &DriveId) -> Vec<&'a BlockDevice> {
        let is_its = |device: &&BlockDevice| {
            matches!(device.layer, Layer::Disk | Layer::Partition { .. })
                && self.is_on(&device.name, drive)
        };
        self.inventory.devices.values().filter(is_its).collect()
    }

    /// The disk itself.
    fn disk_of(&self, drive: &DriveId) -> Option<&'a BlockDevice> {
        self.inventory.devices.values().find(|device| device.drive.as_ref() == Some(drive))
    }

    /// Its name below /dev that stays the same over a reboot, quoted for a shell.
    fn path(&self, device: &str) -> String {
        let device = self.inventory.devices.get(device);
        let links = device.map(|it| it.links.as_slice()).unwrap_or_default();
        let name = device.map(|it| it.name.as_str()).unwrap_or_default();
        quoted(&stable_link(links).unwrap_or_else(|| format!("/dev/{name}")))
    }

    /// Whether it has a finding that is worse than information: it is read as little as possible.
    fn is_sick(&self) -> bool {
        let subject = Subject::Drive(self.id().clone());
        self.active.iter().any(|((of, _), finding)| {
            *of == subject && matches!(finding.level.0, Severity::Bad | Severity::Suspect)
        })
    }

    fn wait(&self, stack: &dyn StorageStack, name: &str) -> Step {
        let (what, progress) = (stack.running().unwrap_or("rebuild"), progress_text(stack));
        let what = if what == "recover" { "rebuild" } else { what };
        Step::new(
            StepKind::Wait,
            format!("{name}: {what} runs{progress}. Leave all its drives in until it has ended."),
        )
    }
}

fn place_of(known: &KnownDrive) -> String {
    let location = &known.facts.location;
    match (&location.slot, &location.enclosure, &location.path) {
        (Some(slot), Some(enclosure), _) => {
            format!("slot {} of enclosure {enclosure}", slot_name(slot))
        }
        (Some(slot), None, _) => format!("slot {}", slot_name(slot)),
        (None, _, Some(path)) => format!("its place (port {path})"),
        (None, _, None) => "its place".to_owned(),
    }
}

/// `sdb (serial S, slot 3 of …)`.
fn drive_words(known: &KnownDrive) -> String {
    let serial = known.facts.serial.as_deref().unwrap_or("not known");
    format!("{} (serial {serial}, {})", known.facts.name, place_of(known))
}

/// A by-id link with the serial rather than one with a number that no label shows.
fn stable_link(links: &[String]) -> Option<String> {
    let by_id = || links.iter().filter(|link| link.starts_with("/dev/disk/by-id/"));
    let has_number_only = |link: &&String| {
        let name = link.trim_start_matches("/dev/disk/by-id/");
        name.starts_with("wwn-") || name.starts_with("nvme-eui.") || name.starts_with("scsi-3")
    };
    // Names of what stands on the device change with its content.
    let is_of_content = |link: &&String| {
        let name = link.trim_start_matches("/dev/disk/by-id/");
        ["md-", "dm-", "lvm-"].iter().any(|it| name.starts_with(it))
    };
    let best = by_id().filter(|it| !is_of_content(it)).find(|it| !has_number_only(it));
    best.or_else(|| by_id().find(|it| !is_of_content(it))).cloned()
}

/// As one word of a POSIX shell (XCU 2.2.2).
fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "/._-:=@%+,".contains(it);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The volumes of both, and what both are members of.
fn have_in_common(a: &KnownDrive, b: &KnownDrive) -> bool {
    let volumes: BTreeSet<_> = a.volumes.iter().collect();
    b.volumes.iter().any(|it| volumes.contains(it))
        || b.member_of.iter().any(|it| a.member_of.contains(it))
}

#[cfg(test)]
mod tests;
