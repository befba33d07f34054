//! Processes of a run whose supervisor was killed, where no control group holds them together. The program
//! itself ends with its supervisor, but not what it has started.
//!
//! In: the ids that only runs have. Out: they are killed. A process is one of them if it has all that the jail gives and
//! nothing gives back, with an id that only runs have, and the leader of its process group has ended: the
//! filter refuses other groups, and of a run that is supervised, the group is killed with its leader.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::jail::run_group::{REMOVE_POLL_MILLIS, REMOVE_TIMEOUT};
use crate::process::{ProcessState, process_state};
use crate::sys;

/// At the daemon's start. `ids`: those that only runs have. Out: a line for the log of each that could not be killed.
pub fn kill_orphans(ids: &[Range<u32>]) -> Vec<String> {
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    loop {
        let is_last = Instant::now() >= deadline;
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let orphans: Vec<(u32, OwnedFd)> =
            pids.filter_map(|pid| Some((pid, orphan(pid, ids)?))).collect();
        if orphans.is_empty() || is_last {
            return orphans
                .into_iter()
                .map(|(pid, _)| {
                    format!("process {pid} of an earlier filesystem check cannot be killed")
                })
                .collect();
        }
        for (_, process) in &orphans {
            // An error: it has ended.
            sys::pidfd_kill(process.as_fd()).ok();
        }
        // Only sleeps. Again: one may have forked meanwhile.
        poll(&mut [], REMOVE_POLL_MILLIS).ok();
    }
}

/// The process, if it is an orphan and runs. What is read may be of another process only if this one has
/// ended: its descriptor then reaches nobody.
fn orphan(pid: u32, ids: &[Range<u32>]) -> Option<OwnedFd> {
    let process = sys::pidfd_open(pid).ok()?;
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let leader = group_leader(&String::from_utf8_lossy(&stat))?;
    let has_ended = kill(Pid::from_raw(leader), None) == Err(Errno::ESRCH)
        || process_state(leader.unsigned_abs()) == ProcessState::Dying;
    let mut ended = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    let runs = poll(&mut ended, PollTimeout::ZERO) == Ok(0);
    (is_of_a_run(&String::from_utf8_lossy(&status), ids) && has_ended && runs).then_some(process)
}

/// None: it is in another PID namespace.
fn group_leader(stat: &str) -> Option<i32> {
    // The name in parentheses may contain anything: state, ppid, pgrp.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(2)?.parse().ok().filter(|leader| *leader > 0)
}

/// Whether a process with this /proc/PID/status has been through `child::enter`.
fn is_of_a_run(status: &str, ids: &[Range<u32>]) -> bool {
    let field = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|words| words.split_whitespace().collect::<Vec<_>>())
    };
    let Some(uids) = field("Uid:") else {
        return false;
    };
    let id = uids.first().and_then(|id| id.parse::<u32>().ok());
    id.is_some_and(|id| ids.iter().any(|part| part.contains(&id)))
        && uids.iter().all(|one| *one == uids[0])
        && field("Gid:").as_ref() == Some(&uids)
        && field("Groups:").is_some_and(|groups| groups.is_empty())
        && field("NoNewPrivs:") == Some(vec!["1"])
        && field("CapBnd:") == Some(vec!["0000000000000000"])
        // SECCOMP_MODE_FILTER.
        && field("Seccomp:") == Some(vec!["2"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_a_run_has_all_that_the_jail_gives() {
        let ids = [2_130_706_432..2_130_800_000, 2_131_000_000..2_143_289_344];
        let status = "Name:\te2fsck\nUid:\t2130706999\t2130706999\t2130706999\t2130706999\n\
            Gid:\t2130706999\t2130706999\t2130706999\t2130706999\nGroups:\t \n\
            CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        assert!(is_of_a_run(status, &ids));
        for (from, to) in [
            // An id that a file assigns.
            ("2130706999", "2130900000"),
            ("2130706999\nGid", "0\nGid"),
            ("Gid:\t2130706999", "Gid:\t2130707000"),
            ("Groups:\t ", "Groups:\t27 "),
            ("0000000000000000", "000001ffffffffff"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Seccomp:\t2\n", ""),
        ] {
            let other = status.replace(from, to);
            assert_ne!(other, status);
            assert!(!is_of_a_run(&other, &ids), "{other}");
        }
        assert!(!is_of_a_run("", &ids));
    }

    #[test]
    fn the_leader_is_read_behind_any_name() {
        assert_eq!(group_leader("9 (a) S 1 2 3) R 7 5 5 0"), Some(5));
        assert_eq!(group_leader("9 (a) R 0 0 0 0"), None);
        assert_eq!(group_leader(""), None);
    }
}
