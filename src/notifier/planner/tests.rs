use super::*;
use crate::message::tests_support::sample;
use crate::message::{Acknowledged, Cleared};
use crate::node_state::{ClearedFinding, Counts, ObservedCause, ObservedFinding};
use diskvitals_wire as wire;

/// Seconds after the start of a quiet night.
fn at(seconds: i64) -> Timestamp {
    "2026-11-24T12:00:00Z".parse::<Timestamp>().expect("a time")
        + SignedDuration::from_secs(seconds)
}

fn settings() -> Settings {
    Settings {
        group_wait: SignedDuration::from_secs(3),
        repeat: None,
        repeat_max: SignedDuration::from_hours(24 * 7),
        quiet_hours: None,
        quiet_hours_bad_only: false,
        daily_limit: None,
        digest: Digest::Off,
        daemon_silent: Some(SignedDuration::from_mins(15)),
        min_severity: Level::Suspect,
        zone: TimeZone::UTC,
    }
}

fn cause(name: &str, severity: Level, findings: &[&str]) -> ObservedCause {
    let item = Item {
        cause: format!("drive:{name}"),
        name: name.to_owned(),
        severity,
        transition: Transition::Present,
        reasons: findings.iter().map(|id| (*id).to_owned()).collect(),
        ..sample().items[0].clone()
    };
    ObservedCause {
        item,
        subject: name.to_owned(),
        counted: true,
        acknowledged: false,
        maintained: false,
        status: 0,
        findings: findings
            .iter()
            .map(|id| ObservedFinding {
                id: format!("{name}-{id}"),
                key: format!("{id} {name}"),
                severity,
                acknowledged: false,
            })
            .collect(),
    }
}

fn acknowledged(mut cause: ObservedCause) -> ObservedCause {
    cause.counted = false;
    cause.acknowledged = true;
    cause.item.acknowledged =
        Some(Acknowledged { by: "ops".to_owned(), note: "ordered".to_owned() });
    cause
}

fn state(causes: Vec<ObservedCause>) -> NodeState {
    let subjects = ["sda", "sdb", "sdc"].map(str::to_owned);
    NodeState {
        host: "node7".to_owned(),
        causes,
        cleared: BTreeMap::new(),
        good: subjects.clone().into(),
        subjects: subjects.into(),
        counts: NodeCounts {
            drives: Counts { good: 24, ..Counts::default() },
            ..NodeCounts::default()
        },
    }
}

/// The daemon's record that a finding has cleared.
fn with_cleared(mut state: NodeState, cause: &ObservedCause) -> NodeState {
    for finding in &cause.findings {
        let cleared = Cleared { time: at(50), why: "the drive reports none".to_owned() };
        let item = Item {
            transition: Transition::Cleared,
            cleared: Some(cleared.clone()),
            cause: format!("finding:{}", finding.id),
            ..cause.item.clone()
        };
        let finding_record = ClearedFinding { item, cleared, follows: false };
        state.cleared.insert(finding.id.clone(), finding_record);
    }
    state
}

/// Observes, waits for the end of the window, and returns what was announced.
struct Run {
    state: PlannerState,
    settings: Settings,
}

impl Run {
    fn new(settings: Settings) -> Run {
        Run { state: PlannerState::default(), settings }
    }

    /// A daemon without a problem has been observed before.
    fn calm(settings: Settings) -> Run {
        let mut run = Run::new(settings);
        assert_eq!(run.observe(&state(Vec::new()), 0), Vec::<Notification>::new());
        run
    }

    fn observe(&mut self, state: &NodeState, seconds: i64) -> Vec<Notification> {
        let mut made = self.state.observe(state, &self.settings, at(seconds));
        made.extend(self.tick(seconds + 4));
        made
    }

    fn tick(&mut self, seconds: i64) -> Vec<Notification> {
        self.state.tick(&self.settings, at(seconds))
    }

