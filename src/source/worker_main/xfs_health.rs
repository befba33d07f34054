//! The helper that reads the sick bits of one XFS: those of its allocation groups and inodes
//! (fs/xfs/libxfs/xfs_fs.h).
//!
//! In, one line: `HealthQuery`. Out, one line for each part: `HealthResponse`. The end of its
//! standard input ends it, between two queries. Reading all inodes disturbs other I/O, so it runs
//! at the lowest priority. An XFS that has shut down answers EIO to every query: that is reported
//! as well.

use std::io::{self, BufRead};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::checks::xfs_health::{HealthQuery, HealthResponse, HealthScope, Sickness};
use crate::worker_main::write_json_line;
use diskvitals_fscheck::SignalKind;
use diskvitals_host::block::dev_no;
use diskvitals_host::process;
use diskvitals_host::root::HostRoot;
use diskvitals_host::xfs::{self, Sick, XfsError};
use diskvitals_text::causes::with_causes;

/// XFS_AG_GEOM_SICK_*, from bit 0.
const GROUP_SICK_BITS: [&str; 11] = [
    "superblock copy",
    "free space header (AGF)",
    "free list (AGFL)",
    "inode header (AGI)",
    "free space by block (bnobt)",
    "free space by size (cntbt)",
    "inodes (inobt)",
    "free inodes (finobt)",
    "owners of blocks (rmapbt)",
    "reference counts (refcountbt)",
    "inodes that were dropped from memory",
];
/// XFS_BS_SICK_*, from bit 0.
const INODE_SICK_BITS: [&str; 9] = [
    "core",
    "data extents",
    "attribute extents",
    "copy-on-write extents",
    "directory",
    "attributes",
    "symbolic link",
    "parent pointer",
    "directory tree",
];

/// The main function of the process.
pub fn serve(root: &HostRoot) -> io::Result<()> {
    // If this fails, the process runs at normal priority, but its time is still limited.
    let _ = process::lower_priority();
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Ok(());
    }
    let ask: HealthQuery = serde_json::from_str(&line)?;
    if root.is_recorded() {
        let nothing = HealthResponse::Sick(Vec::new());
        return if ask.scope == HealthScope::Inodes {
            send(&nothing).and_then(|()| send(&nothing))
        } else {
            send(&nothing)
        };
    }
    send(&health_message(groups(&ask)))?;
    if ask.scope == HealthScope::Inodes { send(&health_message(inodes(&ask))) } else { Ok(()) }
}

fn send(said: &HealthResponse) -> io::Result<()> {
    write_json_line(&mut io::stdout().lock(), said)
}

fn health_message(read: Result<Option<Sick>, XfsError>) -> HealthResponse {
    match read {
        Ok(sick) => HealthResponse::Sick(describe_sick(&sick.unwrap_or_default())),
        Err(XfsError::Open { path, source: Errno::EIO }) => {
            let text = format!("open({path}): EIO: the filesystem has shut down");
            HealthResponse::Sick(vec![Sickness { kind: SignalKind::Fault, text }])
        }
        Err(error) => HealthResponse::Failed { error: with_causes(&error) },
    }
}

fn groups(ask: &HealthQuery) -> Result<Option<Sick>, XfsError> {
    check_device(ask)?;
    xfs::sick_groups(&ask.mount)
}

fn inodes(ask: &HealthQuery) -> Result<Option<Sick>, XfsError> {
    check_device(ask)?;
    xfs::sick_inodes(&ask.mount, &mut is_input_open)
}

