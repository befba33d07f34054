//! Tests on this machine's kernel: root, loop devices, FUSE, mounts. They form one program, so that
//! the library is linked once. Run it with --test-threads=1, because the tests share the kernel's
//! loop devices; `hwtests/lanes` runs all of them, in lanes beside each other that do not share
//! them.
//!
//! `hwtests/uevents.rs` is a separate program: it binds its threads to a processor and counts them.

mod attacks;
mod care;
mod checker;
mod checks;
mod counters;
mod csi;
mod daemon;
mod device_failures;
mod first_probe;
mod freeze;
mod fs_errors;
mod kernel_errors;
mod kill9;
mod many_volumes;
mod node_failure;
mod probe_side_effects;
#[path = "../tests/support/programs.rs"]
mod programs;
mod provision_daemon;
mod provision_steps;
mod recorded_errors;
mod software_devices;
mod volumes;

mod support;
