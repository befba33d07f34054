//! Damage to filesystems that are not mounted, by bytes of the image: where a structure lies is
//! computed from the superblock, and checksums are recomputed where damage must be one that only
//! its meaning gives away.
//!
//! In: an image, a kind, a seed. Out: what was damaged, in words. Whether it is damage is for the
//! offline checker to say (`offline`).

pub mod btrfs;
pub mod btrfs_kinds;
pub mod bytes;
pub mod ext4;
pub mod ext4_kinds;
pub mod xfs;
pub mod xfs_kinds;

use std::path::Path;

use diskvitals::model::check::Filesystem;

use super::random::Random;

/// One way of damaging a filesystem that `L` can read.
pub struct Kind<L> {
    pub name: &'static str,
    /// None: there is nothing here that could be damaged so.
    pub damage: fn(&L, &mut Random) -> Option<String>,
    /// Told of each trial: of what is not tried while mounted, why.
    pub unmounted_only: Option<&'static str>,
}

impl<L> Kind<L> {
    pub const fn new(name: &'static str, damage: fn(&L, &mut Random) -> Option<String>) -> Kind<L> {
        Kind {
            name,
            damage,
            unmounted_only: None,
        }
    }

    pub const fn unmounted(
        name: &'static str,
        damage: fn(&L, &mut Random) -> Option<String>,
        why: &'static str,
    ) -> Kind<L> {
        Kind {
            name,
            damage,
            unmounted_only: Some(why),
        }
    }
}

/// Name, and why it is not to be tried while mounted.
pub fn kinds(filesystem: Filesystem) -> Vec<(&'static str, Option<&'static str>)> {
    fn listed<L>(kinds: &[Kind<L>]) -> Vec<(&'static str, Option<&'static str>)> {
        kinds
            .iter()
            .map(|kind| (kind.name, kind.unmounted_only))
            .collect()
    }
    match filesystem {
        Filesystem::Ext4 => listed(ext4_kinds::KINDS),
        Filesystem::Xfs => listed(xfs_kinds::KINDS),
        Filesystem::Btrfs => listed(btrfs_kinds::KINDS),
    }
}

/// Damages `image`. Out: what was damaged; None where nothing suits.
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
        Filesystem::Ext4 => by_name(
            ext4_kinds::KINDS,
            kind,
            &ext4::Ext4::open(image),
            &mut random,
        ),
        Filesystem::Xfs => by_name(xfs_kinds::KINDS, kind, &xfs::Xfs::open(image), &mut random),
        Filesystem::Btrfs => by_name(
            btrfs_kinds::KINDS,
            kind,
            &btrfs::Btrfs::open(image),
            &mut random,
        ),
    }
}
