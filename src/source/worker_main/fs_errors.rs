//! The helper that receives filesystem errors: marks filesystems with fanotify(7) and reports the
//! events.
//!
//! In, one line each: the filesystems to mark. Out, one line each: the events. It exits when its
//! standard input is closed.
//!
//! It has three kinds of threads, so that a mark that hangs in a dead mount blocks nothing: one
//! reads standard input, one reads a group's events, and one marks. The first thread forwards their
//! messages, and replaces the marking thread when a mark takes too long. The replaced thread is
//! abandoned, and exits if its call ever returns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::BufRead;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::fs_errors::notification::{self, Notification};
use crate::fs_errors::protocol::{Filesystem, HelperMessage, MarkRequest, MarkResult};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;
use diskvitals_host::clock::now;
use diskvitals_host::fanotify::{FanotifyGroup, FsId, MarkTarget};
use diskvitals_model::source_update::FsErrorNotice;

/// A successful mark takes microseconds.
const MARK_TIMEOUT: Duration = Duration::from_secs(2);
/// Each stuck mark costs a thread; at this number, no further mark is tried until one returns.
const MAX_STUCK: usize = 16;
const STACK_SIZE: usize = 128 * 1024;

/// Runs until standard input ends; then the process may exit, even if threads hang.
pub fn serve(limitations: Vec<String>) -> std::io::Result<()> {
    send(&HelperMessage::Hello { limitations })?;
    let (tell, told) = channel();
    let table = match GroupTable::new() {
        Ok(table) => Arc::new(table),
        Err(errno) => {
            send(&HelperMessage::Unavailable { errno: errno as i32, text: errno_text(errno) })?;
            // Waits for the end of standard input; nothing else is left to do.
            std::io::stdin().lock().lines().for_each(drop);
            return Ok(());
        }
    };
    let input = tell.clone();
    spawn("stdin", move || read_requests(&input))?;
    MarkScheduler {
        table,
        messages: tell,
        queue: VecDeque::new(),
        current: None,
        stuck: BTreeSet::new(),
        reported: BTreeMap::new(),
        marker: None,
    }
    .run(&told)
}

/// Messages of the threads to the first one.
enum ThreadMessage {
    Request(MarkRequest),
    Marked {
        dev: DevNo,
        mark: MarkResult,
    },
    /// Standard input has ended or is malformed.
    End,
}

fn read_requests(tell: &Sender<ThreadMessage>) {
    for line in std::io::stdin().lock().lines() {
        let wanted = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        let Some(wanted) = wanted else { break };
        if tell.send(ThreadMessage::Request(wanted)).is_err() {
            return;
        }
    }
    // If the receiver is closed, the process is ending too.
    let _ = tell.send(ThreadMessage::End);
}

/// State of the first thread.
struct MarkScheduler {
    table: Arc<GroupTable>,
    messages: Sender<ThreadMessage>,
    /// Filesystems that are still to be marked.
    queue: VecDeque<Filesystem>,
    /// The filesystem that is being marked, and since when.
    current: Option<(DevNo, Instant)>,
    /// Marks that have not returned.
    stuck: BTreeSet<DevNo>,
    /// The last reported result for each filesystem.
    reported: BTreeMap<DevNo, MarkResult>,
    marker: Option<Sender<Filesystem>>,
}

