//! Self-tests of drives, and checks and scrubs of arrays, that the daemon starts by a schedule.
//!
//! In: the facts, the active findings, the time. Out: what starts now, and what each of the others
//! waits for. The drives' own logs say what has run, whoever started it: smartd's tests count. Kept in the
//! store is only which test the daemon started last (`SmartHistory::started`). Scrubs: `scrubs`. Pure.

mod groups;
pub mod scrubs;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod triggers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::assess::input::Context;
use crate::assess::risk;
use crate::care::groups::{Busy, Groups};
use crate::care::scrubs::{ScrubStart, ScrubTask};
use crate::care::settings::{Task, TaskSchedule};
use crate::drive::Transport;
use crate::facts::smart::{SmartFacts, SmartOutcome};
use crate::facts::{Facts, KnownDrive};
use crate::policy::Policy;
use diskvitals_finding::Finding;
use diskvitals_finding::ids::DriveId;
use diskvitals_fscheck::schedule::{Schedule, next_due};
use diskvitals_smart::SelfTestKind;
use diskvitals_smart::advisory::forbidden_test;
use diskvitals_smart::history::StartedTest;
use diskvitals_smart::report::{SelfTest, SelfTestOutcome, SmartReport};
use diskvitals_smart::rules::self_tests::hours_since;

/// After a test that was aborted.
const RETRY: SignedDuration = SignedDuration::from_hours(1);
/// In one period.
const MAX_ATTEMPTS: u32 = 3;
/// After a start that was refused.
const AFTER_REFUSAL: SignedDuration = SignedDuration::from_hours(24);
/// The log's times are hours of operation; the counter that they are compared with ticks each hour too.
const LOG_PRECISION: SignedDuration = SignedDuration::from_hours(2);

/// One kind of test of one drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CareTask {
    pub kind: SelfTestKind,
    /// When one last came to its end, by the drive's log.
    pub ended: Option<Timestamp>,
    pub due: Timestamp,
    pub state: CareState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CareState {
    /// It is not due.
    Waits,
    /// It is due, or was, and is not started.
    Held {
        why: String,
    },
    /// A test of this kind runs, or of any kind where the drive does not say which.
    Runs,
    Starts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CarePlan {
    pub tasks: BTreeMap<DriveId, Vec<CareTask>>,
    /// Of all that is scrubbed, also without a schedule.
    pub scrubs: Arc<Vec<ScrubTask>>,
    pub starts: Vec<(DriveId, SelfTestKind)>,
    pub scrub_starts: Vec<ScrubStart>,
}

/// `active`: the active findings.
pub fn plan<'a>(
    facts: &Facts,
    policy: &Policy,
    active: impl Iterator<Item = &'a Finding>,
    zone: &TimeZone,
    now: Timestamp,
) -> CarePlan {
    let context = Context { facts, policy, now };
    let failing = risk::drive_findings(context, active);
    let obstacles = failing.iter().filter_map(|(id, failure)| Some((id, failure.alarming()?)));
    let planner = Planner {
        facts,
        policy,
        zone,
        now,
        findings: obstacles.collect(),
        groups: if policy.care.is_off() { Groups::default() } else { Groups::of(facts) },
    };
    planner.plan()
}

struct Planner<'a> {
    facts: &'a Facts,
    policy: &'a Policy,
    zone: &'a TimeZone,
    now: Timestamp,
    /// Reasons of findings with which no test starts.
    findings: BTreeMap<&'a DriveId, String>,
    groups: Groups<'a>,
}

/// A task that is due, with nothing of its own against it but the hours.
struct Due<'a> {
    task: DueTask<'a>,
    name: String,
    drives: Vec<&'a DriveId>,
    due: Timestamp,
    is_long: bool,
    closed: Option<String>,
}

/// By its place in the plan.
enum DueTask<'a> {
    SelfTest(&'a DriveId, usize),
    Scrub(usize),
}

