//! Rules about free space: bytes and inodes.

use jiff::{SignedDuration, Timestamp};

use crate::assess::input::VolumeInput;
use crate::assess::text::{
    BAD, SUSPECT, evidence, format_share, format_span, percent, raised, unknown,
};
use crate::facts::Facts;
use crate::policy::space::SpacePolicy;
use crate::probe::Usage;
use crate::space_history::Forecast;
use crate::volume::VolumeFacts;
use diskvitals_finding::btrfs_space::{self, Allocatable, BtrfsSpace, Room};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Evidence, Subject, Verdict, WitnessKind};
use diskvitals_text::size::format_bytes;

/// The space that is available to unprivileged users is less than `raise_percent` of the whole or
/// `raise_bytes`, whichever is less; or it is less than `forecast_percent` and gone within `forecast`
/// at the rate of the last days. Source: statfs of any of its mounts. SUSPECT, degraded; BAD when
/// writers are about to fail (`SpacePolicy::full_below`), until twice as much is available. Clears
/// above `clear_percent` or twice `raise_bytes`, and when twice `forecast` is left. Filesystems that
/// are read-only or without a size are not judged.
///
/// btrfs: judged by what it can still allocate (`btrfs_space`), for data or for metadata, of which
/// less is left. BAD while it has no space for metadata.
pub(crate) fn out_of_space(input: &VolumeInput) -> Option<Verdict> {
    let measured = match newest_usage(input.context.facts, &input.known.facts)? {
        Ok(measured) => measured,
        Err(verdict) => return Some(verdict),
    };
    let Measured { path, at, usage, .. } = measured;
    let space = Space::of(&measured);
    let (total, left) = (space.total, space.left);
    let share = percent(left, total)?;
    let policy = input.context.policy.space.for_volume(&input.known.facts);
    let subject = Subject::Volume(input.known.facts.id.clone());
    let soon = fills_up(input.context.facts, &subject, left, at, input.active, &policy)
        .filter(|_| is_below(left, total, policy.forecast_percent));
    if !space.is_short(input.active, &policy) && !space.exhausted && soon.is_none() {
        return Some(Verdict::Clear);
    }
    let bad = space.exhausted || space.is_full(input.active, &policy);
    let share = format_share(left, share);
    let mut clears = space.clears(&policy);
    let (left, total) = (format_bytes(left), format_bytes(total));
    let of_what = space.of_what;
    let mut message = format!("{left} of {total} ({share}) left{of_what} at {path}");
    if space.exhausted {
        message += &space.exhausted_text(path);
    }
    if space.exhausted {
        clears += " for metadata, in its chunks or for another chunk";
    }
    let mut proof = vec![statfs_evidence(path, at, usage)];
    proof.extend(space.btrfs.map(|room| btrfs_evidence(path, at, &room)));
    if let Some(forecast) = soon {
        let days = format_span(forecast.span);
        let rate = format_bytes(forecast.per_day);
        message += &format!("; {} at the rate of the last {days}", full_in(&forecast));
        clears += &format!(
            ", and it will not be full within {}",
            format_span(clearing_forecast(&policy))
        );
        let text = format!("available space fell by {rate} a day for {days}");
        proof.push(evidence(WitnessKind::Probe, format!("statfs {path} over time"), at, text));
    }
    raised(if bad { BAD } else { SUSPECT }, message, proof, clears, None)
}

/// Free inodes are less than `raise_inodes_percent`. Source, levels and clearing
/// (`clear_inodes_percent`) as for bytes. Filesystems without a fixed number of inodes report 0 of
/// 0 and are not judged.
pub(crate) fn out_of_inodes(input: &VolumeInput) -> Option<Verdict> {
    let Measured { path, at, usage, .. } =
        match newest_usage(input.context.facts, &input.known.facts)? {
            Ok(measured) => measured,
            Err(verdict) => return Some(verdict),
        };
    let (total, left) = (usage.total_inodes, usage.available_inodes);
    let Some(share) = percent(left, total) else {
        return Some(Verdict::Clear);
    };
    let policy = input.context.policy.space.for_volume(&input.known.facts);
    let full = is_below(left, total, policy.raise_inodes_percent);
    let over = !is_below(left, total, policy.clear_inodes_percent);
    if !full && (input.active.is_none() || over) {
        return Some(Verdict::Clear);
    }
    let half = half_of(total, policy.raise_inodes_percent);
    let bad = left == 0 || (input.active == Some(Severity::Bad) && left < half);
    let share = format_share(left, share);
    let message = format!("{left} of {total} inodes ({share}) left at {path}");
    let clears = format!("{} % of the inodes are free", policy.clear_inodes_percent);
    let proof = vec![statfs_evidence(path, at, usage)];
    raised(if bad { BAD } else { SUSPECT }, message, proof, clears, None)
}

