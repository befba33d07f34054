//! One block device: its attributes in /sys/class/block/NAME, joined with the record of udev.
//!
//! In: a kernel name. Out: the node of the block graph. `drive` and `nvme` decide whether it is a
//! drive.

use crate::inventory::classify::is_numbered_name;
use crate::inventory::formats;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use crate::inventory::udev_db::UdevRecord;
use crate::inventory::zfs;
use diskvitals_finding::dev::DevNo;
use diskvitals_model::block::{BlockDevice, Layer};

/// The unit of sizes and starts in sysfs: 512 bytes, whatever the device's block size is.
const SECTOR: u64 = 512;

pub struct BlockEntry {
    pub device: BlockDevice,
    /// `/sys/devices/…/block/sda`.
    pub sysfs: String,
    /// Empty where udev has no record.
    pub udev: UdevRecord,
    /// For an NVMe namespace, the directory of its controller or (with the kernel's multipath) of
    /// its subsystem.
    pub nvme_parent: Option<String>,
}

/// None for a device that vanishes while it is read, and for the hidden nodes of the kernel's NVMe
/// multipath (`nvme0c0n1`), which cannot be opened.
pub fn read(reader: &SysfsReader<'_>, name: &str) -> Option<BlockEntry> {
    let sysfs = reader.link(&format!("/sys/class/block/{name}"))?;
    // On `DeviceRemoved`, a uevent follows.
    read_at(reader, name, sysfs).ok().flatten()
}

fn read_at(
    reader: &SysfsReader<'_>,
    name: &str,
    sysfs: String,
) -> Result<Option<BlockEntry>, DeviceRemoved> {
    if reader.flag(&format!("{sysfs}/hidden"))? == Some(true) {
        return Ok(None);
    }
    let dev_file = format!("{sysfs}/dev");
    let dev: DevNo = match reader.text(&dev_file)?.ok_or(DeviceRemoved)?.parse() {
        Ok(dev) => dev,
        Err(error) => {
            reader.warn(format!("{dev_file}: {error}"));
            return Ok(None);
        }
    };
    let sectors = reader.number(&format!("{sysfs}/size"))?.unwrap_or(0);
    let udev = reader.udev(&format!("b{dev}"));
    let has_udev_record = udev.is_some();
    let udev = udev.unwrap_or_default();
    let (layer, below) = layer(reader, name, &sysfs, &udev)?;
    let whole = if matches!(layer, Layer::Partition { .. }) { parent(&sysfs) } else { &sysfs };
    let iostats = reader.flag(&format!("{whole}/queue/iostats"))?.unwrap_or(true);
    let read_only = reader.flag(&format!("{sysfs}/ro"))?.unwrap_or(false);
    // The device has vanished: the attributes may belong to two devices.
    if !reader.exists(&dev_file) {
        return Err(DeviceRemoved);
    }
    let nvme_parent = Some(parent(&sysfs)).filter(|dir| {
        let parent = file_name(dir);
        name.starts_with("nvme")
            && (is_numbered_name(parent, "nvme") || is_numbered_name(parent, "nvme-subsys"))
    });
    let nvme_parent = nvme_parent.map(str::to_owned);
    let device = BlockDevice {
        name: name.to_owned(),
        dev,
        size_bytes: sectors.saturating_mul(SECTOR),
        read_only,
        layer,
        underlying: below,
        drive: None,
        links: udev.links.clone(),
        has_udev_record,
        fs_type: udev.get("ID_FS_TYPE").map(str::to_owned),
        fs_usage: udev.get("ID_FS_USAGE").map(str::to_owned),
        fs_uuid: udev.get_decoded("ID_FS_UUID"),
        fs_uuid_sub: udev.get_decoded("ID_FS_UUID_SUB"),
        fs_label: udev.get_decoded("ID_FS_LABEL"),
        iostats,
    };
    Ok(Some(BlockEntry { device, sysfs, udev, nvme_parent }))
}

