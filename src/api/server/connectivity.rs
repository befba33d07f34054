//! CheckConnectivity: whether the drives below volumes respond, and whether they had I/O during a
//! sample of the kernel's counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use crate::api::server::csi_volume;
use crate::api::status::unavailable;
use crate::api::wire;
use crate::model::block::DiskStat;
use crate::model::snapshot::{Snapshot, Volume};
use crate::model::storage::{VolumeConnectivity, connectivity, pool_connectivity, volumes_of};
use crate::state::handle::Handle;

/// The counters are in the kernel's memory: their reader answers at once or not at all.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// No handles: all volumes of the driver. `connected` comes from the snapshot after the sample.
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
    let mut in_progress = false;
    let mut uncounted = Vec::new();
    if !sample.is_zero() {
        let before = read_counters(handle).await?;
        tokio::time::sleep(sample).await;
        let after = read_counters(handle).await?;
        (in_progress, uncounted) = io_between(&devices, &before, &after);
    }
    let snapshot = handle.snapshot();
    let VolumeConnectivity {
        connected,
        mut messages,
    } = evaluate(&snapshot, driver, &volumes(&snapshot, driver, handles)?)?;
    messages.extend(
        uncounted
            .iter()
            .map(|device| format!("I/O to {device} is not counted")),
    );
    Ok(wire::Connectivity {
        connected,
        io_in_progress: in_progress,
        messages,
    })
}

fn volumes<'a>(
    snapshot: &'a Snapshot,
    driver: &'a str,
    handles: &[String],
) -> Result<Vec<&'a Volume>, Status> {
    match handles {
        [] => Ok(volumes_of(snapshot, driver).map(AsRef::as_ref).collect()),
        handles => handles
            .iter()
            .map(|handle| csi_volume::find(snapshot, driver, handle))
            .collect(),
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
    judged.map_err(|why| {
        unavailable(format!(
            "whether the volumes are connected is unknown: {why}"
        ))
    })
}

async fn read_counters(handle: &Handle) -> Result<Arc<Vec<DiskStat>>, Status> {
    match tokio::time::timeout(READ_TIMEOUT, handle.read_io()).await {
        Ok(read) => Ok(read?),
        Err(_) => Err(unavailable(format!(
            "the I/O counters were not read within {} s",
            READ_TIMEOUT.as_secs()
        ))),
    }
}

fn devices(volumes: &[&Volume]) -> BTreeSet<String> {
    volumes
        .iter()
        .filter_map(|volume| volume.facts.device.clone())
        .collect()
}

/// Whether any of the devices has completed I/O between the readings, or has I/O in flight in the
/// second one. Also returns the devices that the kernel does not count (`queue/iostats` is 0, or
/// the device has disappeared).
fn io_between(
    devices: &BTreeSet<String>,
    before: &[DiskStat],
    after: &[DiskStat],
) -> (bool, Vec<String>) {
    let by_name = |stats: &[DiskStat]| -> BTreeMap<String, (u64, u64)> {
        let of_ours = stats.iter().filter(|stat| devices.contains(&stat.name));
        of_ours
            .map(|stat| (stat.name.clone(), (stat.completed, stat.in_flight)))
            .collect()
    };
    let (before, after) = (by_name(before), by_name(after));
    let mut any = false;
    let mut uncounted = Vec::new();
    for device in devices {
        match (before.get(device), after.get(device)) {
            (Some((was, _)), Some((is, in_flight))) => any |= was != is || *in_flight > 0,
            _ => uncounted.push(device.clone()),
        }
    }
    (any, uncounted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::dev::DevNo;

    fn stat(name: &str, completed: u64, in_flight: u64) -> DiskStat {
        DiskStat {
            dev: DevNo::new(8, 0),
            name: name.into(),
            completed,
            sectors_written: 0,
            in_flight,
            line: String::new(),
        }
    }

    #[test]
    fn only_the_volumes_own_devices_count() {
        let devices = BTreeSet::from(["sda1".to_owned()]);
        let of = |before: DiskStat, after: DiskStat| {
            io_between(
                &devices,
                &[before, stat("sdb", 1, 0)],
                &[after, stat("sdb", 2, 5)],
            )
        };
        assert_eq!(
            of(stat("sda1", 7, 0), stat("sda1", 7, 0)),
            (false, Vec::new())
        );
        assert_eq!(
            of(stat("sda1", 7, 0), stat("sda1", 8, 0)),
            (true, Vec::new())
        );
        assert_eq!(
            of(stat("sda1", 7, 0), stat("sda1", 7, 1)),
            (true, Vec::new()),
            "in flight and not completed"
        );
        assert_eq!(
            of(stat("sdc", 7, 0), stat("sda1", 7, 1)),
            (false, vec!["sda1".to_owned()])
        );
    }
}
