//! Executes the steps of a clean-up, in the worker processes that also serve this node's own
//! volumes, so that two operations on one volume never run at the same time.

use crate::api::server::cleanup::CleanupBackend;
use crate::model::path::HostPath;
use crate::provision::engine::Engine;
use crate::provision::step::{Step, StepError, StepExecutor, StepOutput};

pub(crate) struct CleanupExecutor<S> {
    pub steps: S,
    pub engine: Engine,
}

#[tonic::async_trait]
impl<S: StepExecutor> CleanupBackend for CleanupExecutor<S> {
    async fn execute(&self, target: &str, step: Step) -> Result<StepOutput, StepError> {
        self.steps.execute(target, step).await
    }

    async fn openers(&self, mounts: Vec<HostPath>) -> Result<Vec<String>, String> {
        match self
            .steps
            .execute("openers", Step::ListOpeners { mounts })
            .await
        {
            Ok(StepOutput::Openers { openers }) => Ok(openers),
            Ok(_) => Err("a worker took another step than it was given".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn rescan(&self) {
        self.engine.rescan().await;
    }
}
