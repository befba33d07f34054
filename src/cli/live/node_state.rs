//! The lists of the screen, and the I/O of its drives between two readings.
//!
//! In: the view of a node, answers of ListDriveIo. Out: the lists that the screen shows. Pure: it
//! only sorts and subtracts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::render::causes;
use crate::render::live::IoRate;
use diskvitals_wire as wire;
use diskvitals_wire::node_watch::view::Objects;

/// The lists of a screen, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    pub drives: Vec<wire::Drive>,
    pub volumes: Vec<wire::Volume>,
    pub findings: Vec<wire::Finding>,
    /// Worst first.
    pub causes: Vec<wire::Cause>,
    /// Those that have not ended.
    pub checks: Vec<wire::Check>,
}

impl Lists {
    pub(crate) fn new(objects: &Objects) -> Lists {
        let mut causes: Vec<wire::Cause> = objects.causes.values().cloned().collect();
        causes.sort_by_cached_key(causes::rank);
        let runs = |check: &&wire::Check| check.state() != wire::check::State::Ended;
        Lists {
            drives: objects.drives.values().cloned().collect(),
            volumes: objects.volumes.values().cloned().collect(),
            findings: objects.findings.values().cloned().collect(),
            causes,
            checks: objects.checks.values().filter(runs).cloned().collect(),
        }
    }
}

/// The I/O of each drive between the last two readings.
#[derive(Debug, Default)]
pub(crate) struct IoRates {
    last: Option<(Duration, BTreeMap<String, wire::DriveIo>)>,
    rates: BTreeMap<String, IoRate>,
}

impl IoRates {
    /// `at`: a clock that does not step.
    pub(crate) fn apply(&mut self, answer: wire::ListDriveIoResponse, at: Duration) {
        let drives = answer.drives.into_iter();
        let now: BTreeMap<String, wire::DriveIo> =
            drives.map(|it| (it.drive_id.clone(), it)).collect();
        self.rates = match &self.last {
            Some((then, before)) => now
                .iter()
                .filter_map(|(id, now)| {
                    let rate = rate(before.get(id)?, now, at.checked_sub(*then)?)?;
                    Some((id.clone(), rate))
                })
                .collect(),
            None => BTreeMap::new(),
        };
        self.last = Some((at, now));
    }

    /// There are no readings left: the next one is a first one.
    pub(crate) fn clear(&mut self) {
        *self = IoRates::default();
    }

    pub(crate) fn rates(&self) -> &BTreeMap<String, IoRate> {
        &self.rates
    }
}

/// None if a counter went back (another device) or no time has passed.
fn rate(before: &wire::DriveIo, now: &wire::DriveIo, elapsed: Duration) -> Option<IoRate> {
    let seconds = elapsed.as_secs_f64();
    if seconds <= 0.0 {
        return None;
    }
    let per_second = |count: u64| (count as f64 / seconds).round() as u64;
    let reads = now.reads.checked_sub(before.reads)?;
    let writes = now.writes.checked_sub(before.writes)?;
    let completed = reads.checked_add(writes)?;
    let took = now
        .read_milliseconds
        .checked_sub(before.read_milliseconds)?
        .checked_add(now.write_milliseconds.checked_sub(before.write_milliseconds)?)?;
    Some(IoRate {
        read: per_second(now.read_bytes.checked_sub(before.read_bytes)?),
        written: per_second(now.written_bytes.checked_sub(before.written_bytes)?),
        requests: per_second(completed),
        latency_ms: (completed > 0).then(|| took as f64 / completed as f64),
        waits: completed == 0 && before.in_flight > 0 && now.in_flight > 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(reads: u64, in_flight: u64) -> wire::ListDriveIoResponse {
        wire::ListDriveIoResponse {
            drives: vec![wire::DriveIo {
                drive_id: "a".into(),
                reads,
                read_bytes: reads * 4096,
                read_milliseconds: reads * 3,
                in_flight,
                ..Default::default()
            }],
        }
    }

    #[test]
    fn a_rate_needs_two_readings_of_one_device() {
        let mut rates = IoRates::default();
        let second = Duration::from_secs;
        rates.apply(io(100, 0), second(1));
        assert!(rates.rates().is_empty(), "the first reading");
        rates.apply(io(200, 0), second(3));
        let expected =
            IoRate { read: 204_800, written: 0, requests: 50, latency_ms: Some(3.0), waits: false };
        assert_eq!(rates.rates()["a"], expected);
        rates.apply(io(50, 0), second(5));
        assert!(rates.rates().is_empty(), "the counters of another device");
        rates.apply(io(60, 0), second(7));
        rates.clear();
        rates.apply(io(70, 0), second(9));
        assert!(rates.rates().is_empty(), "the first reading again");
    }

    #[test]
    fn a_drive_without_requests_has_no_latency_and_one_that_answers_none_waits() {
        let mut rates = IoRates::default();
        let second = Duration::from_secs;
        rates.apply(io(100, 0), second(1));
        rates.apply(io(100, 1), second(3));
        let idle = &rates.rates()["a"];
        assert_eq!((idle.latency_ms, idle.waits, idle.requests), (None, false, 0));
        rates.apply(io(100, 1), second(5));
        assert!(rates.rates()["a"].waits);
    }
}
