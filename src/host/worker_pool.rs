//! Worker processes: copies of our own binary that run calls which may block, so that a blocked
//! call blocks nothing else.
//!
//! In: a job for a target, with a time-out. Out: the answer; or that the worker is stuck, since
//! when, and in which kernel function. A worker runs jobs for many targets in turn over a pipe. A
//! worker that does not answer in time is abandoned, counted and replaced. It is never joined; its
//! late answer is used. Stuck workers are limited in all and per failure domain. Does not depend on
//! the kinds of jobs.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::clock::now;
use crate::helper::{Helper, HelperError, Program};
use crate::process::waiting_in;
use diskvitals_finding::failure_domain::{Admission, FailureDomains, OverdueJob, admit};
use diskvitals_text::causes::with_causes;

/// The longest answer; an inventory of thousands of devices is far shorter.
const MAX_RESPONSE: u64 = 64 << 20;

/// How to start a worker.
#[derive(Clone, Debug)]
pub struct WorkerPoolConfig {
    pub program: PathBuf,
    pub args: Vec<std::ffi::OsString>,
    /// Maximum number of workers that run a job at the same time; stuck ones are not counted.
    pub active: usize,
    /// At this many stuck jobs, further jobs are refused. A failure domain may have a part of them.
    pub max_stuck: usize,
}

#[derive(Debug)]
pub enum WorkerOutcome<A> {
    Completed(A),
    /// This job, or an earlier one for the same target, was not answered in time.
    Stuck {
        since: Timestamp,
        /// The state of the process and its wait channel, where the kernel shows them (`D (disk
        /// sleep) in wait_on_page_bit`).
        waiting_in: Option<String>,
        /// Receives the answer if it comes late; None if an earlier caller receives it.
        late: Option<oneshot::Receiver<Result<A, String>>>,
    },
    Failed(String),
    /// Not run: too many jobs are stuck. The text names the limit.
    Refused(String),
}

/// A pool of workers. Cheap to clone.
pub struct WorkerPool<J, A> {
    inner: Arc<Inner>,
    types: PhantomData<fn(J) -> A>,
}

impl<J, A> Clone for WorkerPool<J, A> {
    fn clone(&self) -> Self {
        WorkerPool { inner: self.inner.clone(), types: PhantomData }
    }
}

struct Inner {
    spawn: WorkerPoolConfig,
    /// One permit for each worker that may be busy now.
    permits: Semaphore,
    /// One permit: for the thread that starts a worker.
    starts: Arc<Semaphore>,
    state: Mutex<PoolState>,
    /// Notified at each change of `PoolState::overdue`.
    overdue_changed: watch::Sender<()>,
    stuck: watch::Sender<u32>,
    limitations: watch::Sender<Vec<String>>,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Helper>,
    /// Targets with a job in flight.
    targets: HashMap<String, InFlightJob>,
    /// Jobs that have taken longer than `SLOW_AFTER`, stuck ones included, by number.
    overdue: BTreeMap<u64, OverdueJob>,
    last_overdue: u64,
    closed: bool,
}

#[derive(Default)]
struct InFlightJob {
    /// When the job was sent; None while it waits for a worker.
    sent: Option<Timestamp>,
    /// Closed when the target is free again. One per target, since thousands of jobs may wait;
    /// created for the first waiter, since most jobs have none.
    released: Option<watch::Sender<()>>,
}

/// A healthy answer takes well under a millisecond. After this time, the job's permit is free for
/// others.
const SLOW_AFTER: Duration = Duration::from_millis(500);
/// Before its first line, a worker only enters a namespace.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum WorkerError {
    #[error(transparent)]
    Process(#[from] HelperError),
    #[error("a worker process did not greet within 10 s")]
    HelloTimeout,
    #[error("the workers are being closed")]
    Closed,
}

/// The first message of a worker.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Hello {
    /// Missing access and privileges of the worker, for the administrator.
    pub limitations: Vec<String>,
}

