//! Checks by the real daemon on real filesystems: their verdicts, what they leave untouched, and
//! what remains when a process or device fails during a check.

mod device_loss;
mod failures;
pub(crate) mod fixture;
mod freezing;
mod verdicts;
