//! Members of a btrfs: those that were away while it was written to, and the scrubs that have read all
//! of them.
//!
//! After its return a member lacks what was written in between, and the kernel reads it all the same.
//! In: the members of each scan. Out: a note of each such member, under the UUID of its filesystem,
//! which outlives an unmount and is kept in the store. A member that was replaced, or removed from the
//! filesystem, is none: both happen while it is mounted, and a return needs a new mount.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::block::{BtrfsFs, Inventory, ReturnedMember};
use crate::model::counters::CounterHistory;
use crate::model::facts::corruption::of_filesystem;
use crate::model::facts::{Facts, KnownVolume, elapsed};
use crate::model::finding::Subject;

/// The kind of note; its name is followed by the id of the member.
pub(super) const AWAY: &str = "btrfs-away ";

/// What a note says.
struct Away {
    since: Timestamp,
    /// None while it is away.
    until: Option<Timestamp>,
    /// `BtrfsFs::mount_mark` when it was last missing.
    mount: Option<String>,
    /// The first of the scans that do not list it.
    unlisted: Option<Timestamp>,
}

/// The kernel makes and removes the directories of the members one by one: a scan during a mount lists
/// some of them.
const LISTED_AFTER: Duration = Duration::from_secs(10);

impl Away {
    fn from_note(note: &CounterHistory) -> Option<Away> {
        let text = |name: &str| note.details.get(name);
        let time = |name: &str| text(name)?.parse().ok();
        Some(Away {
            since: time("since")?,
            until: time("until"),
            mount: text("mount").cloned(),
            unlisted: time("unlisted"),
        })
    }

    fn to_note(&self, file: String) -> CounterHistory {
        let text = |time: &Option<Timestamp>| time.as_ref().map(Timestamp::to_string);
        let texts = [
            ("since", Some(self.since.to_string())),
            ("until", text(&self.until)),
            ("mount", self.mount.clone()),
            ("unlisted", text(&self.unlisted)),
        ];
        let texts = texts.into_iter();
        let details = texts.filter_map(|(name, text)| Some((name.to_owned(), text?)));
        CounterHistory::note(file, details.collect())
    }
}

impl Facts {
    /// Remembers who is missing, and adds to each filesystem of the scan who has returned.
    pub(super) fn note_btrfs_members(&mut self, scan: &mut Inventory, now: Timestamp) {
        for fs in &mut scan.btrfs {
            let subject = of_filesystem(&fs.uuid);
            let notes = self.counters.series(subject.clone(), AWAY);
            let before: BTreeMap<u64, Away> = notes
                .filter_map(|(series, note)| {
                    let id = series.strip_prefix(AWAY)?.parse().ok()?;
                    Some((id, Away::from_note(note)?))
                })
                .collect();
            let before_ids: Vec<u64> = before.keys().copied().collect();
            let after = self.away_members(fs, before, now);
            for id in before_ids.iter().filter(|id| !after.contains_key(id)) {
                let key = (subject.clone(), format!("{AWAY}{id}"));
                self.counters.remove(&key);
            }
            for (id, away) in &after {
                let file = format!("/sys/fs/btrfs/{}/devinfo/{id}/missing", fs.uuid);
                let key = (subject.clone(), format!("{AWAY}{id}"));
                self.counters.put(key, away.to_note(file));
            }
            let listed = after.iter().filter(|(_, away)| away.unlisted.is_none());
            let returned = listed.filter_map(|(id, away)| {
                Some(ReturnedMember {
                    id: *id,
                    since: away.since,
                    until: away.until?,
                })
            });
            fs.returned = returned.collect();
        }
    }

    /// Whether they lack data is known once the mounts are.
    pub(super) fn note_missing_btrfs_members(&mut self, now: Timestamp) {
        let scan = self.inventory.value();
        if let Some(scan) = scan.filter(|it| it.btrfs.iter().any(|fs| fs.missing_devices > 0)) {
            let mut scan = Inventory::clone(scan);
            self.note_btrfs_members(&mut scan, now);
        }
    }

