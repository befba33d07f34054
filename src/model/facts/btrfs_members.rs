//! Members of a btrfs: those that were away while it was written to, and the scrubs that have read all
//! of them.
//!
//! After its return a member lacks what was written in between, and the kernel reads it all the same.
//! In: the members of each scan. Out: a note of each such member, under the UUID of its filesystem,
//! which outlives an unmount and is kept in the store. A member that was replaced, or removed from the
//! filesystem, is none: both happen while it is mounted, and a return needs a new mount. One that was
//! pulled while it was mounted has the name of its device until then: its id is not known.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::block::Inventory;
use crate::counters::CounterHistory;
use crate::facts::corruption::of_filesystem;
use crate::facts::drive_use::is_part_of;
use crate::facts::{Facts, KnownVolume};
use crate::stack::{BtrfsFs, BtrfsMember, ReturnedMember};
use crate::volume::VolumeFacts;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_text::duration::elapsed;

/// The kind of note; its name is followed by the id of the member, or by its former device.
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
    /// The drive that had the name of a pulled member.
    drive: Option<DriveId>,
}

/// The kernel makes and removes the directories and links of the members one by one: a scan during a
/// mount or an unmount lists some of them.
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
            drive: text("drive").map(DriveId::known),
        })
    }

    fn to_note(&self, file: String) -> CounterHistory {
        let text = |time: &Option<Timestamp>| time.as_ref().map(Timestamp::to_string);
        let details = [
            ("since", Some(self.since.to_string())),
            ("until", text(&self.until)),
            ("mount", self.mount.clone()),
            ("unlisted", text(&self.unlisted)),
            ("drive", self.drive.as_ref().map(DriveId::to_string)),
        ];
        CounterHistory::note(file, details)
    }
}

fn is_btrfs(known: &KnownVolume) -> bool {
    known.facts.fs_type.as_deref() == Some("btrfs")
}

fn text(member: &BtrfsMember) -> String {
    match member {
        BtrfsMember::Id(id) => id.to_string(),
        BtrfsMember::Name(name) => name.clone(),
    }
}

/// Every name of a disk begins with a letter.
fn member_from(text: &str) -> BtrfsMember {
    let id = text.parse().map(BtrfsMember::Id);
    id.unwrap_or_else(|_| BtrfsMember::Name(text.to_owned()))
}

/// What says that this member of the filesystem is away.
pub(crate) fn member_file(uuid: &str, member: &BtrfsMember) -> String {
    match member {
        BtrfsMember::Id(id) => format!("/sys/fs/btrfs/{uuid}/devinfo/{id}/missing"),
        BtrfsMember::Name(name) => format!("/sys/fs/btrfs/{uuid}/devices/{name}"),
    }
}

impl Facts {
    /// Remembers who is missing, and adds to each filesystem of the scan who has returned.
    pub(super) fn note_btrfs_members(&mut self, scan: &mut Inventory, now: Timestamp) {
        for fs in &mut scan.btrfs {
            let subject = of_filesystem(&fs.uuid);
            let notes = self.counters.series(subject.clone(), AWAY);
            let before: BTreeMap<BtrfsMember, Away> = notes
                .filter_map(|(series, note)| {
                    let member = member_from(series.strip_prefix(AWAY)?);
                    Some((member, Away::from_note(note)?))
                })
                .collect();
            let known: Vec<BtrfsMember> = before.keys().cloned().collect();
            let after = self.away_members(fs, before, now);
            let key = |member: &BtrfsMember| (subject.clone(), format!("{AWAY}{}", text(member)));
            for member in known.iter().filter(|it| !after.contains_key(it)) {
                self.counters.remove(&key(member));
            }
            for (member, away) in &after {
                let file = member_file(&fs.uuid, member);
                self.counters.put(key(member), away.to_note(file));
            }
            for pulled in &mut fs.pulled {
                let note = after.get(&BtrfsMember::Name(pulled.name.clone()));
                pulled.drive = note.and_then(|note| note.drive.clone());
            }
            let listed = after.iter().filter(|(_, away)| away.unlisted.is_none());
            let returned = listed.filter_map(|(member, away)| {
                Some(ReturnedMember {
                    member: member.clone(),
                    since: away.since,
                    until: away.until?,
                })
            });
            fs.returned = returned.collect();
        }
    }

