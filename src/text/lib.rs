//! What every part may use to read and to write text: escaped and bounded text of others, errors with
//! their causes, durations, hashes, names and similar ones, and the delay before another attempt. Pure.

#![warn(unreachable_pub)]

pub mod backoff;
pub mod causes;
pub mod duration;
pub mod echo;
pub mod hash;
pub mod naming;
pub mod pattern;
pub mod setting;
pub mod similar;
pub mod size;
