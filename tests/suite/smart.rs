//! What drives say of themselves, through the whole daemon: diskvitalsd on a recorded host, with a
//! smartctl that answers from files. Each test is a story of one drive, or of one kind of trouble
//! with the asking.

mod asking;
pub mod host;
mod life;
mod odd;
mod raid;
mod selftest;
