//! `Observation`: a value that a source has, does not have, or failed to read. Unknown is a
//! separate state.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The result of a source. `Unavailable`: the source does not apply here or has not reported yet;
/// rules skip it. `Failed`: the source applies and failed; the value is unknown, never healthy and
/// never empty, and clears no finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation<T> {
    Unavailable,
    Failed { at: Timestamp, error: String },
    Ok { at: Timestamp, value: T },
}

// Not derived: a derive would require `T: Default`.
#[allow(clippy::derivable_impls)]
impl<T> Default for Observation<T> {
    fn default() -> Self {
        Observation::Unavailable
    }
}

impl<T> Observation<T> {
    pub fn ok(at: Timestamp, value: T) -> Self {
        Observation::Ok { at, value }
    }

    pub fn failed(at: Timestamp, error: impl std::fmt::Display) -> Self {
        Observation::Failed { at, error: error.to_string() }
    }

    pub fn from_result<E: std::fmt::Display>(at: Timestamp, result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Observation::ok(at, value),
            Err(error) => Observation::failed(at, error),
        }
    }

    pub fn value(&self) -> Option<&T> {
        match self {
            Observation::Ok { value, .. } => Some(value),
            _ => None,
        }
    }

    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Observation<U> {
        match self {
            Observation::Unavailable => Observation::Unavailable,
            Observation::Failed { at, error } => Observation::Failed { at, error },
            Observation::Ok { at, value } => Observation::Ok { at, value: change(value) },
        }
    }

    pub fn error(&self) -> Option<&str> {
        match self {
            Observation::Failed { error, .. } => Some(error),
            _ => None,
        }
    }

    pub fn at(&self) -> Option<Timestamp> {
        match self {
            Observation::Ok { at, .. } | Observation::Failed { at, .. } => Some(*at),
            Observation::Unavailable => None,
        }
    }
}
