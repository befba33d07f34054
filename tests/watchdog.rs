//! The daemon as a process whose main loop stalls: it ends. A daemon whose drives and volumes hang,
//! or which was stopped as a whole, continues.

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "support/process.rs"]
mod process;
#[path = "support/programs.rs"]
mod programs;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "support/smartctl.rs"]
mod smartctl;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "support/tree.rs"]
mod tree;

use std::io::{BufRead, BufReader};
use std::process::ChildStderr;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use process::{Daemon, scrape, scrape_until};

/// The shortest that the daemon takes.
const WATCHDOG: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

fn host(drives: usize, volumes: usize, hung: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    tree::write(dir.path(), tree::Plan { drives, volumes, hung }).expect("is written");
    dir
}

fn start(root: &std::path::Path, config: &str) -> Daemon {
    Daemon::start_with(
        root,
        config,
        Some("127.0.0.1:0"),
        &["--watchdog", &WATCHDOG.as_secs().to_string()],
    )
}

/// Reads the log to its end, so that the daemon need not wait for it.
fn drain(log: BufReader<ChildStderr>) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || log.lines().map_while(Result::ok).collect())
}

/// The daemon's threads but for those that watch and log, in this thread's hands (ptrace(2)).
struct Held {
    leader: Pid,
    threads: Vec<Pid>,
}

impl Held {
    fn seize(leader: Pid) -> Held {
        let tasks = std::fs::read_dir(format!("/proc/{leader}/task")).expect("its threads");
        let ids = tasks.map(|task| {
            task.expect("a thread").file_name().to_string_lossy().parse().expect("a number")
        });
        let name = |id: &i32| {
            std::fs::read_to_string(format!("/proc/{leader}/task/{id}/comm")).unwrap_or_default()
        };
        let ours = ids
            .filter(|id| !["watchdog\n", "log\n"].contains(&name(id).as_str()))
            .map(Pid::from_raw);
        // Threads come and go.
        let threads = ours
            .filter(|thread| ptrace::seize(*thread, ptrace::Options::empty()).is_ok())
            .collect();
        Held { leader, threads }
    }

    /// Stops them as if each waited for what never comes. One that is stopped in the middle of its
    /// work may have the allocator's lock, which the log needs too: all go on again until each was
    /// met where it waits.
    #[allow(clippy::disallowed_methods)] // Between two tries they have time to come back to where they wait.
    fn stop(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.threads.retain(|thread| stop(*thread));
            let at_work: Vec<String> =
                self.threads.iter().filter_map(|thread| works(*thread)).collect();
            if at_work.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "they never wait all together: {at_work:?}");
            for thread in &self.threads {
                ptrace::cont(*thread, None).expect("goes on");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A tracer must reap each thread before the end of the process is visible.
    #[allow(clippy::disallowed_methods)] // waitpid(2) of these alone takes no time-out; the next look is a little later.
    fn await_end(mut self) -> WaitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            for thread in &self.threads {
                match waitpid(*thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
                    Ok(status @ (WaitStatus::Signaled(..) | WaitStatus::Exited(..)))
                        if *thread == self.leader =>
                    {
                        self.threads.clear();
                        return status;
                    }
                    // Of another thread, or nothing yet; an error where its end has been taken
                    // already.
                    Ok(_) | Err(_) => {}
                }
            }
            assert!(Instant::now() < end, "it goes on standing still");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Held {
    /// After a failed test, no other process could wait for the daemon's end.
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        // It may have ended.
        let _ = kill(self.leader, Signal::SIGKILL);
        let others = self.threads.iter().filter(|thread| **thread != self.leader);
        for thread in others.chain([&self.leader]) {
            while !matches!(
                waitpid(*thread, Some(WaitPidFlag::__WALL)),
                Ok(WaitStatus::Signaled(..) | WaitStatus::Exited(..)) | Err(_)
            ) {}
        }
    }
}

/// Whether it stands still now; else it has ended.
fn stop(thread: Pid) -> bool {
    loop {
        // It may end at any time; that is what is waited for then.
        let _ = ptrace::interrupt(thread);
        match waitpid(thread, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::PtraceEvent(..)) => return true,
            // A signal came first, which it gets.
            Ok(WaitStatus::Stopped(_, signal)) => ptrace::cont(thread, signal).expect("goes on"),
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_) => return false,
            Ok(other) => panic!("{other:?}"),
        }
    }
}

