//! The kernel's log: what it says of drives and filesystems, from /dev/kmsg, or from journald where
//! that cannot be read.
//!
//! In: the host root, the cursor that the store kept. Out: `Report::KernelLog`, a batch at a time,
//! and where it is read from. The kernel's ring is the queue: when the owner is busy, records wait
//! there. What a record means is said by `model::kernel`; which drive it means, by the owner.
//!
//! A quiet log costs nothing, a first record is read at once, and in a flood what has come in
//! `FLOOD_PACE` is read together: a wake-up for each record would cost more than the record.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use nix::errno::Errno;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::host::clock::{monotonic, now};
use crate::host::exec;
use crate::host::exec::Following;
use crate::model::kernel::classify::Scope;
use crate::model::kernel::event::{Batch, Cursor, Resume};
use crate::model::report::{Report, Source, SourceStatus};
use crate::source::context::{Context, KernelLogSettings, SourceError};
use crate::source::kmsg::lines::Lines;
use crate::source::kmsg::numbering::{Medium, Numbering, Start};
use crate::source::kmsg::reading::{CaughtUp, How, KernelClock, Reading};
use crate::source::kmsg::tap::{Kind, Tap};

pub mod journal;
pub mod lines;
pub mod numbering;
pub mod reading;
pub mod tap;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// journald has the same records as this one and as no other.
pub const DEVICE: &str = "/dev/kmsg";
/// The kernel's longest record fits (CONSOLE_EXT_LOG_MAX is 8 KiB); one that does not is read with
/// more.
const BUFFER: usize = 16 * 1024;
const LARGEST_BUFFER: usize = 1024 * 1024;
/// What is read in this time is one batch.
const WINDOW: Duration = Duration::from_millis(25);
/// The ring is read to its end within this time, or a flood is in it that is told as it comes.
const PAST: Duration = Duration::from_secs(2);
/// Records of one incident come within this time of each other.
const PACE: Duration = Duration::from_millis(5);
const FLOOD_PACE: Duration = Duration::from_millis(25);
/// So many records in one look are a flood.
const FLOOD: u64 = 16;
/// A whole line without a successor for so long is not continued.
const SETTLE: Duration = Duration::from_millis(1);
/// journalctl tells the past without a pause like this.
const JOURNAL_QUIET: Duration = Duration::from_secs(2);
/// A cursor without news is told after so many records, or after news, but not more often than
/// this.
const CURSOR_EVERY: Duration = Duration::from_secs(5);
const CURSOR_RECORDS: u64 = 1000;
const LOSS_TOLD_EVERY: Duration = Duration::from_secs(10);
/// One line of our own log for each time that the ring runs over, however long that lasts.
const LOSS_LOGGED_EVERY: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs until the owner of the state is gone.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    run_with(
        context,
        journal::PROGRAMS.iter().map(PathBuf::from).collect(),
    )
    .await
}

async fn run_with(context: Context, journalctl: Vec<PathBuf>) -> Result<Infallible, SourceError> {
    let mut resume = context.resume.clone();
    let stored = match resume.wait_for(|resume| *resume != Resume::Unknown).await {
        Ok(resume) => match &*resume {
            Resume::From(cursor) => cursor.clone(),
            Resume::Unknown => None,
        },
        Err(_) => return Err(SourceError::OwnerGone),
    };
    let settings = context.settings.clone();
    Reader {
        context,
        settings,
        journalctl,
        cursor: stored,
        anew: None,
        journal_after: None,
        told: None,
        loss_logged: None,
    }
    .run()
    .await
}

/// Lasts as long as the daemon; a `Session` as long as a descriptor.
struct Reader {
    context: Context,
    settings: watch::Receiver<std::sync::Arc<crate::source::context::SourceSettings>>,
    journalctl: Vec<PathBuf>,
    /// Of the last batch, the store's at first.
    cursor: Option<Cursor>,
    /// The stored cursor turned out to be of another log.
    anew: Option<Numbering>,
    /// The journal's own cursor where no incident was open.
    journal_after: Option<String>,
    told: Option<SourceStatus>,
    loss_logged: Option<Instant>,
}

enum Ended {
    Changed,
    /// Read anew, at once.
    Anew,
    /// A recording has been read.
    Over,
    Failed(String),
}

