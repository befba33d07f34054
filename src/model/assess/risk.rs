//! What a volume's redundancy still tolerates, in one sentence; and the rule about members that are
//! about to use it up.
//!
//! In: how the volume depends on its drives (`Stack`, of any kind of array or pool), and the findings
//! of the drives. What an array lacks already, `redundancy` says.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::assess::drive::clear_if_scanned;
use crate::assess::health::health_unknown;
use crate::assess::input::{Context, VolumeInput};
use crate::assess::raid_volume;
use crate::assess::scrub::ScrubKind;
use crate::assess::text::{SUSPECT, evidence, format_span, join_limited, raised, unknown};
use crate::assess::{ActiveFinding, DriveFailure, endangers_data};
use crate::cause::figures::metrics;
use crate::facts::{Facts, KnownDrive, repairs};
use crate::label;
use crate::stack::{self, action_text, progress_text};
use crate::volume::{Impact, Stack, VolumeFacts};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Subject, UnknownCause, Verdict, WitnessKind};

/// How long a finding of a drive is new, and the growth of its counters recent. Our choice: a month
/// contains one check of each array where distributions schedule them.
const RECENT: SignedDuration = SignedDuration::from_hours(30 * 24);
/// From when on it is said how long an array has not been read: distributions check each once a month.
const OLD_CHECK: SignedDuration = SignedDuration::from_hours(45 * 24);
const YEAR_HOURS: u64 = 8766;
/// Five years: what manufacturers state as the service life of drives, or warrant them for.
const DESIGNED_YEARS: u64 = 5;
/// Serial numbers that differ in no more of their last characters are neighbors.
const BATCH_DIGITS: usize = 3;

/// Members of the volume's redundancy have findings that endanger data (`Reason::endangers_data_at`)
/// and that are new or have grown within 30 days, and leave no further member that may fail. Source:
/// this node's judgement of its drives, and the layers between. SUSPECT. Wear, age and unknown health
/// never raise it. Clears when a member may fail again, when nothing is new or has grown for 30 days,
/// and while redundancy is lost already: RedundancyLost says that.
pub(crate) fn redundancy_at_risk(input: &VolumeInput) -> Option<Verdict> {
    let volume = &input.known.facts;
    let outlook = Outlook { context: input.context, drives: input.drive_findings };
    outlook.verdict(&volume.stack, &volume.devices, input.has_last_copy)
}

/// The same of an array or a pool that carries no volume.
pub(super) fn of_device(outlook: &Outlook, name: &String, has_last_copy: bool) -> Option<Verdict> {
    let facts = outlook.context.facts;
    let mut below = facts.inventory()?.drives_below(name).into_iter();
    match below.any(|id| outlook.is_used_up(id)) {
        true => {
            outlook.verdict(&facts.device_stack(name)?, std::slice::from_ref(name), has_last_copy)
        }
        false => clear_if_scanned(facts),
    }
}

/// Adds a finding of a drive to those that it has.
pub(super) fn add(
    failing: &mut BTreeMap<DriveId, DriveFailure>,
    context: Context,
    id: &DriveId,
    reason: Reason,
    ActiveFinding { level, since }: ActiveFinding,
    message: &str,
) {
    let entry = failing.entry(id.clone()).or_insert(DriveFailure {
        reasons: Vec::new(),
        level,
        message: message.to_owned(),
        endangers_recently: false,
        has_left: false,
    });
    if !entry.reasons.contains(&reason) {
        entry.reasons.push(reason);
    }
    if level > entry.level {
        (entry.level, entry.message) = (level, message.to_owned());
    }
    entry.has_left |= reason.leaves_array();
    entry.endangers_recently |=
        endangers_data(reason, level.0) && is_recent(context, id, reason, since);
}

/// Whether a finding of a drive is new, or what it rests on has grown: its counters, its errors in the
/// kernel log.
fn is_recent(context: Context, id: &DriveId, reason: Reason, since: Timestamp) -> bool {
    let Context { facts, now, .. } = context;
    let within = |at: Timestamp| now.duration_since(at) <= RECENT;
    let has_grown = || {
        let series = &facts.smart.get(id)?.history.series;
        let (metrics, _) = metrics(reason.figure()?);
        let growth = metrics.iter().filter_map(|metric| series.get(metric)?.growth(RECENT));
        growth.map(|growth| growth.last).max()
    };
    let last_error = || {
        let subject = Subject::Drive(id.clone());
        let errors = facts.errors(&subject)?;
        let classes = repairs::classes(&subject, reason).iter();
        classes.filter_map(|class| Some(errors.get(*class)?.last.time)).max()
    };
    within(since) || has_grown().is_some_and(within) || last_error().is_some_and(within)
}

