//! `RecordSplitter`: splits a stream of bytes into records: a pipe, a file, or a program's output
//! that replaces /dev/kmsg, which returns one whole record per read.
//!
//! In: pieces of any length. Out: records: a line, and in the format of /dev/kmsg also the
//! following lines that begin with a space. Holds at most one record, and does not interpret it.

/// The kernel's longest record has 8 KiB (PRINTKRB_RECORD_MAX plus escapes); a longer one is
/// dropped up to the next line.
pub(crate) const MAX_RECORD: usize = 64 * 1024;

#[derive(Debug)]
pub struct RecordSplitter {
    /// In this format, lines that begin with a space continue the record.
    has_continuation_lines: bool,
    /// A record that may continue, without its last line break.
    record: Vec<u8>,
    /// The last line of the record has its line break.
    line_complete: bool,
    /// Drops a line that is too long, and its continuation.
    dropping: bool,
    pub dropped: u64,
}

impl RecordSplitter {
    pub fn new(continued: bool) -> RecordSplitter {
        RecordSplitter {
            has_continuation_lines: continued,
            record: Vec::new(),
            line_complete: false,
            dropping: false,
            dropped: 0,
        }
    }

    pub fn push(&mut self, mut piece: &[u8], mut give: impl FnMut(&[u8])) {
        while let [first, ..] = piece {
            if self.line_complete {
                self.line_complete = false;
                if self.has_continuation_lines
                    && *first == b' '
                    && (self.dropping || !self.record.is_empty())
                {
                    self.append(b"\n");
                } else {
                    self.emit_record(&mut give);
                }
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let (line, rest) = piece.split_at(end.unwrap_or(piece.len()));
            self.append(line);
            piece = rest.get(1..).unwrap_or_default();
            self.line_complete = end.is_some();
        }
        // Without continuation lines the record is complete.
        if self.line_complete && !self.has_continuation_lines {
            self.flush(give);
        }
    }

    /// Whether a record is held that the next line may continue.
    pub fn is_waiting(&self) -> bool {
        self.line_complete
    }

    /// Called when no data has come for a while: a record with its line break is then complete.
    pub fn flush(&mut self, mut give: impl FnMut(&[u8])) {
        if self.line_complete {
            self.line_complete = false;
            self.emit_record(&mut give);
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.dropping {
            return;
        }
        if self.record.len() + bytes.len() > MAX_RECORD {
            self.dropping = true;
            self.dropped += 1;
            self.record = Vec::new();
            return;
        }
        self.record.extend_from_slice(bytes);
    }

    fn emit_record(&mut self, give: &mut impl FnMut(&[u8])) {
        if !self.dropping && !self.record.is_empty() {
            give(&self.record);
        }
        self.dropping = false;
        self.record.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(lines: &mut RecordSplitter, pieces: &[&[u8]]) -> Vec<String> {
        let mut records = Vec::new();
        let mut give = |record: &[u8]| records.push(String::from_utf8_lossy(record).into_owned());
        for piece in pieces {
            lines.push(piece, &mut give);
        }
        lines.flush(&mut give);
        records
    }

    const STREAM: &[u8] =
        b"6,1,2,-;one\n SUBSYSTEM=scsi\n DEVICE=b8:0\n\n6,2,3,-;two\n6,3,4,-;\xff\n X=1\n";
    const RECORDS: [&str; 3] =
        ["6,1,2,-;one\n SUBSYSTEM=scsi\n DEVICE=b8:0", "6,2,3,-;two", "6,3,4,-;\u{fffd}\n X=1"];

    #[test]
    fn a_record_torn_at_any_place_is_one_record() {
        for at in 0..STREAM.len() {
            let (a, b) = STREAM.split_at(at);
            assert_eq!(all(&mut RecordSplitter::new(true), &[a, b]), RECORDS, "{at}");
        }
        let bytes: Vec<&[u8]> = STREAM.chunks(1).collect();
        assert_eq!(all(&mut RecordSplitter::new(true), &bytes), RECORDS);
    }

    #[test]
    fn without_continuation_lines_a_record_is_given_at_its_line_break() {
        let mut records = Vec::new();
        let mut lines = RecordSplitter::new(false);
        lines.push(b"{}\n {\"a", |record| records.push(record.to_vec()));
        assert_eq!(records, [b"{}"]);
        assert!(!lines.is_waiting());
    }

    #[test]
    fn a_line_of_a_megabyte_is_dropped_with_what_continues_it_and_the_next_record_is_whole() {
        let mut lines = RecordSplitter::new(true);
        let long = vec![b'x'; 1 << 20];
        let given = all(
            &mut lines,
            &[b"6,1,2,-;", &long[..], &long[..], b"\n SUBSYSTEM=scsi\n6,2,3,-;two\n"],
        );
        assert_eq!((given, lines.dropped), (vec!["6,2,3,-;two".to_owned()], 1));
        assert!(lines.record.capacity() <= MAX_RECORD);
    }

    #[test]
    fn a_line_that_continues_nothing_is_a_record_of_its_own() {
        assert_eq!(
            all(&mut RecordSplitter::new(true), &[b" SUBSYSTEM=scsi\n6,2,3,-;two\n"]),
            [" SUBSYSTEM=scsi", "6,2,3,-;two"]
        );
    }

    proptest! {
        #[test]
        fn junk_is_split_the_same_however_it_is_torn(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b'\0'), any::<u8>()], 0..200), sizes in prop::collection::vec(1..20_usize, 1..40)) {
            let whole = all(&mut RecordSplitter::new(true), &[&bytes]);
            let (mut rest, mut pieces, mut sizes) = (&bytes[..], Vec::new(), sizes.into_iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            prop_assert_eq!(all(&mut RecordSplitter::new(true), &pieces), whole);
        }
    }
}
