//! The advice for a finding, and for a drive in one sentence: the meaning of its findings for the data,
//! and the action. Pure; reads the published snapshot.
//!
//! In: findings, the volumes above a drive. Out: the action, and a sentence with the numbers. New
//! judgement does not belong here: `assess` has decided the severity.

mod cover;
mod filesystem;
mod medium;
#[cfg(test)]
mod tests;

use crate::advice::medium::Medium;
use crate::assess::MAX_MESSAGE;
use crate::drive::DriveKind;
use crate::facts::repairs;
use crate::label;
use crate::snapshot::{Drive, Presence, Snapshot, Volume};
use crate::volume::Impact;
use diskvitals_finding::ids::DriveId;
pub use diskvitals_finding::reason::Action;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Health, Status, Subject, WitnessKind};
use diskvitals_text::echo::truncate;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    pub drive: DriveId,
    pub health: Health,
    pub action: Action,
    /// One sentence with the strongest evidence first. At most 1,024 bytes.
    pub sentence: String,
    /// The action, and what to save first: without evidence and names, for a screen that has them.
    pub to_do: String,
}

/// The action for one finding: by its level, by what its subject is, and how it ends.
pub fn for_finding(snapshot: &Snapshot, finding: &Finding) -> String {
    // The state of an array decides.
    if let Some(advice) = &finding.advice {
        return advice.clone();
    }
    let medium = Medium::of(snapshot, &finding.subject);
    let is_replaced = medium == Medium::Physical && cover::is_replaced_anyway(snapshot, finding);
    let action = match medium.action(finding.reason) {
        Some(action) => action.to_owned(),
        None => filesystem::action(snapshot, finding)
            .unwrap_or_else(|| of_reason(snapshot, finding, is_replaced)),
    };
    match closing(finding, finding.id.as_str()) {
        Some(closing) if !is_replaced => format!("{action} {closing}"),
        _ => action,
    }
}

fn of_reason(snapshot: &Snapshot, finding: &Finding, is_replaced: bool) -> String {
    let (reason, cover) = (finding.reason, cover::of(snapshot, &finding.subject));
    if reason == Reason::DriveFailing && finding.status == Status::Inaccessible {
        return "Bring the drive back first: what it holds cannot be read without it. Follow the drive's finding.".to_owned();
    }
    let severity = match is_replaced && reason.levels().contains(&Severity::Bad) {
        true => Severity::Bad,
        false => finding.severity,
    };
    with_names(snapshot, &finding.subject, reason.action_for(severity, cover))
}

/// With the drive's own name in place of `DEVICE` and `NAME`.
fn with_names(snapshot: &Snapshot, subject: &Subject, action: &str) -> String {
    let drive = match subject {
        Subject::Drive(id) => snapshot.drives.get(id).filter(|it| it.presence == Presence::Present),
        _ => None,
    };
    match drive.map(|it| it.facts.name.as_str()).filter(|name| !name.is_empty()) {
        Some(name) => action
            .replace("DEVICE`", &format!("/dev/{name}`"))
            .replace("/NAME/", &format!("/{name}/")),
        None => action.to_owned(),
    }
}

/// How a person ends a finding that no reading ends. `name`: what `diskvitals ack` takes.
fn closing(finding: &Finding, name: &str) -> Option<String> {
    // The drive goes, and its finding with it.
    if matches!(finding.subject, Subject::Drive(_)) && action_of(finding) >= Action::BringBack {
        return None;
    }
    // A repair ends errors of the kernel log; the drive's own counters and what a filesystem has
    // recorded stay.
    let is_logged = |witness: WitnessKind| witness == WitnessKind::KernelLog;
    let is_repairable = finding.reason != Reason::FilesystemCorrupted
        && repairs::ends(&finding.subject, finding.reason)
        && (finding.evidence.is_empty() || finding.evidence.iter().any(|it| is_logged(it.witness)));
    if is_repairable {
        return Some(format!(
            "After a repair of the cause: `diskvitals ack {name} --repaired --note TEXT`."
        ));
    }
    let text = format!("`diskvitals ack {name} --note TEXT` keeps this finding from counting.");
    finding.reason.stays().then_some(text)
}

