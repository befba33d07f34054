//! Reads of whole devices: md's checks and repairs of an array, scrubs of a btrfs.
//!
//! In: their begins and ends in the kernel log, and what an array has counted. Out: errors that such a
//! read has shown to be over (`repairs`), and the last pass over each array (`last_pass`).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::block::{Layer, LayerState};
use crate::facts::Facts;
use crate::facts::last_pass::WholePass;
use crate::stack::BtrfsFs;
use diskvitals_kernel_log::event::FullRead;

/// The one that began first is forgotten first.
const MAX_BEGUN: usize = 256;
/// The name of every array of dm-raid in the log (mdname(), drivers/md/md.h).
const DM_RAID: &str = "mdX";

/// A read that has not come to its end. An interrupted one goes on where it stopped, also after a
/// reboot (mdcheck, `btrfs scrub resume`): all was read since its first begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunRead {
    /// The UUID of the array or the btrfs; where it is not known, the name in the log.
    device: String,
    member: Option<u64>,
    since: Timestamp,
    begins: u32,
}

impl BegunRead {
    /// When it began, if it is a scrub of this btrfs.
    pub(super) fn of_member_of(&self, fs: &BtrfsFs) -> Option<Timestamp> {
        let is_it = self.device == fs.uuid || fs.has_member(&self.device);
        (is_it && self.member.is_some()).then_some(self.since)
    }
}

impl Facts {
    pub(super) fn apply_full_read(&mut self, read: &FullRead) {
        let of_md = || self.array_uuid(&read.device).map(str::to_owned);
        let of_btrfs = || Some(self.inventory()?.btrfs_of(&read.device)?.uuid.clone());
        let uuid = read.member.map_or_else(of_md, |_| of_btrfs());
        let is_it = |begun: &BegunRead| {
            begun.member == read.member
                && (begun.device == read.device || uuid.as_ref() == Some(&begun.device))
        };
        let reads = &mut Arc::make_mut(&mut self.kernel.progress).begun_reads;
        match reads.iter().position(is_it) {
            Some(at) if read.is_done => {
                let begun = reads.remove(at);
                self.end_full_read(read, &begun);
            }
            None if read.is_done => self.note_unknown_end(read),
            Some(at) => reads[at].begins += 1,
            None => {
                if reads.len() >= MAX_BEGUN {
                    reads.remove(0);
                }
                reads.push(BegunRead {
                    device: uuid.unwrap_or_else(|| read.device.clone()),
                    member: read.member,
                    since: read.at,
                    begins: 1,
                });
            }
        }
    }

    /// All of a device was read, and no error of what is below it was reported since the read began:
    /// earlier errors are over. An array's check reads each member in sync; a scrub only what is in
    /// use, so that it proves nothing about single sectors of the medium.
    fn end_full_read(&mut self, read: &FullRead, begun: &BegunRead) {
        if read.member.is_none()
            && let Some(array) = self.array_of(&read.device, begun).map(str::to_owned)
        {
            let is_in_parts = begun.begins > 1;
            let known = self.last_pass(&array);
            let found = known.found.filter(|_| is_in_parts);
            let ended = Some(read.at);
            self.record_pass(&array, WholePass { ended, found, is_in_parts, ..known });
        }
        if self.array_of(&read.device, begun).is_none() {
            self.note_unknown_end(read);
        }
        // The records that were lost may have been errors.
        let gap = self.kernel.progress.gap_until;
        if gap.is_some_and(|until| until >= begun.since) {
            return;
        }
        if read.member.is_some() {
            if let Some((uuid, since)) = self.scrub_of_all_members(read, begun.since) {
                self.record_btrfs_end(&uuid, read.at);
                self.forget_scrubbed(&read.device, since);
            }
        } else if let Some(array) = self.array_of(&read.device, begun).map(str::to_owned) {
            self.forget_read_array(&array, begun.since);
        }
    }

