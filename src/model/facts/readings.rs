//! Which readings that somebody waits for are still outstanding, and which could not be made. Pure.
//!
//! In: the time of the request, the mounts in question. Out: names of readings, for people.

use jiff::Timestamp;

use crate::facts::Facts;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;

/// A reading that a request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedReading {
    /// A scan of the hardware.
    Hardware,
    MountTable,
    KubeletRecords,
    Probe(HostPath),
    /// The kernel log. Where it has lost records: the error counters, and what these drives answer.
    KernelLog(Vec<DriveId>),
}

/// A reading that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It began after the request and has ended, or hangs: a hang is an observation too.
    Made,
    Outstanding(String),
    /// It will not be made, or it has failed.
    Impossible(String),
}

impl Facts {
    /// The reading that began at `since` or later.
    pub fn reading_since(&self, wanted: &WantedReading, since: Timestamp) -> Reading {
        match wanted {
            WantedReading::Hardware => self.scan_since(since),
            WantedReading::MountTable => {
                table_since(self.mounts.observation(), since, "the mount table")
            }
            WantedReading::KubeletRecords => {
                table_since(self.kubelet.observation(), since, "the kubelet's directory")
            }
            WantedReading::Probe(path) => self.probe_since(path, since),
            WantedReading::KernelLog(drives) => self.log_since(since, drives),
        }
    }

    /// The scan of the hardware that began at `since` or later.
    pub(crate) fn scan_since(&self, since: Timestamp) -> Reading {
        match self.inventory.observation() {
            Observation::Ok { at, .. } if *at >= since => Reading::Made,
            Observation::Failed { at, error } if *at >= since => {
                Reading::Impossible(format!("the hardware could not be scanned: {error}"))
            }
            _ => Reading::Outstanding("the hardware has not been scanned again".to_owned()),
        }
    }

    /// The answer to smartctl since then, of a drive that can answer.
    pub(in crate::facts) fn smart_since(&self, drive: &DriveId, since: Timestamp) -> Reading {
        // A scan says what there is to say of one that is gone.
        let is_there = self.drives.get(drive).is_some_and(|known| !known.is_unusable());
        let smart = self.smart.get(drive).filter(|_| is_there && self.has_answered_smart(drive));
        let is_made = smart.is_none_or(|smart| {
            let answered = smart.outcome.as_ref().is_some_and(|(at, _)| *at >= since);
            answered || smart.stuck.is_some()
        });
        match is_made {
            true => Reading::Made,
            false => Reading::Outstanding(format!("drive {drive} has not been asked again")),
        }
    }

    /// The probe of a mount that began at `since` or later.
    pub(crate) fn probe_since(&self, path: &HostPath, since: Timestamp) -> Reading {
        let Some(mount) = self.probes.mounts().get(path) else {
            return Reading::Made;
        };
        let is_asleep = |known: &crate::facts::KnownVolume| self.is_asleep(&known.facts);
        if self.volumes.get(&mount.volume).is_some_and(is_asleep) {
            return Reading::Impossible(format!(
                "{path} was not probed: its drives sleep and are not woken"
            ));
        }
        let probe = self.probes.get(path);
        if probe.is_some_and(|probe| probe.stuck.is_some()) {
            return Reading::Made;
        }
        match probe.map(|probe| &probe.result) {
            Some(Observation::Ok { at, .. }) if *at >= since => Reading::Made,
            Some(Observation::Failed { at, error }) if *at >= since => {
                Reading::Impossible(format!("{path} could not be probed: {error}"))
            }
            _ => Reading::Outstanding(format!("{path} has not been probed again")),
        }
    }
}

/// A table that is read as a whole.
fn table_since<T>(observation: &Observation<T>, since: Timestamp, name: &str) -> Reading {
    match observation {
        Observation::Ok { at, .. } if *at >= since => Reading::Made,
        Observation::Failed { at, error } if *at >= since => {
            Reading::Impossible(format!("{name} could not be read: {error}"))
        }
        _ => Reading::Outstanding(format!("{name} has not been read again")),
    }
}

#[cfg(test)]
mod tests;
