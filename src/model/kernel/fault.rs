//! Whether the drives of a log are to blame: events in, one verdict a device out.
//!
//! The drive's own word (a medium error, a controller that does not get ready) is enough once. What
//! only was not answered is the drive's fault when nothing else explains it: it was given up after
//! its resets, and redundancy threw it out as well. Rates and times over days are for `assess`,
//! which has them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::model::kernel::classify::{BY_SOFTWARE, Excused, UNANSWERED, WITHOUT_PLACE};
use crate::model::kernel::event::{Blame, Class, Device, Event};
use crate::model::kernel::name;

/// Devices that are told apart; what is beyond goes into one.
const MOST_DEVICES: usize = 512;
/// Distinct sectors that are counted of one device.
const MOST_SECTORS: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    No,
    Unclear,
    Yes,
}

/// What a log says of one device.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub classes: BTreeMap<Class, u64>,
    pub sectors: BTreeSet<u64>,
    pub suppressed: u64,
    blame: Option<Blame>,
    offlined: bool,
    thrown_out: bool,
    unanswered: bool,
    /// Its words are those of a program that plays a disk.
    by_software: bool,
    without_place: bool,
    /// ATA's or NVMe's own status, which no target in software forwards.
    own_word: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Tally {
    devices: BTreeMap<String, Record>,
    /// Other names of the same device.
    names: BTreeMap<String, String>,
    excused: BTreeMap<String, BTreeSet<u64>>,
}

impl Tally {
    pub fn add(&mut self, event: &Event) {
        let key = self.key(event);
        if self.devices.len() >= MOST_DEVICES && !self.devices.contains_key(&key) {
            return self
                .devices
                .entry(Device::Unnamed.to_string())
                .or_default()
                .add(event);
        }
        self.devices.entry(key).or_default().add(event);
    }

    /// Errors without a cause, of a device that refuses what cannot be: the same refusals, whose
    /// reasons were not printed.
    pub fn forget_excused(&mut self) -> Vec<(String, u64)> {
        let only_io = |record: &Record| {
            record
                .classes
                .iter()
                .all(|(class, count)| *class == Class::Io || *count == 0)
        };
        let refused = |name: &str, sectors: &BTreeSet<u64>| {
            self.devices
                .get(name)
                .is_some_and(|record| only_io(record) && record.sectors.is_subset(sectors))
        };
        let gone: Vec<String> = self
            .excused
            .iter()
            .filter(|(name, sectors)| refused(name, sectors))
            .map(|(name, _)| name.clone())
            .collect();
        let count = |record: Record| record.classes.values().sum();
        gone.into_iter()
            .filter_map(|name| {
                self.devices
                    .remove(&name)
                    .map(|record| (name, count(record)))
            })
            .collect()
    }

    pub fn excuse(&mut self, excused: &Excused) {
        let Device::Block(name) = &excused.device else {
            return;
        };
        let name = name::whole(name);
        if self.excused.len() >= MOST_DEVICES && !self.excused.contains_key(name) {
            return;
        }
        let sectors = self.excused.entry(name.to_owned()).or_default();
        if sectors.len() < MOST_SECTORS {
            sectors.extend(excused.sector);
        }
    }

    pub fn devices(&self) -> impl Iterator<Item = (&str, &Record)> {
        self.devices
            .iter()
            .map(|(name, record)| (name.as_str(), record))
    }

    /// Of all together: the worst, and `no` when nothing was told.
    pub fn fault(&self) -> Fault {
        self.devices
            .iter()
            .map(|(name, record)| record.fault(name))
            .max()
            .unwrap_or(Fault::No)
    }

    /// A filesystem is told of under its device's name, a drive under the name of all of it.
    fn key(&mut self, event: &Event) -> String {
        let of = |device: &Device| match device {
            Device::Block(name) if !event.class.is_of_filesystem() => name::whole(name).to_owned(),
            other => other.to_string(),
        };
        let own = of(&event.device);
        if !event.class.is_of_filesystem() && matches!(event.device, Device::Block(_)) {
            for also in event
                .also
                .iter()
                .filter(|also| matches!(also, Device::Ata { .. } | Device::Hctl(_)))
            {
                let other = of(also);
                if let Some(before) = self.devices.remove(&other) {
                    self.devices.entry(own.clone()).or_default().join(before);
                }
                if self.names.len() < MOST_DEVICES {
                    self.names.insert(other, own.clone());
                }
            }
        }
        self.names.get(&own).cloned().unwrap_or(own)
    }
}

impl Record {
    fn add(&mut self, event: &Event) {
        *self.classes.entry(event.class).or_default() += event.count;
        for sector in &event.sectors {
            if self.sectors.len() < MOST_SECTORS {
                self.sectors.insert(*sector);
            }
        }
        self.suppressed += event.suppressed;
        if event.count > 0 {
            self.blame = self.blame.max(Some(event.blame));
        }
        self.offlined |= event.blame == Blame::Unclear && event.rule.starts_with("scsi-offlined");
        self.thrown_out |= event.rule.starts_with("md-failed");
        self.unanswered |= event.rule == UNANSWERED && event.blame == Blame::Unclear;
        self.own_word |= event.blame == Blame::Yes
            && (event.rule.starts_with("ata-") || event.rule.starts_with("nvme-"));
        self.by_software |= event.rule == BY_SOFTWARE;
        self.without_place |= event.rule == WITHOUT_PLACE;
    }

    fn join(&mut self, other: Record) {
        for (class, count) in other.classes {
            *self.classes.entry(class).or_default() += count;
        }
        self.sectors.extend(other.sectors);
        self.suppressed += other.suppressed;
        self.blame = self.blame.max(other.blame);
        self.offlined |= other.offlined;
        self.thrown_out |= other.thrown_out;
        self.unanswered |= other.unanswered;
        self.own_word |= other.own_word;
        self.by_software |= other.by_software;
        self.without_place |= other.without_place;
    }

    pub fn fault(&self, name: &str) -> Fault {
        if name::is_stacked(name) || name::is_never_a_drive(name) {
            return Fault::No;
        }
        let worst = self.worst();
        // Of nobody knows which drive no drive can be accused.
        if name == Device::Unnamed.to_string() {
            worst.min(Fault::Unclear)
        } else {
            worst
        }
    }

    fn worst(&self) -> Fault {
        match self.blame {
            Some(Blame::Yes) if !self.own_word && (self.by_software || self.without_place) => {
                Fault::Unclear
            }
            Some(Blame::Yes) => Fault::Yes,
            Some(Blame::Unclear) if self.offlined && self.thrown_out => Fault::Yes,
            Some(Blame::Unclear) if self.unanswered => Fault::Yes,
            Some(Blame::Unclear) => Fault::Unclear,
            Some(Blame::No) | None => Fault::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_drive_is_accused_without_a_name() {
        let record = Record {
            blame: Some(Blame::Yes),
            own_word: true,
            ..Record::default()
        };
        assert_eq!(
            (
                record.fault("sda"),
                record.fault(&Device::Unnamed.to_string())
            ),
            (Fault::Yes, Fault::Unclear)
        );
    }
}
