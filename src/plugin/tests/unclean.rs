//! Nodes in quarantine, what is left on them, and how bad that is.

use serde_json::{Value, json};

use crate::objects::StorageRecord;
use crate::render;
use crate::tests::{
    attached, attachments, base, named, node, overview, pod, report, shown, stale_mount, subject,
    volume,
};
use crate::view::Base;
use crate::view::claims::Named;
use crate::view::nodes::nodes;
use crate::view::unclean::{VolumeUse, unclean, without_paths};
use diskvitals_terminal::fixture::screen;
use diskvitals_terminal::verdict::Verdict;

const MOUNT: &str = "/var/lib/kubelet/pods/gone-1/volumes/kubernetes.io~csi/pv-1/mount";

/// node-1 is in quarantine and answers this; node-2 is good.
fn quarantined(clean: &Value, more: Value) -> Base {
    quarantine_of(report("node-1", with_condition(clean, more)))
}

fn with_condition(clean: &Value, mut more: Value) -> Value {
    more["conditions"] = json!([report("n", json!({}))["status"]["conditions"][0], clean]);
    more
}

fn quarantine_of(mut object: Value) -> Base {
    object["spec"]["quarantine"] =
        json!({"id": "q-1", "since": "2026-03-01T11:30:00Z", "podUIDs": ["gone-1"]});
    if object["status"]["observedQuarantine"].is_null() {
        object["status"]["observedQuarantine"] = json!("q-1");
    }
    let nodes = vec![node("node-1", "True"), node("node-2", "True")];
    base(vec![object, report("node-2", json!({}))], nodes)
}

fn entry(reason: &str, message: &str, volumes: &[&str]) -> Value {
    json!({"podUID": "gone-1", "reason": reason, "message": message, "persistentVolumes": volumes})
}

/// A process keeps the mount of a pod whose successor runs on node-2.
fn held() -> Base {
    let message = format!("{MOUNT}: 9151 (sleep) has {MOUNT}/db/log open");
    let clean = attachments("False", "Held", "…; end the process, or restart the node");
    quarantined(&clean, json!({"remaining": [entry("Held", &message, &["pv-1"])]}))
}

/// The claim's pod runs on this node.
fn used_on(node: &str) -> Named {
    let anywhere = volume(json!({"nodeAffinity": null}));
    Named {
        volumes: Ok([("pv-1".to_owned(), anywhere)].into()),
        pods: [("shop".to_owned(), Ok(vec![pod("db-0", node)]))].into(),
        ..named()
    }
}

#[test]
fn a_held_mount_whose_claim_is_used_elsewhere_is_critical_and_says_by_what() {
    let view = overview(&held(), &used_on("node-2"));
    assert_eq!(view.verdict(), Verdict::Critical);
    insta::assert_snapshot!(shown(&held(), &used_on("node-2")));
    // Without another writer it is a warning.
    assert_eq!(overview(&held(), &used_on("node-1")).verdict(), Verdict::Warning);
    let mut shared = used_on("node-2");
    let many = volume(json!({"nodeAffinity": null, "accessModes": ["ReadWriteMany"]}));
    shared.volumes = Ok([("pv-1".to_owned(), many)].into());
    assert_eq!(overview(&held(), &shared).verdict(), Verdict::Warning);
    let mut waiting = used_on("node-2");
    let mut pending = pod("db-0", "node-2");
    pending.ready.word = "Pending".into();
    waiting.pods = [("shop".to_owned(), Ok(vec![pending]))].into();
    assert_eq!(overview(&held(), &waiting).verdict(), Verdict::Warning);
    // What only its mount is left of does not write.
    let clean = attachments("False", "Failed", "m");
    let left = json!({"remaining": [entry("Failed", "m", &["pv-1"])]});
    let failed = quarantined(&clean, left);
    assert_eq!(overview(&failed, &used_on("node-2")).verdict(), Verdict::Warning);
}

