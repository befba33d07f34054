//! The step executor: runs steps in worker processes of our own binary, each with a time limit.
//!
//! In: a step for a target. Out: its result, or that it is stuck, with the kernel function it waits
//! in. A target has one step at a time, whichever process runs it; a target that hangs occupies one
//! process and delays no other. A step that has begun continues when its caller no longer waits:
//! its target stays occupied until it has ended.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore, watch};

use crate::host::root::HostRoot;
use crate::host::worker_pool::{WorkerOutcome, WorkerPool, WorkerPoolConfig};
use crate::provision::step::spec::WorkerRole;
use crate::provision::step::{Step, StepError, StepErrorKind, StepExecutor, StepOutput};
use crate::provision::worker::arguments;

/// A step that takes longer gives its permit back, because it is likely to hang.
const SLOW_AFTER: Duration = Duration::from_secs(10);
/// Slow processes of one role at a time. Each needs 3 MiB, and a disk that hangs seldom has more
/// volumes on one node.
const MAX_SLOW: usize = 64;

type StepResult = Result<StepOutput, StepError>;

/// Cheap to clone.
#[derive(Clone)]
pub struct WorkerExecutor {
    inner: Arc<Inner>,
}

struct Inner {
    /// By [`WorkerRole`].
    pools: [RolePool; 3],
    /// Upper bound of every step's time limit.
    max_timeout: Duration,
    /// Targets with a step that runs or waits.
    targets: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

struct RolePool {
    workers: WorkerPool<Step, StepResult>,
    permits: Semaphore,
}

impl RolePool {
    fn new(role: WorkerRole, root: &HostRoot, program: &Path) -> RolePool {
        // Steps at a time, as long as they are quick. mkfs takes the time, and a disk serves eight
        // at once worse than four. lvm locks its group: more of them would only wait.
        let active = match role {
            WorkerRole::Host | WorkerRole::Tools => 4,
            WorkerRole::Lvm => 2,
        };
        // The pool counts every worker that has not answered after half a second as overdue, a busy
        // one included.
        let config = WorkerPoolConfig {
            program: program.to_owned(),
            args: arguments(role, root),
            active,
            max_stuck: MAX_SLOW + active,
        };
        RolePool {
            workers: WorkerPool::start(config),
            permits: Semaphore::new(active),
        }
    }
}

impl WorkerExecutor {
    /// `program`: our own binary. Processes are started on demand.
    pub(crate) fn new(root: &HostRoot, program: PathBuf) -> WorkerExecutor {
        WorkerExecutor::with_max_timeout(root, program, Duration::MAX)
    }

    /// As `new`; a step counts as stuck after `max_timeout` at the latest.
    pub fn with_max_timeout(
        root: &HostRoot,
        program: PathBuf,
        max_timeout: Duration,
    ) -> WorkerExecutor {
        WorkerExecutor {
            inner: Arc::new(Inner {
                pools: WorkerRole::ALL.map(|role| RolePool::new(role, root, &program)),
                max_timeout,
                targets: Mutex::default(),
            }),
        }
    }

    /// The number of stuck steps: of the roles host, lvm and tools.
    pub fn stuck(&self) -> [watch::Receiver<u32>; 3] {
        self.inner
            .pools
            .each_ref()
            .map(|pool| pool.workers.stuck_count())
    }

