//! Rules about volumes from the kernel log and fanotify notices: errors of the filesystem, and of
//! the sectors below it.

use jiff::Timestamp;

use crate::assess::counters::{
    Proof, changed, fails_its_probe, of_filesystem, proof, shown_beside,
};
use crate::assess::errors::{
    clears_when, is_confirmed_by_drive, log_evidence, quiet_verdict, raised_until_quiet, summarize,
};
use crate::assess::input::{Context, VolumeInput};
use crate::assess::mounted::mount_line_of;
use crate::assess::text::{
    BAD, DATA_LOSS, INACCESSIBLE, Level, MOUNTINFO, SUSPECT, evidence, join_limited, raised,
    unknown, volume_name,
};
use crate::assess::{checks, merge, pool, recorded};
use crate::facts::kernel_log::second_witness::NO_ANSWER_AFTER;
use crate::facts::{Facts, KnownDrive, KnownVolume};
use crate::graph::extents::may_contain_sector;
use crate::policy::ErrorPolicy;
use crate::superblock::ExtState;
use crate::volume::{Impact, VolumeFacts};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Status, Subject, Verdict, WitnessKind};
use diskvitals_kernel_log::error_history::{ErrorHistory, ErrorTally, FailedSector};
use diskvitals_kernel_log::event::Class;
use diskvitals_text::duration::elapsed;

/// The filesystem had I/O errors from the device below it, or has recorded errors that nothing has
/// repaired (`recorded`). A finding that its structures are corrupted says the same and more, and
/// replaces the record.
pub(crate) fn errors(input: &VolumeInput) -> Option<Verdict> {
    let recorded = match corrupted(input) {
        Some(Verdict::Raised(_)) => Some(Verdict::Clear),
        _ => recorded::errors(input),
    };
    merge(logged_errors(input), recorded)
}

/// Sources: the filesystem's own records in the log (`EXT4-fs error … IO failure`, `metadata I/O
/// error`, `BTRFS error … errs`), notices of fanotify(7), growing counters.
/// SUSPECT, degraded; BAD from `bad_episodes` episodes within `window`. Clears after `quiet_after`
/// (BAD: `bad_quiet_after`) without another.
pub(crate) fn logged_errors(input: &VolumeInput) -> Option<Verdict> {
    let Some(tally) = tally(input, Class::FsError) else {
        return Some(Verdict::Clear);
    };
    let severity = errors_severity(&input.context.policy.errors, tally);
    let (severity, note) = own_proof(input, Class::FsError, tally).limit(severity);
    let what = format!(
        "{} had I/O errors from the device below it{note}",
        volume_name(&input.known.facts)
    );
    let verdict = raised_until_quiet(input.context, tally, severity, &what);
    shown_beside(verdict, of_filesystem(input.context.facts, input.known, Class::FsError))
}

fn errors_severity(errors: &ErrorPolicy, tally: &ErrorTally) -> Severity {
    match tally.episodes_within(errors.window) >= errors.bad_episodes as usize {
        true => Severity::Bad,
        false => Severity::Suspect,
    }
}

/// The filesystem found its own structures or data to be wrong (ext4's EFSCORRUPTED and EFSBADCRC,
/// XFS's verifiers, btrfs's checksums, dm-verity and dm-integrity). BAD, degraded: only a check can
/// prove that data is lost. SUSPECT where redundancy repaired all of it, and where a counter does not
/// move with what the log says (`proof`). Also BAD while XFS reports
/// some of its metadata as sick. Results of checks (`checks::corrupted`) are merged; they may prove
/// data loss.
///
/// Reports of ext4 and XFS about their own structures outlive an unmount. They clear with a CLEAN
/// check of at least frozen strength, when ext4 counts no error after a later mount, with a new UUID,
/// and when a person acknowledges them after an unmount. Others clear after `bad_quiet_after`
/// (SUSPECT: `quiet_after`) without another.
pub(crate) fn corrupted(input: &VolumeInput) -> Option<Verdict> {
    merge(kernel_corrupted(input), checks::corrupted(input.context.facts, input.known))
}

