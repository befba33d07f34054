//! Every gRPC status of the server, in one module.
//!
//! In: errors of the model, the state and the engine. Out: statuses whose message names the field
//! or the subject. A caller's mistake is never INTERNAL.

use tonic::{Code, Status};

use crate::api::resolve::ResolveError;
use crate::state::handle::CommandError;
use diskvitals_finding::ids::MAX_ID_LEN;
use diskvitals_model::facts::checks::StartCheckError;
use diskvitals_provision::error::ProvisionError;
use diskvitals_text::causes::with_causes;

/// Longest id or query in a request, in bytes.
pub(crate) const MAX_QUERY: usize = 4096;
/// Longest note of a person, in bytes.
pub(crate) const MAX_NOTE: usize = 1024;

pub(crate) fn invalid(field: &str, what: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("{field}: {what}"))
}

/// `field` must be present and at most `limit` bytes long.
pub(crate) fn required(field: &str, value: &str, limit: usize) -> Result<(), Status> {
    if value.is_empty() {
        return Err(invalid(field, "is empty"));
    }
    bounded(field, value, limit)
}

pub(crate) fn bounded(field: &str, value: &str, limit: usize) -> Result<(), Status> {
    if value.len() > limit {
        return Err(invalid(
            field,
            format_args!("has {} bytes, at most {limit} are allowed", value.len()),
        ));
    }
    Ok(())
}

pub(crate) fn denied(what: &str, uid: Option<u32>) -> Status {
    match uid {
        Some(uid) => Status::permission_denied(format!("uid {uid} may not {what}")),
        None => {
            Status::permission_denied(format!("a caller without peer credentials may not {what}"))
        }
    }
}

pub(crate) fn exhausted(what: impl Into<String>) -> Status {
    Status::resource_exhausted(what)
}

pub(crate) fn shutting_down() -> Status {
    Status::unavailable("the daemon is shutting down")
}

/// The request is well-formed but not possible for this subject.
pub(crate) fn failed_precondition(what: impl Into<String>) -> Status {
    Status::failed_precondition(what)
}

/// The answer is unknown now and may be known later.
pub(crate) fn unavailable(what: impl Into<String>) -> Status {
    Status::unavailable(what)
}

pub(crate) fn not_found(what: impl Into<String>) -> Status {
    Status::not_found(what)
}

/// `field` is the request's field that contained the query.
pub(crate) fn unresolved(field: &str) -> impl Fn(ResolveError) -> Status {
    move |error| match error {
        ResolveError::Unknown { .. } => Status::not_found(error.to_string()),
        ResolveError::Ambiguous { .. } | ResolveError::EndOfSerial { .. } => invalid(field, error),
    }
}

impl From<CommandError> for Status {
    fn from(error: CommandError) -> Status {
        use CommandError::{
            CheckRefused, NoCounters, NoSuchCheck, NoSuchFinding, NotAcknowledged,
            NotInMaintenance, NotOfErrors, NotStored, Stopping, TooManyWaiters, Worsened,
        };
        let code = match error {
            NoSuchFinding(_) | NoSuchCheck(_) => Code::NotFound,
            CheckRefused(StartCheckError::VolumeGone(_)) => Code::NotFound,
            CheckRefused(StartCheckError::QueueFull(_)) => Code::ResourceExhausted,
            CheckRefused(_) | NotAcknowledged(_) | NotInMaintenance(_) | NotOfErrors(..)
            | Worsened(_) => Code::FailedPrecondition,
            // Changes that are not stored are not made: the caller may retry when the store works.
            NotStored(_) | NoCounters => Code::Unavailable,
            TooManyWaiters => Code::ResourceExhausted,
            Stopping => return shutting_down(),
        };
        Status::new(code, error.to_string())
    }
}

/// The status of a failed request for a volume that the node provides.
pub(crate) fn provisioning(error: ProvisionError) -> Status {
    let code = match &error {
        ProvisionError::InvalidArgument { .. } => Code::InvalidArgument,
        ProvisionError::NotFound(_) => Code::NotFound,
        ProvisionError::AlreadyExists(_) => Code::AlreadyExists,
        ProvisionError::FailedPrecondition(_) | ProvisionError::InUse(_) => {
            Code::FailedPrecondition
        }
        ProvisionError::OutOfRange(_) => Code::OutOfRange,
        ProvisionError::ResourceExhausted(_) => Code::ResourceExhausted,
        ProvisionError::Aborted(_) => Code::Aborted,
        ProvisionError::Unavailable(_)
        | ProvisionError::Interrupted(_)
        | ProvisionError::Stuck(_) => Code::Unavailable,
        ProvisionError::DeadlineExceeded(_) => Code::DeadlineExceeded,
        ProvisionError::Failed { .. } => Code::Internal,
    };
    Status::new(code, with_causes(&error))
}

/// Parses a finding's id from a request.
pub(crate) fn valid_finding_id(id: &str) -> Result<(), Status> {
    required("finding_id", id, MAX_QUERY)?;
    bounded("finding_id", id, MAX_ID_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_that_disappears_during_the_request_is_not_found() {
        let id = diskvitals_finding::ids::VolumeId::known("fs:u");
        assert_eq!(
            Status::from(CommandError::CheckRefused(StartCheckError::VolumeGone(id))).code(),
            Code::NotFound
        );
        let uncheckable = StartCheckError::NotCheckable("it is vfat".into());
        assert_eq!(
            Status::from(CommandError::CheckRefused(uncheckable)).code(),
            Code::FailedPrecondition
        );
    }

    #[test]
    fn a_limit_names_the_field_and_the_limit() {
        let status = required("finding_id", &"x".repeat(5000), MAX_QUERY).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "finding_id: has 5000 bytes, at most 4096 are allowed");
    }
}
