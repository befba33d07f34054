//! The error of a step with its cause, before it is sent to the daemon as text.

use std::error::Error;
use std::fmt::Display;
use std::io;

use nix::errno::Errno;

use crate::step::{StepError, StepErrorKind};
use diskvitals_host::mounting::MountError;
use diskvitals_host::resolve_beneath::PathResolveError;
use diskvitals_text::causes::with_causes;

#[derive(Debug, thiserror::Error)]
#[error("{operation}")]
pub struct StepWorkerError {
    pub kind: StepErrorKind,
    /// The operation and its object, or the whole message.
    operation: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StepErrorKind {
    /// An error of this kind without a cause.
    pub fn error(self, message: impl Into<String>) -> StepWorkerError {
        StepWorkerError { kind: self, operation: message.into(), source: None }
    }
}

impl StepWorkerError {
    pub(crate) fn with_source(
        kind: StepErrorKind,
        operation: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> StepWorkerError {
        StepWorkerError { kind, operation: operation.into(), source: Some(Box::new(source)) }
    }

    pub(crate) fn with_kind(self, kind: StepErrorKind) -> StepWorkerError {
        StepWorkerError { kind, ..self }
    }

    /// An error of the operating system: its number determines the kind.
    pub fn io(operation: impl Into<String>, source: impl Into<io::Error>) -> StepWorkerError {
        let source = source.into();
        StepWorkerError::with_source(kind_of_io_error(&source), operation, source)
    }
}

/// Converts an error of the operating system; `doing` is the operation, `object` its object.
pub fn io_error<E: Into<io::Error>>(
    doing: &str,
    object: &dyn Display,
) -> impl Fn(E) -> StepWorkerError + use<E> {
    let operation = format!("{doing} {object}");
    move |error| StepWorkerError::io(operation.clone(), error)
}

impl From<StepWorkerError> for StepError {
    fn from(failure: StepWorkerError) -> StepError {
        StepError { kind: failure.kind, message: with_causes(&failure) }
    }
}

impl From<PathResolveError> for StepWorkerError {
    fn from(error: PathResolveError) -> StepWorkerError {
        let kind = match error {
            _ if error.is_invalid_argument() => StepErrorKind::InvalidPath,
            _ if error.is_not_found() => StepErrorKind::NotFound,
            _ => StepErrorKind::Other,
        };
        StepWorkerError::with_source(kind, "looking for the path", error)
    }
}

impl From<MountError> for StepWorkerError {
    fn from(error: MountError) -> StepWorkerError {
        let kind = match &error {
            // This kernel does not support what the caller requested.
            MountError::Nul(_) | MountError::OpenFsContext { .. } | MountError::Option { .. } => {
                StepErrorKind::Unsupported
            }
            // ENOENT concerns the device, EINVAL its content, and neither the caller's path.
            MountError::Create { source, .. } | MountError::Call { source, .. } => {
                match kind_of_io_error(source) {
                    kind @ (StepErrorKind::InUse
                    | StepErrorKind::NoSpace
                    | StepErrorKind::Unsupported) => kind,
                    _ => StepErrorKind::Other,
                }
            }
        };
        StepWorkerError::with_source(kind, "mounting", error)
    }
}

/// Maps an error number to a kind, for steps on paths, devices and files.
fn kind_of_io_error(error: &io::Error) -> StepErrorKind {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG) => StepErrorKind::NoSpace,
        Some(Errno::EBUSY | Errno::ETXTBSY | Errno::ENOTEMPTY) => StepErrorKind::InUse,
        Some(Errno::ENOENT) => StepErrorKind::NotFound,
        Some(Errno::EEXIST) => StepErrorKind::AlreadyExists,
        Some(Errno::ELOOP | Errno::ENOTDIR | Errno::EXDEV | Errno::ENAMETOOLONG) => {
            StepErrorKind::InvalidPath
        }
        Some(Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::ENODEV) => StepErrorKind::Unsupported,
        _ => StepErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_the_operation_and_every_cause() {
        let error = StepError::from(StepWorkerError::io("making /x", Errno::ENOSPC));
        assert_eq!(error.kind, StepErrorKind::NoSpace);
        assert_eq!(error.message, "making /x: No space left on device (os error 28)");
    }
}
