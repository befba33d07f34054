//! That nothing is ever written: a digest of what lies beneath before and after a check, and the
//! counters of what was written to the checker's own loop device. The mount's own writes are left
//! out: unmounted and read-only there are none; of a frozen one, superblock and log do not count.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diskvitals::model::check::Filesystem;
use nix::mount::MsFlags;

use crate::check_command::{self, Answer};
use crate::fixture::{self, Mounted};
use crate::support::checkers::loops_of_checkers;
use crate::support::corrupt::{ext4, xfs};
use crate::support::digest::{self, Range, all_loops, digest, sectors_written};
use crate::support::{Testbed, pause};

/// One check of one mode.
pub struct Seen {
    pub filesystem: Filesystem,
    pub mode: &'static str,
    pub answer: Answer,
    /// None: the mount writes on its own there.
    pub changed: Option<bool>,
    /// To the device itself; None as above.
    pub device_sectors: Option<u64>,
    /// Loop devices that the checker had, and what was written to all of them.
    pub own_loops: usize,
    pub own_sectors: u64,
}

impl Seen {
    pub fn is_untouched(&self) -> bool {
        self.changed != Some(true) && self.device_sectors.unwrap_or(0) == 0 && self.own_sectors == 0
    }
}

/// Nothing else may use loop devices meanwhile.
pub async fn watch(
    testbed: &Testbed,
    socket: &Path,
    filesystem: Filesystem,
    seed: u64,
) -> Vec<Seen> {
    let name = format!("{}-untouched", filesystem.name());
    let image = fixture::pristine(testbed, filesystem, &name, seed);
    let mut all = Vec::new();

    let disk = testbed.attach(&image);
    all.push(
        one(
            socket,
            (filesystem, "unmounted"),
            (&image, &disk.device, &disk.device),
            (false, Some(&[])),
        )
        .await,
    );
    disk.detach();

    let mounted = Mounted::with(testbed, filesystem, &image, &name, MsFlags::MS_RDONLY)
        .expect("mounting read-only");
    all.push(
        one(
            socket,
            (filesystem, "read-only"),
            (&image, &mounted.disk.device, &mounted.at),
            (false, Some(&[])),
        )
        .await,
    );
    mounted.end();

    let own = match filesystem {
        Filesystem::Ext4 => Some(ext4::Ext4::open(&image).own_writes()),
        Filesystem::Xfs => Some(xfs::Xfs::open(&image).own_writes()),
        // A commit writes trees anew, wherever there is room.
        Filesystem::Btrfs => None,
    };
    let mounted = Mounted::new(testbed, filesystem, &image, &name).expect("mounting");
    all.push(
        one(
            socket,
            (filesystem, "live"),
            (&image, &mounted.disk.device, &mounted.at),
            (false, None),
        )
        .await,
    );
    all.push(
        one(
            socket,
            (filesystem, "frozen"),
            (&image, &mounted.disk.device, &mounted.at),
            (true, own.as_deref()),
        )
        .await,
    );
    mounted.end();
    std::fs::remove_file(&image).expect("the image");
    all
}

/// `except`: what does not count, in bytes; None: nothing counts but the checker's own devices.
async fn one(
    socket: &Path,
    (filesystem, mode): (Filesystem, &'static str),
    (image, device, target): (&Path, &Path, &Path),
    (freeze, except): (bool, Option<&[Range]>),
) -> Seen {
    let name = device
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a kernel name");
    // What the mount still had in memory is on the device.
    nix::unistd::sync();
    let before = except.map(|except| digest(image, except));
    let sectors = sectors_written(name).expect("its counters");
    let own = OwnLoops::start();
    let answer = check_command::ask(socket, filesystem, target, freeze).await;
    let (own_loops, own_sectors) = own.finish().await;
    // A frozen mount writes to its superblock and its log.
    let device_sectors = (except.is_some() && !freeze)
        .then(|| sectors_written(name).expect("its counters") - sectors);
    let changed = before
        .zip(except)
        .map(|(before, except)| digest(image, except) != before);
    Seen {
        filesystem,
        mode,
        answer,
        changed,
        device_sectors,
        own_loops,
        own_sectors,
    }
}

/// Looks at the loop devices of checkers, all the time.
struct OwnLoops {
    stop: Arc<AtomicBool>,
    seen: tokio::task::JoinHandle<BTreeMap<String, u64>>,
}

impl OwnLoops {
    fn start() -> OwnLoops {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let before = all_loops();
        let seen = tokio::spawn(async move {
            let mut seen = BTreeMap::new();
            while !stopped.load(Ordering::Relaxed) {
                for name in loops_of_checkers() {
                    let written = digest::sectors_written(&name).unwrap_or_default();
                    let since =
                        written.saturating_sub(before.get(&name).copied().unwrap_or_default());
                    seen.insert(name, since);
                }
                pause(Duration::from_millis(3)).await;
            }
            seen
        });
        OwnLoops { stop, seen }
    }

    /// How many there were, and what was written to them.
    async fn finish(self) -> (usize, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.seen.await.expect("the watcher");
        (seen.len(), seen.values().sum())
    }
}
