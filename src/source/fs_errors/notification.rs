//! Parser of fanotify's notifications (fanotify(7), struct fanotify_event_metadata and its records;
//! include/uapi/linux/fanotify.h).
//!
//! In: one read(2) of a group that reports file handles. Out: notices of errors. Pure. Records of
//! unknown kinds are skipped; an invalid length ends the parsing.

use diskvitals_host::fanotify::FsId;

const METADATA: usize = 24;
const VERSION: u8 = 3;
const FS_ERROR: u64 = 0x8000;
const Q_OVERFLOW: u64 = 0x4000;
/// FAN_EVENT_INFO_TYPE_FID and FAN_EVENT_INFO_TYPE_ERROR.
const FID: u8 = 1;
const ERROR: u8 = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    Error {
        /// The filesystem's id; None if the kernel gave none.
        fsid: Option<FsId>,
        /// The errno of the first error.
        errno: i32,
        /// Errors since the last notice was read; the kernel keeps one notice per filesystem.
        count: u32,
        inode: Option<u64>,
    },
    /// Notices were lost.
    Overflow,
}

pub fn parse(mut bytes: &[u8]) -> Vec<Notification> {
    let mut notices = Vec::new();
    while let Some((event, rest)) = next_event(bytes) {
        notices.extend(event);
        bytes = rest;
    }
    notices
}

/// The first event, if it is relevant, and the bytes after it.
fn next_event(bytes: &[u8]) -> Option<(Option<Notification>, &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let header = usize::from(u16::from_ne_bytes(array(bytes, 6)?));
    if length < METADATA || header < METADATA || *bytes.get(4)? != VERSION {
        return None;
    }
    let (event, rest) = (bytes.get(..length)?, bytes.get(length..)?);
    let mask = u64::from_ne_bytes(array(event, 8)?);
    if mask & Q_OVERFLOW != 0 {
        return Some((Some(Notification::Overflow), rest));
    }
    let notice = if mask & FS_ERROR == 0 {
        None
    } else {
        parse_error_event(event.get(header..).unwrap_or_default())
    };
    Some((notice, rest))
}

/// None if the error record is missing.
fn parse_error_event(mut records: &[u8]) -> Option<Notification> {
    let (mut what, mut fsid, mut inode) = (None, None, None);
    while let Some((kind, record, rest)) = next_record(records) {
        match kind {
            // ext4 passes errors with either sign before 7.0; the interface promises positive ones.
            ERROR => {
                what = u32_at(record, 4)
                    .zip(u32_at(record, 8))
                    .map(|(errno, count)| (errno.cast_signed().saturating_abs(), count))
            }
            FID => {
                fsid = array(record, 4);
                inode = file_inode(record);
            }
            _ => {}
        }
        records = rest;
    }
    let (errno, count) = what?;
    Some(Notification::Error { fsid, errno, count, inode })
}

/// struct fanotify_event_info_header: kind, padding, length with the header.
fn next_record(records: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes(array(records, 2)?));
    if length < 4 {
        return None;
    }
    Some((*records.first()?, records.get(..length)?, records.get(length..)?))
}

/// The inode in the struct file_handle after the filesystem's id: length, type, handle. An error
/// without a file has the type 0xff and no handle. Types: include/linux/exportfs.h; XFS's are
/// FILEID_INO32_GEN with 0x80 added for 64 bits (fs/xfs/xfs_export.h).
fn file_inode(record: &[u8]) -> Option<u64> {
    let length = usize::try_from(u32_at(record, 12)?).ok()?;
    let handle = record.get(20..)?.get(..length)?;
    let inode = match u32_at(record, 16)? {
        // FILEID_INO32_GEN, with and without parent: ext4, f2fs.
        0x01 | 0x02 => u64::from(u32_at(handle, 0)?),
        // FILEID_INO64_GEN; FILEID_BTRFS_WITHOUT_PARENT, _WITH_PARENT, _WITH_PARENT_ROOT.
        0x81 | 0x82 | 0x4d | 0x4e | 0x4f => u64::from_ne_bytes(array(handle, 0)?),
        _ => return None,
    };
    (inode != 0).then_some(inode)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_ne_bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.get(..N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
        let length = METADATA + records.iter().map(Vec::len).sum::<usize>();
        let mut bytes = u32::try_from(length).expect("short").to_ne_bytes().to_vec();
        bytes.extend([VERSION, 0]);
        bytes.extend(24_u16.to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend((-1_i32).to_ne_bytes());
        bytes.extend(0_i32.to_ne_bytes());
        bytes.extend(records.concat());
        bytes
    }

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, 0];
        bytes.extend(u16::try_from(4 + body.len()).expect("short").to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn fid(fsid: FsId, kind: i32, handle: &[u8]) -> Vec<u8> {
        let length = u32::try_from(handle.len()).expect("short");
        record(FID, &[&fsid[..], &length.to_ne_bytes(), &kind.to_ne_bytes(), handle].concat())
    }

    fn failure(errno: i32, count: u32) -> Vec<u8> {
        record(ERROR, &[errno.to_ne_bytes(), count.to_ne_bytes()].concat())
    }

    const FS: FsId = [1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn an_error_of_a_file_names_filesystem_errno_count_and_inode() {
        let handle = [12_u32.to_ne_bytes(), 7_u32.to_ne_bytes()].concat();
        let mut bytes = event(FS_ERROR, &[failure(117, 3), fid(FS, 1, &handle)]);
        bytes.extend(event(
            FS_ERROR,
            &[fid(FS, 0x81, &[&99_u64.to_ne_bytes()[..], &[0; 4]].concat()), failure(-5, 1)],
        ));
        let error =
            |errno, count, inode| Notification::Error { fsid: Some(FS), errno, count, inode };
        assert_eq!(parse(&bytes), [error(117, 3, Some(12)), error(5, 1, Some(99))]);
    }

    #[test]
    fn an_error_of_no_file_in_particular_has_no_inode() {
        let bytes = event(FS_ERROR, &[failure(5, 1), fid(FS, 0xff, &[])]);
        assert_eq!(
            parse(&bytes),
            [Notification::Error { fsid: Some(FS), errno: 5, count: 1, inode: None }]
        );
    }

    #[test]
    fn other_events_and_unknown_records_are_passed_over() {
        let mut bytes = event(0x2, &[fid(FS, 1, &[0; 8])]);
        bytes.extend(event(Q_OVERFLOW, &[]));
        bytes.extend(event(FS_ERROR, &[record(77, &[0; 5]), failure(117, 1), record(6, &[])]));
        bytes.extend(event(FS_ERROR, &[fid(FS, 1, &[0; 8])]));
        assert_eq!(
            parse(&bytes),
            [
                Notification::Overflow,
                Notification::Error { fsid: None, errno: 117, count: 1, inode: None }
            ]
        );
    }

    proptest! {
        #[test]
        fn junk_never_panics_and_truncation_loses_only_the_tail(junk in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let _notices = parse(&junk);
            let whole = event(FS_ERROR, &[failure(117, 1), fid(FS, 1, &[9; 8])]);
            let mut bytes = whole.clone();
            bytes.extend(&whole[..cut.min(whole.len() - 1)]);
            prop_assert_eq!(parse(&bytes), parse(&whole));
            // Arbitrary records behind a valid header.
            let _notices = parse(&event(FS_ERROR, &[junk]));
        }
    }
}
