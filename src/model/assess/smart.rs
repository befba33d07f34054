//! Rules about drives from what they say of themselves: `model::smart::rules` judges a report, here
//! it is decided when a report still stands.
//!
//! An answer judges. A drive that sleeps is judged by its last answer, with its age. A question
//! that failed clears nothing and raises nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::assess::errors::name;
use crate::model::assess::text::{MAX_MESSAGE, evidence, raised, truncate, unknown};
use crate::model::facts::smart::{SmartFacts, SmartOutcome, is_physical};
use crate::model::facts::{Facts, KnownDrive};
use crate::model::finding::{Severity, Status, Verdict};
use crate::model::reason::Reason;
use crate::model::smart::report::SmartReport;
use crate::model::smart::rules::RuleHit;

/// Reasons that may come from SMART alone, or together with the kernel's log.
pub const REASONS: &[Reason] = &[
    Reason::SmartFailing,
    Reason::SmartAttributeFailing,
    Reason::SmartAttributeSuspect,
    Reason::ReallocatedSectors,
    Reason::PendingSectors,
    Reason::MediaErrors,
    Reason::IoTimeouts,
    Reason::LinkErrors,
    Reason::SpareLow,
    Reason::WornOut,
    Reason::DriveReadOnly,
    Reason::Overheating,
    Reason::SelfTestFailed,
    Reason::FirmwareNotice,
];

/// Each reason with its verdict; a reason that is not there has nothing said of it.
pub fn drive(facts: &Facts, known: &KnownDrive) -> Vec<(Reason, Option<Verdict>)> {
    if facts.smart_ignored.contains(&known.facts.id) {
        let over = [Reason::ProbeTimeout, Reason::SmartUnavailable];
        return over
            .iter()
            .chain(REASONS)
            .map(|reason| (*reason, Some(Verdict::Clear)))
            .collect();
    }
    let Some(smart) = facts.smart.get(&known.facts.id) else {
        return Vec::new();
    };
    let mut verdicts = vec![
        (Reason::ProbeTimeout, timed_out(smart, known)),
        (Reason::SmartUnavailable, unavailable(smart, known)),
    ];
    let Some((at, report)) = &smart.history.last else {
        return verdicts;
    };
    let stands = match (&smart.outcome, known.missing_since) {
        (_, Some(_)) => Err("the drive is missing".to_owned()),
        // What the store remembers stands until the drive has been asked.
        (None | Some((_, SmartOutcome::Report | SmartOutcome::Standby { .. })), None) => Ok(()),
        (
            Some((
                _,
                SmartOutcome::Failed { why }
                | SmartOutcome::TimedOut { why }
                | SmartOutcome::NotApplicable { why, .. },
            )),
            None,
        ) => Err(format!("SMART data: {why}")),
    };
    for reason in REASONS {
        let said = smart.rule_hits.iter().find(|said| said.reason == *reason);
        let verdict = match (&stands, said) {
            (Ok(()), Some(said)) => raise(said, report, *at, smart, known),
            (Ok(()), None) => Some(Verdict::Clear),
            (Err(why), Some(_)) => unknown(why),
            // The last answer had cleared it already; what the kernel's log says of it is the log's
            // to clear.
            (Err(_), None) => None,
        };
        verdicts.push((*reason, verdict));
    }
    verdicts
}

fn raise(
    said: &RuleHit,
    report: &SmartReport,
    at: Timestamp,
    smart: &SmartFacts,
    known: &KnownDrive,
) -> Option<Verdict> {
    // A moment and not an age: a message that moves with the clock would be news for ever.
    let asleep = match &smart.outcome {
        Some((_, SmartOutcome::Standby { .. })) => {
            format!(" (as of {at}; it sleeps, and is left asleep)")
        }
        _ => String::new(),
    };
    let source = format!(
        "smartctl {}.{} of {}",
        report.smartctl[0], report.smartctl[1], report.identity.device
    );
    let proof = said
        .evidence
        .iter()
        .map(|line| evidence(&source, at, line))
        .collect();
    let message = format!("{}: {}{asleep}", name(known), said.message);
    raised(
        said.severity,
        said.status,
        message,
        proof,
        "the drive answers and no longer says so, or it is replaced",
        None,
    )
}

