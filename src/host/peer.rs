//! The process at the other end of a unix socket, as long as it runs.
//!
//! In: a connection. Out: its pid with its start time, and its control groups, which it cannot choose:
//! the pod, the unit or the session. A process that has ended, or is in another pid namespace, has
//! none of this.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

use crate::intents::process_start_time;

/// Of a pod on a node with many hierarchies (v1), each with a long path.
const MAX_CGROUP_BYTES: usize = 8 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub pid: u32,
    /// In ticks after boot: a pid is used again.
    pub started: u64,
    /// The content of /proc/PID/cgroup (cgroups(7)).
    pub control_groups: Arc<str>,
}

/// A peer that is not read yet.
#[derive(Debug)]
pub struct UnreadPeer {
    pid: u32,
    /// Since 6.5. Without it, a pid that was used again within this moment is taken for the peer.
    pidfd: Option<OwnedFd>,
}

impl UnreadPeer {
    /// `pid`: that of SO_PEERCRED.
    pub fn new(socket: impl AsFd, pid: u32) -> UnreadPeer {
        let pidfd = getsockopt(&socket, sockopt::PeerPidfd).ok();
        UnreadPeer { pid, pidfd }
    }

    /// May block: the kernel's lock of the control groups, before 6.8.
    pub fn read(self) -> Option<Peer> {
        let UnreadPeer { pid, pidfd } = self;
        let started = process_start_time(pid)?;
        let groups = std::fs::read(format!("/proc/{pid}/cgroup")).ok()?;
        if let Some(pidfd) = &pidfd {
            // A pidfd is readable from the end of its process on (pidfd_open(2)).
            let mut ended = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
            if poll(&mut ended, PollTimeout::ZERO) != Ok(0) {
                return None;
            }
        }
        let groups = &groups[..groups.len().min(MAX_CGROUP_BYTES)];
        Some(Peer { pid, started, control_groups: String::from_utf8_lossy(groups).into() })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the peer must be another process, which ends")]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_peer_is_known_by_its_pid_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let connect = format!(
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect({:?}); sys.stdin.read()",
            path.display()
        );
        let mut other = Command::new("/usr/bin/python3")
            .args(["-c", &connect])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (stream, _) = listener.accept().unwrap();
        let peer = UnreadPeer::new(&stream, other.id()).read().expect("it runs");
        assert_eq!(Some(peer.started), process_start_time(other.id()));
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        assert_eq!(*peer.control_groups, *own, "a child is in our groups");
        drop(other.stdin.take());
        other.wait().unwrap();
        assert_eq!(UnreadPeer::new(&stream, other.id()).read(), None);
        // The pid belongs to another process, which runs.
        let is_told_apart = getsockopt(&stream, sockopt::PeerPidfd).is_ok();
        if is_told_apart {
            assert_eq!(UnreadPeer::new(&stream, std::process::id()).read(), None);
        }
    }
}
