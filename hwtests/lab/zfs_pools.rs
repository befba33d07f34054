//! ZFS in the guest, and pools on drives that are added for them. `build-zfs` makes the archive that
//! is unpacked here.

use serde_json::Value;

use crate::lab::context::Context;
use crate::lab::drives::Drive;

/// In the folder that host and guest share.
pub const ARCHIVE: &str = "zfs.tar";

/// ZFS is loaded, once a boot, and there are these drives, empty and known.
pub fn begin(context: &mut Context, drives: &[Drive]) {
    assert!(
        context.guest.share().join(ARCHIVE).exists(),
        "ZFS was not built for the guest; what build-zfs said is above the first scenario"
    );
    // The cache of ZFS would have half of the guest's memory.
    context.sh(&format!(
        "test -e /sys/module/zfs || {{ tar -C / --keep-directory-symlink -xf /lab/{ARCHIVE} && ldconfig && depmod \
         && udevadm control --reload && modprobe zfs zfs_arc_max=100000000; }}"
    ));
    context.add(drives);
}

/// A pool of this layout (`mirror A B spare C`, with drives in place of the letters).
pub fn create(context: &mut Context, pool: &str, layout: &str) {
    context.sh(&format!("zpool create -f -o ashift=12 {pool} {layout} && udevadm settle"));
}

/// Partition 1 of a whole disk has the data.
pub fn part(drive: &Drive) -> String {
    format!("{}-part1", drive.link())
}

/// Reads and writes through the pool until what is in its cache is on its members.
pub fn write(context: &mut Context, file: &str, mib: u32) {
    context
        .sh(&format!("dd if=/dev/urandom of={file} bs=1M count={mib} status=none && zpool sync"));
}

/// Reads everything that the pool has.
pub fn scrub(context: &mut Context, pool: &str) {
    context.sh(&format!("zpool scrub -w {pool}"));
}

/// The kernel's word for the pool's state.
pub fn state(context: &mut Context, pool: &str) -> String {
    context.sh(&format!("cat /proc/spl/kstat/zfs/{pool}/state"))
}

/// The drive has returned, at another address.
pub fn plug_again(context: &mut Context, drive: &Drive) {
    let target = context.guest.free_scsi_target();
    context.guest.plug(drive, target);
    let part = part(drive);
    context.until(&format!("{part} is there"), |context| {
        (context.try_sh(&format!("udevadm settle; test -e {part}")).status == 0).then_some(())
    });
}

/// The volume that is mounted there.
pub fn volume_at(context: &mut Context, at: &str) -> String {
    context.until(&format!("the volume at {at} is known"), |context| {
        let answer = context.guest.ask("volumes").ok()?;
        let shown = answer["volumes"].as_array()?.iter();
        shown.filter(|volume| mounted_at(volume, at)).find_map(|volume| {
            (volume["health"] != "HEALTH_UNKNOWN")
                .then(|| volume["id"].as_str())?
                .map(str::to_owned)
        })
    })
}

fn mounted_at(volume: &Value, at: &str) -> bool {
    let mounts = volume["mounts"].as_array();
    mounts.is_some_and(|mounts| mounts.iter().any(|mount| mount["path"] == at))
}

/// Ends the scenario: its drives are empty again.
pub fn destroy(context: &mut Context, pool: &str) {
    context.until(&format!("{pool} is destroyed"), |context| {
        (context.try_sh(&format!("zpool destroy -f {pool}")).status == 0).then_some(())
    });
}