    fn away_members(
        &self,
        fs: &BtrfsFs,
        mut away: BTreeMap<u64, Away>,
        now: Timestamp,
    ) -> BTreeMap<u64, Away> {
        let known = self.volume_of_btrfs(fs);
        let is_written = known.is_some_and(|known| {
            let mut mounts = known.facts.mounts.iter();
            mounts.any(|mount| !mount.is_super_read_only())
        });
        for id in &fs.missing_ids {
            let is_known = away.contains_key(id);
            if is_written || is_known {
                let entry = away.entry(*id).or_insert_with(|| Away {
                    since: now,
                    until: None,
                    mount: None,
                    unlisted: None,
                });
                (entry.until, entry.mount) = (None, fs.mount_mark.clone());
            }
        }
        let scrub = known.and_then(|known| self.scrub_without_errors(known, fs));
        let is_same_mount = |it: &Away| it.mount.is_some() && it.mount == fs.mount_mark;
        let are_all_used = fs.missing_devices as usize == fs.missing_ids.len();
        away.retain(|id, it| {
            if !fs.member_ids.contains(id) {
                let unlisted = *it.unlisted.get_or_insert(now);
                return fs.member_ids.is_empty() || elapsed(unlisted, now) < LISTED_AFTER;
            }
            it.unlisted = None;
            if fs.missing_ids.contains(id) {
                return true;
            }
            if it.until.is_none() && is_same_mount(it) {
                // It is replaced, unless a device scan has only cleared its mark.
                return !are_all_used;
            }
            let until = self.wall_time(*it.until.get_or_insert(now));
            scrub.is_none_or(|began| began <= until)
        });
        away
    }

    pub(super) fn volume_of_btrfs(&self, fs: &BtrfsFs) -> Option<&KnownVolume> {
        let is_of = |known: &&KnownVolume| {
            let device = known.facts.device.as_ref();
            device.is_some_and(|name| fs.devices.contains(name))
        };
        self.volumes.values().find(is_of)
    }

    /// The counters of each member of this volume's btrfs.
    pub(crate) fn btrfs_counters(
        &self,
        known: &KnownVolume,
    ) -> impl Iterator<Item = &CounterHistory> {
        self.counter_series(known, "btrfs ")
    }

    /// When the last scrub of this volume's btrfs began, by the wall clock, if it read every member
    /// to the end and found no error. None while a member is missing.
    pub(crate) fn clean_scrub(&self, known: &KnownVolume) -> Option<Timestamp> {
        let device = known.facts.device.as_ref()?;
        self.scrub_without_errors(known, self.inventory()?.btrfs_of(device)?)
    }

    /// A scrub that counts corrected errors proves nothing: a read-only one repairs none of them.
    fn scrub_without_errors(&self, known: &KnownVolume, fs: &BtrfsFs) -> Option<Timestamp> {
        if fs.missing_devices > 0 {
            return None;
        }
        let scrubs: Vec<&CounterHistory> = self.counter_series(known, "btrfs-scrub ").collect();
        let started = |member: &u64| {
            let id = member.to_string();
            let mut scrubs = scrubs.iter();
            let scrub = scrubs.find(|scrub| scrub.details.get("devid") == Some(&id))?;
            let value = |wanted: &str| {
                let mut values = scrub.counters();
                values.find_map(|(name, counter)| (name == wanted).then_some(counter.last))
            };
            let is_clean = value("finished") == Some(1)
                && value("canceled") == Some(0)
                && value("errors") == Some(0);
            Timestamp::from_second(value("started")?.try_into().ok()?)
                .ok()
                .filter(|_| is_clean)
        };
        let starts: Option<Vec<Timestamp>> = fs.member_ids.iter().map(started).collect();
        starts?.into_iter().min()
    }

    fn counter_series(
        &self,
        known: &KnownVolume,
        prefix: &'static str,
    ) -> impl Iterator<Item = &CounterHistory> {
        let subject = Subject::Volume(known.facts.id.clone());
        let series = self.counters.series(subject, prefix);
        series.map(|(_, history)| history)
    }
}
