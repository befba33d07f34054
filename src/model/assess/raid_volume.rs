//! Arrays of RAID controllers, each of which the kernel has as one drive.

use std::time::Duration;

use jiff::Timestamp;

use crate::assess::input::DriveInput;
use crate::assess::text::{
    INACCESSIBLE, INFO, SUSPECT, drive_name, evidence, join_limited, raised, unknown,
};
use crate::drive::DriveFacts;
use crate::facts::device_names::array_number;
use crate::facts::{Facts, KnownDrive};
use crate::raid_report::{CacheProtection, RaidReport, ReportedArray};
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
const TOOL: &str = "storcli";
const LOG_CLEARS: &str = "the controller reports that the array is optimal, or a repair of the cause is acknowledged (`diskvitals ack --repaired`)";
const NOT_READ: &str = "which diskvitals does not read";

/// The report of the array's controller with its time, or why there is none that counts.
fn controller_report<'a>(
    facts: &'a Facts,
    drive: &DriveFacts,
    now: Timestamp,
) -> Option<Result<(Timestamp, &'a RaidReport), UnknownHealth>> {
    let not_read = |why: &str| UnknownHealth::no_smart(format!("array state not read: {why}"));
    match drive.location.array_driver.as_deref()? {
        "megaraid_sas" => {}
        "hpsa" | "smartpqi" => {
            return Some(Err(not_read(&format!("look with ssacli or arcconf, {NOT_READ}"))));
        }
        "aacraid" => return Some(Err(not_read(&format!("look with arcconf, {NOT_READ}")))),
        _ => return None,
    }
    let reports = &facts.raid_controllers.reports;
    if !reports.newest.is_answered() {
        let reset = facts.storcli_request().last_reset.filter(|at| elapsed(*at, now) < RESET_PAUSE);
        return Some(Err(match reset {
            Some(_) => not_read("the kernel reset its controller, which is asked a day later"),
            None => UnknownHealth::pending("array state: its controller is not asked yet"),
        }));
    }
    let is_valid = |at: &Timestamp| elapsed(*at, now) < REPORT_VALID;
    let valid = reports.answered.filter(is_valid).zip(reports.newest.last_known());
    Some(match (valid, reports.newest.error()) {
        (Some((at, all)), _) => all
            .iter()
            .find(|report| report.pci.is_some() && report.pci == drive.location.pci)
            .map(|report| (at, report))
            .ok_or_else(|| not_read("storcli does not list it")),
        (None, Some(error)) => Err(not_read(error)),
        (None, None) if reports.newest.value().is_some() => {
            let at = reports.newest.at().map(|at| facts.wall_text(at)).unwrap_or_default();
            Err(not_read(&format!("the last answer is from {at}")))
        }
        (None, None) => Err(not_read("install storcli or perccli")),
    })
}

type ArrayReport<'a> = (Timestamp, &'a RaidReport, &'a ReportedArray);

