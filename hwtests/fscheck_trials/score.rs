//! The table of results, and the goals.

use diskvitals_fscheck::Filesystem;

use crate::check_command::{Answer, VERDICTS, Verdict};
use crate::support::offline::OfflineResult;
use crate::trial::Outcome;
use crate::write_detection::WriteTrace;

/// The percentage of damaged filesystems that must be detected with frozen runs allowed.
const DETECTED_PERCENT: f64 = 95.0;

#[derive(Default)]
pub struct Score {
    pub outcomes: Vec<Outcome>,
    pub write_traces: Vec<WriteTrace>,
    /// Trials that could not be run.
    pub broken: Vec<String>,
}

impl Score {
    /// Returns whether every goal is met. For a sample the percentages are shown and do not count:
    /// one of six is no percentage, and on a busy machine runs exceed the time for which writers
    /// may be held. Wrong verdicts always count.
    pub fn print(&self, filesystems: &[Filesystem], sample: bool) -> bool {
        println!(
            "\n{:<44} {:>6} {:>9} {:>9} {:>12} {:>6} {:>7}",
            "", "CLEAN", "SUSPECTED", "CORRUPTED", "INCONCLUSIVE", "FAILED", "NOTHING"
        );
        for filesystem in filesystems {
            let name = filesystem.name();
            let of = |damaged: bool| {
                self.outcomes.iter().filter(move |outcome| {
                    outcome.filesystem == *filesystem && outcome.damage.is_some() == damaged
                })
            };
            row(
                &format!("{name}, healthy, under load: live"),
                of(false).filter_map(|outcome| outcome.live.as_ref()),
            );
            row(
                &format!("{name}, healthy, under load: frozen"),
                of(false).map(|outcome| &outcome.frozen),
            );
            row(
                &format!("{name}, damaged: live"),
                of(true).filter_map(|outcome| outcome.live.as_ref()),
            );
            row(
                &format!("{name}, damaged: frozen"),
                of(true).filter(|outcome| outcome.live.is_some()).map(|outcome| &outcome.frozen),
            );
            row(
                &format!("{name}, damaged: unmounted"),
                of(true).filter(|outcome| outcome.live.is_none()).map(|outcome| &outcome.frozen),
            );
        }
        println!();
        let mut good = true;
        for filesystem in filesystems {
            good &= self.goals(*filesystem, sample);
        }
        let touched = self.write_traces.iter().filter(|trace| !trace.is_untouched()).count();
        good &=
            at_most("modes_in_which_something_was_written", touched, self.write_traces.len(), 0);
        good &= at_most(
            "trials_that_could_not_be_made",
            self.broken.len(),
            self.broken.len() + self.outcomes.len(),
            0,
        );
        for broken in &self.broken {
            println!("# {broken}");
        }
        good
    }

    fn goals(&self, filesystem: Filesystem, sample: bool) -> bool {
        let name = filesystem.name();
        let healthy: Vec<&Outcome> = self.of(filesystem, |outcome| outcome.damage.is_none());
        let damaged: Vec<&Outcome> = self.of(filesystem, Outcome::is_damaged);
        let healed =
            self.of(filesystem, |outcome| outcome.damage.is_some() && !outcome.is_damaged());
        let mut good = true;
        if !healthy.is_empty() {
            let frozen = healthy
                .iter()
                .filter(|outcome| {
                    matches!(outcome.frozen.verdict, Verdict::Suspected | Verdict::Corrupted)
                })
                .count();
            good &= at_most(
                &format!("{name}_healthy_frozen_suspected_or_corrupted"),
                frozen,
                healthy.len(),
                0,
            );
            let live = healthy
                .iter()
                .filter(|outcome| {
                    outcome.live.as_ref().is_some_and(|live| live.verdict == Verdict::Corrupted)
                })
                .count();
            good &= at_most(&format!("{name}_healthy_live_corrupted"), live, healthy.len(), 0);
            // Otherwise a checker that never runs would score well.
            let clean =
                healthy.iter().filter(|outcome| outcome.frozen.verdict == Verdict::Clean).count();
            good &= at_least(&format!("{name}_healthy_frozen_clean"), clean, healthy.len(), 90.0)
                || sample;
            let sick =
                healthy.iter().filter(|outcome| outcome.after != OfflineResult::Clean).count();
            good &= at_most(&format!("{name}_healthy_not_clean_offline"), sick, healthy.len(), 0);
        }
        if !damaged.is_empty() {
            let detected = damaged
                .iter()
                .filter(|outcome| outcome.frozen.verdict == Verdict::Corrupted)
                .count();
            good &= at_least(
                &format!("{name}_damaged_corrupted"),
                detected,
                damaged.len(),
                DETECTED_PERCENT,
            ) || sample;
            let missed =
                damaged.iter().filter(|outcome| outcome.frozen.verdict == Verdict::Clean).count();
            println!(
                "# {name}: CLEAN of {missed} damaged ones; {} were healed by being mounted, written to or unmounted",
                healed.len()
            );
        }
        let wrong = self
            .of(filesystem, |outcome| outcome.damage.is_none() && outcome.has(Verdict::Corrupted));
        good &= at_most(
            &format!("{name}_wrong_corrupted"),
            wrong.len(),
            healthy.len() + damaged.len(),
            0,
        );
        good
    }

