//! What a schedule of checks and scrubs starts, and what holds one back.

use super::*;
use crate::assess::tests::repaired::reads;
use crate::care::scrubs::{ScrubStart, ScrubTarget, ScrubTask};
use crate::care::settings::Task;
use crate::care::triggers::{ScrubTrigger, TriggerTarget};
use crate::counters::{CounterDevice, CounterReading};
use crate::stack::PoolState;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;

/// md0 on A and B, md1 on B and C, the pool `tank` on C and D, and a btrfs on D alone.
fn arrays() -> TestHost {
    let md = |name: &str, dev: &str, below: &[&str]| {
        device(name, dev, Layer::Md { level: Some("raid1".into()) }, below)
    };
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .disk("sdc", "8:32", "C")
        .disk("sdd", "8:48", "D")
        .with(md("md0", "9:0", &["sda", "sdb"]))
        .with(md("md1", "9:1", &["sdb", "sdc"]))
        .with(device("zfs:tank", "0:0", Layer::ZfsPool { name: "tank".into() }, &["sdc", "sdd"]))
        .mounted("0:40", "/", "/srv", "btrfs", "/dev/sdd");
    for (name, link) in [("md0", "md-uuid-1:2:3:4"), ("md1", "md-uuid-5:6:7:8")] {
        let device = host.inventory.devices.get_mut(name).unwrap();
        device.links = vec![format!("/dev/disk/by-id/{link}").as_str().into()];
    }
    host.inventory.btrfs.push(btrfs("b-1", &["sdd"], "single"));
    host.read_all(0);
    record(&mut host, &[], 0);
    for (name, members) in [("md0", ["sda", "sdb"]), ("md1", ["sdb", "sdc"])] {
        host.layer(name, action(&members, "idle"), 0);
    }
    pool_scan(&mut host, None, 0);
    triggers(&mut host, Vec::new());
    host
}

fn action(members: &[&str], action: &str) -> LayerState {
    let LayerState::Md(mut md) = md_state(0, members) else { unreachable!() };
    md.sync_action = Some(action.into());
    LayerState::Md(md)
}

fn pool_scan(host: &mut TestHost, scan: Option<PoolScan>, second: i64) {
    let mut pool = crate::assess::tests::pool::mirrored(
        PoolState::Online,
        crate::stack::VdevState::Online,
        None,
    );
    pool.status.as_mut().unwrap().scan = scan;
    host.layer("zfs:tank", LayerState::Zfs(pool), second);
}

fn triggers(host: &mut TestHost, triggers: Vec<ScrubTrigger>) {
    host.apply(SourceUpdate::ScrubTriggers(Observation::ok(at(0), triggers)), 0);
}

/// What btrfs-progs has recorded.
fn record(host: &mut TestHost, values: &[(&str, u64)], second: i64) {
    let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value));
    let reading = CounterReading {
        device: CounterDevice::Block("sdd".into()),
        source: "btrfs-scrub".into(),
        file: "scrub.status".into(),
        values: values.collect(),
        details: BTreeMap::from([("devid".to_owned(), "1".to_owned())]),
    };
    host.apply(SourceUpdate::Counters(Observation::ok(at(second), vec![reading])), second);
}

fn named(task: &str, arrays: &[&str]) -> Policy {
    let schedule: TaskSchedule = serde_json::from_value(serde_json::json!({
        "tasks": [task], "arrays": arrays, "every": 30 * DAY
    }))
    .unwrap();
    let care = CareSettings { care: Care::Off, schedules: vec![schedule] };
    Policy { care, ..Policy::default() }
}

fn task(host: &TestHost, policy: &Policy, name: &str, second: i64) -> ScrubTask {
    let planned = plan_of(host, policy, second);
    planned.scrubs.iter().find(|it| it.name == name).unwrap_or_else(|| panic!("no {name}")).clone()
}

fn why(host: &TestHost, policy: &Policy, name: &str, second: i64) -> String {
    match task(host, policy, name, second).state {
        CareState::Held { why } => why,
        state => format!("{state:?}"),
    }
}

fn md(name: &str) -> ScrubTarget {
    ScrubTarget::Md(name.to_owned())
}

const LATER: i64 = 70 * DAY + NIGHT;

/// The end of what runs, as the sources show it.
struct Running {
    target: ScrubTarget,
    drives: Vec<&'static str>,
    end: i64,
}

