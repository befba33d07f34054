//! The kernel log as testimony: what its records say of drives and filesystems.
//!
//! In: records, one after the other. Out: `Event`s, one an incident. Pure: no clock, no I/O; which drive a name means is for `facts` to say.

pub mod classify;
pub mod event;
pub mod record;
pub mod rollup;
