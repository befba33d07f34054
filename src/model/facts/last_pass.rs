//! The last whole pass over an array, a pool or a btrfs: md's check or repair, ZFS's and btrfs' scrub.
//!
//! In: ends of such passes in the kernel log, `zpool status`, the record of `btrfs scrub`. Out: a note
//! under what identifies the array, kept over restarts. md and LVM record no date, and ZFS keeps only its
//! last scan: a resilver is one too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::block::{Inventory, Layer};
use crate::counters::{CounterDevice, CounterHistory, CounterKey, CounterReading, recorded_time};
use crate::facts::corruption::of_filesystem;
use crate::facts::md_slots::uuid_of;
use crate::facts::{Facts, KnownVolume};
use crate::stack::{BtrfsFs, PoolStatus, pool_of_device, state_file};
use diskvitals_finding::Subject;
use diskvitals_text::duration::elapsed;

/// The kind of note.
pub(super) const LAST_PASS: &str = "last-pass";
/// Of a check or a scrub that the daemon has started. Only names with a blank in them are restored.
pub(crate) const SCRUB_STARTED: &str = "scrub started";
/// What earlier versions called md's, and ZFS's.
const FORMER: [&str; 2] = ["md-read last", "zfs-scrub"];
/// Above this number, only those of arrays that are present are kept.
const MAX_NOTES: usize = 256;
/// The record of `btrfs scrub` is on a disk. An end is in the kernel log too.
const RECORD_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// By how much the record and the log may differ about one end.
const SAME_END: i64 = 60;

/// The last check, repair or scrub that has read all of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholePass {
    /// When one last came to its end.
    pub ended: Option<Timestamp>,
    /// md: sectors that differed (md.rst, `mismatch_cnt`), in that one or in a later one without an end.
    /// ZFS: errors that it could not repair. btrfs: errors that it found.
    pub found: Option<u64>,
    /// It was interrupted, and went on later.
    pub(super) is_in_parts: bool,
    /// Since when an end would have been noticed, gaps of the kernel log aside.
    pub(crate) watched_since: Option<Timestamp>,
}

/// When what ZFS or btrfs-progs keeps of the last scrub was last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassRecord {
    pub(crate) read_at: Timestamp,
    /// It says when the last scrub came to its end: no other one has ended since.
    pub(crate) is_dated: bool,
    /// Of btrfs: one ran when it was read.
    pub(crate) is_running: bool,
}

/// A stored note of this version.
pub(super) fn from_former(
    (owner, name): CounterKey,
    note: CounterHistory,
) -> (CounterKey, CounterHistory) {
    if !FORMER.contains(&name.as_str()) {
        return ((owner, name), note);
    }
    let text = |name: &str| note.details.get(name).cloned();
    let seconds = |ended: String| match ended.parse::<Timestamp>() {
        Ok(time) => time.as_second().to_string(),
        Err(_) => ended,
    };
    let details = [
        ("ended", text("ended").map(seconds)),
        ("found", text("differing").or_else(|| text("errors"))),
        ("in parts", text("in parts")),
        ("pool", text("pool")),
    ];
    ((owner, LAST_PASS.to_owned()), CounterHistory::note(note.file.clone(), details))
}

/// A stored note with what was noted before the store was read.
pub(super) fn merged(mut stored: CounterHistory, newer: Option<&CounterHistory>) -> CounterHistory {
    let Some(newer) = newer else {
        return stored;
    };
    let pools = stored.details.get("pool").zip(newer.details.get("pool"));
    if pools.is_some_and(|(stored, newer)| stored != newer) {
        return newer.clone();
    }
    if newer.details.contains_key("ended") {
        stored.details.retain(|name, _| name == "watched");
    }
    for (name, text) in &newer.details {
        stored.details.entry(name.clone()).or_insert_with(|| text.clone());
    }
    stored
}

impl Facts {
    /// What is known of the last pass over an array or a pool. `device`: its kernel name.
    pub(crate) fn last_pass(&self, device: &str) -> WholePass {
        match self.pass_owner(device) {
            Some(owner) => self.noted_pass(&owner, self.pool_guid(device)),
            None => {
                let known = self.layers.get(device).and_then(|known| known.last_pass);
                known.unwrap_or_default()
            }
        }
    }

    pub(crate) fn last_pass_of_btrfs(&self, fs: &BtrfsFs) -> WholePass {
        self.noted_pass(&of_filesystem(&fs.uuid), None)
    }

    pub(crate) fn pass_record(&self, device: &str) -> Option<PassRecord> {
        self.pass_records.get(&self.pass_owner(device)?).copied()
    }

    pub(crate) fn pass_record_of_btrfs(&self, fs: &BtrfsFs) -> Option<PassRecord> {
        self.pass_records.get(&of_filesystem(&fs.uuid)).copied()
    }

