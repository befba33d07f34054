//! Filesystem errors reported by the kernel: fanotify(7), FAN_FS_ERROR. ext4 reports them since
//! Linux 5.16, XFS and others since 7.0; a mark on a filesystem that reports none costs nothing.
//!
//! In: the mounts that are probed. Out: `SourceUpdate::FsError`, and `SourceUpdate::Source` with
//! the watched filesystems. Marking may hang in a dead mount and needs PID 1's mount namespace: a
//! helper process (`worker_main::fs_errors`) does it, and the daemon never waits for the helper.
//! May not enter: the meaning of an error for a volume.
//!
//! Newer kernels have a monitor for XFS (XFS_IOC_HEALTH_MONITOR), which also reports sick
//! structures and media errors. It would be another module beside this one, with the same mounts as
//! input.

pub mod notification;
pub mod protocol;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::context::{Context, SourceError, SourceSettings};
use crate::fs_errors::protocol::{Filesystem, HelperMessage, MarkRequest, MarkResult};
use crate::status_reporter::StatusReporter;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::source::Source;
use diskvitals_host::clock;
use diskvitals_host::helper::{Helper, HelperError};
use diskvitals_model::probe::ProbeTarget;
use diskvitals_model::source_update::{FsErrorNotice, SourceRequest, SourceStatus, SourceUpdate};
use diskvitals_text::backoff::Backoff;
use diskvitals_text::causes::with_causes;

