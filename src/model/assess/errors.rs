//! Rules about drives from the errors in the kernel log. One incident is a suspicion; repeated
//! incidents are a verdict.
//!
//! The severity follows only from the recorded incidents, as of the latest of them; time only ends
//! a finding. So the same log gives the same verdict whenever it is read. BAD also needs a second kind of
//! witness, where there is one (`counters::proof`).

use std::time::Duration;

use jiff::Timestamp;

use crate::assess::counters::{of_drive, proof, shown_beside};
use crate::assess::input::{Context, DriveInput};
use crate::assess::text::{drive_name, evidence, join_limited, raised, unknown};
use crate::drive::DriveKind;
use crate::facts::KnownDrive;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Evidence, Status, Subject, Verdict};
use diskvitals_kernel_log::error_history::ErrorTally;
use diskvitals_kernel_log::event::{Blame, Class, Line};
use diskvitals_text::duration::elapsed;

/// The drive itself reported that its medium or hardware failed (SPC-6 sense keys 3 and 4, ATA UNC,
/// NVMe status code type 2). SUSPECT from one incident. BAD: a sector that failed again in another
/// attempt, `bad_sectors` distinct sectors, or `bad_episodes` episodes, within `window` of the
/// latest. Where the report is weak (an address not found, a protection tag), only `bad_timeouts`
/// episodes. What the drive or redundancy corrected does not make it BAD. Clears after
/// `quiet_after` (BAD: `bad_quiet_after`) without another, while the log was read without a gap; and
/// when an extended self-test has passed since: it reads the medium, and nothing but the medium.
pub(crate) fn media_errors(input: &DriveInput) -> Option<Verdict> {
    let tally = input.errors.and_then(|history| history.get(Class::Medium));
    if tally.is_some_and(|tally| input.smart.has_read_all_since(tally.last.time)) {
        return Some(Verdict::Clear);
    }
    let errors = &input.context.policy.errors;
    let verdict = judge(input, Class::Medium, "could not read or write its medium", |tally| {
        let episodes = tally.episodes_within(errors.window);
        // An address beyond the end, a protection tag or a target in software may cause the
        // same report. So one report is weak evidence; many are stronger.
        if !is_confirmed_by_drive(input.known, tally) && episodes < errors.bad_timeouts as usize {
            return (Severity::Suspect, None);
        }
        severity_of(input, tally)
    });
    shown_beside(verdict, of_drive(&input.smart))
}

/// A minute: errors belong to a removal, or to a failure of the controller, if they are this near.
const NEAR: Duration = Duration::from_secs(60);
/// Sectors that redundancy corrected are this much weaker evidence than sectors that were lost.
const CORRECTED_PER_LOST: u64 = 10;

/// Errors of the block layer, if no record names their cause. Levels as for media errors. SUSPECT at
/// most if another part is the likelier cause: the network to the drive, or the controller whose
/// other drives have them within a minute. Errors that an array corrected make the drive BAD at
/// ten times `bad_sectors`. Errors during the removal of a drive are reported by DriveMissing.
pub(crate) fn io_errors(input: &DriveInput) -> Option<Verdict> {
    let tally = input.errors.and_then(|history| history.get(Class::Io));
    if tally.is_some_and(|tally| coincides_with_removal(input.known, tally)) {
        return Some(Verdict::Clear);
    }
    judge(input, Class::Io, "failed reads or writes", |tally| {
        let (severity, why) = severity_of(input, tally);
        if severity == Severity::Bad && fails_with_its_neighbours(input, tally) {
            let why = "as other drives of its controller at the same time".to_owned();
            return (Severity::Suspect, Some(why));
        }
        let at_most =
            if may_be_transport(input.known, tally) { Severity::Suspect } else { severity };
        (at_most, why)
    })
}

