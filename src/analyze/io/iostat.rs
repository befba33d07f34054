//! iostat's JSON (sysstat 11.7.1 or newer) with -x and -t: rates and mean times since the last reading.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use super::{IoAnalysis, IoError, Medium, Piece, Series};
use diskvitals_slow::{Counters, Traffic};

#[derive(Deserialize)]
struct File {
    sysstat: Sysstat,
}

#[derive(Deserialize)]
struct Sysstat {
    hosts: Vec<Host>,
}

#[derive(Deserialize)]
struct Host {
    statistics: Vec<Statistics>,
}

#[derive(Deserialize)]
struct Statistics {
    timestamp: Option<String>,
    #[serde(default)]
    disk: Vec<Disk>,
}

#[derive(Deserialize)]
struct Disk {
    disk_device: String,
    #[serde(rename = "r/s")]
    reads: Option<f64>,
    #[serde(rename = "w/s")]
    writes: Option<f64>,
    #[serde(rename = "rkB/s")]
    read_kib: Option<f64>,
    #[serde(rename = "wkB/s")]
    written_kib: Option<f64>,
    #[serde(rename = "r_await")]
    read_ms: Option<f64>,
    #[serde(rename = "w_await")]
    write_ms: Option<f64>,
}

pub(super) fn read(
    bytes: &[u8],
    peers: &[Vec<String>],
    file: String,
) -> Result<IoAnalysis, IoError> {
    let parsed: File = serde_json::from_slice(bytes)?;
    let groups: BTreeMap<&str, usize> = peers
        .iter()
        .enumerate()
        .flat_map(|(group, names)| names.iter().map(move |name| (name.as_str(), group)))
        .collect();
    let mut series = Series::new();
    for host in parsed.sysstat.hosts {
        // The first reading is of the time since boot, unless iostat had -y; it is left out always.
        let mut before: Option<Timestamp> = None;
        for statistics in host.statistics {
            let time = statistics.timestamp.as_deref().and_then(time).ok_or(IoError::NoTimes)?;
            let Some(then) = before.replace(time) else {
                continue;
            };
            let length = u64::try_from(time.duration_since(then).as_millis()).unwrap_or(0);
            for disk in statistics.disk.iter().filter(|disk| is_whole(&disk.disk_device)) {
                let name = &disk.disk_device;
                if !series.has(name) {
                    // Of no model that is known, a drive has no peers. sd* may be either; what is slow
                    // for a rotating drive is slow for flash.
                    let group = groups.get(name.as_str()).map_or(name.clone(), usize::to_string);
                    let is_nvme = name.starts_with("nvme");
                    let medium = if is_nvme { Medium::Flash } else { Medium::Rotating };
                    series.drive(name, "", &group, medium);
                }
                let piece =
                    disk.growth(length).map(|growth| Piece { growth, length, silence: None });
                series.observe(name, time, piece.as_ref());
            }
        }
    }
    Ok(series.finish(file))
}

/// With S_TIME_FORMAT=ISO, as 2026-11-29T13:46:44+0000.
fn time(text: &str) -> Option<Timestamp> {
    jiff::fmt::strtime::parse("%Y-%m-%dT%H:%M:%S%z", text).ok()?.to_timestamp().ok()
}

/// iostat lists devices that are no drives, and with -p partitions.
fn is_whole(name: &str) -> bool {
    let is_disk = |rest: &str| rest.chars().all(|c| c.is_ascii_lowercase());
    name.strip_prefix("sd").is_some_and(is_disk)
        || (name.starts_with("nvme") && name.contains('n') && !name.contains('p'))
}

impl Disk {
    fn growth(&self, length: u64) -> Option<Counters> {
        let seconds = length as f64 / 1_000.0;
        let traffic = |rate: f64, kib: f64, ms: f64| Traffic {
            ios: (rate * seconds).round() as u64,
            sectors: (kib * 2.0 * seconds).round() as u64,
            milliseconds: (rate * seconds * ms).round() as u64,
        };
        Some(Counters {
            read: traffic(self.reads?, self.read_kib?, self.read_ms?),
            write: traffic(self.writes?, self.written_kib?, self.write_ms?),
        })
    }
}