    fn noted_pass(&self, owner: &Subject, pool: Option<&str>) -> WholePass {
        let note = self.counters.get(&(owner.clone(), LAST_PASS.to_owned()));
        let Some(details) = note.map(|note| &note.details) else {
            return WholePass::default();
        };
        // A pool that was created anew may have the same name.
        if details.get("pool").zip(pool).is_some_and(|(noted, now)| noted != now) {
            return WholePass::default();
        }
        let ended = recorded_time(details, "ended");
        WholePass {
            ended: ended.map(|wall| self.steady_time(wall)),
            found: details.get("found").and_then(|text| text.parse().ok()),
            is_in_parts: details.contains_key("in parts"),
            watched_since: details.get("watched").and_then(|text| text.parse().ok()),
        }
    }

    pub(super) fn record_pass(&mut self, device: &str, pass: WholePass) {
        let Some(owner) = self.pass_owner(device) else {
            self.layers.entry(device.to_owned()).or_default().last_pass = Some(pass);
            return;
        };
        let file = match pool_of_device(device) {
            Some(_) => state_file(device),
            None => format!("/sys/block/{device}"),
        };
        let pool = self.pool_guid(device).map(str::to_owned);
        self.note_pass(owner, file, pass, pool);
    }

    fn note_pass(&mut self, owner: Subject, file: String, pass: WholePass, pool: Option<String>) {
        let details = [
            ("ended", pass.ended.map(|ended| self.wall_time(ended).as_second().to_string())),
            ("found", pass.found.map(|count| count.to_string())),
            ("in parts", pass.is_in_parts.then(String::new)),
            ("watched", pass.watched_since.map(|since| since.to_string())),
            ("pool", pool),
        ];
        self.keep_pass_note(owner, LAST_PASS, CounterHistory::note(file, details));
    }

    pub(crate) fn keep_pass_note(&mut self, owner: Subject, name: &str, note: CounterHistory) {
        let key = (owner, name.to_owned());
        let is_new = self.counters.get(&key).is_none();
        self.counters.put(key, note);
        if is_new {
            let present = self.pass_owners();
            self.counters.limit_notes(name, MAX_NOTES, |(owner, _)| present.contains(owner));
        }
    }

    /// Of what is kept under this; an earlier pool of the same name included.
    pub(crate) fn pass_under(&self, owner: &Subject) -> WholePass {
        self.noted_pass(owner, None)
    }

    /// An array that was read for the first time is watched from then on.
    pub(super) fn watch_passes(&mut self, device: &str, at: Timestamp) {
        let known = self.last_pass(device);
        if known.watched_since.is_none() {
            self.record_pass(device, WholePass { watched_since: Some(at), ..known });
        }
    }

    /// What the new scan does not list may be elsewhere, where a pass may end.
    pub(super) fn end_watch_of_removed(&mut self, before: &Inventory) {
        let Some(inventory) = self.shared_inventory().cloned() else {
            return;
        };
        let removed = before.devices.keys().filter(|name| !inventory.devices.contains_key(*name));
        for owner in removed.filter_map(|name| owner_in(before, name)) {
            let key = (owner, LAST_PASS.to_owned());
            if let Some(note) = self.counters.get(&key) {
                let mut note = note.clone();
                note.details.remove("watched");
                self.counters.put(key, note);
            }
        }
    }

    pub(super) fn record_pool_pass(&mut self, device: &str, status: &PoolStatus, at: Timestamp) {
        let scrub = status.finished_scrub();
        let ended = scrub.and_then(|scan| Some((scan.ended?, scan.errors)));
        if let Some((ended, errors)) = ended {
            let ended = Some(self.steady_time(ended));
            let known = self.last_pass(device);
            self.record_pass(device, WholePass { ended, found: Some(errors), ..known });
        }
        let record = PassRecord { read_at: at, is_dated: ended.is_some(), is_running: false };
        self.pass_records.insert(Subject::Device(device.to_owned()), record);
    }

    /// The end of a scrub of all members of a btrfs, in the kernel log, which does not say what it found.
    pub(super) fn record_btrfs_end(&mut self, uuid: &str, ended: Timestamp) {
        let owner = of_filesystem(uuid);
        let known = self.noted_pass(&owner, None);
        let pass = WholePass { ended: Some(ended), found: None, ..known };
        self.note_pass(owner, record_file(uuid), pass, None);
    }

