//! Storage stacks: one kind of what lies between drives and filesystems a file.

mod btrfs;
mod dm_raid;
mod md;
mod multipath;
mod thin;

pub use btrfs::{BtrfsFs, BtrfsMember, PulledMember, ReturnedMember};
pub use dm_raid::DmRaid;
pub use md::{MdMember, MdState};
pub use multipath::{Multipath, MultipathPath};
pub use thin::ThinPool;
