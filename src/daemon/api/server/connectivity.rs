//! CheckConnectivity: whether the drives below volumes respond, and whether they had I/O during a
//! sample of the kernel's counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use crate::api::server::csi_volume;
use crate::api::status::unavailable;
use crate::state::handle::Handle;
use diskvitals_model::block::DiskStat;
use diskvitals_model::snapshot::{Snapshot, Volume};
use diskvitals_model::storage::{VolumeConnectivity, connectivity, pool_connectivity, volumes_of};
use diskvitals_wire as wire;

/// The counters are in the kernel's memory: their reader answers at once or not at all.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// No handles: all volumes of the driver. `connected` comes from the snapshot after the sample.
/// I/O that the kernel does not count is an error, not an absence of I/O, unless the volume is not
/// connected: then its device, and with it the counters, may have disappeared.
pub(crate) async fn check(
    handle: &Handle,
    driver: &str,
    handles: &[String],
    sample: Duration,
) -> Result<wire::Connectivity, Status> {
    let devices = {
        let snapshot = handle.snapshot();
        let volumes = volumes(&snapshot, driver, handles)?;
        evaluate(&snapshot, driver, &volumes)?;
        devices(&volumes)
    };
    let mut io_in_progress = false;
    let mut uncounted = BTreeSet::new();
    if !sample.is_zero() {
        let before = read_counters(handle).await?;
        tokio::time::sleep(sample).await;
        let after = read_counters(handle).await?;
        (io_in_progress, uncounted) = io_between(&devices, &before, &after);
    }
    let snapshot = handle.snapshot();
    let volumes = volumes(&snapshot, driver, handles)?;
    let VolumeConnectivity { connected, messages } = evaluate(&snapshot, driver, &volumes)?;
    if !io_in_progress && !sample.is_zero() {
        for volume in &volumes {
            require_counters(&snapshot, volume, &uncounted)?;
        }
    }
    Ok(wire::Connectivity { connected, io_in_progress, messages })
}

fn require_counters(
    snapshot: &Snapshot,
    volume: &Volume,
    uncounted: &BTreeSet<String>,
) -> Result<(), Status> {
    let why = match &volume.facts.device {
        Some(device) if uncounted.contains(device) => {
            format!("the kernel does not count the I/O of {device} (queue/iostats)")
        }
        Some(_) => return Ok(()),
        None => "it has no block device whose I/O the kernel counts".to_owned(),
    };
    match connectivity(snapshot, &[volume]) {
        Ok(found) if !found.connected => Ok(()),
        _ => Err(unavailable(format!(
            "whether there is I/O on volume {} is unknown: {why}",
            volume.facts.id
        ))),
    }
}

fn volumes<'a>(
    snapshot: &'a Snapshot,
    driver: &'a str,
    handles: &[String],
) -> Result<Vec<&'a Volume>, Status> {
    match handles {
        [] => Ok(volumes_of(snapshot, driver).map(AsRef::as_ref).collect()),
        handles => {
            handles.iter().map(|handle| csi_volume::find(snapshot, driver, handle)).collect()
        }
    }
}

fn evaluate(
    snapshot: &Snapshot,
    driver: &str,
    volumes: &[&Volume],
) -> Result<VolumeConnectivity, Status> {
    let judged = if volumes.is_empty() {
        pool_connectivity(snapshot, driver)
    } else {
        connectivity(snapshot, volumes)
    };
    judged
        .map_err(|why| unavailable(format!("whether the volumes are connected is unknown: {why}")))
}

/// The counters of all devices whose I/O the kernel counts.
pub(crate) async fn read_counters(handle: &Handle) -> Result<Arc<Vec<DiskStat>>, Status> {
    match tokio::time::timeout(READ_TIMEOUT, handle.read_io()).await {
        Ok(read) => Ok(read?),
        Err(_) => Err(unavailable(format!(
            "the I/O counters were not read within {} s",
            READ_TIMEOUT.as_secs()
        ))),
    }
}

fn devices(volumes: &[&Volume]) -> BTreeSet<String> {
    volumes.iter().filter_map(|volume| volume.facts.device.clone()).collect()
}

/// Whether any of the devices has completed I/O between the readings, or has I/O in flight in the
/// second one. Also returns the devices without counters (`queue/iostats` is 0, or the device has
/// disappeared).
fn io_between(
    devices: &BTreeSet<String>,
    before: &[DiskStat],
    after: &[DiskStat],
) -> (bool, BTreeSet<String>) {
    let by_name = |stats: &[DiskStat]| -> BTreeMap<String, (u64, u64)> {
        let of_ours = stats.iter().filter(|stat| devices.contains(&stat.name));
        of_ours.map(|stat| (stat.name.clone(), (stat.completed, stat.in_flight))).collect()
    };
    let (before, after) = (by_name(before), by_name(after));
    let mut any = false;
    let mut uncounted = BTreeSet::new();
    for device in devices {
        match (before.get(device), after.get(device)) {
            (Some((was, _)), Some((is, in_flight))) => any |= was != is || *in_flight > 0,
            _ => {
                uncounted.insert(device.clone());
            }
        }
    }
    (any, uncounted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_finding::dev::DevNo;

    fn stat(name: &str, completed: u64, in_flight: u64) -> DiskStat {
        DiskStat {
            dev: DevNo::new(8, 0),
            name: name.into(),
            completed,
            sectors_written: 0,
            in_flight,
            transfers: Default::default(),
            line: "".into(),
        }
    }

    #[test]
    fn only_the_volumes_own_devices_count() {
        let devices = BTreeSet::from(["sda1".to_owned()]);
        let of = |before: DiskStat, after: DiskStat| {
            io_between(&devices, &[before, stat("sdb", 1, 0)], &[after, stat("sdb", 2, 5)])
        };
        assert_eq!(of(stat("sda1", 7, 0), stat("sda1", 7, 0)), (false, BTreeSet::new()));
        assert_eq!(of(stat("sda1", 7, 0), stat("sda1", 8, 0)), (true, BTreeSet::new()));
        assert_eq!(
            of(stat("sda1", 7, 0), stat("sda1", 7, 1)),
            (true, BTreeSet::new()),
            "in flight and not completed"
        );
        assert_eq!(of(stat("sdc", 7, 0), stat("sda1", 7, 1)), (false, devices.clone()));
    }
}