impl<'a> Planner<'a> {
    fn plan(&self) -> CarePlan {
        let mut plan = CarePlan::default();
        let mut queue: Vec<Due> = Vec::new();
        // What may not start beside anything else, and why.
        let mut busy = Busy::new();
        for (id, known) in &self.facts.drives {
            if known.missing_since.is_some() {
                continue;
            }
            let Some(smart) = self.facts.smart.get(id) else { continue };
            if self.is_running(smart) {
                self.groups.occupy(&mut busy, id, &format!("a self-test runs on {}", name(known)));
            }
            let tasks = self.tasks_of(known, smart);
            queue.extend(tasks.iter().enumerate().filter_map(|(at, (task, closed))| {
                let due = Due {
                    task: DueTask::SelfTest(id, at),
                    name: name(known).to_owned(),
                    drives: vec![id],
                    due: task.due,
                    is_long: task.kind == SelfTestKind::Long,
                    closed: closed.clone(),
                };
                (task.state == CareState::Starts).then_some(due)
            }));
            if !tasks.is_empty() {
                let tasks = tasks.into_iter().map(|(task, _)| task).collect();
                plan.tasks.insert(id.clone(), tasks);
            }
        }
        let mut scrubs = self.scrubs();
        // Of what is on drives that are not known: images, for instance.
        let mut elsewhere: Option<String> = None;
        for (at, it) in scrubs.iter().enumerate() {
            let name = &it.task.name;
            if it.task.state == CareState::Runs {
                let why = format!("{name}: {} runs", it.task.kind.word());
                it.drives.iter().for_each(|id| self.groups.occupy(&mut busy, id, &why));
                elsewhere = elsewhere.or_else(|| it.drives.is_empty().then_some(why));
            }
            if let (CareState::Starts, Some(due)) = (&it.task.state, it.task.due) {
                queue.push(Due {
                    task: DueTask::Scrub(at),
                    name: name.clone(),
                    drives: it.drives.clone(),
                    due,
                    is_long: true,
                    closed: it.closed.clone(),
                });
            }
        }
        // One that waits keeps its place: no later one goes before it for ever.
        queue.sort_by_key(|due| (due.due, !due.is_long));
        for due in queue {
            let conflict = |id: &&DriveId| self.groups.conflict(&busy, id);
            let mut held = due.closed.or_else(|| due.drives.iter().find_map(conflict));
            let what = if matches!(due.task, DueTask::Scrub(_)) { "scrub" } else { "test" };
            let why = format!("a {what} of {} is due first", due.name);
            due.drives.iter().for_each(|id| self.groups.occupy(&mut busy, id, &why));
            if due.drives.is_empty() {
                held = held.or_else(|| elsewhere.clone());
                elsewhere.get_or_insert(why);
            }
            match due.task {
                DueTask::SelfTest(id, at) => {
                    let Some(task) = plan.tasks.get_mut(id).and_then(|all| all.get_mut(at)) else {
                        continue;
                    };
                    match held {
                        Some(why) => task.state = CareState::Held { why },
                        None => plan.starts.push((id.clone(), task.kind)),
                    }
                }
                DueTask::Scrub(at) => match held {
                    Some(why) => scrubs[at].task.state = CareState::Held { why },
                    None => plan.scrub_starts.extend(scrubs[at].start.clone()),
                },
            }
        }
        plan.scrubs = Arc::new(scrubs.into_iter().map(|it| it.task).collect());
        plan
    }

