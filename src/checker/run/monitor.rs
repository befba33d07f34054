//! One checker process from its start to its end: its output and progress, what it uses, the throttle of
//! its reading, and the reasons to kill it.
//!
//! In: the process. Out: how it ended, and what was seen of it; `run` judges that.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::output::OutputSink;
use crate::run::{RunCallbacks, RunSpec};
use diskvitals_fscheck::parse::{OutputParser, ProgressStream};
use diskvitals_fscheck::{RunActivity, Termination};
use diskvitals_host::jail::{JailedProcess, SchedStat};

/// How often the number of bytes read is sampled, for throttling.
const THROTTLE_INTERVAL: Duration = Duration::from_millis(20);
/// Interval of the memory samples: at first, since a checker may exit soon, and later.
const EARLY_SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
const EARLY_PERIOD: Duration = Duration::from_millis(500);
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Burst of the throttle, as a share of one second.
const BURST_SECONDS: f64 = 0.1;
/// During exec, the counters of the process cannot be read.
const MAX_UNSAMPLED: Duration = Duration::from_secs(2);
/// A killed process exits within this time, or is blocked in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum time between two reports of what it does.
const PHASE_INTERVAL: Duration = Duration::from_millis(250);

/// What was seen of the process.
pub(super) struct RunMonitor {
    pub reader: OutputParser,
    pub sink: OutputSink,
    since: Instant,
    /// Start of the current throttling, and the total of the earlier ones.
    throttled_since: Option<Instant>,
    throttled: Duration,
    /// The scheduler's statistics of its threads at the last sample, and the total time in which
    /// threads were runnable but none had a processor: the effect of its low priority.
    scheduled: BTreeMap<u32, SchedStat>,
    cpu_wait: Duration,
    pub bytes_read: u64,
    /// Time of the last sample.
    last_sampled: Instant,
    /// None: its end came before the first sample.
    pub peak_memory: Option<u64>,
    pub jail_error: Option<String>,
    /// Why it could not be throttled.
    pub throttle_error: Option<String>,
    /// System calls that the jail refused.
    pub refused: BTreeSet<i32>,
    /// Why no control group bounds the number of its processes.
    pub tasks_unbounded_because: Option<String>,
    /// The bound of all its processes that was reached.
    pub exceeded: Option<String>,
    progress: ProgressStream,
    reported: Option<(Instant, RunActivity)>,
}

impl RunMonitor {
    pub(super) fn new(spec: &RunSpec, since: Instant) -> RunMonitor {
        RunMonitor {
            reader: OutputParser::new(spec.filesystem),
            sink: OutputSink::default(),
            since,
            throttled_since: None,
            throttled: Duration::ZERO,
            scheduled: BTreeMap::new(),
            cpu_wait: Duration::ZERO,
            bytes_read: 0,
            last_sampled: Instant::now(),
            peak_memory: None,
            jail_error: None,
            throttle_error: None,
            refused: BTreeSet::new(),
            tasks_unbounded_because: None,
            exceeded: None,
            progress: ProgressStream::default(),
            reported: None,
        }
    }

    /// The part of `duration`, until now, in which the checker was neither throttled nor waiting
    /// for a processor.
    pub(super) fn active(&self, duration: Duration) -> Duration {
        let throttled = self.throttled_since.map(|since| since.elapsed());
        duration
            .saturating_sub(self.throttled + throttled.unwrap_or_default())
            .saturating_sub(self.cpu_wait)
    }

