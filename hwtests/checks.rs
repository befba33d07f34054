//! Checks by the real daemon on real filesystems: what it answers, what it leaves alone, and what
//! is left when something or somebody dies in the middle.

mod answers;
mod frozen;
mod midway;
mod stage;
mod trouble;
