//! The node as the events of a watch describe it, and the I/O of its drives between two readings.
//!
//! In: events, answers of GetNode and ListDriveIo. Out: the lists that the screen shows. Pure: it
//! only stores and subtracts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::render::causes;
use crate::render::live::IoRate;
use diskvitals_wire as wire;
use diskvitals_wire::watch_event::{Change, Item};

#[derive(Clone, Debug, Default)]
struct Objects {
    drives: BTreeMap<String, wire::Drive>,
    volumes: BTreeMap<String, wire::Volume>,
    findings: BTreeMap<String, wire::Finding>,
    causes: BTreeMap<String, wire::Cause>,
    checks: BTreeMap<String, wire::Check>,
}

/// The lists of a screen, in its order.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    pub drives: Vec<wire::Drive>,
    pub volumes: Vec<wire::Volume>,
    pub findings: Vec<wire::Finding>,
    /// Worst first.
    pub causes: Vec<wire::Cause>,
    /// Those that have not ended.
    pub checks: Vec<wire::Check>,
}

#[derive(Debug, Default)]
pub struct NodeState {
    objects: Objects,
    /// The list that is being received; it replaces the objects when it is complete.
    incoming: Option<Objects>,
    /// False until the first list is complete.
    pub is_complete: bool,
}

impl NodeState {
    /// Returns whether the screen may look different.
    pub fn apply(&mut self, event: wire::WatchEvent) -> bool {
        let removed = match event.change() {
            Change::SnapshotBegin => {
                self.incoming = Some(Objects::default());
                return false;
            }
            Change::SnapshotEnd => {
                if let Some(complete) = self.incoming.take() {
                    self.objects = complete;
                }
                self.is_complete = true;
                return true;
            }
            change => change == Change::Removed,
        };
        let objects = self.incoming.as_mut().unwrap_or(&mut self.objects);
        match event.item {
            Some(Item::Drive(it)) => put(&mut objects.drives, it.id.clone(), it, removed),
            Some(Item::Volume(it)) => put(&mut objects.volumes, it.id.clone(), it, removed),
            Some(Item::Finding(it)) => {
                let over = removed || it.cleared.is_some();
                put(&mut objects.findings, it.id.clone(), it, over);
            }
            Some(Item::Cause(it)) => put(&mut objects.causes, it.id.clone(), it, removed),
            Some(Item::Check(it)) => put(&mut objects.checks, it.id.clone(), it, removed),
            None => {}
        }
        self.incoming.is_none()
    }

    /// A newer state of a check, if it is known.
    pub fn update_check(&mut self, check: wire::Check) {
        if let Some(known) = self.objects.checks.get_mut(&check.id) {
            *known = check;
        }
    }

    pub fn lists(&self) -> Lists {
        let objects = &self.objects;
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

fn put<T>(objects: &mut BTreeMap<String, T>, id: String, object: T, removed: bool) {
    match removed {
        true => drop(objects.remove(&id)),
        false => drop(objects.insert(id, object)),
    }
}

/// The I/O of each drive between the last two readings.
#[derive(Debug, Default)]
pub struct IoRates {
    last: Option<(Duration, BTreeMap<String, wire::DriveIo>)>,
    rates: BTreeMap<String, IoRate>,
}

impl IoRates {
    /// `at`: a clock that does not step.
    pub fn apply(&mut self, answer: wire::ListDriveIoResponse, at: Duration) {
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
    pub fn clear(&mut self) {
        *self = IoRates::default();
    }

    pub fn rates(&self) -> &BTreeMap<String, IoRate> {
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

    fn event(change: Change, item: Option<Item>) -> wire::WatchEvent {
        wire::WatchEvent { change: change.into(), item, ..Default::default() }
    }

    fn drive(id: &str) -> Option<Item> {
        Some(Item::Drive(wire::Drive { id: id.into(), ..Default::default() }))
    }

    fn ids(state: &NodeState) -> Vec<String> {
        state.lists().drives.into_iter().map(|it| it.id).collect()
    }

    #[test]
    fn the_last_state_remains_until_a_new_list_is_complete() {
        let mut state = NodeState::default();
        for (change, item) in [
            (Change::SnapshotBegin, None),
            (Change::Added, drive("a")),
            (Change::Added, drive("b")),
        ] {
            assert!(!state.apply(event(change, item)));
        }
        assert!(!state.is_complete);
        assert!(state.apply(event(Change::SnapshotEnd, None)));
        assert!(state.is_complete);
        assert!(state.apply(event(Change::Removed, drive("b"))));
        state.apply(event(Change::SnapshotBegin, None));
        state.apply(event(Change::Added, drive("c")));
        assert_eq!(ids(&state), ["a"]);
        state.apply(event(Change::SnapshotEnd, None));
        assert_eq!(ids(&state), ["c"]);
    }

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
