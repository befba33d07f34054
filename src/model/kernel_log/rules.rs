//! The rule table: every kernel message about a drive or a filesystem. A row is one form of a
//! message; a message whose form changed has several rows.
//!
//! To add a rule: a row in the file of its subsystem, and a line in that subsystem's test in
//! `src/model/kernel_log/tests/`. If several rows match a record, the first in the table that can
//! parse it is used.

mod ata;
mod bcache;
mod block;
mod btrfs;
pub(super) mod derived;
mod dm;
mod ext4;
mod hba;
mod md;
mod mmc;
mod name_assignment;
mod nvme;
mod other;
mod scsi;
mod usb;
mod xfs;

use std::collections::HashMap;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use crate::model::kernel_log::parsed_record::ParsedRecord;
use crate::model::kernel_log::rule::{Rule, RuleAction};

const TABLES: [&[Rule]; 15] = [
    name_assignment::RULES,
    scsi::RULES,
    ata::RULES,
    nvme::RULES,
    block::RULES,
    hba::RULES,
    usb::RULES,
    mmc::RULES,
    md::RULES,
    dm::RULES,
    bcache::RULES,
    ext4::RULES,
    xfs::RULES,
    btrfs::RULES,
    other::RULES,
];

pub(super) struct RuleTable {
    rules: Vec<&'static Rule>,
    /// One pass over the text finds all needles. Never None: a test builds it.
    needles: Option<AhoCorasick>,
    by_name: HashMap<&'static str, &'static Rule>,
}

static TABLE: LazyLock<RuleTable> = LazyLock::new(|| {
    let rules: Vec<&'static Rule> = TABLES.iter().flat_map(|rules| rules.iter()).collect();
    let needles = AhoCorasick::builder()
        .kind(Some(aho_corasick::AhoCorasickKind::DFA))
        .build(rules.iter().map(|rule| rule.needle))
        .ok();
    let by_name = rules
        .iter()
        .chain(&derived::RULES)
        .map(|rule| (rule.name, *rule))
        .collect();
    RuleTable {
        rules,
        needles,
        by_name,
    }
});

pub(super) fn table() -> &'static RuleTable {
    &TABLE
}

impl RuleTable {
    /// The row, or the derived rule, with this name.
    pub(crate) fn find(&self, name: &str) -> Option<&'static Rule> {
        self.by_name.get(name).copied()
    }

    /// Parses the text with the first row that can parse it.
    pub(crate) fn parse(&self, text: &str) -> Option<(&'static Rule, ParsedRecord)> {
        let needles = self.needles.as_ref()?;
        // Most records match nothing.
        let mut found = needles
            .find_overlapping_iter(text)
            .map(|hit| (hit.pattern().as_usize(), hit.start()))
            .peekable();
        found.peek()?;
        let mut hits: Vec<(usize, usize)> = found.take(64).collect();
        hits.sort_unstable();
        hits.dedup_by_key(|(rule, _)| *rule);
        let start = text.trim_start();
        for (at, position) in hits {
            let Some(rule) = self.rules.get(at) else {
                continue;
            };
            if !start.starts_with(rule.family.prefix) {
                continue;
            }
            if matches!(rule.action, RuleAction::Ignore) {
                return None;
            }
            if let Some(parsed) = rule.parse(text, position) {
                return Some((rule, parsed));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_builds_and_rule_names_are_unique() {
        assert!(table().needles.is_some());
        for rule in table().rules.iter().chain(&derived::RULES) {
            let found = table().find(rule.name).expect("every rule has its name");
            assert!(
                std::ptr::eq(found, *rule),
                "{}: two rules of this name",
                rule.name
            );
        }
        for rule in &table().rules {
            assert!(
                rule.needle.len() >= 4,
                "{}: the needle is found everywhere",
                rule.name
            );
            assert!(
                rule.kernel_source.contains('.') && rule.kernel_source.contains(' '),
                "{}: where does the kernel print it?",
                rule.name
            );
        }
    }
}