impl MarkScheduler {
    fn run(mut self, told: &Receiver<ThreadMessage>) -> std::io::Result<()> {
        loop {
            self.start_next()?;
            let patience = self.current.map_or(Duration::from_secs(3600), |(_, since)| {
                MARK_TIMEOUT.saturating_sub(since.elapsed())
            });
            match told.recv_timeout(patience) {
                Ok(ThreadMessage::Request(wanted)) => {
                    let devs: BTreeSet<DevNo> =
                        wanted.filesystems.iter().map(|filesystem| filesystem.dev).collect();
                    self.reported.retain(|dev, _| devs.contains(dev));
                    self.table.forget_others(&devs);
                    self.queue = wanted.filesystems.into();
                }
                Ok(ThreadMessage::Marked { dev, mark }) => {
                    self.stuck.remove(&dev);
                    if self.current.is_some_and(|(at, _)| at == dev) {
                        self.current = None;
                    }
                    self.report(dev, mark)?;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Some((dev, _)) =
                        self.current.take_if(|(_, since)| since.elapsed() >= MARK_TIMEOUT)
                    {
                        self.stuck.insert(dev);
                        // The thread exits after its call: it receives no more requests.
                        self.marker = None;
                        self.report(dev, MarkResult::Stuck)?;
                    }
                }
                Ok(ThreadMessage::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn start_next(&mut self) -> std::io::Result<()> {
        while self.current.is_none() {
            let Some(filesystem) = self.queue.pop_front() else {
                return Ok(());
            };
            // One mark per filesystem.
            if self.stuck.contains(&filesystem.dev) {
                continue;
            }
            let dev = filesystem.dev;
            if self.stuck.len() >= MAX_STUCK {
                let mark = MarkResult::Refused {
                    errno: Errno::EAGAIN as i32,
                    text: format!("not tried while {MAX_STUCK} others do not answer"),
                };
                self.report(dev, mark)?;
                continue;
            }
            let marker = match &self.marker {
                Some(marker) => marker,
                None => {
                    let (ask, asked) = channel();
                    let (table, tell) = (self.table.clone(), self.messages.clone());
                    spawn("marks", move || run_marker(&table, &asked, &tell))?;
                    self.marker.insert(ask)
                }
            };
            if marker.send(filesystem).is_err() {
                self.marker = None;
                continue;
            }
            self.current = Some((dev, Instant::now()));
        }
        Ok(())
    }

    fn report(&mut self, dev: DevNo, mark: MarkResult) -> std::io::Result<()> {
        if self.reported.get(&dev) == Some(&mark) {
            return Ok(());
        }
        self.reported.insert(dev, mark.clone());
        send(&HelperMessage::Mark { dev, mark })
    }
}

fn run_marker(table: &Arc<GroupTable>, asked: &Receiver<Filesystem>, tell: &Sender<ThreadMessage>) {
    for filesystem in asked {
        let mark = match table.mark(&filesystem) {
            Ok(()) => MarkResult::Set,
            Err(errno) => MarkResult::Refused { errno: errno as i32, text: errno_text(errno) },
        };
        if tell.send(ThreadMessage::Marked { dev: filesystem.dev, mark }).is_err() {
            return;
        }
    }
}

/// The groups, each with the filesystems that its events may name. Copies of a filesystem (a
/// snapshot, a dd) have the same id: each is in another group, so every event is unambiguous.
struct GroupTable {
    groups: Mutex<Vec<GroupEntry>>,
}

#[derive(Clone)]
struct GroupEntry {
    group: Arc<FanotifyGroup>,
    filesystems: Arc<FsidMap>,
}

type FsidMap = Mutex<BTreeMap<FsId, (DevNo, HostPath)>>;

impl GroupTable {
    fn new() -> Result<GroupTable, Errno> {
        let table = GroupTable { groups: Mutex::default() };
        table.add()?;
        Ok(table)
    }

    fn add(&self) -> Result<GroupEntry, Errno> {
        let entry =
            GroupEntry { group: Arc::new(FanotifyGroup::new()?), filesystems: Arc::default() };
        let read = entry.clone();
        spawn("events", move || {
            read_events(&read.group, &read.filesystems);
        })
        .map_err(|_| Errno::EAGAIN)?;
        self.lock().push(entry.clone());
        Ok(entry)
    }

    /// Marks through the first mount that works. May block: no lock is held during the call.
    fn mark(&self, filesystem: &Filesystem) -> Result<(), Errno> {
        let mut result = Err(Errno::ENOENT);
        for path in &filesystem.paths {
            result = self.mark_at(filesystem.dev, path);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn mark_at(&self, dev: DevNo, path: &HostPath) -> Result<(), Errno> {
        let mounted = MarkTarget::open(path)?;
        // Another filesystem is mounted there now. On btrfs, stat(2) returns a separate number for
        // each subvolume, so it cannot be compared.
        if !dev.is_anonymous() && mounted.dev != dev {
            return Err(Errno::ESTALE);
        }
        let entry = self.group_for(dev, mounted.fsid)?;
        // Inserted before the mark: the first event may come at once.
        lock_fsids(&entry.filesystems).insert(mounted.fsid, (dev, path.clone()));
        let marked = entry.group.mark(&mounted);
        if marked.is_err() {
            lock_fsids(&entry.filesystems).remove(&mounted.fsid);
        }
        marked
    }

    /// A group in which the id means `dev`, or is unused.
    fn group_for(&self, dev: DevNo, fsid: FsId) -> Result<GroupEntry, Errno> {
        let is_of = |entry: &&GroupEntry| {
            lock_fsids(&entry.filesystems).get(&fsid).is_some_and(|(known, _)| *known == dev)
        };
        let is_free = |entry: &&GroupEntry| !lock_fsids(&entry.filesystems).contains_key(&fsid);
        let groups = self.lock();
        let known = groups.iter().find(is_of).or_else(|| groups.iter().find(is_free)).cloned();
        drop(groups);
        known.map_or_else(|| self.add(), Ok)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<GroupEntry>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel removes marks with their filesystems; here only the names are removed.
    fn forget_others(&self, devs: &BTreeSet<DevNo>) {
        for entry in self.lock().iter() {
            lock_fsids(&entry.filesystems).retain(|_, (dev, _)| devs.contains(dev));
        }
    }
}

fn lock_fsids(names: &FsidMap) -> MutexGuard<'_, BTreeMap<FsId, (DevNo, HostPath)>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the events of one group, for ever.
fn read_events(group: &FanotifyGroup, filesystems: &FsidMap) {
    let mut buffer = [0; 8192];
    loop {
        // Any error ends the process, and the daemon starts another one.
        let Ok(length) = group.read(&mut buffer) else { std::process::exit(1) };
        let at = now();
        for notice in notification::parse(&buffer[..length]) {
            let said = match notice {
                Notification::Overflow => HelperMessage::Overflow,
                Notification::Error { fsid, errno, count, inode } => {
                    // An event of a filesystem that is no longer watched is not reported.
                    let Some((dev, path)) =
                        fsid.and_then(|fsid| lock_fsids(filesystems).get(&fsid).cloned())
                    else {
                        continue;
                    };
                    HelperMessage::Error {
                        error: FsErrorNotice { at, dev, path, errno, count, inode },
                    }
                }
            };
            if send(&said).is_err() {
                std::process::exit(1);
            }
        }
    }
}

fn send(said: &HelperMessage) -> std::io::Result<()> {
    super::write_json_line(&mut std::io::stdout().lock(), said)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.into()).stack_size(STACK_SIZE).spawn(body).map(drop)
}

fn errno_text(errno: Errno) -> String {
    format!("{} ({errno:?})", errno.desc())
}
