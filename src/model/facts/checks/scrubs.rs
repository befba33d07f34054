//! Scrubs of a btrfs that settle what a check of it found: damaged copies beside good ones.
//!
//! A scrub compares every copy with its checksum, and does not test the structures as a check does:
//! it settles nothing else. The record of a scrub can be read only while the btrfs is mounted, so the
//! result is kept with the check.

use std::sync::Arc;

use crate::facts::{Facts, KnownVolume};
use diskvitals_finding::ids::CheckId;
use diskvitals_fscheck::Check;

impl Facts {
    /// The UUID of the volume's btrfs, if the record of its last scrub decides about a finding, or has not
    /// been read for long.
    pub fn awaited_scrub(&self, known: &KnownVolume) -> Option<String> {
        let fs = self.btrfs_below(&known.facts)?;
        let is_awaited = !fs.returned.is_empty()
            || self.unscrubbed_checks(known).next().is_some()
            || self.is_btrfs_record_due(fs);
        is_awaited.then(|| fs.uuid.clone())
    }

    /// Notes at the checks which of them a scrub without an error has followed.
    pub(in crate::facts) fn record_scrubs(&mut self) {
        let mut ids: Vec<CheckId> = Vec::new();
        for known in self.volumes.values() {
            let Some(scrub) = self.clean_scrub(known) else {
                continue;
            };
            let is_earlier = |ended| self.wall_time(ended) < scrub;
            let checks = self.unscrubbed_checks(known);
            let scrubbed = checks.filter(|check| check.ended.is_some_and(is_earlier));
            ids.extend(scrubbed.map(|check| check.id.clone()));
        }
        for id in ids {
            if let Some(check) = self.checks.by_id.get_mut(&id) {
                Arc::make_mut(check).is_scrubbed = true;
            }
        }
    }

    fn unscrubbed_checks<'a>(&'a self, known: &'a KnownVolume) -> impl Iterator<Item = &'a Check> {
        let checks = self.checks_of(known).map(AsRef::as_ref);
        checks.filter(|check| check.found_only_damaged_copies() && !check.is_scrubbed)
    }
}