/// The layer of the device, and the kernel names of the devices below it.
fn layer(
    reader: &SysfsReader<'_>,
    name: &str,
    sysfs: &str,
    udev: &UdevRecord,
) -> Result<(Layer, Vec<String>), DeviceRemoved> {
    if let Some(number) = reader.number(&format!("{sysfs}/partition"))? {
        let start_bytes =
            reader.number(&format!("{sysfs}/start"))?.unwrap_or(0).saturating_mul(SECTOR);
        let number = u32::try_from(number).unwrap_or(0);
        return Ok((
            Layer::Partition { number, start_bytes },
            vec![file_name(parent(sysfs)).to_owned()],
        ));
    }
    let below = reader.list(&format!("{sysfs}/slaves"));
    if reader.is_dir(&format!("{sysfs}/md")) {
        return Ok((Layer::Md { level: reader.text(&format!("{sysfs}/md/level"))? }, below));
    }
    if reader.is_dir(&format!("{sysfs}/dm")) {
        return Ok((dm(reader, sysfs, udev)?, below));
    }
    if reader.exists(&format!("{sysfs}/bcache")) && name.starts_with("bcache") {
        return Ok((Layer::Bcache, below));
    }
    if is_numbered_name(name, "loop") {
        let backing_file = reader.text(&format!("{sysfs}/loop/backing_file"))?;
        return Ok((Layer::Loop { backing_file }, below));
    }
    if let Some(zvol) = zfs::zvol(name, udev) {
        return Ok(zvol);
    }
    // Hardware partitions of an eMMC (boot0, boot1, rpmb, gp0) are separate disks inside the disk's
    // directory.
    let whole = file_name(parent(sysfs));
    if is_numbered_name(whole, "mmcblk") && name.starts_with(whole) {
        return Ok((Layer::Other, vec![whole.to_owned()]));
    }
    let is_disk = !is_non_drive_name(name)
        && (reader.exists(&format!("{sysfs}/device"))
            || name.starts_with("nvme")
            || is_connected_nbd(reader, name, sysfs)?);
    Ok((if is_disk { Layer::Disk } else { Layer::Other }, below))
}

fn dm(reader: &SysfsReader<'_>, sysfs: &str, udev: &UdevRecord) -> Result<Layer, DeviceRemoved> {
    let name = reader.text(&format!("{sysfs}/dm/name"))?.unwrap_or_default();
    let uuid = reader.text(&format!("{sysfs}/dm/uuid"))?;
    let is_lvm = uuid.as_ref().is_some_and(|uuid| uuid.starts_with("LVM-"));
    let (volume_group, logical_volume) = match (udev.get("DM_VG_NAME"), udev.get("DM_LV_NAME")) {
        (Some(group), Some(volume)) => (Some(group.to_owned()), Some(volume.to_owned())),
        _ if is_lvm => formats::split_lvm_name(&name).unzip(),
        _ => (None, None),
    };
    Ok(Layer::Dm { name, uuid, volume_group, logical_volume })
}

/// Devices with a driver that are no drives: optical, floppy, raw flash.
fn is_non_drive_name(name: &str) -> bool {
    ["sr", "fd", "ram", "zram", "mtdblock", "ubiblock"]
        .iter()
        .any(|prefix| is_numbered_name(name, prefix))
}

fn is_connected_nbd(
    reader: &SysfsReader<'_>,
    name: &str,
    sysfs: &str,
) -> Result<bool, DeviceRemoved> {
    Ok(is_numbered_name(name, "nbd") && reader.number(&format!("{sysfs}/size"))?.unwrap_or(0) > 0)
}

pub fn parent(sysfs: &str) -> &str {
    sysfs.rsplit_once('/').map_or("", |(parent, _)| parent)
}

pub fn file_name(sysfs: &str) -> &str {
    sysfs.rsplit_once('/').map_or(sysfs, |(_, name)| name)
}
