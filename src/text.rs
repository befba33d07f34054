//! What every part may use to read and to write text: escaped and bounded text of others, errors with
//! their causes, durations, hashes, names and similar ones, and the delay before another attempt. Pure.

pub(crate) mod backoff;
pub(crate) mod causes;
pub(crate) mod duration;
pub(crate) mod echo;
pub(crate) mod hash;
pub(crate) mod naming;
pub(crate) mod similar;
