//! Rules about drives from their SMART reports: `smart::rules` judges a report, this module
//! decides whether a report still counts.
//!
//! A drive is judged by its response. A sleeping drive is judged by its last response, with its
//! age. A failed query clears nothing and raises nothing.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::assess::text::{INFO, MAX_MESSAGE, SUSPECT, drive_name, evidence, raised, unknown};
use crate::facts::smart::{SmartFacts, SmartOutcome, is_physical};
use crate::facts::{Facts, KnownDrive};
use crate::source_update::SourceStatus;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::{UnknownCause, UnknownHealth, Verdict, WitnessKind};
use diskvitals_smart::history::{Metric, Point};
use diskvitals_smart::policy::SmartPolicy;
use diskvitals_smart::report::SmartReport;
use diskvitals_smart::rules::{self, RULES, RuleHit, self_tests};
use diskvitals_text::duration::elapsed;
use diskvitals_text::echo::truncate;

/// A test that is older says nothing about an error that the kernel log still has.
const MAX_AGE_HOURS: i64 = 24 * 366;

/// One drive with the meaning of its last report.
pub(crate) enum SmartAssessment<'a> {
    /// The configuration excludes the drive: no finding about it comes from SMART.
    Ignored,
    /// The drive has never been queried.
    NeverAsked,
    Asked {
        facts: &'a Facts,
        known: &'a KnownDrive,
        smart: &'a SmartFacts,
        hits: Vec<RuleHit>,
        /// The configuration ignores the drive's self-tests.
        ignores_self_tests: bool,
        /// Why the last report may no longer be true of the drive; None: it is true.
        outdated: Option<String>,
    },
}

impl<'a> SmartAssessment<'a> {
    pub(crate) fn new(facts: &'a Facts, known: &'a KnownDrive, policy: &SmartPolicy) -> Self {
        if facts.smart.is_ignored(&known.facts.id) {
            return SmartAssessment::Ignored;
        }
        let Some(smart) = facts.smart.get(&known.facts.id) else {
            return SmartAssessment::NeverAsked;
        };
        let hits = match &smart.history.last {
            Some((_, report)) => rules::evaluate(report, Some(&smart.history), policy),
            None => Vec::new(),
        };
        let ignores_self_tests = smart.history.last.as_ref().is_some_and(|(_, report)| {
            let identity = &report.identity;
            let (model, serial) = (identity.model.as_deref(), identity.serial.as_deref());
            let ignored = policy.for_drive(model, serial).ignore_reasons;
            ignored.contains(&Reason::SelfTestFailed)
        });
        let outdated = match &smart.outcome {
            _ if known.missing_since.is_some() => Some("the drive is missing".to_owned()),
            // A report from the store counts until the drive has been queried.
            None | Some((_, SmartOutcome::Report | SmartOutcome::Standby { .. })) => None,
            Some((
                _,
                SmartOutcome::Failed { why }
                | SmartOutcome::TimedOut { why }
                | SmartOutcome::NotApplicable { why, .. },
            )) => Some(format!("SMART data: {why}")),
        };
        SmartAssessment::Asked { facts, known, smart, hits, ignores_self_tests, outdated }
    }

    /// The last report, or why it may no longer be true. None: there is none, or it is not to count.
    pub(crate) fn report(&self) -> Option<Result<(Timestamp, &SmartReport), &str>> {
        let SmartAssessment::Asked { smart, outdated, .. } = self else {
            return None;
        };
        let (at, report) = smart.history.last.as_ref()?;
        Some(match outdated {
            None => Ok((*at, report)),
            Some(why) => Err(why),
        })
    }

