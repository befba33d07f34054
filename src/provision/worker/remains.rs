//! What the kernel still has of a volume: its mounts and loop devices. The kernel has both in memory, so
//! a dead or hanging disk is not accessed.

use crate::step::{Remains, StepErrorKind};
use crate::worker::error::{StepWorkerError, io_error};
use crate::worker::image::image_error;
use crate::worker::mounts::mount_table;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::mount::Mount;
use diskvitals_finding::path::HostPath;
use diskvitals_host::images;

/// The mount table is read after the loop devices: a device that is in neither has no mount.
pub fn find(
    at: Option<&HostPath>,
    image: Option<&HostPath>,
    device: Option<&str>,
) -> Result<Remains, StepWorkerError> {
    let loops = match image {
        Some(image) => images::names_of_loops(image.as_path()).map_err(image_error)?,
        None => Vec::new(),
    };
    let names = loops.iter().map(String::as_str).chain(device);
    let devices = names.map(BlockDevice::named).collect::<Result<Vec<_>, _>>()?;
    let table = mount_table()?;
    let mounts = table.iter().filter(|mount| {
        at == Some(&mount.mount_point) || devices.iter().any(|device| device.is_shown_by(mount))
    });
    Ok(Remains { mounts: mounts.map(|mount| mount.mount_point.clone()).collect(), loops })
}

struct BlockDevice<'a> {
    name: &'a str,
    /// None: it was removed since.
    number: Option<DevNo>,
}

impl BlockDevice<'_> {
    fn named(name: &str) -> Result<BlockDevice<'_>, StepWorkerError> {
        let path = format!("/sys/class/block/{name}/dev");
        let number =
            match std::fs::read_to_string(&path) {
                Ok(text) => Some(text.trim().parse().map_err(|_| {
                    StepErrorKind::Other.error(format!("{path} has no device number"))
                })?),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => return Err(io_error("reading", &path)(error)),
            };
        Ok(BlockDevice { name, number })
    }

    /// A filesystem on the device, or its node as a raw block volume. btrfs has device numbers of its
    /// own; there the source names the node.
    fn is_shown_by(&self, mount: &Mount) -> bool {
        let node = format!("/dev/{}", self.name);
        Some(mount.dev) == self.number
            || mount.dev.is_anonymous() && mount.source.as_bytes() == node.as_bytes()
            || mount.fs_type == "devtmpfs"
                && mount.root.as_bytes().strip_prefix(b"/") == Some(self.name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(dev: &str, fs_type: &str, root: &str, source: &str) -> Mount {
        Mount {
            id: 2,
            parent: 1,
            dev: dev.parse().expect("a number"),
            root: root.into(),
            mount_point: "/k/x".into(),
            options: Default::default(),
            fs_type: fs_type.into(),
            source: source.into(),
            super_options: Default::default(),
        }
    }

    #[test]
    fn a_device_is_shown_by_its_filesystem_and_by_its_bound_node() {
        let device = BlockDevice { name: "loop3", number: "7:3".parse().ok() };
        for own in [
            mount("7:3", "ext4", "/", "/dev/loop3"),
            mount("7:3", "ext4", "/data", "/dev/block/7:3"),
            mount("0:41", "btrfs", "/", "/dev/loop3"),
            mount("0:6", "devtmpfs", "/loop3", "udev"),
        ] {
            assert!(device.is_shown_by(&own), "{own:?}");
        }
        for other in [
            mount("7:30", "ext4", "/", "/dev/loop30"),
            mount("0:41", "btrfs", "/", "/dev/loop30"),
            mount("0:6", "devtmpfs", "/loop30", "udev"),
            mount("0:6", "devtmpfs", "/", "udev"),
            mount("8:1", "ext4", "/loop3", "/dev/sda1"),
        ] {
            assert!(!device.is_shown_by(&other), "{other:?}");
        }
    }

    #[test]
    fn what_is_mounted_at_the_path_counts_whatever_it_is() {
        let at = |path: &str| find(Some(&path.into()), None, None).expect("read").mounts;
        assert!(!at("/proc").is_empty());
        assert_eq!(at("/no/such/place"), Vec::<HostPath>::new());
        let image = HostPath::from("/no/such/image.img");
        assert_eq!(find(None, Some(&image), None).expect("read"), Remains::default());
    }
}
