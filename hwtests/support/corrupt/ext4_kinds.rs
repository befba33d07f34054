//! Kinds of damage to an ext4. Those named `…-value` have correct checksums: only their meaning is
//! wrong.

use super::super::random::Random;
use super::Kind;
use super::bytes::{le16, le32, put};
use super::ext4::{Ext4, FLAG_INDEX, Inode, at, entries};

const TOTALS: &str =
    "while it is mounted the kernel counts totals lazily: a healthy one shows the same";
const HANGS: &str = "to freeze an ext4 without its group descriptors can hang for ever";
const NO_MOUNT: &str = "the kernel does not mount it";

pub const KINDS: &[Kind<Ext4>] = &[
    Kind::new("inode-checksum", |fs, random| {
        let inode = any(fs, random, |_| true)?;
        fs.image.flip(
            fs.inode_at(inode.number),
            at::CHECKSUM as u64,
            at::CHECKSUM as u64 + 2,
            random,
        );
        Some(format!("the checksum of inode {}", inode.number))
    }),
    Kind::new("inode-bit", |fs, random| {
        let inode = any(fs, random, Inode::is_file)?;
        let byte = fs.image.flip(fs.inode_at(inode.number), 0, 0x28, random);
        Some(format!("a bit of byte {byte} of inode {}", inode.number))
    }),
    Kind::new("inode-map-bit", |fs, random| {
        let inode = any(fs, random, Inode::has_extents)?;
        let byte = fs.image.flip(
            fs.inode_at(inode.number),
            at::MAP as u64 + 12,
            at::MAP as u64 + 24,
            random,
        );
        Some(format!("a bit of byte {byte} (extents) of inode {}", inode.number))
    }),
    Kind::new("inode-zeroed", |fs, random| {
        let inode = any(fs, random, Inode::is_file)?;
        fs.image.zero(fs.inode_at(inode.number), inode.bytes.len() as u64);
        Some(format!("inode {} is all zeros", inode.number))
    }),
    Kind::new("inode-table-block-zeroed", |fs, random| {
        let inode = any(fs, random, |inode| inode.number > 64)?;
        let block = fs.inode_at(inode.number) / fs.block_size;
        fs.image.zero(block * fs.block_size, fs.block_size);
        Some(format!("block {block} of an inode table, with inode {}, is all zeros", inode.number))
    }),
    Kind::new("inode-mode-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file() && inode.size() > 0)?;
        let mode = (le16(&inode.bytes, at::MODE) & 0o7777) | 0o160_000;
        edit(fs, inode, at::MODE, &mode.to_le_bytes(), "is of a type that is none")
    }),
    Kind::new("inode-size-value", |fs, random| {
        let inode =
            any(fs, random, |inode| inode.is_file() && inode.size() > 2 * fs.block_size as u32)?;
        edit(fs, inode, at::SIZE, &1_u32.to_le_bytes(), "has a size of 1 byte and several blocks")
    }),
    Kind::new("folder-size-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_folder())?;
        let size = inode.size() + 3 * fs.block_size as u32;
        edit(
            fs,
            inode,
            at::SIZE,
            &size.to_le_bytes(),
            "is a directory whose size is three blocks too large",
        )
    }),
    Kind::new("inode-blocks-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file() && inode.size() > 0)?;
        let blocks = le32(&inode.bytes, at::BLOCKS) + 8 * random.between(1, 99) as u32;
        edit(fs, inode, at::BLOCKS, &blocks.to_le_bytes(), "counts more blocks than it has")
    }),
    Kind::new("inode-no-links-value", |fs, random| {
        let inode = any(fs, random, Inode::is_file)?;
        edit(fs, inode, at::LINKS, &[0, 0], "is in use and has no links")
    }),
    Kind::new("link-count-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file() && inode.links() > 1)?;
        let links = inode.links() + random.between(1, 5) as u16;
        edit(fs, inode, at::LINKS, &links.to_le_bytes(), "counts more links than there are")
    }),
    Kind::new("symlink-size-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_link() && inode.has_extents())?;
        let size = inode.size() - random.between(1, 60) as u32;
        edit(fs, inode, at::SIZE, &size.to_le_bytes(), "is a symbolic link of another length")
    }),
    Kind::new("extent-magic-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file() && inode.has_extents())?;
        edit(fs, inode, at::MAP, &0x1234_u16.to_le_bytes(), "has no header of extents")
    }),
    Kind::new("extent-beyond-end-value", |fs, random| {
        let inode =
            any(fs, random, |inode| inode.is_file() && inode.has_extents() && inode.depth() == 0)?;
        let start = (fs.blocks + random.between(1, 1 << 20)) as u32;
        edit(
            fs,
            inode,
            at::MAP + 12 + 8,
            &start.to_le_bytes(),
            "has an extent beyond the end of the filesystem",
        )
    }),
    Kind::new("extent-shared-value", |fs, random| {
        let with_data =
            |inode: &Inode| inode.is_file() && inode.has_extents() && inode.depth() == 0;
        let other = any(fs, random, with_data)?;
        let inode = any(fs, random, |inode| with_data(inode) && inode.number != other.number)?;
        let start = fs.extents(&other).first()?.start as u32;
        edit(
            fs,
            inode,
            at::MAP + 12 + 8,
            &start.to_le_bytes(),
            &format!("claims a block of inode {}", other.number),
        )
    }),
    Kind::new("extent-on-metadata-value", |fs, random| {
        let inode =
            any(fs, random, |inode| inode.is_file() && inode.has_extents() && inode.depth() == 0)?;
        let start = (fs.block_bitmap(0) / fs.block_size) as u32;
        edit(fs, inode, at::MAP + 12 + 8, &start.to_le_bytes(), "claims a block bitmap")
    }),
    Kind::new("extent-leaf-bit", |fs, random| {
        let inode = any(fs, random, |inode| inode.depth() == 1 && inode.has_extents())?;
        let block = *random.pick(&fs.extent_leaves(&inode))?;
        let byte = fs.image.flip(block * fs.block_size, 12, 200, random);
        Some(format!("a bit of byte {byte} of block {block}, extents of inode {}", inode.number))
    }),
    Kind::new("extent-leaf-zeroed", |fs, random| {
        let inode = any(fs, random, |inode| inode.depth() == 1 && inode.has_extents())?;
        let block = *random.pick(&fs.extent_leaves(&inode))?;
        fs.image.zero(block * fs.block_size, fs.block_size);
        Some(format!("block {block}, extents of inode {}, is all zeros", inode.number))
    }),
    Kind::new("extent-order-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.depth() == 1 && inode.has_extents())?;
        let block = *random.pick(&fs.extent_leaves(&inode))?;
        let mut leaf = fs.block(block);
        let (first, second) = (leaf[12..24].to_vec(), leaf[24..36].to_vec());
        put(&mut leaf, 12, &second);
        put(&mut leaf, 24, &first);
        fs.set_extent_leaf(&inode, block, leaf);
        Some(format!("two extents of inode {} are swapped", inode.number))
    }),
    Kind::new("block-bitmap-bit", |fs, random| {
        let group = group_in_use(fs, random, false)?;
        let byte = fs.image.flip(fs.block_bitmap(group), 0, fs.blocks_per_group / 8, random);
        Some(format!("a bit of byte {byte} of the block bitmap of group {group}"))
    }),
    Kind::new("block-bitmap-zeroed", |fs, random| {
        let group = group_in_use(fs, random, false)?;
        fs.image.zero(fs.block_bitmap(group), fs.block_size);
        Some(format!("the block bitmap of group {group} is all zeros"))
    }),
    Kind::new("block-bitmap-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file() && inode.has_extents())?;
        let block = fs.extents(&inode).first()?.start;
        let (group, bit) = (block / fs.blocks_per_group, block % fs.blocks_per_group);
        let mut bitmap = fs.image.read(fs.block_bitmap(group), fs.block_size as usize);
        bitmap[bit as usize / 8] &= !(1 << (bit % 8));
        fs.set_bitmap(group, false, &bitmap);
        Some(format!("block {block} of inode {} is marked free", inode.number))
    }),
    Kind::new("inode-bitmap-bit", |fs, random| {
        let group = group_in_use(fs, random, true)?;
        let byte =
            fs.image.flip(fs.inode_bitmap(group), 0, u64::from(fs.inodes_per_group) / 8, random);
        Some(format!("a bit of byte {byte} of the inode bitmap of group {group}"))
    }),
    Kind::new("inode-bitmap-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.is_file())?;
        let index = inode.number - 1;
        let (group, bit) = (u64::from(index / fs.inodes_per_group), index % fs.inodes_per_group);
        let mut bitmap = fs.image.read(fs.inode_bitmap(group), fs.block_size as usize);
        bitmap[bit as usize / 8] &= !(1 << (bit % 8));
        fs.set_bitmap(group, true, &bitmap);
        Some(format!("inode {} is marked free", inode.number))
    }),
    Kind::new("folder-block-bit", |fs, random| {
        let (folder, block, bytes) = folder_block(fs, random)?;
        let entry = *random.pick(&entries(&bytes))?;
        let byte =
            fs.image.flip(block * fs.block_size, entry as u64 + 8, entry as u64 + 12, random);
        Some(format!("a bit of byte {byte} of block {block}, of folder {}", folder.number))
    }),
    Kind::new("folder-block-zeroed", |fs, random| {
        let (folder, block, _) = folder_block(fs, random)?;
        fs.image.zero(block * fs.block_size, fs.block_size);
        Some(format!("block {block}, of folder {}, is all zeros", folder.number))
    }),
    Kind::new("folder-block-overwritten", |fs, random| {
        let (folder, block, bytes) = folder_block(fs, random)?;
        fs.image.write(block * fs.block_size, &random.bytes(bytes.len()));
        Some(format!("block {block}, of folder {}, is overwritten", folder.number))
    }),
    Kind::new("entry-to-free-inode-value", |fs, random| {
        let free = fs.free_inode();
        edit_entry(
            fs,
            random,
            |entry| put(entry, 0, &free.to_le_bytes()),
            &format!("points to inode {free}, which is free"),
        )
    }),
    Kind::new("entry-beyond-end-value", |fs, random| {
        let beyond = fs.inodes + random.between(1, 1 << 16) as u32;
        edit_entry(
            fs,
            random,
            |entry| put(entry, 0, &beyond.to_le_bytes()),
            &format!("points to inode {beyond}, which there is not"),
        )
    }),
    Kind::new("entry-type-value", |fs, random| {
        edit_entry(
            fs,
            random,
            |entry| entry[7] = if entry[7] == 6 { 5 } else { 6 },
            "has another file type",
        )
    }),
    Kind::new("entry-gone-value", |fs, random| {
        edit_entry(fs, random, |entry| put(entry, 0, &[0; 4]), "is gone; what it pointed to is not")
    }),
    Kind::new("parent-value", |fs, random| {
        let folder = any(fs, random, |inode| inode.is_folder() && inode.flags() & FLAG_INDEX == 0)?;
        let other = any(fs, random, |inode| inode.is_folder() && inode.number != folder.number)?;
        let block = fs.extents(&folder).first()?.start;
        let mut bytes = fs.block(block);
        let parent = le32(&bytes, 12);
        if parent == other.number {
            return None;
        }
        put(&mut bytes, 12, &other.number.to_le_bytes());
        fs.set_folder_block(&folder, block, bytes);
        Some(format!("`..` of folder {} is {} and not {parent}", folder.number, other.number))
    }),
    Kind::new("index-bit", |fs, random| {
        let folder = any(fs, random, |inode| inode.is_folder() && inode.flags() & FLAG_INDEX != 0)?;
        let block = fs.extents(&folder).first()?.start;
        let byte = fs.image.flip(block * fs.block_size, 0x28, 0x48, random);
        Some(format!("a bit of byte {byte} of the index of folder {}", folder.number))
    }),
    Kind::new("index-hash-value", |fs, random| {
        let folder = any(fs, random, |inode| inode.is_folder() && inode.flags() & FLAG_INDEX != 0)?;
        let block = fs.extents(&folder).first()?.start;
        let mut bytes = fs.block(block);
        put(&mut bytes, 0x28, &0xffff_fff0_u32.to_le_bytes());
        fs.set_index_root(&folder, block, bytes);
        Some(format!("a hash in the index of folder {} is out of order", folder.number))
    }),
    Kind::new("attributes-bit", |fs, random| {
        let inode = any(fs, random, |inode| inode.attributes() != 0)?;
        let byte = fs.image.flip(inode.attributes() * fs.block_size, 32, fs.block_size, random);
        Some(format!(
            "a bit of byte {byte} of block {}, attributes of inode {}",
            inode.attributes(),
            inode.number
        ))
    }),
    Kind::new("attributes-value", |fs, random| {
        let inode = any(fs, random, |inode| inode.attributes() != 0)?;
        let mut bytes = fs.block(inode.attributes());
        // The first entry's offset of its value.
        put(&mut bytes, 32 + 2, &(fs.block_size as u16 - 4).to_le_bytes());
        fs.set_attributes(inode.attributes(), bytes);
        Some(format!("an attribute of inode {} is beyond its block", inode.number))
    }),
    Kind::new("attributes-zeroed", |fs, random| {
        let inode = any(fs, random, |inode| inode.attributes() != 0)?;
        fs.image.zero(inode.attributes() * fs.block_size, fs.block_size);
        Some(format!(
            "block {}, attributes of inode {}, is all zeros",
            inode.attributes(),
            inode.number
        ))
    }),
    Kind::unmounted(
        "group-totals-value",
        |fs, random| {
            let group = random.below(fs.groups);
            let mut descriptor = fs.descriptor(group);
            let free = le16(&descriptor, 0xe).wrapping_add(random.between(1, 99) as u16);
            put(&mut descriptor, 0xe, &free.to_le_bytes());
            fs.set_descriptor(group, descriptor);
            Some(format!("group {group} counts other free inodes than it has"))
        },
        TOTALS,
    ),
    Kind::unmounted(
        "group-descriptor-bit",
        |fs, random| {
            let group = random.below(fs.groups);
            let byte = fs.image.flip(fs.descriptor_at(group), 0, 12, random);
            Some(format!("a bit of byte {byte} of the descriptor of group {group}"))
        },
        NO_MOUNT,
    ),
    Kind::unmounted(
        "group-descriptors-zeroed",
        |fs, _| {
            fs.image.zero(fs.descriptor_at(0), fs.block_size);
            Some("the group descriptors are all zeros".to_owned())
        },
        HANGS,
    ),
    Kind::unmounted(
        "journal-superblock-zeroed",
        |fs, _| {
            let journal = fs.inode(8);
            let block = fs.extents(&journal).first()?.start;
            fs.image.zero(block * fs.block_size, fs.block_size);
            Some("the first block of the journal is all zeros".to_owned())
        },
        NO_MOUNT,
    ),
    Kind::unmounted(
        "superblock-inodes-value",
        |fs, _| {
            let mut sb = fs.superblock();
            put(&mut sb, 0, &(fs.inodes + 8).to_le_bytes());
            fs.set_superblock(sb);
            Some("the superblock counts 8 inodes too many".to_owned())
        },
        NO_MOUNT,
    ),
];

