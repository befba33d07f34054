//! The daemon's metrics, in OpenMetrics and in Prometheus' older text format, over HTTP on one
//! address that an admin names.
//!
//! In: the newest snapshot. Out: text. `view` says which families there are and what they hold,
//! `text` turns the one format into the other, `kept` has it written once for all who ask for the
//! same, `serve` answers scrapes. A text is made of the snapshot alone: it touches no device, no
//! mount and no file, and what is gone from the snapshot is gone from the answer. The names are
//! documented in docs/metrics.md.

pub mod plain_text;
pub mod scrape_cache;
pub mod serve;
pub mod view;

pub use crate::metrics::view::Node;
