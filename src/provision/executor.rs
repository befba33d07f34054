//! The step executor: runs steps in worker processes of our own binary, each with a time limit.
//!
//! In: a step for a target. Out: its result, or that it is stuck, with the kernel function it waits
//! in. A target has one step at a time, whichever process runs it; a target that hangs occupies one
//! process and delays no other. A step that has begun continues when its caller no longer waits:
//! its target stays occupied until it has ended.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore, watch};

use crate::host::root::HostRoot;
use crate::host::worker_pool::{WorkerOutcome, WorkerPool, WorkerPoolConfig};
use crate::provision::step::spec::WorkerRole;
use crate::provision::step::{Step, StepError, StepErrorKind, StepExecutor, StepOutput};
use crate::provision::worker::arguments;

/// Steps that are slower than that no longer hold up others that wait for their turn: they are
/// likely to hang.
const SLOW_AFTER: Duration = Duration::from_secs(10);
/// Processes of one site that may be slow at a time. Each is a process of 3 MiB, and of a disk that
/// hangs there are seldom more volumes on a node than these.
const MAX_SLOW: usize = 64;

type StepResult = Result<StepOutput, StepError>;

/// Cheap to clone.
#[derive(Clone)]
pub struct WorkerExecutor {
    inner: Arc<Inner>,
}

struct Inner {
    host: RolePool,
    lvm: RolePool,
    tools: RolePool,
    /// No step is given longer.
    max_timeout: Duration,
    /// Targets with a step that is taken or waited for.
    targets: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

struct RolePool {
    workers: WorkerPool<Step, StepResult>,
    permits: Semaphore,
}

impl RolePool {
    /// `active`: steps at a time, as long as they are quick.
    fn new(
        site: WorkerRole,
        root: &HostRoot,
        program: &std::path::Path,
        active: usize,
    ) -> RolePool {
        // Workers counts from half a second on as overdue whoever has not answered, the busy ones
        // among them.
        let spawn = WorkerPoolConfig {
            program: program.to_owned(),
            args: arguments(site, root),
            active,
            max_stuck: MAX_SLOW + active,
        };
        RolePool {
            workers: WorkerPool::start(spawn),
            permits: Semaphore::new(active),
        }
    }
}

impl WorkerExecutor {
    /// `program`: our own binary. Processes are started when they are needed.
    pub(crate) fn new(root: &HostRoot, program: PathBuf) -> WorkerExecutor {
        WorkerExecutor::with_max_timeout(root, program, Duration::MAX)
    }

    /// As `new`, for who cannot wait for a step as long as it may take: it is stuck after
    /// `longest`.
    pub fn with_max_timeout(
        root: &HostRoot,
        program: PathBuf,
        longest: Duration,
    ) -> WorkerExecutor {
        let pool = |site, active| RolePool::new(site, root, &program, active);
        // mkfs is what takes time, and a disk that serves eight at once serves none of them well.
        // lvm locks its group: it would wait for itself.
        let inner = Inner {
            host: pool(WorkerRole::Host, 4),
            lvm: pool(WorkerRole::Lvm, 2),
            tools: pool(WorkerRole::Tools, 4),
            max_timeout: longest,
            targets: Mutex::default(),
        };
        WorkerExecutor {
            inner: Arc::new(inner),
        }
    }

    /// How many steps are stuck: of mounts and images, of lvm, of tools.
    pub fn stuck(&self) -> [watch::Receiver<u32>; 3] {
        [&self.inner.host, &self.inner.lvm, &self.inner.tools]
            .map(|pool| pool.workers.stuck_count())
    }

