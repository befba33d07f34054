//! Rules about volumes from what the kernel's log and its notices have said of the filesystem, and
//! of the sectors beneath it.

use jiff::Timestamp;

use crate::model::assess::errors::{
    clears_when, is_confirmed_by_drive, log_evidence, quiet_verdict, raised_until_quiet, summarize,
};
use crate::model::assess::mounted::mount_line_of;
use crate::model::assess::text::{MOUNTINFO, evidence, join_limited, raised, unknown};
use crate::model::assess::{checks, merge};
use crate::model::counters::Counter;
use crate::model::facts::{Facts, KnownVolume};
use crate::model::finding::{Severity, Status, Subject, Verdict};
use crate::model::graph::extents::may_contain_sector;
use crate::model::ids::DriveId;
use crate::model::kernel_log::error_history::{ErrorTally, FailedSector};
use crate::model::kernel_log::event::Class;
use crate::model::policy::Policy;
use crate::model::reason::Reason;
use crate::model::volume::{Impact, VolumeFacts};

/// The filesystem had I/O errors from the device below it. Sources: its own records
/// (`EXT4-fs error … IO failure`, `metadata I/O error`, `BTRFS error … errs`), notices of
/// fanotify(7).
/// SUSPECT, degraded; BAD from `bad_episodes` episodes within `window`. Clears after `quiet_after`
/// (BAD: `bad_quiet_after`) without another.
pub(crate) fn errors(
    facts: &Facts,
    known: &KnownVolume,
    policy: &Policy,
    now: Timestamp,
) -> Option<Verdict> {
    let Some(tally) = tally(facts, known, Class::FsError) else {
        return Some(Verdict::Clear);
    };
    let episodes = tally.episodes_within(policy.errors.window);
    let bad = episodes >= policy.errors.bad_episodes as usize;
    let severity = if bad {
        Severity::Bad
    } else {
        Severity::Suspect
    };
    raised_until_quiet(
        facts,
        &policy.errors,
        tally,
        severity,
        &format!(
            "{} had I/O errors from the device below it",
            describe(&known.facts)
        ),
        now,
    )
}

/// The filesystem found its own structures or data to be wrong (ext4's EFSCORRUPTED and EFSBADCRC,
/// XFS's verifiers, btrfs's checksums, dm-verity and dm-integrity). BAD, degraded: that data is
/// lost is for a check to prove. SUSPECT where redundancy put all of it right. Clears after
/// `bad_quiet_after` without another. Also BAD while XFS itself calls some of its metadata sick.
/// And what checks have shown (`checks::corrupted`), which may be proof of lost data.
pub(crate) fn corrupted(
    facts: &Facts,
    known: &KnownVolume,
    policy: &Policy,
    now: Timestamp,
) -> Option<Verdict> {
    merge(
        kernel_corrupted(facts, known, policy, now),
        checks::corrupted(facts, known),
    )
}

/// The kernel's own word of it, less what a later check of the whole has found clean.
pub(crate) fn kernel_corrupted(
    facts: &Facts,
    known: &KnownVolume,
    policy: &Policy,
    now: Timestamp,
) -> Option<Verdict> {
    if let Some(sick) = xfs_sick(facts, known) {
        return sick;
    }
    let Some(tally) = tally(facts, known, Class::FsCorruption) else {
        return Some(Verdict::Clear);
    };
    if is_metadata_corruption(tally)
        && checks::last_clean_check(facts, known).is_some_and(|clean| clean > tally.last.time)
    {
        return Some(Verdict::Clear);
    }
    let healed = tally.last_uncorrected.is_none();
    let severity = if healed {
        Severity::Suspect
    } else {
        Severity::Bad
    };
    let what = if healed {
        "found corrupted data and repaired it"
    } else {
        "found its own data corrupted"
    };
    raised_until_quiet(
        facts,
        &policy.errors,
        tally,
        severity,
        &format!("{} {what}", describe(&known.facts)),
        now,
    )
}

/// What a checker would have seen: the words of ext4 and XFS on their own structures. btrfs speaks
/// of data as well, dm-verity and dm-integrity of blocks: of those a checker knows nothing.
fn is_metadata_corruption(tally: &ErrorTally) -> bool {
    let own = |text: &str| {
        ["EXT4-fs", "EXT3-fs", "EXT2-fs", "XFS ("]
            .iter()
            .any(|word| text.contains(word))
    };
    own(&tally.first.text) && own(&tally.last.text)
}

