//! Plain data and pure judgement: what a drive, a block device, a mount, a volume and a finding
//! are, and when one is bad.
//!
//! Comes in: values that sources report. Goes out: findings and verdicts.
//! May not enter: clocks, I/O, channels, logging, wire types. Time is always an argument.

pub mod advice;
pub(crate) mod assess;
pub mod block;
pub mod btrfs_space;
pub mod cause;
pub mod check;
pub mod clean_order;
pub(crate) mod cleanup;
pub(crate) mod condition;
pub(crate) mod cordon;
pub mod counters;
pub mod dev;
pub mod drive;
pub mod facts;
pub mod failure_domain;
pub mod finding;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod graph;
pub mod ids;
pub mod kernel_log;
pub mod kubelet;
pub(crate) mod label;
pub(crate) mod ledger;
pub mod model_statistics;
pub(crate) mod mount;
pub(crate) mod node_failure;
pub mod observation;
pub(crate) mod origin;
pub mod path;
pub mod policy;
pub mod probe;
pub mod provision;
pub mod reason;
pub(crate) mod redundancy;
pub mod severity;
pub(crate) mod size;
pub mod smart;
pub mod snapshot;
pub(crate) mod snapshot_builder;
pub mod source;
pub mod source_update;
pub mod space_history;
pub mod stale;
pub(crate) mod storage;
pub mod superblock;
pub(crate) mod timeline;
pub(crate) mod timing;
pub mod volume;
