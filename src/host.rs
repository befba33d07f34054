//! The only access to the operating system: files of the host, processes, namespaces, memory.
//!
//! In: paths as the host names them. Out: bytes, errors, exit statuses. Knows nothing of drives,
//! volumes, health or wire types.

pub mod async_fd;
pub mod block;
pub mod blocking;
pub mod btrfs;
pub mod clock;
pub mod dm;
pub mod exec;
pub mod fanotify;
pub mod freeze;
pub mod helper;
pub mod images;
pub mod intents;
pub mod jail;
pub mod listen;
pub mod loops;
pub mod memory;
pub mod mounting;
pub mod namespace;
pub mod nvme;
pub mod openers;
pub mod own_cgroup;
pub mod process;
pub mod random;
pub mod resize;
pub mod resolve_beneath;
pub mod root;
pub mod signals;
mod sys;
pub mod worker_pool;
pub mod xfs;
