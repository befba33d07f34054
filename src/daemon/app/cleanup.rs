//! Executes the steps of a clean-up, in the worker processes that also serve this node's own
//! volumes. So two operations on one volume never run at the same time.

use crate::api::server::cleanup::CleanupBackend;
use diskvitals_finding::path::HostPath;
use diskvitals_model::clean_order::PodHolds;
use diskvitals_provision::engine::Engine;
use diskvitals_provision::step::{Step, StepError, StepErrorKind, StepExecutor, StepOutput};

#[derive(Clone)]
pub(crate) struct CleanupExecutor<S> {
    pub steps: S,
    /// None in a recorded tree, which has no volumes of its own.
    pub engine: Option<Engine>,
}

#[tonic::async_trait]
impl<S: StepExecutor> CleanupBackend for CleanupExecutor<S> {
    async fn execute(&self, target: &str, step: Step) -> Result<StepOutput, StepError> {
        self.steps.execute(target, step).await
    }

    async fn openers(&self, mounts: Vec<HostPath>) -> Result<Vec<String>, StepError> {
        let step = Step::ListOpeners { mounts };
        match self.steps.execute("openers", step).await? {
            StepOutput::Openers { openers } => Ok(openers),
            _ => Err(other_step()),
        }
    }

    async fn pod_holds(
        &self,
        kubelet_root: HostPath,
        pod_uids: Vec<String>,
    ) -> Result<PodHolds, StepError> {
        let step = Step::ListPodHolds { kubelet_root, pod_uids };
        match self.steps.execute("pod holds", step).await? {
            StepOutput::PodHolds { found } => Ok(found),
            _ => Err(other_step()),
        }
    }

    async fn rescan(&self) {
        if let Some(engine) = &self.engine {
            engine.rescan().await;
        }
    }
}

fn other_step() -> StepError {
    StepError::new(StepErrorKind::Other, "a worker executed another step")
}
