//! `check`: starts a check in the daemon, shows its progress until it ends, and cancels it when
//! interrupted.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::args::CheckArgs;
use crate::check_image::{check_image, stop_pipe};
use crate::error::Error;
use crate::place::by_name;
use crate::printer::Printer;
use crate::{complain, offline, render};
use diskvitals_fscheck::RunActivity;
use diskvitals_text::echo::Shown;
use diskvitals_wire as wire;
use diskvitals_wire::client::Client;

/// A poll is cheap: the daemon answers from its snapshot.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Time for a cancelled check to end: a frozen filesystem is thawed at once, a checker is killed.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(15);
/// Shells number signals from 128: this is 128 + SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

/// The check could not be done. The status is 3, because 1 is a result.
pub(crate) const EXIT_PREVENTED: u8 = 3;

/// 0 CLEAN, 1 SUSPECTED or CORRUPTED, 3 INCONCLUSIVE or FAILED.
pub fn exit_code(check: &wire::Check) -> ExitCode {
    match check.verdict() {
        wire::check::Verdict::Clean => ExitCode::SUCCESS,
        wire::check::Verdict::Suspected | wire::check::Verdict::Corrupted => ExitCode::FAILURE,
        _ => ExitCode::from(EXIT_PREVENTED),
    }
}

pub async fn run(
    out: &Printer,
    client: &Client,
    args: &CheckArgs,
    target: &str,
) -> Result<ExitCode, Error> {
    let request = wire::StartCheckRequest {
        target: String::new(),
        runs: args.runs.unwrap_or(0),
        freeze: args.freeze,
        force: args.force,
        snapshot: args.snapshot,
        filesystem: args.filesystem.map_or_else(String::new, |kind| kind.name().to_owned()),
    };
    let started = by_name(client, target, async |target| {
        let request = wire::StartCheckRequest { target: target.to_owned(), ..request.clone() };
        client.start_check(request).await
    })
    .await?;
    if args.no_wait {
        out.show("Check", &started, || {
            format!(
                "check {} is queued; `diskvitals checks {}` shows its progress\n",
                started.id, started.id
            )
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let begun = Instant::now();
    let mut line = ProgressLine::new(out);
    let mut interrupted: Option<Instant> = None;
    loop {
        let now = client.check_progress(&started.id).await?;
        if now.state() == wire::check::State::Ended {
            line.clear();
            let now = client.check(&started.id).await?;
            out.show("Check", &now, || render::checks::one(&now, &out.screen))?;
            let interrupted = interrupted.map(|_| ExitCode::from(EXIT_INTERRUPTED));
            return Ok(interrupted.unwrap_or_else(|| exit_code(&now)));
        }
        if interrupted.is_some_and(|since| since.elapsed() > CANCEL_TIMEOUT) {
            line.clear();
            complain(&format!(
                "check {} was cancelled and has not ended yet; `diskvitals checks {}` shows its state",
                now.id, now.id
            ));
            return Ok(ExitCode::from(EXIT_INTERRUPTED));
        }
        line.show(&render::checks::progress(&now, begun.elapsed(), interrupted.is_some()));
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            signal = tokio::signal::ctrl_c() => {
                signal.map_err(Error::Signal)?;
                if interrupted.is_some() {
                    line.clear();
                    complain(&format!("check {} is being cancelled; `diskvitals checks {}` shows its state", now.id, now.id));
                    return Ok(ExitCode::from(EXIT_INTERRUPTED));
                }
                interrupted = Some(Instant::now());
                // The check may have just ended: then the next poll shows its result.
                if let Err(error) = client.cancel_check(&now.id).await {
                    complain(&error.to_string());
                }
            }
        }
    }
}

/// Checks a file without a daemon. The checker ends with this process, and nothing of it is left.
pub(crate) async fn check_image_file(
    out: &Printer,
    path: &Path,
    config: Option<&Path>,
) -> Result<ExitCode, Error> {
    let (file, begun) = (path.to_owned(), Instant::now());
    let policy = offline::policy(config)?.checks;
    let (activities, activity) = tokio::sync::watch::channel(RunActivity::default());
    let (stop, stops_when_closed) = stop_pipe()?;
    let mut interrupted = std::pin::pin!(interruption());
    let mut checking = tokio::task::spawn_blocking(move || {
        check_image(&file, None, &policy, stop.as_fd(), &mut |activity| {
            drop(activities.send_replace(activity.clone()))
        })
    });
    let mut line = ProgressLine::new(out);
    let checked = loop {
        tokio::select! {
            checked = &mut checking => break checked,
            () = tokio::time::sleep(POLL_INTERVAL) => {
                let activity = activity.borrow().clone();
                line.show(&render::checks::image_progress(path, &activity, begun.elapsed()));
            }
            signal = &mut interrupted => {
                let signal = signal.map_err(Error::Signal)?;
                line.clear();
                complain("interrupted: nothing is known of the file, and nothing was written to it");
                drop(stops_when_closed);
                tokio::select! {
                    // Its thread has killed the checker and removed its control group.
                    _ = &mut checking => {}
                    () = tokio::time::sleep(CANCEL_TIMEOUT) => complain("the checker does not end"),
                    _ = interruption() => {}
                }
                // A thread that waits for a disk would be waited for.
                std::process::exit(128 + signal as i32);
            }
        }
    };
    line.clear();
    let check = checked.map_err(|error| Error::Signal(error.into()))??;
    let wire = diskvitals_convert::check::check_with_output(&check);
    out.show("Check", &wire, || render::checks::one(&wire, &out.screen))?;
    Ok(exit_code(&wire))
}

/// The first signal that asks this program to end.
async fn interruption() -> std::io::Result<Signal> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = match is_ignored(Signal::SIGHUP) {
        // As nohup(1) starts it.
        true => None,
        false => Some(signal(SignalKind::hangup())?),
    };
    let hung_up = async {
        match &mut hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    Ok(tokio::select! {
        _ = interrupt.recv() => Signal::SIGINT,
        _ = terminate.recv() => Signal::SIGTERM,
        _ = hung_up => Signal::SIGHUP,
    })
}

/// The mask of proc_pid_status(5).
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal as i32 - 1) & 1 == 1
}

