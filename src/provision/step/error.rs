//! The error of a step, as the engine receives it from the worker.

use serde::{Deserialize, Serialize};

/// The reason why a step failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct StepError {
    pub kind: StepErrorKind,
    /// The operation, its object, and the causes.
    pub message: String,
}

impl StepError {
    pub fn new(kind: StepErrorKind, message: impl Into<String>) -> StepError {
        StepError { kind, message: message.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepErrorKind {
    /// The path leads outside its root, contains a link, or names the wrong type of file.
    InvalidPath,
    NotFound,
    /// Another object exists at the path.
    AlreadyExists,
    /// The object is in use: the message names the users, as far as they are known.
    InUse,
    /// Only a step of ours has the object open, whose daemon was killed: it ends soon.
    Interrupted,
    /// Not enough space.
    NoSpace,
    /// The kernel does not support the operation, or a tool is missing.
    Unsupported,
    /// The device has content that is not ours.
    ForeignData,
    /// Anything else that failed.
    Other,
    /// The step has not finished in its time; its outcome is unknown.
    Stuck,
}

impl StepErrorKind {
    /// For `Format`: mkfs was not started. Errors of mkfs itself are `Other` or `Stuck`.
    pub fn is_refusal(self) -> bool {
        !matches!(self, StepErrorKind::Other | StepErrorKind::Stuck)
    }
}
