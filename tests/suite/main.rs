//! The in-process tests, in one program so that the library is linked once. `tests/kill9.rs` and
//! `tests/watchdog.rs` are separate programs: the first starts itself again, the second traces
//! another process's threads.
//!
//! Tests run in parallel in one process. A test must not change that process: no environment
//! variables, no working folder, no limits, no count of its own threads or descriptors.

mod api;
mod architecture;
mod config;
mod counters;
mod crds;
mod csi;
mod csi_driver;
mod csi_wire;
mod docs;
mod fleet;
mod hanging_volumes;
mod hosts;
mod impersonation;
mod interposer;
mod inventory;
mod kernel_flood;
mod kernel_log;
mod metrics;
mod node_report;
mod notify;
mod pictures;
mod plugin;
mod podmon;
mod recorded_tree;
mod registrar;
mod report;
mod rights;
mod smart;
mod store_faults;
mod workers;

#[path = "../support/child.rs"]
mod child;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/programs.rs"]
mod programs;
#[allow(dead_code, reason = "the benches use the rest of it")]
#[path = "../support/smartctl.rs"]
mod smartctl;
#[path = "../support/terminal.rs"]
mod terminal;
#[path = "../support/tmpfs.rs"]
mod tmpfs;
#[allow(dead_code, reason = "the benches use the rest of it")]
#[path = "../support/tree.rs"]
mod tree;
