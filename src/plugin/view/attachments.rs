//! Where a volume is mounted: what follows from pods (*expected*), what nodes say (*stale*), and
//! what cannot be known.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::objects::{AttachmentRecord, ClaimRecord, PodRecord, VolumeRecord};
use crate::view::claims::users;
use crate::view::fence::{Reach, fences, reach};
use crate::view::nodes::{NodeView, Report};
use crate::view::unclean::{Clean, VolumeUse, clean, pod_name, remaining, without_paths, word};
use crate::view::{Base, Gap, Read};

/// One volume, with everything that was read about it.
pub(crate) struct Subject {
    pub volume: Read<VolumeRecord>,
    /// None: it has no claim, or the claim is gone.
    pub claim: Read<Option<ClaimRecord>>,
    /// Name of the volume, although it cannot be read.
    pub volume_name: String,
    /// Of the namespace of the claim.
    pub pods: Read<Vec<PodRecord>>,
    /// Of this volume.
    pub attachments: Read<Vec<AttachmentRecord>>,
    /// Of its driver; None without a CSIDriver.
    pub needs_attach: Read<Option<bool>>,
    /// Why the nodes' reports cannot be read.
    pub storages: Read<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum State {
    Expected,
    Stale,
    /// Of a pod that the node had before it was lost.
    Held,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttachmentRow {
    pub node: String,
    pub pod: String,
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    pub path: String,
    /// `derived` from the pod's uid by the kubelet's rule, or `seen` by the node.
    pub evidence: &'static str,
    pub state: State,
    pub since: Option<Timestamp>,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeView {
    pub volume: String,
    pub driver: String,
    pub handle: String,
    pub claim: String,
    pub access_modes: Vec<String>,
    pub fences: Vec<(&'static str, String)>,
    pub attachments: Vec<AttachmentRow>,
    /// What was not seen.
    pub gaps: Vec<Gap>,
}

pub(crate) fn view(
    base: &Base,
    nodes: &[NodeView<'_>],
    subject: &Subject,
    kubelet_root: &str,
) -> VolumeView {
    let mut gaps = Vec::new();
    let volume = subject.volume.as_ref().ok();
    if let Err(why) = &subject.volume {
        gaps.push(Gap::new(
            format!("PersistentVolume {}", subject.volume_name),
            format!("{why}; access modes, fences and the type of the volume are not known"),
        ));
    }
    let reach = volume.map_or(Reach::Any, |volume| reach(volume, &base.nodes));
    let claim = claim_of(subject, &mut gaps);
    let mut rows = Vec::new();
    pods(subject, volume, kubelet_root, &mut rows, &mut gaps);
    seen(nodes, subject, volume, &mut rows, &mut gaps);
    held(nodes, subject, &reach, &mut rows);
    attached(subject, &mut rows, &mut gaps);
    silent_nodes(base, nodes, subject, &reach, &rows, &mut gaps);
    let mounted: Vec<&str> =
        rows.iter().filter(|row| row.evidence == "seen").map(|row| row.node.as_str()).collect();
    let fences = volume.map(|volume| {
        fences(volume, &reach, &subject.attachments, &subject.needs_attach, &mounted)
    });
    VolumeView {
        volume: subject.volume_name.clone(),
        driver: volume.map(|it| it.driver.clone()).unwrap_or_default(),
        handle: volume.map(|it| it.handle.clone()).unwrap_or_default(),
        claim,
        access_modes: volume.map(|it| it.access_modes.clone()).unwrap_or_default(),
        fences: fences.unwrap_or_default(),
        attachments: rows,
        gaps,
    }
}

fn claim_of(subject: &Subject, gaps: &mut Vec<Gap>) -> String {
    let reference = subject.volume.as_ref().ok().and_then(|it| it.claim.as_ref());
    let name = |namespace: &str, name: &str| format!("{namespace}/{name}");
    match (&subject.claim, reference) {
        (Err(why), Some(claim)) => {
            gaps.push(Gap::new("the claim", why.clone()));
            format!("{} (not read)", name(&claim.namespace, &claim.name))
        }
        (Err(why), None) => {
            gaps.push(Gap::new("the claim", why.clone()));
            String::new()
        }
        (Ok(None), Some(claim)) => {
            format!("{} (deleted)", name(&claim.namespace, &claim.name))
        }
        (Ok(None), None) => "none".to_owned(),
        (Ok(Some(claim)), Some(reference)) if reference.uid != claim.uid => format!(
            "{} (deleted; another claim has the name now)",
            name(&claim.namespace, &claim.name)
        ),
        (Ok(Some(claim)), None) if subject.volume.is_ok() => {
            format!("{} (the volume does not name it)", name(&claim.namespace, &claim.name))
        }
        (Ok(Some(claim)), _) if claim.deleting.is_some() => {
            format!("{} (being deleted)", name(&claim.namespace, &claim.name))
        }
        (Ok(Some(claim)), _) => name(&claim.namespace, &claim.name),
    }
}

/// pkg/kubelet/config/defaults.go and pkg/volume/csi: where the kubelet mounts a volume of a pod.
fn path(root: &str, pod: &PodRecord, volume: &str, record: Option<&VolumeRecord>) -> String {
    let Some(record) = record.filter(|it| !it.plugin_directory.is_empty()) else {
        return String::new();
    };
    let root = root.trim_end_matches('/');
    let (folder, plugin) = match record.is_block {
        true => ("volumeDevices", &record.plugin_directory),
        false => ("volumes", &record.plugin_directory),
    };
    let end = match record.plugin_directory == "kubernetes.io~csi" && !record.is_block {
        true => "/mount",
        false => "",
    };
    format!("{root}/pods/{}/{folder}/{plugin}/{volume}{end}", pod.uid)
}

/// Pods that must have it mounted.
fn pods(
    subject: &Subject,
    volume: Option<&VolumeRecord>,
    kubelet_root: &str,
    rows: &mut Vec<AttachmentRow>,
    gaps: &mut Vec<Gap>,
) {
    let pods = match &subject.pods {
        Ok(pods) => pods,
        Err(why) => {
            let text = format!("{why}; which pods use the volume is not known");
            gaps.push(Gap::new("pods", text));
            return;
        }
    };
    let Ok(Some(claim)) = &subject.claim else {
        return;
    };
    for pod in users(pods, &claim.name) {
        let why = match (pod.node.as_str(), pod.deleting) {
            ("", _) => "the pod is not scheduled",
            (_, Some(_)) => "the pod is being deleted",
            _ => "",
        };
        let is_scheduled = !pod.node.is_empty();
        rows.push(AttachmentRow {
            node: pod.node.clone(),
            pod: format!("{}/{}", pod.namespace, pod.name),
            pod_uid: pod.uid.clone(),
            path: match is_scheduled {
                true => path(kubelet_root, pod, &subject.volume_name, volume),
                false => String::new(),
            },
            evidence: if is_scheduled { "derived" } else { "" },
            state: State::Expected,
            since: pod.deleting,
            why: why.to_owned(),
        });
    }
}

/// What the nodes name.
fn seen(
    nodes: &[NodeView<'_>],
    subject: &Subject,
    volume: Option<&VolumeRecord>,
    rows: &mut Vec<AttachmentRow>,
    gaps: &mut Vec<Gap>,
) {
    if let Err(why) = &subject.storages {
        let text = format!("{why}; what nodes still have mounted is not known");
        gaps.push(Gap::new("nodestorages", text));
    }
    let is_it = |name: &str, driver: &str, handle: &str| match name {
        "" => volume
            .is_some_and(|it| !it.driver.is_empty() && it.driver == driver && it.handle == handle),
        name => name == subject.volume_name,
    };
    for node in nodes {
        let entries = node.status.map(|it| it.stale.as_slice()).unwrap_or_default();
        let entries =
            entries.iter().filter(|it| is_it(&it.persistent_volume, &it.driver, &it.handle));
        for entry in entries {
            let running = rows.iter_mut().find(|row| {
                row.node == node.name && !entry.pod_uid.is_empty() && row.pod_uid == entry.pod_uid
            });
            if let Some(row) = running {
                // The pod is younger than the report, or one of the two is wrong.
                row.state = State::Unknown;
                row.evidence = "seen";
                row.why = format!("the node calls it stale ({}), and the pod exists", entry.reason);
                continue;
            }
            let mark = node.report.mark();
            rows.push(AttachmentRow {
                node: node.name.to_owned(),
                pod: String::new(),
                pod_uid: entry.pod_uid.clone(),
                path: entry.path.clone(),
                evidence: "seen",
                state: match mark {
                    "" => State::Stale,
                    _ => State::Unknown,
                },
                since: entry.since.as_ref().map(|time| time.0),
                why: match mark {
                    "" => entry.reason.clone(),
                    mark => format!("{} ({mark}: this was its last word)", entry.reason),
                },
            });
        }
        let volumes = node.status.map(|it| it.volumes.as_slice()).unwrap_or_default();
        let is_named =
            volumes.iter().any(|it| is_it(&it.persistent_volume, &it.driver, &it.handle));
        if is_named {
            for row in rows.iter_mut().filter(|row| row.node == node.name) {
                if row.why.is_empty() {
                    row.why = "the node knows the volume, and it is not healthy".to_owned();
                }
            }
        }
    }
}

/// What nodes in quarantine still have. What they cannot assign to a volume may be this one.
fn held(nodes: &[NodeView<'_>], subject: &Subject, reach: &Reach, rows: &mut Vec<AttachmentRow>) {
    let claim = subject.claim.as_ref().ok().and_then(Option::as_ref);
    let name = VolumeUse {
        volume: subject.volume_name.clone(),
        claim: claim.map(|it| format!("{}/{}", it.namespace, it.name)).unwrap_or_default(),
        used_by: Vec::new(),
    };
    for node in nodes {
        for entry in remaining(node) {
            let volumes = &entry.persistent_volumes;
            let is_it = volumes.contains(&subject.volume_name);
            let is_of_pod = |row: &AttachmentRow| {
                row.node == node.name && !entry.pod_uid.is_empty() && row.pod_uid == entry.pod_uid
            };
            let present = rows.iter_mut().find(|row| is_of_pod(row));
            let may_be = volumes.is_empty() && (present.is_some() || can_have(reach, node.name));
            if !is_it && !may_be {
                continue;
            }
            let mark = node.report.mark();
            let message = without_paths(&entry.message, std::slice::from_ref(&name));
            let why = match mark {
                "" if is_it => format!("{}: {message}", entry.reason),
                "" => format!("{}: {message}; which volumes it has is not known", entry.reason),
                mark => format!("{}: {message} ({mark}: this was its last word)", entry.reason),
            };
            let state = match mark {
                "" if is_it => State::Held,
                _ => State::Unknown,
            };
            match present {
                Some(row) => {
                    (row.state, row.evidence, row.why) = (state, "seen", why);
                }
                None => rows.push(AttachmentRow {
                    node: node.name.to_owned(),
                    pod: pod_name(entry),
                    pod_uid: entry.pod_uid.clone(),
                    path: path_in(&entry.message),
                    evidence: "seen",
                    state,
                    since: node.quarantine.and_then(|it| it.since.as_ref()).map(|time| time.0),
                    why,
                }),
            }
        }
    }
}

/// The first path of a pod's volume.
fn path_in(message: &str) -> String {
    let mut words = message.split_whitespace();
    let path = words.find(|word| word.starts_with('/') && word.contains("/pods/"));
    path.map(|path| path.trim_end_matches([':', ',', ';']).to_owned()).unwrap_or_default()
}

fn can_have(reach: &Reach, node: &str) -> bool {
    match reach {
        Reach::One(only) => only == node,
        _ => true,
    }
}

/// Attachments of the control plane without a pod.
fn attached(subject: &Subject, rows: &mut Vec<AttachmentRow>, gaps: &mut Vec<Gap>) {
    let attachments = match &subject.attachments {
        Ok(attachments) => attachments,
        Err(why) => {
            let text = format!("{why}; where the volume is attached is not known");
            gaps.push(Gap::new("volumeattachments", text));
            return;
        }
    };
    for attachment in attachments {
        if rows.iter().any(|row| row.node == attachment.node) {
            continue;
        }
        let name = &attachment.name;
        let (since, why) = match (attachment.deleting, attachment.is_attached) {
            (Some(since), _) => (Some(since), format!("it is being detached ({name})")),
            (None, true) => (
                attachment.created,
                format!("it is attached, and no pod that can be seen uses it ({name})"),
            ),
            (None, false) => (attachment.created, format!("it is being attached ({name})")),
        };
        rows.push(AttachmentRow {
            node: attachment.node.clone(),
            pod: String::new(),
            pod_uid: String::new(),
            path: String::new(),
            evidence: "",
            state: State::Unknown,
            since,
            why,
        });
    }
}

/// Nodes that can have it mounted, and do not say.
fn silent_nodes(
    base: &Base,
    nodes: &[NodeView<'_>],
    subject: &Subject,
    reach: &Reach,
    rows: &[AttachmentRow],
    gaps: &mut Vec<Gap>,
) {
    if subject.storages.is_err() {
        return;
    }
    gaps.extend(base.gaps());
    let on_node = |name: &str| rows.iter().any(|row| row.node == name);
    let mut silent: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| can_have(reach, node.name)) {
        unclean_gap(node, gaps);
        match node.report.mark() {
            "" => {
                let is_cut = node.status.is_none_or(|it| it.truncated.stale);
                if is_cut {
                    let text = "the list of stale mounts is cut: this volume may be in it";
                    gaps.push(Gap::new(format!("node {}", node.name), text));
                }
            }
            _ if on_node(node.name) || matches!(reach, Reach::One(_)) => gaps.push(Gap::new(
                format!("node {}", node.name),
                format!("{}: what is mounted there now is not known", node.report.why()),
            )),
            _ => silent.entry(node.report.why()).or_default().push(node.name),
        }
    }
    for (why, names) in silent {
        gaps.push(Gap::new(
            names.join(", "),
            format!("{why}: whether the volume is still mounted there is not known"),
        ));
    }
}

/// A node that reports, and does not say what it has.
fn unclean_gap(node: &NodeView<'_>, gaps: &mut Vec<Gap>) {
    let is_cut = node.status.is_some_and(|it| it.truncated.remaining);
    let text = match (clean(node), node.quarantine) {
        (Clean::Yes, _) => return,
        (Clean::No, Some(_)) if !remaining(node).is_empty() && !is_cut => return,
        (Clean::No, None) if !is_cut => return,
        (Clean::No, _) if is_cut => {
            "the list of what is left of pods is cut: this volume may be in it".to_owned()
        }
        (Clean::No, _) => {
            let (reason, message) = word(node);
            format!("in quarantine: {reason}: {message}")
        }
        // Otherwise it does not report, which is said.
        (Clean::Unknown, _) if node.report == Report::Current => {
            let (reason, message) = word(node);
            format!("{reason}: {message}: whether it has a mount without a pod is not known")
        }
        (Clean::Unknown, _) => return,
    };
    gaps.push(Gap::new(format!("node {}", node.name), text));
}
