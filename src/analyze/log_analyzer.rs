//! Analyzes a kernel log in any format, from its first line to the result.
//!
//! In: lines. Out: `KernelLogAnalysis`. Streams: memory use does not grow with the file.

use std::borrow::Cow;
use std::io;
use std::io::BufRead;

use jiff::Timestamp;

use crate::clean_text::clean;
use crate::continuation::{RecordJoiner, TextRecord};
use crate::coverage::Coverage;
use crate::framing::{Framing, Measure, SAMPLE_LINES, may_continue};
use crate::input_source::{InputSource, Lines};
use crate::journal;
use crate::kernel_log_analysis::{AnalysisBuilder, KernelLogAnalysis};
use crate::kernel_words::{Likeness, likeness};
use crate::line_format::{LogLine, is_partial};
use crate::quoted_printable::QuotedPrintable;
use crate::unwrap::unwrap_lines;
use diskvitals_kernel_log::classify::Classifier;
use diskvitals_kernel_log::event::Event;
use diskvitals_kernel_log::record;
use diskvitals_kernel_log::record::Record;

const MAX_PARTIAL_LINE_BYTES: usize = 16 * 1024;

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
pub struct LogAnalyzer {
    classifier: Classifier,
    builder: AnalysisBuilder,
    events: Vec<Event>,
    line: u64,
    /// The kernel time of the last line that had one.
    time: u64,
    boot: Option<String>,
    export_entry: Option<journal::JournalEntry>,
    joiner: RecordJoiner,
    coverage: Coverage,
    mail: QuotedPrintable,
    /// The beginning of a container's line that goes on in the next line.
    partial_line: String,
    /// The first lines, until the framing is known.
    sample: Vec<(u64, String)>,
    framing: Option<Framing>,
    /// The last line, if it belongs to something that was understood.
    last_understood: Option<Measure>,
}

impl LogAnalyzer {
    pub fn read<R: BufRead>(&mut self, lines: &mut Lines<R>) -> io::Result<()> {
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
                let Some(length) =
                    lines.bytes(8)?.and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
                else {
                    break;
                };
                let Some(bytes) =
                    lines.bytes(usize::try_from(length).unwrap_or(usize::MAX).saturating_add(1))?
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
        self.end_sample();
        if let Some(rest) = self.mail.finish() {
            self.parse_line(self.line, &rest);
        }
        if let Some(entry) = self.export_entry.take() {
            self.push_entry(&entry);
        }
        Ok(())
    }

    pub fn finish(mut self, file: String) -> KernelLogAnalysis {
        self.end_sample();
        let records = self.joiner.finish();
        self.push_records(records);
        self.finish_boot();
        let understanding = std::mem::take(&mut self.coverage).finish();
        self.builder.build(file, understanding)
    }

    fn push_kmsg(&mut self, raw: &[u8], line: u64) {
        self.end_sample();
        match record::parse(raw) {
            Ok(mut record) => {
                record.seq = line;
                match record.facility {
                    0 => self.coverage.add_kernel(),
                    _ => self.coverage.add_program(),
                }
                self.push(&record);
            }
            Err(_) => self.coverage.add_other(line, &String::from_utf8_lossy(raw)),
        }
    }

    /// A line in another format than /dev/kmsg. Some: the name of a binary field, which follows.
    fn push_journal_line(&mut self, line: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(line);
        if text.starts_with("__CURSOR=") || journal::is_verbose_header(&text) {
            if let Some(entry) = self.export_entry.replace(journal::JournalEntry::default()) {
                self.push_entry(&entry);
            }
            return None;
        }
        if let Some(entry) = &mut self.export_entry {
            // The verbose form indents the fields.
            match text.trim_start().split_once('=') {
                Some((name, value)) if is_field_name(name) => entry.set(name, value.to_owned()),
                None if is_field_name(&text) => return Some(text.into_owned()),
                _ => {}
            }
            return None;
        }
        if text.starts_with('{')
            && let Some(found) = journal::parse_json(&text)
        {
            match found {
                journal::JsonLine::Entry(entry) => self.push_entry(&entry),
                journal::JsonLine::Text(lines) => {
                    for line in lines.lines() {
                        self.push_text(line);
                    }
                }
                journal::JsonLine::Other => self.coverage.add_other(self.line, &text),
            }
            return None;
        }
        self.push_text(&text);
        None
    }

    fn push_entry(&mut self, entry: &journal::JournalEntry) {
        self.end_sample();
        if let Some(boot) = &entry.boot {
            if self.boot.as_ref().is_some_and(|before| before != boot) {
                self.start_boot();
            }
            self.boot = Some(boot.clone());
        }
        let Some(message) = entry.message.as_deref().filter(|_| entry.is_from_kernel()) else {
            self.coverage.add_program();
            return;
        };
        self.coverage.add_kernel();
        let time = entry.monotonic.unwrap_or(self.time);
        self.time = time;
        let mut record = Record::from_text(self.line, time, message);
        record.subsystem = entry.subsystem.as_deref();
        record.device = entry.device.as_deref();
        self.push(&record);
    }

    fn push_text(&mut self, line: &str) {
        let line = clean(line);
        if self.framing.is_some() {
            if let Some(line) = self.mail.decode(&line) {
                self.parse_line(self.line, &line);
            }
            return;
        }
        self.sample.push((self.line, line.into_owned()));
        if self.sample.len() >= SAMPLE_LINES {
            self.end_sample();
        }
    }

