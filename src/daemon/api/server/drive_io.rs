//! ListDriveIo: the kernel's I/O counters of each drive.
//!
//! In: the drives of a snapshot, a reading of the counters. Out: a sum for each drive. A drive with a
//! device that is not counted is left out: a part of its I/O is not its I/O.

use std::collections::BTreeMap;

use diskvitals_model::block::DiskStat;
use diskvitals_model::snapshot::{Drive, Presence, Snapshot};
use diskvitals_wire as wire;

/// The unit of /proc/diskstats, whatever the device's own blocks are.
const SECTOR_BYTES: u64 = 512;

pub(crate) fn list(snapshot: &Snapshot, stats: &[DiskStat]) -> wire::ListDriveIoResponse {
    let by_name: BTreeMap<&str, &DiskStat> =
        stats.iter().map(|it| (it.name.as_str(), it)).collect();
    let drives = snapshot.drives.values();
    wire::ListDriveIoResponse { drives: drives.filter_map(|it| io_of(it, &by_name)).collect() }
}

fn io_of(drive: &Drive, by_name: &BTreeMap<&str, &DiskStat>) -> Option<wire::DriveIo> {
    let devices = &drive.facts.devices;
    if devices.is_empty() || drive.presence != Presence::Present {
        return None;
    }
    let mut sum = wire::DriveIo { drive_id: drive.facts.id.to_string(), ..Default::default() };
    for device in devices {
        let stat = by_name.get(device.name.as_str())?;
        // Another device has the name by now.
        if stat.dev != device.dev {
            return None;
        }
        let of = &stat.transfers;
        sum.reads = sum.reads.saturating_add(of.reads);
        sum.writes = sum.writes.saturating_add(of.writes);
        let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
        sum.read_bytes = sum.read_bytes.saturating_add(bytes(of.sectors_read));
        sum.written_bytes = sum.written_bytes.saturating_add(bytes(stat.sectors_written));
        sum.read_milliseconds = sum.read_milliseconds.saturating_add(of.read_milliseconds);
        sum.write_milliseconds = sum.write_milliseconds.saturating_add(of.write_milliseconds);
        sum.in_flight = sum.in_flight.saturating_add(stat.in_flight);
    }
    Some(sum)
}
