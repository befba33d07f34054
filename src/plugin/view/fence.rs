//! What keeps a second writer away from a volume, and to which nodes a volume is pinned.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;

use crate::objects::{AttachmentRecord, NodeRecord, Term, VolumeRecord};
use crate::view::Read;

/// The labels that name a node.
const NODE_LABELS: [&str; 2] = ["kubernetes.io/hostname", "topology.diskvitals.io/node"];

/// Which nodes can use a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Any,
    /// None of the nodes that exist: its node is gone.
    Nobody,
    One(String),
    Several(usize),
    Unknown(String),
}

pub(crate) fn reach(volume: &VolumeRecord, nodes: &Read<BTreeMap<String, NodeRecord>>) -> Reach {
    let Some(terms) = &volume.affinity else {
        return Reach::Any;
    };
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(why) => {
            return named(terms).map_or_else(
                || Reach::Unknown(format!("nodes cannot be read: {why}")),
                Reach::One,
            );
        }
    };
    let mut matching = Vec::new();
    for node in nodes.values() {
        match terms.iter().map(|term| matches(term, node)).max() {
            Some(Match::Yes) => matching.push(&node.name),
            Some(Match::Unknown) => {
                return Reach::Unknown(
                    "its nodeAffinity has an operator that this version does not know".to_owned(),
                );
            }
            Some(Match::No) | None => {}
        }
    }
    match matching.as_slice() {
        [] => Reach::Nobody,
        [one] => Reach::One((*one).clone()),
        several => Reach::Several(several.len()),
    }
}

/// Without Nodes: the one value of a label that names a node.
fn named(terms: &[Term]) -> Option<String> {
    let [term] = terms else { return None };
    let label = term
        .labels
        .iter()
        .find(|it| it.operator == "In" && NODE_LABELS.contains(&it.key.as_str()))?;
    match label.values.as_deref() {
        Some([one]) => Some(one.clone()),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    No,
    Unknown,
    Yes,
}

/// A term without requirements matches nothing (NodeSelectorTerm of core/v1).
fn matches(term: &Term, node: &NodeRecord) -> Match {
    let labels =
        term.labels.iter().map(|it| requirement(it, node.labels.get(&it.key).map(String::as_str)));
    let fields = term.fields.iter().map(|it| match it.key.as_str() {
        "metadata.name" => requirement(it, Some(&node.name)),
        _ => Match::Unknown,
    });
    labels.chain(fields).min().unwrap_or(Match::No)
}

fn requirement(requirement: &NodeSelectorRequirement, value: Option<&str>) -> Match {
    let is_listed = || {
        let values = requirement.values.as_deref().unwrap_or_default();
        value.is_some_and(|value| values.iter().any(|it| it == value))
    };
    let is_met = match requirement.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => return Match::Unknown,
    };
    if is_met { Match::Yes } else { Match::No }
}

/// Who keeps a writer on another node out, and who a second one on the same node. `mounted`: nodes
/// that say that they have it mounted without a pod.
pub(crate) fn fences(
    volume: &VolumeRecord,
    reach: &Reach,
    attachments: &Read<Vec<AttachmentRecord>>,
    needs_attach: &Read<Option<bool>>,
    mounted: &[&str],
) -> Vec<(&'static str, String)> {
    let has = |mode: &str| volume.access_modes.iter().any(|it| it == mode);
    if has("ReadWriteMany") {
        let text = "ReadWriteMany: several writers are intended".to_owned();
        return vec![("second writer", text)];
    }
    let is_pod = has("ReadWriteOncePod");
    if !is_pod && !has("ReadWriteOnce") && has("ReadOnlyMany") {
        return vec![("second writer", "ReadOnlyMany: nobody may write".to_owned())];
    }
    let other = match reach {
        Reach::One(node) => format!(
            "fenced by the scheduler and the kubelet: nodeAffinity admits {node} alone"
        ),
        Reach::Nobody => "its nodeAffinity admits no node that exists: no pod can use it; an earlier node may still have it mounted".to_owned(),
        Reach::Any | Reach::Several(_) | Reach::Unknown(_) => attach(volume, attachments, needs_attach, mounted),
    };
    let other = match reach {
        Reach::Unknown(why) => format!("{other} ({why})"),
        _ => other,
    };
    let same = match is_pod {
        true => "fenced: ReadWriteOncePod, by the scheduler and the kubelet".to_owned(),
        false => "unfenced: ReadWriteOnce admits several pods of one node".to_owned(),
    };
    vec![("other node", other), ("same node", same)]
}

fn attach(
    volume: &VolumeRecord,
    attachments: &Read<Vec<AttachmentRecord>>,
    needs_attach: &Read<Option<bool>>,
    mounted: &[&str],
) -> String {
    if volume.driver.is_empty() {
        return "unknown: no CSI volume, and its nodeAffinity pins it to no node".to_owned();
    }
    match needs_attach {
        Err(why) => format!("unknown: whether the driver attaches cannot be read: {why}"),
        Ok(Some(false)) => format!("unfenced: {} does not attach volumes", volume.driver),
        // Without a CSIDriver object, the attach-detach controller attaches.
        Ok(Some(true) | None) => match attachments {
            Err(why) => format!(
                "by the attach-detach controller; to which node it is attached cannot be read: {why}"
            ),
            Ok(attachments) => {
                let is_attached = |node: &str| attachments.iter().any(|it| it.node == node);
                if let Some(node) = mounted.iter().find(|node| !is_attached(node)) {
                    return format!(
                        "NOT fenced: {node} has it mounted without a VolumeAttachment; a pod on another node would be a second writer"
                    );
                }
                let names: Vec<String> =
                    attachments.iter().map(|it| format!("{} on {}", it.name, it.node)).collect();
                match names.as_slice() {
                    [] => {
                        "fenced by the attach-detach controller; it is attached nowhere".to_owned()
                    }
                    [one] => {
                        format!("fenced by the attach-detach controller: VolumeAttachment {one}")
                    }
                    several => format!(
                        "NOT fenced: it is attached to several nodes: {}",
                        several.join(", ")
                    ),
                }
            }
        },
    }
}
