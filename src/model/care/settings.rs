//! The configuration: `care` and `[[schedule]]`.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use diskvitals_fscheck::schedule::{Calendar, Schedule};
use diskvitals_smart::SelfTestKind;
use diskvitals_text::pattern;
use diskvitals_text::setting::{optional_seconds, seconds};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Each task wears a drive or costs its speed.
const MIN_INTERVAL: Duration = DAY;
const DEFAULT_JITTER: Duration = Duration::from_secs(3600);

/// What can be done to a drive, or to an array, a pool or a btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    ShortSelfTest,
    LongSelfTest,
    MdCheck,
    BtrfsScrub,
    ZpoolScrub,
}

impl Task {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Task::ShortSelfTest => "short-self-test",
            Task::LongSelfTest => "long-self-test",
            Task::MdCheck => "md-check",
            Task::BtrfsScrub => "btrfs-scrub",
            Task::ZpoolScrub => "zpool-scrub",
        }
    }

    pub(crate) fn of_self_test(kind: SelfTestKind) -> Task {
        match kind {
            SelfTestKind::Short => Task::ShortSelfTest,
            SelfTestKind::Long => Task::LongSelfTest,
        }
    }

    /// Of one drive.
    fn is_self_test(self) -> bool {
        matches!(self, Task::ShortSelfTest | Task::LongSelfTest)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Care {
    #[default]
    Off,
    /// A short self-test each week, a long one and a scrub each month, begun at night.
    Standard,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CareSettings {
    pub care: Care,
    /// Before the standard ones.
    pub schedules: Vec<TaskSchedule>,
}

/// When these tasks are due, and when they may start. The first entry that matches counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ScheduleTable", into = "ScheduleTable")]
pub struct TaskSchedule {
    pub tasks: Vec<Task>,
    /// Of self-tests: kernel names or ids (`*` and `?` allowed). Empty: all.
    pub drives: Vec<String>,
    /// Of the others: arrays, pools, labels, UUIDs or mount points of btrfs. Empty: all that nothing else
    /// scrubs.
    pub arrays: Vec<String>,
    /// None: never.
    pub when: Option<Schedule>,
    pub jitter: Duration,
    /// Tasks begin in these hours. One that has begun is never ended by them.
    pub window: Option<Window>,
    /// A task that is overdue for so long begins outside them too: the node may be off at night.
    pub ignore_window_after: Option<Duration>,
}

/// As written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleTable {
    tasks: Vec<Task>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    drives: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    arrays: Vec<String>,
    #[serde(default, with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    every: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calendar: Option<Calendar>,
    #[serde(default = "default_jitter", with = "seconds")]
    jitter: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<Window>,
    #[serde(default, with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    ignore_window_after: Option<Duration>,
}

fn default_jitter() -> Duration {
    DEFAULT_JITTER
}

impl TryFrom<ScheduleTable> for TaskSchedule {
    type Error = String;

    fn try_from(table: ScheduleTable) -> Result<TaskSchedule, String> {
        let when = match (table.every, table.calendar) {
            (Some(_), Some(_)) => return Err("`every` and `calendar`: write one of them".into()),
            (None, None) => {
                return Err("write `every = \"30d\"` or `calendar = \"Sun 03:00\"`".into());
            }
            (None, Some(calendar)) => Some(Schedule::At(calendar)),
            (Some(every), None) if every.is_zero() => None,
            (Some(every), None) if every < MIN_INTERVAL => {
                let seconds = every.as_secs();
                return Err(format!("every: {seconds}s is too often: at least 1d, or 0 for never"));
            }
            (Some(every), None) => Some(Schedule::Every(every)),
        };
        if table.tasks.is_empty() {
            return Err("`tasks` is empty".into());
        }
        let lacks = |is_self_test| table.tasks.iter().all(|it| it.is_self_test() != is_self_test);
        if !table.drives.is_empty() && lacks(true) {
            return Err("`drives` is for self-tests: write `arrays`".into());
        }
        if !table.arrays.is_empty() && lacks(false) {
            return Err("`arrays` is for checks and scrubs: write `drives`".into());
        }
        Ok(TaskSchedule {
            tasks: table.tasks,
            drives: table.drives,
            arrays: table.arrays,
            when,
            jitter: table.jitter,
            window: table.window,
            ignore_window_after: table.ignore_window_after,
        })
    }
}

impl From<TaskSchedule> for ScheduleTable {
    fn from(schedule: TaskSchedule) -> ScheduleTable {
        let (every, calendar) = match schedule.when {
            None => (Some(Duration::ZERO), None),
            Some(Schedule::Every(every)) => (Some(every), None),
            Some(Schedule::At(calendar)) => (None, Some(calendar)),
        };
        ScheduleTable {
            tasks: schedule.tasks,
            drives: schedule.drives,
            arrays: schedule.arrays,
            every,
            calendar,
            jitter: schedule.jitter,
            window: schedule.window,
            ignore_window_after: schedule.ignore_window_after,
        }
    }
}

impl CareSettings {
    pub(crate) fn is_off(&self) -> bool {
        self.care == Care::Off && self.schedules.is_empty()
    }

    /// None: never.
    pub(crate) fn schedule(&self, task: Task, names: &[&str]) -> Option<TaskSchedule> {
        let is_it = |schedule: &&TaskSchedule| {
            let listed = if task.is_self_test() { &schedule.drives } else { &schedule.arrays };
            let matches = |name: &&str| pattern::matches_any(listed, name.as_bytes());
            schedule.tasks.contains(&task) && (listed.is_empty() || names.iter().any(matches))
        };
        let own = self.schedules.iter().find(is_it).cloned();
        own.or_else(|| (self.care == Care::Standard).then(|| standard(task)))
            .filter(|schedule| schedule.when.is_some())
    }
}

fn standard(task: Task) -> TaskSchedule {
    let days = if task == Task::ShortSelfTest { 7 } else { 30 };
    TaskSchedule {
        tasks: vec![task],
        drives: Vec::new(),
        arrays: Vec::new(),
        when: Some(Schedule::Every(DAY * days)),
        jitter: DEFAULT_JITTER,
        window: Some(Window { from: Time::constant(22, 0, 0, 0), to: Time::constant(6, 0, 0, 0) }),
        ignore_window_after: Some(DAY * 7),
    }
}

/// `22:00-06:00`, local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Window {
    from: Time,
    to: Time,
}

impl TryFrom<String> for Window {
    type Error = String;

    fn try_from(text: String) -> Result<Window, String> {
        let time = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let number = |text: &str| {
                let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse().ok().filter(|_| is_number)
            };
            Time::new(number(hour)?, number(minute)?, 0, 0).ok()
        };
        let both = text.split_once('-').and_then(|(from, to)| Some((time(from)?, time(to)?)));
        match both {
            Some((from, to)) if from != to => Ok(Window { from, to }),
            _ => Err(format!("`{text}` are no hours of a day: write `22:00-06:00`")),
        }
    }
}

impl From<Window> for String {
    fn from(window: Window) -> String {
        window.to_string()
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.from.strftime("%H:%M"), self.to.strftime("%H:%M"))
    }
}

impl Window {
    pub(crate) fn is_open(self, wall: Timestamp, zone: &TimeZone) -> bool {
        let time = wall.to_zoned(zone.clone()).time();
        match self.from < self.to {
            true => self.from <= time && time < self.to,
            false => self.from <= time || time < self.to,
        }
    }
}
