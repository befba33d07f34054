//! Kinds of damage to a btrfs. Those named `…-value` have correct checksums: only their meaning is
//! wrong.

use super::super::random::Random;
use super::Kind;
use super::btrfs::{Btrfs, GENERATION, HEADER, ITEM, Item, Node, key, tree};
use super::bytes::{le32, le64, put};

pub const KINDS: &[Kind<Btrfs>] = &[
    Kind::new("file-leaf-zeroed-once", |fs, random| {
        corrupt_leaf(fs, random, tree::FILES, Copies::One, Method::Zero)
    }),
    Kind::new("file-leaf-zeroed", |fs, random| {
        corrupt_leaf(fs, random, tree::FILES, Copies::All, Method::Zero)
    }),
    Kind::new("file-leaf-bit-once", |fs, random| {
        corrupt_leaf(fs, random, tree::FILES, Copies::One, Method::Flip)
    }),
    Kind::new("file-leaf-bit", |fs, random| {
        corrupt_leaf(fs, random, tree::FILES, Copies::All, Method::Flip)
    }),
    Kind::new("extent-leaf-zeroed-once", |fs, random| {
        corrupt_leaf(fs, random, tree::EXTENT, Copies::One, Method::Zero)
    }),
    Kind::new("extent-leaf-zeroed", |fs, random| {
        corrupt_leaf(fs, random, tree::EXTENT, Copies::All, Method::Zero)
    }),
    Kind::new("extent-leaf-bit", |fs, random| {
        corrupt_leaf(fs, random, tree::EXTENT, Copies::All, Method::Flip)
    }),
    Kind::new("checksum-leaf-bit-once", |fs, random| {
        corrupt_leaf(fs, random, tree::CHECKSUMS, Copies::One, Method::Flip)
    }),
    Kind::new("checksum-leaf-bit", |fs, random| {
        corrupt_leaf(fs, random, tree::CHECKSUMS, Copies::All, Method::Flip)
    }),
    Kind::new("device-leaf-bit", |fs, random| {
        corrupt_leaf(fs, random, tree::DEVICE, Copies::All, Method::Flip)
    }),
    Kind::new("root-leaf-bit-once", |fs, random| {
        corrupt_leaf(fs, random, tree::ROOT, Copies::One, Method::Flip)
    }),
    Kind::new("file-root-bit-once", |fs, random| {
        let root = fs.tree(tree::FILES).into_iter().next()?;
        corrupt_node(fs, random, &root, Copies::One, Method::Flip)
    }),
    Kind::new("file-root-zeroed", |fs, random| {
        let root = fs.tree(tree::FILES).into_iter().next()?;
        corrupt_node(fs, random, &root, Copies::All, Method::Zero)
    }),
    Kind::new("key-order-value", |fs, random| {
        let mut leaf = leaf(fs, random, tree::FILES, |leaf| leaf.count() > 4)?;
        let index = random.below(leaf.count() as u64 - 1) as usize;
        let at = HEADER + index * ITEM;
        let (first, second) =
            (leaf.bytes[at..at + ITEM].to_vec(), leaf.bytes[at + ITEM..at + 2 * ITEM].to_vec());
        put(&mut leaf.bytes, at, &second);
        put(&mut leaf.bytes, at + ITEM, &first);
        write_node(fs, leaf, &format!("items {index} and the next are swapped"))
    }),
    Kind::new("generation-value", |fs, random| {
        let mut leaf = leaf(fs, random, tree::FILES, |_| true)?;
        let generation = le64(&leaf.bytes, GENERATION) + 77;
        put(&mut leaf.bytes, GENERATION, &generation.to_le_bytes());
        write_node(fs, leaf, "its generation is not the one that its parent knows")
    }),
    Kind::new("extent-references-value", |fs, random| {
        let (mut leaf, item) = item(fs, random, tree::EXTENT, |_, item| item.kind == key::EXTENT)?;
        let references = le64(&leaf.bytes, item.data) + random.between(1, 9);
        put(&mut leaf.bytes, item.data, &references.to_le_bytes());
        write_node(fs, leaf, &format!("extent {} counts {references} references", item.object))
    }),
    Kind::new("extent-gone-value", |fs, random| {
        let (leaf, item) = item(fs, random, tree::EXTENT, |_, item| item.kind == key::EXTENT)?;
        remove(fs, leaf, item, "an extent")
    }),
    Kind::new("block-gone-value", |fs, random| {
        let (leaf, item) = item(fs, random, tree::EXTENT, |_, item| item.kind == key::METADATA)?;
        remove(fs, leaf, item, "the record of a tree block")
    }),
    Kind::new("group-used-value", |fs, random| {
        let (mut leaf, item) = item(fs, random, tree::EXTENT, |_, item| item.kind == key::GROUP)?;
        let used = le64(&leaf.bytes, item.data) / 2 + 4096;
        put(&mut leaf.bytes, item.data, &used.to_le_bytes());
        write_node(fs, leaf, &format!("block group {} counts {used} bytes as used", item.object))
    }),
    Kind::new("inode-links-value", |fs, random| {
        let (mut leaf, item) = file(fs, random)?;
        // Generation, transaction, size, bytes, group: 8 each.
        let links = le32(&leaf.bytes, item.data + 40) + random.between(1, 9) as u32;
        put(&mut leaf.bytes, item.data + 40, &links.to_le_bytes());
        write_node(fs, leaf, &format!("inode {} counts {links} links", item.object))
    }),
    Kind::new("inode-bytes-value", |fs, random| {
        let (mut leaf, item) = file(fs, random)?;
        let bytes = le64(&leaf.bytes, item.data + 24) + 4096 * random.between(1, 9);
        put(&mut leaf.bytes, item.data + 24, &bytes.to_le_bytes());
        write_node(fs, leaf, &format!("inode {} counts {bytes} bytes", item.object))
    }),
    Kind::new("folder-size-value", |fs, random| {
        let (mut leaf, item) = item(fs, random, tree::FILES, |leaf, item| {
            item.kind == key::INODE
                && item.object > 256
                && le32(&leaf.bytes, item.data + 52) & 0o170_000 == 0o040_000
        })?;
        let size = le64(&leaf.bytes, item.data + 16) + 11;
        put(&mut leaf.bytes, item.data + 16, &size.to_le_bytes());
        write_node(fs, leaf, &format!("folder {} has a size of {size}", item.object))
    }),
    Kind::new("inode-gone-value", |fs, random| {
        let (leaf, item) = file(fs, random)?;
        remove(fs, leaf, item, "an inode")
    }),
    Kind::new("reference-gone-value", |fs, random| {
        let (leaf, item) = item(fs, random, tree::FILES, |_, item| {
            item.kind == key::INODE_REFERENCE && item.object > 256
        })?;
        remove(fs, leaf, item, "an inode's reference to its folder")
    }),
    Kind::new("entry-gone-value", |fs, random| {
        let (leaf, item) = item(fs, random, tree::FILES, |_, item| item.kind == key::ENTRY)?;
        remove(fs, leaf, item, "a folder's entry")
    }),
    Kind::new("index-gone-value", |fs, random| {
        let (leaf, item) = item(fs, random, tree::FILES, |_, item| item.kind == key::INDEX)?;
        remove(fs, leaf, item, "an entry of a folder's index")
    }),
    Kind::new("entry-inode-value", |fs, random| {
        let (mut leaf, item) = item(fs, random, tree::FILES, |_, item| item.kind == key::ENTRY)?;
        put(&mut leaf.bytes, item.data, &(1_u64 << 40).to_le_bytes());
        write_node(
            fs,
            leaf,
            &format!("an entry of folder {} points to an inode that there is not", item.object),
        )
    }),
    Kind::new("entry-type-value", |fs, random| {
        let (mut leaf, item) = item(fs, random, tree::FILES, |_, item| item.kind == key::INDEX)?;
        let kind = item.data + 29;
        leaf.bytes[kind] = if leaf.bytes[kind] == 6 { 5 } else { 6 };
        write_node(fs, leaf, &format!("an entry of folder {} has another file type", item.object))
    }),
    Kind::new("file-extent-value", |fs, random| {
        let (mut leaf, item) = on_disk(fs, random)?;
        let start = le64(&leaf.bytes, item.data + 21) + 4096 * 3;
        put(&mut leaf.bytes, item.data + 21, &start.to_le_bytes());
        write_node(fs, leaf, &format!("an extent of inode {} is at another address", item.object))
    }),
    Kind::new("file-extent-length-value", |fs, random| {
        let (mut leaf, item) = on_disk(fs, random)?;
        let length = le64(&leaf.bytes, item.data + 45) + 4096 * 16;
        put(&mut leaf.bytes, item.data + 45, &length.to_le_bytes());
        write_node(fs, leaf, &format!("an extent of inode {} is longer than it is", item.object))
    }),
    Kind::new("file-extent-gone-value", |fs, random| {
        let (leaf, item) = on_disk(fs, random)?;
        remove(fs, leaf, item, "an extent of a file")
    }),
    Kind::new("superblock-used-value", |fs, _| {
        let mut sb = fs.superblock();
        let used = le64(&sb, 0x78) + (1 << 20);
        put(&mut sb, 0x78, &used.to_le_bytes());
        fs.set_superblock(sb);
        Some(format!("the superblock counts {used} bytes as used"))
    }),
];

