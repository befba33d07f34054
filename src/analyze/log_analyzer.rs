//! Analyzes a kernel log in any format, from its first line to the result.
//!
//! In: lines. Out: `KernelLogAnalysis`. Streams: memory use does not grow with the file.

use std::borrow::Cow;
use std::io;
use std::io::BufRead;

use jiff::Timestamp;

use crate::analyze::continuation::{RecordJoiner, TextRecord};
use crate::analyze::input_source::{InputSource, Lines};
use crate::analyze::kernel_log_analysis::{AnalysisBuilder, KernelLogAnalysis};
use crate::analyze::line_format::LogLine;
use crate::analyze::{journal, line_format};
use crate::model::kernel_log::classify::Classifier;
use crate::model::kernel_log::event::Event;
use crate::model::kernel_log::record;
use crate::model::kernel_log::record::Record;
use crate::model::kernel_log::rules;

/// Lines of quoted-printable have 76 bytes, or a few less if a character of several bytes follows.
const MIN_MAIL_LINE_BYTES: usize = 70;
const MAX_MAIL_LINE_BYTES: usize = 2_048;
/// Lines are wrapped at 72 columns or more; the header has up to 40 of them.
const MIN_WRAPPED_BYTES: usize = 24;

/// Reads a whole log and returns its analysis.
pub fn kernel_log(source: &InputSource) -> io::Result<KernelLogAnalysis> {
    kernel_log_from(source.reader()?, source.name())
}

/// The same for bytes in memory.
pub fn kernel_log_from(input: impl BufRead, name: String) -> io::Result<KernelLogAnalysis> {
    let mut log = LogAnalyzer::default();
    log.read(&mut Lines::new(input))?;
    Ok(log.finish(name))
}

#[derive(Debug, Default)]
pub(crate) struct LogAnalyzer {
    classifier: Classifier,
    builder: AnalysisBuilder,
    events: Vec<Event>,
    line: u64,
    /// The kernel time of the last line that had one.
    time: u64,
    boot: Option<String>,
    export_entry: Option<journal::JournalEntry>,
    joiner: RecordJoiner,
    /// The beginning of a line of a mail that goes on in the next line.
    mail_line: String,
}

impl LogAnalyzer {
    pub(crate) fn read<R: BufRead>(&mut self, lines: &mut Lines<R>) -> io::Result<()> {
        let (mut raw, mut raw_line): (Vec<u8>, u64) = (Vec::new(), 0);
        while let Some(line) = lines.next()? {
            self.line += 1;
            // /dev/kmsg prints fields on separate lines, which belong to the previous record.
            if line.starts_with(b" ") && is_field(line) && !raw.is_empty() {
                raw.push(b'\n');
                raw.extend_from_slice(line);
                continue;
            }
            if !raw.is_empty() {
                self.push_kmsg(&raw, raw_line);
                raw.clear();
            }
            if let Some(record) = kmsg_record(line) {
                raw.extend_from_slice(record);
                raw_line = self.line;
                continue;
            }
            if let Some(name) = self.push_journal_line(line) {
                // A binary field: eight bytes of length, the value, a line break.
                let Some(length) = lines
                    .bytes(8)?
                    .and_then(|bytes| bytes.try_into().ok())
                    .map(u64::from_le_bytes)
                else {
                    break;
                };
                let Some(bytes) = lines.bytes(
                    usize::try_from(length)
                        .unwrap_or(usize::MAX)
                        .saturating_add(1),
                )?
                else {
                    break;
                };
                if let (Some(entry), [value @ .., _]) = (&mut self.export_entry, bytes.as_slice()) {
                    entry.set(&name, String::from_utf8_lossy(value).into_owned());
                }
            }
        }
        if !raw.is_empty() {
            self.push_kmsg(&raw, raw_line);
        }
        if !self.mail_line.is_empty() {
            let rest = std::mem::take(&mut self.mail_line);
            self.push_text(&rest);
        }
        if let Some(entry) = self.export_entry.take() {
            self.push_entry(&entry);
        }
        Ok(())
    }

    pub(crate) fn finish(mut self, file: String) -> KernelLogAnalysis {
        let records = self.joiner.finish();
        self.push_records(records);
        self.finish_boot();
        self.builder.build(file)
    }

