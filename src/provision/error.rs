//! The error of a request to the engine. `api::status` maps it to gRPC codes; this module does not
//! depend on gRPC.

use crate::step::{StepError, StepErrorKind};
use diskvitals_text::echo::echo;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvisionError {
    /// One field of the request is invalid.
    #[error("{field}: {problem}")]
    InvalidArgument { field: &'static str, problem: String },
    #[error("{0}")]
    NotFound(String),
    /// A volume with the same name or path exists with other arguments.
    #[error("{0}")]
    AlreadyExists(String),
    /// The current state forbids the operation: the text names what must change, or the user.
    #[error("{0}")]
    FailedPrecondition(String),
    /// A process uses the volume: the text names the process. Nothing was done.
    #[error("{0}")]
    InUse(String),
    /// Only a step of a daemon that was killed has it open: it ends soon.
    #[error("{0}; it is a step of a daemon that has ended: try again")]
    Interrupted(String),
    /// A step has not returned: its outcome is unknown.
    #[error("{0}")]
    Stuck(String),
    #[error("{0}")]
    OutOfRange(String),
    /// The pool is full.
    #[error("{0}")]
    ResourceExhausted(String),
    /// Another operation on the same volume is under way.
    #[error("{0}")]
    Aborted(String),
    /// Temporary: the daemon has not read its records yet, or a component does not respond.
    #[error("{0}")]
    Unavailable(String),
    /// The caller's time limit is over; the operation continues.
    #[error("{0}")]
    DeadlineExceeded(String),
    #[error("{operation}")]
    Failed {
        operation: String,
        #[source]
        source: StepError,
    },
}

impl ProvisionError {
    /// `handle` is any text that a caller sent: the message repeats it without control characters.
    pub fn volume_not_found(handle: &str) -> ProvisionError {
        ProvisionError::NotFound(format!("no volume here has the handle `{}`", echo(handle)))
    }

    pub fn invalid_argument(field: &'static str, problem: impl Into<String>) -> ProvisionError {
        ProvisionError::InvalidArgument { field, problem: problem.into() }
    }

    /// The caller's error for a failed step. `field` is the request's field that held the path of
    /// the step, if one did.
    pub(crate) fn from_step(
        operation: &str,
        field: Option<&'static str>,
        error: StepError,
    ) -> ProvisionError {
        let message = || format!("{operation}: {}", error.message);
        match (error.kind, field) {
            (StepErrorKind::InvalidPath, Some(field)) => {
                ProvisionError::InvalidArgument { field, problem: error.message }
            }
            (StepErrorKind::InUse, _) => ProvisionError::InUse(message()),
            (StepErrorKind::Interrupted, _) => ProvisionError::Interrupted(message()),
            (StepErrorKind::Stuck, _) => ProvisionError::Stuck(message()),
            (StepErrorKind::ForeignData | StepErrorKind::Unsupported, _) => {
                ProvisionError::FailedPrecondition(message())
            }
            (StepErrorKind::AlreadyExists, _) => ProvisionError::AlreadyExists(message()),
            (StepErrorKind::NoSpace, _) => ProvisionError::ResourceExhausted(message()),
            // A removed drive may come back. A volume that does not exist is refused before any
            // step.
            (StepErrorKind::NotFound, _) => ProvisionError::Unavailable(message()),
            (StepErrorKind::InvalidPath | StepErrorKind::Other, _) => {
                ProvisionError::Failed { operation: operation.into(), source: error }
            }
        }
    }
}