    pub(super) fn run_to_end(
        &mut self,
        mut jailed: JailedProcess,
        spec: &RunSpec,
        stop: BorrowedFd<'_>,
        callbacks: &mut RunCallbacks<'_>,
    ) -> (Termination, Option<JailedProcess>) {
        let mut buffer = vec![0; 64 * 1024];
        let mut readable = true;
        self.tasks_unbounded_because = jailed.tasks_unbounded_because().map(str::to_owned);
        loop {
            self.sample(&jailed);
            // Its verdict would mean nothing, and it takes what others need.
            self.exceeded = jailed.exceeded_bound();
            if self.exceeded.is_some() {
                return self.kill(jailed, Termination::Cancelled, &mut buffer);
            }
            if spec.plan.low_priority {
                self.account_cpu_wait(jailed.sched_stats());
            }
            let left = spec.timeout.saturating_sub(self.since.elapsed());
            if left.is_zero() {
                return self.kill(jailed, Termination::TimedOut, &mut buffer);
            }
            if let Some(rate) = spec.bytes_per_second {
                self.throttle(&jailed, rate);
                if self.throttle_error.is_some() {
                    return self.kill(jailed, Termination::Cancelled, &mut buffer);
                }
            }
            let usual = if self.since.elapsed() < EARLY_PERIOD {
                EARLY_SAMPLE_INTERVAL
            } else {
                SAMPLE_INTERVAL
            };
            let tick = match spec.bytes_per_second {
                // Its output has ended, so it exits soon; writers may be waiting.
                _ if !readable => EXIT_POLL_INTERVAL,
                Some(_) => usual.min(THROTTLE_INTERVAL),
                None => usual,
            };
            // If polling fails, the checker is stopped.
            let output = readable.then(|| jailed.output());
            let stopped =
                wait(output.into_iter().chain(jailed.filter()), Some(stop), tick.min(left))
                    .unwrap_or(true);
            jailed.refuse_calls();
            if stopped {
                return self.kill(jailed, Termination::Cancelled, &mut buffer);
            }
            readable = readable && self.drain(&mut jailed, &mut buffer);
            jailed.drain_progress(buffer.as_mut_slice(), |bytes| self.progress.push(bytes));
            self.report_activity(callbacks);
            match jailed.try_wait(|jailed| self.sample(jailed)) {
                Ok(None) => {}
                Ok(Some(status)) => {
                    self.drain(&mut jailed, &mut buffer);
                    self.exceeded = jailed.exceeded_bound();
                    self.jail_error = jailed.setup_error();
                    self.refused.clone_from(jailed.refused());
                    return (termination(status), None);
                }
                // It is not our child, or was already reaped: its exit status is unknown.
                Err(_) => return self.kill(jailed, Termination::Cancelled, &mut buffer),
            }
        }
    }

    /// Reads all available output. Returns whether the output is still open.
    fn drain(&mut self, jailed: &mut JailedProcess, buffer: &mut [u8]) -> bool {
        // Limited, so that a flood of output does not block everything else.
        for _ in 0..64 {
            match jailed.read(buffer) {
                Ok(None) => return true,
                Ok(Some([])) | Err(_) => return false,
                Ok(Some(bytes)) => self.sink.write(bytes, &mut |line| self.reader.push_line(line)),
            }
        }
        true
    }

    /// Samples /proc while the process exists.
    fn sample(&mut self, jailed: &JailedProcess) {
        if let Some(bytes) = jailed.bytes_read() {
            self.bytes_read = bytes.max(self.bytes_read);
            self.last_sampled = Instant::now();
        }
        self.peak_memory = jailed.peak_memory().max(self.peak_memory);
    }

    /// Adds the time since the last sample in which the checker waited for a processor. A frozen
    /// run has normal priority and will not wait.
    fn account_cpu_wait(&mut self, scheduled: BTreeMap<u32, SchedStat>) {
        // Throttled time must not count twice.
        if self.throttled_since.is_none() {
            self.cpu_wait += cpu_wait_between(&self.scheduled, &scheduled);
        }
        self.scheduled = scheduled;
    }

    /// Stops the process while it has read more than its share allows.
    fn throttle(&mut self, jailed: &JailedProcess, rate: u64) {
        if self.last_sampled.elapsed() > MAX_UNSAMPLED {
            self.throttle_error = Some(
                "what it reads cannot be seen, so it cannot be held back to spare the drive"
                    .to_owned(),
            );
            return;
        }
        #[allow(clippy::cast_precision_loss)] // No run reads 2^53 bytes.
        let due = Duration::from_secs_f64(
            (self.bytes_read as f64 / rate.max(1) as f64 - BURST_SECONDS).max(0.0),
        );
        let ahead = due > self.since.elapsed();
        match self.throttled_since {
            None if ahead => {
                jailed.signal(Signal::SIGSTOP);
                self.throttled_since = Some(Instant::now());
            }
            Some(since) if !ahead => {
                jailed.signal(Signal::SIGCONT);
                self.throttled += since.elapsed();
                self.throttled_since = None;
            }
            _ => {}
        }
    }

