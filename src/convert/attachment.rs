//! Attachments of CSI volumes → wire.

use crate::{mount_role, time};
use diskvitals_finding::provision::AccessMode;
use diskvitals_model::stale::Attachment;
use diskvitals_wire as wire;

pub fn attachment(attachment: &Attachment) -> wire::Attachment {
    let pod = attachment.pod.clone().unwrap_or_default();
    wire::Attachment {
        driver: attachment.driver.clone(),
        handle: attachment.handle.clone(),
        volume_id: attachment.volume.to_string(),
        role: mount_role(attachment.role),
        path: attachment.path.to_string(),
        read_only: attachment.read_only,
        mode: attachment.mode.map_or(0, AccessMode::number),
        block: attachment.block,
        pod_uid: pod.uid,
        pod_name: pod.name,
        pod_namespace: pod.namespace,
        since: Some(time(attachment.since)),
        stale: attachment.stale_cause().unwrap_or_default().to_owned(),
    }
}
