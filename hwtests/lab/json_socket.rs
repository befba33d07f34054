//! One JSON value per line over a unix socket, as QMP and the guest agent use it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::pause;

pub struct JsonSocket {
    stream: UnixStream,
    /// Received, and not yet a complete line.
    pending: Vec<u8>,
}

impl JsonSocket {
    /// QEMU creates the socket a moment after its start.
    pub fn connect(path: &Path, within: Duration) -> io::Result<JsonSocket> {
        let deadline = Instant::now() + within;
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => {
                    return Ok(JsonSocket { stream, pending: Vec::new() });
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => pause(Duration::from_millis(20)),
            }
        }
    }

    pub fn send(&mut self, value: &Value) -> io::Result<()> {
        let mut line = value.to_string().into_bytes();
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// The next value. The connection is still usable after `TimedOut`: a partial line is kept.
    pub fn receive(&mut self, within: Duration) -> io::Result<Value> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                // The agent sends 0xff before the answer to the first request after a reset.
                let text: Vec<u8> = line.into_iter().filter(|byte| *byte != 0xff).collect();
                if text.trim_ascii().is_empty() {
                    continue;
                }
                return serde_json::from_slice(&text)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut buffer = [0; 65536];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.pending.extend(&buffer[..count]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
