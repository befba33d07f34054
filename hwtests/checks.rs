//! Checks by the real daemon on real filesystems: what it answers, what it leaves alone, and what
//! is left when something or somebody dies in the middle.

mod device_loss;
mod failures;
mod fixture;
mod freezing;
mod verdicts;