    fn report_activity(&mut self, callbacks: &mut RunCallbacks<'_>) {
        let phase = self.reader.phase().unwrap_or_default();
        let permille = self.progress.permille().or(self.reader.permille());
        let is_reported = |(at, last): &(Instant, RunActivity)| {
            last.phase == phase && last.permille == permille || at.elapsed() < PHASE_INTERVAL
        };
        let is_begin = self.reported.is_none() && phase.is_empty() && permille.is_none();
        if is_begin || self.reported.as_ref().is_some_and(is_reported) {
            return;
        }
        let activity = RunActivity { phase: phase.to_owned(), permille };
        (callbacks.on_activity)(&activity);
        self.reported = Some((Instant::now(), activity));
    }

    fn kill(
        &mut self,
        mut jailed: JailedProcess,
        why: Termination,
        buffer: &mut [u8],
    ) -> (Termination, Option<JailedProcess>) {
        self.sample(&jailed);
        jailed.signal(Signal::SIGKILL);
        let killed = Instant::now();
        loop {
            self.drain(&mut jailed, buffer);
            match jailed.try_wait(|jailed| self.sample(jailed)) {
                Ok(Some(_)) | Err(_) => {
                    self.drain(&mut jailed, buffer);
                    return (why, None);
                }
                Ok(None) if killed.elapsed() >= KILL_TIMEOUT => {
                    return (Termination::Stuck(jailed.waiting_in()), Some(jailed));
                }
                // Only sleeps.
                Ok(None) => drop(wait([], None, Duration::from_millis(5))),
            }
        }
    }
}

/// How long, between two samples, threads waited for a processor while none of them had one. A
/// lower bound, since the overlaps are unknown.
fn cpu_wait_between(before: &BTreeMap<u32, SchedStat>, now: &BTreeMap<u32, SchedStat>) -> Duration {
    let since = |of: fn(&SchedStat) -> Duration| {
        let grown = |(number, now): (&u32, &SchedStat)| {
            of(now).saturating_sub(before.get(number).map(of).unwrap_or_default())
        };
        now.iter().map(grown).max().unwrap_or_default()
    };
    since(|thread| thread.waited).saturating_sub(since(|thread| thread.ran))
}

fn termination(status: ExitStatus) -> Termination {
    match (status.code(), status.signal()) {
        (Some(code), _) => Termination::Exited(code),
        (None, signal) => Termination::Signal(signal.unwrap_or_default()),
    }
}

/// Whether `stop` requests the end of the run.
fn wait<'a>(
    others: impl IntoIterator<Item = BorrowedFd<'a>>,
    stop: Option<BorrowedFd<'a>>,
    time: Duration,
) -> nix::Result<bool> {
    let mut fds: Vec<PollFd<'_>> =
        stop.into_iter().chain(others).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let time =
        PollTimeout::try_from(time.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, time) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno),
    }
    Ok(stop.is_some() && fds.first().and_then(PollFd::any).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(all: &[(u32, u64, u64)]) -> BTreeMap<u32, SchedStat> {
        let millis = Duration::from_millis;
        all.iter()
            .map(|(number, ran, waited)| {
                (*number, SchedStat { ran: millis(*ran), waited: millis(*waited) })
            })
            .collect()
    }

    #[test]
    fn cpu_wait_counts_only_while_no_thread_runs() {
        let before = threads(&[(1, 100, 50), (2, 10, 0)]);
        // Waited for a processor all the time; a thread that began since then has waited as well.
        assert_eq!(
            cpu_wait_between(&before, &threads(&[(1, 100, 70), (2, 10, 0)])),
            Duration::from_millis(20)
        );
        assert_eq!(
            cpu_wait_between(&before, &threads(&[(1, 100, 50), (2, 10, 0), (3, 2, 18)])),
            Duration::from_millis(16)
        );
        // One waited while another one worked.
        assert_eq!(
            cpu_wait_between(&before, &threads(&[(1, 120, 50), (2, 10, 20)])),
            Duration::ZERO
        );
        // Waited for the device, or was stopped.
        assert_eq!(cpu_wait_between(&before, &before), Duration::ZERO);
        assert_eq!(cpu_wait_between(&before, &threads(&[])), Duration::ZERO);
    }
}
