//! A FUSE filesystem with one file, whose server answers, fails, hangs or dies as the test orders.
//! The file can back a loop device.
//!
//! The server is a thread of the test. When the test ends for any reason, the kernel aborts the
//! connection, and nothing stays hung.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::*;
use nix::errno::Errno as Nix;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Name of the one file.
pub const FILE: &str = "disk.img";
const FILE_INO: u64 = 2;
const TTL: Duration = Duration::ZERO;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Every request for content is answered with EIO.
    Fail,
    /// With ENODEV: a loop device over the file then fails as a disk does that is gone (`device offline
    /// error` in the kernel log).
    Gone,
    /// The next request, and all after it, are not answered.
    Hang,
}

/// A fault of part of the file, while everything else works.
#[derive(Clone, Debug)]
pub struct Fault {
    /// In bytes.
    pub range: Range<u64>,
    pub reads: bool,
    pub writes: bool,
    /// This many requests that touch the range still succeed.
    pub after: usize,
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// EIO.
    Fail,
    /// Answered late.
    Slow(Duration),
    /// Not answered until the faults change.
    Hang,
}

impl Fault {
    /// Reads of this range fail.
    pub fn reads(range: Range<u64>) -> Fault {
        Fault { range, reads: true, writes: false, after: 0, effect: Effect::Fail }
    }

    pub fn writes(range: Range<u64>) -> Fault {
        Fault { range, reads: false, writes: true, after: 0, effect: Effect::Fail }
    }

    pub fn both(range: Range<u64>) -> Fault {
        Fault { range, reads: true, writes: true, after: 0, effect: Effect::Fail }
    }
}

#[derive(Debug)]
struct Switch {
    mode: Mutex<Mode>,
    changed: Condvar,
    faults: Mutex<Vec<Fault>>,
    faults_changed: Condvar,
    /// Requests that a fault has left unanswered so far.
    held: AtomicUsize,
    /// All requests so far, answered or not.
    received: AtomicUsize,
}

impl Switch {
    /// Waits while it hangs. Err: answer with an error.
    fn pass(&self) -> Result<(), Errno> {
        self.received.fetch_add(1, Ordering::Relaxed);
        let mode = self
            .changed
            .wait_while(self.mode.lock().expect("the mode"), |mode| *mode == Mode::Hang)
            .expect("the mode");
        match *mode {
            Mode::Fail => Err(Errno::EIO),
            Mode::Gone => Err(Errno::ENODEV),
            Mode::Pass | Mode::Hang => Ok(()),
        }
    }

    /// The effect of the faults on one request, besides the mode.
    #[expect(clippy::disallowed_methods, reason = "simulates a slow drive")]
    fn touch(&self, offset: u64, length: u64, write: bool) -> Result<(), Errno> {
        self.pass()?;
        let mut faults = self.faults.lock().expect("the faults");
        let hit = faults.iter_mut().find(|fault| {
            let concerned = if write { fault.writes } else { fault.reads };
            concerned && offset < fault.range.end && fault.range.start < offset + length
        });
        let Some(fault) = hit else { return Ok(()) };
        if fault.after > 0 {
            fault.after -= 1;
            return Ok(());
        }
        match fault.effect {
            Effect::Fail => Err(Errno::EIO),
            Effect::Slow(by) => {
                drop(faults);
                std::thread::sleep(by);
                Ok(())
            }
            Effect::Hang => {
                self.held.fetch_add(1, Ordering::Relaxed);
                let hung = |faults: &mut Vec<Fault>| {
                    faults.iter().any(|fault| fault.effect == Effect::Hang)
                };
                drop(self.faults_changed.wait_while(faults, hung).expect("the faults"));
                self.pass()
            }
        }
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().expect("the mode") = mode;
        self.changed.notify_all();
    }
}

/// Mounted, with its server running.
pub struct FuseServer {
    at: PathBuf,
    switch: Arc<Switch>,
}

impl FuseServer {
    /// Mounts at `at` a filesystem whose file `disk.img` has the content of `backing`.
    pub fn mount(at: &Path, backing: &Path) -> FuseServer {
        FuseServer::mount_from("dvhw", at, backing)
    }

    /// The same with this source in the mount table.
    pub fn mount_from(source: &str, at: &Path, backing: &Path) -> FuseServer {
        FuseServer::mount_typed(source, "dvhw", 0, at, backing)
    }

    /// As fusermount3 does for a user who may use allow_other: it is root by its setuid bit, and
    /// gives the kernel the uid of its caller. The user chooses the subtype.
    pub fn mount_as(uid: u32, subtype: &str, at: &Path, backing: &Path) -> FuseServer {
        FuseServer::mount_typed("dvhw", subtype, uid, at, backing)
    }