/// The system call that it was stopped in, unless that one waits (proc_pid_syscall(5): its number
/// comes first, -1 outside of any).
fn works(thread: Pid) -> Option<String> {
    let call = std::fs::read_to_string(format!("/proc/{thread}/syscall")).expect("is stopped");
    // The last one: any of them with a time-out that was interrupted before.
    let waiting = [
        libc::SYS_futex,
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_read,
        libc::SYS_recvfrom,
        libc::SYS_clock_nanosleep,
        libc::SYS_restart_syscall,
    ];
    let number: i64 =
        call.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number");
    (!waiting.contains(&number)).then_some(call)
}

#[test]
fn a_daemon_with_a_stalled_main_loop_ends_and_logs_the_reason() {
    let host = host(2, 2, 0);
    let mut daemon = start(host.path(), "");
    let address = daemon.address();
    scrape(address);
    let log = drain(daemon.log.take().expect("a log"));
    let leader = Pid::from_raw(daemon.child.id().cast_signed());
    let mut held = Held::seize(leader);
    held.stop();
    let began = Instant::now();
    let ended = held.await_end();
    assert_eq!(ended, WaitStatus::Signaled(leader, Signal::SIGABRT, false));
    assert!(began.elapsed() < WATCHDOG * 15, "{:?}", began.elapsed());
    let log = log.join().expect("is read");
    assert!(log.iter().any(|line| line.contains("the main loop has stalled")), "{log:#?}");
}

#[test]
#[allow(clippy::disallowed_methods)] // What must not happen in a length of time is looked at again and again for that long.
fn a_daemon_whose_drives_and_volumes_hang_stays_alive_and_answers() {
    let host = host(3, 6, 4);
    let dir = tempfile::tempdir().expect("a folder");
    let smartctl = smartctl::Smartctl::new(dir.path()).expect("is written");
    for device in ["/dev/sda", "/dev/sdb", "/dev/nvme0"] {
        smartctl.set_behavior(device, "hang").expect("is written");
    }
    let config = format!(
        "[probes]\ninterval = \"5s\"\ntimeout = \"1s\"\n[smart]\ncommand = \"{}\"\ntimeout = \"2s\"\n",
        smartctl.program().display()
    );
    let mut daemon = start(host.path(), &config);
    let address = daemon.address();
    // What hangs may hold it open for longer than the daemon lives: it is not waited for.
    drain(daemon.log.take().expect("a log"));
    let stuck = |text: &str| {
        let probes = text
            .lines()
            .find_map(|line| line.strip_prefix("diskvitals_probe_stuck{source=\"probe\"} "));
        probes.is_some_and(|count| count != "0") && text.contains("outcome=\"timed_out\"} 1\n")
    };
    scrape_until(address, "volumes and drives hang", stuck);
    let end = Instant::now() + WATCHDOG * 3;
    while Instant::now() < end {
        let asked = Instant::now();
        scrape(address);
        assert!(asked.elapsed() < WATCHDOG, "{:?}", asked.elapsed());
        assert!(daemon.child.try_wait().expect("can be asked").is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(100));
    }
    daemon.stop();
}

#[test]
#[allow(clippy::disallowed_methods)] // It is stopped for a length of time.
fn a_daemon_that_was_stopped_as_a_whole_goes_on_afterwards() {
    let host = host(1, 1, 0);
    let mut daemon = start(host.path(), "[smart]\nenabled = false\n");
    let address = daemon.address();
    scrape(address);
    let log = drain(daemon.log.take().expect("a log"));
    daemon.signal(Signal::SIGSTOP);
    std::thread::sleep(WATCHDOG + WATCHDOG / 2);
    daemon.signal(Signal::SIGCONT);
    // Longer than one look: what it would do, it has done by then.
    let end = Instant::now() + WATCHDOG / 2;
    while Instant::now() < end {
        scrape(address);
        std::thread::sleep(Duration::from_millis(100));
    }
    daemon.stop();
    log.join().expect("is read");
}
