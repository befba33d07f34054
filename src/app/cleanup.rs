//! Executes the steps of a clean-up, in the worker processes that also serve this node's own
//! volumes. So two operations on one volume never run at the same time.

use crate::api::server::cleanup::CleanupBackend;
use crate::model::path::HostPath;
use crate::provision::engine::Engine;
use crate::provision::step::{Step, StepError, StepErrorKind, StepExecutor, StepOutput};

pub(crate) struct CleanupExecutor<S> {
    pub steps: S,
    pub engine: Engine,
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
            _ => Err(StepError {
                kind: StepErrorKind::Other,
                message: "a worker executed another step".to_owned(),
            }),
        }
    }

    async fn rescan(&self) {
        self.engine.rescan().await;
    }
}
