//! Rules for bcache: errors of the cache device and of the backing device.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, RuleFamily, rules};

const BCACHE: RuleFamily = DRIVE.with_prefix("bcache: ");
/// The second `bcache: ` is of 4.18 to 5.6; before, the function is missing.
const SET_ERROR: RuleFamily =
    BCACHE.with_prefix("bcache: {bch_cache_set_error() }{bcache: }error on <word>:");

// `bch_count_backing_io_errors() md3: Read-ahead I/O failed on backing device, ignore` has no row: a
// degraded array rejects read-ahead.
rules! {
    in "drivers/md/bcache/";
    "bcache-backing": BCACHE,
        "bch_count_backing_io_errors() <disk>: IO error on backing device, unrecoverable$"
        => Effect(Io, Unclear), "io.c bch_count_backing_io_errors(); 4.18-6.18";
    "bcache-cache": BCACHE, "bch_count_io_errors() <disk>: IO error on <reading|writing> "
        => Effect(Io, Unclear), "io.c bch_count_io_errors(); 3.10-6.18";
    "bcache-too-many": SET_ERROR, " <disk>: too many IO errors <reading|writing>"
        => Effect(Io, Unclear), "io.c bch_count_io_errors(); 3.10-6.18";
    // The middle of the record above.
    "bcache-too-many-part": DRIVE, "<disk>: too many IO errors <reading|writing> <words>$"
        => Effect(Io, Unclear), "super.c bch_cache_set_error(): a record of its own; 4.9-5.6";
    "bcache-too-many-backing": BCACHE,
        "bch_cached_dev_error() stop <disk>: too many IO errors on backing device <disk>$"
        => Effect(Io, Unclear), "super.c bch_cached_dev_error(); 4.18-6.18";
    "bcache-offline": BCACHE, "cached_dev_status_update() <disk>: device offline for <dec> seconds$"
        => Effect(Removed, Unclear), "super.c cached_dev_status_update(); 4.18-6.18";
    // The cache is disabled; the record does not contain its device.
    "bcache-set": SET_ERROR, ""
        => Cause(Removed, Unclear), "super.c bch_cache_set_error(); 3.10-6.18";
    "bcache-insert": BCACHE, "bch_btree_insert() error <dec>$"
        => Continuation, "btree.c bch_btree_insert(); 3.10-6.18";
}
