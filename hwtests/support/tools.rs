//! Runs the system's tools, and makes system calls on paths of any bytes. Synchronous: a call
//! answers at once, or the test has failed anyway.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Output of `program`; a failure ends the test and shows the output.
pub fn run(program: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let output = output(program, arguments);
    assert!(
        output.status.success(),
        "{program} {:?}: {}\n{}{}",
        arguments.iter().map(|one| one.as_ref()).collect::<Vec<_>>(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub fn succeeds(program: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> bool {
    output(program, arguments).status.success()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test sets its testbed with the system's own tools"
)]
fn output(program: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> std::process::Output {
    std::process::Command::new(program)
        .args(arguments.iter().map(|argument| argument.as_ref()))
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

pub fn mount_device(device: &Path, fs_type: &str, at: &Path, options: &str) {
    mount_with(device, fs_type, at, MsFlags::empty(), options);
}

pub fn mount_with(source: &Path, fs_type: &str, at: &Path, flags: MsFlags, options: &str) {
    std::fs::create_dir_all(at).expect("the mount point");
    mount(Some(source), at, Some(fs_type), flags, Some(options)).unwrap_or_else(|error| {
        panic!("mounting {} ({fs_type}, {options}) at {}: {error}", source.display(), at.display())
    });
}

/// Bind-mounts a directory, or a file (a device node, as for raw block).
pub fn bind(source: &Path, at: &Path) {
    if source.is_dir() {
        std::fs::create_dir_all(at).expect("the mount point");
    } else {
        if let Some(parent) = at.parent() {
            std::fs::create_dir_all(parent).expect("the mount point's folder");
        }
        std::fs::write(at, b"").expect("the mount point");
    }
    bind_over(source, at);
}

/// Bind-mounts over `at` without a stat of it: for a mount whose server may hang.
pub fn bind_over(source: &Path, at: &Path) {
    mount(Some(source), at, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap_or_else(|error| {
        panic!("binding {} at {}: {error}", source.display(), at.display())
    });
}

/// As an administrator does: `mount -o remount,OPTIONS` on the filesystem.
pub fn remount(at: &Path, flags: MsFlags) {
    mount(None::<&str>, at, None::<&str>, MsFlags::MS_REMOUNT | flags, None::<&str>)
        .unwrap_or_else(|error| panic!("remounting {}: {error}", at.display()));
}

/// How long a probe, perhaps of a daemon that was just killed, may keep a mount open.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// Must not stay busy.
pub fn umount(at: &Path) {
    let began = Instant::now();
    loop {
        match umount2(at, MntFlags::empty()) {
            Err(Errno::EBUSY) if began.elapsed() < PROBE_LIMIT => {
                std::thread::park_timeout(Duration::from_millis(5))
            }
            done => {
                return done.unwrap_or_else(|error| panic!("unmounting {}: {error}", at.display()));
            }
        }
    }
}

/// Size, free blocks and inodes, read by the test itself.
pub fn statvfs(at: &Path) -> nix::sys::statvfs::Statvfs {
    nix::sys::statvfs::statvfs(at)
        .unwrap_or_else(|error| panic!("statvfs {}: {error}", at.display()))
}
