//! Blocks signals and awaits them together with a pipe, in a single-threaded process that must
//! finish its current step before it exits.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getppid};

use crate::clock::monotonic;

/// Blocks all signals that can be blocked, from its creation on.
#[derive(Debug)]
pub struct BlockedSignals(SignalFd);

/// Why the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// The pipe is readable.
    Input,
    /// The other end of the pipe is closed, the pipe cannot be read, or the parent has exited.
    Closed,
    Signal(u32),
    Timeout,
}

/// The interval between checks for the parent.
const PARENT_POLL_INTERVAL: Duration = Duration::from_millis(250);

impl BlockedSignals {
    pub fn block() -> Result<BlockedSignals, Errno> {
        let all = SigSet::all();
        all.thread_block()?;
        SignalFd::with_flags(&all, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map(BlockedSignals)
    }

    /// Whether `input` is readable or closed, a signal is pending, or `parent` has exited. Consumes
    /// nothing.
    pub fn is_cancelled(&self, input: impl AsFd, parent: Pid) -> bool {
        let mut waited = [
            PollFd::new(input.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.0.as_fd(), PollFlags::POLLIN),
        ];
        // If poll fails, the wait is over.
        let asked = poll(&mut waited, PollTimeout::ZERO).is_ok();
        !asked || getppid() != parent || waited.iter().any(|waited| waited.any().unwrap_or(true))
    }

    /// Waits for `input`, a signal, the death of `parent` or the end of `limit`, whichever is
    /// first. Allocates nothing: memory may be short because writers are held.
    ///
    /// Normally the parent's death closes the pipe at once. But another child of the parent may
    /// still have a copy of it: one that was forked and waits for a dead disk in execve(2), before
    /// its descriptors are closed. Then getppid(2) shows the death; it changes when the whole
    /// process exits.
    pub fn wait(&self, input: impl AsFd, limit: Duration, parent: Pid) -> WakeReason {
        let end = monotonic().saturating_add(limit);
        loop {
            let left = end.saturating_sub(monotonic());
            if left.is_zero() {
                return WakeReason::Timeout;
            }
            if getppid() != parent {
                return WakeReason::Closed;
            }
            // Rounded up: otherwise the loop would spin during the last millisecond.
            let left = PollTimeout::try_from(
                left.min(PARENT_POLL_INTERVAL).saturating_add(Duration::from_millis(1)),
            )
            .unwrap_or(PollTimeout::MAX);
            let mut waited = [
                PollFd::new(input.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.0.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut waited, left) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return WakeReason::Closed,
            }
            let [pipe, signals] = waited.map(|waited| waited.any().unwrap_or(true));
            if signals && let Ok(Some(signal)) = self.0.read_signal() {
                // SIGCHLD, SIGWINCH and similar signals do not end the wait.
                if !is_harmless(signal.ssi_signo) {
                    return WakeReason::Signal(signal.ssi_signo);
                }
            }
            if pipe {
                let mut bytes = [0; 64];
                match nix::unistd::read(&input, &mut bytes) {
                    Ok(1..) => return WakeReason::Input,
                    Err(Errno::EAGAIN | Errno::EINTR) => {}
                    Ok(0) | Err(_) => return WakeReason::Closed,
                }
            }
        }
    }
}

/// Signals that do not end this process (signal(7)); SIGPIPE is ignored.
fn is_harmless(signal: u32) -> bool {
    use nix::libc::{SIGCHLD, SIGCONT, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
    [SIGCHLD, SIGCONT, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH]
        .iter()
        .any(|harmless| u32::try_from(*harmless) == Ok(signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_or_a_closed_pipe_or_a_new_parent_cancels() {
        let signals = BlockedSignals::block().unwrap();
        let (input, output) = nix::unistd::pipe().unwrap();
        let other = Pid::from_raw(i32::MAX);
        assert!(!signals.is_cancelled(&input, getppid()));
        assert!(signals.is_cancelled(&input, other));
        nix::unistd::write(&output, b"x").unwrap();
        assert!(signals.is_cancelled(&input, getppid()));
        // What was there is there still.
        assert_eq!(signals.wait(&input, Duration::from_secs(60), getppid()), WakeReason::Input);
        assert!(!signals.is_cancelled(&input, getppid()));
        drop(output);
        assert!(signals.is_cancelled(&input, getppid()));
    }
}
