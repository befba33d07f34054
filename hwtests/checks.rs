//! Checks by the real daemon on real filesystems: what it answers, what it leaves alone, and what
//! is left when something or somebody dies in the middle.
mod support;

#[path = "checks/answers.rs"]
mod answers;
#[path = "checks/frozen.rs"]
mod frozen;
#[path = "checks/midway.rs"]
mod midway;
#[path = "checks/stage.rs"]
mod stage;
#[path = "checks/trouble.rs"]
mod trouble;
