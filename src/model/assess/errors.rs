//! Rules about drives from what the kernel's log has said of them. One incident is a suspicion;
//! repetition is a verdict.
//!
//! How bad it is follows from the record of incidents alone, as of the latest of them; time only
//! ends it. So the same log gives the same verdict whenever it is read.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::assess::text::{evidence, join_limited, raised, unknown};
use crate::model::drive::DriveKind;
use crate::model::facts::{Facts, KnownDrive, elapsed};
use crate::model::finding::{Evidence, Severity, Status, Subject, Verdict};
use crate::model::kernel_log::error_history::{ErrorHistory, ErrorTally};
use crate::model::kernel_log::event::{Blame, Class, Line};
use crate::model::policy::{ErrorPolicy, Policy};

/// One drive with the incidents that the kernel log attributes to it.
pub(crate) struct DriveErrorRules<'a> {
    facts: &'a Facts,
    known: &'a KnownDrive,
    history: Option<&'a ErrorHistory>,
    policy: &'a ErrorPolicy,
    now: Timestamp,
}

impl<'a> DriveErrorRules<'a> {
    pub(crate) fn new(
        facts: &'a Facts,
        known: &'a KnownDrive,
        policy: &'a Policy,
        now: Timestamp,
    ) -> Self {
        DriveErrorRules {
            facts,
            known,
            history: facts.errors(&Subject::Drive(known.facts.id.clone())),
            policy: &policy.errors,
            now,
        }
    }

    fn tally(&self, class: Class) -> Option<&'a ErrorTally> {
        self.history?.get(class)
    }

    /// The drive's own word that its medium or hardware failed (SPC-6 sense keys 3 and 4, ATA UNC,
    /// NVMe status code type 2). SUSPECT from one incident. BAD: a sector that failed again in
    /// another attempt, `bad_sectors` distinct sectors, or `bad_episodes` episodes, within `window`
    /// of the latest. Where the word is weak (an address not found, a protection tag), only
    /// `bad_timeouts` episodes. What the drive or redundancy put right does not make it BAD. Clears
    /// after `quiet_after` (BAD: `bad_quiet_after`) without another, while the log was heard
    /// without a gap.
    pub(crate) fn media_errors(&self) -> Option<Verdict> {
        let Some(tally) = self.tally(Class::Medium) else {
            return Some(Verdict::Clear);
        };
        let (severity, why) = self.severity_of(tally, self.policy.bad_episodes);
        let episodes = tally.episodes_within(self.policy.window);
        // What an address beyond the end, a protection tag or a target in software may also say,
        // says little; often is another matter.
        let weak = !is_confirmed_by_drive(self.known, tally)
            && episodes < self.policy.bad_timeouts as usize;
        let (severity, why) = if weak {
            (Severity::Suspect, None)
        } else {
            (severity, why)
        };
        self.raised(tally, severity, "could not read or write its medium", why)
    }

    /// Errors of the block layer whose cause no record names. As media errors; a drive that is
    /// reached over a network is SUSPECT at most, since the way to it is the likelier cause. What
    /// fails while a drive is being lost is told by DriveMissing.
    pub(crate) fn io_errors(&self) -> Option<Verdict> {
        let Some(tally) = self.tally(Class::Io) else {
            return Some(Verdict::Clear);
        };
        if self.coincides_with_removal(tally) {
            return Some(Verdict::Clear);
        }
        let (severity, why) = self.severity_of(tally, self.policy.bad_episodes);
        let severity = if self.may_be_transport(tally) {
            Severity::Suspect
        } else {
            severity
        };
        self.raised(tally, severity, "failed reads or writes", why)
    }

    /// Commands that were not answered. SUSPECT from one incident; BAD from `bad_timeouts` episodes
    /// within `window`, and never over a network.
    pub(crate) fn timeouts(&self) -> Option<Verdict> {
        let Some(tally) = self.tally(Class::Timeout) else {
            return Some(Verdict::Clear);
        };
        let episodes = tally.episodes_within(self.policy.window);
        let bad = episodes >= self.policy.bad_timeouts as usize && !self.may_be_transport(tally);
        let severity = if bad {
            Severity::Bad
        } else {
            Severity::Suspect
        };
        self.raised(
            tally,
            severity,
            "did not answer commands in time",
            bad.then(|| format!("in {episodes} episodes")),
        )
    }

    /// Resets of the drive, its link or its controller. SUSPECT at most, since a cable, a power
    /// supply or an adapter does this to a good drive.
    pub(crate) fn resets(&self) -> Option<Verdict> {
        self.suspect_at_most(Class::Reset, "was reset")
    }

    /// Transfers that were damaged on the link. SUSPECT at most, for the same reason.
    pub(crate) fn link_errors(&self) -> Option<Verdict> {
        self.suspect_at_most(Class::Transport, "had errors on its link")
    }

    fn suspect_at_most(&self, class: Class, what: &str) -> Option<Verdict> {
        let Some(tally) = self.tally(class) else {
            return Some(Verdict::Clear);
        };
        self.raised(tally, Severity::Suspect, what, None)
    }

    fn severity_of(&self, tally: &ErrorTally, bad_episodes: u32) -> (Severity, Option<String>) {
        if tally.last_uncorrected.is_none() {
            return (Severity::Suspect, Some("all of them corrected".to_owned()));
        }
        let window = self.policy.window;
        if let Some(place) = tally.repeatedly_failed_sector(window) {
            return (
                Severity::Bad,
                Some(format!(
                    "sector {} of {} failed again",
                    place.sector, place.device
                )),
            );
        }
        let places = tally.sectors_within(window);
        if places >= u64::from(self.policy.bad_sectors) {
            return (Severity::Bad, Some(format!("at {places} distinct sectors")));
        }
        let episodes = tally.episodes_within(window);
        if episodes >= bad_episodes as usize {
            return (Severity::Bad, Some(format!("in {episodes} episodes")));
        }
        (Severity::Suspect, None)
    }

    /// Something between the drive and the host is known, or more likely, to have caused it.
    fn may_be_transport(&self, tally: &ErrorTally) -> bool {
        tally.blame == Blame::No || self.known.facts.transport.is_remote()
    }

    /// The last error came with the drive's going: within a minute before, or after.
    fn coincides_with_removal(&self, tally: &ErrorTally) -> bool {
        let began = tally.episodes.last().copied().unwrap_or(tally.first.time);
        self.known
            .missing_since
            .is_some_and(|since| elapsed(began, since) <= Duration::from_secs(60) || began >= since)
    }

    fn raised(
        &self,
        tally: &ErrorTally,
        severity: Severity,
        what: &str,
        why: Option<String>,
    ) -> Option<Verdict> {
        let why = why.map(|why| format!(", {why}")).unwrap_or_default();
        raised_until_quiet(
            self.facts,
            self.policy,
            tally,
            severity,
            &format!("{} {what}{why}", name(self.known)),
            self.now,
        )
    }
}