    /// What is left after a crash: the stored state.
    fn restart(&mut self) {
        let stored = serde_json::to_string(&self.state).expect("JSON");
        self.state = serde_json::from_str(&stored).expect("the same");
    }
}

/// `kind severity: transition name, ...`.
fn lines(notifications: &[Notification]) -> Vec<String> {
    let line = |notification: &Notification| {
        let items: Vec<String> = notification
            .items
            .iter()
            .map(|item| format!("{} {}", item.transition, item.name))
            .collect();
        format!("{:?} {}: {}", notification.kind, notification.severity.word(), items.join(", "))
    };
    notifications.iter().map(line).collect()
}

#[test]
fn each_transition_of_a_cause_is_one_message() {
    let mut run = Run::calm(settings());
    let (suspect, bad) = (cause("sda", Level::Suspect, &["a"]), cause("sda", Level::Bad, &["a"]));
    assert_eq!(
        lines(&run.observe(&state(vec![suspect.clone()]), 10)),
        ["Changes SUSPECT: raised sda"]
    );
    assert_eq!(lines(&run.observe(&state(vec![suspect]), 20)), [""; 0]);
    assert_eq!(lines(&run.observe(&state(vec![bad.clone()]), 30)), ["Changes BAD: worse sda"]);
    let noted = acknowledged(bad.clone());
    assert_eq!(
        lines(&run.observe(&state(vec![noted.clone()]), 40)),
        ["Changes BAD: acknowledged sda"]
    );
    assert_eq!(lines(&run.observe(&state(vec![noted]), 45)), [""; 0]);
    let over = with_cleared(state(Vec::new()), &bad);
    let made = run.observe(&over, 60);
    assert_eq!(lines(&made), ["Changes BAD: cleared sda"]);
    assert_eq!(made[0].title, "[cleared] node7: sda (slot 03) is good again: a cleared");
    assert_eq!(lines(&run.observe(&over, 70)), [""; 0]);
}

#[test]
fn what_is_left_at_the_end_of_maintenance_is_announced_once() {
    let mut run = Run::calm(settings());
    let old = cause("sda", Level::Bad, &["a"]);
    assert_eq!(lines(&run.observe(&state(vec![old.clone()]), 10)), ["Changes BAD: raised sda"]);
    let maintained = |mut cause: ObservedCause| {
        (cause.counted, cause.maintained) = (false, true);
        cause.findings.iter_mut().for_each(|finding| finding.severity = Level::Info);
        cause
    };
    // Worse than before, and another one: nothing is said.
    let (worse, new) =
        (cause("sda", Level::Bad, &["a", "b"]), cause("sdb", Level::Suspect, &["c"]));
    let during = state(vec![maintained(worse.clone()), maintained(new.clone())]);
    for second in [20, 30] {
        assert_eq!(lines(&run.observe(&during, second)), [""; 0]);
        run.restart();
    }
    let after = state(vec![worse, new.clone()]);
    let made = run.observe(&after, 40);
    assert_eq!(lines(&made), ["Changes BAD: worse sda, raised sdb"]);
    assert_eq!(lines(&run.observe(&after, 50)), [""; 0]);
    // The same as before, twice.
    for second in [60, 80] {
        assert_eq!(lines(&run.observe(&state(vec![maintained(new.clone())]), second)), [""; 0]);
        let left = run.observe(&state(vec![new.clone()]), second + 10);
        assert_eq!(lines(&left), ["Changes SUSPECT: still there sdb"]);
    }
}

#[test]
fn changes_within_the_window_are_one_message_worst_first() {
    let mut run = Run::calm(settings());
    let first = state(vec![cause("sdb", Level::Suspect, &["a"])]);
    assert_eq!(run.state.observe(&first, &run.settings, at(10)), []);
    let both = state(vec![cause("sda", Level::Bad, &["a"]), cause("sdb", Level::Suspect, &["a"])]);
    let made = run.observe(&both, 11);
    assert_eq!(lines(&made), ["Changes BAD: raised sda, raised sdb"]);
    assert_eq!(made[0].title, "[BAD] node7: sda (slot 03): a; and 1 more: sdb");
}

