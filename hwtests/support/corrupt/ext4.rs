//! The layout of an ext4, and its checksums (Documentation/filesystems/ext4 of the kernel). For
//! what mkfs.ext4 creates: 64-bit block numbers or not, extents, metadata_csum.

use std::path::Path;

use super::bytes::{Image, crc32c, le16, le32, put};

pub struct Ext4 {
    pub image: Image,
    pub block_size: u64,
    pub blocks: u64,
    pub inodes: u32,
    pub groups: u64,
    pub blocks_per_group: u64,
    pub inodes_per_group: u32,
    inode_size: usize,
    descriptor_size: usize,
    first_data_block: u64,
    seed: u32,
}

pub const FIRST_INODE: u32 = 11;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_CSUM_SEED: u32 = 0x2000;
pub const FLAG_INDEX: u32 = 0x1000;
const FLAG_EXTENTS: u32 = 0x8_0000;
pub const EXTENT_MAGIC: u16 = 0xf30a;

/// Offsets in an inode.
pub mod at {
    pub const MODE: usize = 0;
    pub const SIZE: usize = 4;
    pub const DTIME: usize = 0x14;
    pub const LINKS: usize = 0x1a;
    pub const BLOCKS: usize = 0x1c;
    pub const FLAGS: usize = 0x20;
    pub const MAP: usize = 0x28;
    pub const GENERATION: usize = 0x64;
    pub const ATTRIBUTES: usize = 0x68;
    pub const CHECKSUM: usize = 0x7c;
    pub const EXTRA: usize = 0x80;
    pub const CHECKSUM_HIGH: usize = 0x82;
}

#[derive(Clone, Debug)]
pub struct Inode {
    pub number: u32,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub start: u64,
    pub length: u64,
}

impl Inode {
    pub fn kind(&self) -> u16 {
        le16(&self.bytes, at::MODE) & 0o170_000
    }

    pub fn is_file(&self) -> bool {
        self.kind() == 0o100_000
    }

    pub fn is_folder(&self) -> bool {
        self.kind() == 0o040_000
    }

    pub fn is_link(&self) -> bool {
        self.kind() == 0o120_000
    }

    pub fn links(&self) -> u16 {
        le16(&self.bytes, at::LINKS)
    }

    pub fn size(&self) -> u32 {
        le32(&self.bytes, at::SIZE)
    }

    pub fn flags(&self) -> u32 {
        le32(&self.bytes, at::FLAGS)
    }

    pub fn has_extents(&self) -> bool {
        self.flags() & FLAG_EXTENTS != 0
            && le16(&self.bytes, at::MAP) == EXTENT_MAGIC
            && self.entries() > 0
    }

    pub fn entries(&self) -> usize {
        usize::from(le16(&self.bytes, at::MAP + 2))
    }

    /// Of the tree of extents; 0: they are in the inode.
    pub fn depth(&self) -> u16 {
        le16(&self.bytes, at::MAP + 6)
    }

    /// The block with attributes; 0: none.
    pub fn attributes(&self) -> u64 {
        u64::from(le32(&self.bytes, at::ATTRIBUTES))
    }
}

impl Ext4 {
    pub fn open(image: &Path) -> Ext4 {
        let image = Image::open(image);
        let sb = image.read(1024, 1024);
        assert_eq!(le16(&sb, 0x38), 0xef53, "no ext4");
        let block_size = 1024 << le32(&sb, 0x18);
        let incompat = le32(&sb, 0x60);
        let blocks = u64::from(le32(&sb, 4));
        let first_data_block = u64::from(le32(&sb, 0x14));
        let blocks_per_group = u64::from(le32(&sb, 0x20));
        Ext4 {
            block_size,
            blocks,
            inodes: le32(&sb, 0),
            groups: (blocks - first_data_block).div_ceil(blocks_per_group),
            blocks_per_group,
            inodes_per_group: le32(&sb, 0x28),
            inode_size: usize::from(le16(&sb, 0x58)),
            descriptor_size: if incompat & INCOMPAT_64BIT == 0 {
                32
            } else {
                usize::from(le16(&sb, 0xfe))
            },
            first_data_block,
            seed: if incompat & INCOMPAT_CSUM_SEED == 0 {
                crc32c(!0, &sb[0x68..0x78])
            } else {
                le32(&sb, 0x270)
            },
            image,
        }
    }

    /// What a mount writes when it is frozen and thawed: the block of the superblock, and the
    /// journal.
    pub fn own_writes(&self) -> Vec<std::ops::Range<u64>> {
        let journal = self.extents(&self.inode(8));
        let ranges = journal.iter().map(|extent| {
            extent.start * self.block_size..(extent.start + extent.length) * self.block_size
        });
        std::iter::once(0..self.block_size.max(2048)).chain(ranges).collect()
    }

