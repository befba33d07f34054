//! Arrays of RAID controllers, each of which the kernel has as one drive.

use std::time::Duration;

use jiff::Timestamp;

use crate::assess::input::{Context, DriveInput};
use crate::assess::layers::Degradation;
use crate::assess::text::{
    INACCESSIBLE, INFO, SUSPECT, drive_name, evidence, join_limited, raised, unknown,
    wait_until_ended,
};
use crate::drive::DriveFacts;
use crate::facts::{Facts, KnownDrive};
use crate::raid_report::{CacheProtection, RaidFamily, RaidReport, Rebuild, ReportedArray};
use crate::stack::progress_words;
use diskvitals_finding::{Subject, UnknownCause, UnknownHealth, Verdict, WitnessKind};
use diskvitals_kernel_log::error_history::ErrorHistory;
use diskvitals_kernel_log::event::{Class, Line};
use diskvitals_kernel_log::raid_array::{ArrayState, state_in};
use diskvitals_text::duration::elapsed;

/// An answer of a controller's tool counts for three of its hourly rounds.
const REPORT_VALID: Duration = Duration::from_secs(3 * 3600);
/// No tool is run for so long after a reset.
const RESET_PAUSE: Duration = Duration::from_secs(24 * 3600);
/// A learn cycle of a battery takes hours.
const LEARN_CYCLE: Duration = Duration::from_secs(24 * 3600);
const LOG_CLEARS: &str = "the controller reports that the array is optimal, or a repair of the cause is acknowledged (`diskvitals ack --repaired`)";
const TOOL_CLEARS: &str =
    "the controller's tool reports that the array is optimal and has lost no block";
const NOT_READ: &str = "which diskvitals does not read";

/// The report of the array's controller with its time, or why there is none that counts.
fn controller_report<'a>(
    facts: &'a Facts,
    drive: &DriveFacts,
    now: Timestamp,
) -> Option<Result<(Timestamp, &'a RaidReport), UnknownHealth>> {
    let not_read = |why: &str| UnknownHealth::no_smart(format!("array state not read: {why}"));
    let driver = drive.location.array_driver.as_deref()?;
    let Some(family) = RaidFamily::of_driver(driver) else {
        let why = format!("look with storcli2 or perccli2, {NOT_READ}");
        return (driver == "mpi3mr").then(|| Err(not_read(&why)));
    };
    let reports = facts.raid_controllers.reports.get(&family);
    let Some(reports) = reports.filter(|it| it.newest.is_answered()) else {
        let reset = facts.raid_tool_requests().remove(&family).flatten();
        return Some(Err(match reset.filter(|at| elapsed(*at, now) < RESET_PAUSE) {
            Some(_) => not_read("the kernel reset its controller, which is asked a day later"),
            None => UnknownHealth::pending("array state: its controller is not asked yet"),
        }));
    };
    let is_valid = |at: &Timestamp| elapsed(*at, now) < REPORT_VALID;
    let valid = reports.answered.filter(is_valid).zip(reports.newest.last_known());
    Some(match (valid, reports.newest.error()) {
        (Some((at, all)), _) => {
            let is_sole = all.len() == 1 && facts.count_of_controllers(family) == 1;
            let is_its = |report: &&RaidReport| match &report.pci {
                Some(pci) => drive.location.pci.as_ref() == Some(pci),
                None => family == RaidFamily::Adaptec && is_sole,
            };
            let report = all.iter().find(is_its).map(|report| (at, report));
            report.ok_or_else(|| not_read(&not_listed(all)))
        }
        (None, Some(error)) => Err(not_read(error)),
        (None, None) if reports.newest.value().is_some() => {
            let at = reports.newest.at().map(|at| facts.wall_text(at)).unwrap_or_default();
            Err(not_read(&format!("the last answer is from {at}")))
        }
        (None, None) => Err(not_read(&format!("install {}", family.tools()))),
    })
}