#[test]
fn a_new_bad_finding_of_a_bad_cause_is_announced_and_another_suspect_one_is_not() {
    let mut run = Run::calm(settings());
    run.observe(&state(vec![cause("sda", Level::Bad, &["a"])]), 10);
    let mut more = cause("sda", Level::Bad, &["a", "b"]);
    more.findings[1].severity = Level::Suspect;
    assert_eq!(lines(&run.observe(&state(vec![more.clone()]), 20)), [""; 0]);
    more.findings[1].severity = Level::Bad;
    assert_eq!(lines(&run.observe(&state(vec![more]), 30)), ["Changes BAD: worse sda"]);
}

#[test]
fn the_same_transition_has_the_same_id_after_a_crash_that_lost_it() {
    let mut run = Run::calm(settings());
    let broken = state(vec![cause("sda", Level::Bad, &["a"])]);
    let before = run.state.clone();
    let first = run.observe(&broken, 10);
    // The process was killed before it stored anything, and finds the drive a minute later.
    run.state = before;
    run.restart();
    let second = run.observe(&broken, 70);
    assert_eq!(first[0].id, second[0].id);
    // What was stored is not announced again.
    run.restart();
    assert_eq!(lines(&run.observe(&broken, 80)), [""; 0]);
    assert_eq!(first[0].id.len(), 32);
}

#[test]
fn a_window_that_was_open_at_a_crash_is_closed_after_it() {
    let mut run = Run::calm(settings());
    let broken = state(vec![cause("sda", Level::Bad, &["a"])]);
    assert_eq!(run.state.observe(&broken, &run.settings, at(10)), []);
    run.restart();
    assert_eq!(lines(&run.tick(60)), ["Changes BAD: raised sda"]);
}

#[test]
fn a_clock_that_is_set_back_delays_no_message() {
    let mut run = Run::calm(settings());
    let broken = state(vec![cause("sda", Level::Bad, &["a"])]);
    assert_eq!(run.state.observe(&broken, &run.settings, at(7200)), []);
    assert_eq!(lines(&run.tick(100)), ["Changes BAD: raised sda"]);
}

#[test]
fn what_came_and_went_during_a_downtime_is_announced_once() {
    let mut run = Run::calm(settings());
    let gone = cause("sda", Level::Bad, &["a"]);
    let over = with_cleared(state(Vec::new()), &gone);
    run.restart();
    assert_eq!(lines(&run.observe(&over, 3600)), ["Changes BAD: cleared sda"]);
    assert_eq!(lines(&run.observe(&over, 3700)), [""; 0]);
    // The first answer ever announces what is there, not the past.
    let mut fresh = Run::new(settings());
    assert_eq!(lines(&fresh.observe(&over, 0)), [""; 0]);
}

#[test]
fn a_cause_that_cleared_and_returned_during_a_downtime_has_both_messages() {
    let mut run = Run::calm(settings());
    let first = cause("sda", Level::Bad, &["a"]);
    let before = run.observe(&state(vec![first.clone()]), 10);
    let again = cause("sda", Level::Bad, &["b"]);
    let made = run.observe(&with_cleared(state(vec![again]), &first), 3600);
    assert_eq!(lines(&made), ["Changes BAD: cleared sda, raised sda"]);
    assert_ne!(before[0].id, made[0].id);
}

#[test]
fn a_cause_that_is_missing_without_a_record_is_over_only_when_its_drive_is_well() {
    let mut run = Run::calm(settings());
    run.observe(&state(vec![cause("sda", Level::Bad, &["a"])]), 10);
    let mut unknown = state(Vec::new());
    unknown.good.remove("sda");
    for minutes in [1, 10, 20, 60] {
        assert_eq!(lines(&run.observe(&unknown, minutes * 60)), [""; 0], "{minutes}");
    }
    let made = run.observe(&state(Vec::new()), 4000);
    assert_eq!(lines(&made), ["Changes BAD: cleared sda"]);
    assert!(made[0].text.contains("has no record of the end"), "{}", made[0].text);
}

