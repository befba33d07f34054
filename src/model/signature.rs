//! Signatures of what a device is a member of though nothing here mounts it: arrays, pools, volume
//! groups, Ceph OSDs, swap.
//!
//! In: the bytes at the places of the magic numbers. Out: every `Signature`. udev names none where two
//! are valid (libblkid calls that ambivalent), and of an OSD or a ZFS label only the kind.

use serde::{Deserialize, Serialize};

use crate::superblock::{self, BTRFS_LENGTH, BTRFS_OFFSET};

/// Bytes that `parse` needs from the start and from the end of the device.
pub const EDGE_LENGTH: u64 = 256 << 10;
/// Where BlueStore repeats its label since Ceph 19.2.1 and 20, and the length of one
/// (src/os/bluestore/BlueStore.cc).
pub const LABEL_COPIES: [u64; 4] = [1 << 30, 10 << 30, 100 << 30, 1000 << 30];
pub const LABEL_LENGTH: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// As libblkid names it.
    pub fs_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub osd: Option<OsdLabel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zfs: Option<ZfsLabel>,
}

/// BlueStore's label (`bluestore_bdev_label_t`). That of a DB or WAL device has only the UUID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdLabel {
    pub uuid: String,
    /// `main`, `bluefs db` or `bluefs wal`.
    pub role: String,
    /// The number in `osd.N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The cluster's fsid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// The nvlist of a ZFS label: `name` and `state`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZfsLabel {
    /// Labels of spares and L2ARC devices name no pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub state: LabelState,
}

/// pool_state_t (include/sys/fs/zfs.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelState {
    /// It proves nothing: a drive that was pulled keeps it.
    Active,
    Exported,
    Destroyed,
    Spare,
    L2cache,
}

impl Signature {
    /// A filesystem of its own is no member of anything.
    pub(crate) fn is_member(&self) -> bool {
        !matches!(self.fs_type.as_str(), "ext4" | "xfs" | "btrfs")
    }
}

enum Place {
    Start(u64),
    /// So many bytes before the end, rounded down to a multiple of the second number; then the third.
    End(u64, u64, u64),
}
use Place::{End, Start};

