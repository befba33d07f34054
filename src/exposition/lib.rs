//! What the programs share that Prometheus scrapes: encoding of families, labels, the older text
//! format, and the server.
//!
//! In: samples, a function that answers. Out: text over HTTP. It knows no metric.

#![warn(unreachable_pub)]

pub mod families;
pub mod label;
pub mod plain_text;
pub mod server;