    /// The verdict of the last report on one reason; None if SMART has no rule for it.
    pub(crate) fn verdict(&self, reason: Reason) -> Option<Verdict> {
        if !RULES.iter().any(|rule| rule.reason == reason) {
            return None;
        }
        let (facts, known, smart, hits, ignores_self_tests, outdated) = match self {
            SmartAssessment::Ignored => return Some(Verdict::Clear),
            SmartAssessment::NeverAsked => return None,
            SmartAssessment::Asked { facts, known, smart, hits, ignores_self_tests, outdated } => {
                (facts, known, smart, hits, *ignores_self_tests, outdated)
            }
        };
        let (at, report) = smart.history.last.as_ref()?;
        match (outdated, hits.iter().find(|hit| hit.reason == reason)) {
            (None, Some(hit)) => raise(hit, report, *at, smart, known, facts),
            // A failed test that has only left the drive's log has not passed.
            (None, None)
                if reason == Reason::SelfTestFailed
                    && !ignores_self_tests
                    && !self_tests::has_passed(report) =>
            {
                unknown("no extended self-test has passed since")
            }
            (None, None) => Some(Verdict::Clear),
            (Some(why), Some(_)) => unknown(why),
            // The last report had cleared it already. A finding from the kernel log is cleared by
            // the log.
            (Some(_), None) => None,
        }
    }

    /// The drive's last count of media errors with the time when it was first read, and its source;
    /// None while a finding quotes it, or where the last report may no longer be true.
    pub(crate) fn media_errors(&self) -> Option<(String, Point)> {
        let SmartAssessment::Asked { smart, hits, outdated: None, .. } = self else {
            return None;
        };
        let points = &smart.history.series.get(&Metric::MediaErrors)?.points;
        let value = points.last()?.value;
        let first = points.iter().rev().take_while(|point| point.value == value).last()?;
        let is_quoted = hits.iter().any(|hit| hit.reason == Reason::MediaErrors);
        let (_, report) = smart.history.last.as_ref()?;
        (!is_quoted).then(|| (source(report), *first))
    }

    /// Whether an extended self-test that began after `since` has passed. Its log has power-on hours,
    /// rounded: they are hours of the clock only while the host has been running.
    pub(crate) fn has_read_all_since(&self, since: Timestamp) -> bool {
        const ROUNDING: u64 = 2;
        let SmartAssessment::Asked { facts, smart, outdated: None, .. } = self else {
            return false;
        };
        if facts.booted.is_none_or(|booted| booted > since) {
            return false;
        }
        let Some((at, report)) = &smart.history.last else {
            return false;
        };
        let tests = &report.self_tests;
        let passed = tests.log.iter().find(|test| self_tests::is_whole(test));
        let age = passed.and_then(|test| report.power_on_hours?.checked_sub(test.hours?));
        let (Some(age), Some(minutes)) = (age, tests.long_minutes) else {
            return false;
        };
        let read_in = u64::from(minutes).div_ceil(60);
        let hours = age.saturating_add(read_in).saturating_add(ROUNDING);
        let is_newer = |hours: i64| at.duration_since(since) > SignedDuration::from_hours(hours);
        i64::try_from(hours).is_ok_and(|hours| hours < MAX_AGE_HOURS && is_newer(hours))
    }

    /// The drive did not respond to smartctl in time.
    pub(crate) fn timed_out(&self) -> Option<Verdict> {
        match self {
            SmartAssessment::Ignored => Some(Verdict::Clear),
            SmartAssessment::NeverAsked => None,
            SmartAssessment::Asked { facts, known, smart, .. } => timed_out(smart, known, facts),
        }
    }

    /// The drive has no SMART data, or keeps it switched off.
    pub(crate) fn unavailable(&self) -> Option<Verdict> {
        match self {
            SmartAssessment::Ignored => Some(Verdict::Clear),
            SmartAssessment::NeverAsked => None,
            SmartAssessment::Asked { known, smart, .. } => unavailable(smart, known),
        }
    }

