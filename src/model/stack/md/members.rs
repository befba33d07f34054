//! Devices with the superblock of an md array.

use crate::block::{BlockDevice, Inventory};
use crate::stack::MdState;

/// Devices with the array's superblock that a degraded array does not list, but for copies of members
/// that it lists. All members have the array's UUID as ID_FS_UUID.
pub(crate) fn absent_members<'a>(
    inventory: &'a Inventory,
    array: &BlockDevice,
    md: &MdState,
) -> Vec<&'a BlockDevice> {
    if md.degraded == 0 {
        return Vec::new();
    }
    let uuid = array_uuid(inventory, array, md);
    let (listed, others): (Vec<&BlockDevice>, Vec<&BlockDevice>) = members(inventory)
        .filter(|device| uuid.is_some() && device.fs_uuid.as_ref() == uuid)
        .partition(|device| is_listed(array, md, &device.name));
    let is_copy = |device: &BlockDevice| {
        let own = device.fs_uuid_sub.as_ref();
        own.is_some() && listed.iter().any(|it| it.fs_uuid_sub.as_ref() == own)
    };
    others.into_iter().filter(|device| !is_copy(device)).collect()
}

fn is_listed(array: &BlockDevice, md: &MdState, name: &String) -> bool {
    array.underlying.contains(name) || md.members.iter().any(|member| member.device == *name)
}

fn members(inventory: &Inventory) -> impl Iterator<Item = &BlockDevice> {
    let devices = inventory.devices.values();
    devices
        .filter(|device| device.fs_type.as_deref() == Some(MEMBER_TYPE) && device.fs_uuid.is_some())
}

/// udev's name for a member of an md array.
pub(crate) const MEMBER_TYPE: &str = "linux_raid_member";

/// The UUID in the superblocks of the array's members.
pub(crate) fn array_uuid<'a>(
    inventory: &'a Inventory,
    array: &BlockDevice,
    md: &MdState,
) -> Option<&'a String> {
    members(inventory)
        .find(|device| is_listed(array, md, &device.name))
        .and_then(|device| device.fs_uuid.as_ref())
}