struct Session {
    tap: Tap,
    decoder: Decoder,
    reading: Reading,
    buffer: Vec<u8>,
    program: Option<Following>,
    /// How it is read, without its losses.
    status: SourceStatus,
    began: Instant,
    last_read: Instant,
    last_sent: Instant,
    /// The last batch had news: soon its incidents are over, and the cursor may move on.
    after_news: bool,
    lost_before: u64,
    loss_told: u64,
    loss_told_at: Option<Instant>,
    junk_logged: bool,
    future: bool,
}

enum Decoder {
    Records,
    Lines(Lines),
    Journal {
        lines: Lines,
        opened: Timestamp,
        cursor: Option<String>,
    },
}

/// Why a look at the descriptor was over.
enum Look {
    /// Nothing more is there now.
    Idle,
    /// There may be more; it is time to tell what was read.
    More,
    /// Nothing more will come.
    End,
}

impl Reader {
    async fn run(mut self) -> Result<Infallible, SourceError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let settings = self.settings.borrow_and_update().kernel_log.clone();
            if !settings.enabled {
                self.tell(SourceStatus::Absent(
                    "switched off: [kernel_log] enabled = false".into(),
                ))
                .await?;
                self.changed(&settings).await?;
                continue;
            }
            let began = Instant::now();
            let ended = match self.open(&settings) {
                Ok(session) => self.follow(session, &settings).await?,
                Err(SourceStatus::Down(why)) => Ended::Failed(why),
                Err(status) => {
                    self.tell(status).await?;
                    Ended::Over
                }
            };
            if began.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            match ended {
                Ended::Anew => {}
                Ended::Changed => pause = FIRST_PAUSE,
                Ended::Over => self.changed(&settings).await?,
                Ended::Failed(why) => {
                    self.tell(SourceStatus::Down(why)).await?;
                    // Elapsed: time to try again.
                    if let Ok(changed) = tokio::time::timeout(pause, self.changed(&settings)).await
                    {
                        changed?;
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Until they are other settings. Cancel-safe.
    async fn changed(&mut self, from: &KernelLogSettings) -> Result<(), SourceError> {
        tokio::select! {
            changed = self.settings.wait_for(|settings| settings.kernel_log != *from) => changed.map(drop).map_err(|_| SourceError::OwnerGone),
            () = self.context.reports.closed() => Err(SourceError::OwnerGone),
        }
    }

    async fn tell(&mut self, status: SourceStatus) -> Result<(), SourceError> {
        if self.told.as_ref() == Some(&status) {
            return Ok(());
        }
        self.told = Some(status.clone());
        self.context
            .report(Report::Source {
                source: Source::KernelLog,
                status,
            })
            .await
    }

    /// The log itself, or journald's copy of it. `Err` says why there is neither.
    fn open(&mut self, settings: &KernelLogSettings) -> Result<Session, SourceStatus> {
        let root = &self.context.root;
        let path = &settings.path;
        let boot_id = root
            .read(BOOT_ID)
            .map(|text| String::from_utf8_lossy(&text).trim().to_owned())
            .unwrap_or_default();
        match Tap::open(&root.at_host_path(path)) {
            Ok(tap) => {
                let (how, decoder) = match tap.kind() {
                    Kind::Device => (path.to_string(), Decoder::Records),
                    Kind::Stream => (format!("{path}, a pipe"), Decoder::Lines(Lines::new(true))),
                    Kind::Recording => (
                        format!("{path}, a recording"),
                        Decoder::Lines(Lines::new(true)),
                    ),
                };
                Ok(self.session(tap, decoder, None, SourceStatus::Active(how), &boot_id))
            }
            Err(error) if root.is_recorded() && error.kind() == io::ErrorKind::NotFound => Err(
                SourceStatus::Absent(format!("no {path} in the recorded tree")),
            ),
            Err(error) => {
                let why = format!("opening {path}: {error}{}", advice(&error));
                if path.as_path() != Path::new(DEVICE) || root.is_recorded() {
                    return Err(SourceStatus::Down(why));
                }
                self.open_journal(&why, &boot_id)
                    .map_err(|also| SourceStatus::Down(format!("{why}; {also}")))
            }
        }
    }

    fn open_journal(&mut self, why: &str, boot_id: &str) -> Result<Session, String> {
        let root = &self.context.root;
        if !journal::is_running(root) {
            return Err("and journald, which has a copy, does not run".into());
        }
        let Some(program) = self.journalctl.iter().find(|program| program.exists()) else {
            return Err(format!(
                "and there is no {} to read journald's copy with",
                journal::PROGRAMS[0]
            ));
        };
        let arguments = journal::arguments(root, boot_id, self.journal_after.as_deref());
        let (child, output) =
            exec::follow(program, &arguments).map_err(|error| error.to_string())?;
        let tap = Tap::output(output)
            .map_err(|error| format!("taking the output of {}: {error}", program.display()))?;
        let decoder = Decoder::Journal {
            lines: Lines::new(false),
            opened: now(),
            cursor: self.journal_after.clone(),
        };
        let status =
            SourceStatus::Limited(format!("journald's copy of the kernel's log, since {why}"));
        Ok(self.session(tap, decoder, Some(child), status, boot_id))
    }

    fn session(
        &mut self,
        tap: Tap,
        decoder: Decoder,
        program: Option<Following>,
        status: SourceStatus,
        boot_id: &str,
    ) -> Session {
        let medium = if matches!(decoder, Decoder::Journal { .. }) {
            Medium::Journal
        } else {
            Medium::Kmsg
        };
        let start = match self.anew.take() {
            Some(numbering) => Start::Oldest(numbering),
            None => Start::new(boot_id, medium, self.cursor.as_ref()),
        };
        match &start {
            Start::Oldest(numbering) => {
                tracing::info!(numbering = %numbering, "the kernel log is read from its oldest record")
            }
            Start::Resume(_, cursor) => {
                tracing::info!(
                    from = cursor.reread_from,
                    counted_to = cursor.counted_to,
                    "the kernel log is read on"
                )
            }
            Start::Now(_) => {
                tracing::warn!(
                    "the kernel log was read in another way before: what came since is not told"
                );
            }
        }
        let has_newest = match medium {
            Medium::Kmsg => tap.kind() != Kind::Stream,
            Medium::Journal => self.journal_after.is_none(),
        };
        let how = How {
            contiguous: medium == Medium::Kmsg,
            has_newest,
        };
        let scope = Scope {
            admit: self.settings.borrow().kernel_log.admit.clone(),
        };
        let reading = Reading::new(
            start,
            how,
            KernelClock {
                now: now(),
                monotonic: monotonic(),
            },
            scope,
        );
        let at = Instant::now();
        Session {
            lost_before: reading.lost(),
            tap,
            decoder,
            reading,
            buffer: vec![0; BUFFER],
            program,
            status,
            began: at,
            last_read: at,
            last_sent: at,
            after_news: false,
            loss_told: 0,
            loss_told_at: None,
            junk_logged: false,
            future: false,
        }
    }

    async fn follow(
        &mut self,
        mut session: Session,
        settings: &KernelLogSettings,
    ) -> Result<Ended, SourceError> {
        self.tell(session.status.clone()).await?;
        loop {
            let before = session.reading.seen();
            let look = session.look().await;
            if matches!(look, Ok(Look::End) | Err(_)) {
                session.decoder.flush(&mut session.reading);
            }
            if session.has_caught_up(&look) && session.reading.caught_up() == CaughtUp::Future
                || session.future
            {
                tracing::warn!(cursor = ?self.cursor, "the stored place in the kernel log is beyond its end: read as another log, from its oldest record");
                self.anew = self
                    .cursor
                    .as_ref()
                    .map(|cursor| Numbering::parse(&cursor.boot_id).next());
                self.cursor = None;
                self.journal_after = None;
                return Ok(Ended::Anew);
            }
            // What was before is told whole: a name that was given anew takes back what was said of
            // it before.
            let in_the_past = session.reading.is_history()
                && matches!(look, Ok(Look::More))
                && session.began.elapsed() < PAST;
            if session.is_due() && !in_the_past
                || matches!(look, Ok(Look::End) | Err(_)) && session.reading.moved() > 0
            {
                session.reading.cut();
            }
            self.send(&mut session).await?;
            match look {
                Ok(Look::More) => continue,
                Ok(Look::Idle) => {}
                Ok(Look::End) if session.tap.kind() == Kind::Recording => return Ok(Ended::Over),
                Ok(Look::End) => {
                    let how = match &mut session.program {
                        Some(program) => tokio::time::timeout(FIRST_PAUSE, program.ended())
                            .await
                            .unwrap_or("it closed its output".into()),
                        None => "there are no records: it is no kernel log".into(),
                    };
                    return Ok(Ended::Failed(format!(
                        "{} ended: {how}",
                        text(&session.status)
                    )));
                }
                Err(why) => {
                    return Ok(Ended::Failed(format!(
                        "reading {}: {why}",
                        text(&session.status)
                    )));
                }
            }
            let pace = if session.reading.seen() - before >= FLOOD {
                FLOOD_PACE
            } else {
                PACE
            };
            if session.reading.seen() > before {
                tokio::time::sleep(pace).await;
            }
            let deadline = session.deadline();
            tokio::select! {
                readable = session.tap.readable() => {
                    if let Err(error) = readable {
                        return Ok(Ended::Failed(format!("waiting for {}: {error}", text(&session.status))));
                    }
                }
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    session.decoder.flush(&mut session.reading);
                }
                changed = self.settings.wait_for(|now| now.kernel_log != *settings) => {
                    changed.map_err(|_| SourceError::OwnerGone)?;
                    return Ok(Ended::Changed);
                }
                () = self.context.reports.closed() => return Err(SourceError::OwnerGone),
            }
        }
    }

    /// The batches that are ready, and what was lost.
    async fn send(&mut self, session: &mut Session) -> Result<(), SourceError> {
        for batch in session.reading.take_ready() {
            session.last_sent = Instant::now();
            session.after_news = !batch.events.is_empty() || !batch.attached.is_empty();
            self.remember(session, &batch);
            let (events, counted_to) = (batch.events.len(), batch.cursor.counted_to);
            tracing::debug!(
                events,
                attached = batch.attached.len(),
                counted_to,
                history = batch.history,
                "read from the kernel log"
            );
            self.context.report(Report::KernelLog(batch)).await?;
        }
        let lost = session.reading.lost();
        if lost > session.loss_told
            && session
                .loss_told_at
                .is_none_or(|at| at.elapsed() >= LOSS_TOLD_EVERY)
        {
            session.loss_told = lost;
            session.loss_told_at = Some(Instant::now());
            if lost > session.lost_before
                && self
                    .loss_logged
                    .is_none_or(|at| at.elapsed() >= LOSS_LOGGED_EVERY)
            {
                tracing::warn!(
                    lost_since_boot = lost,
                    "the kernel wrote faster than its log could be read: records are lost"
                );
            }
            if lost > session.lost_before {
                self.loss_logged = Some(Instant::now());
            }
            let missing = format!(
                "{}; {lost} records since the boot were overwritten before they could be read",
                text(&session.status)
            );
            self.tell(SourceStatus::Limited(missing)).await?;
        }
        let (unreadable, dropped) = (session.reading.unreadable(), session.decoder.dropped());
        if unreadable + dropped > 0 && !session.junk_logged {
            session.junk_logged = true;
            tracing::warn!(
                unreadable,
                too_long = dropped,
                "something in the kernel log is no record and is skipped"
            );
        }
        Ok(())
    }

    /// What a new session goes on with.
    fn remember(&mut self, session: &Session, batch: &Batch) {
        let nothing_open = batch
            .cursor
            .counted_to
            .is_none_or(|counted| batch.cursor.reread_from > counted);
        if let (Decoder::Journal { cursor, .. }, true, 0) =
            (&session.decoder, nothing_open, session.reading.moved())
        {
            self.journal_after.clone_from(cursor);
        }
        self.cursor = Some(batch.cursor.clone());
    }
}

impl Session {
    /// Reads what is there, for a while.
    async fn look(&mut self) -> Result<Look, io::Error> {
        let began = Instant::now();
        let mut reads = 0_u32;
        loop {
            match self.tap.try_read(&mut self.buffer) {
                Ok(0) => return Ok(Look::End),
                Ok(read) => {
                    self.last_read = began;
                    let bytes = self.buffer.get(..read).unwrap_or_default();
                    self.future |= self.decoder.feed(bytes, &mut self.reading);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Look::Idle),
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EINTR) => {}
                    // The ring ran over. The next read gives its oldest record, whose number tells
                    // how many are missing.
                    Some(Errno::EPIPE) if self.tap.kind() == Kind::Device => {}
                    Some(Errno::EINVAL)
                        if self.tap.kind() == Kind::Device
                            && self.buffer.len() < LARGEST_BUFFER =>
                    {
                        self.buffer.resize(self.buffer.len() * 2, 0);
                    }
                    _ => return Err(error),
                },
            }
            reads += 1;
            // A record a read from the device, a hundred from a pipe.
            if self.tap.kind() != Kind::Device || reads.is_multiple_of(64) {
                if began.elapsed() >= WINDOW || self.future || self.reading.has_ready() {
                    tokio::task::yield_now().await;
                    return Ok(Look::More);
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// All that was there at the start is read now.
    fn has_caught_up(&self, look: &Result<Look, io::Error>) -> bool {
        let nothing_more = match &self.decoder {
            Decoder::Records => true,
            Decoder::Lines(lines) => !lines.is_waiting(),
            Decoder::Journal { .. } => {
                self.last_read.elapsed() >= JOURNAL_QUIET && self.began.elapsed() >= JOURNAL_QUIET
            }
        };
        self.reading.is_history()
            && matches!(
                (look, &self.program),
                (Ok(Look::Idle), _) | (Ok(Look::End), None)
            )
            && nothing_more
    }

    fn is_due(&self) -> bool {
        let moved = self.reading.moved();
        let owed = moved >= CURSOR_RECORDS || (self.after_news && moved > 0);
        self.reading.has_news() || (owed && self.last_sent.elapsed() >= CURSOR_EVERY)
    }

    /// When to look again although nothing has come.
    fn deadline(&self) -> Option<Instant> {
        let waiting = matches!(&self.decoder, Decoder::Lines(lines) if lines.is_waiting())
            .then(|| Instant::now() + SETTLE);
        let quiet = (matches!(self.decoder, Decoder::Journal { .. }) && self.reading.is_history())
            .then(|| self.last_read + JOURNAL_QUIET);
        let moved = self.reading.moved();
        let cursor = (moved >= CURSOR_RECORDS || (self.after_news && moved > 0))
            .then(|| self.last_sent + CURSOR_EVERY);
        let loss = self
            .loss_told_at
            .filter(|_| self.reading.lost() > self.loss_told)
            .map(|at| at + LOSS_TOLD_EVERY);
        [waiting, quiet, cursor, loss].into_iter().flatten().min()
    }
}

impl Decoder {
    /// Out: the stored cursor turned out to be of another log.
    fn feed(&mut self, bytes: &[u8], reading: &mut Reading) -> bool {
        let mut future = false;
        match self {
            Decoder::Records => reading.take(bytes, now(), None),
            Decoder::Lines(lines) => lines.push(bytes, |raw| reading.take(raw, now(), None)),
            Decoder::Journal {
                lines,
                opened,
                cursor,
            } => lines.push(bytes, |line| match journal::entry(line) {
                Some(entry) => {
                    if reading.is_history()
                        && entry.written.is_some_and(|written| written >= *opened)
                    {
                        future |= reading.caught_up() == CaughtUp::Future;
                    }
                    reading.take(&entry.raw, now(), entry.written);
                    *cursor = entry.cursor.or(cursor.take());
                }
                None => reading.not_a_record(),
            }),
        }
        future
    }

    fn flush(&mut self, reading: &mut Reading) {
        if let Decoder::Lines(lines) = self {
            lines.flush(|raw| reading.take(raw, now(), None));
        }
    }

    fn dropped(&self) -> u64 {
        match self {
            Decoder::Records => 0,
            Decoder::Lines(lines) | Decoder::Journal { lines, .. } => lines.dropped,
        }
    }
}

fn text(status: &SourceStatus) -> &str {
    match status {
        SourceStatus::Active(text)
        | SourceStatus::Limited(text)
        | SourceStatus::Down(text)
        | SourceStatus::Absent(text) => text,
    }
}

/// What an admin can do.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        // check_syslog_permissions(), kernel/printk/printk.c; a container's device policy says the
        // same.
        io::ErrorKind::PermissionDenied => {
            " (it takes CAP_SYSLOG where kernel.dmesg_restrict is 1, and the device in a container)"
        }
        io::ErrorKind::NotFound => " (a container needs the host's device)",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