/// XFS remembers what it found to be wrong until a repair or an unmount (`sick` of
/// XFS_IOC_FSGEOMETRY; xfs_health.h).
fn xfs_sick(facts: &Facts, known: &KnownVolume) -> Option<Option<Verdict>> {
    let memory = facts.filesystem_counters(known, "xfs")?;
    let set: Vec<(&str, &Counter)> = memory
        .counters()
        .filter(|(name, counter)| name.starts_with("sick_") && counter.last > 0)
        .collect();
    let at = set
        .iter()
        .filter_map(|(_, counter)| counter.last_growth.or(Some(counter.since)))
        .max()?;
    let names = join_limited(set.iter().map(|(name, _)| name.trim_start_matches("sick_")));
    let message = format!(
        "{} reports corrupted metadata: {names}",
        describe(&known.facts)
    );
    let proof = vec![evidence(&memory.file, at, format!("sick: {names}"))];
    Some(raised(
        Severity::Bad,
        Status::Degraded,
        message,
        proof,
        "XFS reports none of its metadata as sick",
        Some(at),
    ))
}

/// The filesystem has stopped itself. Sources: the kernel's log, and the superblock option
/// `shutdown` (ext4, XFS and btrfs of newer kernels). BAD, inaccessible. Clears when it is
/// unmounted, or answers again where the log alone told of it.
pub(crate) fn shutdown(facts: &Facts, known: &KnownVolume) -> Option<Verdict> {
    let volume = &known.facts;
    let marked = volume.mounts.iter().find(|mount| {
        mount
            .super_options
            .iter()
            .any(|option| option == "shutdown")
    });
    let tally = tally(facts, known, Class::FsShutdown);
    if marked.is_none() {
        if let Some(error) = facts.mounts.error() {
            return unknown(error);
        }
        let Some(tally) = tally else {
            return Some(Verdict::Clear);
        };
        if accessible_since(facts, known, tally.last.time) {
            return Some(Verdict::Clear);
        }
    }
    let mut proof = tally.map(log_evidence).unwrap_or_default();
    if let (Some(mount), Some(at)) = (marked, facts.mounts.at()) {
        proof.extend(mount_line_of(facts, &mount.path).map(|line| evidence(MOUNTINFO, at, line)));
    }
    let message = format!(
        "{} has shut itself down: every access fails",
        describe(volume)
    );
    let clears = "it is unmounted, or answers again";
    raised(
        Severity::Bad,
        Status::Inaccessible,
        message,
        proof,
        clears,
        tally.map(|tally| tally.first.time),
    )
}

/// A directory of it could be read since.
fn accessible_since(facts: &Facts, known: &KnownVolume, time: Timestamp) -> bool {
    known
        .facts
        .mounts
        .iter()
        .filter_map(|mount| facts.probes.get(&mount.path))
        .any(|probe| {
            let answered = probe.result.at().is_some_and(|at| at > time);
            answered
                && probe
                    .result
                    .value()
                    .is_some_and(|value| value.readdir.is_ok() && value.statfs.is_ok())
        })
}

/// Reads or writes of the volume's own device failed, or sectors of a drive beneath that lie in the
/// volume and that nothing else holds. SUSPECT; BAD when a sector fails again, from `bad_sectors`
/// distinct sectors or `bad_episodes` episodes within `window`: then, where the drive itself said
/// that it could not read them, DATA_LOSS: nobody else has them. Clears after `quiet_after` (BAD:
/// `bad_quiet_after`).
pub(crate) fn io_errors(
    facts: &Facts,
    known: &KnownVolume,
    policy: &Policy,
    now: Timestamp,
) -> Option<Verdict> {
    let own = [Class::Io, Class::Medium, Class::Timeout]
        .into_iter()
        .filter_map(|class| tally(facts, known, class))
        .map(|tally| ErrorSource {
            tally,
            places: tally.sectors.iter().collect(),
            confirmed_medium: false,
            what: format!(
                "reads or writes of {} failed",
                known.facts.device.as_deref().unwrap_or("its device")
            ),
        });
    let beneath = known
        .facts
        .drive_ids
        .iter()
        .flat_map(|id| drive_error_sources(facts, known, policy, id));
    let mut worst: Option<(Severity, Status, ErrorSource<'_>)> = None;
    let mut undecided = None;
    for source in own.chain(beneath) {
        let (severity, status) = source.severity_and_status(policy);
        match quiet_verdict(
            facts,
            source.tally,
            policy.errors.quiet_period(severity),
            now,
        ) {
            Some(Some(Verdict::Unknown { why })) => undecided = Some(why),
            Some(_) => {}
            None if worst
                .as_ref()
                .is_none_or(|known| (known.0, known.1) < (severity, status)) =>
            {
                worst = Some((severity, status, source))
            }
            None => {}
        }
    }
    let Some((severity, status, source)) = worst else {
        return undecided.map_or(Some(Verdict::Clear), unknown);
    };
    let patience = policy.errors.quiet_period(severity);
    let message = format!("{}: {}", source.what, summarize(source.tally));
    raised(
        severity,
        status,
        message,
        log_evidence(source.tally),
        &clears_when(patience),
        Some(source.tally.first.time),
    )
}

struct ErrorSource<'a> {
    tally: &'a ErrorTally,
    places: Vec<&'a FailedSector>,
    /// The drive's own word that it could not read.
    confirmed_medium: bool,
    what: String,
}