    fn mount_typed(source: &str, subtype: &str, uid: u32, at: &Path, backing: &Path) -> FuseServer {
        std::fs::create_dir_all(at).expect("the mount point");
        let content =
            File::options().read(true).write(true).open(backing).expect("the backing file");
        // Opened with O_CLOEXEC: a child that held it would keep the connection alive.
        let device = File::options().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
        let options = format!(
            "fd={},rootmode=40000,user_id={uid},group_id={uid},allow_other",
            device.as_raw_fd()
        );
        mount(
            Some(source),
            at,
            Some(format!("fuse.{subtype}").as_str()),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
            Some(options.as_str()),
        )
        .expect("mounting FUSE");
        let switch = Arc::new(Switch {
            mode: Mutex::new(Mode::Pass),
            changed: Condvar::new(),
            faults: Mutex::default(),
            faults_changed: Condvar::new(),
            held: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
        });
        let filesystem = OneFile { content, switch: switch.clone() };
        let mut config = Config::default();
        config.acl = SessionACL::All;
        let session = Session::from_fd(filesystem, OwnedFd::from(device), SessionACL::All, config)
            .expect("FUSE's handshake");
        // Ends with the connection and is not joined.
        std::thread::spawn(move || session.run());
        FuseServer { at: at.to_owned(), switch }
    }

    pub fn file(&self) -> PathBuf {
        self.at.join(FILE)
    }

    pub fn set(&self, mode: Mode) {
        self.switch.set(mode);
    }

    /// From now on; an empty list repairs everything.
    pub fn fault(&self, faults: Vec<Fault>) {
        *self.switch.faults.lock().expect("the faults") = faults;
        self.switch.faults_changed.notify_all();
    }

    /// How many requests `Effect::Hang` has left unanswered, now or before.
    pub fn held(&self) -> usize {
        self.switch.held.load(Ordering::Relaxed)
    }

    /// How many requests the server has received, answered or not.
    pub fn received(&self) -> usize {
        self.switch.received.load(Ordering::Relaxed)
    }

    /// The server is gone, the mount stays: every access fails with ENOTCONN from now on. The mount
    /// must be in use (a loop device over its file, or an open descriptor), else it is unmounted as
    /// well.
    pub fn die(&self) {
        // MNT_FORCE aborts the connection (fuse_umount_begin) before it finds the mount busy.
        assert_eq!(
            umount2(&self.at, MntFlags::MNT_FORCE),
            Err(Nix::EBUSY),
            "the mount should have been in use"
        );
        self.fault(Vec::new());
        self.switch.set(Mode::Fail);
    }
}

impl Drop for FuseServer {
    fn drop(&mut self) {
        // Releases every waiting request; the testbed removes what is mounted.
        self.fault(Vec::new());
        self.switch.set(Mode::Fail);
    }
}

struct OneFile {
    content: File,
    switch: Arc<Switch>,
}

impl OneFile {
    fn attributes(&self, ino: u64) -> FileAttr {
        let size = if ino == FILE_INO {
            self.content.metadata().map(|metadata| metadata.len()).unwrap_or(0)
        } else {
            0
        };
        FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if ino == FILE_INO { FileType::RegularFile } else { FileType::Directory },
            perm: if ino == FILE_INO { 0o600 } else { 0o755 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for OneFile {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.switch.pass() {
            Err(error) => reply.error(error),
            Ok(()) if parent == INodeNo::ROOT && name == FILE => {
                reply.entry(&TTL, &self.attributes(FILE_INO), Generation(0))
            }
            Ok(()) => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.switch.pass() {
            Err(error) => reply.error(error),
            Ok(()) => reply.attr(&TTL, &self.attributes(u64::from(ino))),
        }
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.switch.pass() {
            Err(error) => reply.error(error),
            // Direct: a request that the server does not answer is not answered from the page cache
            // either.
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buffer = vec![0; size as usize];
        let touched = self.switch.touch(offset, u64::from(size), false);
        match touched.and_then(|()| self.content.read_at(&mut buffer, offset).map_err(Errno::from))
        {
            Err(error) => reply.error(error),
            Ok(length) => reply.data(&buffer[..length]),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let touched = self.switch.touch(offset, data.len() as u64, true);
        match touched.and_then(|()| self.content.write_all_at(data, offset).map_err(Errno::from)) {
            Err(error) => reply.error(error),
            Ok(()) => {
                reply.written(u32::try_from(data.len()).expect("FUSE's largest write is 16 MiB"))
            }
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        match self.switch.pass() {
            Err(error) => reply.error(error),
            Ok(()) => reply.ok(),
        }
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.switch.pass() {
            Err(error) => reply.error(error),
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if let Err(error) = self.switch.pass() {
            return reply.error(error);
        }
        let entries = [
            (1, FileType::Directory, "."),
            (1, FileType::Directory, ".."),
            (FILE_INO, FileType::RegularFile, FILE),
        ];
        for (at, (ino, kind, name)) in
            (1..).zip(entries).skip(usize::try_from(offset).unwrap_or(usize::MAX))
        {
            if reply.add(INodeNo(ino), at, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.switch.pass() {
            Err(error) => reply.error(error),
            // 1 GiB, half of it used.
            Ok(()) => reply.statfs(262_144, 131_072, 131_072, 1000, 900, 4096, 255, 4096),
        }
    }
}