    /// Releases all processes at once. A running step runs to its end; a hanging one is left to the
    /// kernel.
    pub(crate) fn close(&self) {
        self.inner
            .pools
            .iter()
            .for_each(|pool| pool.workers.close());
    }
}

impl StepExecutor for WorkerExecutor {
    async fn execute(&self, target: &str, step: Step) -> StepResult {
        let (inner, target) = (self.inner.clone(), target.to_owned());
        // A task of its own: if the caller is dropped, the target must stay locked until the step
        // has ended.
        let task = tokio::spawn(async move { inner.execute(target, step).await });
        task.await
            .unwrap_or_else(|error| Err(StepError::new(StepErrorKind::Other, error.to_string())))
    }
}

impl Inner {
    async fn execute(self: Arc<Self>, target: String, step: Step) -> StepResult {
        let (role, timeout) = step.worker();
        let timeout = timeout.min(self.max_timeout);
        let lock = self.clone().lock_target(target.clone());
        let Ok(lock) = tokio::time::timeout(timeout, lock).await else {
            return Err(StepError::new(
                StepErrorKind::Stuck,
                format!(
                    "an earlier step for {target} has not ended after {} s, and this one was not begun",
                    timeout.as_secs()
                ),
            ));
        };
        let retry = matches!(step, Step::GrowFilesystem { .. }).then(|| step.clone());
        let (result, lock) = self.run_in_pool(role, &target, step, timeout, lock).await;
        match (result, retry, lock) {
            // The filesystem is not mounted: its tools grow it, if they can.
            (Err(error), Some(step), Some(lock)) if error.kind == StepErrorKind::NotFound => {
                self.run_in_pool(WorkerRole::Tools, &target, step, timeout, lock)
                    .await
                    .0
            }
            (result, ..) => result,
        }
    }

    /// Returns the lock of the target unless the step is stuck: then the lock is kept until the
    /// step has ended.
    async fn run_in_pool(
        &self,
        role: WorkerRole,
        target: &str,
        step: Step,
        timeout: Duration,
        lock: TargetLock,
    ) -> (StepResult, Option<TargetLock>) {
        let pool = &self.pools[role as usize];
        let description = step.description();
        // Never closed.
        let permit = pool.permits.acquire().await.ok();
        let running = pool.workers.run(target, step, timeout);
        tokio::pin!(running);
        let outcome = match tokio::time::timeout(SLOW_AFTER, &mut running).await {
            Ok(outcome) => outcome,
            Err(_) => {
                drop(permit);
                running.await
            }
        };
        let (waiting_in, late) = match outcome {
            WorkerOutcome::Completed(result) => return (result, Some(lock)),
            WorkerOutcome::Failed(why) => {
                return (Err(StepError::new(StepErrorKind::Other, why)), Some(lock));
            }
            WorkerOutcome::Stuck {
                waiting_in, late, ..
            } => (waiting_in, late),
        };
        let waiting_in = waiting_in.unwrap_or_else(|| "an unknown kernel function".to_owned());
        let message = format!(
            "not finished after {} s (waiting in {waiting_in}); whether it will be done is not known",
            timeout.as_secs()
        );
        tracing::warn!(target, step = description, waiting_in, "a step is stuck");
        let target = target.to_owned();
        tokio::spawn(async move {
            // Without an outcome the runtime ends.
            if let Some(late) = late
                && let Ok(outcome) = late.await
            {
                let error = match outcome {
                    Ok(Ok(_)) => None,
                    Ok(Err(error)) => Some(error.message),
                    Err(why) => Some(why),
                };
                match error {
                    None => {
                        tracing::info!(target, step = description, "a step that was stuck is done")
                    }
                    Some(error) => tracing::warn!(
                        target,
                        step = description,
                        error,
                        "a step that was stuck has failed"
                    ),
                }
            }
            drop(lock);
        });
        (Err(StepError::new(StepErrorKind::Stuck, message)), None)
    }

    async fn lock_target(self: Arc<Self>, target: String) -> TargetLock {
        let lock = self.targets().entry(target.clone()).or_default().clone();
        let guard = lock.lock_owned().await;
        TargetLock {
            inner: self,
            target,
            guard: Some(guard),
        }
    }

    /// The guard is never held across an await.
    fn targets(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The exclusive right to run steps for a target, until it is dropped.
struct TargetLock {
    inner: Arc<Inner>,
    target: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for TargetLock {
    fn drop(&mut self) {
        let mut targets = self.inner.targets();
        self.guard = None;
        // Only the map holds the lock: no step waits. A step whose wait timed out leaves its entry to
        // be removed by the next one.
        if targets
            .get(&self.target)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            targets.remove(&self.target);
        }
    }
}