    fn push_kmsg(&mut self, raw: &[u8], line: u64) {
        if let Ok(mut record) = record::parse(raw) {
            record.seq = line;
            self.push(&record);
        }
    }

    /// A line in another format than /dev/kmsg. Some: the name of a binary field, which follows.
    fn push_journal_line(&mut self, line: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(line);
        if text.starts_with("__CURSOR=") {
            if let Some(entry) = self.export_entry.replace(journal::JournalEntry::default()) {
                self.push_entry(&entry);
            }
            return None;
        }
        if let Some(entry) = &mut self.export_entry {
            match text.split_once('=') {
                Some((name, value)) if is_field_name(name) => entry.set(name, value.to_owned()),
                None if is_field_name(&text) => return Some(text.into_owned()),
                _ => {}
            }
            return None;
        }
        if text.starts_with('{')
            && let Some(entry) = journal::parse_json(&text)
        {
            self.push_entry(&entry);
            return None;
        }
        self.push_text(&text);
        None
    }

    fn push_entry(&mut self, entry: &journal::JournalEntry) {
        if let Some(boot) = &entry.boot {
            if self.boot.as_ref().is_some_and(|before| before != boot) {
                self.start_boot();
            }
            self.boot = Some(boot.clone());
        }
        let Some(message) = entry.message.as_deref().filter(|_| entry.is_from_kernel()) else {
            return;
        };
        let time = entry.monotonic.unwrap_or(self.time);
        self.time = time;
        let mut record = Record::from_text(self.line, time, message);
        record.subsystem = entry.subsystem.as_deref();
        record.device = entry.device.as_deref();
        self.push(&record);
    }

    fn push_text(&mut self, line: &str) {
        let Some(line) = self.decode_mail_line(line) else {
            return;
        };
        match line_format::parse_line(&without_terminal_codes(&line)) {
            LogLine::Boot => self.start_boot(),
            LogLine::Program { kernel_time } => {
                let records = self.joiner.push_program(kernel_time);
                self.push_records(records);
            }
            LogLine::Kernel {
                text,
                kernel_time,
                wall,
                facility,
                has_prefix,
            } => {
                // A mail may have broken the line after its header: the text follows.
                if text.is_empty() && !has_prefix {
                    return;
                }
                let record = TextRecord {
                    line: self.line,
                    kernel_time,
                    wall,
                    facility,
                    // rsyslog and syslog-ng escape a line break like this.
                    text: text.replace("#012", "\n").replace("\\x0a", "\n"),
                };
                let records = self.joiner.push(record, has_prefix);
                self.push_records(records);
            }
        }
    }

    /// Undoes quoted-printable (RFC 2045, 6.7), which a mail's source has. None: the line goes on.
    fn decode_mail_line<'a>(&mut self, line: &'a str) -> Option<Cow<'a, str>> {
        let is_broken = line.len() >= MIN_MAIL_LINE_BYTES && line.ends_with('=');
        if !is_broken && self.mail_line.is_empty() && !line.contains("=3D") {
            return Some(Cow::Borrowed(line));
        }
        let line = match self.mail_line.is_empty() {
            true => line,
            false => line.trim_start_matches(['>', ' ']),
        };
        self.mail_line.push_str(line);
        if is_broken && self.mail_line.len() < MAX_MAIL_LINE_BYTES {
            self.mail_line.pop();
            return None;
        }
        let whole = std::mem::take(&mut self.mail_line);
        let whole = whole.replace("=20", " ").replace("=3D", "=");
        Some(Cow::Owned(whole))
    }

    fn push_records(&mut self, records: Vec<TextRecord>) {
        for record in records {
            if record.text.trim_ascii().is_empty() {
                continue;
            }
            let time = record.kernel_time.or(record.wall).unwrap_or(self.time);
            // The kernel's clock has restarted.
            if record.kernel_time.is_some()
                && time < 5_000_000
                && self.time > time.saturating_add(30_000_000)
            {
                self.begin_next_boot();
            }
            self.time = time;
            let (facility, line) = (record.facility, record.line);
            let text = unwrap_lines(record.text);
            let mut record = Record::from_text(line, time, &text);
            record.facility = facility;
            self.push(&record);
        }
    }

    fn push(&mut self, record: &Record<'_>) {
        if record.facility == 0 {
            self.builder.records += 1;
        }
        self.classifier.push(
            record,
            timestamp_from_micros(record.time_us),
            &mut self.events,
        );
        self.drain_events();
    }

    fn drain_events(&mut self) {
        for event in self.events.drain(..) {
            let is_direct = self.classifier.is_attached_directly(&event.device);
            self.builder.add(&event, is_direct);
        }
        if self.classifier.has_unplugged_device() {
            self.builder.add_removal();
        }
        let _ = self.classifier.take_name_assignments();
        for excused in self.classifier.take_rejected_requests() {
            self.builder.excuse(&excused);
        }
    }

    /// Decides what is still open, for the last boot.
    fn finish_boot(&mut self) {
        self.classifier
            .finish(timestamp_from_micros(self.time), &mut self.events);
        self.drain_events();
    }

    fn start_boot(&mut self) {
        let records = self.joiner.interrupt();
        self.push_records(records);
        self.begin_next_boot();
    }

    fn begin_next_boot(&mut self) {
        self.finish_boot();
        self.classifier = Classifier::default();
        self.time = 0;
    }
}

