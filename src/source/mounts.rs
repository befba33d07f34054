//! Mounts: the mount table of the host, from /proc/1/mountinfo (proc_pid_mountinfo(5)), and the
//! intended mounts in /etc/fstab.
//!
//! In: the host root. Out: `SourceUpdate::Mounts`. Does not depend on volumes or on health.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, watch};

use crate::context::{Context, SourceError, SourceSettings};
pub use diskvitals_finding::mount::parse;
use diskvitals_finding::mount::{FstabEntry, MountTable, parse_options};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::source::Source;
use diskvitals_host::clock::now;
use diskvitals_host::root::HostRoot;
use diskvitals_model::source_update::{SourceRequest, SourceStatus, SourceUpdate};

const MOUNTINFO: &str = "/proc/1/mountinfo";
const FSTAB: &str = "/etc/fstab";
/// Mounts come in bursts (a pod has a dozen); one reading covers a burst.
const SETTLE: Duration = Duration::from_millis(10);

/// fstab(5): lines with at least three fields and an absolute mount point.
pub fn parse_fstab(text: &[u8]) -> Vec<FstabEntry> {
    let mut entries = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut fields =
            line.split(|byte| byte.is_ascii_whitespace()).filter(|field| !field.is_empty());
        let (Some(source), Some(mount_point), Some(fs_type)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if source.starts_with(b"#") || !mount_point.starts_with(b"/") {
            continue;
        }
        entries.push(FstabEntry {
            source: HostPath::unescape(source).to_string(),
            mount_point: HostPath::unescape(mount_point),
            fs_type: String::from_utf8_lossy(fs_type).into_owned(),
            options: fields.next().map(parse_options).unwrap_or_default(),
        });
    }
    entries
}

/// fstab is on the root filesystem and only lists intended mounts. A host without the file has no
/// entries.
fn read_fstab(root: &HostRoot) -> Vec<FstabEntry> {
    root.read(FSTAB).map(|text| parse_fstab(&text)).unwrap_or_default()
}

/// Runs until the owner of the state ends. A separate thread reads mountinfo: a mount(2) that hangs
/// can hold the kernel's lock for it.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let (waker, wake_receiver) = std::os::unix::net::UnixStream::pair()
        .map_err(|source| SourceError::Thread { name: "mounts", source })?;
    let live = !context.root.is_recorded();
    let status = match live {
        true => SourceStatus::Active("mountinfo of PID 1, by its change events".into()),
        false => SourceStatus::Active("mountinfo of a recorded tree".into()),
    };
    let mut requests = context.requests.subscribe();
    let (root, reports, ask, settings) = (
        context.root.clone(),
        context.reports.clone(),
        context.requests.clone(),
        context.settings.clone(),
    );
    context.report(SourceUpdate::Source { source: Source::Mounts, status }).await?;
    std::thread::Builder::new()
        .name("mounts".into())
        .stack_size(256 * 1024)
        .spawn(move || watch_mountinfo(&root, &reports, &ask, &settings, &wake_receiver, live))
        .map_err(|source| SourceError::Thread { name: "mounts", source })?;
    loop {
        match requests.recv().await {
            Ok(SourceRequest::All | SourceRequest::Mounts) | Err(RecvError::Lagged(_)) => {
                use std::io::Write;
                // The socket is full only when the thread has many earlier requests to handle.
                let _ = (&waker).write(&[1]);
            }
            Ok(_) => {}
            Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
        }
    }
}

