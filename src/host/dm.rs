//! Device-mapper's ioctl interface (linux/dm-ioctl.h): table status without flushing I/O, loading
//! the module of a target type, resuming suspended devices (which `suspended` finds).
//!
//! In: a device number. Out: lines in the format of `dmsetup status`: `START LENGTH TYPE STATUS`.

pub mod suspended;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::root::HostRoot;
use crate::sys::{self, DM_HEADER};
use diskvitals_finding::dev::DevNo;

const CONTROL: &str = "/dev/mapper/control";
/// The oldest version with the commands used here; the kernel accepts minor versions up to its own.
const VERSION: [u32; 3] = [4, 0, 0];
const BUFFER_FULL: u32 = 1 << 8;
/// Without it, querying a thin pool commits its metadata: on a dead disk, that I/O never ends.
const NO_FLUSH: u32 = 1 << 11;
/// DM_STATUS_TABLE_FLAG: returns the arguments of the targets instead of their status
/// (include/uapi/linux/dm-ioctl.h).
const STATUS_TABLE: u32 = 1 << 4;
const FIRST_BUFFER: usize = 16 * 1024;
const MAX_BUFFER: usize = 4 * 1024 * 1024;
/// Offsets in struct dm_ioctl.
const DATA_START: usize = 16;
const TARGET_COUNT: usize = 20;
const FLAGS: usize = 28;
const DEV: usize = 40;
const NAME: usize = 48;
/// DM_NAME_LEN, including the terminating zero.
const NAME_LENGTH: usize = 128;
/// sizeof(struct dm_target_spec): u64 start, u64 length, i32 status, u32 next, char type[16].
const SPEC: usize = 40;

