//! StorageClass parameters of a dynamically created volume. An unknown key is refused, so that a
//! mistyped one is not ignored.

use std::collections::HashMap;

use tonic::Status;

use crate::validate::{invalid, validate_map};
use diskvitals_text::echo::echo;
use diskvitals_wire::ProvidedKind;

const KIND: &str = "diskvitals.io/kind";
const MKFS_OPTIONS: &str = "diskvitals.io/mkfs-options";
const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// Keys that the external-provisioner adds with --extra-create-metadata: the claim of the volume.
/// They are ignored.
const PROVISIONER_METADATA: [&str; 3] = [
    "csi.storage.k8s.io/pvc/name",
    "csi.storage.k8s.io/pvc/namespace",
    "csi.storage.k8s.io/pv/name",
];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// Unspecified: the daemon chooses.
    pub kind: ProvidedKind,
    /// Forwarded unchanged; the daemon validates the options of each mkfs.
    pub mkfs_options: String,
    /// The filesystem for capabilities that name none; empty: the daemon chooses. (The
    /// external-provisioner removes this key and sets it in the capabilities.)
    pub fs_type: String,
}

/// INVALID_ARGUMENT names the key.
pub(crate) fn parse_parameters(given: &HashMap<String, String>) -> Result<Parameters, Status> {
    validate_map("parameters", given)?;
    let mut parameters = Parameters {
        kind: ProvidedKind::Unspecified,
        mkfs_options: String::new(),
        fs_type: String::new(),
    };
    // Sorted, so that the same one of two errors is always reported.
    let mut sorted: Vec<_> = given.iter().collect();
    sorted.sort();
    for (key, value) in sorted {
        match key.as_str() {
            KIND => parameters.kind = parse_kind(value)?,
            MKFS_OPTIONS => value.clone_into(&mut parameters.mkfs_options),
            FS_TYPE => value.clone_into(&mut parameters.fs_type),
            key if PROVISIONER_METADATA.contains(&key) => {}
            key => {
                let key = echo(key);
                return Err(invalid(
                    "parameters",
                    format_args!("`{key}` is unknown; known are {KIND}, {MKFS_OPTIONS}, {FS_TYPE}"),
                ));
            }
        }
    }
    Ok(parameters)
}

fn parse_kind(value: &str) -> Result<ProvidedKind, Status> {
    match value {
        "loop" => Ok(ProvidedKind::Loop),
        "lvm" => Ok(ProvidedKind::Lvm),
        other => Err(invalid(
            "parameters",
            format_args!("{KIND}: `{}` is neither `loop` nor `lvm`", echo(other)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn given(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn known_keys_are_parsed_and_provisioner_metadata_is_ignored() {
        let all = given(&[
            (KIND, "lvm"),
            (MKFS_OPTIONS, "-i 8192"),
            (FS_TYPE, "xfs"),
            (PROVISIONER_METADATA[0], "claim"),
            (PROVISIONER_METADATA[1], "ns"),
            (PROVISIONER_METADATA[2], "pv"),
        ]);
        let expected = Parameters {
            kind: ProvidedKind::Lvm,
            mkfs_options: "-i 8192".into(),
            fs_type: "xfs".into(),
        };
        assert_eq!(parse_parameters(&all).expect("right"), expected);
        assert_eq!(
            parse_parameters(&given(&[(KIND, "loop")])).expect("right").kind,
            ProvidedKind::Loop
        );
        assert_eq!(parse_parameters(&given(&[])).expect("right").kind, ProvidedKind::Unspecified);
    }

    #[test]
    fn an_unknown_key_or_kind_is_named() {
        for (pairs, words) in [
            (given(&[("diskvitals.io/knid", "loop")]), "`diskvitals.io/knid` is unknown"),
            (given(&[(KIND, "zfs")]), "diskvitals.io/kind: `zfs`"),
            (given(&[(KIND, "")]), "diskvitals.io/kind: ``"),
            (given(&[(MKFS_OPTIONS, &"a".repeat(5000))]), "parameters: has 50"),
        ] {
            let status = parse_parameters(&pairs).expect_err("refused");
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains(words), "{}", status.message());
        }
    }
}
