//! A small tmpfs, for tests of a disk that is full or read-only. Shared by tests.

use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// It is unmounted when dropped.
pub struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// None without the right to mount.
    pub fn mount() -> Option<Tmpfs> {
        let dir = tempfile::tempdir().expect("a folder");
        let flags = MsFlags::empty();
        let mounted = mount(Some("tmpfs"), dir.path(), Some("tmpfs"), flags, Some("size=1m"));
        match mounted {
            Ok(()) => Some(Tmpfs(dir)),
            Err(error) => {
                eprintln!("skipped: mounting a tmpfs needs root ({error})");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// With other flags, or another size (`size=64m`).
    pub fn remount(&self, flags: MsFlags, options: Option<&str>) {
        mount(None::<&str>, self.path(), None::<&str>, flags | MsFlags::MS_REMOUNT, options)
            .expect("mounted again");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // The folder is removed with it, or is reported as left over.
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}