/// The kernel's own reports, unless a later check of the whole filesystem was clean.
pub(crate) fn kernel_corrupted(input: &VolumeInput) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    if let Some(sick) = xfs_sick(facts, known) {
        return sick;
    }
    let Some(tally) = facts.corruption(known) else {
        return Some(Verdict::Clear);
    };
    let last = tally.last.time;
    let fs_type = known.facts.fs_type.as_deref();
    if is_metadata_corruption(tally, fs_type)
        && (checks::last_clean_check(facts, known).is_some_and(|clean| clean > last)
            || is_repaired_ext4(facts, known, last))
    {
        return Some(Verdict::Clear);
    }
    let name = volume_name(&known.facts);
    let proof = own_proof(input, Class::FsCorruption, tally);
    let (severity, what) = match (tally.last_uncorrected, proof) {
        (None, _) if tally.corrected == tally.incidents => {
            (Severity::Suspect, format!("{name} found corrupted data and repaired it"))
        }
        (None, _) => (
            Severity::Suspect,
            format!("{name} found damaged copies of its data, and has other copies"),
        ),
        (Some(_), Proof::Doubted(why)) => {
            (Severity::Suspect, format!("{name} may be corrupted ({why})"))
        }
        (Some(_), proof) => {
            let (severity, note) = proof.limit(Severity::Bad);
            let what = format!("{name} found its own data corrupted{note}");
            (severity, what)
        }
    };
    let verdict = raise_corruption(input.context, tally, fs_type, severity, &what);
    shown_beside(verdict, of_filesystem(facts, known, Class::FsCorruption))
}

/// The same for a filesystem that is not mounted, on this device.
pub(crate) fn unmounted_corruption(
    context: Context,
    name: &str,
    tally: &ErrorTally,
) -> Option<Verdict> {
    let (facts, last) = (context.facts, tally.last.time);
    let is_clean = |(at, state): (Timestamp, &ExtState)| at > last && state.is_clean();
    let device = facts.device(name);
    let fs_type = device.and_then(|device| device.fs_type.as_deref());
    if is_metadata_corruption(tally, fs_type)
        && (checks::last_clean_device_check(facts, name).is_some_and(|clean| clean > last)
            || facts.ext_state(name).is_some_and(is_clean))
    {
        return Some(Verdict::Clear);
    }
    let severity = match tally.last_uncorrected {
        None => Severity::Suspect,
        Some(_) => Severity::Bad,
    };
    let what = format!("the kernel found the filesystem on {name} corrupted while it was mounted");
    raise_corruption(context, tally, fs_type, severity, &what)
}

/// Errors that a filesystem, or the device below it, had while it was mounted, at the same levels:
/// an unmount repairs nothing.
pub(crate) fn unmounted_errors(
    context: Context,
    name: &str,
    history: &ErrorHistory,
) -> [(Reason, Option<Verdict>); 2] {
    let errors = &context.policy.errors;
    let filesystem = history.get(Class::FsError).map_or(Some(Verdict::Clear), |tally| {
        let what = format!("the filesystem on {name} had I/O errors while it was mounted");
        raised_until_quiet(context, tally, errors_severity(errors, tally), &what)
    });
    let subject = Subject::Device(name.to_owned());
    let sources = own_sources(|class| history.get(class), &subject, name);
    [(Reason::FilesystemErrors, filesystem), (Reason::IoErrors, worst_source(context, sources))]
}

fn raise_corruption(
    context: Context,
    tally: &ErrorTally,
    fs_type: Option<&str>,
    severity: Severity,
    what: &str,
) -> Option<Verdict> {
    if !is_metadata_corruption(tally, fs_type) {
        return raised_until_quiet(context, tally, severity, what);
    }
    let message = format!("{what}: {}", summarize(context, tally));
    let clears = match fs_type {
        Some("xfs") => {
            "a check while frozen or unmounted finds it clean (XFS records no repair: run `diskvitals check` after xfs_repair and before it is mounted), a new filesystem is made, or it is acknowledged after an unmount"
        }
        _ => {
            "a check while frozen or unmounted finds it clean, ext4 is mounted again after a repair that its superblock records, a new filesystem is made, or it is acknowledged after an unmount"
        }
    };
    raised(
        (severity, Status::Degraded),
        message,
        log_evidence(tally),
        clears,
        Some(tally.first.time),
    )
}

