//! Fixture of the freeze tests: a filesystem that is always thawed at the end, a writer, and a
//! freezer with its notes in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::CheckId;
use diskvitals_finding::path::HostPath;
use diskvitals_host::freeze::OpenMount;
use diskvitals_host::helper::Program;
use diskvitals_host::root::HostRoot;
use diskvitals_source::checks::freezer::{FreezeError, FreezeGuard, FreezeRequest, Freezer};
use diskvitals_source::worker_main::freezer_arguments;
use nix::errno::Errno;
use nix::unistd::Pid;
use tokio::time::timeout;

use crate::programs::built_program;
use crate::support::tools::{mount_device, mount_with, run};
use crate::support::{Disk, FuseServer, Mode, SOON, Testbed, eventually, pause};

/// After SIGKILL the filesystem must be writable again within this time.
pub const THAW_LIMIT: Duration = Duration::from_secs(5);
pub const LONG: Duration = Duration::from_secs(30);

/// A mounted filesystem that is always thawed at the end, also when the test fails. Must be dropped
/// before its testbed.
pub struct Volume {
    pub path: PathBuf,
    pub dev: DevNo,
    pub kept: OpenMount,
}

impl Volume {
    pub fn at(path: PathBuf) -> Volume {
        let kept = OpenMount::open(&HostPath::from(path.as_path())).expect("opens");
        // The last one is mountinfo's, which is correct for btrfs as well.
        Volume { dev: *kept.devs.last().expect("a number"), path, kept }
    }

    pub fn is_frozen(&self) -> bool {
        // No other process waits for this file: the test is its only writer.
        let path = self.path.join("is-frozen");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let written = std::fs::write(path, b"x");
            let _ = sender.send(written);
        });
        match receiver.recv_timeout(Duration::from_millis(300)) {
            Ok(written) => written.map(|()| false).expect("writes"),
            Err(_) => true,
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        match self.kept.thaw() {
            Ok(()) => {
                eprintln!("{} was left frozen, and is thawed by the test", self.path.display())
            }
            Err(Errno::EINVAL) => {}
            Err(errno) => eprintln!("thawing {}: {errno}", self.path.display()),
        }
    }
}

/// A thread that writes without pause and counts.
pub struct Writer {
    pub writes: Arc<AtomicU64>,
    pub stop: Arc<AtomicBool>,
}