/// The thread: reads the table, reports a change, and waits for the next change (POLLPRI | POLLERR
/// on mountinfo), a request or the next interval.
fn watch_mountinfo(
    root: &HostRoot,
    reports: &mpsc::Sender<SourceUpdate>,
    requests: &broadcast::Sender<SourceRequest>,
    settings: &watch::Receiver<Arc<SourceSettings>>,
    wake_receiver: &std::os::unix::net::UnixStream,
    live: bool,
) {
    let mut reported_warnings = Vec::new();
    // A hash with secret keys instead of the text, which has some hundred bytes for each mount.
    let keys = RandomState::new();
    let mut last: Option<u64> = None;
    let mut requested = true;
    let mut fstab = read_fstab(root);
    loop {
        // Opened before the reading: after a change in between, the poll below returns at once.
        let file = std::fs::File::open(root.at(MOUNTINFO));
        let mut text = Vec::new();
        let read =
            file.as_ref().map_err(clone_error).and_then(|mut file| file.read_to_end(&mut text));
        let hash = keys.hash_one(&text);
        let unchanged = !requested && last == Some(hash);
        let observation = match read {
            Ok(_) if unchanged => None,
            Ok(_) => {
                let (mounts, warnings) = parse(&text);
                if warnings != reported_warnings {
                    warnings.iter().for_each(
                        |warning| tracing::warn!(%warning, "a line of the mount table is left out"),
                    );
                    reported_warnings = warnings;
                }
                last = Some(hash);
                Some(Observation::ok(now(), MountTable { mounts, fstab: fstab.clone() }))
            }
            Err(error) => {
                last = None;
                Some(Observation::failed(now(), format!("reading {MOUNTINFO}: {error}")))
            }
        };
        if let Some(observation) = observation {
            if reports.blocking_send(SourceUpdate::Mounts(observation)).is_err() {
                return;
            }
            // The send fails if no source listens.
            let _ = requests.send(SourceRequest::Superblocks);
        }
        // The next change may come in an hour.
        drop(text);
        let mut waited = vec![PollFd::new(wake_receiver.as_fd(), PollFlags::POLLIN)];
        if live && let Ok(file) = &file {
            waited.push(PollFd::new(file.as_fd(), PollFlags::POLLPRI));
        }
        // An error that makes a filesystem read-only changes its options without an event (observed
        // with ext4 on 6.18; only mounting, unmounting and remounting change the event counter of
        // the namespace, fs/namespace.c). So the table is read again once per probe interval.
        let round = settings.borrow().probe_interval;
        let timeout = match last {
            Some(_) if live => PollTimeout::try_from(round).unwrap_or(PollTimeout::MAX),
            Some(_) => PollTimeout::NONE,
            None => PollTimeout::from(5000_u16),
        };
        if let Err(errno) = poll(&mut waited, timeout)
            && errno != nix::errno::Errno::EINTR
        {
            tracing::error!(%errno, "waiting for changes of the mount table");
            return;
        }
        requested = waited[0].any().unwrap_or(false);
        let changed = waited.get(1).is_some_and(|file| file.any().unwrap_or(true));
        if requested {
            let mut buffer = [0; 64];
            match { wake_receiver }.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(_) => fstab = read_fstab(root),
            }
        } else if changed {
            settle();
            // The kubelet mounts and unmounts the volumes of its records. The send fails if the
            // kubelet's source has ended.
            let _ = requests.send(SourceRequest::Kubelet);
        }
    }
}

/// Waits until a burst of mounts is over.
fn settle() {
    // Only sleeps.
    let _ = poll(&mut [], PollTimeout::try_from(SETTLE).unwrap_or(PollTimeout::ZERO));
}

fn clone_error(error: &std::io::Error) -> std::io::Error {
    std::io::Error::from(error.kind())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use diskvitals_finding::dev::DevNo;

    #[test]
    fn a_line_of_the_manual_page_is_understood() {
        let (mounts, warnings) = parse(
            b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n",
        );
        assert!(warnings.is_empty());
        assert_eq!((mounts[0].id, mounts[0].parent, mounts[0].dev), (36, 35, DevNo::new(98, 0)));
        assert_eq!((&mounts[0].root, &mounts[0].mount_point), (&"/mnt1".into(), &"/mnt2".into()));
        assert_eq!(*mounts[0].super_options, ["rw", "errors=continue"]);
    }

    #[test]
    fn spaces_newlines_and_bytes_that_are_no_text_are_kept() {
        let (mounts, warnings) = parse(b"1 0 8:1 / /a\\040b\\012\xff rw - ext4 /dev/sda1 rw\n");
        assert!(warnings.is_empty());
        assert_eq!(mounts[0].mount_point.as_bytes(), b"/a b\n\xff");
    }

    #[test]
    fn an_empty_source_is_understood() {
        let (mounts, _) = parse(b"1 0 0:5 / /x rw - tmpfs  rw,size=1k\n");
        assert_eq!((mounts[0].source.as_bytes(), mounts[0].super_options.len()), (&b""[..], 2));
    }

    #[test]
    fn an_invalid_line_is_a_warning_and_the_others_are_parsed() {
        let (mounts, warnings) =
            parse(b"junk\n1 0 8:1 / /a rw - ext4 /dev/sda1 rw\n2 0 8:2 / /b rw\n");
        assert_eq!((mounts.len(), warnings.len()), (1, 2));
        assert!(warnings[0].contains("line 1: not a mount: junk"));
    }

    #[test]
    fn fstab_has_mounts_and_no_comments_or_swap() {
        let entries = parse_fstab(b"# a b c\nUUID=1 / ext4 errors=remount-ro 0 1\n/dev/x none swap sw\n/dev/sdb\\0401 /a\\040b xfs\n");
        assert_eq!(entries.len(), 2);
        assert_eq!(
            (entries[1].mount_point.as_bytes(), entries[0].options[0].as_str()),
            (&b"/a b"[..], "errors=remount-ro")
        );
    }

    proptest! {
        #[test]
        fn any_junk_is_survived_and_no_line_is_lost_silently(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (mounts, warnings) = parse(&text);
            let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count();
            prop_assert_eq!(mounts.len() + warnings.len(), lines);
        }
    }
}