/// The worker's side: sends a greeting, then answers each line with a line until its standard input
/// is closed: then no process waits for answers. `invalid_job` makes the answer to a line that
/// cannot be parsed.
pub fn serve<J: DeserializeOwned, A: Serialize>(
    hello: &Hello,
    mut perform: impl FnMut(J) -> A,
    invalid_job: impl Fn(String) -> A,
) -> std::io::Result<()> {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    write_json_line(&mut output, hello)?;
    for line in std::io::BufRead::lines(input) {
        let answer = match serde_json::from_str(&line?) {
            Ok(job) => perform(job),
            Err(error) => {
                invalid_job(format!("a worker was asked what it does not understand: {error}"))
            }
        };
        write_json_line(&mut output, &answer)?;
    }
    Ok(())
}

/// Writes one line of JSON.
pub fn write_json_line(
    output: &mut impl std::io::Write,
    what: &impl Serialize,
) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

impl<J: Serialize, A: DeserializeOwned + Send + 'static> WorkerPool<J, A> {
    pub fn start(spawn: WorkerPoolConfig) -> WorkerPool<J, A> {
        let inner = Inner {
            permits: Semaphore::new(spawn.active),
            starts: Arc::new(Semaphore::new(1)),
            spawn,
            state: Mutex::default(),
            overdue_changed: watch::Sender::default(),
            stuck: watch::Sender::new(0),
            limitations: watch::Sender::default(),
        };
        WorkerPool { inner: Arc::new(inner), types: PhantomData }
    }

    /// Runs a job in a worker. `timeout` starts when the job is sent, not during the wait for a
    /// free worker. One job per target is in flight: a further one waits for it, and ends as
    /// `Stuck` when the first has taken longer than `timeout`.
    pub async fn run(&self, target: &str, job: J, timeout: Duration) -> WorkerOutcome<A> {
        self.run_in(&FailureDomains::default(), target, job, timeout).await
    }

    /// As `run`, for a target of these failure domains: refused when too many of their jobs are
    /// stuck.
    pub async fn run_in(
        &self,
        domains: &FailureDomains,
        target: &str,
        job: J,
        timeout: Duration,
    ) -> WorkerOutcome<A> {
        let claim = loop {
            let (sent, mut freed) = match TargetClaim::acquire(&self.inner, target) {
                Ok(claim) => break claim,
                Err(in_flight) => in_flight,
            };
            let Some(since) = sent else {
                // The first job itself waits for a worker, so its time-out has not started. An
                // error: the target is free.
                let _ = freed.changed().await;
                continue;
            };
            let left = timeout.saturating_sub(elapsed(since));
            if left.is_zero() {
                return WorkerOutcome::Stuck { since, waiting_in: None, late: None };
            }
            // Released or timed out: the next iteration decides.
            let _ = tokio::time::timeout(left, freed.changed()).await;
        };
        let mut overdue_changes = self.inner.overdue_changed.subscribe();
        let turn = loop {
            let Ok(turn) = self.inner.permits.acquire().await else {
                return WorkerOutcome::Failed(with_causes(&WorkerError::Closed));
            };
            overdue_changes.mark_unchanged();
            match self.inner.admit(domains) {
                Admission::Start => break turn,
                Admission::Refuse(limit) => return WorkerOutcome::Refused(limit.to_string()),
                Admission::Wait => drop(turn),
            }
            // An overdue job has ended or is stuck now. An error: the pool no longer exists.
            let _ = overdue_changes.changed().await;
        };
        // Boxed: thousands of jobs may wait, and this future is large.
        match Box::pin(self.run_claimed(claim, turn, domains, job, timeout)).await {
            Ok(outcome) => outcome,
            Err(error) => WorkerOutcome::Failed(with_causes(&error)),
        }
    }

    /// The number of stuck workers.
    pub fn stuck_count(&self) -> watch::Receiver<u32> {
        self.inner.stuck.subscribe()
    }

    /// Missing access and privileges of the workers.
    pub fn limitations(&self) -> watch::Receiver<Vec<String>> {
        self.inner.limitations.subscribe()
    }

    /// Releases all workers: idle ones exit when their pipe closes, stuck ones are left to the
    /// kernel. Returns at once.
    pub fn close(&self) {
        let mut pool = self.inner.lock_state();
        pool.closed = true;
        pool.idle.clear();
    }

    async fn run_claimed(
        &self,
        claim: TargetClaim,
        turn: SemaphorePermit<'_>,
        domains: &FailureDomains,
        job: J,
        timeout: Duration,
    ) -> Result<WorkerOutcome<A>, WorkerError> {
        let mut worker = self.inner.acquire_worker().await?;
        let since = claim.mark_sent();
        let exchange = async {
            worker.send(&job).await?;
            worker.recv().await
        };
        let answer = match tokio::time::timeout(SLOW_AFTER.min(timeout), exchange).await {
            Ok(answer) => answer?,
            Err(_) => {
                // The worker is slow, not stuck, but must not delay others: a new worker gets its
                // permit.
                let overdue = OverdueGuard::new(&self.inner, domains);
                drop(turn);
                let rest = timeout.saturating_sub(SLOW_AFTER);
                match tokio::time::timeout(rest, worker.recv()).await {
                    Ok(answer) => answer?,
                    Err(_) => return Ok(self.abandon(worker, since, claim, overdue)),
                }
            }
        };
        self.inner.release_worker(worker);
        Ok(WorkerOutcome::Completed(answer))
    }

    /// Leaves a stuck worker to the kernel; its target and its share are free when it answers or
    /// ends.
    fn abandon(
        &self,
        mut worker: Helper,
        since: Timestamp,
        claim: TargetClaim,
        overdue: OverdueGuard,
    ) -> WorkerOutcome<A> {
        overdue.mark_stuck();
        let (tell, late) = oneshot::channel();
        let waiting_in = waiting_in(worker.id());
        let inner = self.inner.clone();
        inner.stuck.send_modify(|stuck| *stuck += 1);
        tokio::spawn(async move {
            let answer = worker.recv().await;
            inner.stuck.send_modify(|stuck| *stuck = stuck.saturating_sub(1));
            drop(overdue);
            drop(claim); // The target may be queried again before the late answer is used.
            // The receiver may have been dropped.
            let _ = tell.send(answer.map_err(|error| with_causes(&error)));
            worker.close().await;
        });
        WorkerOutcome::Stuck { since, waiting_in, late: Some(late) }
    }
}

