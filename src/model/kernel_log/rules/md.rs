//! Rules for md: errors of array members, and of arrays.

use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::event::{DeviceName, Operation};
use crate::model::kernel_log::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Evidence, Rule};

pub(crate) const RULES: &[Rule] = &[
    DRIVE.with_evidence(Evidence::FailedByRedundancy).with_prefix("md/").rule(
        "md-failed",
        ": Disk failure on ",
        Parse(member_failed),
        "drivers/md/raid1.c, raid10.c raid1_error(), raid5.c raid5_error(), raid0.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("md: ").rule(
        "md-superblock",
        "gets error=",
        Parse(superblock),
        "drivers/md/md.c super_written(); 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-corrected",
        "read error corrected (",
        Parse(corrected),
        "drivers/md/raid1.c, raid10.c fix_read_error(), raid5.c raid5_end_read_request(); 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-not-corrected",
        "read error NOT corrected",
        Parse(member_read_error),
        "drivers/md/raid5.c raid5_end_read_request(), raid10.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-not-correctable",
        "read error not correctable",
        Parse(member_read_error),
        "drivers/md/raid5.c raid5_end_read_request(); 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-correction-write",
        "read correction write failed",
        Parse(member_read_error),
        "drivers/md/raid10.c fix_read_error(); 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-many",
        "Too many read errors, failing device ",
        Parse(too_many_read_errors),
        "drivers/md/raid5.c raid5_end_read_request(); 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-too-many",
        "Raid device exceeded read_error threshold",
        Parse(read_error_threshold),
        "drivers/md/raid10.c, raid1.c fix_read_error(); 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-lost",
        "unrecoverable I/O read error for block",
        Effect(Io, Unclear),
        "drivers/md/raid1.c raid1_read_request(), raid10.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-recovery-lost",
        "unrecoverable I/O error",
        Effect(Io, Unclear),
        "drivers/md/raid1.c, raid10.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-rescheduling",
        ": rescheduling sector ",
        Continuation,
        "drivers/md/raid1.c raid1_end_read_request(), raid10.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-redirecting",
        ": redirecting sector ",
        Continuation,
        "drivers/md/raid1.c, raid10.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("md: ").rule(
        "md-stale",
        "kicking non-fresh ",
        Ignore,
        "drivers/md/md.c analyze_sbs(); 3.10-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-cannot",
        "Cannot continue operation (",
        Effect(Removed, Unclear),
        "drivers/md/raid5.c raid5_error(); 5.15-6.18",
    ),
    DRIVE.with_prefix("md/").rule(
        "md-cannot-start",
        "not enough operational ",
        Effect(Removed, Unclear),
        "drivers/md/raid5.c setup_conf(), raid10.c raid10_run(); 3.10-6.18",
    ),
];

/// `Disk failure on sdb1, disabling device.`: after one uncorrected error, or on request (`mdadm
/// --fail`).
fn member_failed(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let array = device_name::find_in_text(text.all).0;
    Some(ParsedRecord {
        other_name: Some(array),
        ..ParsedRecord::new(
            device_name::parse_block(text.after)?,
            RecordKind::Cause(Removed, Unclear),
        )
    })
}

/// `super_written gets error=-5`, `super_written gets error=10`; since 5.10 some records contain
/// the member.
fn superblock(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let device = text
        .before
        .split_once("md: ")
        .map_or("", |(_, rest)| rest)
        .split(' ')
        .next()
        .filter(|name| *name != "super_written");
    match device.and_then(device_name::parse_block) {
        Some(device) => Some(ParsedRecord {
            operation: Some(Operation::Write),
            ..ParsedRecord::new(device, RecordKind::Effect(Io, Unclear))
        }),
        None => Some(ParsedRecord::new(
            DeviceName::Unnamed,
            RecordKind::Continuation,
        )),
    }
}

/// `read error corrected (8 sectors at 8952913016 on sdb1)`: the drive had an error, and md rewrote
/// the sectors.
fn corrected(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let device = text
        .after
        .split_once(" on ")
        .and_then(|(_, rest)| device_name::parse_block(rest))?;
    Some(ParsedRecord {
        corrected: true,
        operation: Some(Operation::Read),
        ..ParsedRecord::new(device, RecordKind::Effect(Io, Unclear))
    })
}

/// `… (sector 2504656 on sdh1).`; the sector counts from the member's data, not from the disk's
/// start.
fn member_read_error(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let device = text
        .after
        .rsplit(" on ")
        .next()
        .and_then(device_name::parse_block)?;
    Some(ParsedRecord {
        operation: Some(Operation::Read),
        ..ParsedRecord::new(device, RecordKind::Effect(Io, Unclear))
    })
}

/// Many read errors without another cause: the member failed.
fn too_many_read_errors(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::new(
        device_name::parse_block(text.after)?,
        RecordKind::Cause(Removed, Unclear),
    ))
}

fn read_error_threshold(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let device = text
        .before
        .trim_end_matches([':', ' '])
        .rsplit([':', ' '])
        .next()
        .and_then(device_name::parse_block)?;
    Some(ParsedRecord::new(
        device,
        RecordKind::Cause(Removed, Unclear),
    ))
}
