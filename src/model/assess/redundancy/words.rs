//! An array that lacks something, in words: one text for every place that shows it.
//!
//! In: what it lacks. Out: the message and the advice of its finding.

use crate::assess::text::{join_limited, wait_until_ended};
use crate::stack::{Left, Shortfall};
use diskvitals_finding::reason::NO_REDUNDANCY;

pub(super) struct Words<'a> {
    pub shortfall: &'a Shortfall,
    /// Drives of which none may fail.
    pub holders: Vec<String>,
    /// Drives that are to be filled.
    pub filling: Vec<String>,
    /// `sda (PendingSectors)`: of the holders, those with findings that endanger data.
    pub failing: Vec<String>,
    /// Of the holders, those of unknown health.
    pub unknown: Vec<String>,
}

impl Words<'_> {
    pub(super) fn message(&self) -> String {
        let name = format!("{} ({})", self.shortfall.name, self.shortfall.level);
        let count = format!(
            "runs with {} of {} {}",
            self.shortfall.have, self.shortfall.all, self.shortfall.unit
        );
        let holders = join_limited(&self.holders);
        let part = if self.shortfall.is_part { "a part of " } else { "" };
        let mut message = match self.shortfall.left {
            Left::Stopped => {
                format!("{name} does not run: its state is `{}`", self.shortfall.state)
            }
            Left::TooFew => format!("{name} {count}: too few to carry its data"),
            Left::None if self.shortfall.waits_for_parity => format!(
                "{NO_REDUNDANCY}: the parity of {name} has to be computed, after a crash or its creation"
            ),
            Left::None if !self.shortfall.lacking.is_empty() && self.shortfall.is_parity => {
                format!(
                    "{NO_REDUNDANCY}: some ranges of {name} need every one of {holders}; {}; it {count}",
                    join_limited(&self.shortfall.lacking)
                )
            }
            Left::None if !self.shortfall.lacking.is_empty() => format!(
                "{NO_REDUNDANCY}: the only copy of some ranges of {name} is on {holders}; {}; it {count}",
                join_limited(&self.shortfall.lacking)
            ),
            Left::None if self.holders.is_empty() => {
                format!("{NO_REDUNDANCY}: {name} {count}")
            }
            Left::None if self.shortfall.is_parity => {
                format!("{NO_REDUNDANCY}: {name} needs every one of {holders}; it {count}")
            }
            Left::None => {
                format!(
                    "{NO_REDUNDANCY}: the only copy of {part}{name} is on {holders}; it {count}"
                )
            }
            Left::Some(1) => {
                format!("{name} {count}: it survives the failure of one more {}", self.one())
            }
            Left::Some(more) => {
                format!(
                    "{name} {count}: it survives the failure of {more} more {}",
                    self.shortfall.unit
                )
            }
        };
        if let Left::Some(_) = self.shortfall.left
            && !self.shortfall.lacking.is_empty()
        {
            message.push_str(&format!("; {}", join_limited(&self.shortfall.lacking)));
        }
        if !self.shortfall.action.is_empty() {
            message.push_str(&format!("; {}", self.shortfall.action));
            if self.shortfall.is_rebuilding && !self.filling.is_empty() {
                message.push_str(&format!(" onto {}", join_limited(&self.filling)));
            }
            message.push_str(&self.shortfall.progress);
        }
        let mut list = |what: &str, names: &[String]| {
            if !names.is_empty() {
                message.push_str(&format!("; {what}: {}", join_limited(names)));
            }
        };
        list("missing", &self.shortfall.missing);
        list("faulty", &self.shortfall.faulty);
        list("present, without what was written meanwhile", &self.shortfall.not_current);
        if self.shortfall.left == Left::None {
            list("of unknown health", &self.unknown);
        }
        message
    }

    pub(super) fn advice(&self) -> String {
        let name = &self.shortfall.name;
        match self.shortfall.left {
            Left::Stopped | Left::TooFew => format!(
                "Do not create {name} again and do not format it. Find out why its members are missing (power, cables, adapter), bring them back, and start it again."
            ),
            Left::None => {
                let failing = join_limited(&self.failing);
                let back_up = match self.shortfall.is_parity || self.holders.is_empty() {
                    true => format!("Back up {name} now: it cannot lose {failing}"),
                    false => format!("Back up {name} now: its only copy is on {failing}"),
                };
                match (self.runs_by_itself(), self.failing.is_empty()) {
                    (Some(wait), true) => wait,
                    (Some(wait), false) => format!("{back_up}. {wait}"),
                    (None, false) => format!(
                        "{back_up}, and a rebuild reads all of it. Then: {}",
                        lower_first(&self.shortfall.repair)
                    ),
                    (None, true) => self.shortfall.repair.clone(),
                }
            }
            Left::Some(_) => match self.runs_by_itself() {
                Some(wait) => wait,
                None => self.shortfall.repair.clone(),
            },
        }
    }

    /// What ends without help.
    fn runs_by_itself(&self) -> Option<String> {
        let what = match self.shortfall.is_rebuilding {
            true => format!("{} is being rebuilt", self.shortfall.name),
            false if self.shortfall.waits_for_parity && !self.shortfall.action.is_empty() => {
                format!("The parity of {} is being computed", self.shortfall.name)
            }
            false => return None,
        };
        Some(wait_until_ended(&what))
    }

    fn one(&self) -> &'static str {
        match self.shortfall.unit {
            "legs" => "leg",
            _ => "device",
        }
    }

    /// None: what holds for every array.
    pub(super) fn clears(&self) -> Option<String> {
        let Shortfall { name, all, slots, .. } = self.shortfall;
        if let Some(clears) = self.shortfall.clears {
            return Some(clears.to_owned());
        }
        let is_one_short = self.shortfall.have + 1 == *all && self.shortfall.lacking.is_empty();
        match self.shortfall.left {
            _ if *all == 0 => None,
            Left::Stopped | Left::TooFew => {
                Some(format!("{name} runs, with all {all} {slots} present and in sync"))
            }
            Left::None if self.shortfall.waits_for_parity => {
                Some(format!("the parity of {name} is in sync"))
            }
            Left::None if !is_one_short => None,
            Left::Some(_) if !self.shortfall.lacking.is_empty() => None,
            Left::None | Left::Some(_) => {
                Some(format!("all {all} {slots} of {name} are present and in sync"))
            }
        }
    }
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}
