//! bcache: errors of its cache and of what it caches.

use crate::model::kernel::event::Blame::*;
use crate::model::kernel::event::Class::*;
use crate::model::kernel::event::Device;
use crate::model::kernel::name;
use crate::model::kernel::said::Says::*;
use crate::model::kernel::said::{Part, Rule, Said, Text, rule};

pub const RULES: &[Rule] = &[
    rule(
        "bcache-backing-ahead",
        "",
        "Read-ahead I/O failed on backing device, ignore",
        Harmless,
        "drivers/md/bcache/io.c bch_count_backing_io_errors(); 5.0-6.18",
    ),
    rule(
        "bcache-backing",
        "",
        "IO error on backing device, unrecoverable",
        Read(before_colon),
        "drivers/md/bcache/io.c bch_count_backing_io_errors(); 4.18-6.18",
    ),
    rule(
        "bcache-cache",
        "",
        "bch_count_io_errors()",
        Read(after),
        "drivers/md/bcache/io.c bch_count_io_errors(); 3.10-6.18",
    ),
    rule(
        "bcache-too-many",
        "",
        "too many IO errors",
        Read(before_colon),
        "drivers/md/bcache/io.c bch_count_io_errors(); 3.10-6.18",
    ),
    rule(
        "bcache-set",
        "",
        "bch_cache_set_error()",
        Read(set),
        "drivers/md/bcache/super.c bch_cache_set_error(); 3.10-6.18",
    ),
    rule(
        "bcache-insert",
        "",
        "bch_btree_insert() error",
        Follow,
        "drivers/md/bcache/btree.c bch_btree_insert(); 3.10-6.18",
    ),
];

/// `bcache: bch_count_io_errors() nvme0n1p56: IO error on writing btree.`
fn after(text: &Text<'_>) -> Option<Said> {
    let device = name::block(text.after.trim_start_matches([' ', ':'])).or_else(|| {
        name::block(
            text.before
                .trim_end_matches([':', ' '])
                .rsplit(' ')
                .next()?,
        )
    })?;
    Some(Said::new(device, Part::Effect(Io, Unclear)))
}

/// `error on UUID: nvme0n1p5: too many IO errors reading, disabling caching`
fn before_colon(text: &Text<'_>) -> Option<Said> {
    let device = name::block(
        text.before
            .trim_end_matches([' ', ':'])
            .rsplit(' ')
            .next()?,
    )?;
    Some(Said::new(device, Part::Effect(Io, Unclear)))
}

/// The cache is given up; what it is made of is not named.
fn set(_: &Text<'_>) -> Option<Said> {
    Some(Said::new(Device::Unnamed, Part::Cause(Removed, Unclear)))
}