impl ErrorSource<'_> {
    fn severity_and_status(&self, policy: &Policy) -> (Severity, Status) {
        let errors = &policy.errors;
        if self.tally.last_uncorrected.is_none() {
            return (Severity::Suspect, Status::Degraded);
        }
        let again = self.places.iter().any(|place| place.times > 1);
        let many = self.places.len() as u64 >= u64::from(errors.bad_sectors);
        let often = self.tally.episodes_within(errors.window) >= errors.bad_episodes as usize;
        let unread = self.places.iter().any(|place| place.is_read);
        match again || many || often {
            true if self.confirmed_medium && unread && (again || many) => {
                (Severity::Bad, Status::DataLoss)
            }
            true => (Severity::Bad, Status::Degraded),
            false => (Severity::Suspect, Status::Degraded),
        }
    }
}

/// What a drive's failing sectors mean for a volume in which they lie, and that stands on this
/// drive alone.
fn drive_error_sources<'a>(
    facts: &'a Facts,
    known: &KnownVolume,
    policy: &Policy,
    id: &DriveId,
) -> Vec<ErrorSource<'a>> {
    let exposed = known.facts.stack.impact(&|drive| drive == id) == Impact::Exposed;
    let (true, Some(inventory), Some(memory)) = (
        exposed,
        facts.inventory(),
        facts.errors(&Subject::Drive(id.clone())),
    ) else {
        return Vec::new();
    };
    let told = [Class::Medium, Class::Io]
        .into_iter()
        .filter_map(|class| memory.get(class).map(|tally| (class, tally)));
    let source = |(class, tally): (Class, &'a ErrorTally)| {
        // What failed before there was this volume was not its data.
        let here = |place: &&FailedSector| {
            place.last >= known.first_seen
                && tally.is_recent(place, policy.errors.window)
                && may_contain_sector(
                    inventory,
                    &facts.layers,
                    &known.facts,
                    &place.device,
                    place.sector,
                )
        };
        let places: Vec<&FailedSector> = tally.sectors.iter().filter(here).collect();
        if places.is_empty() {
            return None;
        }
        let sectors = join_limited(
            places
                .iter()
                .map(|place| format!("{} of {}", place.sector, place.device)),
        );
        let what = format!(
            "sectors of drive {id} in the volume failed ({sectors}), and there is no other copy"
        );
        let medium = class == Class::Medium
            && facts
                .drives
                .get(id)
                .is_some_and(|drive| is_confirmed_by_drive(drive, tally));
        Some(ErrorSource {
            tally,
            places,
            confirmed_medium: medium,
            what,
        })
    };
    told.filter_map(source).collect()
}

/// What was said of a device that carries no volume: a filesystem whose mount failed, an array or a
/// mapping whose reads fail. As the volumes' rules, and SUSPECT at most where nobody uses it.
pub(crate) fn device(
    facts: &Facts,
    name: &str,
    policy: &Policy,
    now: Timestamp,
) -> Vec<(Reason, Option<Verdict>)> {
    let memory = facts.errors(&Subject::Device(name.to_owned()));
    let said = |classes: &[Class], what: &str| {
        let Some(tally) = classes.iter().find_map(|class| memory?.get(*class)) else {
            return Some(Verdict::Clear);
        };
        raised_until_quiet(
            facts,
            &policy.errors,
            tally,
            Severity::Suspect,
            &format!("{name} {what}"),
            now,
        )
    };
    vec![
        (
            Reason::IoErrors,
            said(
                &[Class::Medium, Class::Io, Class::Timeout],
                "failed reads or writes",
            ),
        ),
        (
            Reason::FilesystemErrors,
            said(
                &[Class::FsError, Class::FsShutdown],
                "has a filesystem that met errors of its device",
            ),
        ),
        (
            Reason::FilesystemCorrupted,
            said(
                &[Class::FsCorruption],
                "has a filesystem that found its own data corrupted",
            ),
        ),
    ]
}

pub(crate) fn tally<'a>(
    facts: &'a Facts,
    known: &KnownVolume,
    class: Class,
) -> Option<&'a ErrorTally> {
    facts
        .errors(&Subject::Volume(known.facts.id.clone()))?
        .get(class)
}

fn describe(volume: &VolumeFacts) -> String {
    let kind = volume.fs_type.as_deref().unwrap_or("filesystem");
    let place = volume
        .mounts
        .first()
        .map(|mount| format!(" mounted at {}", mount.path))
        .unwrap_or_default();
    format!(
        "the {kind} on {}{place}",
        volume.device.as_deref().unwrap_or("an unknown device")
    )
}
