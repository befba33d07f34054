//! Parser of mountinfo: mounts, unescaped. Fields as in proc_pid_mountinfo(5).

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dev::DevNo;
use crate::path::HostPath;

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub id: u32,
    pub parent: u32,
    pub dev: DevNo,
    /// The path within the filesystem that this mount shows: `/` for a whole filesystem, otherwise
    /// the root of a bind mount or a subvolume.
    pub root: HostPath,
    pub mount_point: HostPath,
    /// Options of this mount (`rw`, `noatime`…).
    pub options: MountOptions,
    pub fs_type: String,
    /// `/dev/sda1`, `server:/export`, `tmpfs`…
    pub source: HostPath,
    /// Options of the filesystem (the superblock), shared by all its mounts.
    pub super_options: MountOptions,
}

/// Shared: hundreds of mounts have the same few lists.
pub type MountOptions = Arc<[String]>;

impl Mount {
    pub fn is_read_only(&self) -> bool {
        self.options.iter().any(|o| o == "ro")
    }

    /// The filesystem itself refuses writes.
    pub fn is_super_read_only(&self) -> bool {
        is_super_read_only(&self.super_options)
    }
}

/// `ro`, or one of ext4's `emergency_ro` and `shutdown` (fs/ext4/super.c, 6.15 and later).
pub fn is_super_read_only(super_options: &[String]) -> bool {
    let refuses = |option: &String| matches!(option.as_str(), "ro" | "emergency_ro" | "shutdown");
    super_options.iter().any(refuses)
}

/// One line of /etc/fstab (fstab(5)) that mounts a filesystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FstabEntry {
    pub source: String,
    pub mount_point: HostPath,
    pub fs_type: String,
    pub options: Vec<String>,
}

/// The mounts of the host: PID 1's view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountTable {
    pub mounts: Vec<Mount>,
    pub fstab: Vec<FstabEntry>,
}

/// Invalid lines are left out and returned; all others are parsed. A field that is not UTF-8 is
/// kept, options are shown lossily.
pub fn parse(text: &[u8]) -> (Vec<Mount>, Vec<String>) {
    let (mut mounts, mut warnings) = (Vec::new(), Vec::new());
    let mut shared = Shared::default();
    for (number, line) in
        text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty())
    {
        match parse_line(line, &mut shared) {
            Some(mount) => mounts.push(mount),
            None => warnings.push(format!(
                "/proc/1/mountinfo, line {}: not a mount: {}",
                number + 1,
                excerpt(line)
            )),
        }
    }
    mounts.shrink_to_fit();
    (mounts, warnings)
}

/// Fields that many lines have.
#[derive(Default)]
struct Shared<'a> {
    options: HashMap<&'a [u8], MountOptions>,
    paths: HashMap<&'a [u8], HostPath>,
}

impl<'a> Shared<'a> {
    fn options(&mut self, field: &'a [u8]) -> MountOptions {
        let options = self.options.entry(field);
        options.or_insert_with(|| parse_options(field).into()).clone()
    }

    fn path(&mut self, field: &'a [u8]) -> HostPath {
        let path = self.paths.entry(field);
        path.or_insert_with(|| HostPath::unescape(field)).clone()
    }
}

fn parse_line<'a>(line: &'a [u8], shared: &mut Shared<'a>) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let dev: DevNo = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let root = shared.path(fields.next()?);
    let mount_point = HostPath::unescape(fields.next()?);
    let options = shared.options(fields.next()?);
    // Optional fields (shared:N, master:N, …) end with a hyphen; newer kernels may have more of
    // them.
    fields.by_ref().find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    // The kernel prints an empty source as an empty field, which the split drops: then one field
    // less follows.
    let rest: Vec<&[u8]> = fields.collect();
    let (source, super_options) = match rest.as_slice() {
        [super_options] => (&b""[..], *super_options),
        [source, super_options, ..] => (*source, *super_options),
        [] => return None,
    };
    Some(Mount {
        id,
        parent,
        dev,
        root,
        mount_point,
        options,
        fs_type,
        source: shared.path(source),
        super_options: shared.options(super_options),
    })
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The options of one field.
pub fn parse_options(field: &[u8]) -> Vec<String> {
    field
        .split(|byte| *byte == b',')
        .filter(|option| !option.is_empty())
        .map(|option| HostPath::unescape(option).to_string())
        .collect()
}

fn excerpt(line: &[u8]) -> String {
    let short = HostPath::new(&line[..line.len().min(120)]);
    if line.len() > 120 { format!("{short}…") } else { short.to_string() }
}