/// Raised with all that was told, until nothing more has been told for as long as this severity
/// asks.
pub(crate) fn raised_until_quiet(
    facts: &Facts,
    policy: &ErrorPolicy,
    tally: &ErrorTally,
    severity: Severity,
    what: &str,
    now: Timestamp,
) -> Option<Verdict> {
    let patience = policy.quiet_period(severity);
    if let Some(over) = quiet_verdict(facts, tally, patience, now) {
        return over;
    }
    let message = format!("{what}: {}", summarize(tally));
    raised(
        severity,
        Status::Degraded,
        message,
        log_evidence(tally),
        &clears_when(patience),
        Some(tally.first.time),
    )
}

/// As messages name it; a missing drive has no kernel name.
pub(crate) fn name(known: &KnownDrive) -> String {
    match known.missing_since {
        None => format!("drive {} ({})", known.facts.id, known.facts.name),
        Some(_) => format!("drive {}", known.facts.id),
    }
}

/// The drive's own word, or that of what plays the drive: a hypervisor's disk has nobody else to
/// say it.
pub(crate) fn is_confirmed_by_drive(known: &KnownDrive, tally: &ErrorTally) -> bool {
    tally.blame == Blame::Yes || known.facts.kind == DriveKind::Virtual
}

/// Seen to be over, or not to be told: `None` while it is not over.
pub(crate) fn quiet_verdict(
    facts: &Facts,
    tally: &ErrorTally,
    patience: Duration,
    now: Timestamp,
) -> Option<Option<Verdict>> {
    if elapsed(tally.last.time, now) < patience {
        return None;
    }
    match facts.kernel.quiet_since(tally.last.time) {
        Some(since) if elapsed(since, now) >= patience => Some(Some(Verdict::Clear)),
        Some(_) => Some(unknown("kernel log records were lost meanwhile")),
        None => Some(unknown("the kernel log cannot be read")),
    }
}

/// `3 incidents (12 records) …, sectors 2048, 4096`.
pub(crate) fn summarize(tally: &ErrorTally) -> String {
    let more = if tally.suppressed > 0 {
        format!(
            ", and at least {} that the kernel did not print",
            tally.suppressed
        )
    } else {
        String::new()
    };
    let times = match tally.incidents {
        1 => "1 incident".to_owned(),
        n => format!("{n} incidents"),
    };
    let records = match tally.records {
        1 => "1 record".to_owned(),
        n => format!("{n} records"),
    };
    let places = match tally.sectors.as_slice() {
        [] => String::new(),
        [place] => format!("; sector {} of {}", place.sector, place.device),
        places => {
            let others = if tally.more_sectors > 0 {
                " and elsewhere"
            } else {
                ""
            };
            format!(
                "; sectors {}{others}",
                join_limited(places.iter().map(|place| place.sector))
            )
        }
    };
    format!(
        "{times} in {records}{more}, last at {}{places}",
        tally.last.time
    )
}

/// The first record and the last.
pub(crate) fn log_evidence(tally: &ErrorTally) -> Vec<Evidence> {
    let told = |line: &Line| evidence(line.origin.name(), line.time, &line.text);
    if tally.first == tally.last {
        vec![told(&tally.first)]
    } else {
        vec![told(&tally.first), told(&tally.last)]
    }
}

pub(crate) fn clears_when(patience: Duration) -> String {
    format!("no such error is logged for {}", format_duration(patience))
}

fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        _ if seconds > 0 && seconds.is_multiple_of(86_400) => format!("{} d", seconds / 86_400),
        _ if seconds > 0 && seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        _ if seconds > 0 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        _ => format!("{seconds} s"),
    }
}
