//! Fills a mounted filesystem with typical content: wide and deep directories, long and short
//! symbolic links, attributes in and outside of inodes, hard links, sparse and fragmented files,
//! sockets, devices. The same seed gives the same tree.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::random::Random;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Files in the one wide folder (an ext4 index, XFS leaf blocks).
    pub wide: u64,
    /// Folders of 30 files each.
    pub folders: u64,
    /// Bytes of a small file at most.
    pub small: u64,
    /// Fragmented files, of 200 extents each.
    pub fragmented: u64,
}

/// 3,100 inodes, 25 MiB.
pub const USUAL: Plan = Plan { wide: 1500, folders: 40, small: 6000, fragmented: 6 };

pub fn populate(top: &Path, plan: Plan, seed: u64) -> io::Result<()> {
    let mut random = Random::of(seed, "populate");
    wide(&top.join("wide"), plan, &mut random)?;
    folders(&top.join("many"), plan, &mut random)?;
    deep(&top.join("deep"), &mut random)?;
    links(&top.join("links"), &mut random)?;
    attributes(&top.join("attributes"), &mut random)?;
    shapes(&top.join("shapes"), plan, &mut random)?;
    specials(&top.join("specials"))
}

fn wide(dir: &Path, plan: Plan, random: &mut Random) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for at in 0..plan.wide {
        let name = format!(
            "{at:06}-{:016x}-{}",
            random.next(),
            "n".repeat(random.between(1, 24) as usize)
        );
        // Most of them are empty: the directory is what matters.
        let size = if at % 8 == 0 { random.below(plan.small) } else { 0 };
        file(&dir.join(name), size, random)?;
    }
    // Holes among the entries.
    let names: Vec<_> = fs::read_dir(dir)?.collect::<io::Result<_>>()?;
    for entry in names.iter().step_by(11) {
        fs::remove_file(entry.path())?;
    }
    Ok(())
}

fn folders(dir: &Path, plan: Plan, random: &mut Random) -> io::Result<()> {
    for folder in 0..plan.folders {
        let folder = dir.join(format!("folder-{folder:03}"));
        fs::create_dir_all(&folder)?;
        for at in 0..30 {
            file(
                &folder.join(format!("file-{at:02}-{:08x}", random.below(1 << 32))),
                random.below(plan.small),
                random,
            )?;
        }
    }
    Ok(())
}

fn deep(dir: &Path, random: &mut Random) -> io::Result<()> {
    let mut dir = dir.to_owned();
    for level in 0..24 {
        dir.push(format!("level-{level}"));
        fs::create_dir_all(&dir)?;
        file(&dir.join("leaf"), random.below(3000), random)?;
    }
    Ok(())
}

fn links(dir: &Path, random: &mut Random) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for at in 0..60 {
        symlink(format!("../many/folder-{at:03}"), dir.join(format!("short-{at}")))?;
        // Longer than any inode; XFS takes 1024 bytes at most.
        let length = random.between(500, 1000) as usize;
        symlink("very/long/target/".repeat(length / 17), dir.join(format!("long-{at}")))?;
        let first = dir.join(format!("hard-{at}-0"));
        file(&first, random.below(9000), random)?;
        for other in 1..random.between(2, 5) {
            fs::hard_link(&first, dir.join(format!("hard-{at}-{other}")))?;
        }
    }
    Ok(())
}

fn attributes(dir: &Path, random: &mut Random) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for at in 0..80 {
        let path = dir.join(format!("with-{at}"));
        file(&path, random.below(5000), random)?;
        set_attribute(&path, "user.short", &random.bytes(16))?;
        for name in ["user.first", "user.second", "user.third"] {
            let length = random.between(300, 1000) as usize;
            set_attribute(&path, name, &random.bytes(length))?;
        }
    }
    Ok(())
}

/// Sparse, fragmented, preallocated, big.
fn shapes(dir: &Path, plan: Plan, random: &mut Random) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for at in 0..plan.fragmented {
        let file = File::create(dir.join(format!("fragmented-{at}")))?;
        for extent in 0..200 {
            file.write_all_at(&random.bytes(4096), extent * 8192)?;
        }
    }
    for at in 0..10 {
        let file = File::create(dir.join(format!("sparse-{at}")))?;
        for _ in 0..3 {
            file.write_all_at(&random.bytes(5000), random.below(1 << 30))?;
        }
        file.set_len(1 << 30)?;
    }
    for at in 0..4 {
        let mut file = File::create(dir.join(format!("big-{at}")))?;
        for _ in 0..random.between(4, 12) {
            file.write_all(&random.bytes(128 << 10))?;
        }
        let after = (1 << 20) + (at << 16);
        let flags = nix::fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE;
        nix::fcntl::fallocate(&file, flags, after, 64 << 10).map_err(io::Error::from)?;
    }
    Ok(())
}

fn specials(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for at in 0..8_u64 {
        let node = |kind: SFlag, name: String, device: u64| {
            mknod(&dir.join(name), kind, Mode::from_bits_truncate(0o600), device)
        };
        node(SFlag::S_IFIFO, format!("fifo-{at}"), 0)?;
        // The null device: opened by mistake, it does no harm.
        node(SFlag::S_IFCHR, format!("null-{at}"), makedev(1, 3))?;
        node(SFlag::S_IFSOCK, format!("socket-{at}"), 0)?;
    }
    drop(UnixListener::bind(dir.join("bound"))?);
    Ok(())
}

fn file(path: &Path, size: u64, random: &mut Random) -> io::Result<()> {
    let mut file = File::create(path)?;
    if size > 0 {
        file.write_all(&random.bytes(size as usize))?;
    }
    Ok(())
}

pub fn set_attribute(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    let text = |bytes: &[u8]| std::ffi::CString::new(bytes).map_err(io::Error::other);
    let path = text(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))?;
    let name = text(name.as_bytes())?;
    // SAFETY: two C strings and a buffer with its length.
    let done = unsafe {
        nix::libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    nix::errno::Errno::result(done).map(drop).map_err(io::Error::from)
}
