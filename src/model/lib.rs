//! Plain data and pure judgement: what a drive, a block device, a mount, a volume and a finding
//! are, and when one is bad.
//!
//! Comes in: values that sources report. Goes out: findings and verdicts.
//! May not enter: clocks, I/O, channels, logging, wire types. Time is always an argument.

#![warn(unreachable_pub)]

pub mod advice;
pub mod assess;
pub mod block;
pub mod care;
pub mod cause;
pub mod clean_order;
pub mod cleanup;
pub mod condition;
pub mod cordon;
pub mod counters;
pub mod drive;
pub mod facts;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;
pub mod graph;
pub mod label;
pub mod lamp;
pub mod ledger;
pub mod link;
pub mod maintenance;
pub mod membership;
pub mod model_statistics;
pub mod node_failure;
pub mod policy;
pub mod probe;
pub mod raid_report;
pub mod redundancy;
pub mod removal;
pub mod replacement;
pub mod signature;
pub mod snapshot;
pub mod snapshot_builder;
pub mod source_update;
pub mod space_history;
pub mod stack;
pub mod stale;
pub mod storage;
pub mod superblock;
pub mod timeline;
pub mod volume;