    /// Whether they lack data is known once the mounts are. No uevent announces a mount: who is missing
    /// under one that is newer than the scan is for another scan to say.
    pub(super) fn note_missing_btrfs_members(&mut self, now: Timestamp) {
        let Some((scan, at)) = self.inventory.value().zip(self.inventory.at()) else {
            return;
        };
        let is_newer = |known: &KnownVolume| {
            let mounted = known.mounted_since.values().min();
            is_btrfs(known) && mounted.is_some_and(|since| *since > at)
        };
        self.is_scan_due |= self.volumes.values().any(is_newer);
        if scan.btrfs.iter().any(|fs| fs.missing_devices > 0) {
            let mut scan = Inventory::clone(scan);
            self.note_btrfs_members(&mut scan, now);
        }
    }

    fn away_members(
        &self,
        fs: &BtrfsFs,
        mut away: BTreeMap<BtrfsMember, Away>,
        now: Timestamp,
    ) -> BTreeMap<BtrfsMember, Away> {
        let known = self.volume_of_btrfs(fs);
        let is_written = known.is_some_and(|known| {
            let mut mounts = known.facts.mounts.iter();
            mounts.any(|mount| !mount.is_super_read_only())
        });
        let missing = fs.missing_ids.iter().copied().map(BtrfsMember::Id);
        let pulled = fs.pulled.iter().map(|it| BtrfsMember::Name(it.name.clone()));
        let absent: Vec<BtrfsMember> = missing.chain(pulled).collect();
        for member in &absent {
            if is_written || away.contains_key(member) {
                let entry = away.entry(member.clone()).or_insert_with(|| Away {
                    since: now,
                    until: None,
                    mount: None,
                    unlisted: None,
                    drive: self.drive_of(member),
                });
                (entry.until, entry.mount) = (None, fs.mount_mark.clone());
            }
        }
        let scrub = known.and_then(|known| self.scrub_without_errors(known, fs));
        let is_same_mount = |it: &Away| it.mount.is_some() && it.mount == fs.mount_mark;
        let are_all_used = fs.missing_devices as usize == absent.len();
        away.retain(|member, it| {
            if absent.contains(member) {
                it.unlisted = None;
                return true;
            }
            match member {
                BtrfsMember::Id(id) if !fs.member_ids.contains(id) => {
                    let unlisted = *it.unlisted.get_or_insert(now);
                    return fs.member_ids.is_empty() || elapsed(unlisted, now) < LISTED_AFTER;
                }
                // It is the one that is missing by its id now.
                BtrfsMember::Name(_) if !fs.missing_ids.is_empty() => return false,
                BtrfsMember::Name(_) if is_same_mount(it) => {}
                _ => it.unlisted = None,
            }
            if it.until.is_none() && is_same_mount(it) {
                // It is replaced, unless a device scan has only cleared its mark.
                if let (BtrfsMember::Name(_), true) = (member, are_all_used) {
                    let unlisted = *it.unlisted.get_or_insert(now);
                    return elapsed(unlisted, now) < LISTED_AFTER;
                }
                return !are_all_used;
            }
            let until = self.wall_time(*it.until.get_or_insert(now));
            scrub.is_none_or(|began| began <= until)
        });
        away
    }

    /// The drive that had the name until this scan. Others that are missing had it before.
    fn drive_of(&self, member: &BtrfsMember) -> Option<DriveId> {
        let BtrfsMember::Name(name) = member else {
            return None;
        };
        let drives = self.drives.values();
        let had_it = drives.filter(|known| is_part_of(name, &known.facts));
        let last = had_it.max_by_key(|known| known.last_seen)?;
        Some(last.facts.id.clone())
    }

    /// It was mounted anew, although no reading of the mount table shows it.
    pub(super) fn request_scan_of_new_mount(&mut self, id: &VolumeId) {
        self.is_scan_due |= self.volumes.get(id).is_some_and(is_btrfs);
    }

    /// Whether a scan is to be requested.
    pub fn take_scan_request(&mut self) -> bool {
        std::mem::take(&mut self.is_scan_due)
    }

    pub(super) fn btrfs_of_volume(&self, volume: &Subject) -> Option<&BtrfsFs> {
        let Subject::Volume(id) = volume else {
            return None;
        };
        self.btrfs_below(&self.volumes.get(id)?.facts)
    }

    /// The mounted btrfs that the device of this volume is, or was, a member of.
    pub(in crate::facts) fn btrfs_below(&self, volume: &VolumeFacts) -> Option<&BtrfsFs> {
        self.inventory()?.btrfs_of(volume.device.as_ref()?)
    }

    pub(super) fn volume_of_btrfs(&self, fs: &BtrfsFs) -> Option<&KnownVolume> {
        let is_of = |known: &&KnownVolume| {
            let device = known.facts.device.as_ref();
            device.is_some_and(|name| fs.has_member(name))
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
        self.scrub_without_errors(known, self.btrfs_below(&known.facts)?)
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
            Timestamp::from_second(value("started")?.try_into().ok()?).ok().filter(|_| is_clean)
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
