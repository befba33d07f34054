//! Answers as text for people. Each function is pure: wire messages and a `Screen` in, text out.

pub mod attachments;
pub(crate) mod care;
pub mod causes;
pub mod checkmk;
pub mod checks;
pub mod config;
pub(crate) mod doctor;
pub mod drives;
pub mod errors;
pub mod explain;
mod figures;
pub mod findings;
pub mod formatting;
pub mod fsck;
pub mod io;
pub mod kernel_log;
pub(crate) mod lamps;
pub mod live;
pub(crate) mod maintenance;
pub mod nagios;
pub mod reasons;
pub(crate) mod removal;
pub mod smart;
pub mod status;
pub mod volumes;
pub mod watch;

#[cfg(test)]
mod tests;