    fn of(&self, filesystem: Filesystem, suits: impl Fn(&Outcome) -> bool) -> Vec<&Outcome> {
        self.outcomes
            .iter()
            .filter(|outcome| outcome.filesystem == filesystem && suits(outcome))
            .collect()
    }
}

fn row<'a>(name: &str, answers: impl Iterator<Item = &'a Answer>) {
    let answers: Vec<&Answer> = answers.collect();
    if answers.is_empty() {
        return;
    }
    let count =
        |verdict: Verdict| answers.iter().filter(|answer| answer.verdict == verdict).count();
    let [clean, suspected, corrupted, inconclusive, failed, nothing] = VERDICTS.map(count);
    println!(
        "{name:<44} {clean:>6} {suspected:>9} {corrupted:>9} {inconclusive:>12} {failed:>6} {nothing:>7}"
    );
}

fn at_most(name: &str, count: usize, of: usize, most: usize) -> bool {
    let good = count <= most;
    println!("{name} {count} of_{of} <={most} {}", pass_mark(good));
    good
}

fn at_least(name: &str, count: usize, of: usize, percent: f64) -> bool {
    let share = 100.0 * count as f64 / of as f64;
    let good = share >= percent;
    println!("{name} {share:.1} % >={percent} {} ({count} of {of})", pass_mark(good));
    good
}

fn pass_mark(good: bool) -> &'static str {
    if good { "ok" } else { "SHORT" }
}

/// As soon as it is known.
pub fn print_outcome(outcome: &Outcome) {
    let what = outcome
        .damage
        .as_ref()
        .map_or("healthy".to_owned(), |damage| format!("{}: {}", damage.kind, damage.what));
    println!("{} {} {what}", outcome.filesystem.name(), outcome.state.name());
    for (name, answer) in outcome
        .live
        .iter()
        .map(|live| ("live", live))
        .chain([("frozen runs allowed", &outcome.frozen)])
    {
        println!(
            "    {name}: {:?} {} ({} runs, {:.1} s) {}",
            answer.verdict,
            answer.mode,
            answer.runs,
            answer.took.as_secs_f64(),
            answer.reason
        );
    }
    if let Some(why) = outcome.damage.as_ref().and_then(|damage| damage.unmounted.as_ref()) {
        println!("    not mounted: {why}");
    }
    let written = &outcome.written;
    if written.operations > 0 || written.errors > 0 {
        let stuck = if written.stuck > 0 {
            format!(", {} writers stuck", written.stuck)
        } else {
            String::new()
        };
        println!(
            "    {} operations, {} refused, the longest {:.2} s{stuck}",
            written.operations,
            written.errors,
            written.longest.as_secs_f64()
        );
    }
    match (&outcome.damage, &outcome.after) {
        (None, OfflineResult::Clean) | (Some(_), OfflineResult::Damaged(_)) => {}
        (_, after) => println!("    afterwards the offline checker says: {after:?}"),
    }
}

pub fn print_writes(trace: &WriteTrace) {
    let changed = match trace.changed {
        None => "not compared",
        Some(true) => "CHANGED",
        Some(false) => "the same",
    };
    let device =
        trace.device_sectors.map_or("not compared".to_owned(), |sectors| sectors.to_string());
    println!(
        "{} {}: {:?} {}; digest {changed}, sectors written to the device {device}, to {} devices of the checker {}",
        trace.filesystem.name(),
        trace.mode,
        trace.answer.verdict,
        trace.answer.reason,
        trace.own_loops,
        trace.own_sectors
    );
}