    /// If a drive's interface counts damaged transfers, its commands fail and time out for that
    /// reason: these errors make the drive SUSPECT at most.
    pub(crate) fn blame_link(&self, verdict: Option<Verdict>) -> Option<Verdict> {
        let SmartAssessment::Asked { hits, .. } = self else {
            return verdict;
        };
        let is_link =
            |hit: &RuleHit| hit.reason == Reason::LinkErrors && hit.severity > Severity::Info;
        match verdict {
            Some(Verdict::Raised(mut raised))
                if raised.severity == Severity::Bad && hits.iter().any(is_link) =>
            {
                raised.severity = Severity::Suspect;
                raised.message.push_str("; its link is the likelier cause (LinkErrors)");
                raised.message = truncate(&raised.message, MAX_MESSAGE);
                Some(Verdict::Raised(raised))
            }
            verdict => verdict,
        }
    }
}

fn raise(
    hit: &RuleHit,
    report: &SmartReport,
    at: Timestamp,
    smart: &SmartFacts,
    known: &KnownDrive,
    facts: &Facts,
) -> Option<Verdict> {
    // A fixed time and not an age: a message with an age would change at each assessment.
    let asleep = match &smart.outcome {
        Some((_, SmartOutcome::Standby { .. })) => {
            let at = facts.wall_text(at);
            format!(" (as of {at}; the drive is in standby and is not woken)")
        }
        _ => String::new(),
    };
    let source = source(report);
    let proof =
        hit.evidence.iter().map(|line| evidence(WitnessKind::Smart, &source, at, line)).collect();
    let message = format!("{}: {}{asleep}", drive_name(known), hit.message);
    let clears = hit.clears.join("; and ");
    raised((hit.severity, hit.status), message, proof, clears, None)
}

pub(crate) fn source(report: &SmartReport) -> String {
    let [major, minor] = report.smartctl;
    format!("smartctl {major}.{minor} of {}", report.identity.device)
}

/// The drive has not responded in time, so its users wait too. Clears with its next response,
/// whatever it contains.
fn timed_out(smart: &SmartFacts, known: &KnownDrive, facts: &Facts) -> Option<Verdict> {
    let (since, text) = match (&smart.stuck, &smart.outcome) {
        (Some(stuck), _) => {
            let function = stuck.waiting_in.as_ref();
            let waiting = function.map(|function| format!(", waiting in {function}"));
            let text = format!(
                "smartctl has not returned since {} and cannot be killed{}",
                facts.wall_text(stuck.since),
                waiting.unwrap_or_default()
            );
            (stuck.since, text)
        }
        (None, Some((at, SmartOutcome::TimedOut { why }))) => (*at, why.clone()),
        (None, Some((_, SmartOutcome::Failed { why }))) => return unknown(why),
        // Any response clears it, standby too.
        (None, Some(_)) => return Some(Verdict::Clear),
        (None, None) => return None,
    };
    let message = format!("{} does not answer smartctl: {text}", drive_name(known));
    let proof = vec![evidence(WitnessKind::Smart, "smartctl", since, &text)];
    raised(SUSPECT, message, proof, "it answers", Some(since))
}

/// INFO only, and only on drives with expected SMART support: disks and flash.
fn unavailable(smart: &SmartFacts, known: &KnownDrive) -> Option<Verdict> {
    match &smart.outcome {
        Some((at, SmartOutcome::NotApplicable { why, hint, .. })) if is_physical(&known.facts) => {
            let hint = hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            let message = format!("{} does not report its health: {why}{hint}", drive_name(known));
            let proof = vec![evidence(WitnessKind::Smart, "smartctl", *at, why)];
            raised(INFO, message, proof, "the drive answers", None)
        }
        Some((_, SmartOutcome::Report | SmartOutcome::NotApplicable { .. })) => {
            Some(Verdict::Clear)
        }
        _ => None,
    }
}

