//! Damage to unmounted filesystems by changing bytes of the image. The position of a structure is
//! computed from the superblock. Checksums are recomputed where only the meaning of a value shall
//! be wrong.
//!
//! In: an image, a kind, a seed. Out: a description of the damage. Whether it is damage is decided
//! by the offline checker (`offline`).

pub mod btrfs;
pub mod btrfs_kinds;
pub mod bytes;
pub mod ext4;
pub mod ext4_kinds;
pub mod xfs;
pub mod xfs_kinds;

use std::path::Path;

use diskvitals_fscheck::Filesystem;

use super::random::Random;

/// A kind of damage to a filesystem whose layout `L` knows.
pub struct Kind<L> {
    pub name: &'static str,
    /// None: this filesystem has no structure that could be damaged in this manner.
    pub damage: fn(&L, &mut Random) -> Option<String>,
    /// For kinds that are not tried while mounted: the reason. Printed with each trial.
    pub unmounted_only: Option<&'static str>,
}

impl<L> Kind<L> {
    pub const fn new(name: &'static str, damage: fn(&L, &mut Random) -> Option<String>) -> Kind<L> {
        Kind { name, damage, unmounted_only: None }
    }

    pub const fn unmounted(
        name: &'static str,
        damage: fn(&L, &mut Random) -> Option<String>,
        why: &'static str,
    ) -> Kind<L> {
        Kind { name, damage, unmounted_only: Some(why) }
    }
}

/// Name, and why it is not tried while mounted.
pub fn kinds(filesystem: Filesystem) -> Vec<(&'static str, Option<&'static str>)> {
    fn listed<L>(kinds: &[Kind<L>]) -> Vec<(&'static str, Option<&'static str>)> {
        kinds.iter().map(|kind| (kind.name, kind.unmounted_only)).collect()
    }
    match filesystem {
        Filesystem::Ext4 => listed(ext4_kinds::KINDS),
        Filesystem::Xfs => listed(xfs_kinds::KINDS),
        Filesystem::Btrfs => listed(btrfs_kinds::KINDS),
    }
}

/// Damages `image`. Returns what was damaged; None where no structure is suitable.
pub fn damage(filesystem: Filesystem, kind: &str, image: &Path, seed: u64) -> Option<String> {
    fn by_name<L>(
        kinds: &[Kind<L>],
        name: &str,
        layout: &L,
        random: &mut Random,
    ) -> Option<String> {
        let kind = kinds
            .iter()
            .find(|kind| kind.name == name)
            .unwrap_or_else(|| panic!("no kind of damage is named {name}"));
        (kind.damage)(layout, random)
    }
    let mut random = Random::of(seed, kind);
    match filesystem {
        Filesystem::Ext4 => by_name(ext4_kinds::KINDS, kind, &ext4::Ext4::open(image), &mut random),
        Filesystem::Xfs => by_name(xfs_kinds::KINDS, kind, &xfs::Xfs::open(image), &mut random),
        Filesystem::Btrfs => {
            by_name(btrfs_kinds::KINDS, kind, &btrfs::Btrfs::open(image), &mut random)
        }
    }
}
