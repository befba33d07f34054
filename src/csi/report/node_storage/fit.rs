//! Makes a status fit into the limits of the `NodeStorage` object.
//!
//! In: a status with complete lists. Out: the same with sorted lists within the limits, and
//! `truncated` set for each list that lost an entry. What is least useful goes first: messages, then
//! models, drive ids, stale mounts, then volumes and drives from the least severe on.

use std::cmp::Reverse;

use serde::Serialize;

use diskvitals_cluster::node_storage::{
    Health, MAX_DRIVE_IDS, MAX_DRIVES, MAX_MODELS, MAX_REACHED_DRIVERS, MAX_REMAINING, MAX_STALE,
    MAX_STATUS_LEN, MAX_UNREACHABLE_DRIVERS, MAX_VOLUMES, NodeStorageStatus, Truncated,
    VolumeEntry,
};
use diskvitals_text::echo::truncate;

/// Shorter messages are tried before an entry is dropped.
const SHORT_MESSAGE_LEN: usize = 80;

pub(super) fn fit(mut status: NodeStorageStatus) -> NodeStorageStatus {
    status.drives.sort_by(|a, b| {
        (Reverse(a.health.severity()), &a.id).cmp(&(Reverse(b.health.severity()), &b.id))
    });
    status.volumes.sort_by(|a, b| {
        let key = |it: &VolumeEntry| Reverse((it.health.severity(), it.has_last_copy()));
        (key(a), &a.driver, &a.handle).cmp(&(key(b), &b.driver, &b.handle))
    });
    status.stale.sort_by(|a, b| a.path.cmp(&b.path));
    status.drive_ids.sort();
    let truncated = &mut status.truncated;
    truncated.drives |= cut(&mut status.drives, MAX_DRIVES);
    truncated.drives |= cut(&mut status.drive_ids, MAX_DRIVE_IDS);
    truncated.drives |= cut(&mut status.models, MAX_MODELS);
    truncated.volumes |= cut(&mut status.volumes, MAX_VOLUMES);
    truncated.stale |= cut(&mut status.stale, MAX_STALE);
    truncated.remaining |= cut(&mut status.remaining, MAX_REMAINING);
    if let Some(drivers) = &mut status.unreachable_drivers {
        drivers.sort_by(|a, b| (a.unknown, &a.driver).cmp(&(b.unknown, &b.driver)));
        truncated.unreachable_drivers |= cut(drivers, MAX_UNREACHABLE_DRIVERS);
    }
    // Of what is missing here nothing is known.
    status.reached_drivers.truncate(MAX_REACHED_DRIVERS);
    for len in [SHORT_MESSAGE_LEN, 0] {
        if json_len(&status) <= MAX_STATUS_LEN {
            return status;
        }
        for volume in &mut status.volumes {
            for condition in &mut volume.health_conditions {
                condition.message = match len {
                    0 => String::new(),
                    len => truncate(&condition.message, len),
                };
            }
        }
    }
    if json_len(&status) <= MAX_STATUS_LEN {
        return status;
    }
    drop_entries(status)
}

fn drop_entries(full: NodeStorageStatus) -> NodeStorageStatus {
    let mut fitted = NodeStorageStatus {
        drives: Vec::new(),
        volumes: Vec::new(),
        stale: Vec::new(),
        drive_ids: Vec::new(),
        models: Vec::new(),
        remaining: Vec::new(),
        // The longest form, for the size.
        truncated: Truncated {
            drives: true,
            volumes: true,
            stale: true,
            unreachable_drivers: true,
            remaining: true,
        },
        ..full.clone()
    };
    let mut room = Room(MAX_STATUS_LEN.saturating_sub(json_len(&fitted)));
    let (mut drives, mut volumes) = (Admission::new(full.drives), Admission::new(full.volumes));
    drives.admit(&mut room, |drive| drive.health == Health::Bad);
    let mut remaining = Admission::new(full.remaining);
    remaining.admit(&mut room, |_| true);
    for level in [Health::Bad, Health::Suspect, Health::Unknown, Health::Good] {
        let level = level.severity();
        drives.admit(&mut room, |drive| drive.health.severity() >= level);
        volumes.admit(&mut room, |volume| volume.health.severity() >= level);
    }
    let (mut stale, mut ids) = (Admission::new(full.stale), Admission::new(full.drive_ids));
    let mut models = Admission::new(full.models);
    stale.admit(&mut room, |_| true);
    ids.admit(&mut room, |_| true);
    models.admit(&mut room, |_| true);
    let was = full.truncated;
    fitted.truncated = Truncated {
        drives: was.drives || drives.lost || ids.lost || models.lost,
        volumes: was.volumes || volumes.lost,
        stale: was.stale || stale.lost,
        remaining: was.remaining || remaining.lost,
        ..was
    };
    fitted.drives = drives.admitted;
    fitted.volumes = volumes.admitted;
    fitted.stale = stale.admitted;
    fitted.remaining = remaining.admitted;
    fitted.drive_ids = ids.admitted;
    fitted.models = models.admitted;
    fitted
}

/// Bytes that are left.
struct Room(usize);

/// A list that is admitted from its first entry on, and ends at the first one that does not fit:
/// an entry never goes before a worse one.
struct Admission<T> {
    waiting: std::iter::Peekable<std::vec::IntoIter<T>>,
    admitted: Vec<T>,
    lost: bool,
}

impl<T: Serialize> Admission<T> {
    fn new(entries: Vec<T>) -> Admission<T> {
        Admission { waiting: entries.into_iter().peekable(), admitted: Vec::new(), lost: false }
    }

    fn admit(&mut self, room: &mut Room, is_next: impl Fn(&T) -> bool) {
        while !self.lost
            && let Some(entry) = self.waiting.next_if(&is_next)
        {
            // One more for the comma.
            let len = json_len(&entry) + 1;
            if len > room.0 {
                self.lost = true;
            } else {
                room.0 -= len;
                self.admitted.push(entry);
            }
        }
    }
}

fn cut<T>(list: &mut Vec<T>, len: usize) -> bool {
    let is_longer = list.len() > len;
    list.truncate(len);
    is_longer
}

/// Length as JSON. Plain data cannot fail; what failed would not fit.
pub(super) fn json_len(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}