/// Filesystems on block devices whose drivers report errors, or may in a later kernel.
const FILESYSTEM_TYPES: [&str; 6] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"];
/// Maximum number of mounts tried per filesystem.
const MAX_PATHS: usize = 4;
/// A new mount may be unmounted again at once, and marking keeps it busy for a moment.
const SETTLE_DELAY: Duration = Duration::from_secs(1);
/// A filesystem that was unmounted and mounted again between two reads of the mount table has lost
/// its mark, and looks unchanged.
const REMARK_INTERVAL: Duration = Duration::from_secs(60);
const NO_FILESYSTEM: &str = "no filesystem is watched";
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Runs until the state's owner has ended.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let mut reporter = StatusReporter::new(Source::FsErrors);
    if context.root.is_recorded() {
        reporter
            .report(&context, SourceStatus::Absent("a recorded tree has no events".into()))
            .await?;
        return wait_for_shutdown(&context).await;
    }
    let mut settings = context.settings.clone();
    let mut backoff = Backoff::new(Duration::from_secs(1), MAX_BACKOFF);
    loop {
        if !settings.borrow_and_update().fs_events {
            reporter
                .report(&context, SourceStatus::Absent("switched off: [fs_events] enabled".into()))
                .await?;
            settings.changed().await.map_err(|_| SourceError::OwnerGone)?;
            continue;
        }
        // Saves a process at the start, when other processes are awaited, and permanently where no
        // filesystem is to be watched.
        if mark_request(&context.targets.borrow()).filesystems.is_empty() {
            reporter.report(&context, SourceStatus::Active(NO_FILESYSTEM.into())).await?;
            wait_for_work(&context, &mut settings).await?;
            continue;
        }
        let started = Instant::now();
        match run_helper(&context, &mut reporter).await? {
            HelperExit::Disabled => continue,
            HelperExit::Unavailable(why) => {
                reporter.report(&context, SourceStatus::Absent(why)).await?;
                return wait_for_shutdown(&context).await;
            }
            HelperExit::Failed(error) => {
                if started.elapsed() > MAX_BACKOFF {
                    backoff.reset();
                }
                let error = with_causes(&error);
                reporter
                    .report(&context, SourceStatus::Down(format!("{error}; it is started again")))
                    .await?;
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// Waits for a filesystem to watch, or for changed settings.
async fn wait_for_work(
    context: &Context,
    settings: &mut watch::Receiver<Arc<SourceSettings>>,
) -> Result<(), SourceError> {
    let mut targets = context.targets.clone();
    tokio::select! {
        there = targets.wait_for(|targets| !mark_request(targets).filesystems.is_empty()) => there.map(drop).map_err(|_| SourceError::OwnerGone),
        changed = settings.changed() => changed.map_err(|_| SourceError::OwnerGone),
    }
}

/// Why a helper ended.
enum HelperExit {
    Disabled,
    Unavailable(String),
    Failed(HelperError),
}

impl From<HelperError> for HelperExit {
    fn from(error: HelperError) -> HelperExit {
        HelperExit::Failed(error)
    }
}

async fn run_helper(
    context: &Context,
    reporter: &mut StatusReporter,
) -> Result<HelperExit, SourceError> {
    let mut helper = match Helper::start(&context.fs_errors).await {
        Ok(helper) => helper,
        Err(error) => return Ok(error.into()),
    };
    let mut requests = context.requests.subscribe();
    let (mut targets, mut settings) = (context.targets.clone(), context.settings.clone());
    let mut watched = WatchState::default();
    // No filesystem is new at the start.
    let mut due = Instant::now();
    loop {
        tokio::select! {
            message = helper.recv::<HelperMessage>() => match message {
                Ok(HelperMessage::Hello { limitations }) => watched.limitations = limitations,
                Ok(HelperMessage::Unavailable { errno, text }) => return Ok(HelperExit::Unavailable(unavailable_reason(errno, &text))),
                Ok(HelperMessage::Mark { dev, mark }) => drop(watched.marks.insert(dev, mark)),
                // The helper's clock is not on the daemon's timeline.
                Ok(HelperMessage::Error { error }) => {
                    context.report(SourceUpdate::FsError(FsErrorNotice { at: clock::now(), ..error })).await?
                }
                Ok(HelperMessage::Overflow) => tracing::warn!("notices of filesystem errors were lost: more arrived than the kernel queues"),
                Err(error) => return Ok(error.into()),
            },
            () = tokio::time::sleep_until(due) => {
                let wanted = mark_request(&targets.borrow_and_update());
                if let Err(error) = helper.send(&wanted).await {
                    return Ok(error.into());
                }
                watched.set_requested(&wanted);
                due = context.grid.after(REMARK_INTERVAL);
            }
            changed = targets.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                // The first mounts are old; later mounts may soon be unmounted.
                due = if watched.kinds.is_empty() { Instant::now() } else { due.min(Instant::now() + SETTLE_DELAY) };
            }
            changed = settings.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                if !settings.borrow_and_update().fs_events {
                    return Ok(HelperExit::Disabled);
                }
            }
            request = requests.recv() => match request {
                Ok(SourceRequest::All) => due = Instant::now(),
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
            },
        }
        if let Some(status) = watched.status() {
            reporter.report(context, status).await?;
        }
    }
}

/// All mounts of a filesystem share one mark. A mark does not wake a sleeping drive.
fn mark_request(targets: &[ProbeTarget]) -> MarkRequest {
    let mut filesystems: BTreeMap<DevNo, Filesystem> = BTreeMap::new();
    for target in
        targets.iter().filter(|target| FILESYSTEM_TYPES.contains(&target.filesystem.as_str()))
    {
        let filesystem = filesystems.entry(target.dev).or_insert_with(|| Filesystem {
            dev: target.dev,
            kind: target.filesystem.clone(),
            paths: Vec::new(),
        });
        if filesystem.paths.len() < MAX_PATHS {
            filesystem.paths.push(target.path.clone());
        }
    }
    MarkRequest { filesystems: filesystems.into_values().collect() }
}

/// The filesystems that the helper was requested to watch, and its answers.
#[derive(Default)]
struct WatchState {
    kinds: BTreeMap<DevNo, String>,
    marks: BTreeMap<DevNo, MarkResult>,
    limitations: Vec<String>,
}

impl WatchState {
    fn set_requested(&mut self, wanted: &MarkRequest) {
        self.kinds = wanted
            .filesystems
            .iter()
            .map(|filesystem| (filesystem.dev, filesystem.kind.clone()))
            .collect();
        self.marks.retain(|dev, _| self.kinds.contains_key(dev));
    }

    /// None until there is an answer for every filesystem: intermediate states are of no interest.
    fn status(&self) -> Option<SourceStatus> {
        if self.kinds.keys().any(|dev| !self.marks.contains_key(dev)) {
            return None;
        }
        let mut set: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut not, mut hurts) = (Vec::new(), !self.limitations.is_empty());
        let mut refusals = Vec::new();
        for (dev, kind) in &self.kinds {
            match self.marks.get(dev) {
                Some(MarkResult::Set) => *set.entry(kind).or_default() += 1,
                Some(MarkResult::Refused { errno, text }) => {
                    // A filesystem without file handles, without its own id, or with several ids
                    // (btrfs subvolumes): it could not report errors anyway.
                    hurts |= ![Errno::EOPNOTSUPP, Errno::ENODEV, Errno::EXDEV]
                        .iter()
                        .any(|known| *known as i32 == *errno);
                    refusals.push(*errno);
                    not.push(format!("{kind} on {dev}: {text}"));
                }
                Some(MarkResult::Stuck) => {
                    hurts = true;
                    not.push(format!("{kind} on {dev} does not answer"));
                }
                None => {}
            }
        }
        if !refusals.is_empty()
            && set.is_empty()
            && refusals.iter().all(|errno| *errno == Errno::EINVAL as i32)
        {
            return Some(SourceStatus::Absent(
                "the kernel has no FAN_FS_ERROR, which Linux 5.16 added".into(),
            ));
        }
        let number: usize = set.values().sum();
        let kinds: Vec<String> =
            set.iter().map(|(kind, number)| format!("{number} {kind}")).collect();
        let mut text = match number {
            0 => NO_FILESYSTEM.to_owned(),
            1 => format!("1 filesystem: {}", kinds.join(", ")),
            _ => format!("{number} filesystems: {}", kinds.join(", ")),
        };
        if set.keys().any(|kind| !kind.starts_with("ext")) {
            text.push_str(" (ext4 reports errors since Linux 5.16, others since 7.0)");
        }
        let not: Vec<String> = self.limitations.iter().cloned().chain(not).take(8).collect();
        if !not.is_empty() {
            text = format!("{text}; not: {}", not.join("; "));
        }
        Some(if hurts { SourceStatus::Limited(text) } else { SourceStatus::Active(text) })
    }
}

