//! When a drive is asked next. No I/O, no clock: time is an argument.
//!
//! In: the owner's target, what was asked for, how the last question ended. Out: when the next one
//! is due, and whether it may be asked at all.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::model::drive::Transport;
use crate::model::hash::fnv1a_64;
use crate::model::report::SmartTarget;
use crate::model::smart::{Answer, TestKind};
use crate::source::context::SmartSettings;
use crate::source::smart::ask::Read;

/// A drive that does not answer is asked ever more rarely, up to this.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(3600);
/// What has no SMART now will hardly have it in ten minutes.
const NOT_APPLICABLE: Duration = Duration::from_secs(3600);
/// After an admin has started a self-test, to see whether it runs.
const AFTER_TEST: Duration = Duration::from_secs(5);
/// While it runs, so that its progress is seen.
const WHILE_TESTING: Duration = Duration::from_secs(60);
/// After the slow log pages were not to be had.
const SLOW_AGAIN: Duration = Duration::from_secs(3600);
/// Intervals vary by this much to either side, so that drives do not all answer at once for ever.
/// In parts of a thousand.
const JITTER: u64 = 100;
/// All log pages of a drive that hangs at them are tried again at least this often.
const LONGEST_WITHOUT_WHOLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What is going on with a drive.
#[derive(Debug)]
pub enum Doing {
    Nothing,
    /// smartctl runs for it.
    Asked,
    /// smartctl could not be killed: nobody is started until it has gone.
    Stuck {
        since: Timestamp,
    },
}

/// One drive.
#[derive(Debug)]
pub struct Plan {
    pub target: SmartTarget,
    /// The owner wants it asked. A drive that has gone is kept while smartctl runs for it.
    pub wanted: bool,
    pub doing: Doing,
    /// An admin's self-test that waits for its turn.
    pub test: Option<TestKind>,
    /// What was learned of it by asking.
    pub learned: Learned,
    due: Instant,
    /// When it was asked last.
    started: Option<Instant>,
    /// Somebody wanted an answer while it was being asked: what has happened since may not be in
    /// it.
    again: bool,
    /// Questions in a row without an answer.
    troubles: u32,
    /// The last one hung: the kernel's errors that came of it are no reason to ask.
    hung: bool,
    /// Makes each interval another one.
    round: u64,
    /// A self-test that we started runs, or should.
    testing: bool,
    /// The next question is to tell whether it does.
    test_begun: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// The `-d` that works where smartctl's own guess does not.
    pub device_type: Option<String>,
    /// What is read between two whole readings, by the protocol of the last whole answer.
    pub quick: Option<Read>,
    /// The serial number in the last whole answer.
    pub serial: Option<String>,
    /// When all log pages are read next; None: at the next question.
    pub whole_due: Option<Instant>,
    /// Readings of all log pages in a row that hung.
    pub whole_hangs: u32,
    /// Other types were tried in vain: not again.
    pub tried: bool,
}

impl Plan {
    pub fn new(target: SmartTarget, settings: &SmartSettings, now: Timestamp, at: Instant) -> Plan {
        let mut plan = Plan {
            target,
            wanted: true,
            doing: Doing::Nothing,
            test: None,
            learned: Learned::default(),
            due: at,
            started: None,
            again: false,
            troubles: 0,
            hung: false,
            round: 0,
            testing: false,
            test_begun: false,
        };
        if let Some(answered) = plan.target.last_answer {
            // A clock that was set back makes the age zero: then the wait is a whole interval.
            let age = Duration::try_from(now.duration_since(answered)).unwrap_or_default();
            plan.due = at + plan.interval(settings).saturating_sub(age);
        }
        plan
    }

    /// The owner's newer word on it.
    pub fn take(&mut self, target: SmartTarget, settings: &SmartSettings, at: Instant) {
        let grew = target.errors > self.target.errors;
        let worse = target.suspect && !self.target.suspect;
        let moved = target.device != self.target.device;
        self.wanted = true;
        self.target = target;
        if moved {
            self.learned.tried = false;
        }
        if moved || grew && !self.hung {
            self.at_once(at);
        } else if worse {
            let soon = self
                .started
                .map_or(at, |started| started + self.interval(settings));
            self.due = self.due.min(soon);
        }
    }

    /// An answer is wanted now, or as soon as manners allow.
    pub fn at_once(&mut self, at: Instant) {
        match self.doing {
            Doing::Nothing => self.due = self.due.min(at),
            Doing::Asked | Doing::Stuck { .. } => self.again = true,
        }
    }

    /// When it may be asked. None: not now, and not by the mere passing of time.
    pub fn due(&self, settings: &SmartSettings) -> Option<Instant> {
        if !self.wanted || self.target.asleep || !matches!(self.doing, Doing::Nothing) {
            return None;
        }
        let floor = match self.troubles {
            _ if self.test_begun => AFTER_TEST,
            0 => settings.shortest_interval,
            // Its own errors do not have a drive that does not answer asked all the time.
            troubles => settings
                .shortest_interval
                .saturating_mul(1 << troubles.min(4)),
        };
        Some(
            self.started
                .map_or(self.due, |started| self.due.max(started + floor)),
        )
    }

    /// The owner wants it, or something about it has not ended.
    pub fn is_needed(&self) -> bool {
        self.wanted || self.test.is_some() || !matches!(self.doing, Doing::Nothing)
    }

    /// It has had no trouble answering.
    pub fn answers(&self) -> bool {
        self.troubles == 0
    }

    /// smartctl is being started for it. A question counts for the shortest interval, an admin's
    /// self-test does not.
    pub fn start(&mut self, at: Instant, question: bool) {
        self.doing = Doing::Asked;
        if question {
            self.started = Some(at);
            self.test_begun = false;
        }
    }

