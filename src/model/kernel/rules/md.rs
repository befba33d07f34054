//! md: what redundancy says of its members, and of itself.

use crate::model::kernel::event::Blame::*;
use crate::model::kernel::event::Class::*;
use crate::model::kernel::event::{Device, Operation};
use crate::model::kernel::name;
use crate::model::kernel::said::Says::*;
use crate::model::kernel::said::{Part, Rule, Said, Text, rule};

pub const RULES: &[Rule] = &[
    rule(
        "md-failed",
        "md/",
        ": Disk failure on ",
        Read(failed),
        "drivers/md/raid1.c, raid10.c raid1_error(), raid5.c raid5_error(), raid0.c; 3.10-6.18",
    ),
    rule(
        "md-superblock",
        "md: ",
        "gets error=",
        Read(superblock),
        "drivers/md/md.c super_written(); 3.10-6.18",
    ),
    rule(
        "md-corrected",
        "md/",
        "read error corrected (",
        Read(corrected),
        "drivers/md/raid1.c, raid10.c fix_read_error(), raid5.c raid5_end_read_request(); 3.10-6.18",
    ),
    rule(
        "md-not-corrected",
        "md/",
        "read error NOT corrected",
        Read(member),
        "drivers/md/raid5.c raid5_end_read_request(), raid10.c; 3.10-6.18",
    ),
    rule(
        "md-not-correctable",
        "md/",
        "read error not correctable",
        Read(member),
        "drivers/md/raid5.c raid5_end_read_request(); 3.10-6.18",
    ),
    rule(
        "md-correction-write",
        "md/",
        "read correction write failed",
        Read(member),
        "drivers/md/raid10.c fix_read_error(); 3.10-6.18",
    ),
    rule(
        "md-many",
        "md/",
        "Too many read errors, failing device ",
        Read(too_many),
        "drivers/md/raid5.c raid5_end_read_request(); 3.10-6.18",
    ),
    rule(
        "md-too-many",
        "md/",
        "Raid device exceeded read_error threshold",
        Read(threshold),
        "drivers/md/raid10.c, raid1.c fix_read_error(); 3.10-6.18",
    ),
    rule(
        "md-lost",
        "md/",
        "unrecoverable I/O read error for block",
        Effect(Io, Unclear),
        "drivers/md/raid1.c raid1_read_request(), raid10.c; 3.10-6.18",
    ),
    rule(
        "md-recovery-lost",
        "md/",
        "unrecoverable I/O error",
        Effect(Io, Unclear),
        "drivers/md/raid1.c, raid10.c; 3.10-6.18",
    ),
    rule(
        "md-rescheduling",
        "md/",
        ": rescheduling sector ",
        Follow,
        "drivers/md/raid1.c raid1_end_read_request(), raid10.c; 3.10-6.18",
    ),
    rule(
        "md-redirecting",
        "md/",
        ": redirecting sector ",
        Follow,
        "drivers/md/raid1.c, raid10.c; 3.10-6.18",
    ),
    rule(
        "md-stale",
        "md: ",
        "kicking non-fresh ",
        Harmless,
        "drivers/md/md.c analyze_sbs(); 3.10-6.18",
    ),
    rule(
        "md-cannot",
        "md/",
        "Cannot continue operation (",
        Effect(Removed, Unclear),
        "drivers/md/raid5.c raid5_error(); 5.15-6.18",
    ),
    rule(
        "md-cannot-start",
        "md/",
        "not enough operational ",
        Effect(Removed, Unclear),
        "drivers/md/raid5.c setup_conf(), raid10.c raid10_run(); 3.10-6.18",
    ),
];

/// `Disk failure on sdb1, disabling device.`: of one error that was not corrected, or by hand
/// (`mdadm --fail`).
fn failed(text: &Text<'_>) -> Option<Said> {
    let array = name::named(text.all).0;
    Some(Said {
        also: Some(array),
        ..Said::new(name::block(text.after)?, Part::Cause(Removed, Unclear))
    })
}

/// `super_written gets error=-5`, `super_written gets error=10`; since 5.10 the member is named by
/// some.
fn superblock(text: &Text<'_>) -> Option<Said> {
    let device = text
        .before
        .split_once("md: ")
        .map_or("", |(_, rest)| rest)
        .split(' ')
        .next()
        .filter(|name| *name != "super_written");
    match device.and_then(name::block) {
        Some(device) => Some(Said {
            operation: Some(Operation::Write),
            ..Said::new(device, Part::Effect(Io, Unclear))
        }),
        None => Some(Said::new(Device::Unnamed, Part::Follow)),
    }
}

/// `read error corrected (8 sectors at 8952913016 on sdb1)`: the drive had an error, and has been
/// written anew.
fn corrected(text: &Text<'_>) -> Option<Said> {
    let device = text
        .after
        .split_once(" on ")
        .and_then(|(_, rest)| name::block(rest))?;
    Some(Said {
        corrected: true,
        operation: Some(Operation::Read),
        ..Said::new(device, Part::Effect(Io, Unclear))
    })
}

/// `… (sector 2504656 on sdh1).`; the sector is of the member's data, not of the disk.
fn member(text: &Text<'_>) -> Option<Said> {
    let device = text.after.rsplit(" on ").next().and_then(name::block)?;
    Some(Said {
        operation: Some(Operation::Read),
        ..Said::new(device, Part::Effect(Io, Unclear))
    })
}

/// Many read errors that nothing else explains: the member's.
fn too_many(text: &Text<'_>) -> Option<Said> {
    Some(Said::new(
        name::block(text.after)?,
        Part::Cause(Removed, Unclear),
    ))
}

fn threshold(text: &Text<'_>) -> Option<Said> {
    let device = text
        .before
        .trim_end_matches([':', ' '])
        .rsplit([':', ' '])
        .next()
        .and_then(name::block)?;
    Some(Said::new(device, Part::Cause(Removed, Unclear)))
}
