//! What a schedule starts over months, and what holds a test back.

mod scrubs;

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use super::settings::{Care, CareSettings, TaskSchedule};
use super::*;
use crate::assess::tests::md_state;
use crate::block::{Layer, LayerState};
use crate::fixture::*;
use crate::ledger::Ledger;
use crate::source_update::SourceUpdate;
use crate::stack::{PoolScan, PoolStatus, ScanState, ZfsPool};
use diskvitals_smart::{SmartResponse, fixture};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const NIGHT: i64 = 22 * HOUR;

fn standard() -> Policy {
    let care = CareSettings { care: Care::Standard, schedules: Vec::new() };
    Policy { care, ..Policy::default() }
}

/// A mirror of A and B, and two drives of another controller.
fn host() -> TestHost {
    let md = device("md0", "9:0", Layer::Md { level: Some("raid1".into()) }, &["sda", "sdb"]);
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .disk("sdc", "8:32", "C")
        .disk("sdd", "8:48", "D")
        .with(md)
        .uuid("md0", "m");
    for drive in &mut host.inventory.drives {
        let pci = match drive.name.as_str() {
            "sda" => "0000:00:1f.2",
            "sdb" => "0000:02:00.0",
            _ => "0000:03:00.0",
        };
        drive.location.pci = Some(pci.to_owned());
    }
    host.read_all(0);
    host.layer("md0", md_state(0, &["sda", "sdb"]), 0);
    host
}

/// A pool of the first two drives.
fn pool() -> TestHost {
    let below = &["sda", "sdb"];
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .disk("sdc", "8:32", "C")
        .disk("sdd", "8:48", "D")
        .with(device("zfs:tank", "0:0", Layer::ZfsPool { name: "tank".into() }, below));
    host.read_all(0);
    host
}

/// What a drive does, as its log shows it.
#[derive(Clone, Debug, Default)]
struct Tested {
    /// Newest first, with the hour of operation.
    log: Vec<SelfTest>,
    running: Option<(SelfTestKind, i64)>,
}

struct Node {
    host: TestHost,
    drives: BTreeMap<DriveId, Tested>,
    /// Each start, by the second.
    starts: Vec<(i64, DriveId, SelfTestKind)>,
}

impl Node {
    fn new(host: TestHost) -> Node {
        let ids = ["A", "B", "C", "D"].map(DriveId::new);
        let drives = ids.into_iter().map(|id| (id, Tested::default())).collect();
        Node { host, drives, starts: Vec::new() }
    }

    /// All drives answer, with hours of operation that begin at 1,000.
    fn read(&mut self, second: i64) {
        for (id, tested) in &mut self.drives {
            if let Some((kind, end)) = tested.running
                && second >= end
            {
                let is_long = kind == SelfTestKind::Long;
                let passed = fixture::self_test(is_long, SelfTestOutcome::Passed);
                let hours = u64::try_from(1000 + end / HOUR).ok();
                tested.log.insert(0, SelfTest { hours, ..passed });
                tested.running = None;
            }
            let mut report = fixture::disk().tests(&tested.log);
            report.identity.serial = Some(id.to_string());
            report.power_on_hours = u64::try_from(1000 + second / HOUR).ok();
            report.self_tests.running = tested.running.map(|_| 50);
            answer(&mut self.host, id, SmartResponse::Report(Box::new(report)), second);
        }
    }

    fn step(&mut self, policy: &Policy, second: i64) {
        self.read(second);
        let planned = plan_of(&self.host, policy, second);
        for (id, kind) in planned.starts {
            self.host.facts.note_test_started(&id, kind, at(second));
            let hours = if kind == SelfTestKind::Long { 9 } else { 1 };
            let tested = self.drives.get_mut(&id).unwrap();
            assert_eq!(tested.running, None, "{id} is tested twice at {second}");
            tested.running = Some((kind, second + hours * HOUR));
            self.starts.push((second, id, kind));
        }
        for pair in [["A", "B"], ["C", "D"]] {
            let running = pair.map(|id| self.drives[&DriveId::new(id)].running.is_some());
            assert_ne!(running, [true, true], "{pair:?} at {second}");
        }
    }
}

fn answer(host: &mut TestHost, id: &DriveId, response: SmartResponse, second: i64) {
    let smart = SourceUpdate::Smart {
        drive: id.clone(),
        at: at(second),
        response: Box::new(response),
        duration: std::time::Duration::ZERO,
    };
    host.apply(smart, second);
}

