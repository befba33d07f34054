//! The only access to the operating system: files of the host, processes, namespaces, memory.
//!
//! In: paths on the host. Out: bytes, errors, exit statuses. Does not depend on drives, volumes,
//! health or wire types.

pub(crate) mod async_fd;
pub(crate) mod block;
pub(crate) mod blocking;
pub(crate) mod btrfs;
pub mod clock;
pub(crate) mod dm;
pub(crate) mod exec;
pub(crate) mod fanotify;
pub(crate) mod file_watch;
pub mod freeze;
#[cfg(target_env = "gnu")]
pub(crate) mod heap;
pub mod helper;
pub(crate) mod images;
pub mod intents;
pub mod jail;
mod kernel_structs;
pub mod listen;
pub mod listen_address;
pub(crate) mod lock_file;
pub mod loops;
pub(crate) mod memory;
pub(crate) mod mount_tables;
pub(crate) mod mounting;
pub(crate) mod namespace;
pub(crate) mod nvme;
pub(crate) mod openers;
pub(crate) mod own_cgroup;
pub(crate) mod peer;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod resize;
pub(crate) mod resolve_beneath;
pub mod root;
pub(crate) mod signals;
pub mod subordinate_uids;
mod sys;
pub(crate) mod terminal;
pub(crate) mod trusted_file;
pub mod worker_pool;
pub mod xfs;