    /// Lets all processes go, at once; what hangs is left to the kernel, and what is being done is
    /// done to its end.
    pub(crate) fn close(&self) {
        [&self.inner.host, &self.inner.lvm, &self.inner.tools]
            .into_iter()
            .for_each(|pool| pool.workers.close());
    }
}

impl StepExecutor for WorkerExecutor {
    async fn execute(&self, target: &str, step: Step) -> Result<StepOutput, StepError> {
        let (inner, target) = (self.inner.clone(), target.to_owned());
        // A task of its own: when the caller goes away in the middle, the target must stay taken
        // until the step has ended.
        let taken = tokio::spawn(async move { inner.execute(target, step).await });
        taken.await.unwrap_or_else(|error| {
            Err(StepError {
                kind: StepErrorKind::Other,
                message: format!("taking a step: {error}"),
            })
        })
    }
}

impl Inner {
    async fn execute(self: Arc<Self>, target: String, step: Step) -> StepResult {
        let about = step.spec();
        let patience = about.timeout.min(self.max_timeout);
        let Ok(mine) =
            tokio::time::timeout(patience, self.clone().lock_target(target.clone())).await
        else {
            let message = format!(
                "an earlier step for {target} has not ended after {} s, and this one was not begun",
                patience.as_secs()
            );
            return Err(StepError {
                kind: StepErrorKind::Stuck,
                message,
            });
        };
        let unmounted = matches!(step, Step::GrowFilesystem { .. }).then(|| step.clone());
        let (answer, mine) = self
            .run_in_pool(about.role, &target, step, patience, mine)
            .await;
        match (answer, unmounted, mine) {
            // Not mounted: what can grow in that state is grown by its tools.
            (
                Err(StepError {
                    kind: StepErrorKind::NotFound,
                    ..
                }),
                Some(step),
                Some(mine),
            ) => {
                self.run_in_pool(WorkerRole::Tools, &target, step, patience, mine)
                    .await
                    .0
            }
            (answer, ..) => answer,
        }
    }

    /// The right to the target comes back unless the step is stuck: then it is kept until that has
    /// ended.
    async fn run_in_pool(
        &self,
        site: WorkerRole,
        target: &str,
        step: Step,
        patience: Duration,
        mine: TargetLock,
    ) -> (StepResult, Option<TargetLock>) {
        let pool = match site {
            WorkerRole::Host => &self.host,
            WorkerRole::Lvm => &self.lvm,
            WorkerRole::Tools => &self.tools,
        };
        let name = step.spec().name;
        // Never closed.
        let turn = pool.permits.acquire().await.ok();
        let asked = pool.workers.run(target, step, patience);
        tokio::pin!(asked);
        let outcome = match tokio::time::timeout(SLOW_AFTER, &mut asked).await {
            Ok(outcome) => outcome,
            Err(_) => {
                drop(turn);
                asked.await
            }
        };
        match outcome {
            WorkerOutcome::Completed(answer) => (answer, Some(mine)),
            WorkerOutcome::Failed(why) => (
                Err(StepError {
                    kind: StepErrorKind::Other,
                    message: format!("{name}: {why}"),
                }),
                Some(mine),
            ),
            WorkerOutcome::Stuck {
                waiting_in, late, ..
            } => {
                let place =
                    waiting_in.unwrap_or_else(|| "what, the kernel does not tell".to_owned());
                let message = format!(
                    "{name} has not come back after {} s (it waits in {place}); whether it will be done is not known",
                    patience.as_secs()
                );
                tracing::warn!(target, step = name, waiting_in = place, "a step is stuck");
                let target = target.to_owned();
                tokio::spawn(async move {
                    if let Some(late) = late {
                        match late.await {
                            Ok(Ok(Ok(_))) => {
                                tracing::info!(target, step = name, "a step that was stuck is done")
                            }
                            Ok(Ok(Err(error))) => {
                                tracing::warn!(target, step = name, %error, "a step that was stuck has failed")
                            }
                            Ok(Err(error)) => {
                                tracing::warn!(
                                    target,
                                    step = name,
                                    error,
                                    "a step that was stuck has ended without an answer"
                                )
                            }
                            // The runtime ends.
                            Err(_) => {}
                        }
                    }
                    drop(mine);
                });
                (
                    Err(StepError {
                        kind: StepErrorKind::Stuck,
                        message,
                    }),
                    None,
                )
            }
        }
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

    /// Held while the map is read, never across an await.
    fn targets(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to take steps for a target. Dropping it lets the next.
struct TargetLock {
    inner: Arc<Inner>,
    target: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for TargetLock {
    fn drop(&mut self) {
        let mut targets = self.inner.targets();
        self.guard = None;
        // The map's own is the last: nobody waits. Who waited in vain has left his behind for the
        // next to clear.
        if targets
            .get(&self.target)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            targets.remove(&self.target);
        }
    }
}
