//! What drives say of themselves, through the whole daemon: diskvitalsd on a recorded host, with a
//! smartctl that answers from files. Each test is a story of one drive, or of one kind of trouble
//! with the asking.

mod asking;
#[path = "../support/child.rs"]
mod child;
mod host;
mod life;
mod odd;
mod raid;
mod selftest;
#[allow(dead_code, reason = "the benches use the rest of it")]
#[path = "../support/smartctl.rs"]
mod smartctl;
#[allow(dead_code, reason = "the benches use the rest of it")]
#[path = "../support/tree.rs"]
mod tree;
