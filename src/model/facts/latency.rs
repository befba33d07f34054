//! The latency of each drive over time: how long a read or write took on average, once an hour.
//!
//! In: the kernel's I/O counters. Out: a reading in the drive's history. A drive without I/O, or
//! whose I/O the kernel does not count, has none.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::block::DiskStat;
use crate::drive::DriveFacts;
use crate::facts::Facts;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::DriveId;
use diskvitals_smart::history::TrendKind;
use diskvitals_text::duration::elapsed;

const WINDOW: Duration = Duration::from_secs(3600);

/// Requests, and the milliseconds that they took, since boot.
type Sums = (u64, u64);

#[derive(Clone, Debug, Default)]
pub struct LatencyWindow {
    /// When it began; None before the first reading.
    begin: Option<Timestamp>,
    sums: BTreeMap<DriveId, Sums>,
}

impl Facts {
    pub(super) fn record_latencies(&mut self) {
        let (Some(at), Some(stats)) = (self.disk_io.stats().at(), self.disk_io.stats().value())
        else {
            return;
        };
        let begin = self.latencies.begin;
        if begin.is_some_and(|begin| elapsed(begin, at) < WINDOW) {
            return;
        }
        let by_dev: BTreeMap<DevNo, &DiskStat> = stats.iter().map(|it| (it.dev, it)).collect();
        let sum = |drive: &DriveFacts| {
            let stats = drive.devices.iter().map(|device| by_dev.get(&device.dev));
            stats.map(|stat| stat.map(|stat| &stat.transfers)).try_fold((0, 0), |sum: Sums, of| {
                let of = of?;
                let requests = of.reads.saturating_add(of.writes);
                let time = of.read_milliseconds.saturating_add(of.write_milliseconds);
                Some((sum.0.saturating_add(requests), sum.1.saturating_add(time)))
            })
        };
        let drives = self.drives.iter();
        let now: BTreeMap<DriveId, Sums> =
            drives.filter_map(|(id, known)| Some((id.clone(), sum(&known.facts)?))).collect();
        for (id, (requests, time)) in &now {
            // Counters that fell are another device's.
            let before = self.latencies.sums.get(id);
            let grown = before.and_then(|before| {
                Some((requests.checked_sub(before.0)?, time.checked_sub(before.1)?))
            });
            if let Some((requests @ 1.., time)) = grown {
                let micros = time.saturating_mul(1000) / requests;
                self.smart.record_trend(id, TrendKind::Latency, micros, at);
            }
        }
        self.latencies = LatencyWindow { begin: Some(at), sums: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Transfers;
    use crate::fixture::{TestHost, at};
    use crate::source_update::SourceUpdate;
    use diskvitals_finding::observation::Observation;
    use diskvitals_smart::SmartResponse;

    #[test]
    fn each_hour_with_io_has_a_mean_and_what_is_not_known_has_none() {
        let mut host = TestHost::default().disk("sda", "8:0", "A");
        host.read_all(0);
        let response = Box::new(SmartResponse::Report(Box::default()));
        let duration = Duration::ZERO;
        let drive = DriveId::new("A");
        host.apply(SourceUpdate::Smart { drive, at: at(1), response, duration }, 1);
        let mut io = |hours: i64, reads, writes, milliseconds| {
            let transfers = Transfers {
                reads,
                writes,
                read_milliseconds: milliseconds,
                ..Transfers::default()
            };
            let stat = DiskStat {
                dev: "8:0".parse().unwrap(),
                name: "sda".into(),
                completed: reads + writes,
                sectors_written: 0,
                in_flight: 0,
                transfers,
                line: "".into(),
            };
            let second = hours * 3600;
            let stats = Observation::ok(at(second), vec![stat]);
            host.apply(SourceUpdate::DiskStats(stats), second);
        };
        io(0, 100, 100, 5000);
        io(1, 150, 150, 5800);
        io(2, 150, 150, 5800);
        io(3, 10, 10, 100);
        io(4, 20, 10, 103);
        let smart = host.facts.smart.get(&DriveId::new("A")).expect("asked");
        let points = smart.history.trends[&TrendKind::Latency].points();
        let points: Vec<u32> = points.map(|point| point.mean).collect();
        assert_eq!(points, [8000, 300], "no I/O in the second hour, another device in the third");
    }
}
