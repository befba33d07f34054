//! Reads the kernel log from /dev/kmsg, or from journald where /dev/kmsg cannot be read.
//!
//! In: the host root, and the stored cursor. Out: `SourceUpdate::KernelLog`, one batch at a time,
//! and the status of the source. The kernel's ring buffer is the queue: when the owner is busy,
//! records wait there. `kernel_log` classifies the records; the owner attributes the events
//! to drives.
//!
//! A quiet log costs nothing, and a first record is read at once. In a flood, the records of one
//! pace interval are read together: one wake-up per record would cost more than the record.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::context::{Context, KernelLogSettings, SourceError};
use crate::kmsg::batcher::{Batcher, CatchUp, KernelClock, MediumProperties, Pieces};
use crate::kmsg::decoder::Decoder;
use crate::kmsg::log_epoch::{LogEpoch, Medium, StartPosition};
use crate::kmsg::log_fd::{LogFd, LogFdKind};
use crate::kmsg::record_splitter::RecordSplitter;
use crate::kmsg::session::{ReadOutcome, Session};
use crate::status_reporter::StatusReporter;
use diskvitals_finding::source::Source;
use diskvitals_host::clock::monotonic;
use diskvitals_host::exec;
use diskvitals_host::exec::{ExecError, StreamingChild, UnkillableChild};
use diskvitals_kernel_log::classify::ClassifierOptions;
use diskvitals_kernel_log::device_name::SOFTWARE_DEVICES;
use diskvitals_kernel_log::event::{Batch, Cursor, ResumePoint};
use diskvitals_model::source_update::{SourceStatus, SourceUpdate};
use diskvitals_text::backoff::Backoff;
use diskvitals_text::causes::with_causes;

pub mod batcher;
mod decoder;
pub mod journal;
pub mod log_epoch;
pub mod log_fd;
pub mod record_splitter;
mod session;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Only for this device does journald have the same records.
pub const DEVICE: &str = "/dev/kmsg";
/// The kernel's longest record fits (CONSOLE_EXT_LOG_MAX is 8 KiB); for a longer one the buffer
/// grows.
const BUFFER: usize = 16 * 1024;
/// CONFIG_MESSAGE_LOGLEVEL_DEFAULT of the kernels of all distributions.
const DEFAULT_LEVEL: u8 = 4;
const MAX_BUFFER: usize = 1024 * 1024;
/// The records read within this time are one batch.
const READ_WINDOW: Duration = Duration::from_millis(25);
/// Reading the ring buffer to its end takes at most this long; a flood that lasts longer is
/// reported while it arrives.
const BACKLOG_TIMEOUT: Duration = Duration::from_secs(2);
/// Wait after a read, for more records of the same incident; longer in a flood.
const READ_INTERVAL: Duration = Duration::from_millis(5);
const FLOOD_READ_INTERVAL: Duration = Duration::from_millis(25);
/// This many records in one read are a flood.
const FLOOD_RECORDS: u64 = 16;
/// A complete line without a successor for this long has no continuation.
const CONTINUATION_TIMEOUT: Duration = Duration::from_millis(1);
/// journalctl never pauses for this long while it prints its backlog.
const JOURNAL_IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum time between two reports of the cursor: after so many records without events, or after a
/// batch with events.
const CURSOR_INTERVAL: Duration = Duration::from_secs(5);
const CURSOR_RECORDS: u64 = 1000;
const LOSS_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between two log messages about overruns of the ring buffer.
const LOSS_LOG_INTERVAL: Duration = Duration::from_secs(60);
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Runs until the state's owner has ended.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    run_with(context, journal::PROGRAMS.iter().map(PathBuf::from).collect()).await
}

async fn run_with(context: Context, journalctl: Vec<PathBuf>) -> Result<Infallible, SourceError> {
    let mut resume = context.resume.clone();
    let stored = match resume.wait_for(|resume| *resume != ResumePoint::Unknown).await {
        Ok(resume) => match &*resume {
            ResumePoint::From(cursor) => cursor.clone(),
            ResumePoint::Unknown => None,
        },
        Err(_) => return Err(SourceError::OwnerGone),
    };
    let settings = context.settings.clone();
    Reader {
        context,
        settings,
        journalctl,
        cursor: stored,
        restart_epoch: None,
        journal_cursor: None,
        unstarted: None,
        reporter: StatusReporter::new(Source::KernelLog),
        loss_logged: None,
    }
    .run()
    .await
}

