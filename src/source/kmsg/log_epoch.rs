//! `LogEpoch`: the range in which sequence numbers are comparable: one boot, one medium, and as
//! long as numbers grow.
//!
//! In: the boot id, and the stored cursor. Out: where to start reading, and the name of the epoch
//! for `Cursor::boot_id`.

use std::fmt;

use diskvitals_kernel_log::event::Cursor;

/// The medium that the numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The kernel's numbers.
    Kmsg,
    /// The journal's numbers, shared by all its entries.
    Journal,
}

/// Written as `BOOT-ID`, `BOOT-ID/journal`, and `…+N` when the numbers of a boot started over for
/// the N-th time. Numbers of equal names are comparable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEpoch {
    pub boot_id: String,
    pub medium: Medium,
    pub generation: u32,
}

const JOURNAL_SUFFIX: &str = "/journal";

impl LogEpoch {
    pub fn new(boot_id: &str, medium: Medium) -> LogEpoch {
        LogEpoch { boot_id: boot_id.to_owned(), medium, generation: 0 }
    }

    pub fn parse(text: &str) -> LogEpoch {
        let (text, again) = match text.rsplit_once('+').map(|(text, again)| (text, again.parse())) {
            Some((text, Ok(again))) => (text, again),
            _ => (text, 0),
        };
        match text.strip_suffix(JOURNAL_SUFFIX) {
            Some(boot_id) => {
                LogEpoch { boot_id: boot_id.to_owned(), medium: Medium::Journal, generation: again }
            }
            None => LogEpoch { boot_id: text.to_owned(), medium: Medium::Kmsg, generation: again },
        }
    }

    pub fn next(&self) -> LogEpoch {
        LogEpoch { generation: self.generation.saturating_add(1), ..self.clone() }
    }
}

impl fmt::Display for LogEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.boot_id)?;
        if self.medium == Medium::Journal {
            f.write_str(JOURNAL_SUFFIX)?;
        }
        if self.generation > 0 {
            write!(f, "+{}", self.generation)?;
        }
        Ok(())
    }
}

/// Where a session starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartPosition {
    /// At the oldest record: the store has none of them.
    Oldest(LogEpoch),
    /// After this cursor.
    Resume(LogEpoch, Cursor),
    /// At the newest record: older ones were read from another medium, whose numbers are not
    /// comparable, and would be counted twice.
    Now(LogEpoch),
}

impl StartPosition {
    pub fn new(boot_id: &str, medium: Medium, stored: Option<&Cursor>) -> StartPosition {
        let Some(cursor) = stored else {
            return StartPosition::Oldest(LogEpoch::new(boot_id, medium));
        };
        let was = LogEpoch::parse(&cursor.boot_id);
        if was.boot_id != boot_id {
            StartPosition::Oldest(LogEpoch::new(boot_id, medium))
        } else if was.medium == medium {
            StartPosition::Resume(was, cursor.clone())
        } else {
            // A new number even after a return to a former medium, so that no epoch is reused.
            StartPosition::Now(LogEpoch { medium, ..was.next() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(boot_id: &str) -> Cursor {
        Cursor { boot_id: boot_id.to_owned(), counted_to: Some(9), reread_from: 8, lost: 1 }
    }

    #[test]
    fn an_epoch_parses_back_from_its_text() {
        for text in [
            "bc410abf-5868",
            "bc410abf-5868/journal",
            "bc410abf-5868+2",
            "bc410abf-5868/journal+17",
            "",
            "a+b",
        ] {
            assert_eq!(LogEpoch::parse(text).to_string(), text);
        }
    }

    #[test]
    fn reading_resumes_only_from_a_cursor_of_the_same_boot_and_medium() {
        assert_eq!(
            StartPosition::new("b", Medium::Kmsg, None),
            StartPosition::Oldest(LogEpoch::new("b", Medium::Kmsg))
        );
        assert_eq!(
            StartPosition::new("b", Medium::Kmsg, Some(&cursor("a"))),
            StartPosition::Oldest(LogEpoch::new("b", Medium::Kmsg))
        );
        assert_eq!(
            StartPosition::new("b", Medium::Kmsg, Some(&cursor("b+3"))),
            StartPosition::Resume(LogEpoch::parse("b+3"), cursor("b+3"))
        );
        assert_eq!(
            StartPosition::new("b", Medium::Journal, Some(&cursor("b"))),
            StartPosition::Now(LogEpoch::parse("b/journal+1"))
        );
        assert_eq!(
            StartPosition::new("b", Medium::Kmsg, Some(&cursor("b/journal+1"))),
            StartPosition::Now(LogEpoch::parse("b+2"))
        );
    }
}
