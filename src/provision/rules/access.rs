//! Access modes: which are possible for a volume on one node, and which publications may coexist
//! (CSI, NodePublishVolume, the tables of second calls).

use crate::error::ProvisionError;
use crate::rules::filesystem::Filesystem;
use crate::rules::mount;
use diskvitals_finding::provision::{AccessMode, ProvidedAttachment, VolumeAccess};

/// Checks that a volume of this node can have this access.
pub fn check(access: &VolumeAccess) -> Result<(), ProvisionError> {
    if !access.mode.is_for_one_node() {
        return Err(ProvisionError::invalid_argument(
            "access.mode",
            "lets other nodes write, which cannot reach this node's volumes",
        ));
    }
    if access.block {
        let field = if access.fs_type.is_some() {
            "access.fs_type"
        } else if !access.mount_flags.is_empty() {
            "access.mount_flags"
        } else {
            return Ok(());
        };
        let problem = "is only possible with a filesystem, not for a block volume";
        return Err(ProvisionError::invalid_argument(field, problem));
    }
    mount::check(
        Filesystem::requested(access.fs_type.as_deref())?,
        access.fs_type.is_some(),
        &access.mount_flags,
    )
}

pub fn is_read_only(mode: AccessMode) -> bool {
    matches!(mode, AccessMode::SingleNodeReaderOnly | AccessMode::MultiNodeReaderOnly)
}

/// Whether a volume may be published at several paths at a time. SINGLE_NODE_WRITER and SINGLE_NODE_READER_ONLY
/// may not: "Non MULTI_NODE_*" in both tables.
fn is_shared(mode: AccessMode) -> bool {
    matches!(mode, AccessMode::SingleNodeMultiWriter | AccessMode::MultiNodeReaderOnly)
}

/// Whether two accesses are compatible. A missing filesystem type fits any type.
pub(crate) fn is_compatible(one: &VolumeAccess, other: &VolumeAccess) -> bool {
    let flags = |access: &VolumeAccess| {
        let mut flags = access.mount_flags.clone();
        flags.sort();
        flags.dedup();
        flags
    };
    let types_agree =
        one.fs_type.is_none() || other.fs_type.is_none() || one.fs_type == other.fs_type;
    one.mode == other.mode && one.block == other.block && types_agree && flags(one) == flags(other)
}

/// The existing attachment that conflicts with one more path.
pub(crate) fn conflicting_attachment(
    wanted: AccessMode,
    published: &[ProvidedAttachment],
) -> Option<&ProvidedAttachment> {
    published.iter().find(|held| !is_shared(wanted) || !is_shared(held.access.mode))
}

/// Describes an attachment for messages: the pod, if it is known, and the path.
pub fn describe(held: &ProvidedAttachment) -> String {
    match &held.pod {
        Some(pod) if !pod.name.is_empty() => {
            format!("pod {}/{} at {}", pod.namespace, pod.name, held.path)
        }
        Some(pod) if !pod.uid.is_empty() => format!("pod {} at {}", pod.uid, held.path),
        _ => held.path.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_finding::path::HostPath;
    use diskvitals_finding::provision::PodRef;

    fn access(mode: AccessMode) -> VolumeAccess {
        VolumeAccess { mode, block: false, fs_type: None, mount_flags: Vec::new() }
    }

    fn held(mode: AccessMode) -> ProvidedAttachment {
        let pod = PodRef { uid: "u".into(), name: "db".into(), namespace: "shop".into() };
        let path = HostPath::from("/k/t");
        ProvidedAttachment {
            path,
            access: access(mode),
            read_only: false,
            pod: Some(pod),
            since: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_second_path_is_for_shared_modes_on_both_sides_only() {
        use AccessMode::*;
        let modes = [
            SingleNodeWriter,
            SingleNodeReaderOnly,
            SingleNodeSingleWriter,
            SingleNodeMultiWriter,
            MultiNodeReaderOnly,
        ];
        for first in modes {
            for second in modes {
                let free = [SingleNodeMultiWriter, MultiNodeReaderOnly].contains(&first)
                    && [SingleNodeMultiWriter, MultiNodeReaderOnly].contains(&second);
                assert_eq!(
                    conflicting_attachment(second, &[held(first)]).is_none(),
                    free,
                    "{first:?} {second:?}"
                );
            }
        }
        assert!(conflicting_attachment(SingleNodeWriter, &[]).is_none());
    }

    #[test]
    fn writers_on_other_nodes_are_refused_and_readers_are_not() {
        for mode in [AccessMode::MultiNodeMultiWriter, AccessMode::MultiNodeSingleWriter] {
            assert!(matches!(
                check(&access(mode)),
                Err(ProvisionError::InvalidArgument { field: "access.mode", .. })
            ));
        }
        assert_eq!(check(&access(AccessMode::MultiNodeReaderOnly)), Ok(()));
    }

    #[test]
    fn a_block_volume_has_no_filesystem_and_no_mount_flags() {
        let block = VolumeAccess { block: true, ..access(AccessMode::SingleNodeWriter) };
        assert_eq!(check(&block), Ok(()));
        assert!(check(&VolumeAccess { fs_type: Some("xfs".into()), ..block.clone() }).is_err());
        assert!(check(&VolumeAccess { mount_flags: vec!["noatime".into()], ..block }).is_err());
    }

    #[test]
    fn an_attachment_is_described_by_its_pod() {
        assert_eq!(describe(&held(AccessMode::SingleNodeWriter)), "pod shop/db at /k/t");
    }
}
