//! The composition root: settings, then sockets and locks, then tasks, then waiting for the end.

pub mod options;
pub mod reload;
