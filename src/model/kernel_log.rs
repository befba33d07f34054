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

pub mod classify;
mod device_map;
pub(crate) mod device_name;
pub(crate) mod error_history;
pub(crate) mod event;
pub(crate) mod fault;
mod incident;
pub(crate) mod parsed_record;
mod pattern;
pub mod record;
pub(crate) mod rollup;
mod rule;
pub(crate) mod rules;
mod scsi_sense;
#[cfg(test)]
mod tests;