/// Fails if another filesystem is mounted there now, which has other bits.
fn check_device(ask: &HealthQuery) -> Result<(), XfsError> {
    match std::fs::symlink_metadata(ask.mount.as_path()) {
        Ok(data) if dev_no(std::os::unix::fs::MetadataExt::dev(&data)) != ask.dev => {
            Err(XfsError::Open { path: ask.mount.clone(), source: Errno::ESTALE })
        }
        // The error of the next query is reported instead.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The daemon sends nothing more: any event on the pipe is its end.
fn is_input_open() -> bool {
    let stdin = io::stdin();
    let mut waited = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    poll(&mut waited, PollTimeout::ZERO) == Ok(0)
}

fn describe_sick(sick: &Sick) -> Vec<Sickness> {
    let damaged = |text| Sickness { kind: SignalKind::Corrupted, text };
    let groups = sick.groups.iter().map(|(number, bits)| {
        format!(
            "XFS_IOC_AG_GEOMETRY: allocation group {number} is sick ({bits:#x}): {}",
            bit_names(u64::from(*bits), &GROUP_SICK_BITS)
        )
    });
    let inodes = sick.inodes.iter().map(|(number, bits)| {
        format!(
            "XFS_IOC_BULKSTAT: inode {number} is sick ({bits:#x}): {}",
            bit_names(u64::from(*bits), &INODE_SICK_BITS)
        )
    });
    let more = (sick.more_inodes > 0)
        .then(|| format!("XFS_IOC_BULKSTAT: {} more inodes are sick", sick.more_inodes));
    let refused = sick.errors.iter().filter_map(|(errno, text)| {
        Some(Sickness { kind: signal_kind(*errno)?, text: text.clone() })
    });
    groups.chain(inodes).chain(more).map(damaged).chain(refused).collect()
}

/// The meaning of an error for the filesystem. A failed read of the drive is no damage, and a
/// missing permission has no meaning.
fn signal_kind(errno: Errno) -> Option<SignalKind> {
    match errno {
        // EFSCORRUPTED and EFSBADCRC (fs/xfs/xfs_linux.h).
        Errno::EUCLEAN | Errno::EBADMSG => Some(SignalKind::Corrupted),
        Errno::EIO => Some(SignalKind::Fault),
        _ => None,
    }
}

/// Names of the bits; bits of later kernels are named by number.
fn bit_names(bits: u64, names: &[&str]) -> String {
    let set = (0..64_usize).filter(|bit| bits >> bit & 1 == 1);
    set.map(|bit| names.get(bit).map_or_else(|| format!("bit {bit}"), |name| (*name).to_owned()))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sick_bits_are_named() {
        let sick = Sick {
            groups: vec![(1, 0b10)],
            inodes: vec![(133, 0x11), (134, 1 << 12)],
            more_inodes: 7,
            errors: vec![(
                Errno::EUCLEAN,
                "XFS_IOC_BULKSTAT after inode 9: Structure needs cleaning".to_owned(),
            )],
        };
        let lines = [
            "XFS_IOC_AG_GEOMETRY: allocation group 1 is sick (0x2): free space header (AGF)",
            "XFS_IOC_BULKSTAT: inode 133 is sick (0x11): core, directory",
            "XFS_IOC_BULKSTAT: inode 134 is sick (0x1000): bit 12",
            "XFS_IOC_BULKSTAT: 7 more inodes are sick",
            "XFS_IOC_BULKSTAT after inode 9: Structure needs cleaning",
        ];
        assert_eq!(
            describe_sick(&sick).iter().map(|sickness| sickness.text.as_str()).collect::<Vec<_>>(),
            lines
        );
        assert!(describe_sick(&sick).iter().all(|sickness| sickness.kind == SignalKind::Corrupted));
        assert_eq!(describe_sick(&Sick::default()), Vec::new());
    }

    #[test]
    fn errors_are_classified_by_errno_and_never_by_text() {
        let refused = |errno: Errno| {
            let text = format!("XFS_IOC_BULKSTAT after inode 9: {}", io::Error::from(errno));
            describe_sick(&Sick { errors: vec![(errno, text)], ..Sick::default() })
                .first()
                .map(|sickness| sickness.kind)
        };
        assert_eq!(refused(Errno::EIO), Some(SignalKind::Fault));
        for errno in [Errno::EUCLEAN, Errno::EBADMSG] {
            assert_eq!(refused(errno), Some(SignalKind::Corrupted));
        }
        for errno in [Errno::EPERM, Errno::ENOTTY, Errno::ESHUTDOWN, Errno::ENOMEM] {
            assert_eq!(refused(errno), None);
        }
        let path = || "/mnt".into();
        let shut = health_message(Err(XfsError::Open { path: path(), source: Errno::EIO }));
        assert!(
            matches!(shut, HealthResponse::Sick(sick) if sick.len() == 1 && sick[0].kind == SignalKind::Fault)
        );
        for errno in [Errno::ENOTTY, Errno::ESHUTDOWN, Errno::EPERM] {
            assert!(matches!(
                health_message(Err(XfsError::Query { path: path(), source: errno.into() })),
                HealthResponse::Failed { .. }
            ));
        }
    }
}
