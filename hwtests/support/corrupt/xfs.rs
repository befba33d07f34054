//! The layout of an XFS of version 5, and its checksums (fs/xfs/libxfs/xfs_format.h and
//! xfs_da_format.h of the kernel).

use std::path::Path;

use super::bytes::{Image, be16, be32, be64, crc32c, put};

pub struct Xfs {
    pub image: Image,
    pub block_size: u64,
    pub ag_blocks: u64,
    pub ags: u64,
    sector: u64,
    inode_size: u64,
    ag_block_log: u32,
    inodes_per_block_log: u32,
}

/// Where each structure has its checksum.
pub const SUPERBLOCK: usize = 224;
pub const AGF: usize = 216;
pub const AGI: usize = 312;
pub const AGFL: usize = 32;
pub const SHORT_BTREE: usize = 52;
pub const LONG_BTREE: usize = 64;
pub const INODE: usize = 100;
pub const FOLDER_BLOCK: usize = 4;
pub const DA_BLOCK: usize = 12;

/// Where a short btree block's records begin.
pub const RECORDS: usize = 56;
/// Where the data fork begins in an inode.
pub const FORK: usize = 176;
const BTREE: u8 = 3;
const EXTENTS: u8 = 2;

#[derive(Clone, Debug)]
pub struct Inode {
    pub number: u64,
    pub at: u64,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub offset: u64,
    pub start: u64,
    pub length: u64,
}

impl Inode {
    pub fn mode(&self) -> u16 {
        be16(&self.bytes, 2)
    }

    pub fn is_file(&self) -> bool {
        self.mode() & 0o170_000 == 0o100_000
    }

    pub fn is_folder(&self) -> bool {
        self.mode() & 0o170_000 == 0o040_000
    }

    pub fn is_link(&self) -> bool {
        self.mode() & 0o170_000 == 0o120_000
    }

    pub fn links(&self) -> u32 {
        be32(&self.bytes, 16)
    }

    pub fn size(&self) -> u64 {
        be64(&self.bytes, 56)
    }

    pub fn is_btree(&self) -> bool {
        self.bytes[5] == BTREE
    }

    pub fn is_local(&self) -> bool {
        self.bytes[5] == 1
    }

    /// Its data fork, when the extents are in the inode.
    pub fn extents(&self) -> Vec<Extent> {
        if self.bytes[5] != EXTENTS {
            return Vec::new();
        }
        (0..be32(&self.bytes, 76) as usize)
            .map(|index| extent(&self.bytes[FORK + index * 16..]))
            .collect()
    }

    /// The same of its attributes.
    pub fn attribute_extents(&self) -> Vec<Extent> {
        if self.bytes[82] == 0 || self.bytes[83] != EXTENTS {
            return Vec::new();
        }
        let fork = FORK + usize::from(self.bytes[82]) * 8;
        (0..usize::from(be16(&self.bytes, 80)))
            .map(|index| extent(&self.bytes[fork + index * 16..]))
            .collect()
    }
}

/// One bit unwritten, 54 of the offset, 52 of the start, 21 of the length.
fn extent(bytes: &[u8]) -> Extent {
    let packed = u128::from_be_bytes(bytes[..16].try_into().expect("16 bytes"));
    let bits = |from: u32, count: u32| ((packed >> from) & ((1 << count) - 1)) as u64;
    Extent { offset: bits(73, 54), start: bits(21, 52), length: bits(0, 21) }
}

pub fn pack(extent: Extent) -> [u8; 16] {
    (u128::from(extent.offset) << 73 | u128::from(extent.start) << 21 | u128::from(extent.length))
        .to_be_bytes()
}

impl Xfs {
    pub fn open(image: &Path) -> Xfs {
        let image = Image::open(image);
        let sb = image.read(0, 512);
        assert_eq!(&sb[..4], b"XFSB", "no XFS");
        Xfs {
            block_size: u64::from(be32(&sb, 4)),
            ag_blocks: u64::from(be32(&sb, 84)),
            ags: u64::from(be32(&sb, 88)),
            sector: u64::from(be16(&sb, 102)),
            inode_size: u64::from(be16(&sb, 104)),
            inodes_per_block_log: u32::from(sb[123]),
            ag_block_log: u32::from(sb[124]),
            image,
        }
    }

    /// What a mount writes when it is frozen and thawed: the superblock, and the log.
    pub fn own_writes(&self) -> Vec<std::ops::Range<u64>> {
        let sb = self.header(0, 0);
        let log = self.block_at(be64(&sb, 48));
        vec![0..self.sector, log..log + u64::from(be32(&sb, 96)) * self.block_size]
    }

    /// Sector `which` of a group: 0 the superblock, 1 AGF, 2 AGI, 3 AGFL.
    pub fn header_at(&self, ag: u64, which: u64) -> u64 {
        ag * self.ag_blocks * self.block_size + which * self.sector
    }

    pub fn header(&self, ag: u64, which: u64) -> Vec<u8> {
        self.image.read(self.header_at(ag, which), self.sector as usize)
    }