/// The advice; None for a drive without an adverse finding.
pub fn advise(snapshot: &Snapshot, drive: &Drive) -> Option<Advice> {
    let mut findings: Vec<&Finding> = drive
        .findings
        .iter()
        .filter_map(|id| snapshot.findings.get(id))
        .map(AsRef::as_ref)
        .collect();
    findings.retain(|finding| finding.severity > Severity::Info);
    // The worst finding first; among equals, the one with the most urgent action.
    findings.sort_by_key(|finding| {
        std::cmp::Reverse((finding.severity, action_of(finding), finding.status))
    });
    let (strongest, others) = findings.split_first()?;
    let action = findings.iter().map(|finding| action_of(finding)).max().unwrap_or(Action::Nothing);
    let medium = Medium::of(snapshot, &Subject::Drive(drive.facts.id.clone()));
    let (for_the_data, in_short) = for_the_data(snapshot, drive, action);
    let is_copied_first = in_short == NOTHING_ELSE && action == Action::ReplaceNow;
    let is_only = |reason: Reason| {
        let mut last = findings.iter().filter(|finding| action_of(finding) == action);
        last.all(|finding| finding.reason == reason)
    };
    let words = match medium.words(action) {
        Some(words) => words,
        // It has no cable.
        None if action == Action::ReseatCable && drive.facts.kind == DriveKind::Nvme => {
            "Reseat it, and look at its slot, riser or backplane"
        }
        None if is_copied_first => "Save what is on it first, then replace it",
        // md has taken it out and has not said why.
        None if is_only(Reason::RaidMemberFailed) => {
            "Find out why md took it out (kernel log, `smartctl -x`), then replace it"
        }
        // It is an array: its members are replaced, unless its rebuild runs.
        None if is_only(Reason::RaidVolumeDegraded) => match &strongest.advice {
            Some(advice) => advice.trim_end_matches('.'),
            None => "Look at its members with the controller's tool (storcli, ssacli, arcconf)",
        },
        None => words(action),
    };
    let mut sentence = format!("{words}: {}", strongest.message);
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|finding| finding.reason.name()).collect();
        sentence.push_str(&format!(" (also {})", names.join(", ")));
    }
    sentence.push_str(". ");
    sentence.push_str(&for_the_data);
    Some(Advice {
        drive: drive.facts.id.clone(),
        health: drive.health,
        action,
        sentence: truncate(&sentence, MAX_MESSAGE),
        to_do: match closing(strongest, ack_name(drive)) {
            Some(closing) if action < Action::BringBack => {
                format!("{words}. {in_short} {closing}")
            }
            _ if is_copied_first && medium == Medium::Physical => {
                "Save what is on it first, this host has no other copy; then replace it.".to_owned()
            }
            _ => format!("{words}. {in_short}"),
        },
    })
}

const NOTHING_ELSE: &str = "This host has no other copy of what is on it.";

fn ack_name(drive: &Drive) -> &str {
    match drive.facts.name.as_str() {
        "" => drive.facts.id.as_str(),
        name => name,
    }
}

fn action_of(finding: &Finding) -> Action {
    finding.reason.first_action(finding.severity)
}

fn words(action: Action) -> &'static str {
    match action {
        Action::Nothing => "Nothing to do",
        Action::Watch => "Watch it",
        Action::Cool => "Improve its cooling",
        Action::LookAtPath => "Look at its power, adapter and firmware",
        Action::ReseatCable => "Reseat or change its cable, not the drive",
        Action::PlanReplacement => "Plan its replacement",
        Action::BringBack => "Bring it back, or replace it",
        Action::ReplaceNow => "Replace it now",
    }
}

/// Whether an array below the volume has no redundancy left.
pub fn has_last_copy(snapshot: &Snapshot, volume: &Volume) -> bool {
    redundancy_lost(snapshot, volume).is_some()
}

fn redundancy_lost<'a>(snapshot: &'a Snapshot, volume: &Volume) -> Option<&'a Finding> {
    let findings = volume.findings.iter();
    findings
        .filter_map(|id| snapshot.findings.get(id))
        .map(AsRef::as_ref)
        .find(|finding| finding.reason == Reason::RedundancyLost)
}