/// Why journald's copy of the log cannot be read either.
#[derive(Debug, thiserror::Error)]
enum JournalError {
    #[error("and journald, which has a copy, does not run")]
    NotRunning,
    #[error("and journalctl cannot be started: its disk does not answer")]
    NotStarted,
    #[error("and there is no {} to read journald's copy with", journal::PROGRAMS[0])]
    NoProgram,
    #[error(transparent)]
    Start(ExecError),
    #[error("taking the output of {}", .0.display())]
    Output(PathBuf, #[source] io::Error),
}

/// Exists as long as the daemon; a `Session` exists as long as its descriptor.
struct Reader {
    context: Context,
    settings: watch::Receiver<std::sync::Arc<crate::context::SourceSettings>>,
    journalctl: Vec<PathBuf>,
    /// A journalctl that waits for a dead disk. No other is started before it exits.
    unstarted: Option<UnkillableChild>,
    /// The cursor of the last batch; at first, the stored one.
    cursor: Option<Cursor>,
    /// The stored cursor belongs to another log.
    restart_epoch: Option<LogEpoch>,
    /// The journal's own cursor at the last record without an open incident.
    journal_cursor: Option<String>,
    reporter: StatusReporter,
    loss_logged: Option<Instant>,
}

enum SessionEnd {
    SettingsChanged,
    /// Open the log again at once.
    Restart,
    /// The recording was read to its end.
    Finished,
    Failed(String),
}

impl Reader {
    async fn run(mut self) -> Result<Infallible, SourceError> {
        let mut backoff = Backoff::new(MIN_BACKOFF, MAX_BACKOFF);
        loop {
            let settings = self.settings.borrow_and_update().kernel_log.clone();
            if !settings.enabled {
                self.report_status(SourceStatus::Absent(
                    "switched off: [kernel_log] enabled = false".into(),
                ))
                .await?;
                self.settings_changed(&settings).await?;
                continue;
            }
            let began = Instant::now();
            let ended = match self.open(&settings).await {
                Ok(session) => self.run_session(session, &settings).await?,
                Err(SourceStatus::Down(why)) => SessionEnd::Failed(why),
                Err(status) => {
                    self.report_status(status).await?;
                    SessionEnd::Finished
                }
            };
            if began.elapsed() > MAX_BACKOFF {
                backoff.reset();
            }
            match ended {
                SessionEnd::Restart => {}
                SessionEnd::SettingsChanged => backoff.reset(),
                SessionEnd::Finished => self.settings_changed(&settings).await?,
                SessionEnd::Failed(why) => {
                    self.report_status(SourceStatus::Down(why)).await?;
                    // A time-out: retry.
                    if let Ok(changed) =
                        tokio::time::timeout(backoff.next_delay(), self.settings_changed(&settings))
                            .await
                    {
                        changed?;
                    }
                }
            }
        }
    }

    /// Waits until the settings differ. Cancel-safe.
    async fn settings_changed(&mut self, from: &KernelLogSettings) -> Result<(), SourceError> {
        tokio::select! {
            changed = self.settings.wait_for(|settings| settings.kernel_log != *from) => changed.map(drop).map_err(|_| SourceError::OwnerGone),
            () = self.context.reports.closed() => Err(SourceError::OwnerGone),
        }
    }

    async fn report_status(&mut self, status: SourceStatus) -> Result<(), SourceError> {
        self.reporter.report(&self.context, status).await
    }

