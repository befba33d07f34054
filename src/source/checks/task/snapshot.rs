//! A run on an LVM snapshot: the origin's writers are held only while LVM makes the snapshot.

use std::sync::Arc;

use tokio::time::Instant;

use crate::checks::backend::Backend;
use crate::checks::lvm_snapshot::{LvmSnapshotError, LvmSnapshotRequest};
use crate::checks::task::{Abort, CheckTask, failed_run};
use diskvitals_fscheck::{Mode, RunResult, Termination};
use diskvitals_text::causes::with_causes;

impl<W: Backend> CheckTask<W> {
    pub(super) async fn snapshot_run(&mut self) -> Result<(), Abort> {
        let (Some((group, volume)), Some(lvm)) =
            (self.desired.target.logical_volume.clone(), self.inputs.lvm.clone())
        else {
            self.snapshot_unavailable = true;
            return Ok(());
        };
        let started = self.clock.now();
        let began = Instant::now();
        // LVM suspends the writers while it creates a snapshot: the same conditions apply as for a
        // freeze.
        if let Some(mount) = self.desired.target.mount.clone() {
            let dev = self.desired.target.mountinfo_dev();
            if let Err(error) = self.probe_syncfs("snapshot", mount, dev).await? {
                tracing::info!(check = %self.desired.id, %error, "no snapshot is made");
                self.snapshot_unavailable = true;
                return Ok(());
            }
            if self.has_signals() {
                return Ok(());
            }
        }
        self.set_phase(format!("making a snapshot of {group}/{volume}"));
        let request = LvmSnapshotRequest {
            check: self.desired.id.clone(),
            group,
            volume,
            filesystem: self.desired.target.filesystem,
            lvm,
        };
        let backend = self.backend.clone();
        let snapshot = match self.or_cancelled(Box::pin(backend.snapshot(request))).await? {
            Ok(snapshot) => snapshot,
            Err(LvmSnapshotError::Refused(error)) => {
                tracing::info!(check = %self.desired.id, %error, "no snapshot is made");
                self.snapshot_unavailable = true;
                return Ok(());
            }
            Err(LvmSnapshotError::Damaged(signal)) => {
                self.own_signals.push(*signal);
                return Ok(());
            }
            Err(error) => {
                let why = with_causes(&error);
                self.snapshot_unavailable = true;
                self.record_run(failed_run(
                    Mode::Snapshot,
                    started,
                    began.elapsed(),
                    Termination::NotStarted(why.clone()),
                    why,
                ));
                return Ok(());
            }
        };
        let before = self.runs.len();
        let device = backend.device_of(&snapshot);
        let result = Box::pin(self.run_checker(Mode::Snapshot, device)).await;
        if result.is_ok()
            && let Some(why) = Box::pin(backend.overflow_reason(&snapshot)).await
        {
            for run in self.runs.iter_mut().skip(before) {
                let run = Arc::make_mut(run);
                run.result = RunResult::Failed;
                run.failure_reason.clone_from(&why);
            }
        }
        self.set_phase("removing the snapshot".to_owned());
        // A checker that was killed keeps the device busy for a moment.
        self.collect_orphans().await;
        Box::pin(backend.remove(snapshot)).await;
        result
    }
}
