//! Failure domains: which volumes hang together, and how many stuck workers each domain may cost.
//!
//! In: the jobs that are overdue. Out: whether another job may start. A domain comes from
//! the block graph, the kernel and the kubelet's paths and records, never from a text that a user
//! of a volume chooses.

use std::fmt;
use std::sync::Arc;

use crate::ids::DriveId;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureDomain {
    /// All drives below a volume, as a set: an array that hangs does not count against the volumes
    /// that are on one of its drives alone.
    Drives(Vec<DriveId>),
    /// The CSI driver of volumes without a local drive.
    Driver(String),
    /// The filesystem type of the host's own mounts without a device.
    Filesystem(String),
    /// A pod, by its UID.
    Pod(String),
}

/// Shared: thousands of volumes have few different ones.
pub type FailureDomains = Arc<[FailureDomain]>;

impl FailureDomain {
    fn is_storage(&self) -> bool {
        !matches!(self, FailureDomain::Pod(_))
    }

    /// How many of `max` stuck workers it may cost. One drive leaves workers for other volumes of
    /// the same pod, and one pod leaves workers for other volumes of the same driver.
    fn limit(&self, max: usize) -> usize {
        let eighths = match self {
            FailureDomain::Drives(_) => 2,
            FailureDomain::Pod(_) => 3,
            FailureDomain::Driver(_) | FailureDomain::Filesystem(_) => 4,
        };
        (max * eighths / 8).max(1)
    }
}

impl fmt::Display for FailureDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureDomain::Drives(drives) => {
                let (first, more) = match drives.as_slice() {
                    [] => return f.write_str("no drive"),
                    [first, more @ ..] => (first, more.len()),
                };
                match more {
                    0 => write!(f, "drive {first}"),
                    _ => write!(f, "drive {first} and {more} more"),
                }
            }
            FailureDomain::Driver(name) => write!(f, "CSI driver {name}"),
            FailureDomain::Filesystem(kind) => write!(f, "filesystem type {kind}"),
            FailureDomain::Pod(uid) => write!(f, "pod {uid}"),
        }
    }
}

/// A job that was not answered quickly.
#[derive(Clone, Debug)]
pub struct OverdueJob {
    pub domains: FailureDomains,
    /// Its time limit has passed.
    pub stuck: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    Start,
    /// Jobs are slow, and may still answer in time.
    Wait,
    Refuse(StuckLimit),
}

/// The limit that keeps a job from being started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StuckLimit {
    #[error("not tried while {stuck} others of {domain} do not answer (limit {stuck} of {max})")]
    Domain { domain: FailureDomain, stuck: usize, max: usize },
    /// The last quarter is reserved for storage of which nothing is stuck.
    #[error(
        "not tried while {stuck} others do not answer, some of them of {domain}; the rest of {max} is reserved for other storage"
    )]
    Reserved { domain: FailureDomain, stuck: usize, max: usize },
    #[error("not tried while {max} others do not answer (limit {max})")]
    Total { max: usize },
}

/// Whether a job of these domains may start. At most `max` jobs are stuck at a time; a domain may
/// have a part of them, so that the volumes of other domains are still probed.
pub fn admit<'a>(
    max: usize,
    overdue: impl Iterator<Item = &'a OverdueJob> + Clone,
    job: &[FailureDomain],
) -> Admission {
    if let Some(limit) = limit_reached(max, overdue.clone().filter(|other| other.stuck), job) {
        return Admission::Refuse(limit);
    }
    match limit_reached(max, overdue, job) {
        Some(_) => Admission::Wait,
        None => Admission::Start,
    }
}

fn limit_reached<'a>(
    max: usize,
    others: impl Iterator<Item = &'a OverdueJob> + Clone,
    job: &[FailureDomain],
) -> Option<StuckLimit> {
    let stuck = others.clone().count();
    if stuck >= max {
        return Some(StuckLimit::Total { max });
    }
    let reserve_begins = (max * 6 / 8).max(1);
    for domain in job {
        let shares_domain = |other: &&OverdueJob| other.domains.contains(domain);
        let stuck_here = others.clone().filter(shares_domain).count();
        if stuck_here >= domain.limit(max) {
            return Some(StuckLimit::Domain { domain: domain.clone(), stuck: stuck_here, max });
        }
        if stuck_here > 0 && domain.is_storage() && stuck >= reserve_begins {
            return Some(StuckLimit::Reserved { domain: domain.clone(), stuck, max });
        }
    }
    None
}

#[cfg(test)]
mod tests;
