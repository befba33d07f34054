//! What the programs share that Prometheus scrapes: encoding of families, labels, the older text
//! format, and the server.
//!
//! In: samples, a function that answers. Out: text over HTTP. It knows no metric.

pub(crate) mod families;
pub(crate) mod label;
pub(crate) mod plain_text;
pub(crate) mod server;
