//! The interposer's own answers to NodeGetVolumeStats and the health calls, for upstream drivers
//! that do not implement them.
//!
//! In: the request and the daemon's answer. Out: a message, or the status that CSI requires.
//! Unknown health is an error, never an empty list.

use prost::Message;
use tonic::Status;

use crate::interposer::health_source::{
    HealthSourceError, HealthStatus, Usage, VolumeCondition, VolumeHealth,
};
use crate::interposer::raw::DecodeError;
use crate::interposer::{merge, raw};
use crate::{limits, stats as figures, wire};

/// volume_id is field 1 of all requests that are decoded.
pub(crate) fn volume_id(request: &[u8]) -> Result<&str, Status> {
    required_field(request, 1, "volume_id")
}

pub(crate) fn volume_path(request: &[u8]) -> Result<&str, Status> {
    required_field(request, 2, "volume_path")
}

fn required_field<'a>(request: &'a [u8], number: u32, name: &str) -> Result<&'a str, Status> {
    match raw::string_field(request, number) {
        Ok("") => Err(Status::invalid_argument(format!("{name} is empty"))),
        Ok(text) => Ok(text),
        Err(DecodeError) => Err(Status::invalid_argument(format!(
            "{name} is not readable: the request is no message of this call"
        ))),
    }
}

pub(crate) fn to_status(error: &HealthSourceError) -> Status {
    match error {
        HealthSourceError::Unavailable(_) | HealthSourceError::Unknown(_) => {
            Status::unavailable(error.to_string())
        }
        HealthSourceError::NotFound(_) => Status::not_found(error.to_string()),
    }
}

/// Encodes NodeGetVolumeStatsResponse.
pub(crate) fn stats(usage: &Usage, condition: Option<VolumeCondition>) -> Vec<u8> {
    let volume_condition = condition.map(|condition| wire::VolumeCondition {
        abnormal: condition.abnormal,
        message: limits::truncate_message(&condition.message).into_owned(),
    });
    wire::NodeGetVolumeStatsResponse { usage: figures::to_wire(usage), volume_condition }
        .encode_to_vec()
}

/// Encodes NodeGetVolumeHealthResponse and ControllerGetVolumeHealthResponse, which have the same
/// wire format.
pub(crate) fn health(
    handle: &str,
    health: Result<VolumeHealth, HealthSourceError>,
    fresh: bool,
) -> Result<Vec<u8>, Status> {
    let statuses = match health {
        Ok(health) => {
            health.statuses.map_err(|unknown| to_status(&HealthSourceError::Unknown(unknown.0)))?
        }
        // The driver has just confirmed the volume, and nothing adverse is known: this is preferred
        // to unknown.
        Err(HealthSourceError::NotFound(_)) if fresh => Vec::new(),
        Err(error) => return Err(to_status(&error)),
    };
    merge::health(&[], handle, &statuses).map_err(internal_error)
}

/// Encodes NodeGetStorageHealthResponse.
pub(crate) fn storage(
    statuses: Result<Vec<HealthStatus>, HealthSourceError>,
) -> Result<Vec<u8>, Status> {
    merge::storage(&[], &statuses.map_err(|error| to_status(&error))?).map_err(internal_error)
}

/// An error in a locally encoded message.
pub(crate) fn internal_error(junk: DecodeError) -> Status {
    Status::internal(junk.to_string())
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::interposer::health_source::{Amount, HealthUnknown};

    fn volume_health(statuses: Result<Vec<HealthStatus>, HealthUnknown>) -> VolumeHealth {
        VolumeHealth { statuses, condition: Some(VolumeCondition::default()), local: true }
    }

    #[test]
    fn unknown_health_is_never_an_empty_list() {
        let code = |answer: Result<Vec<u8>, Status>| answer.map_err(|status| status.code());
        assert_eq!(
            code(health("v", Ok(volume_health(Err(HealthUnknown("no SMART".into())))), true)),
            Err(Code::Unavailable)
        );
        assert_eq!(
            code(health("v", Err(HealthSourceError::Unavailable("gone".into())), true)),
            Err(Code::Unavailable)
        );
        assert_eq!(
            code(health("v", Err(HealthSourceError::Unknown("not yet".into())), true)),
            Err(Code::Unavailable)
        );
        assert_eq!(
            code(health("v", Err(HealthSourceError::NotFound("no such volume".into())), false)),
            Err(Code::NotFound)
        );
        assert_eq!(
            code(storage(Err(HealthSourceError::Unavailable("gone".into())))),
            Err(Code::Unavailable)
        );
    }

    #[test]
    fn a_healthy_volume_is_named_and_has_no_status() {
        for answer in [
            health("v", Ok(volume_health(Ok(Vec::new()))), false),
            health("v", Err(HealthSourceError::NotFound(String::new())), true),
        ] {
            let answer =
                wire::NodeGetVolumeHealthResponse::decode(answer.expect("an answer").as_slice())
                    .expect("reads");
            let expected =
                wire::VolumeHealth { volume_id: "v".into(), health_statuses: Vec::new() };
            assert_eq!(answer.volume_health, Some(expected));
        }
    }

    #[test]
    fn a_block_volume_reports_only_its_size() {
        let bytes = Amount { total: 7, available: 3, used: 4 };
        let usage = Usage { block: true, bytes, inodes: Some(bytes) };
        let answer = wire::NodeGetVolumeStatsResponse::decode(stats(&usage, None).as_slice())
            .expect("reads");
        let size = wire::VolumeUsage {
            available: 0,
            total: 7,
            used: 0,
            unit: wire::volume_usage::Unit::Bytes.into(),
        };
        assert_eq!((answer.usage, answer.volume_condition), (vec![size], None));
    }
}