#[test]
fn a_daemon_without_its_history_does_not_announce_the_same_again() {
    let mut run = Run::calm(settings());
    run.observe(&state(vec![cause("sda", Level::Bad, &["a"])]), 10);
    let mut renamed = cause("sda", Level::Bad, &["a"]);
    renamed.findings[0].id = "another".to_owned();
    assert_eq!(lines(&run.observe(&state(vec![renamed]), 100)), [""; 0]);
}

#[test]
fn a_worse_effect_of_what_is_bad_is_announced_once() {
    let mut run = Run::new(settings());
    let bad = |status: wire::FindingStatus| ObservedCause {
        status: status.into(),
        ..cause("sda", Level::Bad, &["DriveFailing"])
    };
    run.observe(&state(vec![bad(wire::FindingStatus::Degraded)]), 0);
    let mut worse = |status, second| lines(&run.observe(&state(vec![bad(status)]), second));
    assert_eq!(worse(wire::FindingStatus::Inaccessible, 30), ["Changes BAD: worse sda"]);
    assert_eq!(worse(wire::FindingStatus::Degraded, 60), [""; 0]);
    assert_eq!(worse(wire::FindingStatus::Inaccessible, 90), [""; 0], "it flaps");
    assert_eq!(worse(wire::FindingStatus::DataLoss, 120), ["Changes BAD: worse sda"]);
}

#[test]
fn quiet_hours_and_the_limit_hold_back_neither_a_first_raise_nor_a_worsening_to_bad() {
    let quiet = Settings { quiet_hours: Some("12:00-13:00".parse().expect("hours")), ..settings() };
    let limited = Settings { daily_limit: Some(0), ..settings() };
    for settings in [quiet, limited] {
        let mut run = Run::calm(settings);
        let (suspect, bad) =
            (cause("sda", Level::Suspect, &["a"]), cause("sda", Level::Bad, &["a"]));
        assert_eq!(
            lines(&run.observe(&state(vec![suspect.clone()]), 10)),
            ["Changes SUSPECT: raised sda"]
        );
        assert_eq!(lines(&run.observe(&state(vec![bad.clone()]), 20)), ["Changes BAD: worse sda"]);
        let over = with_cleared(state(Vec::new()), &bad);
        assert_eq!(lines(&run.observe(&over, 30)), [""; 0], "held back");
        // It returns: SUSPECT waits, BAD does not.
        let mut back = cause("sda", Level::Suspect, &["b"]);
        back.findings[0].id = "new".to_owned();
        assert_eq!(lines(&run.observe(&with_cleared(state(vec![back]), &bad), 40)), [""; 0]);
        run.restart();
        run.settings.daily_limit = None;
        assert_eq!(
            lines(&run.tick(3700)),
            ["Summary BAD: cleared sda, raised sda"],
            "afterwards all of it"
        );
        assert_eq!(lines(&run.tick(3800)), [""; 0]);
    }
}

#[test]
fn with_bad_only_quiet_hours_hold_all_that_is_not_bad_until_their_end() {
    let mut run = Run::calm(Settings {
        quiet_hours: Some("12:00-13:00".parse().expect("hours")),
        quiet_hours_bad_only: true,
        digest: "daily 12:30".parse().expect("a schedule"),
        ..settings()
    });
    let suspect = |name: &str| cause(name, Level::Suspect, &["a"]);
    assert_eq!(lines(&run.observe(&state(vec![suspect("sda"), suspect("sdb")]), 10)), [""; 0]);
    // What becomes BAD is announced, and its beginning is not announced again afterwards.
    let both = state(vec![cause("sda", Level::Bad, &["a"]), suspect("sdb")]);
    assert_eq!(lines(&run.observe(&both, 60)), ["Changes BAD: raised sda"]);
    assert_eq!(lines(&run.tick(3599)), [""; 0], "no digest in quiet hours");
    let end = run.state.next_due(&run.settings, at(3599));
    assert_eq!(end, at(3600));
    assert_eq!(
        lines(&run.tick(3600)),
        ["Summary SUSPECT: raised sdb", "Digest good: still there sda, still there sdb"]
    );
    assert_eq!(lines(&run.tick(3700)), [""; 0]);
}

