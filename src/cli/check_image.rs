//! `check --image`: checks a file that contains a filesystem, without a daemon, as root or not. The
//! file is never changed.
//!
//! In: a path, the policy's limits. Out: a `fscheck::Check` like the daemon's for an unmounted
//! filesystem. Blocks until the checker has ended; the checker ends with the calling thread.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use diskvitals_checker as checker;
use diskvitals_checker::{CheckerInput, JAIL_ARGS, RunCallbacks, RunSpec};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::CheckId;
use diskvitals_finding::path::HostPath;
use diskvitals_fscheck::decision::{CheckOutcome, Decision, DecisionInput, decide};
use diskvitals_fscheck::policy::CheckPolicy;
use diskvitals_fscheck::{
    Check, CheckOrigin, CheckState, CheckTarget, CheckTerms, CheckVerdict, Filesystem, Mode, Run,
    RunActivity,
};
use diskvitals_host::clock::now;
use diskvitals_host::helper::Program;
use diskvitals_host::jail::{
    self, IMAGE_PATH, IdError, Isolation, JailSpec, RunGroup, free_id, has_own_ids,
};
use diskvitals_host::root::HostRoot;
use diskvitals_host::trusted_file;

/// One run decides; more are needed only if the first one fails.
const MAX_RUNS: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("opening {}", .0.display())]
    Open(PathBuf, #[source] io::Error),
    #[error("reading {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("{} is a device: `diskvitals check {}` asks the daemon to check it", .0.display(), .0.display())]
    Device(PathBuf),
    #[error("{} is no file", .0.display())]
    NotAFile(PathBuf),
    #[error("{} is empty", .0.display())]
    Empty(PathBuf),
    #[error("{} holds no filesystem that can be checked: neither ext2, ext3, ext4, XFS nor btrfs", .0.display())]
    Unknown(PathBuf),
    #[error(transparent)]
    NoTool(checker::ProgramError),
    #[error("looking who may change the checker")]
    Untrusted(#[source] io::Error),
    #[error("choosing a user id for the checker")]
    Id(#[source] IdError),
    #[error("making a pipe")]
    Pipe(#[source] nix::errno::Errno),
}

/// Checks the image at `path`. `filesystem` is detected by its superblock unless it is given.
/// `stop`: readable or closed when the checker must end. `activity` is called with what it reports of
/// itself.
pub fn check_image(
    path: &Path,
    filesystem: Option<Filesystem>,
    policy: &CheckPolicy,
    stop: BorrowedFd<'_>,
    activity: &mut dyn FnMut(&RunActivity),
) -> Result<Check, ImageError> {
    // Our own program: its main function handles `diskvitals worker jail`.
    let program =
        Program { program: "/proc/self/exe".into(), args: JAIL_ARGS.map(OsString::from).to_vec() };
    check_until(&program, path, filesystem, policy, stop, activity)
}

/// Like `check_image`, with another program that provides the jail, and to its end.
pub fn check_image_in(
    program: &Program,
    path: &Path,
    filesystem: Option<Filesystem>,
    policy: &CheckPolicy,
    activity: &mut dyn FnMut(&RunActivity),
) -> Result<Check, ImageError> {
    let (stop, _held) = stop_pipe()?;
    check_until(program, path, filesystem, policy, stop.as_fd(), activity)
}

/// The checker stops when the second one is closed.
pub(crate) fn stop_pipe() -> Result<(OwnedFd, OwnedFd), ImageError> {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(ImageError::Pipe)
}

fn check_until(
    program: &Program,
    path: &Path,
    filesystem: Option<Filesystem>,
    policy: &CheckPolicy,
    stop: BorrowedFd<'_>,
    activity: &mut dyn FnMut(&RunActivity),
) -> Result<Check, ImageError> {
    let requested = now();
    let absolute = path.canonicalize().map_err(|error| ImageError::Open(path.to_owned(), error))?;
    let found = detect(&absolute)?;
    let filesystem = filesystem.or(found).ok_or_else(|| ImageError::Unknown(path.to_owned()))?;
    let command = checker::find_program(&policy.tools, filesystem).map_err(ImageError::NoTool)?;
    trusted_file::check_program(&command).map_err(ImageError::Untrusted)?;
    let isolation = isolation(&absolute)?;
    let root = HostRoot::new("/");
    if isolation.is_some() {
        // Of an earlier call that was killed.
        jail::clear_leftover_groups(&root);
    }
    let source = CheckerInput::Image(match &isolation {
        Some(_) => Path::new(IMAGE_PATH),
        None => &absolute,
    });
    let spec = RunSpec {
        program: program.clone(),
        filesystem,
        mode: Mode::Unmounted,
        args: checker::arguments(filesystem, source),
        command,
        plan: JailSpec {
            isolation,
            memory: policy.memory_bytes,
            unlimited_files: checker::needs_unlimited_file_size(filesystem),
            low_priority: false,
            parent: nix::unistd::getpid().as_raw(),
            progress: checker::reports_on_descriptor(filesystem),
            read_rate: None,
        },
        timeout: policy.timeout,
        bytes_per_second: None,
    };
    let shown = checker::command_line(
        &spec.command,
        &checker::arguments(filesystem, CheckerInput::Image(path)),
    );
    // The file is not in use, so the read rate has no limit.
    let terms = CheckTerms { bytes_per_second: None, ..policy.terms(&policy.for_names(&[])) };
    let device = path.display().to_string();
    let mut runs: Vec<Arc<Run>> = Vec::new();
    let outcome = loop {
        let so_far: Vec<&Run> = runs.iter().map(Arc::as_ref).collect();
        let situation = DecisionInput {
            filesystem,
            device: &device,
            mode: Mode::Unmounted,
            terms: &terms,
            signals: &[],
            can_snapshot: false,
            freeze_refusal: None,
        };
        match decide(&situation, &so_far, now()) {
            Decision::Done(outcome) => break outcome,
            Decision::Run(Mode::Unmounted) if runs.len() < MAX_RUNS => {
                let mut callbacks =
                    RunCallbacks { on_activity: &mut *activity, invalid_because: &mut || None };
                let group = Arc::new(RunGroup::create(&root, &spec.plan));
                let mut run = checker::run(&spec, &group, stop, &mut callbacks).run;
                run.command.clone_from(&shown);
                runs.push(Arc::new(run));
            }
            // A file cannot be frozen, and there is nothing to wait for.
            Decision::Run(_) | Decision::Wait { .. } => {
                let reason = "the runs of the checker did not come to a result".to_owned();
                break CheckOutcome {
                    verdict: CheckVerdict::Inconclusive,
                    reason,
                    mode: Mode::Unmounted,
                };
            }
        }
    };
    Ok(check(path, filesystem, terms, requested, runs, outcome))
}

fn check(
    path: &Path,
    filesystem: Filesystem,
    terms: CheckTerms,
    requested: Timestamp,
    runs: Vec<Arc<Run>>,
    outcome: CheckOutcome,
) -> Check {
    let name = HostPath::from(path).to_string();
    Check {
        id: CheckId::new(&name, requested),
        target: CheckTarget {
            device: name.clone(),
            name,
            volume: None,
            filesystem,
            uuid: None,
            dev: DevNo::default(),
            members: Vec::new(),
            mount: None,
            mounted_dev: None,
            mode: Mode::Unmounted,
            drives: Vec::new(),
            logical_volume: None,
        },
        origin: CheckOrigin::Requested(format!("uid {}", nix::unistd::getuid())),
        terms,
        asked: requested,
        started: Some(requested),
        ended: Some(now()),
        state: CheckState::Ended,
        mode: outcome.mode,
        runs,
        signals: Vec::new(),
        verdict: Some(outcome.verdict),
        reason: outcome.reason,
        cancelled: false,
        is_scrubbed: false,
    }
}

/// As root, the checker runs with an id of its own if all users may read the image, else as the
/// image's owner, always without write permission. Otherwise it runs as the calling user.
fn isolation(path: &Path) -> Result<Option<Isolation>, ImageError> {
    if !jail::is_possible() {
        return Ok(None);
    }
    let metadata = path.metadata().map_err(|error| ImageError::Open(path.to_owned(), error))?;
    let (uid, gid) = if metadata.mode() & 0o004 == 0 || !has_own_ids() {
        (metadata.uid(), metadata.gid())
    } else {
        let id = free_id(&HostRoot::new("/")).map_err(ImageError::Id)?;
        (id, id)
    };
    Ok(Some(Isolation { uid, gid, nodes: Vec::new(), image: Some(HostPath::from(path)) }))
}

/// s_magic of ext2, ext3 and ext4: at 56 of the superblock, which begins at 1024, and in its copies
/// at the beginning of block group 1 where blocks have 1024, 2048 or 4096 bytes (fs/ext4/ext4.h).
const EXT_MAGIC: [u8; 2] = 0xef53_u16.to_le_bytes();
const EXT_AT: [u64; 4] = [1024 + 56, 8193 * 1024 + 56, 16384 * 2048 + 56, 32768 * 4096 + 56];
/// XFS_SB_MAGIC, at the very beginning (fs/xfs/libxfs/xfs_format.h).
const XFS_MAGIC: &[u8] = b"XFSB";
/// BTRFS_MAGIC, at 64 of the superblock, which begins at 64 KiB (btrfs_tree.h).
const BTRFS_MAGIC: &[u8] = b"_BHRfS_M";
const BTRFS_AT: u64 = 0x10000 + 64;

/// The filesystem of the image; None if it is not a known one.
fn detect(path: &Path) -> Result<Option<Filesystem>, ImageError> {
    let opening = |error| ImageError::Open(path.to_owned(), error);
    // Opening a pipe must not wait for its other end.
    let file = File::options()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(path)
        .map_err(opening)?;
    let kind = file.metadata().map_err(opening)?;
    if kind.file_type().is_block_device() {
        return Err(ImageError::Device(path.to_owned()));
    }
    if !kind.is_file() {
        return Err(ImageError::NotAFile(path.to_owned()));
    }
    if kind.len() == 0 {
        return Err(ImageError::Empty(path.to_owned()));
    }
    let is_at = |at: u64, magic: &[u8]| {
        let mut there = vec![0; magic.len()];
        match file.read_exact_at(&mut there, at) {
            Ok(()) => Ok(there == magic),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(ImageError::Read(path.to_owned(), error)),
        }
    };
    if is_at(BTRFS_AT, BTRFS_MAGIC)? {
        return Ok(Some(Filesystem::Btrfs));
    }
    if is_at(0, XFS_MAGIC)? {
        return Ok(Some(Filesystem::Xfs));
    }
    for at in EXT_AT {
        if is_at(at, &EXT_MAGIC)? {
            return Ok(Some(Filesystem::Ext4));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(parts: &[(u64, &[u8])]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(200 << 20).unwrap();
        parts.iter().for_each(|(at, bytes)| file.as_file().write_all_at(bytes, *at).unwrap());
        file
    }

    #[test]
    fn a_filesystem_is_known_by_its_superblock_or_a_copy_of_it() {
        let found = |parts: &[(u64, &[u8])]| detect(image(parts).path()).unwrap();
        assert_eq!(found(&[(0, b"XFSB")]), Some(Filesystem::Xfs));
        assert_eq!(found(&[(65600, b"_BHRfS_M")]), Some(Filesystem::Btrfs));
        assert_eq!(found(&[(1080, &[0x53, 0xef])]), Some(Filesystem::Ext4));
        assert_eq!(found(&[(134_217_784, &[0x53, 0xef])]), Some(Filesystem::Ext4));
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn each_kind_of_invalid_image_has_its_own_error() {
        let policy = CheckPolicy::default();
        let program = Program { program: "/nonexistent".into(), args: Vec::new() };
        let error = |path: &Path| {
            check_image_in(&program, path, None, &policy, &mut |_| ()).unwrap_err().to_string()
        };
        assert_eq!(error(Path::new("/nonexistent/x.img")), "opening /nonexistent/x.img");
        assert_eq!(error(Path::new("/")), "/ is no file");
        assert_eq!(error(Path::new("/dev/null")), "/dev/null is no file");
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(error(empty.path()), format!("{} is empty", empty.path().display()));
        let blank = image(&[]);
        let wrong = format!(
            "{} holds no filesystem that can be checked: neither ext2, ext3, ext4, XFS nor btrfs",
            blank.path().display()
        );
        assert_eq!(error(blank.path()), wrong);
        let mut missing = CheckPolicy::default();
        missing.tools.xfs_repair = Some("/nonexistent/xfs_repair".into());
        let error =
            check_image_in(&program, image(&[(0, b"XFSB")]).path(), None, &missing, &mut |_| ())
                .unwrap_err();
        assert_eq!(
            error.to_string(),
            "/nonexistent/xfs_repair is not there: `checks.tools.xfs_repair` names it"
        );
    }
}