fn not_listed(reports: &[RaidReport]) -> String {
    let tool = reports.first().map_or("the tool", |report| report.tool);
    format!("{tool} does not list it")
}

type ArrayReport<'a> = (Timestamp, &'a RaidReport, &'a ReportedArray);

fn array_report<'a>(
    facts: &'a Facts,
    drive: &DriveFacts,
    now: Timestamp,
) -> Option<Result<ArrayReport<'a>, UnknownHealth>> {
    let found = controller_report(facts, drive, now)?.and_then(|(at, report)| {
        let array = report.arrays.iter().find(|array| array.name.is_of(drive));
        array.map(|array| (at, report, array)).ok_or_else(|| {
            let why = format!("array state not read: {} does not list it", report.tool);
            UnknownHealth::no_smart(why)
        })
    });
    Some(found)
}

/// Why the state of an array is unknown; None: it is known, or the drive is no array of a controller
/// whose arrays are looked at. What the firmware logged counts too: by default it logs what is worse.
pub(crate) fn unknown_state(
    facts: &Facts,
    known: &KnownDrive,
    now: Timestamp,
) -> Option<UnknownHealth> {
    let reported = array_report(facts, &known.facts, now)?;
    let errors = facts.errors(&Subject::Drive(known.facts.id.clone()));
    match reported {
        _ if logged(facts, errors, now).is_some() => None,
        Ok((_, _, array)) if array.state.is_some() => None,
        Ok((_, _, array)) => Some(UnknownHealth::no_smart(not_understood(array))),
        Err(why) => Some(why),
    }
}

/// The last state in the log, unless the tool's report is newer. After a start, an old record waits for
/// the first report: the log seldom says that an array was repaired.
fn logged<'a>(facts: &Facts, errors: Option<&'a ErrorHistory>, now: Timestamp) -> Option<&'a Line> {
    // Only megaraid_sas logs states.
    let reports = facts.raid_controllers.reports.get(&RaidFamily::MegaRaid);
    let line = &errors?.get(Class::ArrayState)?.last;
    let counts = match reports.and_then(|it| it.answered) {
        Some(at) => line.time > at,
        None => {
            let is_answered = reports.is_some_and(|it| it.newest.is_answered());
            is_answered || elapsed(line.time, now) < REPORT_VALID
        }
    };
    counts.then_some(line)
}

fn not_understood(array: &ReportedArray) -> String {
    format!("array state not understood: {}", array.text)
}

/// Arrays of a controller that nothing reads the state of: one finding for each controller, of its first
/// such array. Clears when the state of all of them is known.
pub(crate) fn state_unknown(input: &DriveInput) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    if let Some(unread) = facts.kernel.unread_cause() {
        return unknown(unread.why);
    }
    let now = input.context.now;
    let unread: Vec<(&KnownDrive, UnknownHealth)> = facts
        .arrays_beside(&known.facts)
        .filter_map(|it| Some((it, unknown_state(facts, it, now)?)))
        .collect();
    if let Some((_, why)) = unread.iter().find(|(_, it)| it.cause == UnknownCause::Pending) {
        return unknown(&why.why);
    }
    let Some((_, first)) = unread.first().filter(|(it, _)| it.facts.id == known.facts.id) else {
        return Some(Verdict::Clear);
    };
    let names: Vec<&str> = unread.iter().map(|(it, _)| it.facts.name.as_str()).collect();
    let controller = controller_name(known);
    let message = format!("{} of {controller}: {}", join_limited(&names), first.why);
    let proof = vec![evidence(WitnessKind::Inventory, "sysfs", known.first_seen, &first.why)];
    raised(INFO, message, proof, "the state of these arrays is read", None)
}

