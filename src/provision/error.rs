//! Why a request was not fulfilled. The wire's codes are made of it in `api::status`; nothing here
//! knows of gRPC.

use crate::provision::step::{StepError, StepErrorKind};

/// Characters of a caller's text that a message repeats.
const MAX_ECHO_CHARS: usize = 140;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvisionError {
    /// The caller's mistake in one field.
    #[error("{field}: {problem}")]
    InvalidArgument {
        field: &'static str,
        problem: String,
    },
    #[error("{0}")]
    NotFound(String),
    /// The same name or path, with other arguments.
    #[error("{0}")]
    AlreadyExists(String),
    /// It cannot be done as things are: says what must be otherwise, or who holds it.
    #[error("{0}")]
    FailedPrecondition(String),
    /// Somebody uses it: says who. Nothing was done.
    #[error("{0}")]
    InUse(String),
    /// A step has not come back: nobody knows whether it will be done.
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
    /// Not now: the daemon has not looked around yet, or something does not answer.
    #[error("{0}")]
    Unavailable(String),
    /// It goes on, the caller's time is over.
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
        let shown: String = handle
            .chars()
            .take(MAX_ECHO_CHARS)
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        ProvisionError::NotFound(format!("no volume here has the handle `{shown}`"))
    }

    pub fn invalid_argument(field: &'static str, problem: impl Into<String>) -> ProvisionError {
        ProvisionError::InvalidArgument {
            field,
            problem: problem.into(),
        }
    }

    /// What a step's failure is to the caller. `field` is the request's field that held the path of
    /// the step, if one did.
    pub fn from_step(
        operation: &str,
        field: Option<&'static str>,
        error: StepError,
    ) -> ProvisionError {
        let told = || format!("{operation}: {}", error.message);
        match (error.kind, field) {
            (StepErrorKind::InvalidPath, Some(field)) => ProvisionError::InvalidArgument {
                field,
                problem: error.message,
            },
            (StepErrorKind::InUse, _) => ProvisionError::InUse(told()),
            (StepErrorKind::Stuck, _) => ProvisionError::Stuck(told()),
            (StepErrorKind::ForeignData | StepErrorKind::Unsupported, _) => {
                ProvisionError::FailedPrecondition(told())
            }
            (StepErrorKind::AlreadyExists, _) => ProvisionError::AlreadyExists(told()),
            (StepErrorKind::NoSpace, _) => ProvisionError::ResourceExhausted(told()),
            // A drive that was pulled out may come back; a volume that is not there at all is
            // refused before any step.
            (StepErrorKind::NotFound, _) => ProvisionError::Unavailable(told()),
            (StepErrorKind::InvalidPath | StepErrorKind::Other, _) => ProvisionError::Failed {
                operation: operation.into(),
                source: error,
            },
        }
    }
}
