//! Offline analysis: reads files without a daemon and judges them by the daemon's rules. Only the
//! reading of files is here.
//!
//! In: files, standard input. Out: results as values, which the command line prints. Depends on the
//! model only.

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
