//! Whether a drive suits the array or pool that it is a member of: how long it tries before it reports
//! an error, and how it writes.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use jiff::Timestamp;

use crate::assess::input::DriveInput;
use crate::assess::smart::source;
use crate::assess::text::{INFO, drive_name, evidence, join_limited, raised, unknown};
use crate::drive::{DriveKind, Transport};
use crate::stack::StorageStack;
use crate::volume::Stack;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Verdict, WitnessKind};
use diskvitals_smart::report::{Ata, Body, ErrorRecovery, SmartReport};

/// The kernel's default (SD_TIMEOUT, drivers/scsi/sd.h), in seconds: a longer one was chosen.
const DEFAULT_TIMEOUT: u64 = 30;

/// A rotating SATA member of redundancy may try to read a weak sector for longer than the kernel waits
/// for it: then the kernel resets the drive, and the array takes it out, instead of rewriting the sector
/// from another copy. Sources: SCT ERC as the drive reports it (off, unsupported, or over 80 % of the
/// time-out), and `device/timeout` of at most the kernel's default. INFO. A drive that says nothing of
/// ERC raises nothing. Clears when either limit is changed, or no redundancy is on the drive.
pub(crate) fn timeout_mismatch(input: &DriveInput) -> Option<Verdict> {
    let drive = &input.known.facts;
    if drive.kind != DriveKind::Hdd || drive.transport != Transport::Sata {
        return Some(Verdict::Clear);
    }
    let (at, report) = match last_report(input, Reason::TimeoutMismatch) {
        ControlFlow::Continue(last) => last,
        ControlFlow::Break(verdict) => return verdict,
    };
    let (timeout, scanned) = (drive.command_timeout?, input.context.facts.inventory.at()?);
    let Body::Ata(Ata { error_recovery, .. }) = &report.body else {
        return Some(Verdict::Clear);
    };
    if timeout > DEFAULT_TIMEOUT {
        return Some(Verdict::Clear);
    }
    let (tries, line) = match (*error_recovery)? {
        ErrorRecovery::Deciseconds(limit) if u64::from(limit) <= timeout * 8 => {
            return Some(Verdict::Clear);
        }
        ErrorRecovery::Deciseconds(limit) => {
            let seconds = f64::from(limit) / 10.0;
            (format!("for {seconds} s"), format!("{limit} ({seconds} seconds)"))
        }
        ErrorRecovery::Off => ("for minutes (SCT ERC is off)".to_owned(), "Disabled".to_owned()),
        ErrorRecovery::Unsupported => {
            ("for minutes (it has no SCT ERC)".to_owned(), "command not supported".to_owned())
        }
    };
    let arrays = match redundancy(input, |_| true) {
        ControlFlow::Continue(arrays) => arrays,
        ControlFlow::Break(verdict) => return verdict,
    };
    let message = format!(
        "{} may try to read a weak sector {tries}, and the kernel resets it after {timeout} s: {arrays} may lose it then",
        drive_name(input.known)
    );
    let file = format!("/sys/block/{}/device/timeout", drive.name);
    let line = format!("SCT Error Recovery Control: {line}");
    let proof = vec![
        evidence(WitnessKind::Smart, source(report), at, line),
        evidence(WitnessKind::Inventory, file, scanned, timeout.to_string()),
    ];
    let clears = "its SCT ERC is at most 80 % of the kernel's time-out, that is over 30 s, or the drive is in no array or pool with redundancy";
    raised(INFO, message, proof, clears, None)
}

/// A drive with drive-managed SMR is a member of an array with parity or of a ZFS pool: a rebuild or
/// resilver writes to it for so long that it takes days, or that the drive times out. Sources: zones that
/// the drive manages (IDENTIFY DEVICE), or "(SMR)" in the name of its family in smartctl's database.
/// INFO. Clears when the drive is in no such array or pool.
pub(crate) fn smr_in_array(input: &DriveInput) -> Option<Verdict> {
    let (at, report) = match last_report(input, Reason::SmrInArray) {
        ControlFlow::Continue(last) => last,
        ControlFlow::Break(verdict) => return verdict,
    };
    let Some(line) = report.drive_managed_smr() else {
        return Some(Verdict::Clear);
    };
    let arrays = match redundancy(input, |stack| stack.is_hard_on_smr()) {
        ControlFlow::Continue(arrays) => arrays,
        ControlFlow::Break(verdict) => return verdict,
    };
    let message = format!(
        "{} has drive-managed SMR: a rebuild or resilver of {arrays} onto it may take days, or fail",
        drive_name(input.known)
    );
    let proof = vec![evidence(WitnessKind::Smart, source(report), at, line)];
    raised(INFO, message, proof, "the drive is in no array with parity and in no ZFS pool", None)
}

/// The last report that counts; otherwise what follows from its absence.
fn last_report<'a>(
    input: &'a DriveInput,
    reason: Reason,
) -> ControlFlow<Option<Verdict>, (Timestamp, &'a SmartReport)> {
    let is_missing = input.known.missing_since.is_some();
    if is_missing || input.smart_policy().ignore_reasons.contains(&reason) {
        return ControlFlow::Break(Some(Verdict::Clear));
    }
    match input.smart.report() {
        Some(Ok(last)) => ControlFlow::Continue(last),
        Some(Err(why)) => ControlFlow::Break(unknown(why)),
        None => ControlFlow::Break(None),
    }
}

/// `raid1 md0`: what of this kind has redundancy and data on the drive; otherwise what follows if there
/// is none, or if that is not known.
fn redundancy(
    input: &DriveInput,
    is_of_kind: fn(&dyn StorageStack) -> bool,
) -> ControlFlow<Option<Verdict>, String> {
    let (facts, id) = (input.context.facts, &input.known.facts.id);
    if let Some(error) = facts.inventory.error() {
        return ControlFlow::Break(unknown(error));
    }
    let Some(inventory) = facts.inventory.value() else { return ControlFlow::Break(None) };
    let mut below = |name: &str| facts.device_stack(name).unwrap_or_default();
    let mut levels = BTreeSet::new();
    let mut undecided = None;
    let mut add = |name: &str, stack: &dyn StorageStack| {
        let tree = stack.tree(inventory, name, &mut below).unwrap_or_default();
        match tree.redundancy_of(id) {
            Some(Stack::Undetermined { level, .. }) => {
                undecided = Some(format!("it is in {level}"))
            }
            Some(Stack::Redundant { level, .. }) if is_of_kind(stack) => {
                levels.insert(level.clone());
            }
            _ => {}
        }
    };
    let mut unread = None;
    let layers = inventory.devices.iter().filter(|(_, device)| device.layer.has_state());
    for (name, _) in layers.filter(|(name, _)| inventory.drives_below(name).contains(id)) {
        match facts.layer_state(name) {
            Some(state) => state.stack().into_iter().for_each(|stack| add(name, stack)),
            None => unread = Some(format!("the state of {name} has not been read")),
        }
    }
    inventory.btrfs.iter().for_each(|fs| add(&fs.uuid, fs));
    match (levels.is_empty(), undecided.or(unread)) {
        (false, _) => ControlFlow::Continue(join_limited(levels)),
        (true, Some(why)) => ControlFlow::Break(unknown(why)),
        (true, None) => ControlFlow::Break(Some(Verdict::Clear)),
    }
}
