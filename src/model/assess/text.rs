//! Wording shared by the rules: bounded messages, evidence, amounts.

use jiff::{SignedDuration, Timestamp};

use crate::facts::KnownDrive;
use crate::volume::VolumeFacts;
use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Evidence, FindingDetails, Status, Verdict, WitnessKind};
use diskvitals_text::echo::truncate;

/// CSI's limit; a longer message would stop updates of a pod's status.
pub(crate) const MAX_MESSAGE: usize = 1024;
/// Evidence is verbatim but bounded: a status line of a thousand paths proves no more.
const MAX_EVIDENCE_TEXT: usize = 4096;

/// The severity of a finding, and its meaning for the data.
pub(crate) type Level = (Severity, Status);

pub(crate) const INFO: Level = (Severity::Info, Status::Information);
pub(crate) const SUSPECT: Level = (Severity::Suspect, Status::Degraded);
pub(crate) const BAD: Level = (Severity::Bad, Status::Degraded);
pub(crate) const INACCESSIBLE: Level = (Severity::Bad, Status::Inaccessible);
pub(crate) const DATA_LOSS: Level = (Severity::Bad, Status::DataLoss);

pub(crate) fn raised(
    (severity, status): Level,
    message: impl AsRef<str>,
    evidence: Vec<Evidence>,
    clears_when: impl Into<String>,
    since: Option<Timestamp>,
) -> Option<Verdict> {
    Some(Verdict::Raised(FindingDetails {
        severity,
        status,
        message: truncate(message.as_ref(), MAX_MESSAGE),
        evidence,
        clears_when: clears_when.into(),
        advice: None,
        since,
        of_drive_failure: false,
    }))
}

/// The advice while something runs that ends without help.
pub(crate) fn wait_until_ended(what: &str) -> String {
    format!("{what}: wait until that has ended, and do not pull any of its drives.")
}

pub(crate) fn unknown(why: impl AsRef<str>) -> Option<Verdict> {
    Some(Verdict::Unknown { why: truncate(why.as_ref(), MAX_MESSAGE) })
}

/// `witness`: the source that the text is from. Whether it still holds is decided for all rules in
/// one place (`Evaluator::push`).
pub(crate) fn evidence(
    witness: WitnessKind,
    source: impl Into<String>,
    time: Timestamp,
    text: impl AsRef<str>,
) -> Evidence {
    Evidence {
        source: source.into(),
        time,
        text: truncate(text.as_ref(), MAX_EVIDENCE_TEXT),
        witness,
        present: false,
    }
}

pub(crate) const MOUNTINFO: &str = "/proc/1/mountinfo";

/// The line as the kernel prints it, with `…` for its optional fields (fs/proc_namespace.c escapes
/// space, tab, newline and backslash).
pub(crate) fn mount_line(mount: &Mount) -> String {
    format!(
        "{} {} {} {} {} {} … - {} {} {}",
        mount.id,
        mount.parent,
        mount.dev,
        escaped(&mount.root),
        escaped(&mount.mount_point),
        mount.options.join(","),
        mount.fs_type,
        escaped(&mount.source),
        mount.super_options.join(","),
    )
}

fn escaped(path: &HostPath) -> String {
    path.to_string().replace(' ', "\\040")
}

/// `part` in percent of `whole`, rounded down; None if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> Option<u64> {
    (whole > 0).then(|| (u128::from(part) * 100 / u128::from(whole)) as u64)
}

/// `3 days`, `5 hours`, `less than an hour`: rounded, for forecasts.
pub(crate) fn format_span(span: SignedDuration) -> String {
    let hours = (span.as_mins() + 30) / 60;
    match hours {
        ..=0 => "less than an hour".to_owned(),
        1 => "1 hour".to_owned(),
        2..=47 => format!("{hours} hours"),
        _ => format!("{} days", (hours + 12) / 24),
    }
}

/// `12 %`, `less than 1 %`.
pub(crate) fn format_share(part: u64, percent: u64) -> String {
    match percent {
        0 if part > 0 => "less than 1 %".to_owned(),
        percent => format!("{percent} %"),
    }
}

/// The first few items, and the number of the others.
pub(crate) fn join_limited<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.len() {
        0..=5 => items.join(", "),
        n => format!("{} and {} more", items[..5].join(", "), n - 5),
    }
}

/// The drive's name in messages; a missing drive has no kernel name.
pub(crate) fn drive_name(known: &KnownDrive) -> String {
    match known.missing_since {
        None => format!("drive {} ({})", known.facts.id, known.facts.name),
        Some(_) => format!("drive {}", known.facts.id),
    }
}

pub(crate) fn volume_name(volume: &VolumeFacts) -> String {
    let mounted = volume.mounts.first().map(|mount| format!(" mounted at {}", mount.path));
    let (kind, device) = (volume.filesystem_name(), volume.device_name());
    format!("the {kind} on {device}{}", mounted.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nothing_is_none_and_a_huge_one_does_not_overflow() {
        assert_eq!(
            (percent(1, 3), percent(1, 0), percent(u64::MAX, u64::MAX)),
            (Some(33), None, Some(100))
        );
    }
}
