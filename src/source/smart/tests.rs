//! Whole days of asking, played in no time: smartctl, its drives and the owner are the test's.

mod controllers;
mod failures;
mod fake;
mod real_smartctl;
mod scheduling;
