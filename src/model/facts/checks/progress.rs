//! The progress of a check, and the events that invalidate its result: a filesystem that changed,
//! or a device that failed during the check.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::facts::checks::{mounts, target};
use crate::facts::{Facts, Urgency};
use diskvitals_finding::Subject;
use diskvitals_fscheck::{Check, CheckProgress, CheckState, CheckVerdict, Mode, RunResult};
use diskvitals_kernel_log::event::Class;
use diskvitals_text::echo::truncate;

impl Facts {
    pub(in crate::facts) fn apply_check_progress(&mut self, progress: CheckProgress) -> Urgency {
        if self.checks.by_id.get(&progress.id).is_none_or(|check| check.is_over()) {
            return Urgency::Nothing;
        }
        self.set_checked_uuid(&progress);
        let Some(known) = self.checks.by_id.get(&progress.id) else {
            return Urgency::Nothing;
        };
        let moved =
            (known.target.mode != Mode::Live).then(|| self.changed_since_start(known)).flatten();
        let failed =
            progress.outcome.is_some().then(|| self.read_error_during(known, &progress)).flatten();
        let Some(check) = self.checks.by_id.get_mut(&progress.id) else {
            return Urgency::Nothing;
        };
        let check = Arc::make_mut(check);
        let begun = !matches!(progress.state, CheckState::Queued { .. });
        if begun && check.started.is_none() {
            check.started = Some(progress.at);
        }
        let before = (check.state.clone(), check.runs.len());
        check.state = progress.state;
        check.runs = progress.runs;
        check.signals = progress.signals;
        if let Some(mode) = check.runs.iter().map(|run| run.mode).max() {
            check.mode = mode;
        }
        if let Some(outcome) = progress.outcome {
            check.state = CheckState::Ended;
            check.ended = Some(progress.at);
            check.mode = outcome.mode;
            (check.verdict, check.reason) = (Some(outcome.verdict), outcome.reason);
            // Findings in a mode without changes count only if nothing changed.
            if let Some(why) = moved.filter(|_| {
                outcome.mode.is_quiescent()
                    && outcome.mode != Mode::Snapshot
                    && outcome.verdict != CheckVerdict::Failed
            }) {
                check.verdict = Some(CheckVerdict::Inconclusive);
                check.reason = format!("{why} while it was checked: check it again");
            }
            if let Some(why) = failed
                .filter(|_| outcome.verdict == CheckVerdict::Corrupted && check.signals.is_empty())
            {
                check.verdict = Some(CheckVerdict::Inconclusive);
                check.reason = why;
            }
            let id = check.id.clone();
            self.checks.baselines.remove(&id);
            return Urgency::Immediate;
        }
        if before == (check.state.clone(), check.runs.len()) {
            Urgency::Nothing
        } else {
            Urgency::Coalesce
        }
    }

    fn set_checked_uuid(&mut self, progress: &CheckProgress) {
        let runs = progress.runs.iter().rev();
        let Some(uuid) = runs.filter_map(|run| run.filesystem_uuid.clone()).next() else {
            return;
        };
        self.checks.set_uuid(&progress.id, &uuid);
        let target = self.checks.by_id.get(&progress.id);
        if let Some(target) = target.map(|check| check.target.clone())
            && target.mode == Mode::Unmounted
        {
            self.set_superblock_uuid(&target.device, target.dev, &uuid, progress.at);
        }
    }

    /// An underlying device failed reads during a run of the checker: the findings may come from
    /// unreadable data.
    fn read_error_during(&self, check: &Check, progress: &CheckProgress) -> Option<String> {
        let runs = progress.runs.iter().filter(|run| run.result == RunResult::Findings);
        let begun = runs.map(|run| run.started).min()?;
        let target = &check.target;
        let volume = target.volume.clone().map(Subject::Volume);
        let drives = target.drives.iter().cloned().map(Subject::Drive);
        let subjects = drives.chain(volume).chain([Subject::Device(target.device.clone())]);
        let classes = [Class::Io, Class::Medium, Class::Timeout];
        let last = subjects
            .flat_map(|subject| classes.map(|class| self.tally(&subject, class)))
            .flatten()
            .map(|tally| &tally.last)
            .find(|line| line.time >= begun)?;
        let text = truncate(&last.text, 200);
        Some(format!(
            "the device failed while it was read, so what was found proves nothing: {text}. See to the drive first, then check again"
        ))
    }

    /// How the filesystem has changed since the check was requested. None if the tables cannot be
    /// read, since the state is unknown then.
    pub(super) fn changed_since_start(&self, check: &Check) -> Option<String> {
        if self.mounts.value().is_none() || self.inventory.value().is_none() {
            return None;
        }
        let target = &check.target;
        if self.device(&target.device).is_none_or(|device| device.dev != target.dev) {
            return Some(format!("{} went away", target.device));
        }
        let on_it = || {
            self.volumes.values().find(|known| {
                known.facts.device.as_ref() == Some(&target.device)
                    && !known.facts.mounts.is_empty()
            })
        };
        let volume = target.volume.as_ref().map_or_else(on_it, |id| self.volumes.get(id));
        let now = volume.map(|known| (mounts(known), target::mode(known)));
        let (mounted, mode) = now.unwrap_or((BTreeSet::new(), Mode::Unmounted));
        let watched = self.checks.baselines.get(&check.id)?;
        if let Some(gone) = watched.mounts.iter().find(|path| !mounted.contains(*path)) {
            return Some(format!("{gone} was unmounted"));
        }
        (mode != target.mode).then(|| match (target.mode, mode) {
            (Mode::Unmounted, _) => "it was mounted".to_owned(),
            (_, Mode::Live) => "it was made writable".to_owned(),
            (_, mode) => format!("it is {} now", mode.name()),
        })
    }
}
