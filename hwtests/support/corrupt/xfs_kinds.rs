//! Kinds of damage to an XFS. Those named `…-value` have correct checksums: only their meaning is
//! wrong.

use super::super::random::Random;
use super::Kind;
use super::bytes::{be16, be32, be64, put};
use super::xfs::{self, Extent, Inode, Xfs, entries, pack};

pub const KINDS: &[Kind<Xfs>] = &[
    Kind::new("superblock-copy-zeroed", |fs, random| {
        let ag = random.between(1, fs.ags - 1);
        fs.image.zero(fs.header_at(ag, 0), 512);
        Some(format!("the superblock's copy of AG {ag} is all zeros"))
    }),
    Kind::new("superblock-copy-bit", |fs, random| {
        let ag = random.between(1, fs.ags - 1);
        let byte = fs.image.flip(fs.header_at(ag, 0), 4, 124, random);
        Some(format!("a bit of byte {byte} of the superblock's copy of AG {ag}"))
    }),
    Kind::new("agf-bit", |fs, random| header_bit(fs, random, 1, "AGF", 16, 60)),
    Kind::new("agf-checksum", |fs, random| header_bit(fs, random, 1, "AGF", 216, 220)),
    Kind::new("agf-zeroed", |fs, random| header_zeroed(fs, random, 1, "AGF")),
    Kind::new("agf-free-value", |fs, random| {
        header_value(fs, random, (1, "AGF", xfs::AGF), 52, |free| free + 17, "free blocks")
    }),
    Kind::new("agf-longest-value", |fs, random| {
        header_value(fs, random, (1, "AGF", xfs::AGF), 56, |most| most / 2, "longest free extent")
    }),
    Kind::new("agf-root-value", |fs, random| {
        let beyond = fs.ag_blocks as u32 + 99;
        header_value(
            fs,
            random,
            (1, "AGF", xfs::AGF),
            16,
            |_| beyond,
            "root of the tree of free space",
        )
    }),
    Kind::new("agi-bit", |fs, random| header_bit(fs, random, 2, "AGI", 12, 36)),
    Kind::new("agi-count-value", |fs, random| {
        header_value(fs, random, (2, "AGI", xfs::AGI), 16, |count| count + 64, "count of inodes")
    }),
    Kind::new("agi-free-value", |fs, random| {
        header_value(fs, random, (2, "AGI", xfs::AGI), 28, |free| free + 5, "count of free inodes")
    }),
    Kind::new("agi-root-value", |fs, random| {
        header_value(
            fs,
            random,
            (2, "AGI", xfs::AGI),
            20,
            |root| root + 3,
            "root of the tree of inodes",
        )
    }),
    Kind::new("agfl-bit", |fs, random| header_bit(fs, random, 3, "AGFL", 36, 52)),
    Kind::new("free-by-block-bit", |fs, random| free_space_bit(fs, random, 16)),
    Kind::new("free-by-size-bit", |fs, random| free_space_bit(fs, random, 20)),
    Kind::new("free-by-block-zeroed", |fs, random| {
        let ag = random.below(fs.ags);
        fs.image.zero(fs.free_space_root(ag, 16), fs.block_size);
        Some(format!("the tree of free space by block of AG {ag} is all zeros"))
    }),
    Kind::new("free-by-block-value", |fs, random| free_space_value(fs, random, 16)),
    Kind::new("free-by-size-value", |fs, random| free_space_value(fs, random, 20)),
    Kind::new("inode-tree-bit", |fs, random| {
        let ag = random.below(fs.ags);
        let leaf = *random.pick(&fs.inode_tree_leaves(ag))?;
        let byte = fs.image.flip(leaf, 56, 72, random);
        Some(format!("a bit of byte {byte} of the tree of inodes of AG {ag}"))
    }),
    Kind::new("inode-tree-mask-value", |fs, random| {
        let ag = random.below(fs.ags);
        let leaf = *random.pick(&fs.inode_tree_leaves(ag))?;
        let mut bytes = fs.block(leaf);
        let record = xfs::RECORDS + 16 * random.below(u64::from(be16(&bytes, 6))) as usize;
        let mask = be64(&bytes, record + 8);
        // One that is in use.
        let bit = (0..64).find(|bit| mask >> bit & 1 == 0)?;
        put(&mut bytes, record + 8, &(mask | 1 << bit).to_be_bytes());
        // The count of free ones, so that the record fits itself.
        bytes[record + 7] += 1;
        fs.set(leaf, bytes, xfs::SHORT_BTREE);
        Some(format!("an inode in use of AG {ag} is marked free"))
    }),
    Kind::new("inode-checksum", |fs, random| {
        let inode = any(fs, random, |_| true)?;
        fs.image.flip(inode.at, 100, 104, random);
        Some(format!("the checksum of inode {}", inode.number))
    }),
    Kind::new("inode-bit", |fs, random| {
        let inode = any(fs, random, |_| true)?;
        let byte = fs.image.flip(inode.at, 0, 80, random);
        Some(format!("a bit of byte {byte} of inode {}", inode.number))
    }),
    Kind::new("inode-zeroed", |fs, random| {
        let inode = any(fs, random, Inode::is_file)?;
        fs.image.zero(inode.at, inode.bytes.len() as u64);
        Some(format!("inode {} is all zeros", inode.number))
    }),
    Kind::new("inode-block-zeroed", |fs, random| {
        let inode = any(fs, random, Inode::is_file)?;
        let at = inode.at / fs.block_size * fs.block_size;
        fs.image.zero(at, fs.block_size);
        Some(format!("the block of inode {} is all zeros", inode.number))
    }),
    Kind::new("inode-mode-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file() && inode.size() > 0)?;
        let mode = (inode.mode() & 0o7777) | 0o160_000;
        edit(fs, inode, 2, &mode.to_be_bytes(), "is of a type that is none")
    }),
    Kind::new("inode-blocks-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file() && !inode.extents().is_empty())?;
        let blocks = be64(&inode.bytes, 64) + random.between(1, 9);
        edit(fs, inode, 64, &blocks.to_be_bytes(), "counts more blocks than it has")
    }),
    Kind::new("inode-extents-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file() && inode.extents().len() > 1)?;
        let extents = be32(&inode.bytes, 76) - 1;
        edit(fs, inode, 76, &extents.to_be_bytes(), "counts fewer extents than it has")
    }),
    Kind::new("extent-beyond-end-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file() && !inode.extents().is_empty())?;
        let extent = Extent { start: fs.beyond(), ..*inode.extents().first()? };
        edit(fs, inode, xfs::FORK, &pack(extent), "has an extent beyond the end of the filesystem")
    }),
    Kind::new("extent-shared-value", |fs, random| {
        let with_data = |inode: &Inode| inode.is_file() && !inode.extents().is_empty();
        let other = any(fs, random, with_data)?;
        let inode = any(fs, random, |inode| with_data(inode) && inode.number != other.number)?;
        let extent = Extent { start: other.extents().first()?.start, ..*inode.extents().first()? };
        edit(
            fs,
            inode,
            xfs::FORK,
            &pack(extent),
            &format!("claims a block of inode {}", other.number),
        )
    }),
    Kind::new("extent-on-free-space-value", |fs, random| {
        let ag = random.below(fs.ags);
        let root = fs.block(fs.free_space_root(ag, 16));
        // The last free extent: the largest, and not in use.
        let free = xfs::RECORDS + 8 * usize::from(be16(&root, 6)).checked_sub(1)?;
        let inode = any(fs, random, |inode| inode.is_file() && !inode.extents().is_empty())?;
        let extent = Extent {
            start: fs.block_number(ag, u64::from(be32(&root, free))),
            ..*inode.extents().first()?
        };
        edit(fs, inode, xfs::FORK, &pack(extent), "claims a block that is free")
    }),
    Kind::new("link-count-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file() && inode.links() > 1)?;
        let links = inode.links() + random.between(1, 5) as u32;
        edit(fs, inode, 16, &links.to_be_bytes(), "counts more links than there are")
    }),
    Kind::new("extent-tree-bit", |fs, random| {
        let inode = any(fs, random, Inode::is_btree)?;
        // The root in the inode: level, count, keys, pointers; there is one of each at least.
        let fork = if inode.bytes[82] == 0 {
            inode.bytes.len() - xfs::FORK
        } else {
            usize::from(inode.bytes[82]) * 8
        };
        let room = (fork - 4) / 16;
        let block = be64(&inode.bytes, xfs::FORK + 4 + room * 8);
        let byte = fs.image.flip(fs.block_at(block), 72, 200, random);
        Some(format!("a bit of byte {byte} of block {block}, extents of inode {}", inode.number))
    }),
    Kind::new("folder-block-bit", |fs, random| {
        let (folder, at, bytes) = folder_block(fs, random)?;
        let entry = *random.pick(&entries(&bytes))? as u64;
        let byte = fs.image.flip(at, entry, entry + 12, random);
        Some(format!("a bit of byte {byte} of a block of folder {}", folder.number))
    }),
    Kind::new("folder-block-zeroed", |fs, random| {
        let (folder, at, _) = folder_block(fs, random)?;
        fs.image.zero(at, fs.block_size);
        Some(format!("a block of folder {} is all zeros", folder.number))
    }),
    Kind::new("folder-block-overwritten", |fs, random| {
        let (folder, at, bytes) = folder_block(fs, random)?;
        fs.image.write(at, &random.bytes(bytes.len()));
        Some(format!("a block of folder {} is overwritten", folder.number))
    }),
    Kind::new("entry-to-free-inode-value", |fs, random| {
        let free = fs.free_inode()?;
        edit_entry(
            fs,
            random,
            |entry| put(entry, 0, &free.to_be_bytes()),
            &format!("points to inode {free}, which is free"),
        )
    }),
    Kind::new("entry-beyond-end-value", |fs, random| {
        edit_entry(
            fs,
            random,
            |entry| put(entry, 0, &(1_u64 << 50).to_be_bytes()),
            "points to an inode that there is not",
        )
    }),
    Kind::new("entry-type-value", |fs, random| {
        let change = |entry: &mut [u8]| {
            let kind = 9 + usize::from(entry[8]);
            entry[kind] = if entry[kind] == 5 { 6 } else { 5 };
        };
        edit_entry(fs, random, change, "has another file type")
    }),
    Kind::new("small-folder-entry-value", |fs, random| {
        let folder = any(fs, random, |inode| {
            inode.is_folder()
                && inode.is_local()
                && inode.bytes[xfs::FORK] > 0
                && inode.bytes[xfs::FORK + 1] == 0
        })?;
        let free = fs.free_inode()? as u32;
        // Count, count of long ones, parent; the entry: length of its name, tag, name, type, inode.
        let name = usize::from(folder.bytes[xfs::FORK + 6]);
        edit(
            fs,
            folder,
            xfs::FORK + 6 + 3 + name + 1,
            &free.to_be_bytes(),
            &format!("has an entry for inode {free}, which is free"),
        )
    }),
    Kind::new("folder-leaf-bit", |fs, random| {
        let (folder, at) = folder_leaf(fs, random)?;
        let byte = fs.image.flip(at, 64, 512, random);
        Some(format!("a bit of byte {byte} of the hashes of folder {}", folder.number))
    }),
    Kind::new("folder-leaf-value", |fs, random| {
        let (folder, at) = folder_leaf(fs, random)?;
        let mut bytes = fs.block(at);
        put(&mut bytes, 64, &0xffff_fff0_u32.to_be_bytes());
        fs.set(at, bytes, xfs::DA_BLOCK);
        Some(format!("a hash of folder {} is out of order", folder.number))
    }),
    Kind::new("attributes-bit", |fs, random| {
        let (inode, at) = attributes(fs, random)?;
        let byte = fs.image.flip(at, 80, fs.block_size, random);
        Some(format!("a bit of byte {byte} of the attributes of inode {}", inode.number))
    }),
    Kind::new("attributes-zeroed", |fs, random| {
        let (inode, at) = attributes(fs, random)?;
        fs.image.zero(at, fs.block_size);
        Some(format!("the attributes of inode {} are all zeros", inode.number))
    }),
    Kind::new("symlink-bit", |fs, random| {
        let link = any(fs, random, |inode| inode.is_link() && !inode.extents().is_empty())?;
        let at = fs.block_at(link.extents().first()?.start);
        let byte = fs.image.flip(at, 0, 200, random);
        Some(format!("a bit of byte {byte} of symbolic link {}", link.number))
    }),
];

