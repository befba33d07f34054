//! Checkers in their jail on real devices: they read the filesystem and never write.

mod failures;
pub mod fixture;
mod images;
mod jail;

use std::os::unix::fs::{FileExt, MetadataExt};

use diskvitals_finding::path::HostPath;

use crate::support::Testbed;
use crate::support::tools::{mount_device, umount};
use fixture::fill;

#[test]
fn the_sick_inodes_that_the_kernel_reports_of_an_xfs_are_passed_on() {
    let testbed = Testbed::new();
    let disk = testbed.xfs("x.img");
    let mount = testbed.path("mnt");
    mount_device(&disk.device, "xfs", &mount, "");
    fill(&mount, 3000);
    let path = HostPath::from(mount.as_path());
    let sick = || {
        diskvitals_host::xfs::sick_inodes(&path, &mut || true).expect("an answer").expect("an XFS")
    };
    assert_eq!(sick(), diskvitals_host::xfs::Sick::default());
    // An inode in the first group, where an inode number is a position (512 bytes each).
    let directories = std::fs::read_dir(&mount)
        .expect("directories")
        .flatten()
        .map(|directory| directory.metadata().expect("a directory").ino());
    let inode =
        directories.filter(|inode| *inode < 1 << 17).max().expect("a folder in the first group");
    umount(&mount);
    let device = std::fs::File::options().write(true).open(&disk.device).expect("the device");
    device
        .write_all_at(&[0xa5; 16], inode * 512)
        .and_then(|()| device.sync_all())
        .expect("the damage");
    mount_device(&disk.device, "xfs", &mount, "");
    // An access finds the damage; the mount does not.
    let found = sick();
    println!("inode {inode}: {found:?}");
    assert_ne!(found, diskvitals_host::xfs::Sick::default());
    umount(&mount);
}
