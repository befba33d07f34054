//! `Session`: the reading of one descriptor, until it ends or the settings change.

use std::io;

use nix::errno::Errno;
use tokio::time::Instant;

use crate::kmsg::batcher::{Batcher, KernelClock};
use crate::kmsg::decoder::Decoder;
use crate::kmsg::log_fd::{LogFd, LogFdKind};
use crate::kmsg::{
    CONTINUATION_TIMEOUT, CURSOR_INTERVAL, CURSOR_RECORDS, JOURNAL_IDLE_TIMEOUT,
    LOSS_REPORT_INTERVAL, MAX_BUFFER, READ_WINDOW, status_text,
};
use diskvitals_host::exec::StreamingChild;
use diskvitals_model::facts::kernel_log::lost_records::LOSS_PERIOD;
use diskvitals_model::source_update::SourceStatus;

/// Then the other tasks of the thread have their turn.
const MAX_BYTES_PER_TURN: usize = 16 * 1024;

pub struct Session {
    pub log_fd: LogFd,
    pub decoder: Decoder,
    pub batcher: Batcher,
    pub buffer: Vec<u8>,
    pub child: Option<StreamingChild>,
    /// Status of the source, without its losses.
    pub status: SourceStatus,
    pub began: Instant,
    pub last_read: Instant,
    pub last_sent: Instant,
    /// The last batch had events: their incidents end soon, and then the cursor may advance.
    pub last_batch_had_events: bool,
    pub lost_before: u64,
    pub loss_reported: u64,
    pub loss_reported_at: Option<Instant>,
    /// The last loss no longer limits the source.
    pub loss_is_past: bool,
    pub junk_logged: bool,
    pub cursor_ahead: bool,
}

/// Why reading from the descriptor stopped.
pub enum ReadOutcome {
    /// No more data at present.
    Idle,
    /// There may be more data; the batch is due.
    More,
    /// End of file.
    End,
}

impl Session {
    /// Reads the available records, for a limited time.
    pub(crate) async fn read_available(&mut self) -> Result<ReadOutcome, io::Error> {
        let began = Instant::now();
        let (mut reads, mut bytes_read, mut arrival) = (0_u32, 0, KernelClock::read());
        loop {
            match self.log_fd.try_read(&mut self.buffer) {
                Ok(0) => return Ok(ReadOutcome::End),
                Ok(read) => {
                    self.last_read = began;
                    bytes_read += read;
                    let bytes = self.buffer.get(..read).unwrap_or_default();
                    self.cursor_ahead |= self.decoder.feed(bytes, arrival, &mut self.batcher);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(ReadOutcome::Idle);
                }
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EINTR) => {}
                    // The ring buffer overran. The next read returns its oldest record, whose
                    // number shows how many are missing.
                    Some(Errno::EPIPE) if self.log_fd.kind == LogFdKind::Device => {}
                    Some(Errno::EINVAL)
                        if self.log_fd.kind == LogFdKind::Device
                            && self.buffer.len() < MAX_BUFFER =>
                    {
                        self.buffer.resize(self.buffer.len() * 2, 0);
                    }
                    _ => return Err(error),
                },
            }
            reads += 1;
            // A read returns one record from the device or a pipe in packet mode, and about a hundred
            // from another pipe.
            if reads >= 64 || bytes_read >= MAX_BYTES_PER_TURN {
                (reads, bytes_read) = (0, 0);
                if began.elapsed() >= READ_WINDOW || self.cursor_ahead || self.batcher.has_batches()
                {
                    tokio::task::yield_now().await;
                    return Ok(ReadOutcome::More);
                }
                tokio::task::yield_now().await;
                arrival = KernelClock::read();
            }
        }
    }

    /// Whether all records that existed at the start were read.
    pub(crate) fn has_caught_up(&self, outcome: &Result<ReadOutcome, io::Error>) -> bool {
        let nothing_more = match &self.decoder {
            Decoder::Records => true,
            Decoder::Lines(lines) => !lines.is_waiting(),
            Decoder::Journal { .. } => {
                self.last_read.elapsed() >= JOURNAL_IDLE_TIMEOUT
                    && self.began.elapsed() >= JOURNAL_IDLE_TIMEOUT
            }
        };
        self.batcher.in_backlog
            && matches!(
                (outcome, &self.child),
                (Ok(ReadOutcome::Idle), _) | (Ok(ReadOutcome::End), None)
            )
            && nothing_more
    }

    pub(crate) fn is_batch_due(&self) -> bool {
        let moved = self.batcher.records_since_batch;
        let owed = moved >= CURSOR_RECORDS || (self.last_batch_had_events && moved > 0);
        self.batcher.has_events() || (owed && self.last_sent.elapsed() >= CURSOR_INTERVAL)
    }

    /// When to continue although no data has arrived.
    pub fn deadline(&self) -> Option<Instant> {
        let waiting = matches!(&self.decoder, Decoder::Lines(lines) if lines.is_waiting())
            .then(|| Instant::now() + CONTINUATION_TIMEOUT);
        let quiet = (matches!(self.decoder, Decoder::Journal { .. }) && self.batcher.in_backlog)
            .then(|| self.last_read + JOURNAL_IDLE_TIMEOUT);
        let moved = self.batcher.records_since_batch;
        let cursor = (moved >= CURSOR_RECORDS || (self.last_batch_had_events && moved > 0))
            .then(|| self.last_sent + CURSOR_INTERVAL);
        let loss = self
            .loss_reported_at
            .filter(|_| self.batcher.lost > self.loss_reported)
            .map(|at| at + LOSS_REPORT_INTERVAL);
        [waiting, quiet, cursor, loss, self.loss_ends_at()].into_iter().flatten().min()
    }

    /// When the reported loss no longer limits the source.
    pub(crate) fn loss_ends_at(&self) -> Option<Instant> {
        let reported = self.loss_reported_at.filter(|_| !self.loss_is_past);
        reported.map(|at| at + LOSS_PERIOD)
    }

    pub(crate) fn text_with_losses(&self) -> String {
        format!(
            "{}; {} records since the boot were overwritten before they could be read",
            status_text(&self.status),
            self.loss_reported
        )
    }
}
