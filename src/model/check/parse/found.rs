//! What was found so far: distinct flaws, worst first, bounded; the rest counted.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use crate::model::check::parse::{LONGEST_TEXT, MOST_FLAWS, Parsed, shape};
use crate::model::check::{Flaw, Weight};

/// So many flaws are told apart; beyond that each line counts.
const MOST_DISTINCT: usize = 100_000;

#[derive(Debug, Default)]
pub struct Found {
    /// Sorted by weight, worst first; among equals as they came.
    flaws: Vec<Flaw>,
    more: u64,
    seen: HashSet<u64>,
    /// The last one, to which indented lines may still belong.
    open: Option<Flaw>,
    pub phase: Option<String>,
    pub pending_replay: Option<String>,
    pub failure: Option<String>,
    pub complete: bool,
}

impl Found {
    /// A flaw of which more lines may follow.
    pub fn begin(&mut self, kind: impl Into<String>, ids: Vec<String>, weight: Weight, text: &str) {
        self.close();
        self.open = Some(Flaw {
            kind: kind.into(),
            ids,
            weight,
            text: shape::cut(text.trim(), LONGEST_TEXT).to_owned(),
        });
    }

    /// One more line of the flaw that is open. False: there is none.
    pub fn go_on(&mut self, text: &str) -> bool {
        let Some(flaw) = &mut self.open else {
            return false;
        };
        let whole = format!("{} {}", flaw.text, text.trim());
        flaw.text = shape::cut(&whole, LONGEST_TEXT).to_owned();
        true
    }

    pub fn close(&mut self) {
        if let Some(flaw) = self.open.take() {
            self.add(flaw);
        }
    }

    pub fn add(&mut self, flaw: Flaw) {
        if self.seen.len() < MOST_DISTINCT {
            let mut hasher = DefaultHasher::new();
            (&flaw.kind, &flaw.ids).hash(&mut hasher);
            if !self.seen.insert(hasher.finish()) {
                return;
            }
        }
        let place = self
            .flaws
            .partition_point(|kept| kept.weight >= flaw.weight);
        if place < MOST_FLAWS {
            self.flaws.insert(place, flaw);
        } else {
            self.more = self.more.saturating_add(1);
        }
        if self.flaws.len() > MOST_FLAWS {
            self.flaws.truncate(MOST_FLAWS);
            self.more = self.more.saturating_add(1);
        }
    }

    /// All that another has gathered, with a weight that is known only now.
    pub fn take(&mut self, other: Found, weight: Weight) {
        for flaw in other.flaws {
            self.add(Flaw { weight, ..flaw });
        }
        self.more = self.more.saturating_add(other.more);
    }

    pub fn fail(&mut self, words: &str) {
        self.close();
        self.failure
            .get_or_insert_with(|| shape::cut(words.trim(), LONGEST_TEXT).to_owned());
    }

    pub fn replay(&mut self, words: &str) {
        self.close();
        self.pending_replay
            .get_or_insert_with(|| shape::cut(words.trim(), LONGEST_TEXT).to_owned());
    }

    pub fn phase(&mut self, words: &str) {
        self.close();
        self.phase = Some(shape::cut(words.trim(), LONGEST_TEXT).to_owned());
    }

    pub fn has(&self, kinds: &[&str]) -> bool {
        self.flaws
            .iter()
            .any(|flaw| kinds.contains(&flaw.kind.as_str()))
    }

    pub fn any_above(&self, weight: Weight) -> bool {
        self.flaws
            .first()
            .is_some_and(|worst| worst.weight > weight)
    }

    pub fn parsed(self) -> Parsed {
        Parsed {
            flaws: self.flaws,
            more_flaws: self.more,
            pending_replay: self.pending_replay,
            failure: self.failure,
            complete: self.complete,
        }
    }
}
