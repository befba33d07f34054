//! The rule table: every kernel message about a drive or a filesystem. A row is one form of a
//! message, by its pattern from the record's first byte; a message whose form changed has several
//! rows.
//!
//! To add a rule: a row in the file of its subsystem, and a line in that subsystem's test in
//! `src/kernel_log/tests/`. If several rows match a record, the first in the table that can
//! parse it is used.

mod ata;
mod bcache;
mod block;
mod btrfs;
pub(super) mod derived;
mod dm;
mod ext4;
mod hba;
mod ide;
mod md;
mod mmc;
mod name_assignment;
mod nvme;
mod other;
mod pcie;
mod raid_adapter;
mod remote;
mod scsi;
mod usb;
mod xfs;
mod zfs;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::LazyLock;

use crate::parsed_record::ParsedRecord;
use crate::pattern::{Captures, Pattern, PatternError};
use crate::rule::{Rule, RuleAction};

const TABLES: [&[Rule]; 20] = [
    name_assignment::RULES,
    scsi::RULES,
    ata::RULES,
    ide::RULES,
    nvme::RULES,
    block::RULES,
    hba::RULES,
    raid_adapter::RULES,
    remote::RULES,
    usb::RULES,
    mmc::RULES,
    md::RULES,
    dm::RULES,
    bcache::RULES,
    ext4::RULES,
    xfs::RULES,
    btrfs::RULES,
    zfs::RULES,
    pcie::RULES,
    other::RULES,
];

pub struct RuleTable {
    rows: Vec<Row>,
    /// The prefixes of the families, each once.
    prefixes: Vec<Pattern>,
    /// For each first byte of a record, the rows that can match it, in the order of the table.
    by_first_byte: Vec<Vec<u16>>,
    by_name: HashMap<&'static str, &'static Rule>,
}

struct Row {
    rule: &'static Rule,
    /// Place in `prefixes`.
    prefix: usize,
    pattern: Pattern,
}

static TABLE: LazyLock<RuleTable> = LazyLock::new(|| {
    // No pattern is refused: a test builds the table.
    RuleTable::new(&TABLES).unwrap_or_else(|_| RuleTable::empty())
});

pub fn table() -> &'static RuleTable {
    &TABLE
}

/// Whether a record has a family's prefix, as far as it is known.
#[derive(Clone, Copy)]
enum PrefixMatch {
    Unknown,
    No,
    /// The prefix ends at this byte.
    To(usize),
}

impl RuleTable {
    fn empty() -> RuleTable {
        RuleTable {
            rows: Vec::new(),
            prefixes: Vec::new(),
            by_first_byte: vec![Vec::new(); 256],
            by_name: HashMap::new(),
        }
    }

    fn new(tables: &[&'static [Rule]]) -> Result<RuleTable, PatternError> {
        let mut table = RuleTable::empty();
        let mut places = HashMap::new();
        for rule in tables.iter().copied().flatten() {
            let place = match places.entry(rule.family.prefix) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    table.prefixes.push(Pattern::parse(rule.family.prefix)?);
                    *new.insert(table.prefixes.len() - 1)
                }
            };
            let row = Row { rule, prefix: place, pattern: Pattern::parse(rule.pattern)? };
            let start = match rule.family.prefix.is_empty() {
                true => &row.pattern,
                false => &table.prefixes[place],
            };
            if start.is_empty() && row.pattern.is_empty() {
                return Err(PatternError::Unanchored(rule.name));
            }
            for byte in 0..=u8::MAX {
                if start.can_begin_with(byte) {
                    table.by_first_byte[usize::from(byte)].push(table.rows.len() as u16);
                }
            }
            table.by_name.insert(rule.name, rule);
            table.rows.push(row);
        }
        for rule in derived::RULES {
            table.by_name.insert(rule.name, rule);
        }
        Ok(table)
    }

    /// The row, or the derived rule, with this name.
    pub fn find(&self, name: &str) -> Option<&'static Rule> {
        self.by_name.get(name).copied()
    }

    /// Whether a row can parse the text.
    pub fn knows(&self, text: &str) -> bool {
        self.parse(text).is_some()
    }

    /// Parses the text with the first row that can parse it.
    pub(crate) fn parse(&self, text: &str) -> Option<(&'static Rule, ParsedRecord)> {
        let text = text.trim_start();
        let rows = &self.by_first_byte[usize::from(text.bytes().next()?)];
        let mut prefixes = vec![PrefixMatch::Unknown; self.prefixes.len()];
        let (mut head, mut body) = (Captures::of_record(text), Captures::of_record(text));
        for row in rows.iter().map(|at| &self.rows[usize::from(*at)]) {
            let prefix = &self.prefixes[row.prefix];
            if let PrefixMatch::Unknown = prefixes[row.prefix] {
                head.clear();
                prefixes[row.prefix] = match prefix.find(text, &mut head) {
                    Some(rest) => PrefixMatch::To(text.len() - rest.len()),
                    None => PrefixMatch::No,
                };
            }
            let PrefixMatch::To(end) = prefixes[row.prefix] else {
                continue;
            };
            body.clear();
            let Some(after) = row.pattern.find(&text[end..], &mut body) else {
                continue;
            };
            if matches!(row.rule.action, RuleAction::Ignore) {
                return None;
            }
            head.clear();
            prefix.find(text, &mut head)?;
            if let Some(parsed) = row.rule.parse(&head, &body, after) {
                return (!is_logged_packet(text) && !has_program_tag(text))
                    .then_some((row.rule, parsed));
            }
        }
        None
    }
}

/// A packet that netfilter logs. A rule's author chooses what precedes it, also at the record's
/// start (net/netfilter/nf_log_syslog.c nf_log_dump_packet_common(), NF_LOG_PREFIXLEN).
fn is_logged_packet(text: &str) -> bool {
    text.find("IN=").is_some_and(|at| at < 128 && text[at..].contains(" OUT="))
}

/// `systemd[1]: …`: written by a program, or about one.
fn has_program_tag(text: &str) -> bool {
    text.split_once("]: ").and_then(|(tag, _)| tag.split_once('[')).is_some_and(|(name, pid)| {
        !name.contains([' ', ':']) && !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_anchored_and_rule_names_are_unique() {
        let table = RuleTable::new(&TABLES).expect("each pattern is anchored");
        for rule in TABLES.into_iter().flatten() {
            assert!(
                rule.kernel_source.contains('.') && rule.kernel_source.contains(' '),
                "{}: where does the kernel print it?",
                rule.name
            );
        }
        for rule in TABLES.into_iter().flatten().chain(derived::RULES) {
            let found = table.find(rule.name).expect("every rule has its name");
            assert!(std::ptr::eq(found, rule), "{}: two rules of this name", rule.name);
        }
    }

    #[test]
    fn an_unanchored_row_is_refused() {
        use crate::rule::{DRIVE, RuleFamily};
        const fn row(family: RuleFamily, pattern: &'static str) -> [Rule; 1] {
            [family.rule("x", pattern, RuleAction::Continuation, "")]
        }
        static EMPTY: [Rule; 1] = row(DRIVE, "");
        static COMM: [Rule; 1] = row(DRIVE, "<comm>: error");
        static OPTIONAL: [Rule; 1] = row(DRIVE, "{sd }<blanks>");
        for rules in [&EMPTY, &COMM, &OPTIONAL] {
            assert!(RuleTable::new(&[rules]).is_err(), "{:?}", rules[0].pattern);
        }
    }
}
