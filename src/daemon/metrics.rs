//! The daemon's metrics, in OpenMetrics and in Prometheus' older text format, over HTTP on one
//! address that an admin configures.
//!
//! In: the newest snapshot. Out: text. `view` defines the families and their values,
//! `scrape_cache` renders each snapshot once for all scrapes, `serve` answers scrapes. Rendering reads the snapshot only: no device, no mount,
//! no file. A series ends when its subject leaves the snapshot. docs/metrics.md documents the names.

pub mod scrape_cache;
pub mod serve;
pub mod view;

pub use crate::metrics::view::Node;
