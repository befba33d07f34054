//! The kernel log as testimony: what its records say of drives and filesystems.
//!
//! In: records, one after the other. Out: `Event`s, one an incident. Pure: no clock, no I/O; which
//! drive a name means is for `facts` to say.
//!
//! In reading order: `record` (what /dev/kmsg gives), `rules` (the table: one row a printk), `said`
//! (what a row reads out of a record), `name` and `learned` (which names mean the same thing, and
//! what kind of thing), `sense` (SCSI's words), `incident` (records that belong together),
//! `classify` (the loop), `fault` (whether the drive is to blame, over a whole log), `event` (what
//! comes out).

pub mod classify;
mod device_map;
pub mod device_name;
pub mod error_history;
pub mod event;
pub mod fault;
mod incident;
mod parsed_record;
pub mod record;
pub mod rollup;
mod rule;
pub mod rules;
mod scsi_sense;
#[cfg(test)]
mod tests;