/// Shows progress: on a terminal, one line that is overwritten; elsewhere, a line for each new
/// phase; nothing if the output is JSON.
pub struct ProgressLine {
    terminal: bool,
    silent: bool,
    last_text: String,
    width: usize,
}

impl ProgressLine {
    pub fn new(out: &Printer) -> ProgressLine {
        ProgressLine {
            terminal: std::io::stderr().is_terminal(),
            silent: out.json,
            last_text: String::new(),
            width: usize::from(out.screen.width.unwrap_or(120)),
        }
    }

    /// Shows `progress`: the current phase and its duration.
    pub fn show(&mut self, (what, elapsed): &(String, String)) {
        if self.terminal && !self.silent {
            let text = diskvitals_terminal::width::shortened(
                &format!("{what}  {elapsed}"),
                self.width.saturating_sub(1),
            );
            self.write_stderr(&format!("\r\x1b[K{text}"));
        } else if !self.silent && *what != self.last_text {
            self.write_stderr(&format!("{what}\n"));
        }
        self.last_text.clone_from(what);
    }

    pub fn clear(&mut self) {
        if self.terminal && !self.silent {
            self.write_stderr("\r\x1b[K");
        }
    }

    fn write_stderr(&self, text: &str) {
        let mut error = std::io::stderr();
        // The error cannot be reported on an unwritable standard error.
        let _ =
            error.write_all(Shown::screen(text).as_str().as_bytes()).and_then(|()| error.flush());
    }
}

/// Lists all checks, the checks of one target, or shows one check in full.
pub async fn list(out: &Printer, client: &Client, what: Option<&str>) -> Result<(), Error> {
    if let Some(id) =
        what.filter(|what| what.len() == 12 && what.bytes().all(|byte| byte.is_ascii_hexdigit()))
        && let Ok(check) = client.check(id).await
    {
        return out.show("Check", &check, || render::checks::in_full(&check, &out.screen));
    }
    let answer = match what {
        Some(what) => by_name(client, what, async |what| client.checks(what).await).await?,
        None => client.checks("").await?,
    };
    out.show("ListChecksResponse", &answer, || render::checks::table(&answer.checks, &out.screen))
}
