//! Measures how busy the node's drives are. Scheduled checks wait until the node is quiet.
//!
//! In: /proc/pressure/io (Documentation/accounting/psi.rst); without it, two readings of
//! /proc/diskstats (Documentation/admin-guide/iostats.rst) for the underlying drives. Out: percent.
//! The policy decides whether that is too much.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use tokio::time::Instant;

use diskvitals_finding::dev::DevNo;
use diskvitals_host::blocking::BlockingLane;
use diskvitals_host::root::HostRoot;

static LOAD_FILES: BlockingLane = BlockingLane::new();

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("reading {path}")]
    Read { path: &'static str, source: io::Error },
    #[error("{PRESSURE} makes no sense")]
    MalformedPressure,
    #[error("{DISKSTATS} does not name the underlying drives")]
    UnknownDrives,
    #[error("an internal error: the task was lost")]
    TaskLost,
}

const PRESSURE: &str = "/proc/pressure/io";
const DISKSTATS: &str = "/proc/diskstats";
/// Time between two readings of diskstats.
const SAMPLE_GAP: Duration = Duration::from_secs(3);
/// Maximum depth of stacked devices; no real stack is this deep.
const MAX_DEPTH: usize = 16;

/// A measured load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IoLoad {
    pub percent: f64,
    pub source: LoadSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSource {
    /// Share of the last minute in which some task waited for I/O.
    Pressure,
    /// Share of a few seconds in which the busiest underlying drive had I/O in flight.
    Drive,
}

impl IoLoad {
    /// Why a check waits.
    pub fn describe(&self) -> String {
        match self.source {
            LoadSource::Pressure => format!(
                "the node's I/O is busy (tasks waited for it in {:.0} % of the last minute)",
                self.percent
            ),
            LoadSource::Drive => {
                format!("a drive beneath is busy ({:.0} % of the time)", self.percent)
            }
        }
    }
}

/// `some avg10=6.85 avg60=3.18 avg300=6.27 total=274962831`: the percentage of the last minute.
pub(crate) fn parse_pressure(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let value: f64 = line
        .split_ascii_whitespace()
        .find_map(|field| field.strip_prefix("avg60="))?
        .parse()
        .ok()?;
    (0.0..=100.0).contains(&value).then_some(value)
}

/// Milliseconds for which each device had I/O in flight: field 10 of iostats.rst, counted after the
/// name.
pub(crate) fn parse_io_ticks(text: &str) -> BTreeMap<DevNo, u64> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let dev = DevNo::new(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            // The device name comes before them.
            Some((dev, fields.nth(10)?.parse().ok()?))
        })
        .collect()
}

/// Utilization of the busiest of `devices`; None where none is in both readings. The counter has 32
/// bits and wraps.
fn busiest(
    devices: &BTreeSet<DevNo>,
    before: &BTreeMap<DevNo, u64>,
    after: &BTreeMap<DevNo, u64>,
    apart: Duration,
) -> Option<f64> {
    let millis = apart.as_secs_f64() * 1000.0;
    let busy = |dev: &DevNo| {
        let worked =
            u32::try_from(after.get(dev)?.wrapping_sub(*before.get(dev)?) & u64::from(u32::MAX))
                .ok()?;
        Some((f64::from(worked) * 100.0 / millis).min(100.0))
    };
    devices.iter().filter_map(busy).reduce(f64::max)
}

pub async fn measure(root: &HostRoot, devices: Vec<DevNo>) -> Result<IoLoad, LoadError> {
    // ENOENT: not built in. EOPNOTSUPP on opening: switched off (psi=0).
    if let Ok(text) = read(root, PRESSURE).await {
        let percent = parse_pressure(&text).ok_or(LoadError::MalformedPressure)?;
        return Ok(IoLoad { percent, source: LoadSource::Pressure });
    }
    let failed = |source| LoadError::Read { path: DISKSTATS, source };
    let tree = root.clone();
    let devices = LOAD_FILES.run(move || {
        let underlying = devices.iter().flat_map(|dev| underlying_devices(&tree, *dev));
        underlying.collect::<BTreeSet<_>>()
    });
    let devices = devices.await.map_err(|_| LoadError::TaskLost)?;
    let ticks = async || {
        let text = read(root, DISKSTATS).await;
        text.map(|text| parse_io_ticks(&text)).map_err(failed)
    };
    let before = ticks().await?;
    let from = Instant::now();
    tokio::time::sleep(SAMPLE_GAP).await;
    let after = ticks().await?;
    let percent =
        busiest(&devices, &before, &after, from.elapsed()).ok_or(LoadError::UnknownDrives)?;
    Ok(IoLoad { percent, source: LoadSource::Drive })
}

/// Nothing in these files waits for a device.
async fn read(root: &HostRoot, path: &'static str) -> io::Result<String> {
    let file = root.at(path);
    LOAD_FILES.run(move || std::fs::read_to_string(file)).await.map_err(io::Error::other)?
}

/// The device itself and all devices below it: the disk of a partition, the slaves of md and dm
/// (Documentation/ABI/stable/sysfs-block).
fn underlying_devices(root: &HostRoot, dev: DevNo) -> BTreeSet<DevNo> {
    let mut found = BTreeSet::from([dev]);
    let mut layer = vec![dev];
    for _ in 0..MAX_DEPTH {
        let below: Vec<DevNo> = layer
            .iter()
            .flat_map(|dev| directly_underlying_devices(root, *dev))
            .filter(|dev| found.insert(*dev))
            .collect();
        if below.is_empty() {
            break;
        }
        layer = below;
    }
    found
}

