//! What a client may send besides its calls: control frames and resets of one HTTP/2 connection.
//! They cost the client nothing and the server time (CVE-2023-44487, CVE-2019-9512 to 9518,
//! CVE-2024-27316). h2 limits some kinds of them; this counts all, below it.
//!
//! In: the bytes of a connection, in pieces of any size. Out: an error once a budget is used up.
//! Reads frame headers only (RFC 9113, 4.1). Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::refusals::Refusal;
use crate::token_bucket::TokenBucket;

/// Length of `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n` (RFC 9113, 3.4).
pub const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;
/// Frame types (RFC 9113, 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
/// A message of gRPC has a prefix of five bytes. Smaller pieces without an end count like control
/// frames.
const SMALL_DATA: usize = 5;

/// grpc-go sends a ping and a window update for each burst of data that it receives.
const CONTROL_BURST: u32 = 2000;
const CONTROL_INTERVAL: Duration = Duration::from_millis(10);
/// Credit for a call, and for what the client has to acknowledge: it updates its windows at most
/// once for so many bytes.
const CONTROL_PER_CALL: f64 = 4.0;
const BYTES_PER_CONTROL: f64 = 512.0;
/// A client resets the calls that it cancels.
const RESET_BURST: u32 = 500;
const RESET_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct FrameBudget {
    /// Bytes of the preface or of a payload that are skipped.
    skip: usize,
    header: [u8; HEADER_BYTES],
    header_len: usize,
    control: TokenBucket,
    resets: TokenBucket,
}

impl Default for FrameBudget {
    fn default() -> FrameBudget {
        FrameBudget {
            skip: PREFACE_BYTES,
            header: [0; HEADER_BYTES],
            header_len: 0,
            control: TokenBucket::new(CONTROL_BURST, CONTROL_INTERVAL),
            resets: TokenBucket::new(RESET_BURST, RESET_INTERVAL),
        }
    }
}

impl FrameBudget {
    pub fn received(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Refusal> {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return Ok(());
            }
            let taken = (HEADER_BYTES - self.header_len).min(bytes.len());
            self.header[self.header_len..self.header_len + taken].copy_from_slice(&bytes[..taken]);
            self.header_len += taken;
            bytes = &bytes[taken..];
            if self.header_len == HEADER_BYTES {
                self.header_len = 0;
                self.frame(now)?;
            }
        }
    }

    fn frame(&mut self, now: Instant) -> Result<(), Refusal> {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
        match kind {
            HEADERS => self.control.add(CONTROL_PER_CALL),
            DATA if self.skip >= SMALL_DATA || flags & END_STREAM != 0 => {}
            RST_STREAM => {
                if !self.resets.take(1.0, now) {
                    return Err(Refusal::Resets);
                }
            }
            _ => {
                if !self.control.take(1.0, now) {
                    return Err(Refusal::ControlFrames);
                }
            }
        }
        Ok(())
    }

    pub fn sent(&mut self, bytes: usize) {
        self.control.add(bytes as f64 / BYTES_PER_CONTROL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("a length").to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    /// After the preface, and the time.
    fn budget() -> (FrameBudget, Instant) {
        let mut budget = FrameBudget::default();
        let now = Instant::now();
        budget.received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", now).expect("the preface");
        (budget, now)
    }

    /// How many repetitions are taken, of a million.
    fn taken(bytes: &[u8]) -> (usize, Option<Refusal>) {
        let (mut budget, now) = budget();
        for count in 0..1_000_000 {
            if let Err(flood) = budget.received(bytes, now) {
                return (count, Some(flood));
            }
        }
        (1_000_000, None)
    }

    #[tokio::test]
    async fn every_kind_of_control_frame_has_an_end() {
        // PRIORITY, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, unknown.
        for kind in [2, 4, 5, 6, 7, 8, 9, 0x77] {
            let flood = frame(kind, 0, &[0; 8]);
            assert_eq!(taken(&flood), (2000, Some(Refusal::ControlFrames)), "{kind}");
        }
        assert_eq!(taken(&frame(3, 0, &[0; 4])), (500, Some(Refusal::Resets)));
        assert_eq!(taken(&frame(0, 0, b"")), (2000, Some(Refusal::ControlFrames)));
        // Calls that are reset at once.
        let mut reset = frame(1, 4, &[0x82; 40]);
        reset.extend(frame(3, 0, &[0; 4]));
        assert_eq!(taken(&reset), (500, Some(Refusal::Resets)));
    }

    #[tokio::test]
    async fn a_frame_is_counted_once_in_whatever_pieces_it_arrives() {
        let (mut budget, now) = budget();
        let mut stream = Vec::new();
        for _ in 0..2000 {
            // The payload looks like a ping.
            stream.extend(frame(6, 0, &[0, 0, 0, 6, 0, 0, 0, 0]));
        }
        for piece in stream.chunks(7) {
            budget.received(piece, now).expect("within the budget");
        }
        let error = budget.received(&frame(6, 0, &[0; 8]), now);
        assert_eq!(error, Err(Refusal::ControlFrames));
    }

    #[tokio::test]
    async fn calls_and_what_a_client_acknowledges_for_its_answers_have_no_end() {
        // A call with its message, a ping for the bandwidth, two window updates.
        let mut call = frame(1, 4, &[0x82; 40]);
        call.extend(frame(0, END_STREAM, &[0; 5]));
        call.extend([frame(6, 0, &[0; 8]), frame(8, 0, &[0; 4]), frame(8, 0, &[0; 4])].concat());
        assert_eq!(taken(&call), (1_000_000, None));
        let (mut budget, now) = budget();
        for _ in 0..100_000 {
            // The answer of a watch.
            budget.sent(2048);
            budget.received(&frame(8, 0, &[0; 4]), now).expect("granted");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keepalive_is_for_ever() {
        let (mut budget, _) = budget();
        for _ in 0..100_000 {
            tokio::time::advance(std::time::Duration::from_millis(20)).await;
            budget.received(&frame(6, 0, &[0; 8]), Instant::now()).expect("within the rate");
        }
    }
}