#[test]
fn a_recovery_continues_the_thread_of_its_raise_and_calls_nobody() {
    let mut run = Run::calm(settings());
    let bad = cause("sda", Level::Bad, &["a", "b"]);
    let raised = run.observe(&state(vec![bad.clone()]), 10).remove(0);
    assert_eq!(raised.title, "[BAD] node7: sda (slot 03): a and 1 more");
    assert_eq!((raised.urgency(), raised.replies_to.len()), (Level::Bad, 0));
    run.restart();
    let noted = run.observe(&state(vec![acknowledged(bad.clone())]), 20).remove(0);
    let over = run.observe(&with_cleared(state(Vec::new()), &bad), 60).remove(0);
    assert_eq!(over.title, "[cleared] node7: sda (slot 03) is good again: a and 1 more cleared");
    let first = over.text.lines().next().expect("a line");
    assert!(first.starts_with("sda") && first.ends_with("good again, was BAD"), "{first}");
    for message in [noted, over] {
        assert_eq!(message.urgency(), Level::Info);
        assert_eq!(message.severity, Level::Bad, "filters let it through");
        assert_eq!(message.replies_to, std::slice::from_ref(&raised.id));
    }
    // Its return is another thread; together with it, the end of the former one continues that.
    let again = cause("sda", Level::Suspect, &["c"]);
    let returned = run.observe(&state(vec![again.clone()]), 100).remove(0);
    assert_eq!(returned.replies_to, [""; 0]);
    let last = cause("sda", Level::Bad, &["d"]);
    let made = run.observe(&with_cleared(state(vec![last]), &again), 200).remove(0);
    assert_eq!(made.title, "[BAD] node7: sda (slot 03): d; and 1 more");
    assert_eq!(made.replies_to, [returned.id]);
}

#[test]
fn a_drive_that_is_not_known_to_be_good_is_not_called_good() {
    let mut run = Run::calm(settings());
    let bad = cause("sda", Level::Bad, &["a"]);
    run.observe(&state(vec![bad.clone()]), 10);
    let mut unknown = with_cleared(state(Vec::new()), &bad);
    unknown.good.remove("sda");
    let made = run.observe(&unknown, 60).remove(0);
    assert_eq!(made.title, "[cleared] node7: sda (slot 03) cleared: a");
    assert!(!made.text.contains("good"), "{}", made.text);
    assert!(made.text.contains("  now       the drive reports none"), "{}", made.text);
}

#[test]
fn a_finding_that_goes_from_the_mount_to_its_device_is_no_change() {
    let mut run = Run::calm(settings());
    let mounted = cause("fs", Level::Bad, &["FilesystemCorrupted"]);
    run.observe(&state(vec![mounted.clone()]), 10);
    let mut unmounted = mounted.clone();
    unmounted.item.name = "sdb1".to_owned();
    unmounted.findings[0].key = "FilesystemCorrupted sdb1".to_owned();
    assert_eq!(lines(&run.observe(&state(vec![unmounted]), 20)), [""; 0]);
    assert_eq!(lines(&run.observe(&state(vec![mounted.clone()]), 30)), [""; 0]);
    // Nor is another id of the cause, of a daemon of another version.
    let mut renamed = mounted;
    renamed.item.cause = "mount:fs:u".to_owned();
    let of_mount = |mut cause: ObservedCause| {
        cause.item.kind = "mount".to_owned();
        cause
    };
    let mut run = Run::calm(settings());
    let before = of_mount(cause("fs", Level::Bad, &["FilesystemCorrupted"]));
    run.observe(&state(vec![before]), 10);
    let renamed = of_mount(renamed);
    assert_eq!(lines(&run.observe(&state(vec![renamed.clone()]), 20)), [""; 0]);
    let over = with_cleared(state(Vec::new()), &renamed);
    assert_eq!(lines(&run.observe(&over, 60)), ["Changes BAD: cleared fs"]);
}

