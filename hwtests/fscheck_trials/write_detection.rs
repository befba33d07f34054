//! A check writes nothing: a digest of the device before and after the check, and the write
//! counters of the checker's own loop device. The mount's own writes are excluded: an unmounted or
//! read-only filesystem has none; on a frozen one, the superblock and the log are ignored.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diskvitals_fscheck::Filesystem;
use nix::mount::MsFlags;

use crate::check_command::{self, Answer};
use crate::fixture::{self, MountedImage};
use crate::support::checkers::loops_of_checkers;
use crate::support::corrupt::{ext4, xfs};
use crate::support::digest::{self, Range, all_loops, digest, sectors_written};
use crate::support::{Testbed, pause};

/// One check of one mode.
pub struct WriteTrace {
    pub filesystem: Filesystem,
    pub mode: &'static str,
    pub answer: Answer,
    /// None: the mount itself writes there.
    pub changed: Option<bool>,
    /// To the device itself; None as above.
    pub device_sectors: Option<u64>,
    /// Loop devices of the checker, and the sum of the sectors written to them.
    pub own_loops: usize,
    pub own_sectors: u64,
}

impl WriteTrace {
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
) -> Vec<WriteTrace> {
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

    let mounted = MountedImage::with(testbed, filesystem, &image, &name, MsFlags::MS_RDONLY)
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
        // A commit writes trees to new positions, wherever there is room.
        Filesystem::Btrfs => None,
    };
    let mounted = MountedImage::new(testbed, filesystem, &image, &name).expect("mounting");
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

/// `except`: byte ranges that are ignored; None: only the checker's own devices are compared.
async fn one(
    socket: &Path,
    (filesystem, mode): (Filesystem, &'static str),
    (image, device, target): (&Path, &Path, &Path),
    (freeze, except): (bool, Option<&[Range]>),
) -> WriteTrace {
    let name = device.file_name().and_then(|name| name.to_str()).expect("a kernel name");
    // The mount's dirty data is on the device.
    nix::unistd::sync();
    let before = except.map(|except| digest(image, except));
    let sectors = sectors_written(name).expect("its counters");
    let own = OwnLoops::start();
    let answer = check_command::ask(socket, filesystem, target, freeze).await;
    let (own_loops, own_sectors) = own.finish().await;
    // A frozen mount writes to its superblock and its log.
    let device_sectors = (except.is_some() && !freeze)
        .then(|| sectors_written(name).expect("its counters") - sectors);
    let changed = before.zip(except).map(|(before, except)| digest(image, except) != before);
    WriteTrace { filesystem, mode, answer, changed, device_sectors, own_loops, own_sectors }
}

/// Watches the loop devices of checkers without pause.
struct OwnLoops {
    stop: Arc<AtomicBool>,
    found: tokio::task::JoinHandle<BTreeMap<String, u64>>,
}

impl OwnLoops {
    fn start() -> OwnLoops {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let before = all_loops();
        let found = tokio::spawn(async move {
            let mut found = BTreeMap::new();
            while !stopped.load(Ordering::Relaxed) {
                for name in loops_of_checkers() {
                    let written = digest::sectors_written(&name).unwrap_or_default();
                    let since =
                        written.saturating_sub(before.get(&name).copied().unwrap_or_default());
                    found.insert(name, since);
                }
                pause(Duration::from_millis(3)).await;
            }
            found
        });
        OwnLoops { stop, found }
    }

    /// Their number, and the sum of the sectors written to them.
    async fn finish(self) -> (usize, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let found = self.found.await.expect("the watcher");
        (found.len(), found.values().sum())
    }
}