/// e2fsck has reset the count of errors in the superblock (errors_count in /sys/fs/ext4) since the
/// last report: it was mounted again since, and the first reading after that is 0. e2fsck does that
/// also when somebody answered "no" to its questions: then it leaves the filesystem marked as not
/// clean.
fn is_repaired_ext4(facts: &Facts, known: &KnownVolume, last: Timestamp) -> bool {
    let mounted = known.mounted_since.values().min();
    let in_order = known.facts.device.as_deref().is_none_or(|name| match facts.ext_state(name) {
        Some((_, state)) => {
            state.is_clean_while_mounted() || !state.has_journal && !state.has_recorded_errors()
        }
        None => !facts.awaits_ext_state(name),
    });
    let history = facts.filesystem_counters(known, "ext4");
    let counter = history.and_then(|history| {
        let mut counters = history.counters();
        counters.find(|(name, _)| *name == "errors_count")
    });
    in_order
        && mounted.is_some_and(|mounted| *mounted > last)
        && counter.is_some_and(|(_, counter)| counter.last == 0 && counter.since > last)
}

/// Corruption that a checker would find: reports of ext4 and XFS about their own structures. btrfs
/// also reports data, and dm-verity and dm-integrity report blocks; a checker does not test these.
fn is_metadata_corruption(tally: &ErrorTally, fs_type: Option<&str>) -> bool {
    let own = |text: &str| {
        ["EXT4-fs", "EXT3-fs", "EXT2-fs", "XFS ("]
            .iter()
            .any(|word| text.contains(word))
            // fanotify's notices of other filesystems are also about data.
            || text.starts_with("FAN_FS_ERROR") && fs_type != Some("btrfs")
            || text.starts_with("XFS_IOC_FSGEOMETRY: sick_")
    };
    own(&tally.first.text) && own(&tally.last.text)
}

/// XFS stores what it found to be wrong until a repair or an unmount (`sick` of XFS_IOC_FSGEOMETRY;
/// xfs_health.h). After the unmount, the incident of the same finding is left.
fn xfs_sick(facts: &Facts, known: &KnownVolume) -> Option<Option<Verdict>> {
    let memory = facts.filesystem_counters(known, "xfs")?;
    let set: Vec<_> = memory
        .counters()
        .filter(|(name, counter)| name.starts_with("sick_") && counter.last > 0)
        .collect();
    let at = set.iter().map(|(_, counter)| changed(counter)).max()?;
    let names = join_limited(set.iter().map(|(name, _)| name.trim_start_matches("sick_")));
    let message = format!("{} reports corrupted metadata: {names}", volume_name(&known.facts));
    let proof = vec![evidence(WitnessKind::Counter, &memory.file, at, format!("sick: {names}"))];
    let clears = "a check while frozen or unmounted finds it clean, a new filesystem is made, or it is acknowledged after an unmount";
    Some(raised(BAD, message, proof, clears, Some(at)))
}

/// The filesystem has stopped itself. Sources: the kernel log, and the superblock option `shutdown`
/// (ext4, XFS and btrfs of newer kernels). BAD, inaccessible; until the probe that the record has requested
/// answers, SUSPECT for the log's record alone. Clears when it is unmounted; if only
/// the log reported it, also when the filesystem responds again.
pub(crate) fn shutdown(input: &VolumeInput) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    let marked = volume.mounts.iter().find(|mount| mount.has_super_option("shutdown"));
    let tally = tally(input, Class::FsShutdown);
    if marked.is_none() {
        if let Some(error) = facts.mounts.error() {
            return unknown(error);
        }
        // What the log says of a pool, PoolSuspended says from then on, until the pool works again.
        let is_over = |since: Timestamp| {
            is_accessible_since(facts, volume, since) || pool::is_read_since(facts, volume, since)
        };
        if tally.is_none_or(|tally| is_over(tally.last.time)) {
            return Some(Verdict::Clear);
        }
    }
    let mut proof = tally.map(log_evidence).unwrap_or_default();
    if let (Some(mount), Some(at)) = (marked, facts.mounts.at()) {
        proof.extend(
            mount_line_of(facts, &mount.path)
                .map(|line| evidence(WitnessKind::MountTable, MOUNTINFO, at, line)),
        );
    }
    let name = volume_name(volume);
    let (level, message) = match tally.filter(|_| marked.is_none()) {
        Some(tally)
            if !fails_its_probe(facts, volume, tally.first.time)
                && !is_device_gone(facts, volume) =>
        {
            match is_probe_awaited(input.context, volume, tally.last.time) {
                true => {
                    let doubt = "so far only the kernel log says so: a probe of it is awaited";
                    (SUSPECT, format!("{name} may have shut itself down ({doubt})"))
                }
                false => {
                    let text = "has shut itself down (log alone): every access fails";
                    (INACCESSIBLE, format!("{name} {text}"))
                }
            }
        }
        _ => {
            let text = "has shut itself down: every access fails";
            (INACCESSIBLE, format!("{name} {text}"))
        }
    };
    let since = tally.map(|tally| tally.first.time);
    raised(level, message, proof, "it is unmounted, or answers again", since)
}

