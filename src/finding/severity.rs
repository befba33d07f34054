//! How grave a finding is, for people.

use serde::{Deserialize, Serialize};

/// The severity for people. Ordered: the later the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Info,
    Suspect,
    Bad,
}