    /// Opens the log itself, or journald's copy of it. `Err` explains why neither can be read.
    async fn open(&mut self, settings: &KernelLogSettings) -> Result<Session, SourceStatus> {
        let root = &self.context.root;
        let path = &settings.path;
        let boot_id = root
            .read(BOOT_ID)
            .map(|text| String::from_utf8_lossy(&text).trim().to_owned())
            .unwrap_or_default();
        match LogFd::open(&root.at_host_path(path)) {
            Ok(log_fd) => {
                let (how, decoder) = match log_fd.kind {
                    LogFdKind::Device => (path.to_string(), Decoder::Records),
                    LogFdKind::Stream => {
                        (format!("{path}, a pipe"), Decoder::Lines(RecordSplitter::new(true)))
                    }
                    LogFdKind::Recording => {
                        (format!("{path}, a recording"), Decoder::Lines(RecordSplitter::new(true)))
                    }
                };
                Ok(self.new_session(log_fd, decoder, None, SourceStatus::Active(how), &boot_id))
            }
            Err(error) if root.is_recorded() && error.kind() == io::ErrorKind::NotFound => {
                Err(SourceStatus::Absent(format!("no {path} in the recorded tree")))
            }
            Err(error) => {
                let why = format!("opening {path}: {error}{}", hint(&error));
                if path.as_path() != Path::new(DEVICE) || root.is_recorded() {
                    return Err(SourceStatus::Down(why));
                }
                self.open_journal(&why, &boot_id)
                    .await
                    .map_err(|error| SourceStatus::Down(format!("{why}; {}", with_causes(&error))))
            }
        }
    }