fn is_device_gone(facts: &Facts, volume: &VolumeFacts) -> bool {
    let mut drives = volume.drive_ids.iter().filter_map(|id| facts.drives.get(id));
    volume.device_gone || drives.any(KnownDrive::is_unusable)
}

/// The probe that a record of the failure has requested has not answered yet.
fn is_probe_awaited(context: Context, volume: &VolumeFacts, last: Timestamp) -> bool {
    let probes = &context.facts.probes;
    let mut mounts = volume.mounts.iter();
    let is_probed = mounts.any(|mount| probes.mounts().contains_key(&mount.path));
    is_probed && elapsed(last, context.now) < NO_ANSWER_AFTER
}

/// A later probe could read one of its directories.
fn is_accessible_since(facts: &Facts, volume: &VolumeFacts, time: Timestamp) -> bool {
    let mut probes = volume.mounts.iter().filter_map(|mount| facts.probes.get(&mount.path));
    probes.any(|probe| match &probe.result {
        Observation::Ok { at, value } => {
            *at > time && value.readdir.is_ok() && value.statfs.is_ok()
        }
        _ => false,
    })
}

/// Reads or writes of the volume's own device failed, or sectors of an underlying drive that are in
/// the volume and have no redundant copy. SUSPECT. BAD when a sector fails again, from
/// `bad_sectors` distinct sectors or `bad_episodes` episodes within `window`; also DATA_LOSS if the
/// drive itself reported them unreadable: no other copy exists. Clears after `quiet_after` (BAD:
/// `bad_quiet_after`). Unknown while it is not known whether a copy of these sectors exists.
pub(crate) fn io_errors(input: &VolumeInput) -> Option<Verdict> {
    let facts = &input.known.facts;
    let device = facts.device.as_deref().unwrap_or("its device");
    let subject = Subject::Volume(input.known.facts.id.clone());
    let own = own_sources(|class| tally(input, class), &subject, device);
    let below = |impact: Impact| {
        let is_hit = move |id: &&DriveId| facts.stack.impact(&|drive| drive == *id) == impact;
        let hit = facts.drive_ids.iter().filter(is_hit);
        hit.flat_map(|id| drive_error_sources(input, id))
    };
    let exposed = below(Impact::Exposed).map(|mut source| {
        source.what.push_str(", and there is no other copy");
        source
    });
    let verdict = worst_source(input.context, own.chain(exposed));
    match (&verdict, worst_source(input.context, below(Impact::Unknown))) {
        (Some(Verdict::Clear), Some(Verdict::Raised(raised))) => {
            unknown(format!("whether there is another copy is not known: {}", raised.message))
        }
        _ => verdict,
    }
}

/// Errors of the device that has the filesystem.
fn own_sources<'a>(
    tally: impl Fn(Class) -> Option<&'a ErrorTally>,
    subject: &Subject,
    device: &str,
) -> impl Iterator<Item = ErrorSource<'a>> {
    [Class::Io, Class::Medium, Class::Timeout]
        .into_iter()
        .filter_map(move |class| Some((class, tally(class)?)))
        .map(move |(class, tally)| ErrorSource {
            subject: subject.clone(),
            class,
            tally,
            sectors: tally.sectors.iter().collect(),
            confirmed_medium: false,
            what: format!("reads or writes of {device} failed"),
        })
}

fn worst_source<'a>(
    context: Context,
    sources: impl Iterator<Item = ErrorSource<'a>>,
) -> Option<Verdict> {
    let errors = &context.policy.errors;
    let mut worst: Option<(Level, ErrorSource<'_>, String)> = None;
    let mut undecided = None;
    for source in sources {
        let level = source.level(errors);
        let proof = proof(context, &source.subject, source.class, source.tally);
        let (limit, note) = proof.limit(level.0);
        let level = match limit < level.0 {
            true => SUSPECT,
            false => level,
        };
        match quiet_verdict(context, source.tally, errors.quiet_period(level.0)) {
            Some(Some(Verdict::Unknown { why })) => undecided = Some(why),
            None if worst.as_ref().is_none_or(|(worst, ..)| *worst < level) => {
                worst = Some((level, source, note))
            }
            _ => {}
        }
    }
    let Some((level, ErrorSource { tally, what, .. }, note)) = worst else {
        return undecided.map_or(Some(Verdict::Clear), unknown);
    };
    let message = format!("{what}{note}: {}", summarize(context, tally));
    let clears = clears_when(errors.quiet_period(level.0));
    raised(level, message, log_evidence(tally), clears, Some(tally.first.time))
}

struct ErrorSource<'a> {
    subject: Subject,
    class: Class,
    tally: &'a ErrorTally,
    sectors: Vec<&'a FailedSector>,
    /// The drive itself reported that it could not read.
    confirmed_medium: bool,
    what: String,
}

