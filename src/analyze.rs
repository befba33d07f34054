//! Offline analysis: what a file says, without a daemon. The same rules as the daemon's: here is
//! only how files are read.
//!
//! In: files, standard input. Out: answers as values, which the command line prints. May use the
//! model, and nothing else of ours.

pub mod answer;
mod form;
pub mod fsck;
mod input;
mod journal;
mod log;
pub mod smart;
#[cfg(test)]
mod tests;

pub use fsck::fsck;
pub use input::Source;
pub use log::{kernel_log, kernel_log_of};
pub use smart::smart;
