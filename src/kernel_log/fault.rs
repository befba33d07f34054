//! The verdict over a whole log: whether its drives are to blame.
//!
//! In: events. Out: one `DriveFault` per device.
//!
//! One error that the drive reports itself suffices (a medium error, a controller that does not
//! become ready). A missing response is the drive's fault only without another explanation: the
//! kernel took it offline after its resets, and redundancy removed it too. I/O errors without a
//! reported cause are evidence if they are in many sectors and take as long as a drive's own retries,
//! and if nothing else explains them: a bridge, a network, a hypervisor, a removal, or a controller
//! whose other drives fail too. `assess` judges rates and times over days.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::classify::RejectedRequest;
use crate::device_name;
use crate::event::{Blame, Class, DeviceName, Event};
use crate::rule::Evidence;
use crate::rules;

/// Maximum number of devices with a separate summary; the rest share one.
const MAX_DEVICES: usize = 512;
/// Distinct sectors that are counted per device.
const MAX_DEVICE_SECTORS: usize = 4_096;
/// Distinct sectors with I/O errors that are evidence against the drive.
const MANY_SECTORS: usize = 8;
/// They take at least this long: a drive retries each sector for seconds, while a path that is gone
/// fails all requests at once.
const RETRY_TIME: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveFault {
    No,
    Unclear,
    Yes,
}

/// The events of one device in a log, summed up.
#[derive(Clone, Debug, Default)]
pub struct DeviceSummary {
    /// Incidents of each class.
    pub classes: BTreeMap<Class, u64>,
    pub sectors: BTreeSet<u64>,
    pub suppressed: u64,
    blame: Option<Blame>,
    evidence: BTreeSet<Evidence>,
    /// Times of the first and the last I/O error.
    io_span: Option<(Timestamp, Timestamp)>,
    /// The device is behind a bridge, a network or a hypervisor.
    is_indirect: bool,
}

/// A verdict, and in words why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultVerdict {
    pub fault: DriveFault,
    pub reason: &'static str,
}

#[derive(Clone, Debug, Default)]
pub struct FaultSummary {
    devices: BTreeMap<String, DeviceSummary>,
    /// Other names of the same device.
    names: BTreeMap<String, String>,
    rejected_sectors: BTreeMap<String, BTreeSet<u64>>,
    /// A device was unplugged; which one is unknown.
    has_removal: bool,
}

impl FaultSummary {
    /// `is_direct`: no bridge, network or hypervisor is known between the host and the device.
    pub fn add(&mut self, event: &Event, is_direct: bool) {
        let key = self.key(event);
        let full = self.devices.len() >= MAX_DEVICES && !self.devices.contains_key(&key);
        let key = if full { DeviceName::Unnamed.to_string() } else { key };
        let summary = self.devices.entry(key).or_default();
        summary.add(event);
        summary.is_indirect |= !is_direct;
    }

    /// Something was unplugged. What the record names may be another device than the drive.
    pub fn add_removal(&mut self) {
        self.has_removal = true;
    }

