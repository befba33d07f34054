//! The helper that hears of filesystems' errors: marks filesystems with fanotify(7) and says what
//! comes of it.
//!
//! In, a line each: `Wanted`. Out, a line each: `Said`. Its end is the end of its standard input.
//!
//! Three kinds of threads, so that a mark that hangs in a dead mount holds up nothing: one reads
//! standard input, one reads a group's events, and one marks. The first thread moves what they
//! tell, and replaces the one that marks when a mark takes too long: that one is left to the
//! kernel, and ends after its call should that return.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::BufRead;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::host::clock::now;
use crate::host::fanotify::{FsId, Group, Mounted};
use crate::model::dev::DevNo;
use crate::model::path::HostPath;
use crate::model::report::FsError;
use crate::source::fs_errors::notice::{self, Notice};
use crate::source::fs_errors::pipe::{Filesystem, Mark, Said, Wanted};

/// A mark that works takes microseconds.
const MARK_TIMEOUT: Duration = Duration::from_secs(2);
/// Each costs a thread; with so many dead mounts no further mark is tried until one returns.
const MOST_STUCK: usize = 16;
const STACK: usize = 128 * 1024;

/// Runs until standard input ends; then the process may end, whatever hangs.
pub fn serve(limitations: Vec<String>) -> std::io::Result<()> {
    say(&Said::Hello { limitations })?;
    let (tell, told) = channel();
    let table = match Table::new() {
        Ok(table) => Arc::new(table),
        Err(errno) => {
            say(&Said::Unavailable {
                errno: errno as i32,
                text: text(errno),
            })?;
            // Nothing more to do but to end in order.
            std::io::stdin().lock().lines().for_each(drop);
            return Ok(());
        }
    };
    let input = tell.clone();
    spawn("stdin", move || listen(&input))?;
    Marks {
        table,
        tell,
        queue: VecDeque::new(),
        at: None,
        stuck: BTreeSet::new(),
        said: BTreeMap::new(),
        marker: None,
    }
    .run(&told)
}

/// What the threads tell the first one.
enum Told {
    Wanted(Wanted),
    Marked {
        dev: DevNo,
        mark: Mark,
    },
    /// Standard input has ended or makes no sense.
    End,
}

fn listen(tell: &Sender<Told>) {
    for line in std::io::stdin().lock().lines() {
        let wanted = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        let Some(wanted) = wanted else { break };
        if tell.send(Told::Wanted(wanted)).is_err() {
            return;
        }
    }
    // The receiver gone is the end as well.
    let _ = tell.send(Told::End);
}

/// The first thread's.
struct Marks {
    table: Arc<Table>,
    tell: Sender<Told>,
    /// Still to be marked.
    queue: VecDeque<Filesystem>,
    /// Being marked, since when.
    at: Option<(DevNo, Instant)>,
    /// Their marks have not returned.
    stuck: BTreeSet<DevNo>,
    /// What was said of each that is wanted.
    said: BTreeMap<DevNo, Mark>,
    marker: Option<Sender<Filesystem>>,
}

