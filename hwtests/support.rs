//! What the tests on the real kernel share: a testbed (a directory with a kubelet's records,
//! images, loop devices and mounts that is always removed), the daemon on it, and a client of the
//! daemon.

// Each test program uses a part of this.
#![allow(dead_code, unused_imports)]

pub mod checkers;
pub mod client;
pub mod corrupt;
pub mod csi_calls;
pub mod daemon;
pub mod damage;
pub mod digest;
pub mod fuse;
pub mod kubelet;
pub mod lane;
pub mod load;
pub mod monitor;
pub mod offline;
pub mod populate;
pub mod random;
pub mod receiver;
pub mod shim;
pub mod testbed;
pub mod tools;
pub mod wait;

pub use client::{Client, Watcher};
pub use daemon::Daemon;
pub use fuse::{FuseServer, Mode};
pub use kubelet::Kubelet;
pub use monitor::Monitor;
pub use testbed::{Disk, Testbed};
pub use wait::{a_later_second, eventually, pause};

/// How long a finding may take to appear or to clear here: probes come every second, and the
/// machine may be busy with other things.
pub const SOON: std::time::Duration = std::time::Duration::from_secs(45);
