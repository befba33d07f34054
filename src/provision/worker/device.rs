//! Devices and directories in the configuration, and the processes that use them.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::stat::{SFlag, fstat};

use crate::step::{Device, StepErrorKind};
use crate::worker::PROCESS_NAME;
use crate::worker::error::{StepWorkerError, io_error};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;
use diskvitals_host::block::{DeviceFile, OpenMode, dev_no};
use diskvitals_host::openers::{OpenTarget, Opener, find_openers, summary};
use diskvitals_host::resolve_beneath;
use diskvitals_host::root::HostRoot;

/// Resolves `path`, which may be a link (by-id), to a block device.
pub fn resolve(path: &HostPath) -> Result<Device, StepWorkerError> {
    // The step's own text names the path.
    let node = std::fs::canonicalize(path.as_path())
        .map_err(|error| StepWorkerError::io("resolving it", error))?;
    let data = std::fs::metadata(&node).map_err(io_error("looking at", path))?;
    if !data.file_type().is_block_device() {
        return Err(StepErrorKind::InvalidPath.error(format!("{path} is no block device")));
    }
    let dev = dev_no(data.rdev());
    let name = kernel_name(dev)?;
    // The kernel's name of the node. If that node is missing, the found node is used (a container
    // runtime or mknod may have made it).
    let usual = Path::new("/dev").join(name.replace('!', "/"));
    let is_same = std::fs::metadata(&usual)
        .is_ok_and(|usual| usual.file_type().is_block_device() && usual.rdev() == data.rdev());
    describe(if is_same { &usual } else { &node }, dev, name)
}

/// Finds a device by its number; returns the kernel's node.
pub fn by_number(dev: DevNo) -> Result<Device, StepWorkerError> {
    let name = kernel_name(dev)?;
    describe(&Path::new("/dev").join(name.replace('!', "/")), dev, name)
}

fn describe(node: &Path, dev: DevNo, name: String) -> Result<Device, StepWorkerError> {
    let reading = |what: &str| format!("reading the {what} of {}", node.display());
    let block = DeviceFile::open(node, OpenMode::Read)
        .map_err(|error| StepWorkerError::io(reading("size"), error))?;
    let flag = std::fs::read(format!("/sys/dev/block/{dev}/ro"))
        .map_err(|error| StepWorkerError::io(reading("write protection"), error))?;
    Ok(Device {
        node: HostPath::from(node),
        name,
        size: block.size,
        read_only: flag.trim_ascii() == b"1",
        identity: identity(Path::new("/"), dev),
    })
}

/// Files in sysfs that identify a drive, array, mapping or card, the most reliable first
/// (Documentation/ABI/stable/sysfs-block and the drivers' own).
const IDENTITY_FILES: [&str; 7] =
    ["wwid", "device/wwid", "dm/uuid", "md/uuid", "device/cid", "device/serial", "serial"];

/// Identifies a device. A partition has the identity of its disk, its number and its start. A disk
/// without an identity gets one for this boot, until it is removed (diskseq, Linux 5.15). `root`
/// contains `sys` and `proc`.
pub fn identity(root: &Path, dev: DevNo) -> Option<String> {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let folder = std::fs::canonicalize(root.join(format!("sys/dev/block/{dev}"))).ok()?;
    let part = match read(&folder.join("partition")) {
        Some(number) => format!(", partition {number} from {}", read(&folder.join("start"))?),
        None => String::new(),
    };
    let disk = if part.is_empty() { folder.as_path() } else { folder.parent()? };
    let named =
        IDENTITY_FILES.iter().find_map(|name| Some(format!("{name} {}", read(&disk.join(name))?)));
    let disk = named.or_else(|| {
        let boot = read(&root.join("proc/sys/kernel/random/boot_id"))?;
        Some(format!("disk {} of boot {boot}", read(&disk.join("diskseq"))?))
    })?;
    Some(disk + &part)
}