/// Commands that timed out. SUSPECT from one incident; BAD from `bad_timeouts` episodes within
/// `window`, and never over a network.
pub(crate) fn timeouts(input: &DriveInput) -> Option<Verdict> {
    let errors = &input.context.policy.errors;
    judge(input, Class::Timeout, "did not answer commands in time", |tally| {
        let episodes = tally.episodes_within(errors.window);
        if episodes >= errors.bad_timeouts as usize && !may_be_transport(input.known, tally) {
            (Severity::Bad, Some(format!("in {episodes} episodes")))
        } else {
            (Severity::Suspect, None)
        }
    })
}

/// Resets of the drive, its link or its controller. SUSPECT at most, because a cable, a power
/// supply or an adapter can reset a good drive.
pub(crate) fn resets(input: &DriveInput) -> Option<Verdict> {
    judge(input, Class::Reset, "was reset", |_| (Severity::Suspect, None))
}

/// Transfers that were damaged on the link. SUSPECT at most, for the same reason.
pub(crate) fn link_errors(input: &DriveInput) -> Option<Verdict> {
    judge(input, Class::Transport, "had errors on its link", |_| (Severity::Suspect, None))
}

/// `rule` returns the severity and its reason.
fn judge(
    input: &DriveInput,
    class: Class,
    what: &str,
    rule: impl Fn(&ErrorTally) -> (Severity, Option<String>),
) -> Option<Verdict> {
    let Some(tally) = input.errors.and_then(|history| history.get(class)) else {
        return Some(Verdict::Clear);
    };
    let (severity, why) = rule(tally);
    let subject = Subject::Drive(input.known.facts.id.clone());
    let (severity, note) = proof(input.context, &subject, class, tally).limit(severity);
    let why = why.map(|why| format!(", {why}")).unwrap_or_default();
    let message = format!("{} {what}{why}{note}", drive_name(input.known));
    let mut verdict = raised_until_quiet(input.context, tally, severity, &message);
    if let Some(Verdict::Raised(raised)) = &mut verdict {
        raised.clears_when.push_str(match class {
            Class::Medium => {
                ", or a later check of its array or extended self-test reads all of it without an error"
            }
            Class::Io | Class::Timeout => {
                ", or a later check of its array or scrub of its btrfs reads all of it without an error"
            }
            _ => "",
        });
    }
    verdict
}

fn severity_of(input: &DriveInput, tally: &ErrorTally) -> (Severity, Option<String>) {
    let errors = &input.context.policy.errors;
    let failed_again = tally.repeatedly_failed_sector(errors.window);
    let (sectors, episodes) =
        (tally.sectors_within(errors.window), tally.episodes_within(errors.window));
    let limit = u64::from(errors.bad_sectors).saturating_mul(CORRECTED_PER_LOST);
    let (severity, why) = if tally.last_uncorrected.is_none() && sectors >= limit {
        (Severity::Bad, format!("at {sectors} distinct sectors, all of them corrected"))
    } else if tally.last_uncorrected.is_none() {
        (Severity::Suspect, "all of them corrected".to_owned())
    } else if let Some(failed) = failed_again {
        (Severity::Bad, format!("sector {} of {} failed again", failed.sector, failed.device))
    } else if sectors >= u64::from(errors.bad_sectors) {
        (Severity::Bad, format!("at {sectors} distinct sectors"))
    } else if episodes >= errors.bad_episodes as usize {
        (Severity::Bad, format!("in {episodes} episodes"))
    } else {
        return (Severity::Suspect, None);
    };
    (severity, Some(why))
}

/// A part between the drive and the host caused the error, or is the more likely cause.
fn may_be_transport(known: &KnownDrive, tally: &ErrorTally) -> bool {
    tally.blame == Blame::No || known.facts.transport.is_remote()
}

/// The last error belongs to the drive's removal: within a minute before it, or after it.
fn coincides_with_removal(known: &KnownDrive, tally: &ErrorTally) -> bool {
    let began = tally.episodes.last().copied().unwrap_or(tally.first.time);
    known.missing_since.is_some_and(|since| elapsed(began, since) <= NEAR || began >= since)
}