fn plan_of(host: &TestHost, policy: &Policy, second: i64) -> CarePlan {
    let ledger = Ledger::default();
    let active = ledger.active().map(AsRef::as_ref);
    plan(&host.facts, policy, active, &TimeZone::UTC, at(second))
}

/// What holds back the tests of A that are due.
fn held(host: &TestHost, second: i64) -> Vec<String> {
    let planned = plan_of(host, &standard(), second);
    let tasks = planned.tasks.get(&DriveId::new("A")).cloned().unwrap_or_default();
    let why = |task: CareTask| match task.state {
        CareState::Held { why } => Some(why),
        _ => None,
    };
    tasks.into_iter().filter_map(why).collect()
}

#[test]
fn in_a_year_each_drive_is_tested_in_time_at_night_and_never_beside_its_neighbor() {
    let (mut node, policy) = (Node::new(host()), standard());
    // The node is off for twelve days, and its drives with it.
    let is_off = |day: i64| (200..212).contains(&day);
    for hour in 0..365 * 24 {
        if !is_off(hour / 24) {
            node.step(&policy, hour * HOUR);
        }
    }
    for id in node.drives.keys() {
        for (kind, longest) in [(SelfTestKind::Short, 9), (SelfTestKind::Long, 32)] {
            let counts = |it: &&(i64, DriveId, SelfTestKind)| {
                it.1 == *id && (it.2 == kind || it.2 == SelfTestKind::Long)
            };
            let begun: Vec<i64> = node.starts.iter().filter(counts).map(|it| it.0 / DAY).collect();
            assert!(begun[0] <= longest, "{id} {kind:?}: first on day {}", begun[0]);
            for pair in begun.windows(2) {
                let longest = if is_off(pair[1] - 1) || pair[1] >= 212 && pair[0] < 212 {
                    longest + 12
                } else {
                    longest
                };
                assert!(pair[1] - pair[0] <= longest, "{id} {kind:?}: {pair:?}");
            }
        }
        let shorts = node.starts.iter().filter(|it| it.1 == *id && it.2 == SelfTestKind::Short);
        assert!(shorts.count() <= 52, "{id}: no more than one a week");
    }
    let is_by_day = |second: i64| (6..22).contains(&at(second).to_zoned(TimeZone::UTC).hour());
    let after_pause = |second: i64| (212..222).contains(&(second / DAY));
    let by_day = node.starts.iter().find(|it| is_by_day(it.0) && !after_pause(it.0));
    assert_eq!(by_day, None);
}

#[test]
fn nothing_is_scheduled_unless_it_is_configured_and_the_drive_has_self_tests() {
    let mut node = Node::new(host());
    node.read(40 * DAY);
    let planned = plan_of(&node.host, &Policy::default(), 40 * DAY);
    assert_eq!((planned.tasks, planned.starts), (BTreeMap::new(), Vec::new()));
    assert_eq!((planned.scrubs.len(), planned.scrubs[0].due), (1, None), "md0 is shown");
    assert_eq!(planned.scrub_starts, []);
    let silent = fixture::disk();
    answer(&mut node.host, &DriveId::new("A"), SmartResponse::Report(Box::new(silent)), 41 * DAY);
    let planned = plan_of(&node.host, &standard(), 41 * DAY);
    assert!(planned.tasks.contains_key(&DriveId::new("B")));
    let only: TaskSchedule = serde_json::from_value(serde_json::json!({
        "tasks": ["long-self-test"], "drives": ["sdc"], "calendar": "1 02:00"
    }))
    .unwrap();
    let care = CareSettings { care: Care::Off, schedules: vec![only] };
    let policy = Policy { care, ..Policy::default() };
    let planned = plan_of(&node.host, &policy, 41 * DAY);
    let kinds = planned.tasks.iter().map(|(id, all)| (id.to_string(), all.len()));
    assert_eq!(kinds.collect::<Vec<_>>(), [("C".to_owned(), 1)]);
}

#[test]
fn what_a_person_or_smartd_has_tested_counts() {
    let mut node = Node::new(host());
    let passed = fixture::self_test(true, SelfTestOutcome::Passed);
    let recent = SelfTest { hours: Some(1000 + 39 * 24), ..passed };
    node.drives.get_mut(&DriveId::new("A")).unwrap().log = vec![recent];
    node.read(40 * DAY);
    let planned = plan_of(&node.host, &standard(), 40 * DAY + NIGHT);
    let states: Vec<_> = planned.tasks[&DriveId::new("A")].iter().map(|it| &it.state).collect();
    assert_eq!(states, [&CareState::Waits, &CareState::Waits]);
    assert!(planned.starts.iter().any(|(id, _)| *id == DriveId::new("B")));
}

