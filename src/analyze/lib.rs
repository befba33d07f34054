//! Offline analysis: reads files without a daemon and judges them by the daemon's rules. This
//! module only reads the files; the rules are in `model`.
//!
//! In: files, standard input. Out: results as values, which the command line prints. Depends on
//! `model` only.

mod clean_text;
mod continuation;
mod coverage;
mod framing;
pub mod fsck;
mod input_source;
pub mod io;
mod journal;
pub mod kernel_log_analysis;
mod kernel_words;
mod line_format;
mod log_analyzer;
mod quoted_printable;
pub mod smart;
#[cfg(test)]
mod tests;
mod unwrap;

/// Exit status where the input allows no answer, as of a monitoring plugin and of `check`.
pub const EXIT_UNKNOWN: u8 = 3;

pub use fsck::fsck;
pub use input_source::InputSource;
pub use io::io;
pub use log_analyzer::{kernel_log, kernel_log_from};
pub use smart::smart;