#[test]
fn a_node_is_good_only_if_it_is_proven_clean() {
    let verdict = |base: &Base| overview(base, &named()).verdict();
    let alone = |more: Value| base(vec![report("node-1", more)], vec![node("node-1", "True")]);
    let with = |clean: Value| alone(with_condition(&clean, json!({})));
    assert_eq!(verdict(&alone(json!({}))), Verdict::Good);
    let stale = with(attachments("False", "StaleAttachments", "mounts of deleted pods: 1"));
    assert_eq!(verdict(&stale), Verdict::Warning);
    let unknown = with(attachments("Unknown", "KubeletFolderUnreadable", "EIO"));
    assert_eq!(verdict(&unknown), Verdict::Unknown);
    let text = shown(&unknown, &named());
    assert!(text.contains("KubeletFolderUnreadable") && text.contains("EIO"), "{text}");
    assert!(text.contains("UNKNOWN  1 node: 1 unknown\n"), "{text}");
    assert_eq!(
        verdict(&with(
            json!({"type": "Other", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-03-01T11:45:00Z"})
        )),
        Verdict::Unknown
    );
    // A list that contradicts the condition.
    assert_eq!(verdict(&alone(json!({"stale": [stale_mount()]}))), Verdict::Warning);
    // Also while the controller has not ended the quarantine, and without a report.
    let proven = quarantined(&attachments("True", "ProvenClean", "nothing"), json!({}));
    assert_eq!(verdict(&proven), Verdict::Warning);
    let mut silent = quarantined(&attachments("True", "ProvenClean", "nothing"), json!({}));
    silent.storages[0].status = None;
    assert_eq!(verdict(&silent), Verdict::Warning);
    // One of a deleted Node is no node's.
    let mut deleted = held();
    deleted.nodes.as_mut().expect("read").remove("node-1");
    assert_eq!(verdict(&deleted), Verdict::Good);
}

#[test]
fn the_answer_to_another_quarantine_is_none() {
    let clean = attachments("True", "ProvenClean", "nothing is left");
    let base = quarantined(&clean, json!({"observedQuarantine": "q-0"}));
    let rows = unclean(&nodes(&base), &named());
    assert_eq!((rows.len(), rows[0].reason.as_str()), (1, "NoAnswer"));
    assert_eq!(rows[0].message, "the node has not answered this quarantine");
}

#[test]
fn a_quarantine_of_a_newer_version_is_one() {
    let odd = json!({"metadata": {"name": "n"}, "spec": {"quarantine": {"id": 7}}});
    assert!(StorageRecord::from(odd).quarantine.is_some());
    let none = json!({"metadata": {"name": "n"}, "spec": {"quarantine": null}});
    assert!(StorageRecord::from(none).quarantine.is_none());
}

#[test]
fn attachments_have_what_a_node_holds_without_a_pod_or_an_attachment() {
    let mut subject = subject();
    subject.volume = Ok(volume(json!({"nodeAffinity": null})));
    subject.pods = Ok(vec![pod("db-0", "node-2")]);
    subject.needs_attach = Ok(Some(true));
    insta::assert_snapshot!(attached(&held(), &subject));
    // Which volume is meant is not known: it may be this one.
    let clean = attachments("False", "Held", "m");
    let process = entry("Held", "812 (mysqld) runs in its container", &[]);
    let any = quarantined(&clean, json!({"remaining": [process]}));
    let text = attached(&any, &subject);
    assert!(
        text.contains("unknown") && text.contains("which volumes it has is not known"),
        "{text}"
    );
    // Another volume's is not listed.
    let other = entry("Held", "m", &["pv-2"]);
    let text = attached(&quarantined(&clean, json!({"remaining": [other]})), &subject);
    assert!(!text.contains("node-1"), "{text}");
    // The list is cut, or there is no answer.
    let cut =
        json!({"remaining": [entry("Held", "m", &["pv-2"])], "truncated": {"remaining": true}});
    let text = attached(&quarantined(&clean, cut), &subject);
    assert!(
        text.contains("not seen:  node node-1: the list of what is left of pods is cut"),
        "{text}"
    );
    let silent = quarantined(&attachments("False", "NoAnswer", "gone"), json!({}));
    let text = attached(&silent, &subject);
    assert!(text.contains("not seen:  node node-1: in quarantine: NoAnswer: gone"), "{text}");
    // Its last word is not forgotten when its node is deleted.
    let mut deleted = held();
    deleted.nodes.as_mut().expect("read").remove("node-1");
    let text = attached(&deleted, &subject);
    assert!(text.contains("9151 (sleep)") && text.contains("node deleted"), "{text}");
}

#[test]
fn attachments_name_each_node_that_could_not_be_asked_and_why() {
    let mut subject = subject();
    subject.volume = Ok(volume(json!({"nodeAffinity": null})));
    let names: Vec<String> = (0..9).map(|at| format!("node-{at}")).collect();
    let mut all: Vec<_> = names.iter().map(|name| node(name, "True")).collect();
    all[8] = node("node-8", "Unknown");
    let base = base(Vec::new(), all);
    let text = attached(&base, &subject);
    for name in &names {
        assert!(text.contains(name.as_str()), "{name}: {text}");
    }
    assert!(text.contains("no reporter's pod is on it") && text.contains("NodeStatusUnknown"));
}

#[test]
fn the_list_of_stale_mounts_names_the_claim_instead_of_its_path() {
    let base = base(
        vec![report("node-1", json!({"stale": [stale_mount()]}))],
        vec![node("node-1", "True")],
    );
    let rows = crate::view::claims::stale(&nodes(&base), &used_on("node-2"));
    insta::assert_snapshot!(render::stale(&rows, false, &screen(None)), @"
    NODE    CLAIM      VOLUME  ROLE  SINCE    WHY
    node-1  shop/data  pv-1    Pod   2 h ago  no pod has it; shop/db-0 on node-2 uses it too
    ");
}

#[test]
fn paths_of_the_kubelet_are_shown_as_the_claim() {
    let volume = |name: &str, claim: &str| VolumeUse {
        volume: name.into(),
        claim: claim.into(),
        used_by: Vec::new(),
    };
    let one = [volume("pv-1", "shop/data")];
    let staged = "/var/lib/kubelet/plugins/kubernetes.io/csi/d/0a1b/globalmount";
    for (text, expected) in [
        (format!("{MOUNT}: used"), "shop/data: used".to_owned()),
        (format!("7 (sh) has {MOUNT}/a open"), "7 (sh) has shop/data/a open".to_owned()),
        (format!("{staged} does not respond"), "shop/data does not respond".to_owned()),
        ("/srv/data hangs".to_owned(), "/srv/data hangs".to_owned()),
        (
            "/var/lib/kubelet/pods/u/volumes/x/pv-10/mount".to_owned(),
            "/var/lib/kubelet/pods/u/volumes/x/pv-10/mount".to_owned(),
        ),
    ] {
        assert_eq!(without_paths(&text, &one), expected);
    }
    let two = [volume("pv-2", ""), volume("pv-1", "shop/data")];
    assert_eq!(without_paths(staged, &two), staged);
    assert_eq!(without_paths(MOUNT, &two), "shop/data");
}
