//! Validates the fields of CSI requests before any lookup: for an invalid field the error is
//! INVALID_ARGUMENT with its name (CSI, Error Scheme).
//!
//! In: fields. Out: values of the daemon's API. No I/O. The daemon decides whether an id is known,
//! a path is below the kubelet's directory or a size is possible. Messages repeat ids, names and
//! paths escaped and truncated; they never repeat parts of a request that may contain secrets.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Request, Status};

use crate::agent::MAX_CALL_TIMEOUT;
use crate::wire;
use crate::wire::volume_capability::AccessType;
use diskvitals_finding::provision::{AccessMode, PodRef};
use diskvitals_text::echo::echo;
use diskvitals_wire as daemon;

/// CSI's default limit for strings, in bytes (Size Limits).
const MAX_STRING_LEN: usize = 128;
/// Linux's limit for a path, in bytes; CSI has none for paths.
const MAX_PATH_LEN: usize = 4095;
/// Longest map of a volume's context or parameters, in bytes (CSI, Size Limits: 4 KiB).
const MAX_MAP_LEN: usize = 4096;
/// Mount options of one capability, in bytes (CSI, MountVolume.mount_flags: 4 KiB).
const MAX_MOUNT_FLAGS_LEN: usize = 4096;

const POD_UID: &str = "csi.storage.k8s.io/pod.uid";
const POD_NAME: &str = "csi.storage.k8s.io/pod.name";
const POD_NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

pub(crate) fn invalid(field: &str, what: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("{field}: {what}"))
}

/// NOT_FOUND: no volume of this driver has this id.
pub(crate) fn volume_not_found(id: &str) -> Status {
    Status::not_found(format!("volume_id: no volume has the id `{}`", echo(id)))
}

fn require_non_empty(field: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() { Err(invalid(field, "is empty")) } else { Ok(()) }
}

fn validate_length(field: &str, value: &str, most: usize) -> Result<(), Status> {
    match value.len() {
        length if length <= most => Ok(()),
        length => {
            Err(invalid(field, format_args!("has {length} bytes, at most {most} are possible")))
        }
    }
}

/// The id is required.
pub(crate) fn validate_volume_id(id: &str) -> Result<(), Status> {
    require_non_empty("volume_id", id)
}

/// False means that no volume can have this id, so no lookup is needed.
pub(crate) fn is_possible_id(id: &str) -> bool {
    id.len() <= MAX_STRING_LEN && !id.contains('\0')
}

/// NOT_FOUND for an id that no volume can have.
pub(crate) fn validate_id_form(id: &str) -> Result<(), Status> {
    if is_possible_id(id) { Ok(()) } else { Err(volume_not_found(id)) }
}

pub(crate) fn validate_node_id(id: &str) -> Result<(), Status> {
    require_non_empty("node_id", id)
}

/// Checks a name from the orchestrator: any text without control characters (CSI,
/// CreateVolumeRequest.name).
pub(crate) fn validate_name(name: &str) -> Result<(), Status> {
    require_non_empty("name", name)?;
    validate_length("name", name, MAX_STRING_LEN)?;
    if name.chars().any(char::is_control) {
        return Err(invalid("name", "has control characters"));
    }
    Ok(())
}

/// Checks the path of an operation: absolute, without `.`, `..`, empty parts and NUL.
pub(crate) fn validate_path(field: &str, path: &str) -> Result<(), Status> {
    require_non_empty(field, path)?;
    validate_length(field, path, MAX_PATH_LEN)?;
    if path.contains('\0') {
        return Err(invalid(field, "has a NUL in it"));
    }
    let Some(below) = path.strip_prefix('/') else {
        return Err(invalid(field, format_args!("`{}` is not absolute", echo(path))));
    };
    let clean = below.strip_suffix('/').unwrap_or(below);
    if clean.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(invalid(
            field,
            format_args!("`{}` has empty parts, `.` or `..` in it", echo(path)),
        ));
    }
    Ok(())
}

/// Checks the path of a volume. False means that no volume can be at this path.
pub(crate) fn is_possible_path(field: &str, path: &str) -> Result<bool, Status> {
    require_non_empty(field, path)?;
    Ok(validate_path(field, path).is_ok())
}

/// Converts a required capability to the daemon's API. Mount options may contain secrets: no
/// message repeats them.
pub(crate) fn parse_capability(
    field: &str,
    capability: Option<&wire::VolumeCapability>,
) -> Result<daemon::Access, Status> {
    let capability = capability.ok_or_else(|| invalid(field, "is missing"))?;
    let asked = capability.access_mode.as_ref().map(|access| access.mode);
    let asked = asked.ok_or_else(|| invalid(field, "access_mode is missing"))?;
    let mode = AccessMode::from_number(asked)
        .ok_or_else(|| invalid(field, format_args!("access_mode: {asked} is no access mode")))?;
    let access = daemon::Access { mode: mode.number(), ..Default::default() };
    match &capability.access_type {
        None => Err(invalid(field, "access_type is missing: neither block nor mount")),
        Some(AccessType::Block(_)) => Ok(daemon::Access { block: true, ..access }),
        Some(AccessType::Mount(mount)) => {
            if !mount.volume_mount_group.is_empty() {
                return Err(invalid(
                    field,
                    "mount.volume_mount_group: this driver leaves group ownership to the kubelet",
                ));
            }
            let fs_type_field = format!("{field}: mount.fs_type");
            validate_length(&fs_type_field, &mount.fs_type, MAX_STRING_LEN)?;
            if mount.mount_flags.iter().map(String::len).sum::<usize>() > MAX_MOUNT_FLAGS_LEN {
                return Err(invalid(
                    field,
                    format_args!("mount.mount_flags: have more than {MAX_MOUNT_FLAGS_LEN} bytes"),
                ));
            }
            Ok(daemon::Access {
                fs_type: mount.fs_type.clone(),
                mount_flags: mount.mount_flags.clone(),
                ..access
            })
        }
    }
}