/// The findings of drives that are not only information.
pub(crate) fn drive_findings<'a>(
    context: Context,
    findings: impl Iterator<Item = &'a Finding>,
) -> BTreeMap<DriveId, DriveFailure> {
    let mut drives = BTreeMap::new();
    for finding in findings.filter(|finding| finding.severity > Severity::Info) {
        if let Subject::Drive(id) = &finding.subject {
            let level = (finding.severity, finding.status);
            let active = ActiveFinding { level, since: finding.since };
            add(&mut drives, context, id, finding.reason, active, &finding.message);
        }
    }
    drives
}

/// The drives below volumes with redundancy.
pub(crate) struct Outlook<'a> {
    pub context: Context<'a>,
    /// Their findings that are not only information.
    pub drives: &'a BTreeMap<DriveId, DriveFailure>,
}

impl Outlook<'_> {
    fn known(&self, id: &DriveId) -> Option<&KnownDrive> {
        self.context.facts.drives.get(id)
    }

    fn is_gone(&self, id: &DriveId) -> bool {
        self.drives.get(id).is_some_and(|failure| failure.has_left)
            || self.known(id).is_some_and(|known| known.missing_since.is_some())
    }

    fn is_used_up(&self, id: &DriveId) -> bool {
        self.is_gone(id) || self.drives.get(id).is_some_and(|failure| failure.endangers_recently)
    }

    fn verdict(&self, stack: &Stack, devices: &[String], has_last_copy: bool) -> Option<Verdict> {
        let Context { facts, now, .. } = self.context;
        if stack.is_undetermined() {
            return unknown("which members hold the same data is not known");
        }
        let now_left = stack.margin(&|id| self.is_gone(id));
        let left = stack.margin(&|id| self.is_used_up(id));
        if has_last_copy || now_left < Some(2) || left.is_none_or(|left| left > 1) {
            return clear_if_scanned(facts);
        }
        let sentence = self.sentence(stack, devices)?;
        let below: BTreeSet<&DriveId> = stack.drives().into_iter().collect();
        let failures = below.iter().filter_map(|id| self.drives.get_key_value(*id));
        let used_up = failures.filter(|(_, failure)| failure.endangers_recently);
        let at = facts.inventory.at().unwrap_or(now);
        let proof = used_up.take(4).map(|(id, failure)| {
            evidence(WitnessKind::Other, format!("findings of drive {id}"), at, &failure.message)
        });
        let clears = "one more member may fail, or no such finding of the members is new or has grown within 30 days";
        raised(SUSPECT, sentence, proof.collect(), clears, None)
    }

    /// What may still fail, which members count no more and why, what is to be known of the others, and
    /// what runs. None: there is no redundancy but that of a RAID controller, which rebuilds nothing.
    pub(crate) fn sentence(&self, stack: &Stack, devices: &[String]) -> Option<String> {
        let below = stack.drives().into_iter().filter_map(|id| self.known(id));
        let rebuilds = below.filter_map(|known| raid_volume::rebuild_of(self.context, known));
        let rebuilds: Vec<String> = rebuilds.collect();
        let Some(Stack::Redundant { level, tolerates, parts }) = self.weakest(stack) else {
            return (!rebuilds.is_empty()).then(|| rebuilds.join("; "));
        };
        let is_lost = |part: &&Stack| part.impact(&|id| self.is_used_up(id)) == Impact::Exposed;
        let (lost, others): (Vec<&Stack>, Vec<&Stack>) = parts.iter().partition(is_lost);
        let unit = match tolerates + 1 == parts.len() {
            true => "copies",
            false => "members",
        };
        let all = parts.len();
        let mut clauses = vec![match lost.len() {
            0 if *tolerates == 0 => format!("none of the {all} {unit} of {level} may fail"),
            0 => format!("{tolerates} of the {all} {unit} of {level} may fail"),
            lost_count => {
                let drives = lost.iter().flat_map(|part| part.drives());
                let names = join_limited(
                    drives.filter(|id| self.is_used_up(id)).map(|id| self.with_reasons(id)),
                );
                let verb = if lost_count == 1 { "is" } else { "are" };
                let left = match tolerates.saturating_sub(lost_count) {
                    0 => "no other may fail".to_owned(),
                    left => format!("{left} more may fail"),
                };
                format!("{lost_count} of the {all} {unit} of {level} {verb} on {names}; {left}")
            }
        }];
        let noted = others.iter().flat_map(|part| part.drives());
        let noted: Vec<String> = noted.filter_map(|id| self.note(id)).collect();
        clauses.extend((!noted.is_empty()).then(|| join_limited(noted)));
        let arrays = devices.iter().filter_map(|name| of_array(self.context, name));
        clauses.extend(arrays.chain(rebuilds));
        Some(clauses.join("; "))
    }

    /// Drives that are likely to fail at the same time, as advice: members of one model whose serial
    /// numbers differ in their last digits only.
    pub(crate) fn batch(&self, volume: &VolumeFacts) -> Option<String> {
        let Stack::Redundant { parts, .. } = self.weakest(&volume.stack)? else {
            return None;
        };
        let mut batches: BTreeMap<(&str, &str), Vec<&DriveId>> = BTreeMap::new();
        for id in parts.iter().flat_map(Stack::drives) {
            if let Some(facts) = self.known(id).map(|known| &known.facts)
                && let (Some(model), Some(serial)) = (&facts.model, &facts.serial)
                && let Some(start) = serial.trim().len().checked_sub(BATCH_DIGITS)
                && let Some(prefix) = serial.trim().get(..start)
                && prefix.len() >= BATCH_DIGITS
            {
                batches.entry((model.trim(), prefix)).or_default().push(id);
            }
        }
        let (_, drives) = batches.into_iter().find(|(_, drives)| drives.len() > 1)?;
        let names = join_limited(drives.iter().map(|id| self.name(id)));
        Some(format!(
            "{names} seem to be of one batch (neighboring serial numbers): let their successors be of different ones"
        ))
    }

    /// The redundancy that the fewest failures use up.
    fn weakest<'s>(&self, stack: &'s Stack) -> Option<&'s Stack> {
        match stack {
            Stack::Nothing | Stack::Drive(_) | Stack::Undetermined { .. } => None,
            Stack::Redundant { .. } => Some(stack),
            Stack::All(parts) => {
                let margin = |part: &Stack| part.margin(&|id| self.is_used_up(id));
                let parts = parts.iter().filter_map(|part| Some((margin(part)?, part)));
                let (_, weakest) = parts.min_by_key(|(margin, _)| *margin)?;
                self.weakest(weakest)
            }
        }
    }

    fn name(&self, id: &DriveId) -> String {
        match self.known(id) {
            Some(known) if known.missing_since.is_none() => known.facts.name.clone(),
            _ => id.to_string(),
        }
    }

    /// `sda (PendingSectors)`.
    fn with_reasons(&self, id: &DriveId) -> String {
        match self.drives.get(id) {
            Some(failure) => format!("{} ({})", self.name(id), join_limited(&failure.reasons)),
            None => self.name(id),
        }
    }

    /// `sdb (WornOut, in use for 6 years)`; None if nothing is to be said of it.
    fn note(&self, id: &DriveId) -> Option<String> {
        let Context { facts, policy, now } = self.context;
        let reasons = self.drives.get(id).into_iter().flat_map(|failure| &failure.reasons);
        let mut notes: Vec<String> = reasons.map(ToString::to_string).collect();
        let unknown = health_unknown(facts, &Subject::Drive(id.clone()), policy, now);
        // A first answer comes within moments, and a drive that sleeps is well.
        let counts = |cause| !matches!(cause, UnknownCause::Pending | UnknownCause::Asleep);
        if notes.is_empty() && unknown.is_some_and(|unknown| counts(unknown.cause)) {
            notes.push("health unknown".to_owned());
        }
        let last = facts.smart.get(id).and_then(|smart| smart.history.last.as_ref());
        let years = last.and_then(|(_, report)| report.power_on_hours).map(|it| it / YEAR_HOURS);
        if let Some(years) = years.filter(|years| *years >= DESIGNED_YEARS) {
            notes.push(format!("in use for {years} years"));
        }
        (!notes.is_empty()).then(|| format!("{} ({})", self.name(id), notes.join(", ")))
    }
}

