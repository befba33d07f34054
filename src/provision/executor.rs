//! The step executor: runs steps in worker processes of our own binary, each with a time limit.
//!
//! In: a step for a target. Out: its result, or the information that it is stuck and the kernel
//! function that it waits in. A target has one step at a time, whichever process runs it; a target
//! that hangs occupies one process and delays no other. A started step continues when its caller no
//! longer waits: its target stays locked until the step ends.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore, watch};

use crate::step::spec::WorkerRole;
use crate::step::{Step, StepError, StepErrorKind, StepExecutor, StepOutput};
use crate::worker::arguments;
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::{WorkerOutcome, WorkerPool, WorkerPoolConfig};

/// A step that runs longer returns its permit, because it is likely to hang.
const SLOW_AFTER: Duration = Duration::from_secs(10);
/// Maximum number of slow processes of one role. Each needs 3 MiB, and a disk that hangs seldom has
/// more volumes on one node.
const MAX_SLOW: usize = 64;

type StepResult = Result<StepOutput, StepError>;

/// Cheap to clone.
#[derive(Clone)]
pub struct WorkerExecutor {
    inner: Arc<Inner>,
}

struct Inner {
    /// Indexed by [`WorkerRole`].
    pools: [RolePool; 3],
    /// Upper bound of every step's time limit.
    max_timeout: Duration,
    /// Targets for which a step runs or waits.
    targets: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

struct RolePool {
    workers: WorkerPool<Step, StepResult>,
    permits: Semaphore,
}

impl RolePool {
    fn new(role: WorkerRole, root: &HostRoot, program: &Path) -> RolePool {
        // Number of concurrent steps while they are quick. mkfs dominates, and a disk serves eight
        // of them slower than four. lvm locks its group: more lvm steps would only wait.
        let active = match role {
            WorkerRole::Host | WorkerRole::Tools => 4,
            WorkerRole::Lvm => 2,
        };
        // The pool counts a worker as overdue that has not answered after half a second, even if it
        // is busy, and starts no further ones while all are overdue.
        let config = WorkerPoolConfig {
            program: program.to_owned(),
            args: arguments(role, root),
            active,
            max_stuck: MAX_SLOW + active,
        };
        RolePool { workers: WorkerPool::start(config), permits: Semaphore::new(active) }
    }
}

impl WorkerExecutor {
    /// `program`: our own binary. Processes are started on demand.
    pub fn new(root: &HostRoot, program: PathBuf) -> WorkerExecutor {
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

    /// Numbers of stuck steps, for the roles host, lvm and tools.
    pub fn stuck(&self) -> [watch::Receiver<u32>; 3] {
        self.inner.pools.each_ref().map(|pool| pool.workers.stuck_count())
    }

    /// Releases all processes at once. A running step runs to its end; a process that hangs is not
    /// killed.
    pub fn close(&self) {
        self.inner.pools.iter().for_each(|pool| pool.workers.close());
    }
}

impl StepExecutor for WorkerExecutor {
    async fn execute(&self, target: &str, step: Step) -> StepResult {
        let (inner, target) = (self.inner.clone(), target.to_owned());
        // The step runs in its own task: if the caller is dropped, the target stays locked until
        // the step ends.
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
            // The filesystem is not mounted: its own tools may grow it.
            (Err(error), Some(step), Some(lock)) if error.kind == StepErrorKind::NotFound => {
                self.run_in_pool(WorkerRole::Tools, &target, step, timeout, lock).await.0
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
        // The semaphore is never closed.
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
            WorkerOutcome::Failed(why) | WorkerOutcome::Refused(why) => {
                return (Err(StepError::new(StepErrorKind::Other, why)), Some(lock));
            }
            WorkerOutcome::Stuck { waiting_in, late, .. } => (waiting_in, late),
        };
        let waiting_in = waiting_in.unwrap_or_else(|| "an unknown kernel function".to_owned());
        let message = format!(
            "not finished after {} s (it waits in {waiting_in}); whether it will be done is not known",
            timeout.as_secs()
        );
        tracing::warn!(target, step = description, waiting_in, "a step is stuck");
        let target = target.to_owned();
        tokio::spawn(async move {
            // No outcome: the runtime is shutting down.
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
        TargetLock { inner: self, target, guard: Some(guard) }
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
        // Only the map holds the lock: no step waits. If the wait of a step timed out, the next
        // step removes its entry.
        if targets.get(&self.target).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            targets.remove(&self.target);
        }
    }
}
