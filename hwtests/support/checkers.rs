//! Loop devices of checkers: all of them, and those on devices of one testbed. Other processes may
//! check filesystems of this machine at the same time.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use diskvitals_finding::dev::DevNo;
use diskvitals_host::loops::is_ours;
use nix::sys::stat::{major, minor};

use super::{SOON, Testbed, eventually};

/// Loop devices that checkers use.
pub fn loops_of_checkers() -> Vec<String> {
    backed().into_iter().filter(|(_, backing)| is_ours(backing)).map(|(name, _)| name).collect()
}

/// Those used by checkers of this testbed's loop devices.
pub fn loops_over(testbed: &Testbed) -> Vec<String> {
    let dir = testbed.path("");
    let here: Vec<DevNo> = backed()
        .iter()
        .filter(|(_, backing)| Path::new(backing).starts_with(&dir))
        .filter_map(|(name, _)| number(name))
        .collect();
    let mut loops = loops_of_checkers();
    // A device that cannot be queried has just disappeared.
    loops.retain(|name| stands_on(name).is_some_and(|dev| here.contains(&dev)));
    loops
}

pub async fn no_loops_over(testbed: &Testbed) {
    eventually("no loop of a checker is left", SOON, async || {
        loops_over(testbed).is_empty().then_some(())
    })
    .await;
}

/// Names and backing files of the loop devices that have one.
fn backed() -> Vec<(String, String)> {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("loop"));
    let backing = |name: String| {
        let text = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
        Some((name, text.trim_end().to_owned()))
    };
    names.filter_map(backing).collect()
}

fn number(name: &str) -> Option<DevNo> {
    std::fs::read_to_string(format!("/sys/block/{name}/dev")).ok()?.trim().parse().ok()
}

/// The block device that is its backing file.
fn stands_on(name: &str) -> Option<DevNo> {
    let device = File::open(Path::new("/dev").join(name)).ok()?;
    let mut info = [0_u64; 29];
    // SAFETY: the call fills a struct loop_info64, which has 232 bytes; `info` is as large, aligned
    // as its largest member, and lives throughout.
    unsafe { loop_get_status64(device.as_raw_fd(), &mut info) }.ok()?;
    // lo_device, lo_inode, lo_rdevice.
    let dev = info[2];
    Some(DevNo::new(u32::try_from(major(dev)).ok()?, u32::try_from(minor(dev)).ok()?))
}

nix::ioctl_read_bad! {
    /// LOOP_GET_STATUS64 (linux/loop.h).
    loop_get_status64, 0x4C05, [u64; 29]
}
