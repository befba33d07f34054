//! Who takes the steps of a clean-up: the processes that take them for this node's own volumes too,
//! so that no two go on for one of them at a time.

use crate::api::server::cleanup::Cleanup;
use crate::attach::engine::Engine;
use crate::attach::step::{Done, Step, StepError, Steps};
use crate::model::path::HostPath;

pub struct Hands<S> {
    pub steps: S,
    pub engine: Engine,
}

#[tonic::async_trait]
impl<S: Steps> Cleanup for Hands<S> {
    async fn take(&self, target: &str, step: Step) -> Result<Done, StepError> {
        self.steps.take(target, step).await
    }

    async fn holders(&self, mounts: Vec<HostPath>) -> Result<Vec<String>, String> {
        match self.steps.take("holders", Step::Holders { mounts }).await {
            Ok(Done::Holders { holders }) => Ok(holders),
            Ok(_) => Err("a worker took another step than it was given".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn look_again(&self) {
        self.engine.look_again().await;
    }
}
