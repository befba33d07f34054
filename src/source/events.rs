//! Device events: additions, changes and removals of devices, from the kernel or from udev after
//! its rules, through the netlink monitor of libudev.
//!
//! In: uevents of block, nvme and enclosure devices. Out: `DeviceEvent`s. An event triggers a scan
//! and is never a fact by itself: nothing is lost as long as one event follows the last change, and
//! an overflow becomes `Overrun`. Objects of udev never leave the thread.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sched::CloneFlags;
use nix::sys::socket::sockopt;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use udev::{MonitorBuilder, MonitorSocket};

use diskvitals_host::root::HostRoot;
use diskvitals_model::source_update::SourceStatus;

/// `nvme` for controllers without namespaces, `enclosure` for drives that move to another slot.
const SUBSYSTEMS: [&str; 4] = ["block", "nvme", "nvme-subsystem", "enclosure"];
/// About 100,000 events. Memory is used only while events wait.
const RECEIVE_BUFFER: usize = 128 * 1024 * 1024;
const CHANNEL_CAPACITY: usize = 256;
const STACK_SIZE: usize = 128 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    Changed {
        /// `add`, `change`, `remove`…
        action: String,
        subsystem: String,
        /// Kernel name: `sda1`, `nvme0`.
        devname: String,
        seqnum: u64,
    },
    /// An NVMe controller (`nvme0`) has announced an event (NVME_AEN, nvme_aen_uevent(),
    /// drivers/nvme/host/core.c), or has finished a reset, which clears its event settings
    /// (NVME_EVENT=connected, nvme_start_ctrl()). Sent in addition to `Changed`.
    NvmeEvent { controller: String },
    /// Events were lost: scan everything.
    Overrun,
    /// There will be no more events; the text contains the reason.
    Stopped(String),
}

/// The receiving side. Dropping it ends the thread.
pub struct DeviceEvents {
    receiver: mpsc::Receiver<DeviceEvent>,
    overrun: Arc<AtomicBool>,
    /// Closing it wakes the thread.
    _stop: Option<OwnedFd>,
}

impl DeviceEvents {
    /// None when there will be no more events. Cancel-safe.
    pub async fn recv(&mut self) -> Option<DeviceEvent> {
        if self.overrun.swap(false, Ordering::SeqCst) {
            return Some(DeviceEvent::Overrun);
        }
        self.receiver.recv().await
    }
}

/// Starts listening. Every event after the return is received. If the status is `Down` or
/// `Limited`, it names what is missing; the caller then scans periodically.
pub fn start(root: &HostRoot) -> (SourceStatus, DeviceEvents) {
    start_with(root, RECEIVE_BUFFER)
}

/// With a receive buffer of another size, for a test of its overflow.
#[doc(hidden)]
pub fn start_with(root: &HostRoot, buffer: usize) -> (SourceStatus, DeviceEvents) {
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let overrun = Arc::new(AtomicBool::new(false));
    let mut events = DeviceEvents { receiver, overrun: Arc::clone(&overrun), _stop: None };
    if root.is_recorded() {
        return (SourceStatus::Limited("a recorded tree has no events".to_owned()), events);
    }
    let (stopped, stop) = match nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC) {
        Ok(ends) => ends,
        Err(error) => {
            return (
                SourceStatus::Down(format!("no device events: making a pipe: {error}")),
                events,
            );
        }
    };
    events._stop = Some(stop);
    let (status_sender, status_receiver) = std::sync::mpsc::channel();
    let root = root.clone();
    let thread = std::thread::Builder::new()
        .name("uevents".to_owned())
        .stack_size(STACK_SIZE)
        .spawn(move || {
            // Each send fails only when the caller has ended; then the pipe is also closed.
            let (status, socket) = match open(&root, buffer) {
                Ok(opened) => opened,
                Err(error) => {
                    let status = SourceStatus::Down(format!("no device events: {error}"));
                    let _ = status_sender.send(status);
                    return;
                }
            };
            let _ = status_sender.send(status);
            let outlet = EventSender { sender, overrun };
            if let Err(error) = forward_events(&socket, &stopped, &outlet) {
                outlet.send_stopped(error);
            }
        });
    let status = match thread {
        Ok(_detached) => status_receiver.recv().unwrap_or_else(|_| {
            SourceStatus::Down("no device events: the thread ended".to_owned())
        }),
        Err(error) => SourceStatus::Down(format!("no device events: starting a thread: {error}")),
    };
    (status, events)
}

