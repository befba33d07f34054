//! The storage lines of the kernel log, with a few lines around each.
//!
//! In: records as /dev/kmsg has them. Out: text in the form of dmesg, which `diskvitals analyze
//! kernel-log` reads. Bounded in records, lines and time: a read never waits.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use diskvitals_kernel_log::record::{self, Record};
use diskvitals_kernel_log::rules;

/// Records before and after a storage line that are kept too.
const CONTEXT: usize = 3;
/// The kernel's buffer has 16 MiB at most in practice (log_buf_len), in records of 60 bytes or more.
const MAX_RECORDS: usize = 300_000;
/// The newest lines are kept.
const MAX_LINES: usize = 20_000;
/// Longest record of /dev/kmsg (printk's PRINTKRB_RECORD_MAX and its fields).
const MAX_RECORD_BYTES: usize = 16 << 10;

/// The storage lines of the kernel log.
pub fn read(path: &Path) -> io::Result<String> {
    let mut log =
        OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let mut lines = StorageLines::default();
    let mut buffer = vec![0; MAX_RECORD_BYTES];
    for _ in 0..MAX_RECORDS {
        match log.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => lines.push(&buffer[..length]),
            Err(error) => match error.raw_os_error() {
                // The end of the log.
                Some(nix::libc::EAGAIN) => break,
                // The next record was overwritten: reading continues behind the gap.
                Some(nix::libc::EPIPE | nix::libc::EINTR) => {}
                // Longer than any record of this kernel.
                Some(nix::libc::EINVAL) => {}
                _ => return Err(error),
            },
        }
    }
    Ok(lines.text())
}

#[derive(Default)]
struct StorageLines {
    kept: VecDeque<String>,
    /// Records since the last kept one, at most `CONTEXT`.
    before: VecDeque<String>,
    /// Records that are still kept after the last storage line.
    after: usize,
    /// Records were left out since the last kept one.
    skipped: bool,
}

impl StorageLines {
    fn push(&mut self, raw: &[u8]) {
        let Ok(record) = record::parse(raw) else {
            return;
        };
        // A line that a program wrote to the kernel log can look like any other.
        let is_kernel = record.facility == 0;
        let is_storage = is_kernel && rules::table().knows(&record.text);
        let line = text(&record);
        if is_storage {
            if self.skipped && !self.kept.is_empty() {
                self.keep("--".to_owned());
            }
            self.skipped = false;
            while let Some(line) = self.before.pop_front() {
                self.keep(line);
            }
            self.keep(line);
            self.after = CONTEXT;
        } else if self.after > 0 {
            self.after -= 1;
            self.keep(line);
        } else {
            self.before.push_back(line);
            if self.before.len() > CONTEXT {
                self.before.pop_front();
                self.skipped = true;
            }
        }
    }

    fn keep(&mut self, line: String) {
        self.kept.push_back(line);
        if self.kept.len() > MAX_LINES {
            self.kept.pop_front();
        }
    }

    fn text(self) -> String {
        self.kept.into_iter().map(|line| line + "\n").collect()
    }
}

/// As dmesg prints it.
fn text(record: &Record) -> String {
    let (seconds, micros) = (record.time_us / 1_000_000, record.time_us % 1_000_000);
    let text = record.text.replace('\n', " ");
    format!("[{seconds:5}.{micros:06}] {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(records: &[&str]) -> String {
        let mut lines = StorageLines::default();
        for (at, text) in records.iter().enumerate() {
            lines.push(format!("3,{at},{}000000,-;{text}\n", 60 + at).as_bytes());
        }
        lines.text()
    }

    const ERROR: &str =
        "I/O error, dev sda, sector 1046528 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2";

    #[test]
    fn storage_lines_are_kept_with_the_lines_around_them() {
        let mut records = vec!["usb 1-1: new device"; 10];
        records[5] = ERROR;
        let text = lines(&records);
        assert_eq!(text.lines().count(), 7, "{text}");
        assert!(text.contains(&format!("[   65.000000] {ERROR}\n")), "{text}");
        assert_eq!(lines(&["eth0: link up"; 50]), "");
    }

    #[test]
    fn groups_of_lines_are_separated_and_the_newest_remain() {
        let mut records = vec!["eth0: link up"; 30];
        (records[3], records[20]) = (ERROR, ERROR);
        assert_eq!(lines(&records).matches("\n--\n").count(), 1);
        let all = lines(&vec![ERROR; MAX_LINES + 5]);
        assert_eq!(all.lines().count(), MAX_LINES);
    }
}
