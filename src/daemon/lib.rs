//! The daemon: one per node. `state` is the owner of all that is known, `api` answers from its snapshots,
//! `metrics` writes them for Prometheus, `app` puts sources, owner and servers together.
//!
//! Data flows one way:
//!
//! ```text
//! sources ─SourceUpdate─> state (one owner task) ──watch<Arc<Snapshot>>──> api ──gRPC──> clients; metrics
//!    ^                     │    assess(facts, policy, now): pure
//!    └─────── Request ─────┘    store: SQLite, written for the owner only
//! ```

#![warn(unreachable_pub)]

pub mod api;
pub mod app;
pub mod metrics;
pub mod state;