    /// Each with the reason why these are not its hours.
    fn tasks_of(&self, known: &KnownDrive, smart: &SmartFacts) -> Vec<(CareTask, Option<String>)> {
        let Some((read, report)) = &smart.history.last else { return Vec::new() };
        let tests = &report.self_tests;
        if !tests.log_read && tests.short_minutes.is_none() && tests.long_minutes.is_none() {
            return Vec::new();
        }
        let devices = known.facts.devices.iter().map(|device| device.name.as_str());
        let names: Vec<&str> =
            devices.chain([known.facts.name.as_str(), known.facts.id.as_str()]).collect();
        let kinds = [SelfTestKind::Short, SelfTestKind::Long].into_iter();
        let task = |kind: SelfTestKind| {
            let schedule = self.policy.care.schedule(Task::of_self_test(kind), &names)?;
            let ended = last_ended(report, *read, kind);
            let was_aborted = |at: Timestamp| was_aborted(report, *read, at, kind);
            let past = Past {
                ended,
                started: smart.history.started.get(&kind),
                was_aborted: &was_aborted,
            };
            let id = known.facts.id.as_str();
            let (due, refusal) = self.due(&schedule, id, known.first_seen, &past);
            let is_due = due <= self.now;
            let obstacle = self.obstacle(known, smart);
            let forbidden =
                || forbidden_test(&self.policy.smart.advisories, &report.identity, kind);
            let state = match obstacle.or_else(forbidden) {
                _ if self.is_running(smart) => CareState::Runs,
                _ if let Some(why) = refusal.filter(|_| !is_due) => CareState::Held { why },
                Some(why) if is_due => CareState::Held { why },
                _ if is_due => CareState::Starts,
                _ => CareState::Waits,
            };
            let closed = self.closed(&schedule, due);
            Some((CareTask { kind, ended, due, state }, closed))
        };
        kinds.filter_map(task).collect()
    }

    /// When it is due, and why the last start was refused. `id`: what spreads the starts.
    fn due(
        &self,
        schedule: &TaskSchedule,
        id: &str,
        first_seen: Timestamp,
        past: &Past,
    ) -> (Timestamp, Option<String>) {
        let after = |time: Timestamp, wait| time.checked_add(wait).unwrap_or(Timestamp::MAX);
        let Some(when) = &schedule.when else { return (Timestamp::MAX, None) };
        let next = |last: Timestamp, jitter| {
            let next = next_due(when, self.facts.wall_time(last), id, jitter, self.zone);
            self.facts.steady_time(next)
        };
        match (past.open(), past.ended) {
            (Some(StartedTest { at, refused: Some(why), .. }), _) => {
                (after(*at, AFTER_REFUSAL), Some(why.clone()))
            }
            (Some(started), _)
                if started.attempts < MAX_ATTEMPTS && (past.was_aborted)(started.at) =>
            {
                (after(started.at, RETRY), None)
            }
            (Some(started), _) => (next(started.at, schedule.jitter), None),
            (None, Some(ended)) => (next(ended, schedule.jitter), None),
            // The first ones are spread over a whole period.
            (None, None) => match when {
                Schedule::Every(period) => {
                    let first = next(first_seen, *period);
                    (first.checked_sub(*period).unwrap_or(first), None)
                }
                Schedule::At(_) => (next(first_seen, schedule.jitter), None),
            },
        }
    }

    fn closed(&self, schedule: &TaskSchedule, due: Timestamp) -> Option<String> {
        let window = schedule.window?;
        let is_late = schedule.ignore_window_after.is_some_and(|wait| {
            Duration::try_from(self.now.duration_since(due)).is_ok_and(|late| late >= wait)
        });
        let is_open = window.is_open(self.facts.wall_time(self.now), self.zone);
        (!is_open && !is_late).then(|| format!("it starts only at {window}"))
    }

    /// What of the drive itself is against any test.
    fn obstacle(&self, known: &KnownDrive, smart: &SmartFacts) -> Option<String> {
        let location = &known.facts.location;
        let words = |text: &str| Some(text.to_owned());
        if location.raid_controller.is_some() || location.array_driver.is_some() {
            return words("the RAID controller reads its drives itself (patrol read)");
        }
        if known.facts.transport == Transport::Usb {
            return words("it is behind a USB bridge");
        }
        if let Some(reasons) = self.findings.get(&known.facts.id) {
            return Some(format!("it has {reasons}"));
        }
        match &smart.outcome {
            Some((_, SmartOutcome::Report)) if smart.stuck.is_none() => {}
            Some((_, SmartOutcome::Standby { .. })) => return words("it sleeps, and is not woken"),
            _ => return words("its SMART data has not been read"),
        }
        if known.facts.asleep {
            return words("it sleeps, and is not woken");
        }
        (!self.facts.settled()).then(|| "not all has been read since the start".to_owned())
    }

