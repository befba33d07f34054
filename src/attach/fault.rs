//! Why a wish was not fulfilled. The wire's codes are made of it in `api::status`; nothing here
//! knows of gRPC.

use crate::attach::step::{StepError, Trouble};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The caller's mistake in one field.
    #[error("{field}: {problem}")]
    Invalid {
        field: &'static str,
        problem: String,
    },
    #[error("{0}")]
    NotFound(String),
    /// The same name or path, with other arguments.
    #[error("{0}")]
    Exists(String),
    /// It cannot be done as things are: says what must be otherwise, or who holds it.
    #[error("{0}")]
    Precondition(String),
    /// Somebody uses it: says who. Nothing was done.
    #[error("{0}")]
    Held(String),
    /// A step has not come back: nobody knows whether it will be done.
    #[error("{0}")]
    Stuck(String),
    #[error("{0}")]
    OutOfRange(String),
    /// The pool is full.
    #[error("{0}")]
    Exhausted(String),
    /// Another operation on the same volume is under way.
    #[error("{0}")]
    Aborted(String),
    /// Not now: the daemon has not looked around yet, or something does not answer.
    #[error("{0}")]
    Unavailable(String),
    /// It goes on, the caller's time is over.
    #[error("{0}")]
    Deadline(String),
    #[error("{operation}")]
    Failed {
        operation: String,
        #[source]
        source: StepError,
    },
}

impl Fault {
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> Fault {
        Fault::Invalid {
            field,
            problem: problem.into(),
        }
    }

    /// What a step's failure is to the caller. `field` is the request's field that held the path of
    /// the step, if one did.
    pub fn of_step(operation: &str, field: Option<&'static str>, error: StepError) -> Fault {
        let told = || format!("{operation}: {}", error.message);
        match (error.kind, field) {
            (Trouble::Path, Some(field)) => Fault::Invalid {
                field,
                problem: error.message,
            },
            (Trouble::Held, _) => Fault::Held(told()),
            (Trouble::Stuck, _) => Fault::Stuck(told()),
            (Trouble::Foreign | Trouble::Unsupported, _) => Fault::Precondition(told()),
            (Trouble::Exists, _) => Fault::Exists(told()),
            (Trouble::Full, _) => Fault::Exhausted(told()),
            // A drive that was pulled out may come back; a volume that is not there at all is
            // refused before any step.
            (Trouble::NotFound, _) => Fault::Unavailable(told()),
            (Trouble::Path | Trouble::Failed, _) => Fault::Failed {
                operation: operation.into(),
                source: error,
            },
        }
    }
}
