//! Writers without pause: create, append, rename, truncate, link, remove, unnamed files, files
//! removed while open, attributes, directories. Their resource use is bounded. They wait while the
//! filesystem is frozen, as any program does.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::populate::set_attribute;
use super::random::Random;

/// Files of one writer at most, and their size.
const FILES: u64 = 150;
const SIZE: u64 = 96 << 10;
/// Removed while open, of one writer at most: the orphans.
const OPEN: usize = 12;
/// A writer that waits in the kernel for longer than this is abandoned.
const TIME_LIMIT: Duration = Duration::from_secs(60);

pub struct Load {
    stop: Arc<AtomicBool>,
    operations: Arc<AtomicU64>,
    ended: Receiver<Written>,
    writers: usize,
}

/// The operations of all writers together.
#[derive(Clone, Debug, Default)]
pub struct Written {
    pub operations: u64,
    /// Refused by the filesystem (no space, damage, read-only).
    pub errors: u64,
    /// The longest time for which one operation waited.
    pub longest: Duration,
    /// Writers that have not ended in time.
    pub stuck: usize,
}

impl Load {
    /// Below `dir`, which must be a directory of the filesystem.
    pub fn start(dir: &Path, writers: usize, seed: u64) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let operations = Arc::new(AtomicU64::new(0));
        let (tell, ended) = channel();
        for at in 0..writers {
            let (stop, operations, tell, dir) =
                (stop.clone(), operations.clone(), tell.clone(), dir.join(format!("load-{at}")));
            let random = Random::of(seed, &format!("writer {at}"));
            std::thread::spawn(move || {
                let mut writer =
                    Writer { dir, random, open: Vec::new(), written: Written::default() };
                writer.write_until(&stop, &operations);
                // The receiver is gone when it took too long.
                let _ = tell.send(writer.written);
            });
        }
        Load { stop, operations, ended, writers }
    }

    /// Operations so far.
    pub fn counter(&self) -> Arc<AtomicU64> {
        self.operations.clone()
    }

    pub fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + TIME_LIMIT;
        let mut all = Written::default();
        for ended in 0..self.writers {
            match self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(written) => {
                    all.operations += written.operations;
                    all.errors += written.errors;
                    all.longest = all.longest.max(written.longest);
                }
                Err(_) => {
                    all.stuck = self.writers - ended;
                    break;
                }
            }
        }
        all
    }
}

/// Ends by itself, soon; `stop` waits for it.
impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Writer {
    dir: PathBuf,
    random: Random,
    open: Vec<File>,
    written: Written,
}

impl Writer {
    fn write_until(&mut self, stop: &AtomicBool, operations: &AtomicU64) {
        // It exists already after an earlier load.
        let _ = fs::create_dir_all(&self.dir);
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            match self.step() {
                Ok(()) => {
                    self.written.operations += 1;
                    operations.fetch_add(1, Ordering::Relaxed);
                }
                // A file that was removed in the meantime is no error of the filesystem.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound
                            | io::ErrorKind::AlreadyExists
                            | io::ErrorKind::DirectoryNotEmpty
                    ) => {}
                Err(_) => {
                    self.written.errors += 1;
                    // A filesystem that refuses everything is tried less often.
                    std::thread::park_timeout(Duration::from_millis(2));
                }
            }
            self.written.longest = self.written.longest.max(began.elapsed());
        }
        self.open.clear();
    }

    fn name(&mut self, kind: &str) -> PathBuf {
        self.dir.join(format!("{kind}-{}", self.random.below(FILES)))
    }

    fn step(&mut self) -> io::Result<()> {
        let file = self.name("file");
        match self.random.below(20) {
            0..=4 => {
                let length = self.random.below(SIZE / 8) as usize;
                File::create(&file)?.write_all(&self.random.bytes(length))
            }
            5..=7 => {
                let open = File::options().append(true).create(true).open(&file)?;
                if open.metadata()?.len() > SIZE {
                    return open.set_len(0);
                }
                let mut open = open;
                open.write_all(&self.random.bytes(3000))?;
                if self.random.one_in(4) { open.sync_all() } else { Ok(()) }
            }
            8 => File::options().write(true).open(&file)?.set_len(self.random.below(SIZE)),
            9 => File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&file)?
                .write_all_at(&self.random.bytes(4096), self.random.below(SIZE)),
            10..=11 => fs::rename(&file, self.name("file")),
            12..=13 => fs::remove_file(&file),
            14 => {
                let link = self.name("link");
                fs::hard_link(&file, &link).or_else(|_| fs::remove_file(&link))
            }
            15 => {
                // A file without a name, which sometimes gets one later.
                let unnamed = File::options()
                    .write(true)
                    .custom_flags(nix::libc::O_TMPFILE)
                    .open(&self.dir)?;
                (&unnamed).write_all(&self.random.bytes(2000))?;
                self.keep(unnamed);
                Ok(())
            }
            16 => {
                let path = self.name("orphan");
                let mut orphan = File::create(&path)?;
                orphan.write_all(&self.random.bytes(9000))?;
                fs::remove_file(&path)?;
                self.keep(orphan);
                Ok(())
            }
            17 => {
                let length = self.random.between(10, 1500) as usize;
                set_attribute(&file, "user.load", &self.random.bytes(length))
            }
            18 => {
                let folder = self.name("folder");
                fs::create_dir(&folder).or_else(|_| fs::remove_dir_all(&folder))?;
                File::create(folder.join("within")).map(drop)
            }
            _ => {
                let link = self.name("symlink");
                let length = self.random.between(10, 900) as usize;
                symlink("s".repeat(length), &link).or_else(|_| fs::remove_file(&link))
            }
        }
    }

    /// Open for a while, then deleted.
    fn keep(&mut self, file: File) {
        self.open.push(file);
        if self.open.len() > OPEN {
            let at = self.random.below(self.open.len() as u64) as usize;
            drop(self.open.swap_remove(at));
        }
    }
}
