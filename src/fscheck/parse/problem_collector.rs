//! Collects the problems of one run: distinct, worst first, bounded. Further ones are only counted.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use crate::parse::{MAX_PROBLEMS, MAX_TEXT_BYTES, ParsedOutput, line_template};
use crate::{Problem, Weight};

/// Maximum number of distinct problems; beyond it each line counts.
const MAX_DISTINCT: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct ProblemCollector {
    /// Sorted by weight, worst first; problems of equal weight in the order of the output.
    problems: Vec<Problem>,
    omitted: u64,
    seen: HashSet<u64>,
    /// The last problem; indented lines that follow may belong to it.
    open: Option<Problem>,
    pub phase: Option<String>,
    pub pending_replay: Option<String>,
    pub failure: Option<String>,
    pub complete: bool,
    pub only_harmless_errors: bool,
    pub no_error_found: bool,
    crash: Option<String>,
}

impl ProblemCollector {
    /// Begins a problem that may have more lines.
    pub(crate) fn begin_problem(
        &mut self,
        kind: impl Into<String>,
        ids: Vec<String>,
        weight: Weight,
        text: &str,
    ) {
        self.end_problem();
        self.open = Some(Problem::new(kind, ids, weight, text));
    }

    /// Adds a line to the open problem. False: none is open.
    pub(crate) fn continue_problem(&mut self, text: &str) -> bool {
        let Some(problem) = &mut self.open else {
            return false;
        };
        let whole = format!("{} {}", problem.text, text.trim());
        problem.text = line_template::truncate(&whole, MAX_TEXT_BYTES).to_owned();
        true
    }

    pub(crate) fn end_problem(&mut self) {
        if let Some(problem) = self.open.take() {
            self.add(problem);
        }
    }

    pub(crate) fn add(&mut self, problem: Problem) {
        if self.seen.len() < MAX_DISTINCT {
            let mut hasher = DefaultHasher::new();
            (&problem.kind, &problem.ids).hash(&mut hasher);
            if !self.seen.insert(hasher.finish()) {
                return;
            }
        }
        let place = self.problems.partition_point(|kept| kept.weight >= problem.weight);
        if place < MAX_PROBLEMS {
            self.problems.insert(place, problem);
        } else {
            self.omitted = self.omitted.saturating_add(1);
        }
        if self.problems.len() > MAX_PROBLEMS {
            self.problems.truncate(MAX_PROBLEMS);
            self.omitted = self.omitted.saturating_add(1);
        }
    }

    /// Adds all problems of another collector, with a weight that was unknown until now.
    pub(crate) fn merge(&mut self, other: ProblemCollector, weight: Weight) {
        for problem in other.problems {
            self.add(Problem { weight, ..problem });
        }
        self.omitted = self.omitted.saturating_add(other.omitted);
    }

    pub(crate) fn set_failure(&mut self, words: &str) {
        self.end_problem();
        self.failure.get_or_insert_with(|| {
            line_template::truncate(words.trim(), MAX_TEXT_BYTES).to_owned()
        });
    }

    /// The checker crashed: it ends here, whatever it printed before.
    pub(crate) fn set_crash(&mut self, words: &str) {
        self.end_problem();
        self.crash.get_or_insert_with(|| {
            line_template::truncate(words.trim(), MAX_TEXT_BYTES).to_owned()
        });
    }

    pub(crate) fn set_pending_replay(&mut self, words: &str) {
        self.end_problem();
        self.pending_replay.get_or_insert_with(|| {
            line_template::truncate(words.trim(), MAX_TEXT_BYTES).to_owned()
        });
    }

    pub(crate) fn set_phase(&mut self, words: &str) {
        self.end_problem();
        self.phase = Some(line_template::truncate(words.trim(), MAX_TEXT_BYTES).to_owned());
    }

    pub(crate) fn has_kind(&self, kinds: &[&str]) -> bool {
        self.problems.iter().any(|problem| kinds.contains(&problem.kind.as_str()))
    }

    pub(crate) fn has_weight(&self, weights: &[Weight]) -> bool {
        self.problems.iter().any(|problem| weights.contains(&problem.weight))
    }

    pub(crate) fn any_above(&self, weight: Weight) -> bool {
        self.problems.first().is_some_and(|worst| worst.weight > weight)
    }

    pub(crate) fn into_output(self) -> ParsedOutput {
        // A checker that crashed proves nothing, neither by what it printed nor by what it did not.
        if self.crash.is_some() {
            return ParsedOutput {
                failure: self.failure,
                crash: self.crash,
                ..ParsedOutput::default()
            };
        }
        ParsedOutput {
            problems: self.problems,
            more_problems: self.omitted,
            pending_replay: self.pending_replay,
            failure: self.failure,
            complete: self.complete,
            only_harmless_errors: self.only_harmless_errors,
            no_error_found: self.no_error_found,
            crash: None,
        }
    }
}