    /// The framing is determined from the lines so far.
    fn end_sample(&mut self) {
        if self.framing.is_some() || self.sample.is_empty() {
            return;
        }
        let sample = std::mem::take(&mut self.sample);
        self.mail = QuotedPrintable::of(sample.iter().map(|(_, line)| line.as_str()));
        let sample: Vec<(u64, Cow<'_, str>)> = sample
            .iter()
            .filter_map(|(number, line)| Some((*number, self.mail.decode(line)?)))
            .collect();
        let lines: Vec<&str> = sample.iter().map(|(_, line)| line.as_ref()).collect();
        let framing = Framing::of(&lines);
        self.joiner.wrap = framing.wrap;
        self.joiner.longest = framing.longest;
        self.framing = Some(framing);
        for (number, line) in &sample {
            self.parse_line(*number, line);
        }
    }

    fn parse_line(&mut self, number: u64, line: &str) {
        let Some(framing) = &self.framing else { return };
        let goes_on = is_partial(line);
        let mut joined = String::new();
        let line = match self.partial_line.is_empty() {
            true => line,
            false => {
                joined.push_str(&std::mem::take(&mut self.partial_line));
                joined.push_str(without_stream(line));
                &joined
            }
        };
        if goes_on && line.len() < MAX_PARTIAL_LINE_BYTES {
            self.partial_line = line.to_owned();
            return;
        }
        let measure = Measure::of(line);
        let longest = framing.longest;
        match framing.parse(line) {
            LogLine::Boot => self.start_boot(),
            // /dev/kmsg's form behind a quote mark, or in a container's log.
            LogLine::Unsigned { text, .. } | LogLine::Bare { text }
                if kmsg_record(text.as_bytes()).is_some() =>
            {
                self.last_understood = Some(measure);
                let records = self.joiner.interrupt();
                self.push_records(records);
                if let Some(record) = kmsg_record(text.as_bytes()) {
                    self.push_kmsg(record, number);
                }
            }
            LogLine::Note => self.last_understood = None,
            LogLine::Program { kernel_time, has_header, .. } => {
                match has_header {
                    true => self.coverage.add_program(),
                    false => self.coverage.add_bare_program(),
                }
                if !has_header && !self.coverage.has_headers() {
                    return;
                }
                self.last_understood = Some(measure);
                let records = self.joiner.push_program(kernel_time);
                self.push_records(records);
            }
            LogLine::Unsigned { text, wall } => {
                self.last_understood = Some(measure);
                if likeness(text) != Likeness::Kernel {
                    self.coverage.add_program();
                    let records = self.joiner.push_program(None);
                    self.push_records(records);
                    return;
                }
                self.coverage.add_kernel();
                self.join(text_record(number, text, measure, wall), true);
            }
            LogLine::Bare { text } => {
                if text.trim_ascii().is_empty() {
                    self.last_understood = None;
                    return;
                }
                self.count_bare(number, text, measure, longest);
                self.join(text_record(number, text, measure, None), false);
            }
            LogLine::Kernel { text, kernel_time, wall, facility } => {
                match facility {
                    0 => self.coverage.add_kernel(),
                    _ => self.coverage.add_program(),
                }
                self.last_understood = Some(measure);
                let record = TextRecord {
                    kernel_time,
                    facility,
                    ..text_record(number, text, measure, wall)
                };
                self.join(record, true);
            }
        }
    }

    fn join(&mut self, record: TextRecord, has_prefix: bool) {
        let records = self.joiner.push(record, has_prefix);
        self.push_records(records);
    }

    /// A line without a header continues what is before it, if it is indented, or if the line before
    /// had no room for its first word.
    fn count_bare(&mut self, number: u64, text: &str, measure: Measure, longest: usize) {
        // A ruler, `[...]`, the end of a record that was broken.
        if !text.contains(char::is_alphanumeric) {
            return;
        }
        let likeness = likeness(text);
        if !self.coverage.has_headers() {
            return self.coverage.add_bare(likeness, number, text);
        }
        let continues =
            self.last_understood.is_some_and(|before| may_continue(before, measure, longest));
        if continues || likeness == Likeness::Kernel {
            self.last_understood = Some(measure);
            self.coverage.add_continuation();
        } else {
            self.last_understood = None;
            self.coverage.add_other(number, text);
        }
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
            let text = unwrap_lines(record.text, record.unwrapped, record.may_be_broken);
            let mut record = Record::from_text(line, time, &text);
            record.facility = facility;
            self.push(&record);
        }
    }

    fn push(&mut self, record: &Record<'_>) {
        self.classifier.push(record, timestamp_from_micros(record.time_us), &mut self.events);
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
        let _ = self.classifier.take_full_reads();
        for excused in self.classifier.take_rejected_requests() {
            self.builder.excuse(&excused);
        }
    }

    /// Decides what is still open, for the last boot.
    fn finish_boot(&mut self) {
        self.classifier.finish(timestamp_from_micros(self.time), &mut self.events);
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

fn text_record(line: u64, text: &str, measure: Measure, wall: Option<u64>) -> TextRecord {
    TextRecord {
        line,
        kernel_time: None,
        wall,
        facility: 0,
        // rsyslog and syslog-ng escape a line break like this.
        text: text.replace("#012", "\n").replace("\\x0a", "\n"),
        unwrapped: None,
        may_be_broken: true,
        measure,
    }
}

/// The text of a container's further part.
fn without_stream(line: &str) -> &str {
    let mut rest = line;
    for _ in 0..3 {
        rest = rest.split_once(' ').map_or(rest, |(_, after)| after);
    }
    rest
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
    [Some(line), after_release].into_iter().flatten().find(|record| is_kmsg(record))
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
    line.iter().position(|byte| *byte == b'=').is_some_and(|end| is_upper_case_name(&line[1..end]))
}

fn is_field_name(name: &str) -> bool {
    name.len() <= 64 && is_upper_case_name(name.as_bytes())
}

fn is_upper_case_name(name: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    !name.is_empty() && name.iter().all(allowed)
}
