//! `Decoder`: turns the bytes of a descriptor into records for the batcher, by the medium's format.

use crate::kmsg::batcher::{Batcher, CatchUp, KernelClock};
use crate::kmsg::journal;
use crate::kmsg::record_splitter::RecordSplitter;

pub enum Decoder {
    Records,
    Lines(RecordSplitter),
    Journal {
        lines: RecordSplitter,
        /// Microseconds of CLOCK_MONOTONIC.
        opened: u64,
        cursor: Option<String>,
    },
}

impl Decoder {
    /// `arrival`: the time of this reading. Returns whether the stored cursor belongs to another log.
    pub fn feed(&mut self, bytes: &[u8], arrival: KernelClock, batcher: &mut Batcher) -> bool {
        let mut future = false;
        match self {
            Decoder::Records => batcher.push(bytes, arrival, None),
            Decoder::Lines(lines) => lines.push(bytes, |raw| batcher.push(raw, arrival, None)),
            Decoder::Journal { lines, opened, cursor } => {
                lines.push(bytes, |line| match journal::parse_entry(line) {
                    Some(entry) => {
                        if batcher.in_backlog
                            && entry.received.is_some_and(|received| received >= *opened)
                        {
                            future |= batcher.catch_up() == CatchUp::CursorAhead;
                        }
                        batcher.push(&entry.raw, arrival, entry.received);
                        *cursor = entry.cursor.or(cursor.take());
                    }
                    None => batcher.count_unreadable(),
                })
            }
        }
        future
    }

    pub fn flush(&mut self, batcher: &mut Batcher) {
        if let Decoder::Lines(lines) = self {
            lines.flush(|raw| batcher.push(raw, KernelClock::read(), None));
        }
    }

    pub fn dropped(&self) -> u64 {
        match self {
            Decoder::Records => 0,
            Decoder::Lines(lines) | Decoder::Journal { lines, .. } => lines.dropped,
        }
    }
}