impl Marks {
    fn run(mut self, told: &Receiver<Told>) -> std::io::Result<()> {
        loop {
            self.start_next()?;
            let patience = self.at.map_or(Duration::from_secs(3600), |(_, since)| {
                MARK_TIMEOUT.saturating_sub(since.elapsed())
            });
            match told.recv_timeout(patience) {
                Ok(Told::Wanted(wanted)) => {
                    let devs: BTreeSet<DevNo> = wanted
                        .filesystems
                        .iter()
                        .map(|filesystem| filesystem.dev)
                        .collect();
                    self.said.retain(|dev, _| devs.contains(dev));
                    self.table.forget_others(&devs);
                    self.queue = wanted.filesystems.into();
                }
                Ok(Told::Marked { dev, mark }) => {
                    self.stuck.remove(&dev);
                    if self.at.is_some_and(|(at, _)| at == dev) {
                        self.at = None;
                    }
                    self.tell(dev, mark)?;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Some((dev, _)) = self
                        .at
                        .take_if(|(_, since)| since.elapsed() >= MARK_TIMEOUT)
                    {
                        self.stuck.insert(dev);
                        // It ends after its call: nobody sends to it any more.
                        self.marker = None;
                        self.tell(dev, Mark::Stuck)?;
                    }
                }
                Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn start_next(&mut self) -> std::io::Result<()> {
        while self.at.is_none() {
            let Some(filesystem) = self.queue.pop_front() else {
                return Ok(());
            };
            // One mark a filesystem.
            if self.stuck.contains(&filesystem.dev) {
                continue;
            }
            let dev = filesystem.dev;
            if self.stuck.len() >= MOST_STUCK {
                let mark = Mark::Refused {
                    errno: Errno::EAGAIN as i32,
                    text: format!("not tried while {MOST_STUCK} others do not answer"),
                };
                self.tell(dev, mark)?;
                continue;
            }
            let marker = match &self.marker {
                Some(marker) => marker,
                None => {
                    let (ask, asked) = channel();
                    let (table, tell) = (self.table.clone(), self.tell.clone());
                    spawn("marks", move || mark_all(&table, &asked, &tell))?;
                    self.marker.insert(ask)
                }
            };
            if marker.send(filesystem).is_err() {
                self.marker = None;
                continue;
            }
            self.at = Some((dev, Instant::now()));
        }
        Ok(())
    }

    fn tell(&mut self, dev: DevNo, mark: Mark) -> std::io::Result<()> {
        if self.said.get(&dev) == Some(&mark) {
            return Ok(());
        }
        self.said.insert(dev, mark.clone());
        say(&Said::Mark { dev, mark })
    }
}

fn mark_all(table: &Arc<Table>, asked: &Receiver<Filesystem>, tell: &Sender<Told>) {
    for filesystem in asked {
        let mark = match table.mark(&filesystem) {
            Ok(()) => Mark::Set,
            Err(errno) => Mark::Refused {
                errno: errno as i32,
                text: text(errno),
            },
        };
        if tell
            .send(Told::Marked {
                dev: filesystem.dev,
                mark,
            })
            .is_err()
        {
            return;
        }
    }
}

/// Groups, and which filesystem an id in one's events means. Copies of a filesystem have one id (a
/// snapshot, a dd): each is then in another group, so that an event is never said of the wrong one.
struct Table {
    groups: Mutex<Vec<Entry>>,
}

struct Entry {
    group: Arc<Group>,
    filesystems: Arc<Names>,
}

type Names = Mutex<BTreeMap<FsId, (DevNo, HostPath)>>;

impl Table {
    fn new() -> Result<Table, Errno> {
        let table = Table {
            groups: Mutex::default(),
        };
        table.add()?;
        Ok(table)
    }

    fn add(&self) -> Result<Entry, Errno> {
        let entry = Entry {
            group: Arc::new(Group::new()?),
            filesystems: Arc::default(),
        };
        let (group, names) = (entry.group.clone(), entry.filesystems.clone());
        spawn("events", move || follow(&group, &names)).map_err(|_| Errno::EAGAIN)?;
        let copy = Entry {
            group: entry.group.clone(),
            filesystems: entry.filesystems.clone(),
        };
        self.groups
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(entry);
        Ok(copy)
    }

    /// By the first of its mounts that serves. May block: no lock is held then.
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
        let mounted = Mounted::at(path)?;
        // Something else is mounted there by now. btrfs tells stat(2) a number of each subvolume's
        // own, so there it cannot be compared.
        if !dev.is_anonymous() && mounted.dev != dev {
            return Err(Errno::ESTALE);
        }
        let entry = self.place(dev, mounted.fsid)?;
        // Known before it is marked: its first event may come at once.
        names(&entry.filesystems).insert(mounted.fsid, (dev, path.clone()));
        let marked = entry.group.mark(&mounted);
        if marked.is_err() {
            names(&entry.filesystems).remove(&mounted.fsid);
        }
        marked
    }

    /// The group in which the id means `dev`, or nothing yet.
    fn place(&self, dev: DevNo, fsid: FsId) -> Result<Entry, Errno> {
        {
            let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            let is_of = |entry: &&Entry| {
                names(&entry.filesystems)
                    .get(&fsid)
                    .is_some_and(|(known, _)| *known == dev)
            };
            let is_free = |entry: &&Entry| !names(&entry.filesystems).contains_key(&fsid);
            if let Some(entry) = groups
                .iter()
                .find(is_of)
                .or_else(|| groups.iter().find(is_free))
            {
                return Ok(Entry {
                    group: entry.group.clone(),
                    filesystems: entry.filesystems.clone(),
                });
            }
        }
        self.add()
    }

    /// Marks go with their filesystems; only the names stay.
    fn forget_others(&self, devs: &BTreeSet<DevNo>) {
        for entry in self
            .groups
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            names(&entry.filesystems).retain(|_, (dev, _)| devs.contains(dev));
        }
    }
}

fn names(names: &Names) -> std::sync::MutexGuard<'_, BTreeMap<FsId, (DevNo, HostPath)>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One group's events, for ever.
fn follow(group: &Group, filesystems: &Names) {
    let mut buffer = [0; 8192];
    loop {
        // What cannot be read for one reason or another ends the process, and the daemon starts the
        // next.
        let Ok(length) = group.read(&mut buffer) else {
            std::process::exit(1)
        };
        let at = now();
        for notice in notice::parse(&buffer[..length]) {
            let said = match notice {
                Notice::Overflow => Said::Overflow,
                Notice::Error {
                    fsid,
                    errno,
                    count,
                    inode,
                } => {
                    // Of a filesystem that is no longer wanted: there is nobody to tell of it.
                    let Some((dev, path)) =
                        fsid.and_then(|fsid| names(filesystems).get(&fsid).cloned())
                    else {
                        continue;
                    };
                    Said::Error {
                        error: FsError {
                            at,
                            dev,
                            path,
                            errno,
                            count,
                            inode,
                        },
                    }
                }
            };
            if say(&said).is_err() {
                std::process::exit(1);
            }
        }
    }
}

fn say(said: &Said) -> std::io::Result<()> {
    super::say(&mut std::io::stdout().lock(), said)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(STACK)
        .spawn(body)
        .map(drop)
}

fn text(errno: Errno) -> String {
    format!("{} ({errno:?})", errno.desc())
}