/// Requires at least one capability.
pub(crate) fn parse_capabilities(
    capabilities: &[wire::VolumeCapability],
) -> Result<Vec<daemon::Access>, Status> {
    if capabilities.is_empty() {
        return Err(invalid("volume_capabilities", "is empty"));
    }
    capabilities.iter().map(|one| parse_capability("volume_capabilities", Some(one))).collect()
}

/// Returns (required, limit) in bytes; 0 means that a bound is not given. OUT_OF_RANGE for negative
/// numbers and for a limit below the required size.
pub(crate) fn parse_capacity_range(
    range: Option<&wire::CapacityRange>,
) -> Result<(u64, u64), Status> {
    let Some(range) = range else {
        return Ok((0, 0));
    };
    let number = |field: &str, number: i64| {
        u64::try_from(number).map_err(|_| {
            Status::out_of_range(format!("capacity_range.{field}: {number} is negative"))
        })
    };
    let (required, limit) = (
        number("required_bytes", range.required_bytes)?,
        number("limit_bytes", range.limit_bytes)?,
    );
    if limit != 0 && limit < required {
        return Err(Status::out_of_range(format!(
            "capacity_range: limit_bytes {limit} is below required_bytes {required}"
        )));
    }
    Ok((required, limit))
}

/// Checks a map from the orchestrator that is stored or compared.
pub(crate) fn validate_map(field: &str, map: &HashMap<String, String>) -> Result<(), Status> {
    let length: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if length > MAX_MAP_LEN {
        return Err(invalid(
            field,
            format_args!("has {length} bytes, at most {MAX_MAP_LEN} are possible"),
        ));
    }
    Ok(())
}

/// The pod of a publication, if the kubelet names it (the CSIDriver's podInfoOnMount).
/// INVALID_ARGUMENT for an inline (ephemeral) volume: the driver does not support them.
pub(crate) fn parse_pod(volume_context: &HashMap<String, String>) -> Result<PodRef, Status> {
    if volume_context.get(EPHEMERAL).is_some_and(|value| value == "true") {
        return Err(invalid(
            "volume_context",
            "this driver has no ephemeral inline volumes; use a claim (generic ephemeral volumes are claims)",
        ));
    }
    let text = |key: &str| volume_context.get(key).cloned().unwrap_or_default();
    Ok(PodRef { uid: text(POD_UID), name: text(POD_NAME), namespace: text(POD_NAMESPACE) })
}

/// The caller's timeout (the header `grpc-timeout` of gRPC over HTTP/2), at most
/// [`MAX_CALL_TIMEOUT`].
pub(crate) fn call_timeout<T>(request: &Request<T>) -> Duration {
    let header = request.metadata().get("grpc-timeout").and_then(|value| value.to_str().ok());
    header.and_then(parse_grpc_timeout).unwrap_or(MAX_CALL_TIMEOUT).min(MAX_CALL_TIMEOUT)
}

/// `TimeoutValue TimeoutUnit`, at most eight digits (gRPC over HTTP/2, Requests).
fn parse_grpc_timeout(header: &str) -> Option<Duration> {
    let (unit_at, unit) = header.char_indices().next_back()?;
    let digits = &header[..unit_at];
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number * 3600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The daemon's field names and those of CSI: a refusal must name the field of the caller's
/// request.
const FIELD_NAMES: [(&str, &str); 9] = [
    ("staging_path", "staging_target_path"),
    ("access.fs_type", "volume_capability.mount.fs_type"),
    ("access.mount_flags", "volume_capability.mount.mount_flags"),
    ("access.mode", "volume_capability.access_mode"),
    ("access.block", "volume_capability.access_type"),
    ("accesses", "volume_capabilities"),
    ("mkfs_options", "parameters: diskvitals.io/mkfs-options"),
    ("kind", "parameters: diskvitals.io/kind"),
    ("handle", "volume_id"),
];

/// Replaces the daemon's field name at the start of a refusal (`staging_path: is …`) by CSI's.
pub(crate) fn with_csi_field_names(status: Status) -> Status {
    let named = FIELD_NAMES.iter().find_map(|(ours, theirs)| {
        Some((theirs, status.message().strip_prefix(ours)?.strip_prefix(':')?))
    });
    match named {
        Some((theirs, rest)) => Status::new(status.code(), format!("{theirs}:{rest}")),
        None => status,
    }
}

#[cfg(test)]
mod tests;