impl Writer {
    pub fn start(volume: &Volume) -> Writer {
        let writer = Writer { writes: Arc::default(), stop: Arc::default() };
        let (writes, stop, path) =
            (writer.writes.clone(), writer.stop.clone(), volume.path.join("written"));
        std::thread::spawn(move || {
            let file = File::create(path).expect("a file");
            while !stop.load(Ordering::Relaxed) {
                let count = writes.load(Ordering::Relaxed);
                file.write_all_at(&count.to_le_bytes(), (count % 512) * 8).expect("written");
                writes.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        writer
    }

    pub fn count(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Asserts that it is held: nothing is written for a while.
    pub async fn is_held(&self) {
        pause(Duration::from_millis(20)).await;
        let before = self.count();
        pause(Duration::from_millis(200)).await;
        assert_eq!(self.count(), before, "something was written while writers were held");
    }

    pub async fn continues(&self, within: Duration) -> Duration {
        let (before, since) = (self.count(), Instant::now());
        eventually("the writer continues", within, async || {
            (self.count() > before + 3).then_some(())
        })
        .await;
        since.elapsed()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A testbed with a directory on tmpfs for the notes.
pub struct Fixture {
    pub intents: PathBuf,
    pub testbed: Testbed,
}

impl Fixture {
    pub fn new() -> Fixture {
        let testbed = Testbed::new();
        let memory = testbed.path("memory");
        mount_with(Path::new("none"), "tmpfs", &memory, nix::mount::MsFlags::empty(), "size=1m");
        Fixture { intents: memory.join("freeze"), testbed }
    }

    pub fn freezer(&self) -> Freezer {
        self.freezer_that_needs(&[])
    }

    pub fn freezer_that_needs(&self, needed: &[&Path]) -> Freezer {
        let args = freezer_arguments(&HostRoot::new("/"), needed.iter().copied());
        Freezer {
            program: Program { program: built_program("diskvitalsd").into(), args },
            intents: self.intents.clone(),
        }
    }

    pub fn mount(&self, disk: &Disk, fs_type: &str) -> Volume {
        let at = self.testbed.path(format!("mnt/{}", disk.name()));
        mount_device(&disk.device, fs_type, &at, "");
        Volume::at(at)
    }

    pub fn ext4(&self) -> Volume {
        self.mount(&self.testbed.ext4("e.img", 64, &[]), "ext4")
    }

    pub fn xfs(&self) -> Volume {
        self.mount(&self.testbed.xfs("x.img"), "xfs")
    }

    pub fn btrfs(&self) -> Volume {
        let image = self.testbed.image("b.img", 128 << 20);
        run("/usr/sbin/mkfs.btrfs", &[&"-q", &image]);
        self.mount(&self.testbed.attach(&image), "btrfs")
    }

    /// Asserts that no note of a freeze is left.
    pub fn is_clean(&self) {
        let left: Vec<_> = std::fs::read_dir(&self.intents)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// The process that the only note names.
    pub fn freezer_process(&self) -> Pid {
        let found = diskvitals_host::intents::find(&self.intents).expect("readable");
        let pid = found.first().and_then(|found| found.intent.as_ref()).expect("a note").pid;
        Pid::from_raw(i32::try_from(pid).expect("a process"))
    }
}

pub fn order(volume: &Volume, limit: Duration) -> FreezeRequest {
    FreezeRequest {
        check: CheckId::known("c0ffee"),
        mount: volume.path.as_path().into(),
        dev: volume.dev,
        limit,
    }
}

pub async fn freeze(fixture: &Fixture, volume: &Volume, limit: Duration) -> FreezeGuard {
    timeout(SOON, fixture.freezer().freeze(order(volume, limit)))
        .await
        .expect("an answer")
        .expect("frozen")
}

pub async fn refused(freezer: Freezer, order: FreezeRequest) -> FreezeError {
    timeout(SOON, freezer.freeze(order)).await.expect("an answer").expect_err("not frozen")
}

/// An ext4 on a device that answers no write until the test allows it.
///
/// Drop order matters: the server goes first and thereby fails the requests that wait for it. The
/// volume thaws what is still frozen, which waits as long as the device does: a test that fails
/// while the device hangs would hang as well, and nothing after it would be removed.
pub struct FuseVolume {
    pub served: FuseServer,
    pub volume: Volume,
}

impl FuseVolume {
    pub fn new(fixture: &Fixture) -> FuseVolume {
        let image = fixture.testbed.image("slow.img", 64 << 20);
        run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
        let served = FuseServer::mount(&fixture.testbed.path("fuse"), &image);
        let volume = fixture.mount(&fixture.testbed.attach(&served.file()), "ext4");
        FuseVolume { served, volume }
    }

    /// The hung device answers again: the freezer then thaws it and removes its intent.
    pub async fn answers_and_is_thawed(&self, fixture: &Fixture) {
        self.served.set(Mode::Pass);
        eventually("it is thawed", SOON, async || {
            std::fs::read_dir(&fixture.intents).expect("there").next().is_none().then_some(())
        })
        .await;
        assert!(!self.volume.is_frozen());
    }

    /// Hangs the device while there is dirty data.
    pub fn hang_with_something_to_write(&self) {
        std::fs::write(self.volume.path.join("dirty"), vec![7; 1 << 20]).expect("written");
        self.served.set(Mode::Hang);
    }
}

/// Starts a freeze that waits in the kernel for the hung device.
pub async fn waits_in_the_kernel(fixture: &Fixture) {
    eventually("the freezer waits in the kernel", SOON, async || {
        let found = diskvitals_host::intents::find(&fixture.intents).expect("readable");
        let pid = found.first()?.intent.as_ref()?.pid;
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D')).then_some(())
    })
    .await;
}