/// A mail or a narrow terminal breaks long lines. A break is undone if the record has a meaning
/// only then. This adds nothing that a name in the record can do: it can contain blanks as well.
fn unwrap_lines(text: String) -> String {
    let first = text.trim_ascii_start();
    let is_wrapped = first.find('\n').is_some_and(|at| at >= MIN_WRAPPED_BYTES);
    if !is_wrapped || rules::table().parse(&text).is_some() {
        return text;
    }
    let joined = text.replace('\n', " ");
    match rules::table().parse(&joined) {
        Some(_) => joined,
        None => text,
    }
}

/// Without the colors of `dmesg -L`, and without the noise of a serial line.
fn without_terminal_codes(line: &str) -> Cow<'_, str> {
    let is_noise = |c: char| c.is_control() && c != '\t';
    if !line.contains(is_noise) {
        return Cow::Borrowed(line);
    }
    let mut parts = line.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !(c.is_ascii_digit() || c == ';'));
        text.push_str(end.and_then(|end| part.get(end + 1..)).unwrap_or_default());
    }
    text.retain(|c| !is_noise(c));
    Cow::Owned(text)
}

/// Kernel microseconds as a time: only for evidence, which the analysis does not print.
fn timestamp_from_micros(micros: u64) -> Timestamp {
    i64::try_from(micros)
        .ok()
        .and_then(|micros| Timestamp::from_microsecond(micros).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A record in the form of /dev/kmsg. netconsole's extended form has the kernel's release in front:
/// `6.1.0-38-amd64,6,492,22048412,-;…` (drivers/net/netconsole.c send_ext_msg_udp()).
fn kmsg_record(line: &[u8]) -> Option<&[u8]> {
    let comma = line.iter().take(64).position(|byte| *byte == b',')?;
    let after_release = line[..comma].contains(&b'.').then(|| &line[comma + 1..]);
    [Some(line), after_release]
        .into_iter()
        .flatten()
        .find(|record| is_kmsg(record))
}

/// `6,492,22048412,-;…`
fn is_kmsg(line: &[u8]) -> bool {
    let mut commas = 0;
    for byte in line.iter().take(60) {
        match byte {
            b',' => commas += 1,
            b';' => return commas >= 3,
            b'0'..=b'9' => {}
            _ if commas < 3 => return false,
            _ => {}
        }
    }
    false
}

/// ` SUBSYSTEM=scsi`
fn is_field(line: &[u8]) -> bool {
    line.iter()
        .position(|byte| *byte == b'=')
        .is_some_and(|end| is_upper_case_name(&line[1..end]))
}

fn is_field_name(name: &str) -> bool {
    name.len() <= 64 && is_upper_case_name(name.as_bytes())
}

fn is_upper_case_name(name: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    !name.is_empty() && name.iter().all(allowed)
}