#[test]
fn reminders_come_at_growing_intervals_until_somebody_takes_note() {
    let mut run = Run::calm(Settings {
        repeat: Some(SignedDuration::from_hours(1)),
        repeat_max: SignedDuration::from_hours(3),
        ..settings()
    });
    let broken = cause("sda", Level::Bad, &["a"]);
    run.observe(&state(vec![broken.clone()]), 0);
    let mut hours = Vec::new();
    for hour in 1..=12 {
        let made = run.tick(hour * 3600 + 10);
        if !made.is_empty() {
            assert_eq!(lines(&made), ["Reminder BAD: still there sda"]);
            hours.push(hour);
        }
    }
    assert_eq!(hours, [1, 3, 6, 9, 12], "after 1 h, then 2 h, then 3 h each");
    run.observe(&state(vec![acknowledged(broken)]), 13 * 3600);
    assert_eq!(lines(&run.tick(100 * 3600)), [""; 0]);
}

#[test]
fn a_daemon_that_does_not_answer_is_announced_once_and_its_return_too() {
    let mut run = Run::calm(settings());
    let silent = |run: &mut Run, seconds| {
        let settings = run.settings.clone();
        run.state.observe_silence("no diskvitalsd at /run/x", &settings, at(seconds))
    };
    assert_eq!(silent(&mut run, 10), []);
    assert_eq!(lines(&run.tick(14 * 60)), [""; 0]);
    let made = run.tick(16 * 60);
    assert_eq!(lines(&made), ["DaemonSilent unknown: "]);
    assert!(made[0].text.contains("no diskvitalsd at /run/x"), "{}", made[0].text);
    run.restart();
    assert_eq!(silent(&mut run, 20 * 60), []);
    let back = run.observe(&state(Vec::new()), 30 * 60);
    assert_eq!(lines(&back), ["DaemonBack info: "]);
    assert_eq!(back[0].replies_to, [made[0].id.clone()]);
    // A short absence is not announced.
    assert_eq!(silent(&mut run, 31 * 60), []);
    assert_eq!(lines(&run.observe(&state(Vec::new()), 32 * 60)), [""; 0]);
}

#[test]
fn a_digest_never_reads_as_well_while_something_is_unknown() {
    let mut run =
        Run::calm(Settings { digest: "daily 14:00".parse().expect("a schedule"), ..settings() });
    let hour = 3600;
    let mut worn = state(Vec::new());
    worn.counts.near_end_of_life = vec!["sdb X Y".to_owned(), "sdc X Z".to_owned()];
    run.observe(&worn, 1);
    let made = run.tick(2 * hour);
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].title, "[digest] node7: all 24 drives well; 2 near the end of life");
    assert_eq!(lines(&run.tick(3 * hour)), [""; 0]);
    let mut unread = state(Vec::new());
    unread.counts.drives.unknown = 2;
    run.observe(&unread, 4 * hour);
    let made = run.tick(26 * hour);
    assert_eq!(made[0].title, "[digest] node7: 24 of 26 drives well, 2 unknown");
    assert_eq!(made[0].severity, Level::Unknown);
    let silence = run.settings.clone();
    run.state.observe_silence("no diskvitalsd", &silence, at(27 * hour));
    let made: Vec<Notification> =
        run.tick(50 * hour).into_iter().filter(|made| made.kind == Kind::Digest).collect();
    assert_eq!(made[0].title, "[digest] node7: health is unknown: diskvitalsd does not answer");
    assert!(!made[0].text.contains("well"), "{}", made[0].text);
}

