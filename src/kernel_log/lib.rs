//! The kernel log: classifies its records as incidents of drives and filesystems.
//!
//! In: records, in order. Out: `Event`s, one per incident. Pure: no clock, no I/O; `facts` assigns
//! device names to drives.
//!
//! In reading order: `record` (one record of /dev/kmsg), `rules` (the table: one `rule` per kernel
//! message), `parsed_record` (the result of a rule), `device_name` and `device_map` (names of one
//! device, and its kind), `scsi_sense` (SCSI codes), `incident` (records that belong together),
//! `classify` (the classifier), `fault` (whether the drive is to blame, over a whole log), `event`
//! (the result), `rollup` (fewer events), `error_history` (events of one subject, kept).

#![warn(unreachable_pub)]

pub mod classify;
mod device_map;
pub mod device_name;
pub mod error_history;
pub mod event;
pub mod fault;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;
mod incident;
pub mod parsed_record;
mod pattern;
pub mod raid_array;
pub mod record;
pub mod rollup;
mod rule;
pub mod rules;
mod scsi_sense;
#[cfg(test)]
mod tests;
