//! The only access to the operating system: files of the host, processes, namespaces, memory.
//!
//! In: paths on the host. Out: bytes, errors, exit statuses. Does not depend on drives, volumes,
//! health or wire types.

#![warn(unreachable_pub)]

pub mod async_fd;
pub mod block;
pub mod blocking;
pub mod btrfs;
pub mod clock;
pub mod detached;
pub mod dm;
pub mod exec;
pub mod fanotify;
pub mod file_watch;
pub mod freeze;
#[cfg(target_env = "gnu")]
pub mod heap;
pub mod helper;
pub mod images;
pub mod intents;
pub mod jail;
mod kernel_structs;
pub mod listen;
pub mod listen_address;
pub mod lock_file;
pub mod loops;
pub mod memory;
pub mod mount_tables;
pub mod mounting;
pub mod namespace;
pub mod nvme;
pub mod openers;
pub mod own_cgroup;
pub mod peer;
pub mod process;
pub mod random;
pub mod resize;
pub mod resolve_beneath;
pub mod root;
pub mod signals;
pub mod subordinate_uids;
mod sys;
pub mod terminal;
pub mod timer_grid;
pub mod trusted_file;
pub mod worker_pool;
pub mod xfs;
