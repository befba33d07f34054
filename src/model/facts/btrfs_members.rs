//! Members of a btrfs that were away while it was written to: after their return they lack what was
//! written in between, and the kernel reads them all the same, until a scrub has compared all copies.
//!
//! In: the missing members of each scan, and the mounts. Out: one counter series of each such member,
//! under the UUID of its filesystem, which outlives an unmount and is kept in the store. A replaced or
//! removed member is none: that happens while the filesystem is mounted, and a return needs a mount.

use jiff::Timestamp;

use crate::model::block::BtrfsFs;
use crate::model::counters::{Counter, CounterDevice, CounterHistory, CounterReading};
use crate::model::facts::corruption::of_filesystem;
use crate::model::facts::counters::CounterKey;
use crate::model::facts::drives::REMOVAL_WINDOW;
use crate::model::facts::{Facts, KnownVolume};

/// The kind of series; its name is followed by the id of the member.
pub(super) const SERIES: &str = "btrfs-away ";
/// 1 while the member is missing.
const MISSING: &str = "missing";
/// When the mount under which it was last missing began, in seconds.
const MOUNTED: &str = "mounted";
const SINCE: &str = "since";

/// A member that was away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReturnedMember {
    /// Its id within the filesystem.
    pub id: String,
    pub since: Timestamp,
    /// The first scan that showed it again.
    pub until: Timestamp,
}

impl Facts {
    /// After the devices or the mounts have changed.
    pub(super) fn record_absent_members(&mut self, now: Timestamp) {
        let Some(inventory) = self.inventory.value().cloned() else {
            return;
        };
        for fs in &inventory.btrfs {
            let (mounted, is_writable) = match self.mount_of(fs) {
                Some(mount) => mount,
                None => continue,
            };
            let missing = fs.missing_ids.iter().map(u64::to_string);
            let missing: Vec<String> = missing.collect();
            if is_writable {
                for id in &missing {
                    self.record_absence(fs, id, true, mounted, now);
                }
            }
            let away = self.away_series(fs);
            let returned = away.filter(|(id, history)| {
                counter(history, MISSING).is_some_and(|it| it.last == 1) && !missing.contains(id)
            });
            let returned: Vec<String> = returned.map(|(id, _)| id).collect();
            for id in returned {
                self.record_absence(fs, &id, false, mounted, now);
            }
        }
    }

    fn record_absence(
        &mut self,
        fs: &BtrfsFs,
        id: &str,
        is_missing: bool,
        mounted: Timestamp,
        now: Timestamp,
    ) {
        let mut values = vec![(MISSING.to_owned(), u64::from(is_missing))];
        if is_missing {
            let seconds = mounted.as_second().try_into().unwrap_or(0);
            values.push((MOUNTED.to_owned(), seconds));
        }
        let known = self.away_series(fs).find(|(known, _)| known == id);
        let since = known.and_then(|(_, history)| match counter(history, MISSING)?.last {
            1 => history.details.get(SINCE).cloned(),
            _ => None,
        });
        let reading = CounterReading {
            device: CounterDevice::Block(fs.devices.first().cloned().unwrap_or_default()),
            source: SERIES.trim().to_owned(),
            file: format!("/sys/fs/btrfs/{}/devinfo/{id}/missing", fs.uuid),
            values: values.into_iter().collect(),
            details: [(SINCE.to_owned(), since.unwrap_or_else(|| now.to_string()))].into(),
        };
        self.counters.record(&key(fs, id), &reading, now);
    }