impl Inner {
    /// The lock is held for one short change, never across an await; a panic under it leaves a
    /// consistent state.
    fn lock_state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, domains: &FailureDomains) -> Admission {
        let pool = self.lock_state();
        admit(self.spawn.max_stuck, pool.overdue.values(), domains)
    }

    async fn acquire_worker(&self) -> Result<Helper, WorkerError> {
        let idle = {
            let mut pool = self.lock_state();
            if pool.closed {
                return Err(WorkerError::Closed);
            }
            pool.idle.pop()
        };
        match idle {
            Some(worker) => Ok(worker),
            None => self.spawn().await,
        }
    }

    /// One thread at a time starts a worker, since it may wait for a dead disk.
    async fn spawn(&self) -> Result<Helper, WorkerError> {
        let deadline = Instant::now() + HELLO_TIMEOUT;
        let program =
            Program { program: self.spawn.program.clone(), args: self.spawn.args.clone() };
        let mut worker = Helper::start_with(&program, self.starts.clone(), MAX_RESPONSE).await?;
        let hello: Hello =
            timeout_at(deadline, worker.recv()).await.map_err(|_| WorkerError::HelloTimeout)??;
        self.limitations.send_if_modified(|known| {
            let new: Vec<String> = hello
                .limitations
                .into_iter()
                .filter(|limitation| !known.contains(limitation))
                .collect();
            for limitation in &new {
                tracing::warn!(%limitation, "a worker may see less than it should");
            }
            let told = !new.is_empty();
            known.extend(new);
            told
        });
        Ok(worker)
    }

    /// Keeps as many as can be busy at a time; a surplus worker exits when its pipe closes.
    fn release_worker(&self, worker: Helper) {
        let surplus = {
            let mut pool = self.lock_state();
            if pool.closed || pool.idle.len() >= self.spawn.active {
                Some(worker)
            } else {
                pool.idle.push(worker);
                None
            }
        };
        if let Some(worker) = surplus {
            tokio::spawn(worker.close());
        }
    }
}

