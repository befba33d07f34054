//! Whole days of asking, played in no time: smartctl, its drives and the owner are the test's.

mod controllers;
mod fake;
mod manners;
mod real;
mod trouble;