fn any(fs: &Xfs, random: &mut Random, suits: impl Fn(&Inode) -> bool) -> Option<Inode> {
    let suiting: Vec<Inode> = fs.inodes_in_use().into_iter().filter(suits).collect();
    random.pick(&suiting).cloned()
}

fn edit(fs: &Xfs, mut inode: Inode, at: usize, value: &[u8], what: &str) -> Option<String> {
    let description = format!("inode {} {what}", inode.number);
    put(&mut inode.bytes, at, value);
    fs.set_inode(inode);
    Some(description)
}

fn header_bit(
    fs: &Xfs,
    random: &mut Random,
    which: u64,
    name: &str,
    from: u64,
    to: u64,
) -> Option<String> {
    let ag = random.below(fs.ags);
    let byte = fs.image.flip(fs.header_at(ag, which), from, to, random);
    Some(format!("a bit of byte {byte} of the {name} of AG {ag}"))
}

fn header_zeroed(fs: &Xfs, random: &mut Random, which: u64, name: &str) -> Option<String> {
    let ag = random.below(fs.ags);
    fs.image.zero(fs.header_at(ag, which), 512);
    Some(format!("the {name} of AG {ag} is all zeros"))
}

fn header_value(
    fs: &Xfs,
    random: &mut Random,
    (which, name, checksum): (u64, &str, usize),
    at: usize,
    change: impl FnOnce(u32) -> u32,
    what: &str,
) -> Option<String> {
    let ag = random.below(fs.ags);
    let mut bytes = fs.header(ag, which);
    let old = be32(&bytes, at);
    let new = change(old);
    put(&mut bytes, at, &new.to_be_bytes());
    fs.set(fs.header_at(ag, which), bytes, checksum);
    Some(format!("{what} in the {name} of AG {ag}: {new} and not {old}"))
}