/// Changes with every write to the device that the kernel has passed on (a partition counts its own),
/// when the device is attached again, and with every boot (Documentation/block/stat.rst: sectors
/// written and discarded). None if the kernel does not tell.
pub fn generation(root: &Path, dev: DevNo) -> Option<String> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let folder = std::fs::canonicalize(root.join(format!("sys/dev/block/{dev}"))).ok()?;
    let sequence = [folder.as_path(), folder.parent()?]
        .into_iter()
        .find_map(|folder| read(&folder.join("diskseq")))?;
    let boot = read(&root.join("proc/sys/kernel/random/boot_id"))?;
    let stat = read(&folder.join("stat"))?;
    let count = |field: usize| stat.split_ascii_whitespace().nth(field);
    let (written, discarded) = (count(6)?, count(13).unwrap_or("0"));
    let (boot, sequence) = (boot.trim(), sequence.trim());
    Some(format!("boot {boot}, disk {sequence}, {written} sectors written, {discarded} discarded"))
}

/// The kernel's name of a device: `loop3`, `dm-2`, `cciss!c0d0`.
pub fn kernel_name(dev: DevNo) -> Result<String, StepWorkerError> {
    let link = std::fs::read_link(format!("/sys/dev/block/{dev}"))
        .map_err(io_error("looking for the device", &dev))?;
    let name = link.file_name().map(|name| name.to_string_lossy().into_owned());
    name.ok_or_else(|| {
        StepErrorKind::Other.error(format!("the device {dev} has no name in /sys/dev/block"))
    })
}

