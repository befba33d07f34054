//! Reports to the owner: the progress and the end of each check, and the source's own status.

use std::sync::Arc;

use tokio::time::Instant;

use crate::checks::backend::Backend;
use crate::checks::progress::{TaskProgress, differs_only_in_phase};
use crate::checks::queue::{Stage, failed_outcome};
use crate::checks::tools::AvailableTools;
use crate::checks::{CheckSource, PHASE_INTERVAL};
use crate::context::SourceError;
use diskvitals_finding::ids::CheckId;
use diskvitals_fscheck::decision::CheckOutcome;
use diskvitals_fscheck::{CheckProgress, CheckState, FilesystemSignal, Run};
use diskvitals_host::clock::now;
use diskvitals_model::source_update::{SourceStatus, SourceUpdate};

impl<W: Backend> CheckSource<W> {
    /// Ends a check that has made no run, or whose task was lost.
    pub(super) async fn finish(
        &mut self,
        id: &CheckId,
        outcome: CheckOutcome,
    ) -> Result<(), SourceError> {
        let Some(check) = self.queue.checks.get(id) else {
            return Ok(());
        };
        let runs = match &check.stage {
            Stage::Queued { .. } => Vec::new(),
            Stage::Active { .. } => self
                .progress
                .borrow()
                .get(id)
                .map(|progress| progress.runs.clone())
                .unwrap_or_default(),
        };
        let signals = check.desired.signals.clone();
        self.finish_with(id, outcome, runs, signals).await
    }

    pub(super) async fn finish_with(
        &mut self,
        id: &CheckId,
        outcome: CheckOutcome,
        runs: Vec<Arc<Run>>,
        signals: Vec<FilesystemSignal>,
    ) -> Result<(), SourceError> {
        self.queue.checks.remove(id);
        self.progress.send_modify(|all| drop(all.remove(id)));
        // The check must not start again before the owner has removed it from its list.
        if self.context.checks.borrow().iter().any(|wanted| wanted.id == *id) {
            self.queue.finished.insert(id.clone());
        }
        let progress = CheckProgress {
            id: id.clone(),
            at: now(),
            state: CheckState::Ended,
            runs,
            signals,
            outcome: Some(outcome),
        };
        self.context.report(SourceUpdate::Check(Box::new(progress))).await
    }

    /// Ends queued checks that cannot run: no checker program, or a stuck checker on the
    /// filesystem.
    pub(super) async fn finish_impossible(
        &mut self,
        tools: &AvailableTools,
    ) -> Result<(), SourceError> {
        let queued = self.queue.checks.iter().filter(|(_, check)| !check.is_active());
        let ending: Vec<(CheckId, CheckOutcome)> = queued
            .filter_map(|(id, check)| {
                let target = &check.desired.target;
                let absent = || {
                    tools
                        .checker(target.filesystem)
                        .err()
                        .map(|why| failed_outcome(why, target.mode))
                };
                Some((id.clone(), self.queue.stuck_outcome(target).or_else(absent)?))
            })
            .collect();
        for (id, outcome) in ending {
            self.finish(&id, outcome).await?;
        }
        Ok(())
    }

    /// Reports the changes of each check. Returns when a change that was held back is due.
    pub(super) async fn report_progress(
        &mut self,
        at: Instant,
    ) -> Result<Option<Instant>, SourceError> {
        let mut held_back: Option<Instant> = None;
        let mut news = Vec::new();
        for (id, check) in &self.queue.checks {
            let current = match &check.stage {
                Stage::Queued { .. } => TaskProgress {
                    state: CheckState::Queued {
                        why: self.queue.queued_reason(
                            id,
                            check,
                            self.cleaned_up && self.tools.is_some(),
                        ),
                    },
                    runs: Vec::new(),
                    signals: check.desired.signals.clone(),
                },
                Stage::Active { .. } => match self.progress.borrow().get(id) {
                    Some(progress) => progress.clone(),
                    None => continue,
                },
            };
            match &check.last_reported {
                Some(before) if *before == current => {}
                Some(before)
                    if differs_only_in_phase(before, &current)
                        && at < check.last_reported_at + PHASE_INTERVAL =>
                {
                    let due = check.last_reported_at + PHASE_INTERVAL;
                    held_back = Some(held_back.map_or(due, |other| other.min(due)));
                }
                Some(_) | None => news.push((id.clone(), current)),
            }
        }
        for (id, progress) in news {
            let Some(check) = self.queue.checks.get_mut(&id) else {
                continue;
            };
            (check.last_reported, check.last_reported_at) = (Some(progress.clone()), at);
            let TaskProgress { state, runs, signals } = progress;
            let progress = CheckProgress { id, at: now(), state, runs, signals, outcome: None };
            self.context.report(SourceUpdate::Check(Box::new(progress))).await?;
        }
        Ok(held_back)
    }

    pub(super) async fn report_status(&mut self) -> Result<(), SourceError> {
        let Some(tools) = &self.tools else {
            return Ok(());
        };
        let status = match (tools.status(), self.queue.stuck.len()) {
            (status, 0) => status,
            (SourceStatus::Active(text) | SourceStatus::Limited(text), stuck) => {
                SourceStatus::Limited(format!("{text}; {stuck} checkers hang and cannot be killed"))
            }
            (status, _) => status,
        };
        self.status_reporter.report(&self.context, status).await
    }
}