#[test]
fn what_holds_a_test_back_is_said() {
    let night = 40 * DAY + NIGHT;
    let read = || {
        let mut node = Node::new(host());
        node.read(night);
        node.host
    };
    let a = DriveId::new("A");
    assert!(
        held(&read(), night)[0].ends_with("is due first"),
        "one of both kinds: {:?}",
        held(&read(), night)
    );

    let mut host = read();
    answer(&mut host, &a, SmartResponse::Standby { mode: "STANDBY".into() }, night);
    assert_eq!(held(&host, night), ["it sleeps, and is not woken"; 2]);

    let mut host = read();
    answer(&mut host, &a, SmartResponse::Failed { why: "no answer".into() }, night);
    assert_eq!(held(&host, night), ["its SMART data has not been read"; 2]);

    let mut host = read();
    let LayerState::Md(mut md) = md_state(0, &["sda", "sdb"]) else { unreachable!() };
    md.sync_action = Some("check".into());
    host.layer("md0", LayerState::Md(md), night);
    assert_eq!(held(&host, night), ["md0: check runs"; 2]);

    // A pool that is scrubbed, resilvered or not known holds its members.
    let scan =
        |is_resilver| PoolScan { is_resilver, state: ScanState::Running, errors: 0, ended: None };
    for (status, why) in [
        (None, "what `zpool status` says of it is not known"),
        (Some(scan(true)), "resilver runs"),
        (Some(scan(false)), "scrub runs"),
    ] {
        let mut host = pool();
        let mut node = Node::new(host.clone());
        node.read(night);
        host = node.host;
        let status = status.map(|scan| PoolStatus { scan: Some(scan), ..PoolStatus::default() });
        host.layer("zfs:tank", LayerState::Zfs(ZfsPool { status, ..ZfsPool::default() }), night);
        let shown = held(&host, night);
        assert!(shown.len() == 2 && shown.iter().all(|it| it.ends_with(why)), "{shown:?}");
    }

    // Due since yesterday, and it is noon.
    let passed = fixture::self_test(true, SelfTestOutcome::Passed);
    let log = vec![SelfTest { hours: Some(1000 + 32 * 24), ..passed }];
    let mut hours = (0..24).map(|hour| 40 * DAY + hour * HOUR);
    let noon = hours.find(|it| at(*it).to_zoned(TimeZone::UTC).hour() == 12).unwrap();
    let mut node = Node::new(self::host());
    node.drives.values_mut().for_each(|it| it.log.clone_from(&log));
    node.read(noon);
    assert_eq!(held(&node.host, noon), ["it starts only at 22:00-06:00"]);
}

#[test]
fn a_refused_start_is_tried_again_in_a_day_and_an_aborted_test_in_an_hour() {
    let night = 40 * DAY + NIGHT;
    let (a, kind) = (DriveId::new("A"), SelfTestKind::Long);
    let mut node = Node::new(host());
    node.read(night);
    let due_in = |host: &TestHost, second: i64| {
        let planned = plan_of(host, &standard(), second);
        let task = planned.tasks[&a].iter().find(|it| it.kind == kind).unwrap().clone();
        (task.due.duration_since(at(night)).as_hours(), task.state)
    };
    node.host.facts.note_test_started(&a, kind, at(night));
    let refused = SourceUpdate::SelfTest {
        drive: a.clone(),
        kind,
        at: at(night + 5),
        result: Err("smartctl says no".into()),
    };
    node.host.apply(refused, night + 5);
    let why = "smartctl says no".to_owned();
    assert_eq!(due_in(&node.host, night + 10), (24, CareState::Held { why }));

    // An abort: at most three attempts, then the next period.
    let mut node = Node::new(host());
    for (attempt, expected) in [(1, 1), (2, 1), (3, 30 * 24)] {
        let begun = night + (attempt - 1) * HOUR;
        node.read(begun);
        node.host.facts.note_test_started(&a, kind, at(begun));
        let aborted = fixture::self_test(true, SelfTestOutcome::Other);
        let hours = u64::try_from(1000 + begun / HOUR).ok();
        node.drives.get_mut(&a).unwrap().log = vec![SelfTest { hours, ..aborted }];
        node.read(begun + 60);
        let (hours, _) = due_in(&node.host, begun + 60);
        let after = hours - (attempt - 1);
        assert!((expected..=expected + 1).contains(&after), "attempt {attempt}: {after} h");
    }
}