/// The forecast of a volume or thin pool that will be full soon: within `forecast`, or within twice
/// that time while the finding is active. None for what is full already, and without a limit (0s).
/// The caller compares the share that is left.
pub(crate) fn fills_up(
    facts: &Facts,
    subject: &Subject,
    left: u64,
    at: Timestamp,
    active: Option<Severity>,
    policy: &SpacePolicy,
) -> Option<Forecast> {
    let limit = match active {
        None => SignedDuration::try_from(policy.forecast).unwrap_or(SignedDuration::MAX),
        Some(_) => clearing_forecast(policy),
    };
    if left == 0 || policy.forecast.is_zero() {
        return None;
    }
    let forecast = facts.space.forecast(subject, left, at)?;
    (forecast.full_in <= limit).then_some(forecast)
}

/// `full in about 2 days`.
pub(crate) fn full_in(forecast: &Forecast) -> String {
    let span = format_span(forecast.full_in);
    match span.strip_prefix("less than ") {
        Some(_) => format!("full in {span}"),
        None => format!("full in about {span}"),
    }
}

fn clearing_forecast(policy: &SpacePolicy) -> SignedDuration {
    SignedDuration::try_from(policy.forecast.saturating_mul(2)).unwrap_or(SignedDuration::MAX)
}

fn enough(policy: &SpacePolicy) -> u64 {
    policy.raise_bytes.saturating_mul(2)
}

fn is_below(left: u64, total: u64, limit_percent: u8) -> bool {
    u128::from(left) * 100 < u128::from(total) * u128::from(limit_percent)
}

/// Rounded up, so that it is not below the limit.
fn percent_of(total: u64, percent: u8) -> u64 {
    (u128::from(total) * u128::from(percent)).div_ceil(100) as u64
}

fn half_of(total: u64, limit_percent: u8) -> u64 {
    (u128::from(total) * u128::from(limit_percent) / 200) as u64
}

pub(super) fn statfs_evidence(path: &HostPath, at: Timestamp, usage: &Usage) -> Evidence {
    let text = format!(
        "total_bytes={} available_bytes={} used_bytes={} total_inodes={} available_inodes={} used_inodes={}",
        usage.total_bytes,
        usage.available_bytes,
        usage.used_bytes,
        usage.total_inodes,
        usage.available_inodes,
        usage.used_inodes
    );
    evidence(WitnessKind::Probe, format!("statfs {path}"), at, text)
}

fn btrfs_evidence(path: &HostPath, at: Timestamp, room: &Allocatable) -> Evidence {
    let kind = |name: &str, room: &Room| {
        format!(
            "{name}: used={} free={} pinned={} new_chunks={}",
            room.used, room.free, room.pinned, room.new_chunks
        )
    };
    let text = format!("{}; {}", kind("data", &room.data), kind("metadata", &room.metadata));
    let source = format!("BTRFS_IOC_SPACE_INFO and BTRFS_IOC_DEV_INFO {path}");
    evidence(WitnessKind::Probe, source, at, text)
}

/// The space that is judged: that of statfs, or what a btrfs can still allocate.
pub(super) struct Space {
    pub(super) total: u64,
    pub(super) left: u64,
    /// With what the next commit of a btrfs frees.
    left_soon: u64,
    /// Of what it is the space, in the message.
    of_what: &'static str,
    /// A btrfs without space for metadata, whatever is left of the rest.
    exhausted: bool,
    btrfs: Option<Allocatable>,
}

impl Space {
    pub(super) fn plain(total: u64, left: u64) -> Space {
        Space { total, left, left_soon: left, of_what: "", exhausted: false, btrfs: None }
    }

    /// `active`: of the finding.
    pub(super) fn is_short(&self, active: Option<Severity>, policy: &SpacePolicy) -> bool {
        let is_over =
            !is_below(self.left, self.total, policy.clear_percent) || self.left >= enough(policy);
        self.left < policy.short_below(self.total) || active.is_some() && !is_over
    }

