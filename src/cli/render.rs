//! Answers as text for people. Each function is pure: wire messages and a `Screen` in, text out.

pub(crate) mod attachments;
pub(crate) mod causes;
pub(crate) mod checkmk;
pub(crate) mod checks;
pub(crate) mod drives;
pub(crate) mod errors;
pub(crate) mod explain;
mod figures;
pub(crate) mod findings;
pub(crate) mod formatting;
pub(crate) mod fsck;
pub(crate) mod kernel_log;
pub(crate) mod live;
pub(crate) mod nagios;
pub(crate) mod reasons;
pub(crate) mod smart;
pub(crate) mod status;
pub(crate) mod volumes;
pub(crate) mod watch;

#[cfg(test)]
mod tests;
