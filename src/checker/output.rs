//! Reads a checker's output as a stream: passes lines to the parser, and keeps the first part,
//! compressed, for people. The whole output is never in memory.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;

use diskvitals_fscheck::parse::{MAX_LINE_BYTES, split_point};
use diskvitals_fscheck::{CheckerOutput, MAX_KEPT_OUTPUT};

pub struct OutputSink {
    kept: GzEncoder<Vec<u8>>,
    kept_bytes: usize,
    written: u64,
    line: Vec<u8>,
}

impl Default for OutputSink {
    fn default() -> OutputSink {
        OutputSink {
            kept: GzEncoder::new(Vec::new(), Compression::default()),
            kept_bytes: 0,
            written: 0,
            line: Vec::new(),
        }
    }
}

impl OutputSink {
    pub fn write(&mut self, bytes: &[u8], each: &mut dyn FnMut(&str)) {
        self.written = self.written.saturating_add(bytes.len() as u64);
        let room = MAX_KEPT_OUTPUT.saturating_sub(self.kept_bytes).min(bytes.len());
        if let Some(head) = bytes.get(..room) {
            // The writer is in memory: it cannot fail.
            self.kept.write_all(head).ok();
            self.kept_bytes += head.len();
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (part, ends) = part.strip_suffix(b"\n").map_or((part, false), |part| (part, true));
            self.line.extend_from_slice(part);
            self.drop_overwritten();
            while let Some((at, label)) = split_point(&self.line, MAX_LINE_BYTES) {
                each(&visible_text(self.line.get(..at).unwrap_or(&self.line)));
                let label = label.to_vec();
                self.line.splice(..at.min(self.line.len()), label);
            }
            if ends {
                self.emit_line(each);
                self.line.clear();
            }
        }
    }

    /// Returns the kept part.
    pub fn finish(self, each: &mut dyn FnMut(&str)) -> CheckerOutput {
        if !self.line.is_empty() {
            self.emit_line(each);
        }
        let gzip = self.kept.finish().map_or_else(|_| Arc::default(), Arc::from);
        CheckerOutput { gzip, written: self.written, kept: self.kept_bytes as u64 }
    }

    fn emit_line(&self, each: &mut dyn FnMut(&str)) {
        each(&visible_text(&self.line));
    }

    /// Drops text that a progress display has overwritten: hours of progress are not one long line.
    fn drop_overwritten(&mut self) {
        // The last `\r` may be the first half of a line end.
        let ended = self.line.len().saturating_sub(1);
        if self.line.len() > MAX_LINE_BYTES
            && let Some(at) =
                self.line.get(..ended).and_then(|line| line.iter().rposition(|byte| *byte == b'\r'))
        {
            self.line.drain(..=at);
        }
    }
}

/// The final text of a line: progress displays overwrite their text with `\r` and `\b`.
fn visible_text(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.rsplit(|byte| *byte == b'\r').next().unwrap_or(line);
    let mut text: Vec<u8> = Vec::with_capacity(line.len());
    for byte in line {
        match byte {
            8 => drop(text.pop()),
            // The markers by which e2fsck hides its progress from a terminal (e2fsck/unix.c).
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

    fn lines(pieces: &[&[u8]]) -> (Vec<String>, CheckerOutput) {
        let mut lines = Vec::new();
        let mut sink = OutputSink::default();
        for piece in pieces {
            sink.write(piece, &mut |line| lines.push(line.to_owned()));
        }
        let output = sink.finish(&mut |line| lines.push(line.to_owned()));
        (lines, output)
    }

    #[test]
    fn lines_are_whole_however_the_output_is_chunked() {
        let (lines, output) = lines(&[b"Pass 1: Che", b"cking\nPass 2\n", b"\xff last"]);
        assert_eq!(lines, ["Pass 1: Checking", "Pass 2", "\u{fffd} last"]);
        assert_eq!((output.written, output.kept), (30, 30));
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&output.gzip[..]).read_to_end(&mut text).unwrap();
        assert_eq!(text, b"Pass 1: Checking\nPass 2\n\xff last");
    }

    #[test]
    fn overwritten_progress_is_dropped() {
        assert_eq!(lines(&[b"10%\r20%\rdone\n", b"abc\x08\x08\x08xyz\r\n"]).0, ["done", "xyz"]);
    }

    #[test]
    fn the_first_part_of_long_output_is_kept_and_all_of_it_counted() {
        let flood = vec![b'x'; 1 << 20];
        let (_, output) = lines(&[&flood, &flood]);
        assert_eq!((output.written, output.kept), (2 << 20, MAX_KEPT_OUTPUT as u64));
        assert!(output.gzip.len() < MAX_KEPT_OUTPUT);
    }

    #[test]
    fn hours_of_overwritten_progress_are_one_line() {
        let piece =
            b"[3/7] checking extents (0:00:01 elapsed, 12345 items checked)\r".repeat(10_000);
        assert_eq!(lines(&[&piece, &piece, b"done\n"]).0, ["done"]);
    }

    #[test]
    fn a_long_line_reaches_the_parser_in_labeled_parts() {
        let mut line = b"Block bitmap differences:".to_vec();
        (0..100_000).for_each(|number| line.extend_from_slice(format!(" -{number}").as_bytes()));
        line.extend_from_slice(b" +7\n");
        let (lines, _) = lines(&[&line]);
        assert!(
            lines.len() > 1
                && lines.iter().all(|line| line.starts_with("Block bitmap differences: -")
                    && line.len() <= MAX_LINE_BYTES)
        );
        let items: Vec<&str> = lines.iter().flat_map(|line| line.split(' ').skip(3)).collect();
        assert_eq!((items.len(), items[99_999], items[100_000]), (100_001, "-99999", "+7"));
    }
}