/// Offsets: libblkid/src/superblocks of util-linux. Where the kernel has pages of 16 or 64 KiB, so has
/// swap.
const MAGICS: [(&str, Place, &[u8]); 32] = [
    (
        "bcachefs",
        Start(4096 + 24),
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    (
        "bcache",
        Start(4096 + 24),
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    ("drbd", End(4096, 4096, 60), b"\x83\x74\x02\x6b"),
    ("drbd", End(4096, 4096, 60), b"\x83\x74\x02\x6c"),
    ("drbd", End(4096, 4096, 60), b"\x83\x74\x02\x6d"),
    ("LVM2_member", Start(24), b"LVM2 001"),
    ("LVM2_member", Start(512 + 24), b"LVM2 001"),
    ("LVM2_member", Start(1024 + 24), b"LVM2 001"),
    ("LVM2_member", Start(1536 + 24), b"LVM2 001"),
    // The magic number and the major version; of 0.90, also the minor one.
    ("linux_raid_member", Start(4096), b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    ("linux_raid_member", Start(0), b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    ("linux_raid_member", End(8192, 4096, 0), b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    ("linux_raid_member", End(65536, 65536, 0), b"\xfc\x4e\x2b\xa9\0\0\0\0\x5a\0\0\0"),
    ("linux_raid_member", End(65536, 65536, 0), b"\xa9\x2b\x4e\xfc\0\0\0\0\0\0\0\x5a"),
    ("isw_raid_member", End(1024, 512, 0), b"Intel Raid ISM Cfg Sig. "),
    ("ddf_raid_member", End(512, 512, 0), b"\xde\x11\xde\x11"),
    ("ddf_raid_member", End(257 * 512, 512, 0), b"\xde\x11\xde\x11"),
    ("crypto_LUKS", Start(0), b"LUKS\xba\xbe"),
    ("crypto_LUKS", Start(0x4000), b"SKUL\xba\xbe"),
    ("swap", Start(4096 - 10), b"SWAPSPACE2"),
    ("swap", Start(16384 - 10), b"SWAPSPACE2"),
    ("swap", Start(65536 - 10), b"SWAPSPACE2"),
    ("swsuspend", Start(4096 - 10), b"S1SUSPEND"),
    ("swsuspend", Start(16384 - 10), b"S1SUSPEND"),
    ("swsuspend", Start(65536 - 10), b"S1SUSPEND"),
    ("vdo", Start(0), b"dmvdo001"),
    ("stratis", Start(512 + 4), b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("stratis", Start(9 * 512 + 4), b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("DM_integrity", Start(0), b"integrt\0"),
    ("DM_snapshot_cow", Start(0), b"SnAp"),
    ("BitLocker", Start(3), b"-FVE-FS-"),
    ("ceph_bluestore", Start(0), LABEL),
];

const LABEL: &[u8] = b"bluestore block device\n";

/// `start`, `end`: `EDGE_LENGTH` bytes, less on a smaller device; `size`: of the device in bytes;
/// `copies`: what is at `LABEL_COPIES`. Each kind once.
pub fn parse(start: &[u8], end: &[u8], size: u64, copies: &[Vec<u8>]) -> Vec<Signature> {
    let has = |(_, place, magic): &&(&str, Place, &[u8])| {
        let bytes = match place {
            Start(at) => slice(start, Some(*at), magic.len()),
            End(back, align, plus) => {
                let at = size.checked_sub(*back).map(|at| at / align * align + plus);
                let first = size.saturating_sub(end.len() as u64);
                slice(end, at.and_then(|at| at.checked_sub(first)), magic.len())
            }
        };
        bytes == Some(*magic)
    };
    let mut kinds: Vec<&str> = MAGICS.iter().filter(has).map(|(kind, ..)| *kind).collect();
    let zfs = zfs_label(start.get(ZFS_NVLIST..).unwrap_or_default());
    kinds.extend(zfs.is_some().then_some("zfs_member"));
    let copies = || copies.iter().map(Vec::as_slice);
    kinds.extend(copies().any(|it| it.starts_with(LABEL)).then_some("ceph_bluestore"));
    let osd = std::iter::once(start).chain(copies()).find_map(osd_label);
    let btrfs = slice(start, Some(BTRFS_OFFSET), BTRFS_LENGTH).unwrap_or_default();
    let filesystem = superblock::parse(start, btrfs);
    kinds.extend(filesystem.as_ref().map(|it| it.fs_type.as_str()));
    kinds.sort_unstable();
    kinds.dedup();
    let signature = |kind: &str| Signature {
        fs_type: kind.to_owned(),
        osd: osd.clone().filter(|_| kind == "ceph_bluestore"),
        zfs: zfs.clone().filter(|_| kind == "zfs_member"),
    };
    kinds.into_iter().map(signature).collect()
}

fn slice(bytes: &[u8], at: Option<u64>, length: usize) -> Option<&[u8]> {
    let at = usize::try_from(at?).ok()?;
    bytes.get(at..at.checked_add(length)?)
}

/// The bytes that are left of a structure.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A string as Ceph encodes it.
    fn string(&mut self) -> Option<String> {
        let length = u32::from_le_bytes(self.array()?);
        let bytes = self.take(usize::try_from(length).ok()?)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// bluestore_bdev_label_t::encode() (src/os/bluestore/bluestore_types.cc): the UUID as text, the
/// header of an encoded structure, then UUID, size, time of birth, description, and since version 2 a
/// map of strings.
fn osd_label(bytes: &[u8]) -> Option<OsdLabel> {
    let mut label = Reader(bytes.get(..LABEL_LENGTH)?.strip_prefix(LABEL)?);
    let uuid = std::str::from_utf8(label.take(36)?).ok()?.to_owned();
    label.take(1)?;
    let [version, _] = label.array()?;
    label.take(4 + 16 + 8 + 8)?;
    let mut found = OsdLabel { uuid, role: label.string()?, id: None, cluster: None };
    let entries = if version < 2 { 0 } else { u32::from_le_bytes(label.array()?) };
    for _ in 0..entries {
        let (key, value) = (label.string()?, label.string()?);
        match key.as_str() {
            "whoami" => found.id = Some(value),
            "ceph_fsid" => found.cluster = Some(value),
            _ => {}
        }
    }
    Some(found)
}

/// Where the first label has its nvlist (VDEV_SKIP_SIZE, include/sys/vdev_impl.h).
const ZFS_NVLIST: usize = 16 << 10;

/// An nvlist in XDR (module/nvpair/nvpair.c): of each pair its length, the name, the type, the number
/// of elements and the value; strings are padded to four bytes.
fn zfs_label(bytes: &[u8]) -> Option<ZfsLabel> {
    const UINT64: u32 = 8;
    const STRING: u32 = 9;
    let mut list = Reader(bytes);
    let ([1, 0 | 1, ..], [0, 0, 0, 0]) = (list.array::<4>()?, list.array::<4>()?) else {
        return None;
    };
    list.take(4)?;
    let (mut pool, mut state) = (None, None);
    loop {
        let length = usize::try_from(u32::from_be_bytes(list.array()?)).ok()?;
        if length == 0 {
            return Some(ZfsLabel { pool, state: state? });
        }
        let mut pair = Reader(list.take(length.checked_sub(4)?)?);
        pair.take(4)?;
        let name = xdr_string(&mut pair)?;
        let kind = u32::from_be_bytes(pair.array()?);
        pair.take(4)?;
        match (name, kind) {
            (b"name", STRING) => {
                pool = Some(String::from_utf8_lossy(xdr_string(&mut pair)?).into_owned());
            }
            (b"state", UINT64) => {
                state = Some(match u64::from_be_bytes(pair.array()?) {
                    0 => LabelState::Active,
                    1 => LabelState::Exported,
                    2 => LabelState::Destroyed,
                    3 => LabelState::Spare,
                    4 => LabelState::L2cache,
                    _ => return None,
                });
            }
            _ => {}
        }
    }
}

fn xdr_string<'a>(from: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = usize::try_from(u32::from_be_bytes(from.array()?)).ok()?;
    let padded = from.take(length.checked_next_multiple_of(4)?)?;
    padded.get(..length)
}

#[cfg(test)]
mod tests;