fn free_space_bit(fs: &Xfs, random: &mut Random, which: usize) -> Option<String> {
    let ag = random.below(fs.ags);
    let byte = fs.image.flip(fs.free_space_root(ag, which), 56, 64, random);
    Some(format!("a bit of byte {byte} of a tree of free space of AG {ag}"))
}

/// The first free extent is longer by a block: the block after it is in use.
fn free_space_value(fs: &Xfs, random: &mut Random, which: usize) -> Option<String> {
    let ag = random.below(fs.ags);
    let at = fs.free_space_root(ag, which);
    let mut bytes = fs.block(at);
    if be16(&bytes, 4) != 0 || be16(&bytes, 6) < 2 {
        return None;
    }
    let length = be32(&bytes, xfs::RECORDS + 4) + 1;
    put(&mut bytes, xfs::RECORDS + 4, &length.to_be_bytes());
    fs.set(at, bytes, xfs::SHORT_BTREE);
    Some(format!("the first free extent of AG {ag} has {length} blocks, one too many"))
}

fn folder_block(fs: &Xfs, random: &mut Random) -> Option<(Inode, u64, Vec<u8>)> {
    let folder = any(fs, random, |inode| inode.is_folder() && !inode.extents().is_empty())?;
    let positions: Vec<u64> = folder
        .extents()
        .iter()
        .flat_map(|extent| {
            (0..extent.length).map(|at| fs.block_at(extent.start) + at * fs.block_size)
        })
        .filter(|at| matches!(&fs.block(*at)[..4], b"XDB3" | b"XDD3"))
        .collect();
    let at = *random.pick(&positions)?;
    Some((folder, at, fs.block(at)))
}