    /// Since when the filesystem has been mounted, and whether it can be written to.
    fn mount_of(&self, fs: &BtrfsFs) -> Option<(Timestamp, bool)> {
        let is_of = |known: &&KnownVolume| {
            let device = known.facts.device.as_ref();
            device.is_some_and(|name| fs.devices.contains(name)) && !known.facts.mounts.is_empty()
        };
        let volumes: Vec<&KnownVolume> = self.volumes.values().filter(is_of).collect();
        let mounted = |known: &&KnownVolume| {
            let since = known.mounted_since.values().min().copied();
            since.max(known.remounted_at)
        };
        let since = volumes.iter().filter_map(mounted).min()?;
        let mut mounts = volumes.iter().flat_map(|known| &known.facts.mounts);
        Some((since, mounts.any(|mount| !mount.is_super_read_only())))
    }

    fn away_series<'a>(
        &'a self,
        fs: &BtrfsFs,
    ) -> impl Iterator<Item = (String, &'a CounterHistory)> + use<'a> {
        let subject = of_filesystem(&fs.uuid);
        let all = self.counters.iter();
        all.filter_map(move |((owner, series), history)| {
            let id = series.strip_prefix(SERIES)?;
            (*owner == subject).then(|| (id.to_owned(), history.as_ref()))
        })
    }

    /// Members that were away, and that no clean scrub has read since their return.
    pub(crate) fn returned_members(
        &self,
        known: &KnownVolume,
        fs: &BtrfsFs,
    ) -> Vec<ReturnedMember> {
        let scrub = self.clean_scrub(known);
        let returned = self.away_series(fs).filter_map(|(id, history)| {
            let missing = counter(history, MISSING).filter(|it| it.last == 0)?;
            if !self.is_new_mount(fs, history) {
                return None;
            }
            let until = missing.since;
            let since = history.details.get(SINCE)?.parse().ok()?;
            let is_scrubbed = scrub.is_some_and(|began| began > self.wall_time(until));
            (!is_scrubbed).then_some(ReturnedMember { id, since, until })
        });
        returned.collect()
    }

    /// Whether the filesystem was mounted anew since the member was last missing.
    fn is_new_mount(&self, fs: &BtrfsFs, history: &CounterHistory) -> bool {
        let before = counter(history, MOUNTED).map(|it| it.last);
        let now = self.mount_of(fs).map(|(since, _)| since.as_second());
        // Without a known mount, nothing shows that it was replaced.
        match (before, now) {
            (Some(before), Some(now)) => {
                u64::try_from(now).unwrap_or(0) > before + REMOVAL_WINDOW.as_secs()
            }
            _ => true,
        }
    }

    /// Forgets members that were replaced or removed, once the mounts have been read after the scan,
    /// and those that a scrub has read.
    pub(super) fn forget_current_members(&mut self, now: Timestamp) {
        let Some(inventory) = self.inventory.value().cloned() else {
            return;
        };
        if self.mounts.value().is_none() {
            return;
        }
        for fs in &inventory.btrfs {
            let of_fs = |known: &&KnownVolume| {
                let device = known.facts.device.as_ref();
                device.is_some_and(|name| fs.devices.contains(name))
            };
            let Some(known) = self.volumes.values().find(of_fs) else {
                continue;
            };
            let left = self.returned_members(known, fs);
            let is_over = |(id, history): &(String, &CounterHistory)| {
                let present = counter(history, MISSING).filter(|it| it.last == 0);
                let is_settled =
                    present.is_some_and(|it| super::elapsed(it.since, now) > REMOVAL_WINDOW);
                is_settled && !left.iter().any(|member| member.id == *id)
            };
            let over = self.away_series(fs).filter(is_over);
            let over: Vec<CounterKey> = over.map(|(id, _)| key(fs, &id)).collect();
            over.iter().for_each(|key| self.counters.remove(key));
        }
    }
}

fn key(fs: &BtrfsFs, id: &str) -> CounterKey {
    (of_filesystem(&fs.uuid), format!("{SERIES}{id}"))
}

fn counter<'a>(history: &'a CounterHistory, wanted: &str) -> Option<&'a Counter> {
    let mut counters = history.counters();
    counters.find_map(|(name, counter)| (name == wanted).then_some(counter))
}
