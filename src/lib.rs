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
//! Modules in reading order: [`model`] (what things are, and when one is bad), [`host`] (the only
//! access to the operating system), [`source`] (one module per external thing), [`state`] (the owner
//! and its history), [`api`] (its answers), [`wire`] (messages, and the client), [`cli`] (for people), [`csi`] (for Kubernetes),
//! [`metrics`] (for Prometheus), [`notifier`] (mail and webhooks), [`plugin`] (for kubectl),
//! [`config`], [`logging`], [`app`].

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
