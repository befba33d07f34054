//! Child processes and calls that may block: each wait for one of them has a limit, so that one that
//! hangs or ends early costs its own figure and not the rest of the run.

use std::io;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use procfs::process::Process;

use crate::footprint;

/// For a program that has a moment's work to do.
pub const TOOL_TIMEOUT: Duration = Duration::from_secs(60);
/// After SIGKILL; a process that waits for a device in the kernel does not end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A process without input and output, killed when it is dropped.
pub struct Running {
    child: Child,
    name: String,
}

impl Running {
    pub fn start(command: &mut Command) -> anyhow::Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Running { child, name })
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn must_run(&mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait();
        match ended.with_context(|| format!("waiting for {}", self.name))? {
            Some(status) => bail!("{} has ended: {status}", self.name),
            None => Ok(()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        kill(&mut self.child, &self.name);
    }
}

/// Kills a process that is no longer needed, and reports one that survives.
pub fn kill(child: &mut Child, name: &str) {
    // An error means that the process has already ended.
    let _ended = child.kill();
    match wait(child, KILL_TIMEOUT) {
        Ok(Some(_status)) => {}
        Ok(None) => eprintln!("error: {name} did not end within {KILL_TIMEOUT:?} of SIGKILL"),
        Err(error) => eprintln!("error: waiting for the end of {name}: {error}"),
    }
}

/// `None`: it still runs after `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// As `Command::output`. A program that takes longer is killed.
pub fn output(command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let ended = within(&name, limit, move || child.wait_with_output());
    if ended.is_err() {
        // Without effect if it has just ended.
        let _ended = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    ended?.with_context(|| format!("reading the output of {name}"))
}

/// Runs `call` on a thread of its own. One that does not return in time is left behind: its thread
/// ends with this program.
pub fn within<T: Send + 'static>(
    what: &str,
    limit: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("limited".to_owned())
        // The receiver has gone if this came too late.
        .spawn(move || drop(sender.send(call())))
        .with_context(|| format!("starting a thread for {what}"))?;
    match receiver.recv_timeout(limit) {
        Ok(value) => Ok(value),
        Err(mpsc::RecvTimeoutError::Timeout) => bail!("{what} took longer than {limit:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => bail!("{what} panicked"),
    }
}

/// The processor time of a process and its descendants that run now, in nanoseconds of schedstat: a
/// clock tick is too coarse for a scrape.
pub fn run_time(pid: i32) -> anyhow::Result<Duration> {
    let mut sum = 0;
    for process in footprint::process_tree(pid)? {
        for task in process.tasks().context("listing threads")?.flatten() {
            // A thread that has ended is left out.
            sum += task.schedstat().map_or(0, |stat| stat.sum_exec_runtime);
        }
    }
    Ok(Duration::from_nanos(sum))
}

/// In MiB, of a process and its descendants: shared pages count once.
pub fn memory(pid: i32) -> anyhow::Result<f64> {
    let mut sum = 0;
    for process in footprint::process_tree(pid)? {
        sum += footprint::memory(&process)?.1;
    }
    Ok(sum as f64 / 1_048_576.0)
}

/// In MiB: what is resident of the process itself, and the anonymous part of it.
pub fn resident(pid: i32) -> anyhow::Result<(f64, f64)> {
    let status =
        Process::new(pid).and_then(|process| process.status()).context("reading a /proc entry")?;
    let mib = |kib: Option<u64>| kib.unwrap_or_default() as f64 / 1024.0;
    Ok((mib(status.vmrss), mib(status.rssanon)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let started = Instant::now();
        let mut command = Command::new("sleep");
        let error = output(command.arg("1000"), Duration::from_millis(50)).unwrap_err();
        assert!(format!("{error:#}").contains("sleep took longer than"));
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_process_that_has_ended_is_noticed_with_its_status() {
        let mut command = Command::new("false");
        let mut running = Running::start(&mut command).expect("false starts");
        let deadline = Instant::now() + Duration::from_secs(30);
        while running.must_run().is_ok() && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
        let error = running.must_run().unwrap_err();
        assert_eq!(error.to_string(), "false has ended: exit status: 1");
    }
}