/// `rebuild of md0, 43 % done, 3 hours left`, or when it was last read as a whole. A sentence says so;
/// it is never the reason of a finding.
fn of_array(context: Context, name: &str) -> Option<String> {
    let facts = context.facts;
    let stack = facts.layer_state(name)?.stack()?;
    let label = label::device(facts.inventory()?, name);
    let action = action_text(stack.action().filter(|action| *action != "frozen"));
    if !action.is_empty() {
        return Some(format!("{action} of {label}{}", progress_text(stack)));
    }
    if stack::pool_of_device(name).is_some() {
        return Some(last_scrub(facts, name, &label));
    }
    let pass = facts.last_pass(name);
    let ended = pass.ended?;
    let age = context.now.duration_since(ended);
    if age > OLD_CHECK {
        return Some(format!("{label} has not been read completely for {}", format_span(age)));
    }
    let result = ScrubKind::Check.result(pass.found);
    Some(format!("{label} was last read completely at {}{result}", facts.wall_text(ended)))
}

/// `last scrub of tank: 2026-11-28, errors: 2`.
fn last_scrub(facts: &Facts, device: &str, pool: &str) -> String {
    let pass = facts.last_pass(device);
    let Some(ended) = pass.ended else {
        return format!("no scrub of {pool} is known");
    };
    let found = ScrubKind::Scrub.result(pass.found);
    format!("last scrub of {pool}: {}{found}", facts.wall_time(ended).strftime("%F"))
}