fn directly_underlying_devices(root: &HostRoot, dev: DevNo) -> Vec<DevNo> {
    let Ok(place) = root.at(format!("/sys/dev/block/{dev}")).canonicalize() else {
        return Vec::new();
    };
    let number = |file: &std::path::Path| std::fs::read_to_string(file).ok()?.parse::<DevNo>().ok();
    let mut below = Vec::new();
    if place.join("partition").exists() {
        below.extend(place.parent().and_then(|disk| number(&disk.join("dev"))));
    }
    // Missing for most devices: they have no devices below them.
    let slaves = std::fs::read_dir(place.join("slaves")).into_iter().flatten().flatten();
    below.extend(slaves.filter_map(|slave| number(&slave.path().join("dev"))));
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pressure_of_the_last_minute_is_that_of_some_tasks() {
        let text = "some avg10=6.85 avg60=3.18 avg300=6.27 total=274962831\nfull avg10=6.64 avg60=2.98 avg300=5.58 total=118190861\n";
        assert_eq!(parse_pressure(text), Some(3.18));
    }

    #[test]
    fn an_invalid_pressure_line_is_none() {
        for text in [
            "",
            "full avg60=1.0",
            "some avg10=1.0",
            "some avg60=x",
            "some avg60=101.0",
            "some avg60=NaN",
            "some avg60=-1",
        ] {
            assert_eq!(parse_pressure(text), None, "{text}");
        }
    }

    #[test]
    fn the_time_with_io_in_flight_is_the_tenth_field_behind_the_name() {
        let ticks =
            parse_io_ticks(" 254 0 vda 1 2 3 4 5 6 7 8 9 1000 11 12 13\n 254 1 vda1 1 2 3\njunk\n");
        assert_eq!(ticks, BTreeMap::from([(DevNo::new(254, 0), 1000)]));
    }

    #[test]
    fn the_busiest_drive_counts_and_a_counter_that_wrapped_is_understood() {
        let (a, b, c) = (DevNo::new(8, 0), DevNo::new(8, 16), DevNo::new(8, 32));
        let before = BTreeMap::from([(a, 100), (b, u64::from(u32::MAX) - 499), (c, 5)]);
        let after = BTreeMap::from([(a, 200), (b, 500), (c, 2005)]);
        let of = |devices: &[DevNo]| {
            busiest(&devices.iter().copied().collect(), &before, &after, Duration::from_secs(2))
        };
        assert_eq!(of(&[a]), Some(5.0));
        assert_eq!(of(&[a, b]), Some(50.0));
        assert_eq!(of(&[a, b, c]), Some(100.0));
        assert_eq!(of(&[DevNo::new(9, 9)]), None);
    }

    fn tree() -> (tempfile::TempDir, HostRoot) {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        (dir, root)
    }

    fn write(dir: &tempfile::TempDir, path: &str, text: &str) {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn without_psi_the_underlying_disk_is_measured() {
        let (dir, root) = tree();
        write(&dir, "sys/devices/sda/dev", "8:0\n");
        write(&dir, "sys/devices/sda/sda1/dev", "8:1\n");
        write(&dir, "sys/devices/sda/sda1/partition", "1\n");
        write(&dir, "sys/devices/dm-0/dev", "253:0\n");
        write(&dir, "sys/devices/dm-0/slaves/sda1/dev", "8:1\n");
        write(&dir, "proc/diskstats", "8 0 sda 1 2 3 4 5 6 7 8 9 1000 11\n");
        std::fs::create_dir_all(dir.path().join("sys/dev/block")).unwrap();
        for (number, place) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("253:0", "dm-0")] {
            std::os::unix::fs::symlink(
                format!("../../devices/{place}"),
                dir.path().join("sys/dev/block").join(number),
            )
            .unwrap();
        }
        // Through the link below /sys/dev/block a slave is found by its own number.
        assert_eq!(
            underlying_devices(&root, DevNo::new(253, 0)),
            BTreeSet::from([DevNo::new(253, 0), DevNo::new(8, 1), DevNo::new(8, 0)])
        );
        let busy = measure(&root, vec![DevNo::new(253, 0)]).await.unwrap();
        assert_eq!(busy, IoLoad { percent: 0.0, source: LoadSource::Drive });
        assert!(
            measure(&root, vec![DevNo::new(9, 0)]).await.is_err(),
            "what is not seen is not quiet"
        );
    }

    #[tokio::test]
    async fn psi_is_preferred_where_the_kernel_has_it() {
        let (dir, root) = tree();
        write(&dir, "proc/pressure/io", "some avg10=0.00 avg60=37.20 avg300=0.00 total=0\n");
        let busy = measure(&root, Vec::new()).await.unwrap();
        assert_eq!(busy, IoLoad { percent: 37.2, source: LoadSource::Pressure });
        assert_eq!(
            busy.describe(),
            "the node's I/O is busy (tasks waited for it in 37 % of the last minute)"
        );
        write(&dir, "proc/pressure/io", "nonsense\n");
        assert!(measure(&root, Vec::new()).await.is_err());
    }
}
