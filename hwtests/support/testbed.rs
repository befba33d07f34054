//! The directory of one test: images, loop devices, mounts, a kubelet's root. It is removed when
//! dropped, also after a panic. The next run removes what a killed run left behind (directory names
//! contain the lane and the process number).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use diskvitals_finding::path::HostPath;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::Kubelet;
use super::lane::Lane;
use super::tools::{self, run, succeeds};

const POD_LOGS: &str = "/var/log/pods";

pub struct Testbed {
    dir: tempfile::TempDir,
    lane: Lane,
    /// Loop devices that existed before; the lane's others are removed at the end.
    loops: Vec<String>,
    pub kubelet: Kubelet,
}

/// An image on a loop device.
#[derive(Clone, Debug)]
pub struct Disk {
    pub image: PathBuf,
    /// `/dev/loopN`
    pub device: PathBuf,
}

impl Disk {
    /// `loopN`
    pub fn name(&self) -> &str {
        self.device.file_name().and_then(|name| name.to_str()).expect("a kernel name")
    }

    /// `losetup -d`: at once when it is not in use, else with its last user.
    pub fn detach(&self) {
        run("/usr/sbin/losetup", &[&"-d", &self.device]);
    }
}

impl Testbed {
    pub fn new() -> Testbed {
        assert!(nix::unistd::geteuid().is_root(), "these tests need root");
        let lane = Lane::of_this_process();
        sweep(&lane);
        let dir = tempfile::Builder::new()
            .prefix(&format!("{}{}-", lane.folders(), std::process::id()))
            .tempdir_in("/tmp")
            .expect("a folder");
        for folder in ["run", "state", "images", "mnt"] {
            std::fs::create_dir(dir.path().join(folder)).expect("a folder");
        }
        // Like /run on every host: the notes of frozen filesystems must not survive a boot.
        let run = dir.path().join("run");
        mount(Some("dvhw"), &run, Some("tmpfs"), MsFlags::empty(), Some("size=16m,mode=0755"))
            .expect("a tmpfs");
        let kubelet = Kubelet::new(dir.path().join("kubelet"));
        Testbed { dir, lane, loops: loops(), kubelet }
    }

    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(below)
    }

    /// An empty (sparse) image.
    pub fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path("images").join(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("the image");
        path
    }

    /// The lane's next free loop device over `image`.
    pub fn attach(&self, image: &Path) -> Disk {
        let former = loops_with_former_errors();
        let is_free = |name: &String| {
            !former.contains(name) && !Path::new(&format!("/sys/block/{name}/loop")).exists()
        };
        // Attached at the same moment by another program: the next one.
        let device = self
            .lane
            .loop_numbers()
            .map(|number| format!("loop{number}"))
            .filter(is_free)
            .map(|name| format!("/dev/{name}"))
            .find(|device| succeeds("/usr/sbin/losetup", &[device, &image]))
            .expect("a free loop device");
        Disk { image: image.to_owned(), device: device.into() }
    }

    pub fn ext4(&self, name: &str, mib: u64, options: &[&str]) -> Disk {
        let image = self.image(name, mib << 20);
        let mut arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"-q", &"-F"];
        options.iter().for_each(|option| arguments.push(option));
        arguments.push(&image);
        run("/usr/sbin/mkfs.ext4", &arguments);
        self.attach(&image)
    }

    /// XFS needs 300 MiB at least; the image is sparse.
    pub fn xfs(&self, name: &str) -> Disk {
        let image = self.image(name, 320 << 20);
        run("/usr/sbin/mkfs.xfs", &[&"-q", &image]);
        self.attach(&image)
    }

    /// Mounts `disk` as the staged volume and binds it as the pod's. Returns both paths.
    pub fn stage_and_publish(
        &self,
        disk: &Disk,
        fs_type: &str,
        options: &str,
        volume: &Claim,
    ) -> (PathBuf, PathBuf) {
        let staging = self.kubelet.stage(volume.driver, volume.handle);
        tools::mount_device(&disk.device, fs_type, &staging, options);
        let pod = self.kubelet.publish(volume.driver, volume.handle, volume.pv, volume.pod);
        tools::bind(&staging, &pod);
        (staging, pod)
    }

    /// The directory whose name contains the pod's name, `/var/log/pods/NAMESPACE_NAME_UID`.
    /// Namespace `dvhw` marks it as ours.
    pub fn pod_logs(&self, name: &str, uid: &str) {
        let folder = Path::new(POD_LOGS).join(format!("dvhw_{name}_{uid}"));
        std::fs::create_dir_all(folder).expect("the pod's log folder");
    }
}