#[test]
fn ten_thousand_transitions_in_a_minute_lose_nothing_and_make_few_messages() {
    let mut run = Run::calm(settings());
    let mut made = Vec::new();
    for second in (9..100).step_by(10) {
        let causes = (0..=second)
            .flat_map(|block| (0..100).map(move |at| format!("d{block}-{at}")))
            .map(|name| cause(&name, Level::Bad, &["a"]))
            .collect();
        let settings = run.settings.clone();
        made.extend(run.state.observe(&state(causes), &settings, at(10 + second)));
    }
    made.extend(run.tick(1000));
    let announced: std::collections::BTreeSet<&str> =
        made.iter().flat_map(|made| made.items.iter().map(|item| item.name.as_str())).collect();
    assert_eq!(announced.len(), 10_000);
    let ids: std::collections::BTreeSet<&str> = made.iter().map(|made| made.id.as_str()).collect();
    assert_eq!(ids.len(), made.len(), "each message has its own id");
    assert!(made.len() <= 120, "{}", made.len());
    let longest = made.iter().map(|made| made.text.len()).max();
    assert!(longest.is_some_and(|longest| longest < 64 << 10), "{longest:?}");
}

#[test]
fn in_a_flood_the_first_thousand_changes_have_all_details_and_the_others_their_number() {
    let mut run = Run::calm(settings());
    let causes = (0..1200).map(|at| {
        let mut cause = cause(&format!("d{at:04}"), Level::Bad, &["a"]);
        cause.item.hits = vec![cause.item.hits[0].clone(); 5];
        cause.item.more_hits = 0;
        cause.item.evidence = vec![cause.item.evidence[0].clone(); 4];
        cause
    });
    let made = run.observe(&state(causes.collect()), 10);
    let items: Vec<_> = made.iter().flat_map(|made| &made.items).collect();
    assert_eq!(items.len(), 1200);
    let (detailed, short) = items.split_at(1000);
    assert!(
        detailed
            .iter()
            .all(|item| (item.evidence.len(), item.hits.len(), item.more_hits) == (4, 5, 0))
    );
    assert!(
        short
            .iter()
            .all(|item| (item.evidence.len(), item.hits.len(), item.more_hits) == (1, 1, 4))
    );
}

#[test]
fn a_message_has_all_that_a_person_needs() {
    let mut run = Run::calm(settings());
    let made = run.observe(&state(vec![cause("sda", Level::Bad, &["SmartFailing"])]), 10);
    insta::assert_snapshot!(format!("{}\n\n{}", made[0].title, made[0].text));
}

/// Users' volumes with long names, all BAD.
fn flood(count: usize) -> Vec<ObservedCause> {
    let causes = (0..count).map(|at| {
        let mut cause =
            cause(&format!("{at:03}-{}", "x".repeat(900)), Level::Bad, &["ProbeTimeout"]);
        cause.item.user_made = true;
        cause.item.slot = String::new();
        cause
    });
    causes.collect()
}

#[test]
fn what_users_can_make_neither_delays_nor_displaces_the_nodes_own_storage() {
    let mut run = Run::calm(Settings { daily_limit: Some(20), ..settings() });
    let mut causes = Vec::new();
    let mut made = 0;
    for second in 0..12 {
        causes = flood(10 * (second + 1));
        made += run.observe(&state(causes.clone()), 10 + 5 * second as i64).len();
    }
    assert!(made >= 10, "the users' messages are collected for a minute");
    causes.insert(0, cause("sda", Level::Suspect, &["OutOfSpace"]));
    causes.extend(flood(130).split_off(120));
    let own = run.observe(&state(causes.clone()), 80);
    assert_eq!(lines(&own), ["Changes SUSPECT: raised sda"]);
    assert_eq!(own[0].title, "[SUSPECT] node7: sda (slot 03): OutOfSpace");
    // Nor do they use up the limit: its end is announced, and theirs waits.
    let over =
        with_cleared(state(causes.split_off(1)), &cause("sda", Level::Suspect, &["OutOfSpace"]));
    run.restart();
    let cleared = run.state.observe(&over, &run.settings, at(90));
    assert_eq!(cleared, []);
    assert_eq!(
        lines(&run.tick(94)),
        ["Changes SUSPECT: cleared sda"],
        "the users' wait for a minute"
    );
}