/// Checks that the path is one of `roots`, or is below one and reached from it without a link.
pub(crate) fn check_directory(path: &HostPath, roots: &[HostPath]) -> Result<(), StepWorkerError> {
    let is_directory = if roots.contains(path) {
        std::fs::symlink_metadata(path.as_path()).map_err(io_error("looking at", path))?.is_dir()
    } else {
        let root = roots.iter().find(|root| path.strip_prefix(root).is_some());
        let root = root.ok_or_else(|| {
            StepErrorKind::InvalidPath
                .error(format!("{path} is not below a directory that static volumes may use"))
        })?;
        let opened =
            resolve_beneath::resolve(root, path)?.open().map_err(io_error("looking for", path))?;
        let data = fstat(&opened).map_err(io_error("looking at", path))?;
        SFlag::from_bits_truncate(data.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR
    };
    if is_directory {
        Ok(())
    } else {
        Err(StepErrorKind::InvalidPath.error(format!("{path} is no folder")))
    }
}

/// Opens the device exclusively; `InUse` names the other users.
pub(crate) fn open_exclusive(
    root: &HostRoot,
    device: &HostPath,
    mode: OpenMode,
) -> Result<DeviceFile, StepWorkerError> {
    let path = root.at_host_path(device);
    DeviceFile::open(&path, mode).map_err(|error| match error.raw_os_error() {
        Some(nix::libc::EBUSY) => in_use(root, device),
        _ if error.kind() == io::ErrorKind::InvalidInput => StepWorkerError::with_source(
            StepErrorKind::InvalidPath,
            format!("opening {device}"),
            error,
        ),
        _ => StepWorkerError::io(format!("opening {device}"), error),
    })
}

/// Names the users of the device, as far as they can be found.
pub fn in_use(root: &HostRoot, device: &HostPath) -> StepWorkerError {
    let dev = std::fs::metadata(root.at_host_path(device))
        .map(|data| dev_no(data.rdev()))
        .unwrap_or_default();
    let what = OpenTarget { dev, mount_point: None, node: Some(device.clone()), pod_uid: None };
    let openers = find_openers(root, &what);
    let by = summary(&openers).unwrap_or_else(|| mounted_at(dev));
    kind_of_use(&openers).error(format!("{device} is in use: {by}"))
}

/// Steps outlive a daemon that was killed, by moments.
fn kind_of_use(openers: &[Opener]) -> StepErrorKind {
    let is_step = |opener: &Opener| opener.comm.as_bytes() == PROCESS_NAME.to_bytes();
    match !openers.is_empty() && openers.iter().all(is_step) {
        true => StepErrorKind::Interrupted,
        false => StepErrorKind::InUse,
    }
}

fn mounted_at(dev: DevNo) -> String {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let places: Vec<String> = diskvitals_finding::mount::parse(&table)
        .0
        .into_iter()
        .filter(|mount| mount.dev == dev)
        .map(|mount| mount.mount_point.to_string())
        .collect();
    if places.is_empty() {
        "by the kernel or by an unknown process".to_owned()
    } else {
        format!("mounted at {}", places.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_host::openers::OpenKind;

    #[test]
    fn a_device_that_only_steps_of_ours_have_open_is_free_soon() {
        let by = |names: &[&str]| {
            let opener = |name: &&str| Opener {
                pid: 1,
                comm: (*name).to_owned(),
                kind: OpenKind::OpenFile(HostPath::from("/dev/loop0")),
            };
            kind_of_use(&names.iter().map(opener).collect::<Vec<_>>())
        };
        assert_eq!(by(&["diskvitals-step"]), StepErrorKind::Interrupted);
        assert_eq!(by(&["diskvitals-step", "mkfs.ext4"]), StepErrorKind::InUse);
        // Mounted, or by the kernel.
        assert_eq!(by(&[]), StepErrorKind::InUse);
    }

    #[test]
    fn a_static_directory_lies_below_an_allowed_root_and_is_reached_without_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostPath::from(dir.path());
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/file"), "").unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("a/out")).unwrap();
        let check = |path: HostPath| {
            check_directory(&path, std::slice::from_ref(&root)).map_err(|failure| failure.kind)
        };
        assert_eq!(check(root.join("a/b")), Ok(()));
        assert_eq!(check(root.clone()), Ok(()));
        assert_eq!(check(root.join("a/none")), Err(StepErrorKind::NotFound));
        for wrong in [root.join("a/file"), root.join("a/out"), root.join("a/../a"), "/etc".into()] {
            assert_eq!(check(wrong.clone()), Err(StepErrorKind::InvalidPath), "{wrong}");
        }
    }

    #[test]
    fn a_device_is_known_by_its_drives_name_and_one_without_a_name_for_this_boot() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        std::fs::create_dir_all(dir.path().join("sys/dev/block")).unwrap();
        for (number, below) in
            [("8:0", "sda"), ("8:1", "sda/sda1"), ("7:0", "loop0"), ("254:0", "vda")]
        {
            put(&format!("sys/block/{below}/uevent"), "");
            std::os::unix::fs::symlink(
                format!("../../block/{below}"),
                dir.path().join(format!("sys/dev/block/{number}")),
            )
            .unwrap();
        }
        put("sys/block/sda/device/wwid", "naa.5000c500a1b2c3d4\n");
        put("sys/block/sda/diskseq", "3\n");
        put("sys/block/sda/sda1/partition", "1\n");
        put("sys/block/sda/sda1/start", "2048\n");
        put("sys/block/loop0/diskseq", "9\n");
        put("sys/block/vda/serial", "\n");
        let of = |number: &str| identity(dir.path(), number.parse().unwrap());
        assert_eq!(of("8:0").as_deref(), Some("device/wwid naa.5000c500a1b2c3d4"));
        assert_eq!(
            of("8:1").as_deref(),
            Some("device/wwid naa.5000c500a1b2c3d4, partition 1 from 2048")
        );
        assert_eq!(of("7:0"), None, "which boot it is cannot be told");
        put("proc/sys/kernel/random/boot_id", "b00t\n");
        assert_eq!(of("7:0").as_deref(), Some("disk 9 of boot b00t"));
        assert_eq!((of("254:0"), of("9:9")), (None, None));
    }

    #[test]
    fn a_path_that_is_not_a_block_device_is_refused() {
        assert_eq!(resolve(&"/dev/null".into()).unwrap_err().kind, StepErrorKind::InvalidPath);
        assert_eq!(
            resolve(&"/dev/disk/by-id/none".into()).unwrap_err().kind,
            StepErrorKind::NotFound
        );
    }
}
