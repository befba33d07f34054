//! Why a step failed, with its cause, before it crosses the pipe as text.

use std::error::Error;
use std::io;

use nix::errno::Errno;

use crate::attach::step::{StepError, Trouble};
use crate::host::beneath::BeneathError;
use crate::host::mounting::MountError;
use crate::model::causes::with_causes;

#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
pub struct Failure {
    pub kind: Trouble,
    /// The operation and what it was done to; or all there is to say.
    doing: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    pub fn new(kind: Trouble, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            doing: message.into(),
            source: None,
        }
    }

    pub fn because(
        kind: Trouble,
        doing: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Failure {
        Failure {
            kind,
            doing: doing.into(),
            source: Some(Box::new(source)),
        }
    }

    /// The same, for who knows better what it means.
    pub fn of_kind(self, kind: Trouble) -> Failure {
        Failure { kind, ..self }
    }

    /// An error of the operating system: its number tells the kind.
    pub fn io(doing: impl Into<String>, source: impl Into<io::Error>) -> Failure {
        let source = source.into();
        Failure::because(kind(&source), doing, source)
    }
}

impl From<Failure> for StepError {
    fn from(failure: Failure) -> StepError {
        StepError {
            kind: failure.kind,
            message: with_causes(&failure),
        }
    }
}

impl From<BeneathError> for Failure {
    fn from(error: BeneathError) -> Failure {
        let kind = match error {
            _ if error.is_callers() => Trouble::Path,
            _ if error.is_absent() => Trouble::NotFound,
            _ => Trouble::Failed,
        };
        Failure::because(kind, "looking for the path", error)
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Failure {
        let kind = match &error {
            // What a caller asked for is not among what this kernel has.
            MountError::Nul(_) | MountError::Unknown { .. } | MountError::Option { .. } => {
                Trouble::Unsupported
            }
            // ENOENT is its device, EINVAL its content: not the caller's path.
            MountError::Create { source, .. } | MountError::Call { source, .. } => {
                match kind(source) {
                    kind @ (Trouble::Held | Trouble::Full | Trouble::Unsupported) => kind,
                    _ => Trouble::Failed,
                }
            }
        };
        Failure::because(kind, "mounting", error)
    }
}

/// What an error's number says of its kind, in steps that name paths, devices and files.
fn kind(error: &io::Error) -> Trouble {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG) => Trouble::Full,
        Some(Errno::EBUSY | Errno::ETXTBSY | Errno::ENOTEMPTY) => Trouble::Held,
        Some(Errno::ENOENT) => Trouble::NotFound,
        Some(Errno::EEXIST) => Trouble::Exists,
        Some(Errno::ELOOP | Errno::ENOTDIR | Errno::EXDEV | Errno::ENAMETOOLONG) => Trouble::Path,
        Some(Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::ENODEV) => Trouble::Unsupported,
        _ => Trouble::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_the_operation_and_every_cause() {
        let error = StepError::from(Failure::io("making /x", Errno::ENOSPC));
        assert_eq!(error.kind, Trouble::Full);
        assert_eq!(
            error.message,
            "making /x: No space left on device (os error 28)"
        );
    }
}