fn edit_entry(
    fs: &Xfs,
    random: &mut Random,
    change: impl FnOnce(&mut [u8]),
    what: &str,
) -> Option<String> {
    let (folder, at, mut bytes) = folder_block(fs, random)?;
    let entry = *random.pick(&entries(&bytes))?;
    change(&mut bytes[entry..]);
    fs.set(at, bytes, xfs::FOLDER_BLOCK);
    Some(format!("the entry at byte {entry} of a block of folder {} {what}", folder.number))
}

/// The hashes of a folder of several blocks: they begin at 32 GiB.
fn folder_leaf(fs: &Xfs, random: &mut Random) -> Option<(Inode, u64)> {
    let leaf = |inode: &Inode| {
        let extent = inode
            .extents()
            .into_iter()
            .find(|extent| extent.offset >= (32 << 30) / fs.block_size)?;
        let at = fs.block_at(extent.start);
        // Leaves, not the nodes above them.
        matches!(be16(&fs.block(at), 8), 0x3df1 | 0x3dff).then_some(at)
    };
    let folder = any(fs, random, |inode| inode.is_folder() && leaf(inode).is_some())?;
    let at = leaf(&folder)?;
    Some((folder, at))
}

fn attributes(fs: &Xfs, random: &mut Random) -> Option<(Inode, u64)> {
    let inode = any(fs, random, |inode| !inode.attribute_extents().is_empty())?;
    let at = fs.block_at(inode.attribute_extents().first()?.start);
    Some((inode, at))
}
