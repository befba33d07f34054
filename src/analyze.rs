//! Offline analysis: what a file says, without a daemon. The same rules as the daemon's: here is
//! only how files are read.
//!
//! In: files, standard input. Out: answers as values, which the command line prints. May use the
//! model, and nothing else of ours.

pub mod fsck;
mod input_source;
mod journal;
pub mod kernel_log_analysis;
mod line_format;
mod log_analyzer;
pub mod smart;
#[cfg(test)]
mod tests;

pub use fsck::fsck;
pub use input_source::InputSource;
pub use log_analyzer::{kernel_log, kernel_log_from};
pub use smart::smart;