#[derive(Clone, Copy, PartialEq)]
enum Copies {
    One,
    All,
}

#[derive(Clone, Copy)]
enum Method {
    Zero,
    Flip,
}

fn corrupt_leaf(
    fs: &Btrfs,
    random: &mut Random,
    tree: u64,
    which: Copies,
    method: Method,
) -> Option<String> {
    let leaf = leaf(fs, random, tree, |_| true)?;
    corrupt_node(fs, random, &leaf, which, method)
}

fn corrupt_node(
    fs: &Btrfs,
    random: &mut Random,
    node: &Node,
    which: Copies,
    method: Method,
) -> Option<String> {
    let mut copies = fs.copies(node.logical);
    if which == Copies::One {
        if copies.len() < 2 {
            return None;
        }
        // Readers use the first copy; a damaged second copy is noticed only when it is needed.
        copies.truncate(1);
    }
    for at in &copies {
        match method {
            Method::Zero => fs.image.zero(*at, fs.node_size as u64),
            Method::Flip => drop(fs.image.flip(*at, 32, fs.node_size as u64, random)),
        }
    }
    let how = match method {
        Method::Zero => "all zeros",
        Method::Flip => "a bit",
    };
    Some(format!(
        "{how} in {} of tree block {}",
        if copies.len() == 1 { "one copy" } else { "all copies" },
        node.logical
    ))
}