    /// Writers are about to fail.
    pub(super) fn is_full(&self, active: Option<Severity>, policy: &SpacePolicy) -> bool {
        let full = policy.full_below(self.total);
        let was_full = active == Some(Severity::Bad);
        self.left_soon < full || (was_full && self.left < full.saturating_mul(2))
    }

    pub(super) fn clears(&self, policy: &SpacePolicy) -> String {
        let share = percent_of(self.total, policy.clear_percent);
        format!("{} are available", format_bytes(enough(policy).min(share)))
    }

    /// Data and metadata of a btrfs are separate; the scarcer of them counts.
    fn of(measured: &Measured<'_>) -> Space {
        let usage = measured.usage;
        let Some(room) = measured.btrfs.and_then(btrfs_space::allocatable) else {
            return Space::plain(usage.total_bytes, usage.available_bytes);
        };
        let share = |room: &Room| {
            u128::from(room.left()) * u128::from(u32::MAX) / u128::from(room.total().max(1))
        };
        let is_metadata =
            room.metadata_exhausted || !room.mixed && share(&room.metadata) < share(&room.data);
        let (scarcer, of_what) =
            if is_metadata { (room.metadata, " for metadata") } else { (room.data, "") };
        Space {
            total: scarcer.total(),
            left: scarcer.left(),
            left_soon: scarcer.left().saturating_add(scarcer.pinned),
            of_what,
            exhausted: room.metadata_exhausted,
            btrfs: Some(room),
        }
    }

    fn exhausted_text(&self, path: &HostPath) -> String {
        let data = self.btrfs.filter(|room| !room.mixed).map_or(0, |room| room.data.left());
        let advice = if data > 0 {
            format!(
                ", although {} are free for data. Delete some files or a snapshot, or add a device; then \"btrfs balance start -dusage=50 {path}\" turns data chunks into space for metadata",
                format_bytes(data)
            )
        } else {
            String::new()
        };
        format!(
            ", and no device has space for another metadata chunk: nothing can be created{advice}"
        )
    }
}

pub(super) struct Measured<'a> {
    pub(super) path: &'a HostPath,
    pub(super) at: Timestamp,
    pub(super) usage: &'a Usage,
    btrfs: Option<&'a BtrfsSpace>,
}

/// The newest good statfs among the volume's mounts. `Err` is a verdict that needs no figures;
/// `None`: nothing applies yet.
pub(super) fn newest_usage<'a>(
    facts: &'a Facts,
    volume: &'a VolumeFacts,
) -> Option<Result<Measured<'a>, Verdict>> {
    if volume.block {
        return None;
    }
    if let Some(error) = facts.mounts.error() {
        return unknown(error).map(Err);
    }
    if volume.mounts.is_empty() || volume.mounts.iter().any(|mount| mount.is_super_read_only()) {
        let is_known = facts.mounts.value().is_some();
        return is_known.then_some(Err(Verdict::Clear));
    }
    let mounts = volume.mounts.iter();
    let probes = mounts.filter_map(|mount| Some((&mount.path, facts.probes.get(&mount.path)?)));
    // All its mounts show the same filesystem. The newest figures count; while their mount cannot
    // be probed, older figures of another mount do not replace them.
    let mut newest: Option<(Measured<'a>, Option<String>)> = None;
    let mut silent = None;
    for (path, probe) in probes {
        let why = match (&probe.stuck, &probe.result) {
            (Some(stuck), _) => Some(format!(
                "the probe of {path} has been pending since {}",
                facts.wall_text(stuck.since)
            )),
            (None, Observation::Ok { value, .. }) => match &value.statfs {
                Ok(usage) if usage.total_bytes == 0 => {
                    Some(format!("statfs of {path} shows no size"))
                }
                Ok(_) => None,
                Err(error) => Some(format!("probing {path}: {error}")),
            },
            (None, Observation::Failed { error, .. }) => Some(format!("probing {path}: {error}")),
            (None, Observation::Unavailable) => Some(format!("{path} is not probed now")),
        };
        match &probe.usage {
            Some((usage, at)) if newest.as_ref().is_none_or(|(newer, _)| newer.at < *at) => {
                let measured = Measured { path, at: *at, usage, btrfs: probe.btrfs.as_deref() };
                newest = Some((measured, why))
            }
            Some(_) => {}
            None => silent = silent.or(why),
        }
    }
    match (newest, silent) {
        (Some((measured, None)), _) => Some(Ok(measured)),
        (Some((_, Some(why))), _) | (None, Some(why)) => unknown(why).map(Err),
        (None, None) => None,
    }
}