impl ErrorSource<'_> {
    fn level(&self, errors: &ErrorPolicy) -> Level {
        let again = self.sectors.iter().any(|sector| sector.times > 1);
        let many = self.sectors.len() as u64 >= u64::from(errors.bad_sectors);
        let often = self.tally.episodes_within(errors.window) >= errors.bad_episodes as usize;
        let unread = self.sectors.iter().any(|sector| sector.is_read);
        if self.tally.last_uncorrected.is_none() || !(again || many || often) {
            SUSPECT
        } else if self.confirmed_medium && unread && (again || many) {
            DATA_LOSS
        } else {
            BAD
        }
    }
}

/// The errors of a drive's failing sectors that are in the volume.
fn drive_error_sources<'a>(input: &VolumeInput<'a>, id: &DriveId) -> Vec<ErrorSource<'a>> {
    let (Context { facts, policy, .. }, known) = (input.context, input.known);
    let errors = facts.errors(&Subject::Drive(id.clone()));
    let (Some(inventory), Some(errors)) = (facts.inventory(), errors) else {
        return Vec::new();
    };
    let source = |class: Class| {
        let tally = errors.get(class)?;
        // Errors from before this volume existed did not affect its data.
        let is_inside = |failed: &&FailedSector| {
            let (device, sector) = (&failed.device, failed.sector);
            failed.last >= known.first_seen
                && tally.is_recent(failed, policy.errors.window)
                && may_contain_sector(inventory, &facts.layers, &known.facts, device, sector)
        };
        let sectors: Vec<&FailedSector> = tally.sectors.iter().filter(is_inside).collect();
        if sectors.is_empty() {
            return None;
        }
        let names = sectors.iter().map(|failed| format!("{} of {}", failed.sector, failed.device));
        let names = join_limited(names);
        let drive = facts.drives.get(id);
        Some(ErrorSource {
            subject: Subject::Drive(id.clone()),
            class,
            tally,
            sectors,
            confirmed_medium: class == Class::Medium
                && drive.is_some_and(|drive| is_confirmed_by_drive(drive, tally)),
            what: format!("sectors of drive {id} in the volume failed ({names})"),
        })
    };
    [Class::Medium, Class::Io].into_iter().filter_map(source).collect()
}

/// Log records about a device that carries no volume: failed mounts of its filesystem, failed reads
/// of an array or a mapping. Levels as for volumes, but SUSPECT at most if it is unused.
pub(crate) fn device(context: Context, name: &str) -> [(Reason, Option<Verdict>); 3] {
    let errors = context.facts.errors(&Subject::Device(name.to_owned()));
    let verdict = |classes: &[Class], what: &str| {
        let Some(tally) = classes.iter().find_map(|class| errors?.get(*class)) else {
            return Some(Verdict::Clear);
        };
        raised_until_quiet(context, tally, Severity::Suspect, &format!("{name} {what}"))
    };
    let io = [Class::Medium, Class::Io, Class::Timeout];
    let filesystem = [Class::FsError, Class::FsShutdown];
    let met_errors = "has a filesystem that met errors of its device";
    let corrupted = "has a filesystem that found its own data corrupted";
    [
        (Reason::IoErrors, verdict(&io, "failed reads or writes")),
        (Reason::FilesystemErrors, verdict(&filesystem, met_errors)),
        (Reason::FilesystemCorrupted, verdict(&[Class::FsCorruption], corrupted)),
    ]
}

/// What supports the log's records about the volume itself.
pub(super) fn own_proof(input: &VolumeInput, class: Class, tally: &ErrorTally) -> Proof {
    let subject = Subject::Volume(input.known.facts.id.clone());
    proof(input.context, &subject, class, tally)
}

pub(crate) fn tally<'a>(input: &VolumeInput<'a>, class: Class) -> Option<&'a ErrorTally> {
    input.context.facts.tally(&Subject::Volume(input.known.facts.id.clone()), class)
}