/// A pod has filled its volume; then the disk below it fails.
#[test]
fn a_cause_that_turns_out_to_be_the_nodes_own_is_announced_once() {
    let mut run = Run::calm(Settings {
        quiet_hours: Some("12:00-13:00".parse().expect("hours")),
        quiet_hours_bad_only: true,
        ..settings()
    });
    let mut full = cause("pv", Level::Suspect, &["OutOfSpace"]);
    full.item.user_made = true;
    assert_eq!(lines(&run.observe(&state(vec![full]), 10)), [""; 0]);
    let dying = cause("pv", Level::Bad, &["FilesystemCorrupted"]);
    let mut made = run.observe(&state(vec![dying]), 60);
    made.extend(run.tick(3700));
    assert_eq!(lines(&made), ["Changes BAD: raised pv"]);
}

#[test]
fn held_changes_of_users_displace_none_of_the_nodes_own_storage() {
    let mut run = Run::calm(Settings {
        quiet_hours: Some("12:00-13:00".parse().expect("hours")),
        quiet_hours_bad_only: true,
        ..settings()
    });
    let mut causes = flood(1500);
    for cause in &mut causes {
        cause.item.severity = Level::Suspect;
    }
    run.observe(&state(causes.clone()), 10);
    causes.push(cause("sda", Level::Suspect, &["OutOfSpace"]));
    run.observe(&state(causes), 30);
    let made = run.tick(3700);
    assert_eq!(lines(&made)[0], "Summary SUSPECT: raised sda");
    assert_eq!(made.len(), 11);
}

#[test]
fn the_beginning_of_a_message_names_each_of_several_causes_however_long_the_names_are() {
    let mut run = Run::calm(settings());
    let mut first = cause("sda", Level::Bad, &["SmartFailing"]);
    first.item.hits = vec![first.item.hits[1].clone(); 60];
    for hit in &mut first.item.hits {
        hit.name = "p".repeat(1000);
    }
    let mut second = cause(&format!("/{}/end", "d".repeat(1000)), Level::Suspect, &["a"]);
    second.item.model = "M".repeat(1000);
    let third = acknowledged(cause("sdc", Level::Bad, &["a"]));
    run.observe(&state(vec![cause("sdc", Level::Bad, &["a"])]), 5);
    let made = run.observe(&state(vec![third, second, first]), 20);
    assert!(
        made[0].title.starts_with("[BAD] node7: sda (slot 03): SmartFailing; and 2 more: /ddd"),
        "{}",
        made[0].title
    );
    let beginning: Vec<&str> = made[0].text.lines().take(4).collect();
    assert_eq!(beginning[0], "BAD sda (slot 03): SmartFailing");
    assert!(
        beginning[1].starts_with("SUSPECT /ddd") && beginning[1].ends_with("/end (slot 03): a")
    );
    assert_eq!(beginning[2..], ["BAD sdc (slot 03) acknowledged: a", ""]);
    assert!(made[0].text.len() < 8000, "{}", made[0].text.len());
}

#[test]
fn a_digest_begins_with_the_problems_of_the_nodes_own_storage() {
    let mut run =
        Run::calm(Settings { digest: "daily 14:00".parse().expect("a schedule"), ..settings() });
    let mut causes = flood(300);
    causes.push(cause("sda", Level::Suspect, &["a"]));
    let mut state = state(causes);
    state.counts.unread = vec!["CSI driver ".repeat(90); 20];
    run.observe(&state, 1);
    let made = run.tick(2 * 3600);
    assert_eq!(made[0].items[0].name, "sda");
    let text = &made[0].text;
    assert!(text.find("sda").is_some_and(|at| at < 200), "{text}");
    assert!(text.find("Not read").is_some_and(|at| at > 2000));
}