fn array_report<'a>(
    facts: &'a Facts,
    drive: &DriveFacts,
    now: Timestamp,
) -> Option<Result<ArrayReport<'a>, UnknownHealth>> {
    let found = controller_report(facts, drive, now)?.and_then(|(at, report)| {
        let number = array_number(drive);
        let array = report.arrays.iter().find(|array| Some(array.number) == number);
        array.map(|array| (at, report, array)).ok_or_else(|| {
            UnknownHealth::no_smart("array state not read: storcli does not list it")
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
    let reports = &facts.raid_controllers.reports;
    let line = &errors?.get(Class::ArrayState)?.last;
    let counts = match reports.answered {
        Some(at) => line.time > at,
        None => reports.newest.is_answered() || elapsed(line.time, now) < REPORT_VALID,
    };
    counts.then_some(line)
}

fn not_understood(array: &ReportedArray) -> String {
    format!("array state not understood: {}", array.text)
}

/// The present arrays of the drive's controller, by id.
fn arrays_beside<'a>(facts: &'a Facts, known: &KnownDrive) -> impl Iterator<Item = &'a KnownDrive> {
    let here = known.facts.location.clone();
    facts.drives.values().filter(move |other| {
        let there = &other.facts.location;
        other.missing_since.is_none()
            && here.array_driver.is_some()
            && (&there.pci, &there.array_driver) == (&here.pci, &here.array_driver)
    })
}

/// Arrays of a controller that nothing reads the state of: one finding for each controller, of its first
/// such array. Clears when the state of all of them is known.
pub(crate) fn state_unknown(input: &DriveInput) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    if let Some(unread) = facts.kernel.unread_cause() {
        return unknown(unread.why);
    }
    let now = input.context.now;
    let unread: Vec<(&KnownDrive, UnknownHealth)> = arrays_beside(facts, known)
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
/// the kernel log (megasas_decode_evt(), megaraid_sas_base.c); `storcli /cALL show all`. SUSPECT while
/// members are missing, BAD (inaccessible) when more are missing than it tolerates. Clears when either
/// reports that the array is optimal, or when a repair is acknowledged: by default the kernel does not
/// print that, and time repairs no array.
pub(crate) fn degraded(input: &DriveInput) -> Option<Verdict> {
    let (facts, drive) = (input.context.facts, &input.known.facts);
    // Reported by DriveMissing.
    if input.known.missing_since.is_some() {
        return Some(Verdict::Clear);
    }
    let now = input.context.now;
    let is_logged = input.errors.is_some_and(|errors| errors.get(Class::ArrayState).is_some());
    let was_reported = facts.raid_controllers.reports.answered.is_some();
    let logged = logged(facts, input.errors, now);
    let (state, at, proof, more, clears) = match (logged, array_report(facts, drive, now)) {
        (Some(line), _) => {
            let state = state_in(&line.text).unwrap_or(ArrayState::Degraded);
            let origin = &line.origin;
            let proof = evidence(origin.witness(), origin.name(), line.time, &line.text);
            (state, line.time, proof, String::new(), LOG_CLEARS)
        }
        (None, Some(Ok((at, report, array)))) => {
            let Some(state) = array.state else {
                return unknown(not_understood(array));
            };
            let proof = evidence(WitnessKind::Other, TOOL, at, &array.text);
            (state, at, proof, members(report), "storcli reports that the array is optimal")
        }
        (None, Some(Err(why))) if is_logged || was_reported => return unknown(why.why),
        (None, _) => return Some(Verdict::Clear),
    };
    let (level, state) = match state {
        ArrayState::Optimal => return Some(Verdict::Clear),
        ArrayState::Offline => (INACCESSIBLE, "offline"),
        ArrayState::Degraded => (SUSPECT, "degraded"),
    };
    let name = drive_name(input.known);
    let message = format!("the RAID controller reports that {name} is {state}{more}");
    raised(level, message, vec![proof], clears, Some(at))
}

/// Rebuilds and hot spares of the controller.
fn members(report: &RaidReport) -> String {
    let rebuilding = match report.rebuilding.is_empty() {
        true => String::new(),
        false => format!("; being rebuilt: {}", join_limited(&report.rebuilding)),
    };
    let spares = match report.hot_spares {
        0 => "no hot spare".to_owned(),
        1 => "1 hot spare".to_owned(),
        number => format!("{number} hot spares"),
    };
    format!("{rebuilding}; {spares} in the controller")
}

/// The report of a controller, for the first of its arrays, which has the findings about it.
fn for_controller(
    input: &DriveInput,
    judge: impl FnOnce(Timestamp, &RaidReport) -> Option<Verdict>,
) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    let first = arrays_beside(facts, known).next();
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
        let since = facts.raid_controllers.reports.impaired_since.get(&report.pci);
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
        let proof = vec![evidence(WitnessKind::Other, TOOL, at, &problems)];
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
        let proof = vec![evidence(WitnessKind::Other, TOOL, at, &slots)];
        raised(INFO, message, proof, "the controller's tool lists no foreign drive", Some(at))
    })
}

fn controller_name(known: &KnownDrive) -> String {
    let location = &known.facts.location;
    let place = location.pci.as_deref().unwrap_or("an unknown address");
    format!("the RAID controller at {place}")
}