/// The volumes above a drive, by what its failure would do to them.
#[derive(Default)]
struct VolumesAbove {
    /// They lose data with it.
    exposed: Vec<String>,
    /// Others hold the data, without any redundancy.
    last: Vec<String>,
    covered: Vec<String>,
    /// Whether redundancy keeps them is not known.
    unknown: Vec<String>,
    /// Of the first array without redundancy.
    next_step: Option<String>,
}

fn volumes_of(snapshot: &Snapshot, drive: &Drive) -> VolumesAbove {
    // A drive that is BAD itself provides no redundancy.
    let fails = |id: &DriveId| {
        *id == drive.facts.id
            || snapshot.drives.get(id).is_some_and(|other| other.health == Health::Bad)
    };
    let mut above = VolumesAbove::default();
    for volume in drive.volumes.iter().filter_map(|id| snapshot.volumes.get(id)) {
        let name = label::volume(&snapshot.inventory, &volume.facts);
        let stack = &volume.facts.stack;
        let lost = redundancy_lost(snapshot, volume);
        match (stack.impact(&fails), lost) {
            (Impact::Exposed, _) => above.exposed.push(name),
            (Impact::Unknown, _) => above.unknown.push(name),
            // The stack lists members that carry data: the array has lost the drive already.
            (Impact::None, _) if !stack.has_redundancy() => {}
            (Impact::None | Impact::Covered, Some(lost)) => {
                above.next_step.get_or_insert_with(|| lost.action().to_owned());
                above.last.push(name);
            }
            (Impact::None | Impact::Covered, None) => above.covered.push(name),
        }
    }
    above
}

/// The volumes that lose data with the drive, those that it would be the next failure for, and those
/// that redundancy keeps; and the same without names.
fn for_the_data(snapshot: &Snapshot, drive: &Drive, action: Action) -> (String, String) {
    if drive.facts.location.raid_controller.is_some() {
        let ask = "It is behind a RAID controller: ask that for the array's redundancy before you pull it.";
        return (ask.to_owned(), ask.to_owned());
    }
    let VolumesAbove { exposed, last, covered, unknown, next_step } = volumes_of(snapshot, drive);
    let them = if exposed.len() == 1 { "it" } else { "them" };
    let first = match action {
        Action::ReplaceNow => format!("save {them} first"),
        Action::PlanReplacement => "make sure that there is a backup".to_owned(),
        _ => format!("a backup is all that covers {them}"),
    };
    let next_step = next_step.unwrap_or_default();
    let in_short = match (exposed.is_empty(), last.is_empty(), covered.is_empty(), action) {
        (true, true, ..) if !unknown.is_empty() => {
            "Whether redundancy covers what is on it is not known: make sure that there is a backup."
                .to_owned()
        }
        (true, true, true, _) if !drive.member_of.is_empty() => {
            "See first whether what it is a member of has other copies.".to_owned()
        }
        (true, true, true, _) => "No volume is known to be on it.".to_owned(),
        (true, true, false, _) => "Redundancy covers what is on it.".to_owned(),
        (true, false, ..) => format!("No redundancy is left for {}. {next_step}", named(&last)),
        (false, true, true, Action::ReplaceNow) => NOTHING_ELSE.to_owned(),
        (false, true, true, _) => {
            "This host has no other copy of what is on it: make sure that there is a backup."
                .to_owned()
        }
        (false, ..) => {
            "Redundancy covers only a part of what is on it: save the rest first.".to_owned()
        }
    };
    let mut parts = Vec::new();
    if !exposed.is_empty() {
        parts.push(format!("This host has no other copy of {}: {first}", named(&exposed)));
    }
    if !last.is_empty() {
        parts.push(format!("without it, no redundancy is left for {}", named(&last)));
    }
    if !covered.is_empty() {
        parts.push(format!("redundancy covers {}", named(&covered)));
    }
    if !unknown.is_empty() {
        parts.push(format!("whether redundancy covers {} is not known", named(&unknown)));
    }
    let sentence = match parts.is_empty() {
        true => in_short.clone(),
        false => format!("{}. {next_step}", upper_first(&parts.join("; "))).trim_end().to_owned(),
    };
    (sentence, in_short)
}

fn upper_first(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn named(volumes: &[String]) -> String {
    match volumes {
        [one, two, three, more @ ..] if !more.is_empty() => {
            format!("{one}, {two}, {three} and {} more volumes", more.len())
        }
        few => few.join(", "),
    }
}
