//! SMART data through the whole daemon: diskvitalsd on a recorded host, with a smartctl that
//! answers from files. Each test covers one drive or one kind of query failure.

mod asking;
pub mod host;
mod life;
mod odd;
mod raid;
mod selftest;