/// The drive has not answered in its time: whoever uses it waits as well. Clears with its next
/// answer, whatever that says.
fn timed_out(smart: &SmartFacts, known: &KnownDrive) -> Option<Verdict> {
    let (since, text) = match (&smart.stuck, &smart.outcome) {
        (Some(stuck), _) => {
            let place = stuck
                .waiting_in
                .as_ref()
                .map(|place| format!(", waiting in {place}"))
                .unwrap_or_default();
            (
                stuck.since,
                format!(
                    "smartctl has not returned since {} and cannot be killed{place}",
                    stuck.since
                ),
            )
        }
        (None, Some((at, SmartOutcome::TimedOut { why }))) => (*at, why.clone()),
        // An answer, were it that it sleeps.
        (
            None,
            Some((
                _,
                SmartOutcome::Report
                | SmartOutcome::Standby { .. }
                | SmartOutcome::NotApplicable { .. },
            )),
        ) => return Some(Verdict::Clear),
        (None, Some((_, SmartOutcome::Failed { why }))) => return unknown(why),
        (None, None) => return None,
    };
    let message = format!(
        "{} does not answer when it is asked for its SMART data: {text}",
        name(known)
    );
    raised(
        Severity::Suspect,
        Status::Degraded,
        message,
        vec![evidence("smartctl", since, &text)],
        "it answers",
        Some(since),
    )
}

/// Information only, and only where people expect SMART: on a drive of platters or flash.
fn unavailable(smart: &SmartFacts, known: &KnownDrive) -> Option<Verdict> {
    match &smart.outcome {
        Some((at, SmartOutcome::NotApplicable { why, hint })) if is_physical(&known.facts) => {
            let hint = hint
                .as_ref()
                .map(|hint| format!("; {hint}"))
                .unwrap_or_default();
            let message = format!("{} does not tell of its health: {why}{hint}", name(known));
            raised(
                Severity::Info,
                Status::Information,
                message,
                vec![evidence("smartctl", *at, why)],
                "the drive answers",
                None,
            )
        }
        Some((_, SmartOutcome::Report | SmartOutcome::NotApplicable { .. })) => {
            Some(Verdict::Clear)
        }
        Some((
            _,
            SmartOutcome::Standby { .. }
            | SmartOutcome::Failed { .. }
            | SmartOutcome::TimedOut { .. },
        ))
        | None => None,
    }
}

/// Why the drive's health cannot be told; None where it answered, sleeps, has no SMART, or was not
/// asked yet.
pub fn health_unknown(facts: &Facts, known: &KnownDrive) -> Option<String> {
    // Its controller is asked for all its drives before any of them is asked.
    if let Some((controller, why)) = known
        .facts
        .location
        .raid_controller
        .as_ref()
        .and_then(|controller| facts.controller_errors.get_key_value(controller))
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

/// What repeats on the link is the link's: a drive whose interface counts damaged transfers has
/// commands time out and fail for that reason, and is not bad for it.
pub fn downgrade_for_link_errors(
    verdicts: &mut BTreeMap<Reason, Option<Verdict>>,
    smart: &SmartFacts,
) {
    if !smart
        .rule_hits
        .iter()
        .any(|said| said.reason == Reason::LinkErrors && said.severity > Severity::Info)
    {
        return;
    }
    for reason in [Reason::IoTimeouts, Reason::IoErrors] {
        if let Some(Some(Verdict::Raised(raised))) = verdicts.get_mut(&reason)
            && raised.severity == Severity::Bad
        {
            raised.severity = Severity::Suspect;
            raised.message = truncate(
                &format!(
                    "{}; its link is the likelier cause (LinkErrors)",
                    raised.message
                ),
                MAX_MESSAGE,
            );
        }
    }
}

/// Two witnesses of one thing: the worse word counts, and both are heard. The thing is over when
/// neither says it.
pub fn combine(one: Option<Verdict>, other: Option<Verdict>) -> Option<Verdict> {
    match (one, other) {
        (None, verdict) | (verdict, None) => verdict,
        (Some(Verdict::Raised(a)), Some(Verdict::Raised(b))) => {
            let (mut strong, weak) = if (b.severity, b.status) > (a.severity, a.status) {
                (b, a)
            } else {
                (a, b)
            };
            strong.status = strong.status.max(weak.status);
            strong.message = truncate(
                &format!("{}; {}", strong.message, weak.message),
                MAX_MESSAGE,
            );
            strong.evidence.extend(weak.evidence);
            if strong.clears_when != weak.clears_when {
                strong.clears_when = format!("{}; and {}", strong.clears_when, weak.clears_when);
            }
            strong.since = [strong.since, weak.since].into_iter().flatten().min();
            Some(Verdict::Raised(strong))
        }
        (Some(raised @ Verdict::Raised(_)), Some(_))
        | (Some(_), Some(raised @ Verdict::Raised(_))) => Some(raised),
        (Some(unknown @ Verdict::Unknown { .. }), Some(_))
        | (Some(_), Some(unknown @ Verdict::Unknown { .. })) => Some(unknown),
        (Some(Verdict::Clear), Some(Verdict::Clear)) => Some(Verdict::Clear),
    }
}