/// The right to run a job for a target, until dropped.
struct TargetClaim {
    inner: Arc<Inner>,
    target: String,
}

impl TargetClaim {
    /// The error: when the job in flight was sent, and a channel that closes when the target is
    /// free.
    fn acquire(
        inner: &Arc<Inner>,
        target: &str,
    ) -> Result<TargetClaim, (Option<Timestamp>, watch::Receiver<()>)> {
        let mut pool = inner.lock_state();
        if let Some(in_flight) = pool.targets.get_mut(target) {
            let freed = in_flight.released.get_or_insert_default();
            return Err((in_flight.sent, freed.subscribe()));
        }
        pool.targets.insert(target.to_owned(), InFlightJob::default());
        Ok(TargetClaim { inner: inner.clone(), target: target.to_owned() })
    }

    fn mark_sent(&self) -> Timestamp {
        let at = now();
        if let Some(in_flight) = self.inner.lock_state().targets.get_mut(&self.target) {
            in_flight.sent = Some(at);
        }
        at
    }
}

impl Drop for TargetClaim {
    fn drop(&mut self) {
        let in_flight = self.inner.lock_state().targets.remove(&self.target);
        // Dropped last: this wakes the waiting jobs.
        drop(in_flight);
    }
}

/// A job that is slower than `SLOW_AFTER`, stuck or not.
struct OverdueGuard {
    inner: Arc<Inner>,
    number: u64,
}

impl OverdueGuard {
    fn new(inner: &Arc<Inner>, domains: &FailureDomains) -> OverdueGuard {
        let mut pool = inner.lock_state();
        pool.last_overdue += 1;
        let number = pool.last_overdue;
        let job = OverdueJob { domains: domains.clone(), stuck: false };
        pool.overdue.insert(number, job);
        OverdueGuard { inner: inner.clone(), number }
    }

    fn mark_stuck(&self) {
        if let Some(job) = self.inner.lock_state().overdue.get_mut(&self.number) {
            job.stuck = true;
        }
        self.inner.overdue_changed.send_replace(());
    }
}

impl Drop for OverdueGuard {
    fn drop(&mut self) {
        self.inner.lock_state().overdue.remove(&self.number);
        self.inner.overdue_changed.send_replace(());
    }
}

fn elapsed(since: Timestamp) -> Duration {
    // If the clock was set back, this is zero, and the wait is a little longer.
    Duration::try_from(now().duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::program_on_a_dead_disk;

    #[tokio::test]
    async fn a_worker_on_a_dead_disk_does_not_block_the_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let (program, lease) = program_on_a_dead_disk(dir.path());
        let workers: WorkerPool<u8, u8> = WorkerPool::start(WorkerPoolConfig {
            program,
            args: Vec::new(),
            active: 1,
            max_stuck: 1,
        });
        let mut question = Box::pin(workers.run("target", 0, HELLO_TIMEOUT));
        let answer = tokio::time::timeout(Duration::from_millis(50), &mut question).await;
        assert!(answer.is_err(), "the disk has not answered");
        drop(lease);
        let answer = question.await;
        assert!(matches!(answer, WorkerOutcome::Completed(1)), "{answer:?}");
    }
}
