//! Detachments while the records of volumes are not read: the pool's disk may be dead, and the pods on it
//! must end nevertheless. Such a volume is not among the actor's volumes, because its records, once they
//! are read, are the truth. Until its detachment ends, nothing else begins on it.

use tokio::sync::watch;

use crate::engine::actor::{Actor, TaskResult, VolumeEntry};
use crate::engine::job::{Reply, Request, VolumeJob};
use crate::engine::request::Response;
use crate::engine::step_context::StepContext;
use crate::engine::unrecorded;
use crate::engine::volume::Volume;
use crate::error::ProvisionError;
use crate::step::StepExecutor;

impl<S: StepExecutor> Actor<S> {
    /// The reply is returned if the request is no detachment, or if only a record could tell whose the
    /// handle is.
    pub(super) fn detach_unrecorded(
        &mut self,
        request: Request,
        reply: Reply,
        why: &str,
    ) -> Result<(), Reply> {
        let (handle, job) = match request {
            Request::Operation(handle, job) if job.is_detachment() => (handle, job),
            _ => return Err(reply),
        };
        if let Some(activity) = self.unrecorded.get(&handle) {
            // The caller may have stopped waiting.
            let _ = reply.send(Err(busy(&handle, activity)));
            return Ok(());
        }
        match unrecorded::volume(&self.settings(), &handle, why) {
            Some(volume) => {
                self.start_unrecorded(volume, job, reply);
                Ok(())
            }
            None => Err(reply),
        }
    }

    fn start_unrecorded(&mut self, mut volume: Volume, job: VolumeJob, reply: Reply) {
        let handle = volume.handle.clone();
        let (executor, settings) = (self.executor.clone(), self.settings());
        let (ctx, activity) = StepContext::new(executor, settings, &handle, job.description());
        self.unrecorded.insert(handle.clone(), activity);
        self.tasks.spawn(async move {
            let result = job.run(&ctx, &mut volume).await;
            TaskResult::Unrecorded { handle, reply, result }
        });
    }

    /// A volume whose records were read meanwhile: it waits for the end of its detachment.
    pub(super) fn entry_of_discovered(&self, volume: Volume) -> VolumeEntry {
        let activity = self.unrecorded.get(&volume.handle).cloned();
        VolumeEntry { is_recovering: activity.is_some(), activity, ..VolumeEntry::idle(volume) }
    }

    pub(super) fn end_unrecorded(
        &mut self,
        handle: String,
        reply: Reply,
        result: Result<Response, ProvisionError>,
    ) {
        self.unrecorded.remove(&handle);
        let mut queued = None;
        if let Some(entry) = self.volumes.get_mut(&handle) {
            (entry.activity, entry.is_recovering) = (None, false);
            queued = entry.queued.take();
            // Its records are now compared with what the detachment has left.
            self.recover_all();
        }
        if let Some(waiting) = queued {
            self.resume_queued(handle, waiting);
        }
        // A caller that stopped waiting finds the operation done at its next request.
        let _ = reply.send(result);
    }
}

/// The error of a request for a volume with an operation.
pub(super) fn busy(handle: &str, activity: &watch::Receiver<String>) -> ProvisionError {
    let doing = activity.borrow().clone();
    ProvisionError::Aborted(format!("volume {handle} is busy: {doing}"))
}
