//! The running tasks of the source. Each task ends with a `SmartTaskResult`, also when it panics.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{Id, JoinSet};

use crate::smart::SmartTaskResult;

pub(crate) const TASK_LOST: &str = "an internal error: the task was lost";

#[derive(Default)]
pub struct TaskSet {
    tasks: JoinSet<SmartTaskResult>,
    /// The result of a task that was lost (a panic, for example), so that nothing waits for it
    /// forever.
    if_lost: HashMap<Id, SmartTaskResult>,
}

impl TaskSet {
    pub fn spawn(
        &mut self,
        if_lost: SmartTaskResult,
        task: impl Future<Output = SmartTaskResult> + Send + 'static,
    ) {
        let id = self.tasks.spawn(task).id();
        self.if_lost.insert(id, if_lost);
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// None when nothing runs. Cancel-safe.
    pub async fn next(&mut self) -> Option<SmartTaskResult> {
        match self.tasks.join_next_with_id().await? {
            Ok((id, ended)) => {
                self.if_lost.remove(&id);
                Some(ended)
            }
            Err(error) => {
                tracing::error!(%error, "a task that asks drives was lost");
                self.if_lost.remove(&error.id())
            }
        }
    }
}