/// The newest state of the array, as the controller's firmware logged it or its tool reported it. Sources:
/// the kernel log (megasas_decode_evt(), megaraid_sas_base.c); the tools of source/smart/raid_tools. SUSPECT
/// while members are missing or blocks are lost, BAD (inaccessible) when more are missing than it tolerates.
/// Clears when either reports that the array is optimal, or when a repair is acknowledged: by default the kernel does not
/// print that, and time repairs no array.
pub(crate) fn degraded(input: &DriveInput) -> Option<Verdict> {
    let (facts, drive) = (input.context.facts, &input.known.facts);
    // Reported by DriveMissing.
    if input.known.missing_since.is_some() {
        return Some(Verdict::Clear);
    }
    let now = input.context.now;
    let is_logged = input.errors.is_some_and(|errors| errors.get(Class::ArrayState).is_some());
    let logged = logged(facts, input.errors, now);
    let name = || drive_name(input.known);
    let (state, at, proof, more, clears) = match (logged, array_report(facts, drive, now)) {
        (Some(line), _) => {
            let state = state_in(&line.text).unwrap_or(ArrayState::Degraded);
            let origin = &line.origin;
            let proof = evidence(origin.witness(), origin.name(), line.time, &line.text);
            (state, line.time, proof, More::default(), LOG_CLEARS)
        }
        (None, Some(Ok((at, report, array)))) => {
            let Some(state) = array.state else {
                return unknown(not_understood(array));
            };
            let proof = evidence(WitnessKind::Other, report.tool, at, &array.text);
            if array.has_lost_blocks && state == ArrayState::Optimal {
                let message = format!(
                    "the RAID controller reports that {} has blocks that it cannot restore",
                    name()
                );
                return raised(SUSPECT, message, vec![proof], TOOL_CLEARS, Some(at));
            }
            (state, at, proof, more(report, array, drive), TOOL_CLEARS)
        }
        (None, Some(Err(why))) if is_logged || was_reported(facts, drive) => {
            return unknown(why.why);
        }
        (None, _) => return Some(Verdict::Clear),
    };
    let (level, state) = match state {
        ArrayState::Optimal => return Some(Verdict::Clear),
        ArrayState::Offline => (INACCESSIBLE, "offline"),
        ArrayState::Degraded => (SUSPECT, "degraded"),
    };
    let degradation = Degradation {
        level,
        message: format!("the RAID controller reports that {} is {state}{}", name(), more.words),
        advice: more.advice.filter(|_| level == SUSPECT),
        clears: None,
        evidence: vec![proof],
    };
    degradation.raise(clears, Some(at))
}

fn was_reported(facts: &Facts, drive: &DriveFacts) -> bool {
    let driver = drive.location.array_driver.as_deref();
    let reports = driver
        .and_then(RaidFamily::of_driver)
        .and_then(|family| facts.raid_controllers.reports.get(&family));
    reports.is_some_and(|it| it.answered.is_some())
}

/// What a tool adds to the state of an array.
#[derive(Default)]
struct More {
    words: String,
    advice: Option<String>,
}

/// A rebuild of the array; failed drives and hot spares of its controller.
fn more(report: &RaidReport, array: &ReportedArray, drive: &DriveFacts) -> More {
    let lost = if array.has_lost_blocks { "; it has lost blocks" } else { "" };
    let rebuild = array.rebuild.as_ref().map(|it| format!("; {}", rebuild_text("", it)));
    let failed = match report.failed.is_empty() {
        true => String::new(),
        false => format!("; not working: {}", join_limited(&report.failed)),
    };
    let spares = match report.hot_spares {
        0 => "no hot spare".to_owned(),
        1 => "1 hot spare".to_owned(),
        number => format!("{number} hot spares"),
    };
    let rebuild_words = rebuild.unwrap_or_default();
    let is_rebuilding = array.rebuild.is_some() && !array.has_lost_blocks;
    More {
        words: format!("{lost}{rebuild_words}{failed}; {spares} in the controller"),
        advice: is_rebuilding
            .then(|| wait_until_ended(&format!("{} is being rebuilt", drive.name))),
    }
}

/// `rebuild onto 252:3, 43 % done, 3 hours left`, as the tool reported it.
fn rebuild_text(of: &str, rebuild: &Rebuild) -> String {
    let onto = match rebuild.onto.is_empty() {
        true => String::new(),
        false => format!(" onto {}", join_limited(&rebuild.onto)),
    };
    format!("rebuild{of}{onto}{}", progress_words(rebuild.percent, rebuild.seconds_left))
}