    /// What `btrfs scrub` has recorded of each member. Members may be scrubbed one by one: the oldest end
    /// counts.
    pub(super) fn record_btrfs_passes(&mut self, readings: &[CounterReading], at: Timestamp) {
        let mut found: BTreeMap<&str, BTreeMap<u64, &CounterReading>> = BTreeMap::new();
        let Some(inventory) = self.shared_inventory().cloned() else {
            return;
        };
        for reading in readings.iter().filter(|reading| reading.source == "btrfs-scrub") {
            if let CounterDevice::Block(name) = &reading.device
                && let Some(fs) = inventory.btrfs_of(name)
                && let Some(id) = reading.details.get("devid").and_then(|id| id.parse().ok())
            {
                found.entry(&fs.uuid).or_default().insert(id, reading);
            }
        }
        for fs in &inventory.btrfs {
            let Some(members) = found.get(fs.uuid.as_str()) else {
                continue;
            };
            let owner = of_filesystem(&fs.uuid);
            let known = self.noted_pass(&owner, None);
            let end = |id: &u64| {
                let values = &members.get(id)?.values;
                Some((i64::try_from(*values.get("ended")?).ok()?, *values.get("errors")?))
            };
            let ends: Option<Vec<(i64, u64)>> = fs.member_ids.iter().map(end).collect();
            let ends = ends.filter(|_| fs.missing_devices == 0).unwrap_or_default();
            let last = ends.iter().map(|(end, _)| *end).max();
            let noted = known.ended.map(|ended| self.wall_time(ended).as_second());
            // Another tool may have scrubbed it since: only the log has that one.
            let is_last = last.is_some_and(|last| noted.is_none_or(|it| it <= last + SAME_END));
            let first = ends.iter().map(|(end, _)| *end).min().filter(|_| is_last);
            let first = first.and_then(|end| Timestamp::from_second(end).ok());
            let pass = match first {
                Some(end) => WholePass {
                    ended: Some(self.steady_time(end)),
                    found: Some(ends.iter().map(|(_, errors)| errors).sum()),
                    ..known
                },
                None => known,
            };
            let watched_since = pass.watched_since.or(Some(at));
            let pass = WholePass { watched_since, ..pass };
            self.note_pass(owner.clone(), record_file(&fs.uuid), pass, None);
            let runs = |reading: &&CounterReading| reading.values.get("running") == Some(&1);
            let is_running = members.values().any(runs);
            let is_dated = first.is_some();
            self.pass_records.insert(owner, PassRecord { read_at: at, is_dated, is_running });
        }
    }

    /// Where a btrfs is mounted in the host's mount namespace.
    pub(crate) fn mount_points_of(&self, fs: &BtrfsFs) -> Vec<String> {
        let mounts = self.volumes_of_btrfs(fs).flat_map(|known| &known.facts.mounts);
        mounts.map(|mount| mount.path.to_string()).collect()
    }

    pub(crate) fn volumes_of_btrfs(&self, fs: &BtrfsFs) -> impl Iterator<Item = &KnownVolume> {
        self.volumes
            .values()
            .filter(|known| known.facts.device.as_ref().is_some_and(|device| fs.has_member(device)))
    }

    /// Whether the record of `btrfs scrub` is to be read again.
    pub(super) fn is_btrfs_record_due(&self, fs: &BtrfsFs) -> bool {
        let record = self.pass_record_of_btrfs(fs);
        let last = self.counters.read_at();
        let is_old = |read| last.is_some_and(|last| elapsed(read, last) >= RECORD_INTERVAL);
        let has_begun = |read: Timestamp| self.scrub_begun_of(fs).is_some_and(|at| at >= read);
        record.is_none_or(|it| {
            it.is_running || is_old(it.read_at) || has_begun(it.read_at) || self.awaits_scrub_of(fs)
        })
    }

    /// When a scrub of a member began of which the kernel log has no end.
    fn scrub_begun_of(&self, fs: &BtrfsFs) -> Option<Timestamp> {
        let begun = self.kernel.progress.begun_reads.iter();
        begun.filter_map(|read| read.of_member_of(fs)).max()
    }

    /// What identifies an array or a pool. None: it has only its kernel name.
    pub(crate) fn pass_owner(&self, device: &str) -> Option<Subject> {
        match pool_of_device(device) {
            Some(_) => Some(Subject::Device(device.to_owned())),
            None => owner_in(self.inventory.last_known()?, device),
        }
    }

    fn pass_owners(&self) -> BTreeSet<Subject> {
        let arrays = self.layers.keys().filter_map(|name| self.pass_owner(name));
        let btrfs = self.inventory.last_known().into_iter().flat_map(|it| &it.btrfs);
        arrays.chain(btrfs.map(|fs| of_filesystem(&fs.uuid))).collect()
    }

    /// As the labels of its members have it.
    fn pool_guid(&self, device: &str) -> Option<&str> {
        pool_of_device(device)?;
        let devices = &self.inventory()?.devices;
        let mut members = devices.get(device)?.underlying.iter();
        members.find_map(|name| devices.get(name)?.fs_uuid.as_deref())
    }
}

fn owner_in(inventory: &Inventory, device: &str) -> Option<Subject> {
    let known = inventory.devices.get(device)?;
    let identity = match &known.layer {
        Layer::Dm { uuid, .. } => uuid.as_deref(),
        Layer::ZfsPool { .. } => Some(device),
        _ => uuid_of(known),
    };
    identity.map(|identity| Subject::Device(identity.to_owned()))
}

fn record_file(uuid: &str) -> String {
    format!("/var/lib/btrfs/scrub.status.{uuid}")
}

#[cfg(test)]
mod tests;
