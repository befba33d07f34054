//! Lines that the guest writes to a virtio port: its kernel log, and the output of the daemon's
//! watch. A reader that waits for lines wakes at once.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Default)]
pub struct Lines {
    shared: Arc<(Mutex<Vec<String>>, Condvar)>,
}

impl Lines {
    /// Collects from QEMU's end of the port until QEMU ends.
    pub fn collect(path: &Path) -> Result<Lines, String> {
        let stream = UnixStream::connect(path)
            .map_err(|error| format!("connecting to {}: {error}", path.display()))?;
        let lines = Lines::default();
        let mine = lines.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                mine.held().push(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned());
                mine.shared.1.notify_all();
                line.clear();
            }
        });
        Ok(lines)
    }

    fn held(&self) -> MutexGuard<'_, Vec<String>> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self) -> usize {
        self.held().len()
    }

    pub fn since(&self, mark: usize) -> Vec<String> {
        self.held().get(mark..).unwrap_or_default().to_vec()
    }

    /// Waits until there are more than `count` lines, or for `within`.
    pub fn more_than(&self, count: usize, within: Duration) {
        let deadline = Instant::now() + within;
        let mut held = self.held();
        while held.len() <= count {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            held = self.shared.1.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
