//! Offline analysis: what a file says, without a daemon. The same rules as the daemon's: here is only how files are read.
//!
//! In: files, standard input. Out: answers as values, which the command line prints. May use the model, and nothing else of ours.

pub mod answer;
mod form;
mod input;
mod journal;
mod log;
#[cfg(test)]
mod tests;

pub use input::Source;
pub use log::kernel_log;
pub use log::kernel_log_of;
