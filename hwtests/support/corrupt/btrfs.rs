//! The layout of a btrfs on one device, and its checksums (fs/btrfs and
//! include/uapi/linux/btrfs_tree.h of the kernel). For crc32c.

use std::path::Path;

use super::bytes::{Image, crc32c, le16, le32, le64, put};

pub struct Btrfs {
    pub image: Image,
    pub node_size: usize,
    chunks: Vec<Chunk>,
    root_tree: u64,
    chunk_tree: u64,
}

struct Chunk {
    logical: u64,
    length: u64,
    /// Where each copy begins on the device.
    copies: Vec<u64>,
}

const SUPERBLOCK: u64 = 64 << 10;
/// Of a tree block: checksum, filesystem, address, flags, chunk tree, generation, owner, count,
/// level.
pub const HEADER: usize = 101;
pub const GENERATION: usize = 0x50;
pub const ITEM: usize = 25;
const POINTER: usize = 33;

pub mod tree {
    pub const ROOT: u64 = 1;
    pub const EXTENT: u64 = 2;
    pub const DEVICE: u64 = 4;
    pub const FILES: u64 = 5;
    pub const CHECKSUMS: u64 = 7;
}

/// Types of keys.
pub mod key {
    pub const INODE: u8 = 1;
    pub const INODE_REFERENCE: u8 = 12;
    pub const ENTRY: u8 = 84;
    pub const INDEX: u8 = 96;
    pub const FILE_EXTENT: u8 = 108;
    pub const ROOT: u8 = 132;
    pub const EXTENT: u8 = 168;
    pub const METADATA: u8 = 169;
    pub const GROUP: u8 = 192;
    pub const CHUNK: u8 = 228;
}

/// A tree block.
#[derive(Clone, Debug)]
pub struct Node {
    pub logical: u64,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// In its leaf.
    pub index: usize,
    pub object: u64,
    pub kind: u8,
    pub offset: u64,
    /// Where its data begin in the leaf, and how many bytes they are.
    pub data: usize,
    pub size: usize,
}

impl Node {
    pub fn count(&self) -> usize {
        le32(&self.bytes, 0x60) as usize
    }

    pub fn level(&self) -> u8 {
        self.bytes[0x64]
    }

    pub fn items(&self) -> Vec<Item> {
        if self.level() != 0 {
            return Vec::new();
        }
        (0..self.count()).map(|index| self.item(index)).collect()
    }

    fn item(&self, index: usize) -> Item {
        let at = HEADER + index * ITEM;
        Item {
            index,
            object: le64(&self.bytes, at),
            kind: self.bytes[at + 8],
            offset: le64(&self.bytes, at + 9),
            data: HEADER + le32(&self.bytes, at + 17) as usize,
            size: le32(&self.bytes, at + 21) as usize,
        }
    }

    fn children(&self) -> Vec<u64> {
        if self.level() == 0 {
            return Vec::new();
        }
        (0..self.count()).map(|index| le64(&self.bytes, HEADER + index * POINTER + 17)).collect()
    }
}

fn chunk(logical: u64, item: &[u8]) -> Chunk {
    let stripes = usize::from(le16(item, 44));
    // Two stripes on one device are two copies of the same (DUP).
    Chunk {
        logical,
        length: le64(item, 0),
        copies: (0..stripes).map(|stripe| le64(item, 48 + stripe * 32 + 8)).collect(),
    }
}

impl Btrfs {
    pub fn open(image: &Path) -> Btrfs {
        let image = Image::open(image);
        let sb = image.read(SUPERBLOCK, 4096);
        assert_eq!(&sb[0x40..0x48], b"_BHRfS_M", "no btrfs");
        let mut fs = Btrfs {
            node_size: le32(&sb, 0x94) as usize,
            root_tree: le64(&sb, 0x50),
            chunk_tree: le64(&sb, 0x58),
            chunks: Vec::new(),
            image,
        };
        // The first chunks, which locate the tree of all others.
        let (mut at, end) = (0x32b, 0x32b + le32(&sb, 0xa0) as usize);
        while at < end {
            let logical = le64(&sb, at + 9);
            let item = &sb[at + 17..];
            fs.chunks.push(chunk(logical, item));
            at += 17 + 48 + 32 * usize::from(le16(item, 44));
        }
        for node in fs.nodes_below(fs.chunk_tree) {
            for item in node.items().iter().filter(|item| item.kind == key::CHUNK) {
                let found = chunk(item.offset, &node.bytes[item.data..]);
                fs.chunks.push(found);
            }
        }
        fs
    }

    /// Where the copies of a logical address are on the device.
    pub fn copies(&self, logical: u64) -> Vec<u64> {
        let chunk = self
            .chunks
            .iter()
            .find(|chunk| (chunk.logical..chunk.logical + chunk.length).contains(&logical));
        let chunk = chunk.unwrap_or_else(|| panic!("no chunk has {logical}"));
        chunk.copies.iter().map(|copy| copy + (logical - chunk.logical)).collect()
    }

    pub fn node(&self, logical: u64) -> Node {
        Node { logical, bytes: self.image.read(self.copies(logical)[0], self.node_size) }
    }

    /// All copies, with their checksums.
    pub fn set(&self, mut node: Node) {
        let sum = !crc32c(!0, &node.bytes[32..]);
        put(&mut node.bytes, 0, &sum.to_le_bytes());
        for at in self.copies(node.logical) {
            self.image.write(at, &node.bytes);
        }
    }

    fn nodes_below(&self, logical: u64) -> Vec<Node> {
        let node = self.node(logical);
        let children: Vec<Node> =
            node.children().iter().flat_map(|child| self.nodes_below(*child)).collect();
        std::iter::once(node).chain(children).collect()
    }

    /// All blocks of a tree, the root first.
    pub fn tree(&self, tree: u64) -> Vec<Node> {
        let roots = self.nodes_below(self.root_tree);
        if tree == tree::ROOT {
            return roots;
        }
        let found = roots.iter().find_map(|node| {
            let item =
                *node.items().iter().find(|item| item.object == tree && item.kind == key::ROOT)?;
            // Behind an inode (160), the generation and the root folder's number.
            Some(le64(&node.bytes, item.data + 176))
        });
        self.nodes_below(found.unwrap_or_else(|| panic!("no tree {tree}")))
    }

    pub fn leaves(&self, tree: u64) -> Vec<Node> {
        self.tree(tree).into_iter().filter(|node| node.level() == 0).collect()
    }

    pub fn superblock(&self) -> Vec<u8> {
        self.image.read(SUPERBLOCK, 4096)
    }

    pub fn set_superblock(&self, mut sb: Vec<u8>) {
        let sum = !crc32c(!0, &sb[32..]);
        put(&mut sb, 0, &sum.to_le_bytes());
        self.image.write(SUPERBLOCK, &sb);
    }
}