fn any(fs: &Ext4, random: &mut Random, suits: impl Fn(&Inode) -> bool) -> Option<Inode> {
    let suiting: Vec<Inode> = fs.inodes_in_use().into_iter().filter(suits).collect();
    random.pick(&suiting).cloned()
}

fn edit(fs: &Ext4, mut inode: Inode, at: usize, value: &[u8], what: &str) -> Option<String> {
    let description = format!("inode {} {what}", inode.number);
    put(&mut inode.bytes, at, value);
    fs.set_inode(inode);
    Some(description)
}

fn group_in_use(fs: &Ext4, random: &mut Random, inodes: bool) -> Option<u64> {
    let groups: Vec<u64> =
        (0..fs.groups).filter(|group| !fs.is_uninitialised(*group, inodes)).collect();
    random.pick(&groups).copied()
}

/// A block of entries: of a small folder, or a leaf of an indexed one.
fn folder_block(fs: &Ext4, random: &mut Random) -> Option<(Inode, u64, Vec<u8>)> {
    let folder = any(fs, random, |inode| inode.is_folder() && inode.has_extents())?;
    let mut blocks: Vec<u64> = fs
        .extents(&folder)
        .iter()
        .flat_map(|extent| extent.start..extent.start + extent.length)
        .collect();
    if folder.flags() & FLAG_INDEX != 0 {
        blocks.remove(0);
    }
    blocks.retain(|block| !entries(&fs.block(*block)).is_empty());
    let block = *random.pick(&blocks)?;
    Some((folder, block, fs.block(block)))
}

fn edit_entry(
    fs: &Ext4,
    random: &mut Random,
    change: impl FnOnce(&mut [u8]),
    what: &str,
) -> Option<String> {
    let (folder, block, mut bytes) = folder_block(fs, random)?;
    let entry = *random.pick(&entries(&bytes))?;
    change(&mut bytes[entry..]);
    fs.set_folder_block(&folder, block, bytes);
    Some(format!("the entry at byte {entry} of block {block}, of folder {}, {what}", folder.number))
}