/// Another drive of the same PCI device had errors without a cause within a minute of this one's
/// last: the controller, its cable or its power is the likelier cause.
fn fails_with_its_neighbours(input: &DriveInput, tally: &ErrorTally) -> bool {
    let (facts, own) = (input.context.facts, &input.known.facts);
    let Some(controller) = &own.location.pci else {
        return false;
    };
    let last = tally.last.time;
    let is_near = |theirs: &ErrorTally| {
        let mut times = theirs.episodes.iter().chain([&theirs.last.time]);
        times.any(|time| elapsed(*time, last).max(elapsed(last, *time)) <= NEAR)
    };
    facts.drives.values().any(|other| {
        other.facts.id != own.id
            && other.facts.location.pci.as_ref() == Some(controller)
            && facts
                .errors(&Subject::Drive(other.facts.id.clone()))
                .and_then(|history| history.get(Class::Io))
                .is_some_and(is_near)
    })
}

/// Raised until no further error is logged for as long as this severity requires.
pub(crate) fn raised_until_quiet(
    context: Context,
    tally: &ErrorTally,
    severity: Severity,
    what: &str,
) -> Option<Verdict> {
    let quiet_period = context.policy.errors.quiet_period(severity);
    if let Some(over) = quiet_verdict(context, tally, quiet_period) {
        return over;
    }
    let message = format!("{what}: {}", summarize(context, tally));
    let (proof, clears) = (log_evidence(tally), clears_when(quiet_period));
    raised((severity, Status::Degraded), message, proof, clears, Some(tally.first.time))
}

/// The drive itself reported the error. A hypervisor's disk has no other component that could
/// report it, so each of its errors counts.
pub(crate) fn is_confirmed_by_drive(known: &KnownDrive, tally: &ErrorTally) -> bool {
    tally.blame == Blame::Yes || known.facts.kind == DriveKind::Virtual
}

/// Clear if quiet for long enough, unknown if the log has gaps; `None` while it is not over.
pub(crate) fn quiet_verdict(
    context: Context,
    tally: &ErrorTally,
    quiet_period: Duration,
) -> Option<Option<Verdict>> {
    let is_over = |since: Timestamp| elapsed(since, context.now) >= quiet_period;
    if !is_over(tally.last.time) {
        return None;
    }
    Some(match context.facts.kernel.quiet_since(tally.last.time) {
        Some(since) if is_over(since) => Some(Verdict::Clear),
        Some(_) => unknown("kernel log records were lost meanwhile"),
        None => unknown("the kernel log cannot be read"),
    })
}

/// `3 incidents (12 records) …, sectors 2048, 4096`.
pub(crate) fn summarize(context: Context, tally: &ErrorTally) -> String {
    let count = |number: u64, what: &str| match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    };
    let (incidents, records) = (count(tally.incidents, "incident"), count(tally.records, "record"));
    let more = match tally.suppressed {
        0 => String::new(),
        more => format!(", and at least {more} that the kernel did not print"),
    };
    let sectors = match tally.sectors.as_slice() {
        [] => String::new(),
        [one] => format!("; sector {} of {}", one.sector, one.device),
        sectors => {
            let others = if tally.more_sectors > 0 { " and elsewhere" } else { "" };
            format!("; sectors {}{others}", join_limited(sectors.iter().map(|one| one.sector)))
        }
    };
    format!(
        "{incidents} in {records}{more}, last at {}{sectors}",
        context.facts.wall_text(tally.last.time)
    )
}

/// The first record and the last.
pub(crate) fn log_evidence(tally: &ErrorTally) -> Vec<Evidence> {
    let record =
        |line: &Line| evidence(line.origin.witness(), line.origin.name(), line.time, &line.text);
    let mut records = vec![record(&tally.first)];
    if tally.first != tally.last {
        records.push(record(&tally.last));
    }
    records
}

pub(crate) fn clears_when(quiet_period: Duration) -> String {
    format!(
        "no such error is logged for {}, or a repair of the cause is acknowledged (`diskvitals ack --repaired`)",
        format_duration(quiet_period)
    )
}

fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "min")];
    match units.iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", seconds / unit),
        None => format!("{seconds} s"),
    }
}