/// The names of a published volume in these tests.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub driver: &'a str,
    pub handle: &'a str,
    pub pv: &'a str,
    pub pod: &'a str,
}

impl Drop for Testbed {
    fn drop(&mut self) {
        take_down(self.dir.path());
        let Ok(control) = std::fs::File::options().read(true).write(true).open("/dev/loop-control")
        else {
            return;
        };
        for name in loops().iter().filter(|name| !self.loops.contains(name)) {
            if let Some(number) = name
                .strip_prefix("loop")
                .and_then(|number| number.parse().ok())
                .filter(|number| self.lane.loop_numbers().contains(number))
            {
                // SAFETY: takes a number, returns one. Refused (EBUSY) while the device is in use:
                // then it stays.
                let _ =
                    unsafe { loop_ctl_remove(std::os::fd::AsRawFd::as_raw_fd(&control), number) };
            }
        }
    }
}

nix::ioctl_write_int_bad! {
    /// LOOP_CTL_REMOVE (linux/loop.h).
    loop_ctl_remove, 0x4C81
}

/// Kernel names of the loop devices there are.
fn loops() -> Vec<String> {
    let names = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("loop")).collect()
}

/// Removes what ended processes have left behind.
fn sweep(lane: &Lane) {
    let Ok(entries) = std::fs::read_dir("/tmp") else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| {
            name.strip_prefix(&lane.folders())?.split('-').next()?.parse::<i32>().ok()
        }) else {
            continue;
        };
        let own = i32::try_from(std::process::id()).expect("a process number");
        let has_ended = if lane.has_processes_of_its_own() {
            pid != own
        } else {
            kill(Pid::from_raw(pid), None).is_err()
        };
        if has_ended {
            take_down(&entry.path());
            if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                eprintln!("sweeping {}: {error}", entry.path().display());
            }
        }
    }
}

/// FUSE servers first, so that nothing below waits for one that hangs; loop devices before their
/// mounts, so that autoclear removes them.
fn take_down(dir: &Path) {
    for (path, fs_type) in mounts_below(dir) {
        if fs_type.starts_with("fuse") {
            // Aborts the connection; the call itself fails with EBUSY.
            let _ = umount2(path.as_path(), MntFlags::MNT_FORCE);
        }
    }
    detach_loops(dir);
    for (path, _) in mounts_below(dir).iter().rev() {
        if let Err(error) = umount2(path.as_path(), MntFlags::MNT_DETACH) {
            eprintln!("unmounting {path}: {error}");
        }
    }
    detach_loops(dir);
    if let Ok(entries) = std::fs::read_dir(POD_LOGS) {
        for entry in entries
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("dvhw_"))
        {
            // Ours by its name; what cannot be removed now is removed by the next run.
            let _ = std::fs::remove_dir_all(entry.path());
        }
        // Refused while it is not empty.
        let _ = std::fs::remove_dir(POD_LOGS);
    }
}

/// In the order they were mounted.
fn mounts_below(dir: &Path) -> Vec<(HostPath, String)> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let dir = HostPath::from(dir);
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let path = HostPath::unescape(fields.nth(4)?);
            let fs_type = fields.skip_while(|field| field != b"-").nth(1)?;
            path.strip_prefix(&dir)?;
            Some((path, String::from_utf8_lossy(fs_type).into_owned()))
        })
        .collect()
}

fn detach_loops(dir: &Path) {
    for name in loops() {
        let backing = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"))
            .unwrap_or_default();
        if Path::new(backing.trim_end().trim_end_matches(" (deleted)")).starts_with(dir) {
            detach(&Path::new("/dev").join(name));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "taking down must not panic")]
fn detach(device: &Path) {
    match std::process::Command::new("/usr/sbin/losetup").arg("-d").arg(device).status() {
        Ok(status) if status.success() => {}
        other => eprintln!("detaching {}: {other:?}", device.display()),
    }
}

/// The kernel limits the rate of its records of new loops, so the log may have errors of a former
/// loop and nothing that says that the name is another one's now. These names are not used again.
fn loops_with_former_errors() -> BTreeSet<String> {
    let mut former = BTreeSet::new();
    for line in run("/usr/bin/dmesg", &[]).lines() {
        let Some((_, rest)) = line.split_once("loop") else {
            continue;
        };
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let name = format!("loop{digits}");
        let is_error =
            ["error", "I/O", "orrupt", "hutdown", "emount"].iter().any(|word| line.contains(word));
        if line.contains(&format!("{name}: detected capacity change from 0 to")) {
            former.remove(&name);
        } else if is_error && !digits.is_empty() {
            former.insert(name);
        }
    }
    former
}