#[derive(Debug, thiserror::Error)]
enum ListenError {
    #[error("opening the netlink monitor: {0}")]
    Open(io::Error),
    #[error("waiting for the netlink socket: {0}")]
    Wait(Errno),
    #[error("receiving from the netlink socket: {0}")]
    Receive(Errno),
    #[error("the netlink socket is closed")]
    Closed,
}

#[derive(Debug, thiserror::Error)]
enum NetworkError {
    #[error(
        "reading {}: {source}: if the host's network namespace is another one, events may be missing",
        path.display()
    )]
    ReadNamespace { path: std::path::PathBuf, source: io::Error },
    #[error("entering the host's network namespace: {0}: events may be missing")]
    Enter(io::Error),
}

/// Listens in the host's network namespace: events of udevd stay in its own namespace, and those of
/// the kernel reach no namespace of another user namespace (uevent_net_broadcast_untagged(),
/// lib/kobject_uevent.c).
fn open(root: &HostRoot, buffer: usize) -> Result<(SourceStatus, MonitorSocket), ListenError> {
    let mut limits = Vec::new();
    if let Err(error) = enter_host_network(root) {
        limits.push(error.to_string());
    }
    // The control socket of udevd: while it exists, udevd runs and sends processed events.
    let control = "/run/udev/control";
    let udev_runs = root.at(control).exists();
    // libudev looks for the socket at this path, and without it receives nothing and reports no
    // error (device_monitor_new_full()).
    let can_hear_udev = udev_runs && std::path::Path::new(control).exists();
    let builder = if can_hear_udev { MonitorBuilder::new() } else { MonitorBuilder::new_kernel() }
        .map_err(ListenError::Open)?;
    let builder = SUBSYSTEMS
        .iter()
        .try_fold(builder, |builder, subsystem| builder.match_subsystem(subsystem))
        .map_err(ListenError::Open)?;
    if nix::sys::socket::setsockopt(&builder, sockopt::RcvBufForce, &buffer).is_err() {
        // Without CAP_NET_ADMIN, the size is limited to net.core.rmem_max.
        if let Err(error) = nix::sys::socket::setsockopt(&builder, sockopt::RcvBuf, &buffer) {
            limits.push(format!("the receive buffer is small: {error}"));
        }
    }
    let socket = builder.listen().map_err(ListenError::Open)?;
    if !udev_runs {
        limits.insert(
            0,
            "udevd does not run: kernel events and sysfs only, no udev links and properties"
                .to_owned(),
        );
    } else if !can_hear_udev {
        limits.insert(0, format!("{control} is not mounted here: kernel events, which come before udev has looked at the device"));
    }
    let status = if limits.is_empty() {
        SourceStatus::Active("udev events".to_owned())
    } else {
        SourceStatus::Limited(limits.join("; "))
    };
    Ok((status, socket))
}

/// Changes the namespace of this thread only.
fn enter_host_network(root: &HostRoot) -> Result<(), NetworkError> {
    let hosts = root.at("/proc/1/ns/net");
    // The namespace of this thread comes from our own /proc, whatever the host root is. Reading
    // that of PID 1 needs permission to trace it (ptrace(2)).
    let name = |path: &std::path::Path| {
        std::fs::read_link(path)
            .map_err(|source| NetworkError::ReadNamespace { path: path.to_owned(), source })
    };
    let (host, own) = (name(&hosts)?, name(std::path::Path::new("/proc/thread-self/ns/net"))?);
    if host == own {
        return Ok(());
    }
    let namespace = std::fs::File::open(&hosts).map_err(NetworkError::Enter)?;
    nix::sched::setns(namespace, CloneFlags::CLONE_NEWNET)
        .map_err(|errno| NetworkError::Enter(errno.into()))
}

