//! A watchdog for systems where systemd's is not on, for example a pod. A thread ends the process
//! when the owner's loop has stalled, so that the supervisor restarts it.
//!
//! In: the owner's heartbeat. Out: the end of the process, or nothing. Hanging devices, mounts and
//! workers do not stall the loop. A probe from outside is worse: one that starts a program in the
//! container needs the disk of the image, and one over the network needs a port that others can
//! keep busy.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use nix::sys::prctl::set_dumpable;
use nix::unistd::alarm;

use crate::state::owner::Heartbeat;
use diskvitals_program::logging::LogQueue;

/// The loop beats twice in this time: within a shorter time, a stalled loop cannot be distinguished
/// from a late one.
pub(crate) const MIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Polls of the heartbeat within the time-out.
const POLLS_PER_TIMEOUT: u32 = 6;
/// Maximum time for the log's thread to write the cause before the process ends.
const LOG_FLUSH_TIMEOUT: Duration = Duration::from_millis(1500);
/// After this many seconds the kernel ends the process: longer than `LOG_FLUSH_TIMEOUT`.
const ALARM_SECONDS: u32 = 3;

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    _stop_on_drop: SyncSender<()>,
}

impl Watchdog {
    pub fn start(heartbeat: Heartbeat, timeout: Duration, log: LogQueue) -> io::Result<Watchdog> {
        let (stop_on_drop, stopped) = sync_channel(0);
        std::thread::Builder::new().name("watchdog".into()).stack_size(128 * 1024).spawn(
            move || {
                let interval = timeout / POLLS_PER_TIMEOUT;
                let abort = || abort_daemon(timeout, &log);
                watch(|| heartbeat.count(), &stopped, interval, abort)
            },
        )?;
        Ok(Watchdog { _stop_on_drop: stop_on_drop })
    }
}

/// Polls until the sender of `stopped` is dropped, or `end` has been called. It counts polls, not
/// time: a process that was stopped as a whole (SIGSTOP, a frozen control group, a suspended
/// machine) has not stalled.
fn watch(beats: impl Fn() -> u64, stopped: &Receiver<()>, interval: Duration, end: impl FnOnce()) {
    let (mut last, mut same) = (None, 0);
    while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        let now = Some(beats());
        same = if now == last { same + 1 } else { 0 };
        last = now;
        if same >= POLLS_PER_TIMEOUT {
            return end();
        }
    }
}

/// The stalled loop may hold a lock that a log line or an allocation needs. The alarm ends the
/// process if this thread cannot. (Signals do not end process 1 of a container, but the chart's
/// pods share the host's process namespace.)
fn abort_daemon(timeout: Duration, log: &LogQueue) {
    alarm::set(ALARM_SECONDS);
    tracing::error!(
        seconds = timeout.as_secs(),
        "the main loop has stalled; exiting so that the supervisor restarts the daemon"
    );
    // The process ends even if the message is not written.
    let _ = log.flush(LOG_FLUSH_TIMEOUT);
    // No core dump: it would be written to a disk that may be the hanging one, and the restart
    // would wait for it. If this call fails, one more file exists.
    let _ = set_dumpable(false);
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    const EVERY: Duration = Duration::from_millis(1);

    #[test]
    fn a_stalled_loop_is_aborted_after_the_timeout_and_not_before() {
        let (_there, watched) = sync_channel(0);
        let looks = AtomicU64::new(0);
        let ended = AtomicBool::new(false);
        let count = || {
            looks.fetch_add(1, Ordering::Relaxed);
            7
        };
        watch(count, &watched, EVERY, || ended.store(true, Ordering::Relaxed));
        assert!(ended.load(Ordering::Relaxed));
        // The first one has nothing to compare with.
        assert_eq!(looks.load(Ordering::Relaxed), u64::from(POLLS_PER_TIMEOUT) + 1);
    }

    #[test]
    fn a_slow_loop_and_a_finished_one_are_left_alone() {
        let (there, watched) = sync_channel(0);
        let looks = AtomicU64::new(0);
        let there = std::sync::Mutex::new(Some(there));
        // It moves at the last look that it has; after a hundred it is no longer watched.
        let count = || {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            if look == 100 {
                there.lock().expect("the test").take();
            }
            look / u64::from(POLLS_PER_TIMEOUT)
        };
        watch(count, &watched, EVERY, || panic!("ended"));
        assert!(looks.load(Ordering::Relaxed) > 100);
    }
}
