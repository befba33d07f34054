//! The state of other processes: alive, dying in an uninterruptible wait, or exited.

use std::io;

use crate::sys;

/// The lowest priority of the processor and of I/O, for this process.
pub fn lower_priority() -> io::Result<()> {
    sys::lower_priority()
}

/// The state of a process, from /proc/PID (proc_pid_stat(5), proc_pid_status(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    Alive,
    /// Killed or exiting; threads in uninterruptible sleep may still hold its files and locks.
    Dying,
    Exited,
}

/// The state of a process in our own PID namespace.
pub fn process_state(pid: u32) -> ProcessState {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return ProcessState::Exited;
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    parse_state(&stat, &status)
}

/// `D (disk sleep) in request_wait_answer`, from /proc/PID (proc_pid_status(5), proc_pid_wchan(5));
/// reading them does not wait for the process.
pub fn waiting_in(pid: Option<u32>) -> Option<String> {
    let pid = pid?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let state = status.lines().find_map(|line| line.strip_prefix("State:"))?.trim().to_owned();
    match std::fs::read_to_string(format!("/proc/{pid}/wchan")) {
        Ok(place) if !matches!(place.trim(), "" | "0") => {
            Some(format!("{state} in {}", place.trim()))
        }
        _ => Some(state),
    }
}

/// PF_EXITING, include/linux/sched.h.
const PF_EXITING: u64 = 0x4;
/// The bit of SIGKILL in the masks of /proc/PID/status.
const SIGKILL_BIT: u64 = 1 << 8;

fn parse_state(stat: &str, status: &str) -> ProcessState {
    // The name in parentheses may contain anything; fields are counted from its end: state, ppid,
    // pgrp, session, tty_nr, tpgid, flags.
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return ProcessState::Exited;
    };
    let mut fields = fields.split(' ');
    let state = fields.next().unwrap_or_default();
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or_default();
    let pending = |name: &str| {
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & SIGKILL_BIT != 0)
    };
    // A leader that has exited shows as Z while its other threads hang and still hold the lock.
    if matches!(state, "Z" | "X")
        || flags & PF_EXITING != 0
        || pending("SigPnd:")
        || pending("ShdPnd:")
    {
        ProcessState::Dying
    } else {
        ProcessState::Alive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive() {
        assert_eq!(process_state(std::process::id()), ProcessState::Alive);
        assert_eq!(process_state(u32::MAX), ProcessState::Exited);
    }

    #[test]
    fn killed_exiting_and_zombie_processes_are_dying() {
        let stat = |state: &str, flags: u64| format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 0 0");
        assert_eq!(
            parse_state(
                &stat("S", 0x400100),
                "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n"
            ),
            ProcessState::Alive
        );
        assert_eq!(parse_state(&stat("Z", 0), ""), ProcessState::Dying);
        assert_eq!(parse_state(&stat("D", 0x400104), ""), ProcessState::Dying);
        assert_eq!(parse_state(&stat("D", 0), "ShdPnd:\t0000000000000100\n"), ProcessState::Dying);
    }
}
