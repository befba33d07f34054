//! The verdict over a whole log: whether its drives are to blame.
//!
//! In: events. Out: one `DriveFault` per device.
//!
//! One error that the drive reports itself suffices (a medium error, a controller that does not
//! become ready). A missing response is the drive's fault only without another explanation: the
//! kernel took it offline after its resets, and redundancy removed it too. `assess` judges rates
//! and times over days.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::model::kernel_log::classify::RejectedRequest;
use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::{Blame, Class, DeviceName, Event};
use crate::model::kernel_log::rule::Evidence;
use crate::model::kernel_log::rules;

/// Maximum number of devices with a separate summary; the rest share one.
const MAX_DEVICES: usize = 512;
/// Distinct sectors that are counted per device.
const MAX_DEVICE_SECTORS: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveFault {
    No,
    Unclear,
    Yes,
}

/// The events of one device in a log, summed up.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceSummary {
    /// Incidents of each class.
    pub classes: BTreeMap<Class, u64>,
    pub sectors: BTreeSet<u64>,
    pub suppressed: u64,
    blame: Option<Blame>,
    evidence: BTreeSet<Evidence>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FaultSummary {
    devices: BTreeMap<String, DeviceSummary>,
    /// Other names of the same device.
    names: BTreeMap<String, String>,
    rejected_sectors: BTreeMap<String, BTreeSet<u64>>,
}

impl FaultSummary {
    pub(crate) fn add(&mut self, event: &Event) {
        let key = self.key(event);
        if self.devices.len() >= MAX_DEVICES && !self.devices.contains_key(&key) {
            return self
                .devices
                .entry(DeviceName::Unnamed.to_string())
                .or_default()
                .add(event);
        }
        self.devices.entry(key).or_default().add(event);
    }

    /// Removes devices whose errors have no cause and are in sectors that the device rejected: the
    /// same rejections, printed without their reason.
    pub(crate) fn remove_rejected(&mut self) -> Vec<(String, u64)> {
        self.rejected_sectors
            .iter()
            .filter_map(|(name, sectors)| {
                self.devices.get(name).filter(|summary| {
                    summary.has_only_io() && summary.sectors.is_subset(sectors)
                })?;
                let summary = self.devices.remove(name)?;
                Some((name.clone(), summary.classes.values().sum()))
            })
            .collect()
    }

    pub(crate) fn add_rejected(&mut self, excused: &RejectedRequest) {
        let DeviceName::Block(name) = &excused.device else {
            return;
        };
        let name = device_name::whole_disk(name);
        if self.rejected_sectors.len() >= MAX_DEVICES && !self.rejected_sectors.contains_key(name) {
            return;
        }
        let sectors = self.rejected_sectors.entry(name.to_owned()).or_default();
        if sectors.len() < MAX_DEVICE_SECTORS {
            sectors.extend(excused.sector);
        }
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = (&str, &DeviceSummary)> {
        self.devices
            .iter()
            .map(|(name, record)| (name.as_str(), record))
    }

    /// The worst verdict of all devices; `No` without events.
    pub(crate) fn fault(&self) -> DriveFault {
        self.devices
            .iter()
            .map(|(name, record)| record.fault(name))
            .max()
            .unwrap_or(DriveFault::No)
    }

    /// The key of an event: for filesystems their device's name, for drives the whole drive's name.
    fn key(&mut self, event: &Event) -> String {
        let of = |device: &DeviceName| match device {
            DeviceName::Block(name) if !event.class.is_filesystem_class() => {
                device_name::whole_disk(name).to_owned()
            }
            other => other.to_string(),
        };
        let own = of(&event.device);
        if !event.class.is_filesystem_class() && matches!(event.device, DeviceName::Block(_)) {
            for also in event
                .other_names
                .iter()
                .filter(|also| matches!(also, DeviceName::Ata { .. } | DeviceName::Hctl(_)))
            {
                let other = of(also);
                if let Some(before) = self.devices.remove(&other) {
                    self.devices.entry(own.clone()).or_default().merge(before);
                }
                if self.names.len() < MAX_DEVICES {
                    self.names.insert(other, own.clone());
                }
            }
        }
        self.names.get(&own).cloned().unwrap_or(own)
    }
}

impl DeviceSummary {
    fn add(&mut self, event: &Event) {
        if event.count > 0 {
            *self.classes.entry(event.class).or_default() += event.count;
            self.blame = self.blame.max(Some(event.blame));
        }
        for sector in &event.sectors {
            if self.sectors.len() < MAX_DEVICE_SECTORS {
                self.sectors.insert(*sector);
            }
        }
        self.suppressed += event.suppressed;
        let evidence = rules::table()
            .find(&event.rule)
            .and_then(|rule| rule.family.evidence)
            .filter(|evidence| match evidence {
                Evidence::Offlined | Evidence::ResetUnanswered => event.blame == Blame::Unclear,
                Evidence::DriveStatus => event.blame == Blame::Yes,
                Evidence::FailedByRedundancy
                | Evidence::SoftwareSense
                | Evidence::MediumWithoutSector => true,
            });
        self.evidence.extend(evidence);
    }

    fn has(&self, evidence: Evidence) -> bool {
        self.evidence.contains(&evidence)
    }

    fn has_only_io(&self) -> bool {
        self.classes.keys().all(|class| *class == Class::Io)
    }

    fn merge(&mut self, other: DeviceSummary) {
        for (class, count) in other.classes {
            *self.classes.entry(class).or_default() += count;
        }
        self.sectors.extend(other.sectors);
        self.suppressed += other.suppressed;
        self.blame = self.blame.max(other.blame);
        self.evidence.extend(other.evidence);
    }

    pub(crate) fn fault(&self, name: &str) -> DriveFault {
        if device_name::is_stacked(name) || device_name::is_never_drive(name) {
            return DriveFault::No;
        }
        let worst = self.fault_from_blame();
        // An unknown drive cannot be blamed.
        if name == DeviceName::Unnamed.to_string() {
            worst.min(DriveFault::Unclear)
        } else {
            worst
        }
    }

    fn fault_from_blame(&self) -> DriveFault {
        match self.blame {
            Some(Blame::Yes)
                if !self.has(Evidence::DriveStatus)
                    && (self.has(Evidence::SoftwareSense)
                        || self.has(Evidence::MediumWithoutSector)) =>
            {
                DriveFault::Unclear
            }
            Some(Blame::Yes) => DriveFault::Yes,
            Some(Blame::Unclear)
                if self.has(Evidence::ResetUnanswered)
                    || self.has(Evidence::Offlined) && self.has(Evidence::FailedByRedundancy) =>
            {
                DriveFault::Yes
            }
            Some(Blame::Unclear) => DriveFault::Unclear,
            Some(Blame::No) | None => DriveFault::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_an_unnamed_device_is_unclear() {
        let record = DeviceSummary {
            blame: Some(Blame::Yes),
            evidence: BTreeSet::from([Evidence::DriveStatus]),
            ..DeviceSummary::default()
        };
        assert_eq!(
            (
                record.fault("sda"),
                record.fault(&DeviceName::Unnamed.to_string())
            ),
            (DriveFault::Yes, DriveFault::Unclear)
        );
    }
}