    /// Removes devices whose errors have no cause and are in sectors that the device rejected: the
    /// same rejections, printed without their reason.
    pub fn remove_rejected(&mut self) -> Vec<(String, u64)> {
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

    pub fn add_rejected(&mut self, excused: &RejectedRequest) {
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

    pub fn devices(&self) -> impl Iterator<Item = (&str, &DeviceSummary)> {
        self.devices.iter().map(|(name, record)| (name.as_str(), record))
    }

    /// The worst verdict of all devices; `No` without events.
    pub fn worst_fault(&self) -> DriveFault {
        self.devices
            .iter()
            .map(|(name, record)| self.verdict(name, record).fault)
            .max()
            .unwrap_or(DriveFault::No)
    }

    pub fn verdict(&self, name: &str, device: &DeviceSummary) -> FaultVerdict {
        let verdict = device.verdict(name);
        if verdict.fault == DriveFault::Unclear && self.is_failing_alone(name, device) {
            return FaultVerdict {
                fault: DriveFault::Yes,
                reason: "I/O errors in many sectors over time, and no other cause in the log",
            };
        }
        verdict
    }

    /// Only I/O errors without a cause, in many sectors, over the time of a drive's retries; and no
    /// other drive has them, nothing was unplugged, and no other part is in between.
    fn is_failing_alone(&self, name: &str, device: &DeviceSummary) -> bool {
        let is_drive =
            |name: &str| !device_name::is_stacked(name) && name.starts_with(['s', 'n', 'h']);
        let others = self.devices.iter().filter(|(other, summary)| {
            other.as_str() != name && is_drive(other) && summary.classes.contains_key(&Class::Io)
        });
        let took =
            device.io_span.map(|(first, last)| Duration::try_from(last.duration_since(first)));
        device.has_only_io()
            && device.sectors.len() >= MANY_SECTORS
            && matches!(took, Some(Ok(time)) if time >= RETRY_TIME)
            && !device.is_indirect
            && !self.has_removal
            && is_drive(name)
            && others.count() == 0
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
        if event.class == Class::Io {
            let (first, last) = (event.first.time, event.last.time);
            self.extend_io_span(first, last);
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

    fn extend_io_span(&mut self, first: Timestamp, last: Timestamp) {
        let (from, to) = self.io_span.unwrap_or((first, last));
        self.io_span = Some((from.min(first), to.max(last)));
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
        if let Some((first, last)) = other.io_span {
            self.extend_io_span(first, last);
        }
        self.is_indirect |= other.is_indirect;
    }

    fn verdict(&self, name: &str) -> FaultVerdict {
        let of = |fault, reason| FaultVerdict { fault, reason };
        if device_name::is_stacked(name) {
            return of(DriveFault::No, "a device on top of others");
        }
        if device_name::is_never_drive(name) {
            return of(DriveFault::No, "no drive of this host");
        }
        let (worst, reason) = self.fault_from_blame();
        // An unknown drive cannot be blamed.
        if name == DeviceName::Unnamed.to_string() && worst > DriveFault::No {
            return of(DriveFault::Unclear, "the records name no drive");
        }
        of(worst, reason)
    }

    fn fault_from_blame(&self) -> (DriveFault, &'static str) {
        let is_of_filesystem = self.classes.keys().all(|class| class.is_filesystem_class());
        match self.blame {
            Some(Blame::Yes)
                if !self.has(Evidence::DriveStatus)
                    && (self.has(Evidence::SoftwareSense)
                        || self.has(Evidence::MediumWithoutSector)) =>
            {
                (DriveFault::Unclear, "the error's report can be that of a target in software")
            }
            Some(Blame::Yes) if self.classes.contains_key(&Class::Medium) => {
                (DriveFault::Yes, "the drive reports that its medium or hardware failed")
            }
            Some(Blame::Yes) => (
                DriveFault::Yes,
                "the drive or its controller does not respond, and its link works",
            ),
            Some(Blame::Unclear)
                if self.has(Evidence::ResetUnanswered)
                    || self.has(Evidence::Offlined) && self.has(Evidence::FailedByRedundancy) =>
            {
                (DriveFault::Yes, "the drive did not respond to resets")
            }
            Some(Blame::Unclear) if is_of_filesystem => {
                (DriveFault::Unclear, "the filesystem does not say whether its drive caused this")
            }
            Some(Blame::Unclear) if self.is_indirect => {
                (DriveFault::Unclear, "a bridge, a network or a hypervisor is in between")
            }
            Some(Blame::Unclear) if self.has_only_io() => {
                (DriveFault::Unclear, "no record names the cause of the errors")
            }
            Some(Blame::Unclear) => {
                (DriveFault::Unclear, "the drive, or the path to it: cable, power, adapter")
            }
            Some(Blame::No) | None => {
                (DriveFault::No, "caused by the path, the host, a person or the filesystem itself")
            }
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
            (record.verdict("sda").fault, record.verdict(&DeviceName::Unnamed.to_string()).fault),
            (DriveFault::Yes, DriveFault::Unclear)
        );
    }
}
