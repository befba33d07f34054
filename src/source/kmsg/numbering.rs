//! What a sequence number of a record means: it holds for one boot, one reader of the log, and as
//! long as numbers grow.
//!
//! In: the boot id, and the cursor that was stored. Out: from where to read, and the name of the
//! numbering for `Cursor::boot_id`.

use std::fmt;

use crate::model::kernel::event::Cursor;

/// Whose numbers they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The kernel's.
    Kmsg,
    /// The journal's, shared by all that is logged.
    Journal,
}

/// Written as `BOOT-ID`, `BOOT-ID/journal`, and `…+N` for the N-th time that the numbers of a boot
/// began anew. Equal names: comparable numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbering {
    pub boot_id: String,
    pub medium: Medium,
    pub again: u32,
}

const JOURNAL: &str = "/journal";

impl Numbering {
    pub fn new(boot_id: &str, medium: Medium) -> Numbering {
        Numbering {
            boot_id: boot_id.to_owned(),
            medium,
            again: 0,
        }
    }

    pub fn parse(text: &str) -> Numbering {
        let (text, again) = match text
            .rsplit_once('+')
            .map(|(text, again)| (text, again.parse()))
        {
            Some((text, Ok(again))) => (text, again),
            _ => (text, 0),
        };
        match text.strip_suffix(JOURNAL) {
            Some(boot_id) => Numbering {
                boot_id: boot_id.to_owned(),
                medium: Medium::Journal,
                again,
            },
            None => Numbering {
                boot_id: text.to_owned(),
                medium: Medium::Kmsg,
                again,
            },
        }
    }

    pub fn next(&self) -> Numbering {
        Numbering {
            again: self.again.saturating_add(1),
            ..self.clone()
        }
    }
}

impl fmt::Display for Numbering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.boot_id)?;
        if self.medium == Medium::Journal {
            f.write_str(JOURNAL)?;
        }
        if self.again > 0 {
            write!(f, "+{}", self.again)?;
        }
        Ok(())
    }
}

/// How to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing is known of these records.
    Oldest(Numbering),
    /// After this.
    Resume(Numbering, Cursor),
    /// The older ones were read from another medium, and no number says which; told again, they
    /// would be counted twice.
    Now(Numbering),
}

impl Start {
    pub fn new(boot_id: &str, medium: Medium, stored: Option<&Cursor>) -> Start {
        let Some(cursor) = stored else {
            return Start::Oldest(Numbering::new(boot_id, medium));
        };
        let was = Numbering::parse(&cursor.boot_id);
        if was.boot_id != boot_id {
            Start::Oldest(Numbering::new(boot_id, medium))
        } else if was.medium == medium {
            Start::Resume(was, cursor.clone())
        } else {
            // A number that was not used before: there and back again is not the first time.
            Start::Now(Numbering {
                medium,
                ..was.next()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(boot_id: &str) -> Cursor {
        Cursor {
            boot_id: boot_id.to_owned(),
            counted_to: Some(9),
            reread_from: 8,
            lost: 1,
        }
    }

    #[test]
    fn a_numbering_reads_back_as_itself() {
        for text in [
            "bc410abf-5868",
            "bc410abf-5868/journal",
            "bc410abf-5868+2",
            "bc410abf-5868/journal+17",
            "",
            "a+b",
        ] {
            assert_eq!(Numbering::parse(text).to_string(), text);
        }
    }

    #[test]
    fn only_a_cursor_of_the_same_boot_and_medium_says_where_to_go_on() {
        assert_eq!(
            Start::new("b", Medium::Kmsg, None),
            Start::Oldest(Numbering::new("b", Medium::Kmsg))
        );
        assert_eq!(
            Start::new("b", Medium::Kmsg, Some(&cursor("a"))),
            Start::Oldest(Numbering::new("b", Medium::Kmsg))
        );
        assert_eq!(
            Start::new("b", Medium::Kmsg, Some(&cursor("b+3"))),
            Start::Resume(Numbering::parse("b+3"), cursor("b+3"))
        );
        assert_eq!(
            Start::new("b", Medium::Journal, Some(&cursor("b"))),
            Start::Now(Numbering::parse("b/journal+1"))
        );
        assert_eq!(
            Start::new("b", Medium::Kmsg, Some(&cursor("b/journal+1"))),
            Start::Now(Numbering::parse("b+2"))
        );
    }
}
