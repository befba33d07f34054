//! Rules for md: errors of array members, and of arrays.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::{DamagedCopies, DeviceName, Operation};
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind, TopologyUpdate};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Evidence, Role, RuleAction, RuleFamily, rules};

/// `md/raid1:md0: `; raid0 and linear omit the colon: `md/raid0md0: `. Up to 2.6.35 `raid5:md0: ` and
/// `raid1: `.
const ARRAY: RuleFamily = DRIVE
    .with_prefix(
        "<md/raid10|md/raid1|md/raid0|md/raid|md/linear|raid10|raid1|raid5|raid456>{:}{<disk>: }{ }",
    )
    .with_role(Role::Redundancy);
const MD: RuleFamily = DRIVE.with_prefix("md: ");

const READ_BEGUN: RuleAction = Record(RecordKind::Topology(TopologyUpdate::ReadBegun(None)));
const READ_DONE: RuleAction = Record(RecordKind::Topology(TopologyUpdate::ReadDone(None)));

rules! {
    in "drivers/md/";
    "md-failed": ARRAY.with_evidence(Evidence::FailedByRedundancy),
        "Disk failure on <disk><, disabling device| detected, failing array>"
        => Parse(member_failed),
           "raid1.c, raid10.c raid1_error(), raid5.c raid5_error(), raid0.c; 2.6.32-6.18";
    // Since 6.11 in the words of sync_action (md_sync_action_name()).
    "md-check": MD, "<data-check|requested-resync|check|repair> of RAID array <disk>$"
        => READ_BEGUN, "md.c md_do_sync(): sync_action `check` or `repair`; 2.6.32-6.18";
    "md-checked": MD, "<disk>: <data-check|requested-resync|check|repair> done.$"
        => READ_DONE, "md.c md_do_sync(): `interrupted.` otherwise; 2.6.32-6.18";
    "md-superblock": MD, "{<disk>: <disk>: }super_written gets error=<dec>{, uptodate=<dec>}$"
        => Parse(superblock), "md.c super_written(); 2.6.32-6.18";
    "md-corrected": ARRAY, "read error corrected (<dec> sectors at <dec> on <disk>)"
        => Parse(corrected),
           "raid1.c, raid10.c fix_read_error(), raid5.c raid5_end_read_request(); 2.6.32-6.18";
    "md-not-corrected": ARRAY, "read error <NOT corrected!!|not correctable|on replacement device> \
         (sector <dec> on <disk>)"
        => Parse(member_read_error), "raid5.c raid5_end_read_request(), raid10.c; 2.6.32-6.18";
    "md-correction-write": ARRAY, "<read correction write failed\
         |unable to read back corrected sectors> (<dec> sectors at <dec> on <disk>)"
        => Parse(member_read_error), "raid10.c fix_read_error(); 2.6.32-6.18";
    "md-many": ARRAY, "Too many read errors, failing device <disk>{.}$"
        => Parse(member_of_array_failed), "raid5.c raid5_end_read_request(); 2.6.32-6.18";
    "md-too-many": ARRAY, "<disk>: Raid device exceeded read_error threshold [cur <dec>:max <dec>]"
        => Parse(member_of_array_failed), "raid10.c, raid1.c fix_read_error(); 2.6.32-6.18";
    "md-superblock-read": DRIVE, "md: disabled device <disk>, could not read superblock.$"
        => Effect(Io, Unclear), "md.c read_disk_sb(); 2.6.32-6.18";
    // The member was away while the array was written: an error, a cable, or a person.
    "md-non-fresh": DRIVE, "md: kicking non-fresh <disk> from array!$"
        => Cause(Removed, Unclear),
           "md.c analyze_sbs(): its event count is lower than that of the others; 2.6.32-6.18";
    // The array has lost the data: the device is the array. `???`: no member is left.
    "md-lost": ARRAY, "{???: }{<disk>: }unrecoverable I/O read error for block <dec>$"
        => Effect(Io, Unclear), "raid1.c raid1_read_request(), raid10.c; 2.6.32-6.18";
    "md-recovery-lost": ARRAY, "{???: }{<disk>: }unrecoverable I/O error"
        => Effect(Io, Unclear), "raid1.c, raid10.c; 2.6.32-6.18";
    "md-rescheduling": ARRAY, "{<disk>: }rescheduling sector <dec>$"
        => Continuation, "raid1.c raid1_end_read_request(), raid10.c; 2.6.32-6.18";
    "md-redirecting": ARRAY, "{<disk>: }redirecting sector <dec> to <other mirror: |another mirror>"
        => Continuation, "raid1.c, raid10.c; 2.6.32-6.18";
    "md-cannot": ARRAY, "Cannot continue operation (<dec>/<dec> failed)"
        => Effect(Removed, Unclear), "raid5.c raid5_error(); 5.15-6.18";
    "md-cannot-start": ARRAY, "not enough operational <devices|mirrors>"
        => Effect(Removed, Unclear), "raid5.c setup_conf(), raid10.c raid10_run(); 2.6.32-6.18";
}

/// `Disk failure on sdb1, disabling device.`: after one uncorrected error, or on request (`mdadm
/// --fail`).
fn member_failed(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let parsed = member_of_array_failed(text)?;
    Some(ParsedRecord {
        other_name: Some(text.device.clone()).filter(|array| *array != parsed.device),
        ..parsed
    })
}

/// Many read errors without another cause: the member failed.
fn member_of_array_failed(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::new(text.devices.first()?.clone(), RecordKind::Cause(Removed, Unclear)))
}

/// `super_written gets error=-5`: the next record is about the member. A proposed form has the array
/// and the member in front.
fn superblock(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(match text.devices {
        [array, member] => ParsedRecord {
            other_name: Some(array.clone()),
            operation: Some(Operation::Write),
            ..ParsedRecord::new(member.clone(), RecordKind::Effect(Io, Unclear))
        },
        _ => ParsedRecord::new(DeviceName::Unnamed, RecordKind::Continuation),
    })
}

/// `read error corrected (8 sectors at 8952913016 on sdb1)`: the drive had an error, and md rewrote
/// the sectors.
fn corrected(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord { damaged: DamagedCopies::NONE, ..member_read_error(text)? })
}

/// `… (sector 2504656 on sdh1).`: the last number is the sector, counted from the member's start (md
/// adds the member's data offset).
fn member_read_error(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord {
        operation: Some(Operation::Read),
        sector: text.fields.last()?.parse().ok(),
        ..ParsedRecord::new(text.devices.first()?.clone(), RecordKind::Effect(Io, Unclear))
    })
}