    /// Also between the start and the first reading after it.
    fn is_running(&self, smart: &SmartFacts) -> bool {
        let Some((read, report)) = &smart.history.last else { return false };
        let is_current = matches!(smart.outcome, Some((_, SmartOutcome::Report)));
        let has_begun = |started: &StartedTest| {
            let since = self.now.duration_since(started.at);
            started.refused.is_none() && started.at >= *read && since < AFTER_REFUSAL
        };
        is_current
            && (report.self_tests.running.is_some()
                || smart.history.started.values().any(has_begun))
    }
}

/// What is known of a task's last times.
struct Past<'a> {
    ended: Option<Timestamp>,
    started: Option<&'a StartedTest>,
    /// Of one that was started then.
    was_aborted: &'a dyn Fn(Timestamp) -> bool,
}

impl Past<'_> {
    /// The last start, unless one has come to its end since.
    fn open(&self) -> Option<&StartedTest> {
        self.started.filter(|started| self.ended.is_none_or(|ended| ended < started.at))
    }
}

/// A start, with how many attempts there have been.
fn attempt(at: Timestamp, ended: Option<Timestamp>, before: Option<&StartedTest>) -> StartedTest {
    let again = before.filter(|before| {
        ended.is_none_or(|ended| ended < before.at) && at.duration_since(before.at) < AFTER_REFUSAL
    });
    let attempts = again.map_or(0, |before| before.attempts).saturating_add(1);
    StartedTest { at, attempts, refused: None }
}

fn name(known: &KnownDrive) -> &str {
    match known.facts.name.as_str() {
        "" => known.facts.id.as_str(),
        name => name,
    }
}

/// A test that reads all is one of the part too.
fn counts_as(test: &SelfTest, kind: SelfTestKind) -> bool {
    test.extended || kind == SelfTestKind::Short
}

/// None too where the log does not say when.
fn last_ended(report: &SmartReport, read: Timestamp, kind: SelfTestKind) -> Option<Timestamp> {
    let is_ended = |test: &&SelfTest| {
        matches!(test.outcome, SelfTestOutcome::Passed | SelfTestOutcome::Failed)
            && counts_as(test, kind)
    };
    let newest = report.self_tests.log.iter().find(is_ended)?;
    hours_ago(report, read, newest)
}

fn hours_ago(report: &SmartReport, read: Timestamp, test: &SelfTest) -> Option<Timestamp> {
    let hours = i64::try_from(hours_since(report, test)?).ok()?;
    read.checked_sub(SignedDuration::try_from_hours(hours)?).ok()
}

/// The newest test of the kind is one that was started then, and did not come to its end.
fn was_aborted(report: &SmartReport, read: Timestamp, at: Timestamp, kind: SelfTestKind) -> bool {
    let is_long = kind == SelfTestKind::Long;
    let newest = report.self_tests.log.iter().find(|test| test.extended == is_long);
    newest.is_some_and(|test| {
        test.outcome == SelfTestOutcome::Other
            && hours_ago(report, read, test).is_some_and(|then| then + LOG_PRECISION >= at)
    })
}

impl Facts {
    /// Before the command is given.
    pub fn note_test_started(&mut self, drive: &DriveId, kind: SelfTestKind, at: Timestamp) {
        if let Some(smart) = self.smart_of_known(drive) {
            let history = std::sync::Arc::make_mut(&mut smart.history);
            let started = match &history.last {
                Some((read, report)) => {
                    let ended = last_ended(report, *read, kind);
                    attempt(at, ended, history.started.get(&kind))
                }
                None => attempt(at, None, None),
            };
            history.started.insert(kind, started);
        }
    }
}