    async fn open_journal(&mut self, why: &str, boot_id: &str) -> Result<Session, JournalError> {
        let root = &self.context.root;
        if !journal::is_running(root) {
            return Err(JournalError::NotRunning);
        }
        if self.unstarted.as_mut().is_some_and(|child| !child.has_exited()) {
            return Err(JournalError::NotStarted);
        }
        let arguments = journal::arguments(root, boot_id, self.journal_cursor.as_deref());
        let mut programs = self.journalctl.iter();
        let (program, child, output) = loop {
            let program = programs.next().ok_or(JournalError::NoProgram)?;
            match exec::spawn_streaming(program, &arguments).await {
                Ok((child, output)) => break (program, child, output),
                Err(ExecError::Start { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(ExecError::Unkillable { child, .. }) => {
                    self.unstarted = Some(child);
                    return Err(JournalError::NotStarted);
                }
                Err(error) => return Err(JournalError::Start(error)),
            }
        };
        let log_fd = LogFd::from_output(output)
            .map_err(|error| JournalError::Output(program.clone(), error))?;
        let decoder = Decoder::Journal {
            lines: RecordSplitter::new(false),
            opened: u64::try_from(monotonic().as_micros()).unwrap_or(u64::MAX),
            cursor: self.journal_cursor.clone(),
        };
        let status =
            SourceStatus::Limited(format!("journald's copy of the kernel's log, since {why}"));
        Ok(self.new_session(log_fd, decoder, Some(child), status, boot_id))
    }

    fn pieces(&self, medium: Medium) -> Pieces {
        let setting = |name: &str| {
            let text = self.context.root.read(format!("/proc/sys/kernel/{name}"));
            String::from_utf8(text.ok()?).ok()
        };
        // console_loglevel default_message_loglevel …
        let levels = setting("printk");
        let default_level = levels
            .and_then(|levels| levels.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(DEFAULT_LEVEL);
        match (medium, setting("osrelease")) {
            (Medium::Journal, _) => Pieces::Unmarked { default_level },
            (Medium::Kmsg, release) => {
                Pieces::of_release(release.as_deref().unwrap_or_default(), default_level)
            }
        }
    }

    fn new_session(
        &mut self,
        log_fd: LogFd,
        decoder: Decoder,
        program: Option<StreamingChild>,
        status: SourceStatus,
        boot_id: &str,
    ) -> Session {
        let medium =
            if matches!(decoder, Decoder::Journal { .. }) { Medium::Journal } else { Medium::Kmsg };
        let start = match self.restart_epoch.take() {
            Some(numbering) => StartPosition::Oldest(numbering),
            None => StartPosition::new(boot_id, medium, self.cursor.as_ref()),
        };
        match &start {
            StartPosition::Oldest(numbering) => {
                tracing::info!(numbering = %numbering, "reading the kernel log from its oldest record")
            }
            StartPosition::Resume(_, cursor) => {
                tracing::info!(
                    from = cursor.reread_from,
                    counted_to = cursor.counted_to,
                    "reading the kernel log from the stored position"
                )
            }
            StartPosition::Now(_) => {
                tracing::warn!(
                    "the kernel log was read from another medium before: records since then are skipped"
                );
            }
        }
        let has_newest = match medium {
            Medium::Kmsg => log_fd.kind != LogFdKind::Stream,
            Medium::Journal => self.journal_cursor.is_none(),
        };
        let how = MediumProperties {
            contiguous: medium == Medium::Kmsg,
            has_newest,
            pieces: self.pieces(medium),
        };
        let mut scope = ClassifierOptions {
            admit: self.settings.borrow().kernel_log.admit.clone(),
            knows_devices: true,
        };
        // The owner of the state attributes their errors to the volumes on them.
        scope.admit.extend(SOFTWARE_DEVICES.map(|name| format!("{name}*")));
        let batcher = Batcher::new(start, how, KernelClock::read(), scope);
        let at = Instant::now();
        Session {
            lost_before: batcher.lost,
            log_fd,
            decoder,
            batcher,
            buffer: vec![0; BUFFER],
            child: program,
            status,
            began: at,
            last_read: at,
            last_sent: at,
            last_batch_had_events: false,
            loss_reported: 0,
            loss_reported_at: None,
            loss_is_past: false,
            junk_logged: false,
            cursor_ahead: false,
        }
    }

    async fn run_session(
        &mut self,
        mut session: Session,
        settings: &KernelLogSettings,
    ) -> Result<SessionEnd, SourceError> {
        self.report_status(session.status.clone()).await?;
        loop {
            let before = session.batcher.records_read;
            let outcome = session.read_available().await;
            if matches!(outcome, Ok(ReadOutcome::End) | Err(_)) {
                session.decoder.flush(&mut session.batcher);
            }
            if session.has_caught_up(&outcome) && session.batcher.catch_up() == CatchUp::CursorAhead
                || session.cursor_ahead
            {
                tracing::warn!(cursor = ?self.cursor, "the stored position in the kernel log is beyond its end: it is read as another log, from its oldest record");
                self.restart_epoch =
                    self.cursor.as_ref().map(|cursor| LogEpoch::parse(&cursor.boot_id).next());
                self.cursor = None;
                self.journal_cursor = None;
                return Ok(SessionEnd::Restart);
            }
            // The backlog is sent as a whole: if a name was reassigned in it, events of the former
            // device are dropped.
            let in_the_past = session.batcher.in_backlog
                && matches!(outcome, Ok(ReadOutcome::More))
                && session.began.elapsed() < BACKLOG_TIMEOUT;
            if session.is_batch_due() && !in_the_past
                || matches!(outcome, Ok(ReadOutcome::End) | Err(_))
                    && session.batcher.records_since_batch > 0
            {
                session.batcher.finish_batch();
            }
            self.send(&mut session).await?;
            match outcome {
                Ok(ReadOutcome::More) => continue,
                Ok(ReadOutcome::Idle) => {}
                Ok(ReadOutcome::End) if session.log_fd.kind == LogFdKind::Recording => {
                    return Ok(SessionEnd::Finished);
                }
                Ok(ReadOutcome::End) => {
                    let how = match &mut session.child {
                        Some(program) => tokio::time::timeout(MIN_BACKOFF, program.wait())
                            .await
                            .unwrap_or("it closed its output".into()),
                        None => "there are no records: it is no kernel log".into(),
                    };
                    return Ok(SessionEnd::Failed(format!(
                        "{} ended: {how}",
                        status_text(&session.status)
                    )));
                }
                Err(why) => {
                    return Ok(SessionEnd::Failed(format!(
                        "reading {}: {why}",
                        status_text(&session.status)
                    )));
                }
            }
            let pace = if session.batcher.records_read - before >= FLOOD_RECORDS {
                FLOOD_READ_INTERVAL
            } else {
                READ_INTERVAL
            };
            if session.batcher.records_read > before {
                tokio::time::sleep(pace).await;
            }
            let deadline = session.deadline();
            tokio::select! {
                readable = session.log_fd.readable() => {
                    if let Err(error) = readable {
                        return Ok(SessionEnd::Failed(format!("waiting for {}: {error}", status_text(&session.status))));
                    }
                }
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    session.decoder.flush(&mut session.batcher);
                }
                changed = self.settings.wait_for(|now| now.kernel_log != *settings) => {
                    changed.map_err(|_| SourceError::OwnerGone)?;
                    return Ok(SessionEnd::SettingsChanged);
                }
                () = self.context.reports.closed() => return Err(SourceError::OwnerGone),
            }
        }
    }

    /// Sends the batches that are ready, and reports lost records.
    async fn send(&mut self, session: &mut Session) -> Result<(), SourceError> {
        for batch in session.batcher.take_batches() {
            session.last_sent = Instant::now();
            session.last_batch_had_events =
                !batch.events.is_empty() || !batch.name_assignments.is_empty();
            self.save_cursor(session, &batch);
            let (events, counted_to) = (batch.events.len(), batch.cursor.counted_to);
            tracing::debug!(
                events,
                attached = batch.name_assignments.len(),
                counted_to,
                history = batch.is_backlog,
                "read from the kernel log"
            );
            self.context.report(SourceUpdate::KernelLog(batch)).await?;
        }
        let lost = session.batcher.lost;
        if lost > session.loss_reported
            && session.loss_reported_at.is_none_or(|at| at.elapsed() >= LOSS_REPORT_INTERVAL)
        {
            session.loss_reported = lost;
            session.loss_reported_at = Some(Instant::now());
            session.loss_is_past = false;
            if lost > session.lost_before
                && self.loss_logged.is_none_or(|at| at.elapsed() >= LOSS_LOG_INTERVAL)
            {
                tracing::warn!(
                    lost_since_boot = lost,
                    "the kernel wrote its log faster than it could be read: records were lost"
                );
            }
            if lost > session.lost_before {
                self.loss_logged = Some(Instant::now());
            }
            self.report_status(SourceStatus::Limited(session.text_with_losses())).await?;
        } else if session.loss_ends_at().is_some_and(|end| Instant::now() >= end) {
            session.loss_is_past = true;
            let text = session.text_with_losses();
            self.report_status(match session.status {
                SourceStatus::Active(_) => SourceStatus::Active(text),
                _ => SourceStatus::Limited(text),
            })
            .await?;
        }
        let (unreadable, dropped) = (session.batcher.unreadable, session.decoder.dropped());
        if unreadable + dropped > 0 && !session.junk_logged {
            session.junk_logged = true;
            tracing::warn!(
                unreadable,
                too_long = dropped,
                "entries of the kernel log that are no valid records are skipped"
            );
        }
        Ok(())
    }

    /// Keeps the position for the next session.
    fn save_cursor(&mut self, session: &Session, batch: &Batch) {
        let nothing_open =
            batch.cursor.counted_to.is_none_or(|counted| batch.cursor.reread_from > counted);
        if let (Decoder::Journal { cursor, .. }, true, 0) =
            (&session.decoder, nothing_open, session.batcher.records_since_batch)
        {
            self.journal_cursor.clone_from(cursor);
        }
        self.cursor = Some(batch.cursor.clone());
    }
}

fn status_text(status: &SourceStatus) -> &str {
    match status {
        SourceStatus::Active(text)
        | SourceStatus::Limited(text)
        | SourceStatus::Down(text)
        | SourceStatus::Absent(text) => text,
    }
}

/// How an admin can remove the error's cause.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        // check_syslog_permissions(), kernel/printk/printk.c; a container's device policy returns
        // the same error.
        io::ErrorKind::PermissionDenied => {
            " (it takes CAP_SYSLOG where kernel.dmesg_restrict is 1, and the device in a container)"
        }
        io::ErrorKind::NotFound => " (a container needs the host's device)",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