#[test]
fn in_a_year_each_array_is_scrubbed_in_time_and_none_beside_another_on_a_drive() {
    let (mut host, policy) = (arrays(), standard());
    let mut tests: BTreeMap<DriveId, Tested> =
        ["A", "B", "C", "D"].map(|id| (DriveId::new(id), Tested::default())).into();
    let mut running: Vec<Running> = Vec::new();
    let mut begun: BTreeMap<ScrubTarget, Vec<i64>> = BTreeMap::new();
    let mut seq = 1;
    for hour in 0..365 * 24 {
        let second = hour * HOUR;
        for it in running.extract_if(.., |it| it.end <= second).collect::<Vec<_>>() {
            match &it.target {
                ScrubTarget::Md(name) => {
                    let marks = [format!("+{name}"), format!("-{name}")];
                    let marks = marks.each_ref().map(String::as_str);
                    reads(&mut host, "b", seq, &marks, second);
                    seq += 100;
                    let members = if name == "md0" { ["sda", "sdb"] } else { ["sdb", "sdc"] };
                    host.layer(name, action(&members, "idle"), second + 2);
                }
                ScrubTarget::Zpool(_) => {
                    let ended = Some(at(second));
                    let state = ScanState::Finished;
                    let scan = PoolScan { is_resilver: false, state, errors: 0, ended };
                    pool_scan(&mut host, Some(scan), second);
                }
                ScrubTarget::Btrfs { .. } => {
                    let ended = at(second).as_second() as u64;
                    record(&mut host, &[("ended", ended), ("errors", 0)], second);
                }
            }
        }
        read_drives(&mut host, &mut tests, second);
        let planned = plan_of(&host, &policy, second + 3);
        for (id, kind) in planned.starts {
            host.facts.note_test_started(&id, kind, at(second + 3));
            let hours = if kind == SelfTestKind::Long { 9 } else { 1 };
            tests.get_mut(&id).unwrap().running = Some((kind, second + hours * HOUR));
        }
        for ScrubStart { target, .. } in planned.scrub_starts {
            host.facts.note_scrub_started(&target, at(second + 3));
            let drives = match &target {
                ScrubTarget::Md(name) if name == "md0" => vec!["A", "B"],
                ScrubTarget::Md(name) => {
                    host.layer(name, action(&["sdb", "sdc"], "check"), second + 3);
                    vec!["B", "C"]
                }
                ScrubTarget::Zpool(_) => {
                    let state = ScanState::Running;
                    let scan = PoolScan { is_resilver: false, state, errors: 0, ended: None };
                    pool_scan(&mut host, Some(scan), second + 3);
                    vec!["C", "D"]
                }
                ScrubTarget::Btrfs { .. } => {
                    record(&mut host, &[("running", 1)], second + 3);
                    vec!["D"]
                }
            };
            // md0 is done within the hour: nobody sees that it runs.
            let hours = if target == md("md0") { 1 } else { 7 };
            begun.entry(target.clone()).or_default().push(second / DAY);
            running.push(Running { target, drives, end: second + hours * HOUR });
        }
        let of_tests = tests.iter().filter(|(_, it)| it.running.is_some());
        let mut busy: Vec<&str> = of_tests.map(|(id, _)| id.as_str()).collect();
        busy.extend(running.iter().flat_map(|it| it.drives.iter().copied()));
        let all = busy.len();
        busy.sort_unstable();
        busy.dedup();
        assert_eq!(busy.len(), all, "a drive has two things at once in hour {hour}");
        for pair in [["A", "B"], ["B", "C"], ["C", "D"]] {
            let tested = pair.map(|id| tests[&DriveId::new(id)].running.is_some());
            assert_ne!(tested, [true, true], "{pair:?} in hour {hour}");
        }
    }
    assert_eq!(begun.len(), 4, "nothing is starved: {begun:?}");
    for (target, days) in begun {
        assert!(days[0] <= 38, "{target:?}: {days:?}");
        for pair in days.windows(2) {
            assert!((29..=38).contains(&(pair[1] - pair[0])), "{target:?}: {days:?}");
        }
    }
}

fn read_drives(host: &mut TestHost, tests: &mut BTreeMap<DriveId, Tested>, second: i64) {
    let mut node =
        Node { host: std::mem::take(host), drives: std::mem::take(tests), starts: Vec::new() };
    node.read(second);
    (*host, *tests) = (node.host, node.drives);
}

#[test]
fn what_the_system_scrubs_is_left_to_it_unless_a_schedule_names_it() {
    let mut host = arrays();
    let cron = |of, only: &str| ScrubTrigger {
        file: "/etc/cron.d/x".into(),
        only: Vec::from_iter((!only.is_empty()).then(|| only.to_owned())),
        ..ScrubTrigger::of(of)
    };
    triggers(&mut host, vec![cron(TriggerTarget::Md, "md0"), cron(TriggerTarget::Btrfs, "/srv")]);
    for name in ["md0", "/srv"] {
        assert_eq!(why(&host, &standard(), name, LATER), "/etc/cron.d/x starts it");
        assert_eq!(task(&host, &standard(), name, LATER).due, None);
    }
    assert_ne!(why(&host, &standard(), "md1", LATER), "/etc/cron.d/x starts it");
    let planned = plan_of(&host, &named("md-check", &["md0"]), LATER);
    assert_eq!(planned.scrub_starts, [ScrubStart { target: md("md0"), is_resumed: false }]);
    let off = ScrubTrigger { off: Some("it is masked".into()), ..cron(TriggerTarget::Md, "") };
    triggers(&mut host, vec![off]);
    let shown = task(&host, &standard(), "md0", LATER);
    assert_eq!(shown.others, "/etc/cron.d/x starts none: it is masked");
    assert!(shown.due.is_some());
    host.facts.scrub_triggers = Default::default();
    let expected = "what else starts it on this node has not been read";
    assert_eq!(why(&host, &standard(), "md0", LATER), expected);
}