/// Runs until the receiver is dropped.
fn forward_events(
    socket: &MonitorSocket,
    stopped: &OwnedFd,
    outlet: &EventSender,
) -> Result<(), ListenError> {
    loop {
        let mut fds = [
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
        ];
        match nix::poll::poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(ListenError::Wait(error)),
        }
        let [on_socket, on_stop] = fds.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        if !on_stop.is_empty() {
            return Ok(());
        }
        if on_socket.intersects(PollFlags::POLLHUP | PollFlags::POLLNVAL) {
            return Err(ListenError::Closed);
        }
        drain(socket, outlet)?;
    }
}

/// Reads all waiting messages. At the end libudev returns nothing and leaves the reason in errno,
/// also after an overflow of the buffer.
fn drain(socket: &MonitorSocket, outlet: &EventSender) -> Result<(), ListenError> {
    let mut events = socket.iter();
    loop {
        Errno::clear();
        let Some(event) = events.next() else { break };
        if event.subsystem().is_some_and(|subsystem| subsystem == "nvme") && is_nvme_event(&event) {
            outlet.send(DeviceEvent::NvmeEvent {
                controller: event.sysname().to_string_lossy().into_owned(),
            });
        }
        let text = |text: Option<&std::ffi::OsStr>| {
            text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
        };
        outlet.send(DeviceEvent::Changed {
            action: text(event.action()),
            subsystem: text(event.subsystem()),
            devname: event.sysname().to_string_lossy().into_owned(),
            seqnum: event.sequence_number(),
        });
    }
    match Errno::last() {
        // The filter has dropped the last message.
        Errno::EAGAIN | Errno::EINTR => Ok(()),
        errno if errno == Errno::from_raw(0) => Ok(()),
        // ENOBUFS: the buffer has overflowed. The others: an unreadable message (from another
        // sender, or damaged), after which the socket is still usable.
        Errno::ENOBUFS
        | Errno::EINVAL
        | Errno::EBADMSG
        | Errno::ENODEV
        | Errno::ENOENT
        | Errno::ENODATA
        | Errno::EIO => {
            outlet.send(DeviceEvent::Overrun);
            Ok(())
        }
        errno => Err(ListenError::Receive(errno)),
    }
}

fn is_nvme_event(event: &udev::Event) -> bool {
    event.property_value("NVME_AEN").is_some()
        || event.property_value("NVME_EVENT").is_some_and(|what| what == "connected")
}

struct EventSender {
    sender: mpsc::Sender<DeviceEvent>,
    overrun: Arc<AtomicBool>,
}

impl EventSender {
    /// Never waits. Events that do not fit become one `Overrun`. The flag is set before the second
    /// try_send: either that succeeds and wakes the receiver, or the channel is full and the
    /// receiver sees the flag before it has emptied the channel.
    fn send(&self, event: DeviceEvent) {
        if let Err(TrySendError::Full(_folded)) = self.sender.try_send(event) {
            self.overrun.store(true, Ordering::SeqCst);
            // If the channel is full, the flag suffices; if it is closed, there is no receiver.
            let _ = self.sender.try_send(DeviceEvent::Overrun);
        }
    }

    fn send_stopped(&self, error: ListenError) {
        // The thread ends here, so waiting for room delays nothing; a closed channel has no
        // receiver.
        let _ = self.sender.blocking_send(DeviceEvent::Stopped(error.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_that_do_not_fit_become_one_overrun() {
        let (sender, receiver) = mpsc::channel(4);
        let overrun = Arc::new(AtomicBool::new(false));
        let mut events = DeviceEvents { receiver, overrun: Arc::clone(&overrun), _stop: None };
        let outlet = EventSender { sender, overrun };
        for seqnum in 0..10_000 {
            outlet.send(DeviceEvent::Changed {
                action: "change".into(),
                subsystem: "block".into(),
                devname: "sda".into(),
                seqnum,
            });
        }
        assert_eq!(events.recv().await, Some(DeviceEvent::Overrun));
        for expected in 0..4 {
            assert!(
                matches!(events.recv().await, Some(DeviceEvent::Changed { seqnum, .. }) if seqnum == expected)
            );
        }
        drop(outlet);
        assert_eq!(events.recv().await, None);
    }

    #[tokio::test]
    async fn a_recorded_tree_has_no_events_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("exec")).unwrap();
        let (status, mut events) = start(&HostRoot::new(dir.path()));
        assert_eq!(status, SourceStatus::Limited("a recorded tree has no events".into()));
        assert_eq!(events.recv().await, None);
    }
}