#[derive(Debug, thiserror::Error)]
pub enum DmError {
    #[error("opening {CONTROL}")]
    Open(#[source] io::Error),
    #[error("asking device-mapper for the status of {dev}")]
    TableStatus {
        dev: DevNo,
        #[source]
        source: io::Error,
    },
    #[error("resuming {dev}")]
    Resume {
        dev: DevNo,
        #[source]
        source: io::Error,
    },
    #[error("asking device-mapper for the version of its target {target}")]
    TargetVersion {
        target: String,
        #[source]
        source: io::Error,
    },
    #[error("the status of {dev} does not fit into {MAX_BUFFER} bytes")]
    TooLong { dev: DevNo },
    #[error("device-mapper's answer for {dev} makes no sense")]
    Malformed { dev: DevNo },
}

pub fn table_status(root: &HostRoot, dev: DevNo) -> Result<Vec<String>, DmError> {
    query_table(root, dev, NO_FLUSH)
}

/// The table: `START LENGTH TYPE ARGUMENTS` for each target. Never log it: a crypt target's key is
/// in it, unless the key is in the kernel's keyring.
pub fn table(root: &HostRoot, dev: DevNo) -> Result<Vec<String>, DmError> {
    query_table(root, dev, NO_FLUSH | STATUS_TABLE)
}

/// Makes the kernel load the module of a target type, if it is not loaded. A query for the version
/// of a target type loads its module (dm_get_target_type(), drivers/md/dm-target.c), and needs no
/// CAP_SYS_MODULE.
pub fn load_target(root: &HostRoot, target: &str) -> Result<(), DmError> {
    let control = open_control(root)?;
    let failed = |source| DmError::TargetVersion { target: target.to_owned(), source };
    let mut buffer = request(DevNo::default(), FIRST_BUFFER, 0);
    let name = buffer.get_mut(NAME..NAME + target.len()).filter(|name| name.len() < NAME_LENGTH);
    name.ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?
        .copy_from_slice(target.as_bytes());
    sys::dm_target_version(control.as_fd(), &mut buffer).map_err(failed)
}

/// Resumes the device: its writers continue, with the table that was loaded last, and a filesystem
/// that was frozen for the suspend is thawed. No effect on a device that is not suspended and has
/// no inactive table (do_resume(), drivers/md/dm-ioctl.c).
pub fn resume(root: &HostRoot, dev: DevNo) -> Result<(), DmError> {
    let control = open_control(root)?;
    sys::dm_dev_suspend(control.as_fd(), &mut request(dev, DM_HEADER, 0))
        .map_err(|source| DmError::Resume { dev, source })
}

fn open_control(root: &HostRoot) -> Result<File, DmError> {
    File::options().read(true).write(true).open(root.at(CONTROL)).map_err(DmError::Open)
}

fn query_table(root: &HostRoot, dev: DevNo, flags: u32) -> Result<Vec<String>, DmError> {
    let control = open_control(root)?;
    let mut size = FIRST_BUFFER;
    while size <= MAX_BUFFER {
        let mut buffer = request(dev, size, flags);
        sys::dm_table_status(control.as_fd(), &mut buffer)
            .map_err(|source| DmError::TableStatus { dev, source })?;
        if u32_at(&buffer, FLAGS).is_some_and(|flags| flags & BUFFER_FULL == 0) {
            return parse_targets(&buffer).ok_or(DmError::Malformed { dev });
        }
        size *= 4;
    }
    Err(DmError::TooLong { dev })
}

fn request(dev: DevNo, size: usize, flags: u32) -> Vec<u8> {
    let mut buffer = vec![0; size];
    for (at, part) in VERSION.iter().enumerate() {
        buffer[at * 4..at * 4 + 4].copy_from_slice(&part.to_ne_bytes());
    }
    let header = u32::try_from(DM_HEADER).unwrap_or(0);
    buffer[DATA_START..DATA_START + 4].copy_from_slice(&header.to_ne_bytes());
    buffer[FLAGS..FLAGS + 4].copy_from_slice(&flags.to_ne_bytes());
    buffer[DEV..DEV + 8].copy_from_slice(&encode_dev(dev).to_ne_bytes());
    buffer
}

/// huge_encode_dev() of linux/kdev_t.h.
fn encode_dev(dev: DevNo) -> u64 {
    let (major, minor) = (u64::from(dev.major), u64::from(dev.minor));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// Parses the result: from `data_start` on, a struct dm_target_spec for each target, then its
/// status as a C string. `next` counts from the first struct (retrieve_status(),
/// drivers/md/dm-ioctl.c).
fn parse_targets(buffer: &[u8]) -> Option<Vec<String>> {
    let data = buffer.get(usize::try_from(u32_at(buffer, DATA_START)?).ok()?..)?;
    let count = u32_at(buffer, TARGET_COUNT)?;
    let mut lines = Vec::new();
    let mut at = 0;
    for _ in 0..count {
        let spec = data.get(at..)?;
        let (start, length) = (u64_at(spec, 0)?, u64_at(spec, 8)?);
        let next = usize::try_from(u32_at(spec, 20)?).ok()?;
        let kind = c_string(spec.get(24..SPEC)?)?;
        let status = c_string(spec.get(SPEC..)?)?;
        let line = format!("{start} {length} {kind} {status}");
        lines.push(line.trim_end().to_owned());
        if next <= at && lines.len() < usize::try_from(count).ok()? {
            return None;
        }
        at = next;
    }
    Some(lines)
}

fn c_string(bytes: &[u8]) -> Option<std::borrow::Cow<'_, str>> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(targets: &[(u64, u64, &str, &str)]) -> Vec<u8> {
        let mut buffer = request(DevNo::new(253, 3), DM_HEADER, NO_FLUSH);
        buffer[TARGET_COUNT..TARGET_COUNT + 4]
            .copy_from_slice(&u32::try_from(targets.len()).unwrap().to_ne_bytes());
        let mut data = Vec::new();
        for (start, length, kind, status) in targets {
            let at = data.len();
            data.extend_from_slice(&start.to_ne_bytes());
            data.extend_from_slice(&length.to_ne_bytes());
            data.extend_from_slice(&[0; 8]);
            let mut name = [0; 16];
            name[..kind.len()].copy_from_slice(kind.as_bytes());
            data.extend_from_slice(&name);
            data.extend_from_slice(status.as_bytes());
            data.push(0);
            data.resize(data.len().next_multiple_of(8), 0);
            let next = u32::try_from(data.len()).unwrap();
            data[at + 20..at + 24].copy_from_slice(&next.to_ne_bytes());
        }
        buffer.extend(data);
        buffer
    }

    #[test]
    fn each_target_becomes_a_line() {
        let answer = answer(&[(0, 8, "linear", ""), (8, 16, "thin-pool", "1 2/3 4/5 - rw")]);
        assert_eq!(
            parse_targets(&answer).unwrap(),
            ["0 8 linear", "8 16 thin-pool 1 2/3 4/5 - rw"]
        );
    }

    #[test]
    fn device_numbers_are_encoded_as_the_kernel_decodes_them() {
        assert_eq!(encode_dev(DevNo::new(253, 3)), 0xfd03);
        assert_eq!(encode_dev(DevNo::new(253, 0x123)), 0x0010_fd23);
    }

    proptest! {
        #[test]
        fn no_response_makes_parsing_panic(mut junk in proptest::collection::vec(any::<u8>(), 0..500), start in 0u32..400, count in 0u32..5) {
            let _lines = parse_targets(&junk);
            junk.resize(junk.len().max(DM_HEADER), 0);
            junk[DATA_START..DATA_START + 4].copy_from_slice(&start.to_ne_bytes());
            junk[TARGET_COUNT..TARGET_COUNT + 4].copy_from_slice(&count.to_ne_bytes());
            let _lines = parse_targets(&junk);
        }
    }
}