    pub fn superblock(&self) -> Vec<u8> {
        self.image.read(1024, 1024)
    }

    pub fn set_superblock(&self, mut sb: Vec<u8>) {
        let sum = crc32c(!0, &sb[..0x3fc]);
        put(&mut sb, 0x3fc, &sum.to_le_bytes());
        self.image.write(1024, &sb);
    }

    pub fn descriptor_at(&self, group: u64) -> u64 {
        (self.first_data_block + 1) * self.block_size + group * self.descriptor_size as u64
    }

    pub fn descriptor(&self, group: u64) -> Vec<u8> {
        self.image.read(self.descriptor_at(group), self.descriptor_size)
    }

    pub fn set_descriptor(&self, group: u64, mut descriptor: Vec<u8>) {
        put(&mut descriptor, 0x1e, &[0, 0]);
        let sum = crc32c(crc32c(self.seed, &(group as u32).to_le_bytes()), &descriptor);
        put(&mut descriptor, 0x1e, &(sum as u16).to_le_bytes());
        self.image.write(self.descriptor_at(group), &descriptor);
    }

    /// Of a descriptor's three block numbers: 0 the block bitmap, 4 the inode bitmap, 8 the inode
    /// table.
    fn table_block(&self, group: u64, which: usize) -> u64 {
        let descriptor = self.descriptor(group);
        let high = if self.descriptor_size >= 64 {
            u64::from(le32(&descriptor, 0x20 + which)) << 32
        } else {
            0
        };
        u64::from(le32(&descriptor, which)) | high
    }

    pub fn block_bitmap(&self, group: u64) -> u64 {
        self.table_block(group, 0) * self.block_size
    }

    pub fn inode_bitmap(&self, group: u64) -> u64 {
        self.table_block(group, 4) * self.block_size
    }

    /// The bitmap is created when first needed: its content on disk is not read.
    pub fn is_uninitialised(&self, group: u64, inodes: bool) -> bool {
        le16(&self.descriptor(group), 0x12) & if inodes { 1 } else { 2 } != 0
    }

    /// Writes a bitmap with its checksum.
    pub fn set_bitmap(&self, group: u64, inodes: bool, bitmap: &[u8]) {
        let (at, covered, low, high) = if inodes {
            (self.inode_bitmap(group), self.inodes_per_group as usize / 8, 0x1a, 0x3a)
        } else {
            (self.block_bitmap(group), self.blocks_per_group as usize / 8, 0x18, 0x38)
        };
        self.image.write(at, bitmap);
        let sum = crc32c(self.seed, &bitmap[..covered]);
        let mut descriptor = self.descriptor(group);
        put(&mut descriptor, low, &(sum as u16).to_le_bytes());
        if self.descriptor_size >= 64 {
            put(&mut descriptor, high, &((sum >> 16) as u16).to_le_bytes());
        }
        self.set_descriptor(group, descriptor);
    }

    pub fn inode_at(&self, number: u32) -> u64 {
        let index = number - 1;
        let table = self.table_block(u64::from(index / self.inodes_per_group), 8);
        table * self.block_size + u64::from(index % self.inodes_per_group) * self.inode_size as u64
    }

    pub fn inode(&self, number: u32) -> Inode {
        Inode { number, bytes: self.image.read(self.inode_at(number), self.inode_size) }
    }

    fn inode_seed(&self, inode: &Inode) -> u32 {
        let generation = &inode.bytes[at::GENERATION..at::GENERATION + 4];
        crc32c(crc32c(self.seed, &inode.number.to_le_bytes()), generation)
    }

    /// With its checksum.
    pub fn set_inode(&self, mut inode: Inode) {
        put(&mut inode.bytes, at::CHECKSUM, &[0, 0]);
        let has_high = inode.bytes.len() > 128 && le16(&inode.bytes, at::EXTRA) >= 4;
        if has_high {
            put(&mut inode.bytes, at::CHECKSUM_HIGH, &[0, 0]);
        }
        let sum = crc32c(self.inode_seed(&inode), &inode.bytes);
        put(&mut inode.bytes, at::CHECKSUM, &(sum as u16).to_le_bytes());
        if has_high {
            put(&mut inode.bytes, at::CHECKSUM_HIGH, &((sum >> 16) as u16).to_le_bytes());
        }
        self.image.write(self.inode_at(inode.number), &inode.bytes);
    }