fn unavailable_reason(errno: i32, text: &str) -> String {
    match Errno::from_raw(errno) {
        Errno::ENOSYS | Errno::EINVAL => {
            "the kernel's fanotify has no FAN_FS_ERROR, which Linux 5.16 added".into()
        }
        Errno::EPERM => format!(
            "fanotify is not permitted: {text}; CAP_SYS_ADMIN and the system call fanotify_init are needed"
        ),
        _ => format!("fanotify: {text}"),
    }
}

/// Nothing left to do until shutdown.
async fn wait_for_shutdown(context: &Context) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    loop {
        if let Err(RecvError::Closed) = requests.recv().await {
            return Err(SourceError::OwnerGone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_finding::failure_domain::FailureDomains;
    use diskvitals_model::probe::ProbePace;

    fn target(path: &str, minor: u32, filesystem: &str) -> ProbeTarget {
        ProbeTarget {
            path: path.into(),
            id: minor,
            dev: DevNo::new(8, minor),
            asleep: false,
            at_rest: false,
            filesystem: filesystem.into(),
            pace: ProbePace::Local,
            awaited_scrub: None,
            domains: FailureDomains::default(),
        }
    }

    fn watched(marks: &[(&str, Option<MarkResult>)]) -> WatchState {
        let targets: Vec<ProbeTarget> =
            (0..).zip(marks).map(|(minor, (kind, _))| target("/m", minor, kind)).collect();
        let mut watched = WatchState::default();
        watched.set_requested(&mark_request(&targets));
        for (minor, (_, mark)) in (0..).zip(marks) {
            watched.marks.extend(mark.clone().map(|mark| (DevNo::new(8, minor), mark)));
        }
        watched
    }

    fn refused(errno: Errno) -> Option<MarkResult> {
        Some(MarkResult::Refused { errno: errno as i32, text: format!("{errno:?}") })
    }

    #[test]
    fn each_block_filesystem_is_requested_once_with_some_of_its_mounts() {
        let mut targets: Vec<ProbeTarget> =
            (0..9).map(|number| target(&format!("/a{number}"), 1, "ext4")).collect();
        targets.extend([target("/b", 2, "nfs4"), target("/c", 3, "xfs")]);
        let wanted = mark_request(&targets);
        let seen: Vec<_> = wanted
            .filesystems
            .iter()
            .map(|fs| (fs.dev.minor, fs.kind.as_str(), fs.paths.len()))
            .collect();
        assert_eq!(seen, [(1, "ext4", 4), (3, "xfs", 1)]);
    }

    #[test]
    fn status_lists_watched_and_unwatched_filesystems() {
        let set = || Some(MarkResult::Set);
        assert_eq!(
            watched(&[("ext4", set()), ("ext4", None)]).status(),
            None,
            "not all are answered for"
        );
        let active = |text: &str| Some(SourceStatus::Active(text.into()));
        assert_eq!(
            watched(&[("ext4", set()), ("ext4", set())]).status(),
            active("2 filesystems: 2 ext4")
        );
        assert_eq!(watched(&[]).status(), active("no filesystem is watched"));
        let subvolume = "1 filesystem: 1 ext4; not: btrfs on 8:1: EXDEV";
        assert_eq!(
            watched(&[("ext4", set()), ("btrfs", refused(Errno::EXDEV))]).status(),
            active(subvolume)
        );
        let stuck = "1 filesystem: 1 ext4; not: ext4 on 8:1 does not answer";
        assert_eq!(
            watched(&[("ext4", set()), ("ext4", Some(MarkResult::Stuck))]).status(),
            Some(SourceStatus::Limited(stuck.into()))
        );
        let old = watched(&[("ext4", refused(Errno::EINVAL)), ("xfs", refused(Errno::EINVAL))]);
        assert!(matches!(old.status(), Some(SourceStatus::Absent(text)) if text.contains("5.16")));
    }
}
