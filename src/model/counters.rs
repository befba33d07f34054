//! Counters that the kernel keeps of errors, beside its log: what they are, and which have grown. Pure.
//!
//! In: readings. Out: what grew, since when. A counter that went back is another device, a reload or a reset: it begins anew, nothing grew.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Whose counters these are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
pub enum Counted {
    /// A block device or a filesystem on it, by kernel name (`sda`, `dm-3`, `md0`).
    Block(String),
    /// An NVMe controller: `nvme0`.
    Nvme(String),
    /// A PCI function: `0000:03:00.0`.
    Pci(String),
}

/// The counters of one kind of one thing, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub of: Counted,
    /// `scsi`, `ext4`, `xfs`, `btrfs`, `md`, `multipath`, `bcache`, `nvme`, `aer`.
    pub source: String,
    /// Where they were read, for evidence.
    pub file: String,
    /// By the kernel's own name of each (`ioerr_cnt`, `errors_count`, `write_errs`). XFS's sick bits are values too, one a bit.
    pub values: BTreeMap<String, u64>,
    /// What goes with them, verbatim, name and value (`first_error_time`, `last_error_func`).
    pub details: BTreeMap<String, String>,
}
