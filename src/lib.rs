//! diskvitals: one daemon per node that monitors the health of its drives, filesystems and volumes.
//!
//! Data flows one way:
//!
//! ```text
//! sources ─SourceUpdate─> state (one owner task) ──watch<Arc<Snapshot>>──> api ──gRPC──> CLI, shim; metrics
//!    ^                     │    assess(facts, policy, now): pure
//!    └─────── Request ─────┘    store: SQLite, written for the owner only
//! ```
//!
//! This package is the daemon and the command line. What they share with the other programs are members of
//! the workspace: ARCHITECTURE.md has the map. Modules in reading order: [`source`] (one module per
//! external thing), [`state`] (the owner and its history), [`api`] (its answers), [`metrics`] (for
//! Prometheus), [`provision`] (volumes that this node creates), [`app`] (puts the daemon together), [`cli`]
//! (for people), [`analyze`] and [`checker`] (for both).

// Items are `pub` for the programs, the tests and the benches. All others are `pub(crate)`, so that
// the compiler reports unused ones.
#![warn(unreachable_pub)]
// Without the daemon, much of what only it uses is left.
#![cfg_attr(not(feature = "daemon"), allow(dead_code, unreachable_pub, unused_imports))]

pub mod analyze;
pub mod api;
#[cfg(feature = "daemon")]
pub mod app;
pub mod checker;
pub mod cli;
pub(crate) mod config;
#[cfg(any(fuzzing, all(test, feature = "daemon", feature = "notify", feature = "shim")))]
pub mod fuzz;
pub(crate) mod metrics;
pub mod provision;
pub mod source;
pub mod state;