/// Why the last query of the drive, or the list of its RAID controller, failed.
pub(crate) fn query_failure(facts: &Facts, known: &KnownDrive) -> Option<String> {
    // Its controller lists all its drives before any of them is queried.
    let controller = known.facts.location.raid_controller.as_ref();
    if let Some((controller, why)) =
        controller.and_then(|name| facts.raid_controllers.error_of(name))
    {
        return Some(format!("{controller} does not list its drives: {why}"));
    }
    match &facts.smart.get(&known.facts.id)?.outcome {
        Some((_, SmartOutcome::Failed { why } | SmartOutcome::TimedOut { why }))
            if known.missing_since.is_none() =>
        {
            Some(format!("SMART: {why}"))
        }
        _ => None,
    }
}

/// What a drive has answered to smartctl.
pub(crate) enum Answer {
    /// A report that still counts, of this run or of an earlier one.
    Received,
    Outstanding(UnknownHealth),
    /// There is none to wait for: the drive has no SMART data, or the configuration excludes it.
    None,
}

/// `valid`: for how long a report of a drive that is awake counts.
pub(crate) fn answer(facts: &Facts, known: &KnownDrive, valid: Duration, now: Timestamp) -> Answer {
    let drive = &known.facts;
    let smart = facts.smart.get(&drive.id);
    let outcome = smart.and_then(|smart| smart.outcome.as_ref());
    let asleep_at = match outcome {
        Some((at, SmartOutcome::Standby { .. })) => Some(*at),
        _ => None,
    };
    if let Some((at, report)) = smart.and_then(|smart| smart.history.last.as_ref()) {
        // A drive that sleeps, or is left alone so that it can, is judged by its last report, however old.
        let counts_from = [asleep_at, facts.smart.last_left_alone(&drive.id)]
            .into_iter()
            .flatten()
            .fold(*at, Timestamp::max);
        let is_old = !drive.asleep && elapsed(counts_from, now) > valid;
        return if is_old && facts.is_queried(drive) {
            Answer::Outstanding(too_old(facts, *at, outcome.is_none()))
        } else if report.has_only_logs() {
            Answer::Outstanding(UnknownHealth::failed(
                "SMART: the drive's logs can be read, but neither its verdict nor its counters",
            ))
        } else {
            Answer::Received
        };
    }
    let standby = |mode: &str| {
        Answer::Outstanding(UnknownHealth {
            cause: UnknownCause::Asleep,
            why: format!(
                "SMART: the drive is in standby ({mode}) and is not woken; it has not answered yet"
            ),
        })
    };
    match outcome.map(|(_, outcome)| outcome) {
        Some(SmartOutcome::NotApplicable { why, hint, said_so }) => {
            if *said_so || !facts.expects_smart(drive) {
                return Answer::None;
            }
            let hint = hint.as_ref().map(|hint| format!("; {hint}"));
            let why = format!("SMART: {why}{}", hint.unwrap_or_default());
            return Answer::Outstanding(UnknownHealth::no_smart(why));
        }
        Some(SmartOutcome::Standby { mode }) => return standby(mode),
        // A failure is `query_failure`; a report is in the history.
        _ => {}
    }
    if !facts.expects_smart(drive) {
        return Answer::None;
    }
    match facts.sources.status(Source::Smart) {
        _ if drive.asleep => standby("runtime-suspended"),
        Some(SourceStatus::Down(why)) => Answer::Outstanding(no_smartctl(why)),
        _ => Answer::Outstanding(UnknownHealth::pending("SMART: not queried yet")),
    }
}

fn no_smartctl(why: &str) -> UnknownHealth {
    UnknownHealth::no_smart(format!("SMART: {why}"))
}

/// `at`: when the drive last answered.
fn too_old(facts: &Facts, at: Timestamp, is_first_outstanding: bool) -> UnknownHealth {
    let at = facts.wall_text(at);
    match facts.sources.status(Source::Smart) {
        Some(SourceStatus::Down(why)) => no_smartctl(why),
        _ if is_first_outstanding => UnknownHealth::pending(format!(
            "SMART: the last answer is from {at}; not queried yet since the start"
        )),
        _ => UnknownHealth::no_smart(format!("SMART: the last answer is from {at}")),
    }
}
