//! The format of a figure.

use std::time::Duration;

use crate::calibration;

#[derive(Clone, Copy)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// Which of two values is the better one.
#[derive(Clone, Copy)]
pub enum Better {
    Less,
    More,
}

/// The same quantity of diskvitals and of a peer: another program that was measured in this run.
#[derive(Clone, Copy)]
pub struct Comparison {
    pub peer: &'static str,
    pub what: &'static str,
    pub unit: &'static str,
    pub better: Better,
    pub ours: f64,
    pub theirs: f64,
}

impl Comparison {
    /// How many times as good diskvitals is: above one, it is ahead.
    fn ratio(&self) -> f64 {
        match self.better {
            Better::Less => self.theirs / self.ours,
            Better::More => self.ours / self.theirs,
        }
    }

    fn print(&self, figures: &Figures) -> String {
        let name = format!("{}_{}", self.peer, self.what);
        figures.figure_without_goal(&format!("{name}_ours"), self.ours, self.unit);
        figures.figure_without_goal(&format!("{name}_theirs"), self.theirs, self.unit);
        format!("{name}_ratio")
    }
}

/// Prints each figure as soon as it is measured: the later ones take minutes.
#[derive(Default)]
pub struct Figures {
    missing: Vec<String>,
    short: usize,
}

impl Figures {
    pub fn add(&mut self, name: &str, value: f64, unit: &str, goal: Goal) {
        let (sign, limit, good) = match goal {
            Goal::AtMost(limit) => ("<=", limit, value <= limit),
            Goal::AtLeast(limit) => (">=", limit, value >= limit),
        };
        println!(
            "{name} {} {unit} {sign}{limit} {}",
            digits(value),
            if good { "ok" } else { "SHORT" }
        );
        self.short += usize::from(!good);
    }

    /// Processor time: the goal is that of the machine on which it was set, hence it applies to the value
    /// divided by how slow this machine is now.
    pub fn add_processor(&mut self, name: &str, value: f64, unit: &str, goal: Goal) {
        match calibration::slowness() {
            Ok(slowness) => {
                self.figure_without_goal(&format!("{name}_here"), value, unit);
                self.figure_without_goal(&format!("{name}_slowness"), slowness, "times");
                self.add(name, value / slowness, unit, goal);
            }
            Err(error) => self.not_measured(name, &error),
        }
    }

    /// Prints both values, and how many times as good diskvitals is. The goal is to be ahead.
    pub fn compare(&mut self, comparison: Comparison) {
        self.compare_with_goal(comparison, 1.0);
    }

    /// The same with another goal.
    pub fn compare_with_goal(&mut self, comparison: Comparison, at_least: f64) {
        let name = comparison.print(self);
        self.add(&name, comparison.ratio(), "times", Goal::AtLeast(at_least));
    }

    /// The same where the peer does something else or less, so that being behind is no shortcoming.
    pub fn compare_without_goal(&self, comparison: Comparison) {
        let name = comparison.print(self);
        self.figure_without_goal(&name, comparison.ratio(), "times");
    }

    /// Says what is missing in the output. The run goes on, and fails at its end.
    pub fn not_measured(&mut self, what: &str, error: &anyhow::Error) {
        let line = format!("{what}: {error:#}");
        println!("# NOT MEASURED {line}");
        self.missing.push(line);
    }

    /// The figures that missed their goal.
    pub fn short(&self) -> usize {
        self.short
    }

    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Prints a figure without a goal, or a fact that explains one.
    pub fn remark(&self, text: &str) {
        println!("# {text}");
    }

    pub fn figure_without_goal(&self, name: &str, value: f64, unit: &str) {
        println!("# {name} {} {unit}", digits(value));
    }
}

/// Formats three significant digits.
fn digits(value: f64) -> String {
    match value.abs() {
        big if big >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Durations of one kind of operation.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub fn extend(&mut self, other: Samples) {
        self.0.extend(other.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest sample that `fraction` of all samples do not exceed; zero without samples.
    pub fn quantile(&mut self, fraction: f64) -> Duration {
        self.0.sort_unstable();
        let rank = (self.0.len() as f64 * fraction).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied().unwrap_or_default()
    }

    pub fn max(&mut self) -> Duration {
        self.quantile(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_one_means_that_ours_is_ahead() {
        let latency = Comparison {
            peer: "peer",
            what: "latency",
            unit: "ms",
            better: Better::Less,
            ours: 2.0,
            theirs: 5.0,
        };
        assert_eq!(latency.ratio(), 2.5);
        let rate = Comparison { better: Better::More, ..latency };
        assert_eq!(rate.ratio(), 0.4);
        let mut figures = Figures::default();
        figures.compare(latency);
        assert_eq!(figures.short(), 0);
        figures.compare_without_goal(rate);
        assert_eq!(figures.short(), 0);
        figures.compare(rate);
        assert_eq!(figures.short(), 1);
    }
}
