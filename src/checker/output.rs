//! A checker's output as it comes: lines for the parser, its first part for people. Never held
//! whole.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::model::check::parse::{LONGEST_LINE, broken};
use crate::model::check::{OUTPUT_KEPT, Output};

pub struct Sink {
    kept: GzEncoder<Vec<u8>>,
    kept_bytes: usize,
    written: u64,
    line: Vec<u8>,
}

impl Sink {
    pub fn new() -> Sink {
        Sink {
            kept: GzEncoder::new(Vec::new(), Compression::default()),
            kept_bytes: 0,
            written: 0,
            line: Vec::new(),
        }
    }

    pub fn take(&mut self, bytes: &[u8], each: &mut dyn FnMut(&str)) {
        self.written = self.written.saturating_add(bytes.len() as u64);
        let room = OUTPUT_KEPT.saturating_sub(self.kept_bytes).min(bytes.len());
        if let Some(head) = bytes.get(..room) {
            // Into memory.
            self.kept.write_all(head).ok();
            self.kept_bytes += head.len();
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (part, ends) = part
                .strip_suffix(b"\n")
                .map_or((part, false), |part| (part, true));
            self.line.extend_from_slice(part);
            self.forget_overwritten();
            while let Some((at, label)) = broken(&self.line, LONGEST_LINE) {
                each(&clean(self.line.get(..at).unwrap_or(&self.line)));
                let label = label.to_vec();
                self.line.splice(..at.min(self.line.len()), label);
            }
            if ends {
                self.pass(each);
                self.line.clear();
            }
        }
    }

    /// Out: what is kept of it.
    pub fn finish(self, each: &mut dyn FnMut(&str)) -> Output {
        if !self.line.is_empty() {
            self.pass(each);
        }
        let gzip = self
            .kept
            .finish()
            .map_or_else(|_| Arc::default(), Arc::from);
        Output {
            gzip,
            written: self.written,
            kept: self.kept_bytes as u64,
        }
    }

    fn pass(&self, each: &mut dyn FnMut(&str)) {
        each(&clean(&self.line));
    }

    /// Progress that is written over for hours is no long line.
    fn forget_overwritten(&mut self) {
        // One at the end may be half of an end of line.
        let ended = self.line.len().saturating_sub(1);
        if self.line.len() > LONGEST_LINE
            && let Some(at) = self
                .line
                .get(..ended)
                .and_then(|line| line.iter().rposition(|byte| *byte == b'\r'))
        {
            self.line.drain(..=at);
        }
    }
}

/// What stands there in the end: progress is written over with `\r` and `\b`.
fn clean(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.rsplit(|byte| *byte == b'\r').next().unwrap_or(line);
    let mut text: Vec<u8> = Vec::with_capacity(line.len());
    for byte in line {
        match byte {
            8 => drop(text.pop()),
            // The marks by which e2fsck hides its progress from a terminal (e2fsck/unix.c).
            1 | 2 => {}
            byte => text.push(*byte),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn lines(pieces: &[&[u8]]) -> (Vec<String>, Output) {
        let mut lines = Vec::new();
        let mut sink = Sink::new();
        for piece in pieces {
            sink.take(piece, &mut |line| lines.push(line.to_owned()));
        }
        let output = sink.finish(&mut |line| lines.push(line.to_owned()));
        (lines, output)
    }

    #[test]
    fn lines_come_whole_however_they_were_written() {
        let (lines, output) = lines(&[b"Pass 1: Che", b"cking\nPass 2\n", b"\xff last"]);
        assert_eq!(lines, ["Pass 1: Checking", "Pass 2", "\u{fffd} last"]);
        assert_eq!((output.written, output.kept), (30, 30));
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&output.gzip[..])
            .read_to_end(&mut text)
            .unwrap();
        assert_eq!(text, b"Pass 1: Checking\nPass 2\n\xff last");
    }

    #[test]
    fn progress_that_is_written_over_is_no_text() {
        assert_eq!(
            lines(&[b"10%\r20%\rdone\n", b"abc\x08\x08\x08xyz\r\n"]).0,
            ["done", "xyz"]
        );
    }

    #[test]
    fn of_a_flood_the_beginning_is_kept_and_all_is_counted() {
        let flood = vec![b'x'; 1 << 20];
        let (_, output) = lines(&[&flood, &flood]);
        assert_eq!((output.written, output.kept), (2 << 20, OUTPUT_KEPT as u64));
        assert!(output.gzip.len() < OUTPUT_KEPT);
    }

    #[test]
    fn progress_that_is_written_over_for_hours_is_one_line() {
        let piece =
            b"[3/7] checking extents (0:00:01 elapsed, 12345 items checked)\r".repeat(10_000);
        assert_eq!(lines(&[&piece, &piece, b"done\n"]).0, ["done"]);
    }

    #[test]
    fn a_line_of_any_length_reaches_the_parser_in_parts_with_its_label() {
        let mut line = b"Block bitmap differences:".to_vec();
        (0..100_000).for_each(|number| line.extend_from_slice(format!(" -{number}").as_bytes()));
        line.extend_from_slice(b" +7\n");
        let (lines, _) = lines(&[&line]);
        assert!(
            lines.len() > 1
                && lines
                    .iter()
                    .all(|line| line.starts_with("Block bitmap differences: -")
                        && line.len() <= LONGEST_LINE)
        );
        let items: Vec<&str> = lines
            .iter()
            .flat_map(|line| line.split(' ').skip(3))
            .collect();
        assert_eq!(
            (items.len(), items[99_999], items[100_000]),
            (100_001, "-99999", "+7")
        );
    }
}