    /// Those in use, without the filesystem's own.
    pub fn inodes_in_use(&self) -> Vec<Inode> {
        let mut found = Vec::new();
        for group in 0..self.groups {
            let bitmap =
                self.image.read(self.inode_bitmap(group), self.inodes_per_group as usize / 8);
            if self.is_uninitialised(group, true) {
                continue;
            }
            for index in 0..self.inodes_per_group {
                let number = group as u32 * self.inodes_per_group + index + 1;
                if number > FIRST_INODE && bitmap[index as usize / 8] & (1 << (index % 8)) != 0 {
                    found.push(self.inode(number));
                }
            }
        }
        found.retain(|inode| inode.links() > 0);
        found
    }

    pub fn free_inode(&self) -> u32 {
        let in_use: Vec<u32> = self.inodes_in_use().iter().map(|inode| inode.number).collect();
        (FIRST_INODE + 1..self.inodes)
            .find(|number| !in_use.contains(number))
            .expect("a free inode")
    }

    /// The blocks that hold leaves of the extent tree; the tree has one level of them at most here.
    pub fn extent_leaves(&self, inode: &Inode) -> Vec<u64> {
        if !inode.has_extents() || inode.depth() != 1 {
            return Vec::new();
        }
        (0..inode.entries())
            .map(|index| u64::from(le32(&inode.bytes, at::MAP + 12 + index * 12 + 4)))
            .collect()
    }

    pub fn extents(&self, inode: &Inode) -> Vec<Extent> {
        let read = |bytes: &[u8]| -> Vec<Extent> {
            let entries = usize::from(le16(bytes, 2));
            let extent = |index: usize| {
                let entry = &bytes[12 + index * 12..];
                let length = u64::from(le16(entry, 4));
                // Beyond 32768: allocated, not written.
                Extent {
                    start: u64::from(le32(entry, 8)),
                    length: if length > 32768 { length - 32768 } else { length },
                }
            };
            (0..entries).map(extent).collect()
        };
        match inode.depth() {
            _ if !inode.has_extents() => Vec::new(),
            0 => read(&inode.bytes[at::MAP..]),
            _ => self
                .extent_leaves(inode)
                .iter()
                .flat_map(|block| read(&self.block(*block)))
                .collect(),
        }
    }

    pub fn block(&self, block: u64) -> Vec<u8> {
        self.image.read(block * self.block_size, self.block_size as usize)
    }

    /// A leaf of the extent tree, with its checksum.
    pub fn set_extent_leaf(&self, inode: &Inode, block: u64, mut bytes: Vec<u8>) {
        let tail = 12 + 12 * usize::from(le16(&bytes, 4));
        let sum = crc32c(self.inode_seed(inode), &bytes[..tail]);
        put(&mut bytes, tail, &sum.to_le_bytes());
        self.image.write(block * self.block_size, &bytes);
    }

    /// A block of entries of a folder, with its checksum.
    pub fn set_folder_block(&self, folder: &Inode, block: u64, mut bytes: Vec<u8>) {
        let tail = bytes.len() - 12;
        let sum = crc32c(self.inode_seed(folder), &bytes[..tail]);
        put(&mut bytes, tail + 8, &sum.to_le_bytes());
        self.image.write(block * self.block_size, &bytes);
    }

    /// The root of a folder's index, with its checksum.
    pub fn set_index_root(&self, folder: &Inode, block: u64, mut bytes: Vec<u8>) {
        let entries = 0x20;
        let (limit, count) =
            (usize::from(le16(&bytes, entries)), usize::from(le16(&bytes, entries + 2)));
        let tail = entries + limit * 8;
        let sum = crc32c(self.inode_seed(folder), &bytes[..entries + count * 8]);
        let sum = crc32c(crc32c(sum, &bytes[tail..tail + 4]), &[0; 4]);
        put(&mut bytes, tail + 4, &sum.to_le_bytes());
        self.image.write(block * self.block_size, &bytes);
    }

    /// Attributes outside of the inode, with their checksum.
    pub fn set_attributes(&self, block: u64, mut bytes: Vec<u8>) {
        put(&mut bytes, 0x10, &[0; 4]);
        let sum = crc32c(crc32c(self.seed, &block.to_le_bytes()), &bytes);
        put(&mut bytes, 0x10, &sum.to_le_bytes());
        self.image.write(block * self.block_size, &bytes);
    }
}

/// Offsets of the entries in use in a block of a folder, without `.` and `..`.
pub fn entries(block: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + 12 < block.len() {
        let length = usize::from(le16(block, at + 4));
        if length < 12 {
            break;
        }
        let name = &block[at + 8..(at + 8 + usize::from(block[at + 6])).min(block.len())];
        if le32(block, at) != 0 && !matches!(name, b"." | b"..") {
            found.push(at);
        }
        at += length;
    }
    found
}