    /// It may have been a whole pass over any array.
    fn note_unknown_end(&mut self, read: &FullRead) {
        if read.member.is_none() {
            Arc::make_mut(&mut self.kernel.progress).unknown_pass_end = Some(read.at);
        }
    }

    /// Whatever a check finds counts, also if it does not come to its end. That it found nothing counts
    /// only of one that has read all in one run: each begin sets the count to 0.
    pub(super) fn record_mismatches(&mut self, array: &str, state: &LayerState, at: Timestamp) {
        if let LayerState::Md(md) = state
            && self.array_of_state(array, md).is_none()
        {
            return;
        }
        let Some(count) = state.stack().and_then(|stack| stack.mismatches()) else {
            return;
        };
        let known = self.last_pass(array);
        let is_awaited = known.found.is_none()
            && !known.is_in_parts
            && known.ended.is_some_and(|ended| ended <= at)
            && !self.has_begun_read(array, state);
        if count > 0 || is_awaited {
            self.record_pass(array, WholePass { found: Some(count), ..known });
        }
    }

    fn has_begun_read(&self, array: &str, state: &LayerState) -> bool {
        let names = match state {
            LayerState::DmRaid(_) => [Some(DM_RAID), None],
            _ => [Some(array), self.array_uuid(array)],
        };
        let mut begun = self.kernel.progress.begun_reads.iter();
        begun.any(|read| read.member.is_none() && names.contains(&Some(read.device.as_str())))
    }

    /// The array that a record of md is about; None if it is not known.
    fn array_of<'a>(&'a self, name: &'a str, begun: &BegunRead) -> Option<&'a str> {
        if name == DM_RAID {
            return self.dm_raid_of(begun);
        }
        let state = self.layer_state(name);
        matches!(state, Some(LayerState::Md(_))).then_some(name)
    }

    /// The only array of dm-raid, or the only one that was seen in a check since this one began, if no
    /// other check began meanwhile.
    fn dm_raid_of(&self, begun: &BegunRead) -> Option<&str> {
        let devices = self.inventory()?.devices.values();
        let mut arrays: Vec<&str> = Vec::new();
        for device in devices.filter(|device| matches!(device.layer, Layer::Dm { .. })) {
            // One whose state has not been read may be the array.
            if let LayerState::DmRaid(_) = self.layer_state(&device.name)? {
                arrays.push(&device.name);
            }
        }
        if arrays.len() > 1 {
            let is_seen = |name: &&str| {
                let last = self.layers.get(*name).and_then(|known| known.last_check);
                begun.begins == 1 && last.is_some_and(|last| last >= begun.since)
            };
            arrays.retain(is_seen);
        }
        match arrays[..] {
            [array] => Some(array),
            _ => None,
        }
    }

    /// The UUID of the btrfs, and since when every member of it has been read, if this was the last one.
    fn scrub_of_all_members(
        &mut self,
        read: &FullRead,
        since: Timestamp,
    ) -> Option<(String, Timestamp)> {
        let inventory = self.inventory()?;
        let btrfs = inventory.btrfs_of(&read.device)?;
        let (uuid, members) = (btrfs.uuid.clone(), btrfs.member_ids.clone());
        let member = read.member.filter(|_| btrfs.missing_devices == 0)?;
        let reads = self.kernel.scrubs.entry(uuid.clone()).or_default();
        reads.insert(member, since);
        let starts = members.iter().map(|id| reads.get(id).copied());
        let starts: Vec<Timestamp> = starts.collect::<Option<_>>()?;
        let since = starts.into_iter().min()?;
        self.kernel.scrubs.remove(&uuid);
        Some((uuid, since))
    }

    /// Scrubs of some members of a btrfs that is no longer mounted.
    pub(super) fn forget_partial_scrubs(&mut self) {
        if let Some(inventory) = self.inventory.value() {
            let mounted: BTreeSet<&String> = inventory.btrfs.iter().map(|fs| &fs.uuid).collect();
            self.kernel.scrubs.retain(|uuid, _| mounted.contains(uuid));
        }
    }
}