    /// All log pages are to be read this time.
    pub fn wants_whole(&self, at: Instant) -> bool {
        self.learned.whole_due.is_none_or(|due| due <= at)
    }

    /// The question has ended with this. `whole`: with all log pages.
    pub fn answered(
        &mut self,
        answer: &Answer,
        whole: bool,
        settings: &SmartSettings,
        at: Instant,
    ) {
        self.doing = Doing::Nothing;
        self.round += 1;
        self.hung = matches!(answer, Answer::TimedOut { .. });
        match answer {
            Answer::Told(report) => {
                self.troubles = 0;
                self.testing &= report.self_tests.running.is_some();
                if whole {
                    self.learned.quick = Read::between(&report.body);
                    self.learned.serial.clone_from(&report.identity.serial);
                    self.learned.whole_due = Some(at + settings.slow_interval);
                    self.learned.whole_hangs = 0;
                }
            }
            Answer::Asleep { .. } | Answer::NotApplicable { .. } => {
                self.troubles = 0;
                self.testing = false;
            }
            Answer::Failed { .. } | Answer::TimedOut { .. } => {
                self.troubles = self.troubles.saturating_add(1);
                if whole {
                    // Perhaps only one of its slow pages hangs: the others go on being read.
                    self.learned.whole_due = Some(at + SLOW_AGAIN.min(settings.slow_interval));
                }
            }
        }
        let base = self.interval(settings);
        let wait = match answer {
            Answer::Told(_) if self.testing => WHILE_TESTING.min(base),
            Answer::NotApplicable { .. } => NOT_APPLICABLE.max(base),
            Answer::Failed { .. } | Answer::TimedOut { .. } => self.back_off(base),
            Answer::Told(_) | Answer::Asleep { .. } => base,
        };
        // What came while it hung came of that.
        self.due = if std::mem::take(&mut self.again) && !self.hung {
            at
        } else {
            self.started.unwrap_or(at) + wait
        };
    }

    /// All log pages were not read in their time. The drive is asked again at once for the quick
    /// ones alone: only if it does not answer those either does it not answer.
    pub fn without_slow_pages(&mut self, settings: &SmartSettings, at: Instant) {
        self.doing = Doing::Nothing;
        self.again = false;
        self.hung = true;
        self.put_off_whole(settings, at);
        self.due = at;
    }

    /// All log pages have their next turn a `slow_interval` later, and ever later while they hang:
    /// each time the kernel counts a time-out, which would come to stand against a drive that is
    /// well.
    fn put_off_whole(&mut self, settings: &SmartSettings, at: Instant) {
        let longest = LONGEST_WITHOUT_WHOLE.max(settings.slow_interval);
        let wait = settings
            .slow_interval
            .saturating_mul(1 << self.learned.whole_hangs.min(12))
            .min(longest);
        self.learned.whole_hangs = self.learned.whole_hangs.saturating_add(1);
        self.learned.whole_due = Some(at + wait);
    }

    fn back_off(&self, base: Duration) -> Duration {
        base.saturating_mul(1 << self.troubles.min(12))
            .min(LONGEST_BACK_OFF.max(base))
    }

    /// What is read of it between two whole readings; for NVMe there is nothing slow to leave out.
    pub fn quick(&self) -> Read {
        match (self.learned.quick, self.target.transport) {
            (Some(read), _) => read,
            (None, Transport::Sata | Transport::Usb) => Read::Ata,
            (None, Transport::Sas | Transport::Scsi) => Read::Scsi,
            (None, _) => Read::Whole,
        }
    }

    /// smartctl hangs and cannot be killed. `whole`: while it read all log pages.
    pub fn stuck(&mut self, since: Timestamp, whole: bool, settings: &SmartSettings, at: Instant) {
        self.doing = Doing::Stuck { since };
        self.hung = true;
        self.round += 1;
        self.troubles = self.troubles.saturating_add(1);
        let quick_is_left = whole && self.quick() != Read::Whole;
        if whole {
            self.put_off_whole(settings, at);
        }
        // The quick pages may well answer.
        let wait = if quick_is_left {
            Duration::ZERO
        } else {
            self.back_off(self.interval(settings))
        };
        self.due = self.started.unwrap_or(at) + wait;
    }

    /// What was stuck has gone. When the drive is asked again was said when it hung.
    pub fn freed(&mut self) {
        self.doing = Doing::Nothing;
        self.again = false;
    }

    /// It could not be asked for a reason that is not the drive's: as if nobody had.
    pub fn unasked(&mut self, at: Instant) {
        self.doing = Doing::Nothing;
        self.started = None;
        self.due = at;
    }

    /// A self-test was started, or refused.
    pub fn tested(&mut self, begun: bool, at: Instant) {
        self.doing = Doing::Nothing;
        self.again = false;
        self.testing |= begun;
        self.test_begun = begun;
        self.due = if begun { at + AFTER_TEST } else { at };
    }

    fn interval(&self, settings: &SmartSettings) -> Duration {
        let base = if self.target.suspect {
            settings.suspect_interval
        } else {
            settings.interval
        };
        jitter(base, self.target.drive.as_str(), self.round)
    }
}

/// Within 10 % of `base`, the same for the same drive and round.
pub fn jitter(base: Duration, drive: &str, round: u64) -> Duration {
    // Folded: the hash's low bits alone are poor.
    let hash = fnv1a_64(drive.bytes().chain(round.to_le_bytes()));
    let thousandths = 1000 - JITTER + (hash ^ hash >> 32) % (2 * JITTER + 1);
    base.mul_f64(f64::from(u32::try_from(thousandths).unwrap_or(1000)) / 1000.0)
}