    /// Writes `bytes` with their checksum at `checksum`.
    pub fn set(&self, at: u64, mut bytes: Vec<u8>, checksum: usize) {
        put(&mut bytes, checksum, &[0; 4]);
        let sum = !crc32c(!0, &bytes);
        put(&mut bytes, checksum, &sum.to_le_bytes());
        self.image.write(at, &bytes);
    }

    /// A block of a group.
    pub fn ag_block_at(&self, ag: u64, block: u64) -> u64 {
        (ag * self.ag_blocks + block) * self.block_size
    }

    /// A block as extents name it.
    pub fn block_at(&self, block: u64) -> u64 {
        self.ag_block_at(block >> self.ag_block_log, block & ((1 << self.ag_block_log) - 1))
    }

    pub fn block(&self, at: u64) -> Vec<u8> {
        self.image.read(at, self.block_size as usize)
    }

    /// A block of a group as extents name it.
    pub fn block_number(&self, ag: u64, block: u64) -> u64 {
        ag << self.ag_block_log | block
    }

    /// A number that no block has.
    pub fn beyond(&self) -> u64 {
        self.block_number(self.ags + 1, 0)
    }

    /// The root of one of the AGF's trees: 16 free space by block, 20 by size.
    pub fn free_space_root(&self, ag: u64, which: usize) -> u64 {
        self.ag_block_at(ag, u64::from(be32(&self.header(ag, 1), which)))
    }

    /// The blocks with the records of a group's inodes.
    pub fn inode_tree_leaves(&self, ag: u64) -> Vec<u64> {
        let agi = self.header(ag, 2);
        self.leaves(ag, u64::from(be32(&agi, 20)))
    }

    fn leaves(&self, ag: u64, block: u64) -> Vec<u64> {
        let at = self.ag_block_at(ag, block);
        let bytes = self.block(at);
        let (level, records) = (be16(&bytes, 4), usize::from(be16(&bytes, 6)));
        if level == 0 {
            return vec![at];
        }
        // Keys of 4 bytes, room for as many as fit, then the pointers.
        let room = (bytes.len() - RECORDS) / 8;
        (0..records)
            .flat_map(|index| {
                self.leaves(ag, u64::from(be32(&bytes, RECORDS + room * 4 + index * 4)))
            })
            .collect()
    }

    /// First inode of each chunk of 64 in the group, and which of them are free.
    pub fn chunks(&self, ag: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for leaf in self.inode_tree_leaves(ag) {
            let bytes = self.block(leaf);
            for index in 0..usize::from(be16(&bytes, 6)) {
                let record = RECORDS + index * 16;
                found.push((u64::from(be32(&bytes, record)), be64(&bytes, record + 8)));
            }
        }
        found
    }

    fn number(&self, ag: u64, in_ag: u64) -> u64 {
        ag << (self.ag_block_log + self.inodes_per_block_log) | in_ag
    }

    fn inode_in_ag(&self, ag: u64, in_ag: u64) -> Inode {
        let block = in_ag >> self.inodes_per_block_log;
        let index = in_ag & ((1 << self.inodes_per_block_log) - 1);
        let at = self.ag_block_at(ag, block) + index * self.inode_size;
        Inode {
            number: self.number(ag, in_ag),
            at,
            bytes: self.image.read(at, self.inode_size as usize),
        }
    }

    fn inodes(&self, free: bool) -> Vec<Inode> {
        let mut found = Vec::new();
        for ag in 0..self.ags {
            for (first, mask) in self.chunks(ag) {
                let suiting = (0..64).filter(|bit| (mask >> bit & 1 == 1) == free);
                found.extend(suiting.map(|bit| self.inode_in_ag(ag, first + bit)));
            }
        }
        found.retain(|inode| &inode.bytes[..2] == b"IN");
        found
    }

    /// Without the filesystem's own (root folder, realtime).
    pub fn inodes_in_use(&self) -> Vec<Inode> {
        let root = be64(&self.header(0, 0), 56);
        let mut found = self.inodes(false);
        found.retain(|inode| inode.number > root + 2 && inode.links() > 0);
        found
    }

    pub fn free_inode(&self) -> Option<u64> {
        self.inodes(true).first().map(|inode| inode.number)
    }

    pub fn set_inode(&self, inode: Inode) {
        self.set(inode.at, inode.bytes, INODE);
    }
}

/// Offsets of the entries in use in a block of a folder, without `.` and `..`; the head of such a
/// block is of 64 bytes.
pub fn entries(block: &[u8]) -> Vec<usize> {
    let single = &block[..4] == b"XDB3";
    // A single block ends with its leaf entries (8 bytes each) and their count.
    let end = if single {
        block.len() - 8 - 8 * be32(block, block.len() - 8) as usize
    } else {
        block.len()
    };
    let mut found = Vec::new();
    let mut at = 64;
    while at + 16 <= end {
        if be16(block, at) == 0xffff {
            let length = usize::from(be16(block, at + 2));
            if length == 0 {
                break;
            }
            at += length;
            continue;
        }
        let name = usize::from(block[at + 8]);
        if !matches!(&block[at + 9..at + 9 + name], b"." | b"..") {
            found.push(at);
        }
        // Inode, length, name, type, tag; to a multiple of 8.
        at += (8 + 1 + name + 1 + 2).next_multiple_of(8);
    }
    found
}