/// `rebuild of sda onto 252:3, 43 % done, 3 hours left`; None where the newest state of the array is not
/// the tool's.
pub(super) fn rebuild_of(context: Context, known: &KnownDrive) -> Option<String> {
    let Context { facts, now, .. } = context;
    let errors = facts.errors(&Subject::Drive(known.facts.id.clone()));
    if logged(facts, errors, now).is_some() {
        return None;
    }
    let (_, _, array) = array_report(facts, &known.facts, now)?.ok()?;
    Some(rebuild_text(&format!(" of {}", known.facts.name), array.rebuild.as_ref()?))
}

/// The report of a controller, for the first of its arrays, which has the findings about it.
fn for_controller(
    input: &DriveInput,
    judge: impl FnOnce(Timestamp, &RaidReport) -> Option<Verdict>,
) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    let first = facts.arrays_beside(&known.facts).next();
    if first.is_none_or(|first| first.facts.id != known.facts.id) {
        return Some(Verdict::Clear);
    }
    match controller_report(facts, &known.facts, input.context.now)? {
        Ok((at, report)) => judge(at, report),
        Err(why) => unknown(why.why),
    }
}

/// What may lose writes that wait in the controller's cache: a battery or capacitor that is not optimal
/// for longer than a learn cycle takes, write-back that is forced without one, data that waits for an array
/// that is gone. Clears when the tool reports none of it.
pub(crate) fn cache_unprotected(input: &DriveInput) -> Option<Verdict> {
    let facts = input.context.facts;
    for_controller(input, |at, report| {
        let reports = facts.raid_controllers.reports.values();
        let since = reports.filter_map(|it| it.impaired_since.get(&report.pci)).next();
        if since.is_some() && report.protection == CacheProtection::Unknown {
            return unknown("the tool did not report the state of the battery or capacitor");
        }
        let lasting = since.filter(|since| elapsed(**since, at) >= LEARN_CYCLE);
        let mut problems = Vec::new();
        if let (CacheProtection::Impaired(word), Some(since)) = (&report.protection, lasting) {
            let since = facts.wall_text(*since);
            problems.push(format!("its battery or capacitor is `{word}` since {since}"));
        }
        let forced = report.arrays.iter().any(|array| array.forces_write_back);
        if forced && (report.protection == CacheProtection::Absent || lasting.is_some()) {
            problems.push("write-back is forced without a working battery".to_owned());
        }
        if report.has_preserved_cache {
            problems.push("it holds data of an array that is gone (preserved cache)".to_owned());
        }
        if problems.is_empty() {
            return Some(Verdict::Clear);
        }
        let problems = problems.join("; ");
        let message = format!("the write cache of {}: {problems}", controller_name(input.known));
        let proof = vec![evidence(WitnessKind::Other, report.tool, at, &problems)];
        raised(SUSPECT, message, proof, "the controller's tool reports none of it", Some(at))
    })
}

/// Drives with a configuration that is not the controller's: used drives of another one, or a set of its
/// own that fell off and came back. Clears when the tool lists none.
pub(crate) fn foreign_configuration(input: &DriveInput) -> Option<Verdict> {
    for_controller(input, |at, report| {
        if report.foreign.is_empty() {
            return Some(Verdict::Clear);
        }
        let slots = join_limited(&report.foreign);
        let message = format!("{} has foreign drives: {slots}", controller_name(input.known));
        let proof = vec![evidence(WitnessKind::Other, report.tool, at, &slots)];
        raised(INFO, message, proof, "the controller's tool lists no foreign drive", Some(at))
    })
}

fn controller_name(known: &KnownDrive) -> String {
    let location = &known.facts.location;
    let place = location.pci.as_deref().unwrap_or("an unknown address");
    format!("the RAID controller at {place}")
}
