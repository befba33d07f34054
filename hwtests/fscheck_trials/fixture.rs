//! Filesystems to check: created, filled, damaged, mounted.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use diskvitals_fscheck::Filesystem;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};

use crate::support::offline::{self, OfflineResult};
use crate::support::tools::{run, umount};
use crate::support::{Disk, Testbed, corrupt, populate};

const HELD_BY_OTHERS: Duration = Duration::from_secs(10);
/// Another seed is tried when a damage has no visible effect.
const ATTEMPTS: u64 = 6;

/// A filled filesystem in a file, with a UUID of its own, so that any number of them can be
/// mounted.
pub fn pristine(testbed: &Testbed, filesystem: Filesystem, name: &str, seed: u64) -> PathBuf {
    let mib = match filesystem {
        Filesystem::Ext4 => 160,
        Filesystem::Xfs => 320,
        Filesystem::Btrfs => 384,
    };
    let image = testbed.image(name, mib << 20);
    match filesystem {
        Filesystem::Ext4 => run(
            "/usr/sbin/mkfs.ext4",
            &[
                &"-q",
                &"-F",
                &"-b",
                &"4096",
                &"-O",
                &"metadata_csum_seed",
                &"-E",
                &"lazy_itable_init=0,lazy_journal_init=0",
                &image,
            ],
        ),
        Filesystem::Xfs => run("/usr/sbin/mkfs.xfs", &[&"-q", &image]),
        Filesystem::Btrfs => {
            run("/usr/sbin/mkfs.btrfs", &[&"-q", &"-m", &"dup", &"-d", &"single", &image])
        }
    };
    let mounted = MountedImage::new(testbed, filesystem, &image, name)
        .unwrap_or_else(|error| panic!("mounting {name}: {error}"));
    populate::populate(&mounted.at, populate::USUAL, seed)
        .unwrap_or_else(|error| panic!("filling {name}: {error}"));
    mounted.end();
    image
}

/// `image` again, as `name`, with another UUID.
pub fn copy(testbed: &Testbed, filesystem: Filesystem, image: &Path, name: &str) -> PathBuf {
    let other = testbed.path("images").join(name);
    run("/usr/bin/cp", &[&"--sparse=always", &image, &other]);
    match filesystem {
        Filesystem::Ext4 => run("/usr/sbin/tune2fs", &[&"-U", &"random", &other]),
        Filesystem::Xfs => run("/usr/sbin/xfs_admin", &[&"-U", &"generate", &other]),
        Filesystem::Btrfs => run("/usr/bin/btrfstune", &[&"-f", &"-m", &other]),
    };
    other
}

/// A filesystem on a loop device, mounted below the testbed. Unmounted and detached by `end`, or
/// with the testbed.
pub struct MountedImage {
    pub disk: Disk,
    pub at: PathBuf,
}

impl MountedImage {
    pub fn new(
        testbed: &Testbed,
        filesystem: Filesystem,
        image: &Path,
        name: &str,
    ) -> nix::Result<MountedImage> {
        MountedImage::with(testbed, filesystem, image, name, MsFlags::empty())
    }

    pub fn with(
        testbed: &Testbed,
        filesystem: Filesystem,
        image: &Path,
        name: &str,
        flags: MsFlags,
    ) -> nix::Result<MountedImage> {
        let disk = testbed.attach(image);
        let at = testbed.path("mnt").join(name);
        std::fs::create_dir_all(&at).expect("the mount point");
        match mount(Some(&disk.device), &at, Some(filesystem.name()), flags, None::<&str>) {
            Ok(()) => Ok(MountedImage { disk, at }),
            Err(error) => {
                disk.detach();
                Err(error)
            }
        }
    }

    /// Returns when no mount uses the device any more. A process that copied the mount table a
    /// moment ago (unshare(2), of another trial's checker) keeps a filesystem mounted after its
    /// unmount: until then its journal is not closed, and ext4 could be mounted a second time.
    pub fn end(self) {
        umount(&self.at);
        let end = Instant::now() + HELD_BY_OTHERS;
        while let Err(error) = claim(&self.disk.device) {
            assert!(Instant::now() < end, "{} stays mounted: {error}", self.at.display());
            std::thread::park_timeout(Duration::from_millis(5));
        }
        self.disk.detach();
    }
}

/// Refused with EBUSY while a mount uses the device (open(2), O_EXCL).
fn claim(device: &Path) -> std::io::Result<std::fs::File> {
    std::fs::File::options().read(true).custom_flags(OFlag::O_EXCL.bits()).open(device)
}

/// A filesystem with one damage that the offline checker finds.
#[derive(Clone, Debug)]
pub struct DamagedImage {
    pub kind: &'static str,
    pub image: PathBuf,
    /// What was damaged.
    pub what: String,
    /// The offline checker's output, the first lines.
    pub truth: Vec<String>,
    pub mount: Mountable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mountable {
    /// And still damaged after it was unmounted.
    Yes,
    /// It is not tried while mounted, with the reason.
    No(String),
}

/// `Err`: why there is no such damage.
pub fn damaged(
    testbed: &Testbed,
    filesystem: Filesystem,
    (kind, unmounted_only): (&'static str, Option<&'static str>),
    pristine: &Path,
    seed: u64,
) -> Result<DamagedImage, String> {
    let name = format!("{}-{kind}", filesystem.name());
    let mut last = "nothing here can be damaged so".to_owned();
    for attempt in 0..ATTEMPTS {
        let image = copy(testbed, filesystem, pristine, &name);
        let Some(what) = corrupt::damage(filesystem, kind, &image, seed + attempt * 1000) else {
            continue;
        };
        match offline::check(filesystem, &image) {
            OfflineResult::Damaged(truth) => {
                let mount = match unmounted_only {
                    Some(why) => Mountable::No(why.to_owned()),
                    None => mountable(testbed, filesystem, &image, &name),
                };
                return Ok(DamagedImage { kind, image, what, truth, mount });
            }
            other => last = format!("{what}: the offline checker reports {other:?}"),
        }
    }
    Err(last)
}

/// On a copy: whether the kernel mounts it, and whether it is still damaged afterwards.
fn mountable(testbed: &Testbed, filesystem: Filesystem, image: &Path, name: &str) -> Mountable {
    let copy = testbed.path("images").join(format!("{name}-mounted"));
    run("/usr/bin/cp", &[&"--sparse=always", &image, &copy]);
    let found = match MountedImage::new(testbed, filesystem, &copy, &format!("{name}-probe")) {
        Err(error) => Mountable::No(format!("the kernel does not mount it ({})", error.desc())),
        Ok(mounted) => {
            mounted.end();
            match offline::check(filesystem, &copy) {
                OfflineResult::Clean => {
                    Mountable::No("mounting and unmounting heals it".to_owned())
                }
                OfflineResult::Damaged(_) | OfflineResult::Unknown(_) => Mountable::Yes,
            }
        }
    };
    std::fs::remove_file(&copy).expect("the copy");
    found
}
