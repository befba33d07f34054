//! Reads a file or standard input: decompressed if compressed, as bytes or as lines of bounded
//! length.
//!
//! In: a path. Out: bytes, lines. Does not interpret log formats.

use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use flate2::bufread::MultiGzDecoder;

/// Longer lines are truncated: a kernel record has at most 1 KiB, and a prefix.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputSource {
    StandardInput,
    File(PathBuf),
}

impl InputSource {
    /// The name as displayed and as given: `-` is standard input.
    pub fn name(&self) -> String {
        match self {
            InputSource::StandardInput => "-".to_owned(),
            InputSource::File(path) => path.to_string_lossy().into_owned(),
        }
    }

    pub fn open(&self) -> io::Result<Lines<Box<dyn BufRead>>> {
        Ok(Lines::new(self.reader()?))
    }

    /// The bytes, decompressed.
    pub fn reader(&self) -> io::Result<Box<dyn BufRead>> {
        let raw: Box<dyn Read> = match self {
            InputSource::StandardInput => Box::new(io::stdin()),
            InputSource::File(path) => Box::new(File::open(path)?),
        };
        let mut raw = BufReader::with_capacity(256 * 1024, raw);
        // A pipe may deliver one byte at first; two are needed to detect gzip.
        let packed = raw.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        Ok(if packed {
            Box::new(BufReader::with_capacity(256 * 1024, MultiGzDecoder::new(raw)))
        } else {
            Box::new(raw)
        })
    }
}

/// Lines without their line ends; text of a line beyond `MAX_LINE_BYTES` is skipped.
pub struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Lines<R> {
        Lines { input, buffer: Vec::new() }
    }

    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.buffer.clear();
        loop {
            let buffer = match self.input.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                return Ok((!self.buffer.is_empty()).then_some(&self.buffer));
            }
            let end = memchr(buffer);
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let room = MAX_LINE_BYTES.saturating_sub(self.buffer.len());
            self.buffer.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                if self.buffer.last() == Some(&b'\r') {
                    self.buffer.pop();
                }
                // An empty line is also a line.
                return Ok(Some(&self.buffer));
            }
        }
    }

    /// Reads exactly `count` bytes of binary data (journal export), truncated to `MAX_LINE_BYTES`.
    /// None: the input ends before.
    pub fn bytes(&mut self, count: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::with_capacity(count.min(MAX_LINE_BYTES));
        let mut left = count;
        while left > 0 {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(None);
            }
            let part = buffer.len().min(left);
            let room = MAX_LINE_BYTES.saturating_sub(bytes.len());
            bytes.extend_from_slice(&buffer[..part.min(room)]);
            self.input.consume(part);
            left -= part;
        }
        Ok(Some(bytes))
    }
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}