fn write_node(fs: &Btrfs, node: Node, what: &str) -> Option<String> {
    let description = format!("tree block {}: {what}", node.logical);
    fs.set(node);
    Some(description)
}

fn leaf(fs: &Btrfs, random: &mut Random, tree: u64, suits: impl Fn(&Node) -> bool) -> Option<Node> {
    let mut leaves = fs.leaves(tree);
    leaves.retain(|leaf| suits(leaf));
    random.pick(&leaves).cloned()
}

fn item(
    fs: &Btrfs,
    random: &mut Random,
    tree: u64,
    suits: impl Fn(&Node, &Item) -> bool,
) -> Option<(Node, Item)> {
    let leaf = leaf(fs, random, tree, |leaf| leaf.items().iter().any(|item| suits(leaf, item)))?;
    let items: Vec<Item> = leaf.items().into_iter().filter(|item| suits(&leaf, item)).collect();
    let item = *random.pick(&items)?;
    Some((leaf, item))
}

/// The inode of a file with data.
fn file(fs: &Btrfs, random: &mut Random) -> Option<(Node, Item)> {
    item(fs, random, tree::FILES, |leaf, item| {
        let mode = |item: &Item| le32(&leaf.bytes, item.data + 52);
        item.kind == key::INODE
            && item.object > 256
            && mode(item) & 0o170_000 == 0o100_000
            && le64(&leaf.bytes, item.data + 16) > 0
    })
}

/// An extent of a file that is on disk and no hole: generation, size (8 each), compression and
/// encryption (4), type 1, address.
fn on_disk(fs: &Btrfs, random: &mut Random) -> Option<(Node, Item)> {
    item(fs, random, tree::FILES, |leaf, item| {
        item.kind == key::FILE_EXTENT
            && item.size == 53
            && leaf.bytes[item.data + 20] == 1
            && le64(&leaf.bytes, item.data + 21) != 0
    })
}

/// Takes an item out of its leaf as the kernel does: data of later items move up, their offsets and
/// the count follow.
fn remove(fs: &Btrfs, mut leaf: Node, gone: Item, what: &str) -> Option<String> {
    let items = leaf.items();
    let lowest = items.iter().map(|item| item.data).min()?;
    leaf.bytes.copy_within(lowest..gone.data, lowest + gone.size);
    for item in &items[gone.index + 1..] {
        let at = HEADER + item.index * ITEM + 17;
        let offset = le32(&leaf.bytes, at) + gone.size as u32;
        put(&mut leaf.bytes, at, &offset.to_le_bytes());
    }
    let (from, end) = (HEADER + (gone.index + 1) * ITEM, HEADER + items.len() * ITEM);
    leaf.bytes.copy_within(from..end, from - ITEM);
    put(&mut leaf.bytes, 0x60, &(items.len() as u32 - 1).to_le_bytes());
    write_node(fs, leaf, &format!("{what} of object {} is gone", gone.object))
}