#[test]
fn what_holds_a_scrub_back_is_said() {
    let policy = named("md-check", &["md0"]);
    let held = |change: &dyn Fn(&mut TestHost)| {
        let mut host = arrays();
        change(&mut host);
        why(&host, &policy, "md0", LATER)
    };
    assert_eq!(held(&|_| {}), "Starts");
    let state = |degraded, action: &str, array_state: &str| {
        let LayerState::Md(mut md) = md_state(degraded, &["sda", "sdb"]) else { unreachable!() };
        (md.sync_action, md.array_state) = (Some(action.into()), array_state.into());
        LayerState::Md(md)
    };
    let with = |layer: LayerState| {
        held(&|host| {
            host.layer("md0", layer.clone(), LATER);
        })
    };
    assert_eq!(with(state(0, "frozen", "clean")), "its sync_action is frozen");
    assert_eq!(with(state(0, "resync", "clean")), "its sync_action is resync");
    assert_eq!(with(state(0, "idle", "read-auto")), "its array_state is read-auto");
    assert_eq!(with(state(0, "check", "clean")), "Runs");
    let beside = held(&|host| {
        host.layer("md1", action(&["sdb", "sdc"], "recover"), LATER);
    });
    assert_eq!(beside, "md1: rebuild runs");
    let asleep = held(&|host| {
        let standby = SmartResponse::Standby { mode: "STANDBY".into() };
        answer(host, &DriveId::new("B"), standby, LATER);
    });
    assert_eq!(asleep, "sdb sleeps, and is not woken");
    // A replacement of btrfs, of which only the file in sysfs is read.
    let mut host = arrays();
    host.inventory.btrfs[0].operation = Some("device replace".into());
    host.scan(1);
    let srv = named("btrfs-scrub", &["/srv"]);
    assert_eq!(why(&host, &srv, "/srv", LATER), "device replace runs");
    host.inventory.btrfs[0].operation = None;
    host.scan(2);
    let start = plan_of(&host, &srv, LATER).scrub_starts;
    let target = ScrubTarget::Btrfs { uuid: "b-1".into(), mount: HostPath::from("/srv") };
    assert_eq!(start, [ScrubStart { target, is_resumed: false }]);
}

#[test]
fn one_that_was_cut_off_goes_on_in_an_hour_and_a_refused_one_is_tried_in_a_day() {
    let policy = named("btrfs-scrub", &["/srv"]);
    let target = ScrubTarget::Btrfs { uuid: "b-1".into(), mount: HostPath::from("/srv") };
    let mut host = arrays();
    host.facts.note_scrub_started(&target, at(LATER));
    assert_eq!(why(&host, &policy, "/srv", LATER + 60), "Runs", "it begins");
    record(&mut host, &[("running", 1)], LATER + 1200);
    assert_eq!(why(&host, &policy, "/srv", LATER + 1200), "Runs");
    // The node was suspended.
    record(&mut host, &[("running", 0)], LATER + HOUR);
    let start = plan_of(&host, &policy, LATER + HOUR).scrub_starts;
    assert_eq!(start, [ScrubStart { target: target.clone(), is_resumed: true }]);
    host.facts.note_scrub_started(&target, at(LATER + HOUR));
    let ended = at(LATER + 2 * HOUR).as_second() as u64;
    record(&mut host, &[("ended", ended), ("errors", 0)], LATER + 3 * HOUR);
    assert_eq!(why(&host, &policy, "/srv", LATER + 3 * HOUR), "Waits");
    let due = task(&host, &policy, "/srv", LATER + 3 * HOUR).due.unwrap();
    assert!(due.duration_since(at(LATER)).as_hours() > 29 * 24);

    let mut host = arrays();
    host.facts.note_scrub_started(&target, at(LATER));
    let result = Err("a scrub runs on /srv already".to_owned());
    host.apply(SourceUpdate::ScrubStarted { target, result }, LATER + 1);
    assert_eq!(why(&host, &policy, "/srv", LATER + 60), "a scrub runs on /srv already");
    assert_eq!(task(&host, &policy, "/srv", LATER).due, Some(at(LATER + DAY)));

    // md: no end in the log of this boot, and it is idle.
    let policy = named("md-check", &["md0"]);
    let mut host = arrays();
    host.facts.note_scrub_started(&md("md0"), at(LATER));
    assert_eq!(task(&host, &policy, "md0", LATER + HOUR).state, CareState::Starts);
    reads(&mut host, "b", 1, &["+md0", "-md0"], LATER + 600);
    assert_eq!(task(&host, &policy, "md0", LATER + HOUR).state, CareState::Waits);
    assert_eq!(task(&host, &policy, "md0", LATER).task, Some(Task::MdCheck));
}
