//! The view on recorded objects, as the screen shows it.

pub(crate) mod actions;
mod retained;
mod unclean;

use serde_json::{Value, json};

use std::collections::BTreeMap;

use crate::objects::actions::PolicyRecord;
use crate::objects::{
    AttachmentRecord, ClaimRecord, NodeRecord, PodRecord, StorageRecord, VolumeRecord,
};
use crate::render::overview::Overview;
use crate::tests::actions::record;
use crate::view::actions::{Remediation, actions as action_rows, policy};
use crate::view::attachments::{self as attachments_view, Subject};
use crate::view::claims::{self, Named};
use crate::view::fence::{fences, reach};
use crate::view::nodes::nodes;
use crate::view::{Base, Read, drives};
use crate::{render, summarize};
use diskvitals_cluster::node_storage::Health;
use diskvitals_terminal::fixture::screen;
use diskvitals_terminal::screen::Screen;
use diskvitals_terminal::verdict::Verdict;

/// The screen's now is 2026-03-01 12:00.
fn of<T: serde::de::DeserializeOwned, R: From<T>>(object: Value) -> R {
    R::from(serde_json::from_value(object).expect("an object"))
}

pub(crate) fn node(name: &str, ready: &str) -> NodeRecord {
    of::<k8s_openapi::api::core::v1::Node, _>(json!({
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "labels": {"kubernetes.io/hostname": name, "zone": "a"}},
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "NodeStatusUnknown", "lastTransitionTime": "2026-03-01T11:00:00Z"}]},
    }))
}

/// A current report of a good node.
pub(crate) fn report(name: &str, more: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name},
        "status": {
            "nodeUID": format!("uid-of-{name}"), "reportedAt": "2026-03-01T11:50:00Z", "health": "Good",
            "counts": {"drives": 2}, "driveIDs": ["naa.1", "naa.2"],
            "models": [{"model": "ST4000", "firmware": "SN05", "kind": "HDD", "count": 2}],
            "conditions": [{"type": "DaemonReachable", "status": "True", "reason": "Answers", "message": "", "lastTransitionTime": "2026-02-01T00:00:00Z"},
                attachments("True", "NothingStale", "")],
        },
    });
    for (key, value) in more.as_object().expect("an object") {
        object["status"][key] = value.clone();
    }
    object
}

/// The condition `AttachmentsClean`.
pub(crate) fn attachments(status: &str, reason: &str, message: &str) -> Value {
    json!({"type": "AttachmentsClean", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-03-01T11:45:00Z"})
}

pub(crate) fn bad_drive() -> Value {
    json!({"id": "naa.1", "name": "sda", "model": "ST4000", "serial": "ZDH1", "enclosure": "0x5", "slot": "Slot 07",
        "health": "Bad", "reason": "MediaErrors", "since": "2026-03-01T09:00:00Z"})
}

pub(crate) fn bad_volume() -> Value {
    json!({"driver": "csi.diskvitals.io", "handle": "dv-1", "persistentVolume": "pv-1", "health": "Bad", "driveIDs": ["naa.1"],
        "redundant": false, "since": "2026-03-01T09:00:00Z",
        "healthConditions": [{"status": "Degraded", "reason": "A", "message": "a"}, {"status": "Inaccessible", "reason": "MediaErrors", "message": "sectors cannot be read"}, {"status": "Inaccessible", "reason": "Milder", "message": "b"}]})
}

pub(crate) fn stale_mount() -> Value {
    json!({"driver": "csi.diskvitals.io", "handle": "dv-1", "persistentVolume": "pv-1", "podUID": "gone-1",
        "path": "/var/lib/kubelet/pods/gone-1/volumes/kubernetes.io~csi/pv-1/mount", "role": "Pod", "since": "2026-03-01T10:00:00Z", "reason": "no pod has it"})
}

pub(crate) fn base(storages: Vec<Value>, nodes: Vec<NodeRecord>) -> Base {
    Base {
        now: screen(None).now,
        storages: storages.into_iter().map(StorageRecord::from).collect(),
        nodes: Ok(nodes.into_iter().map(|it| (it.name.clone(), it)).collect()),
        reporters: Ok(Vec::new()),
        is_selected: false,
    }
}

pub(crate) fn volume(more: Value) -> VolumeRecord {
    let mut object = json!({
        "metadata": {"name": "pv-1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "csi": {"driver": "csi.diskvitals.io", "volumeHandle": "dv-1"},
            "claimRef": {"namespace": "shop", "name": "data", "uid": "claim-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}}},
        "status": {"phase": "Bound"},
    });
    for (key, value) in more.as_object().expect("an object") {
        object["spec"][key] = value.clone();
    }
    of::<k8s_openapi::api::core::v1::PersistentVolume, _>(object)
}

pub(crate) fn claim(uid: &str) -> ClaimRecord {
    ClaimRecord {
        namespace: "shop".into(),
        name: "data".into(),
        uid: uid.into(),
        volume: "pv-1".into(),
        deleting: None,
    }
}

pub(crate) fn pod(name: &str, node: &str) -> PodRecord {
    of::<k8s_openapi::api::core::v1::Pod, _>(json!({
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-of-{name}")},
        "spec": {"nodeName": node, "containers": [], "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]},
        "status": {"phase": "Running"},
    }))
}

pub(crate) fn named() -> Named {
    Named {
        volumes: Ok([("pv-1".to_owned(), volume(json!({})))].into()),
        claims: [(("shop".to_owned(), "data".to_owned()), Ok(Some(claim("claim-1"))))].into(),
        pods: [("shop".to_owned(), Ok(vec![pod("db-0", "node-1")]))].into(),
    }
}

pub(crate) fn overview(base: &Base, named: &Named) -> Overview {
    let nothing = Remediation { actions: Ok(Vec::new()), policies: Ok(Vec::new()) };
    overview_with(base, named, &nothing)
}

fn overview_with(base: &Base, named: &Named, remediation: &Remediation) -> Overview {
    overview_of_pods(base, named, remediation, Ok(Vec::new()))
}

fn overview_of_pods(
    base: &Base,
    named: &Named,
    remediation: &Remediation,
    ending: Read<Vec<PodRecord>>,
) -> Overview {
    summarize("lab", "https://192.0.2.1:6443", base, &nodes(base), named, remediation, &ending)
}

pub(crate) fn shown(base: &Base, named: &Named) -> String {
    render::overview::screen(
        &overview(base, named),
        false,
        &Screen { width: Some(120), ..screen(None) },
    )
}

/// One node alone, and what the view says about its report.
fn judged(storage: Value, node: NodeRecord) -> (Health, String) {
    let base = base(vec![storage], vec![node]);
    let views = nodes(&base);
    (views[0].health, views[0].report.why())
}

#[test]
fn the_screen_has_the_dying_drive_the_silent_node_and_the_stale_mount() {
    let storages = vec![
        report(
            "node-1",
            json!({"health": "Bad", "drives": [bad_drive()], "volumes": [bad_volume()], "stale": [stale_mount()], "counts": {"stale": 1}}),
        ),
        report("node-2", json!({"reportedAt": "2026-03-01T10:50:00Z"})),
        report("node-3", json!({})),
    ];
    let base = base(
        storages,
        vec![node("node-1", "True"), node("node-2", "Unknown"), node("node-3", "True")],
    );
    insta::assert_snapshot!(shown(&base, &named()));
    assert_eq!(overview(&base, &named()).verdict(), Verdict::Critical);
}

#[test]
fn a_cluster_of_good_nodes_is_good_and_nothing_else_is_said() {
    let base = base(vec![report("node-3", json!({}))], vec![node("node-3", "True")]);
    insta::assert_snapshot!(shown(&base, &named()), @"
    lab  https://192.0.2.1:6443
    GOOD  1 node: 1 good
    ");
}

#[test]
fn a_node_that_never_reported_is_unknown() {
    let nodes = vec![node("node-3", "True"), node("node-4", "True")];
    let mut some = base(vec![report("node-3", json!({}))], nodes);
    assert_eq!(overview(&some, &named()).verdict(), Verdict::Unknown);
    some.nodes = Err("403 forbidden".into());
    assert_eq!(overview(&some, &named()).verdict(), Verdict::Unknown);
    assert!(shown(&some, &named()).contains("at least 1 node"));
    let nobody = base(Vec::new(), Vec::new());
    assert_eq!(overview(&nobody, &named()).verdict(), Verdict::Unknown);
}

#[test]
fn nothing_good_is_believed_that_is_not_proven() {
    let ready = || node("n", "True");
    let cases = [
        (report("n", json!({"health": "Splendid"})), ""),
        (
            report("n", json!({"nodeUID": "another"})),
            "the report is of an earlier node of this name (uid another)",
        ),
        (
            report("n", json!({"nodeUID": ""})),
            "the report names no uid of a Node: it may be of another node",
        ),
        (report("n", json!({"reportedAt": null})), "the report has no time"),
        (report("n", json!({"reportedAt": "2026-03-01T11:00:00Z"})), "no reporter's pod is on it"),
        (
            report("n", json!({"reportedAt": "2026-03-01T14:00:00Z"})),
            "the report's time is 2 h ahead of the API server's: a clock is wrong, and whether the report is new is not known",
        ),
        (
            report("n", json!({"conditions": []})),
            "the report does not say whether the node's daemon answers",
        ),
        (
            report(
                "n",
                json!({"conditions": [{"type": "DaemonReachable", "status": "False", "reason": "NoAnswer", "message": "", "lastTransitionTime": "2026-03-01T11:00:00Z"}]}),
            ),
            "its daemon does not answer (NoAnswer)",
        ),
        (
            report(
                "n",
                json!({"conditions": [{"type": "DaemonReachable", "status": "False", "reason": "Withdrawn", "message": "", "lastTransitionTime": "2026-03-01T11:00:00Z"}]}),
            ),
            "diskvitals was withdrawn from it",
        ),
        (
            json!({"metadata": {"name": "n"}}),
            "its object has no status; no reporter's pod is on it",
        ),
    ];
    for (storage, why) in cases {
        assert_eq!(
            judged(storage.clone(), ready()),
            (Health::Unknown, why.to_owned()),
            "{storage}"
        );
    }
    let (health, why) = judged(report("n", json!({"drives": "none"})), ready());
    assert!(
        health == Health::Unknown && why.starts_with("this version cannot read its report"),
        "{why}"
    );
    assert_eq!(judged(report("n", json!({})), ready()), (Health::Good, String::new()));
}

#[test]
fn a_bad_health_stays_bad_when_the_node_falls_silent() {
    let storage = report("n", json!({"health": "Bad", "reportedAt": "2026-03-01T10:00:00Z"}));
    assert_eq!(judged(storage, node("n", "True")).0, Health::Bad);
}

#[test]
fn a_node_that_is_not_ready_counts_as_silent_unless_it_reported_since() {
    let old = report("n", json!({"reportedAt": "2026-03-01T10:59:00Z"}));
    assert_eq!(
        judged(old, node("n", "False")),
        (Health::Unknown, "the Node is not Ready (NodeStatusUnknown)".to_owned())
    );
    assert_eq!(judged(report("n", json!({})), node("n", "False")).0, Health::Good);
}

#[test]
fn a_reporter_that_is_away_for_ten_minutes_makes_its_node_silent() {
    let reporter = |since: &str| PodRecord {
        namespace: "storage".into(),
        name: "report-1".into(),
        node: "n".into(),
        ready: crate::objects::Ready {
            is_true: false,
            reason: "CrashLoopBackOff".into(),
            since: Some(since.parse().expect("a time")),
            ..Default::default()
        },
        ..PodRecord::default()
    };
    for (since, health) in
        [("2026-03-01T11:49:59Z", Health::Good), ("2026-03-01T11:55:00Z", Health::Good)]
    {
        let mut base = base(vec![report("n", json!({}))], vec![node("n", "True")]);
        base.reporters = Ok(vec![reporter(since)]);
        assert_eq!(nodes(&base)[0].health, health, "{since}");
    }
    let mut base = base(
        vec![report("n", json!({"reportedAt": "2026-03-01T11:40:00Z"}))],
        vec![node("n", "True")],
    );
    base.reporters = Ok(vec![reporter("2026-03-01T11:45:00Z")]);
    let views = nodes(&base);
    assert_eq!(
        (views[0].health, views[0].report.why()),
        (
            Health::Unknown,
            "its reporter's pod storage/report-1 is not ready (CrashLoopBackOff)".to_owned()
        )
    );
}

#[test]
fn a_report_of_a_deleted_node_is_kept_apart() {
    let storages = vec![
        report("gone", json!({"health": "Bad", "drives": [bad_drive()]})),
        report("node-3", json!({})),
    ];
    let base = base(storages, vec![node("node-3", "True")]);
    let view = overview(&base, &named());
    assert_eq!(view.verdict(), Verdict::Good);
    assert!(view.drives_to_replace.is_empty());
    let rows = drives::drives(&nodes(&base), false);
    assert_eq!(rows[0].report.mark(), "node deleted");
    assert!(shown(&base, &named()).contains("1 report of deleted or replaced nodes"));
}

#[test]
fn drives_that_are_put_aside_are_not_to_be_replaced() {
    let mut acknowledged = bad_drive();
    acknowledged["acknowledged"] = json!(true);
    let base = base(vec![report("n", json!({"drives": [acknowledged]}))], vec![node("n", "True")]);
    let view = overview(&base, &named());
    assert!(view.drives_to_replace.is_empty() && view.other_drives == 1);
    assert_eq!(view.verdict(), Verdict::Good);
}

#[test]
fn what_a_cut_list_does_not_name_is_unknown() {
    let cut = |is_cut: bool| {
        let storage = report(
            "n",
            json!({"drives": [bad_drive()], "health": "Bad", "truncated": {"drives": is_cut, "volumes": is_cut, "stale": is_cut}}),
        );
        let base = base(vec![storage], vec![node("n", "True")]);
        let healths: Vec<Health> =
            drives::drives(&nodes(&base), true).iter().map(|row| row.health).collect();
        (healths, overview(&base, &named()).gaps.len())
    };
    assert_eq!(cut(false), (vec![Health::Bad, Health::Good], 0));
    assert_eq!(cut(true), (vec![Health::Bad, Health::Unknown], 3));
}

#[test]
fn models_count_drives_and_bad_ones() {
    let two = json!([{"model": "ST4000", "firmware": "SN05", "kind": "HDD", "count": 1}, {"model": "ST4000", "firmware": "SN06", "kind": "HDD", "count": 1}]);
    let base = base(
        vec![
            report("a", json!({"drives": [bad_drive()], "health": "Bad"})),
            report("b", json!({"models": two, "drives": [bad_drive()], "health": "Bad"})),
        ],
        vec![node("a", "True"), node("b", "True")],
    );
    insta::assert_snapshot!(render::models(&drives::models(&nodes(&base)), false, &screen(None)), @"
    MODEL   FIRMWARE  KIND  DRIVES  BAD  SUSPECT  NODES
    ST4000  SN05      HDD   3       1    0        2
    ST4000  ?         -     0       1    0        0
    ST4000  SN06      HDD   1       0    0        1
    ");
}

fn claim_row(named: &Named, volume: Value) -> claims::ClaimRow {
    let base = base(
        vec![report("node-1", json!({"volumes": [volume], "health": "Bad"}))],
        vec![node("node-1", "True"), node("node-2", "True")],
    );
    claims::claims(&base, &nodes(&base), named).remove(0)
}

#[test]
fn a_claim_has_its_pods_and_doubtful_ones_say_why() {
    let row = claim_row(&named(), bad_volume());
    assert_eq!(
        (row.claim.as_str(), row.pods.as_slice(), row.remark.as_str()),
        ("data", &["db-0".to_owned()][..], "")
    );
    let with = |change: &dyn Fn(&mut Named)| {
        let mut named = named();
        change(&mut named);
        claim_row(&named, bad_volume()).remark
    };
    let volume_is = |more: Value| {
        with(&|named: &mut Named| {
            named.volumes = Ok([("pv-1".to_owned(), volume(more.clone()))].into())
        })
    };
    assert_eq!(volume_is(json!({"claimRef": null})), "no claim (Bound)");
    let elsewhere = json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2"]}]}]}}});
    assert_eq!(volume_is(elsewhere), "doubtful: the volume is pinned to node-2");
    let key = ("shop".to_owned(), "data".to_owned());
    assert_eq!(
        with(&|named| drop(named.claims.insert(key.clone(), Ok(Some(claim("other")))))),
        "its claim is deleted; another one has the name now"
    );
    assert_eq!(
        with(&|named| drop(named.claims.insert(key.clone(), Ok(None)))),
        "its claim is deleted (Bound)"
    );
    assert_eq!(with(&|named| named.claims.clear()), "whether its claim still exists is not known");
    assert_eq!(with(&|named| named.pods.clear()), "its pods are not known");
    assert_eq!(
        with(&|named| named.volumes = Ok(BTreeMap::new())),
        "there is no such PersistentVolume"
    );
    assert_eq!(
        with(&|named| named.volumes = Err("403".into())),
        "its claim is not known: PersistentVolumes cannot be read"
    );
}

#[test]
fn storage_that_a_node_does_not_reach_is_shown_with_the_pods_that_do_not_end_there() {
    let entry = |driver: &str, more: Value| {
        let mut entry = json!({"driver": driver, "reason": "ProbeTimeout", "message": "m", "volumes": 2, "since": "2026-03-01T11:00:00Z"});
        for (key, value) in more.as_object().expect("an object") {
            entry[key] = value.clone();
        }
        entry
    };
    let drivers = json!([
        entry("nfs.example.com", json!({})),
        entry("x.example.com", json!({"unknown": true, "reason": "StorageUnknown"})),
    ]);
    let storages = vec![
        report(
            "node-1",
            json!({"unreachableDrivers": drivers, "truncated": {"unreachableDrivers": true}}),
        ),
        report("node-2", json!({"unreachableDrivers": []})),
    ];
    let base = base(storages, vec![node("node-1", "True"), node("node-2", "True")]);
    let deleted = |name: &str, until: &str| {
        let mut pod = pod(name, "node-1");
        pod.deleting = Some(until.parse().expect("a time"));
        pod
    };
    let ending = vec![
        deleted("db-0", "2026-03-01T11:30:00Z"),
        deleted("still-in-time", "2026-03-01T12:00:20Z"),
    ];
    let nothing = || Remediation { actions: Ok(Vec::new()), policies: Ok(Vec::new()) };
    let shown = |ending: Read<Vec<PodRecord>>| {
        let view = overview_of_pods(&base, &named(), &nothing(), ending);
        let screen = Screen { width: Some(120), ..screen(None) };
        render::overview::screen(&view, false, &screen)
    };
    insta::assert_snapshot!(shown(Ok(ending)));
    let refused = shown(Err("403".into()));
    assert!(refused.contains("whether pods do not end there is not known"), "{refused}");
}

pub(crate) fn subject() -> Subject {
    Subject {
        volume: Ok(volume(json!({}))),
        claim: Ok(Some(claim("claim-1"))),
        volume_name: "pv-1".into(),
        pods: Ok(vec![pod("db-0", "node-1")]),
        attachments: Ok(Vec::new()),
        needs_attach: Ok(Some(false)),
        storages: Ok(()),
    }
}

pub(crate) fn attached(base: &Base, subject: &Subject) -> String {
    let view = attachments_view::view(base, &nodes(base), subject, "/var/lib/kubelet");
    render::attachments(&view, false, &screen(None))
}

#[test]
fn attachments_are_expected_by_pods_and_stale_by_nodes() {
    let base = base(
        vec![report("node-1", json!({"stale": [stale_mount()]})), report("node-2", json!({}))],
        vec![node("node-1", "True"), node("node-2", "True")],
    );
    insta::assert_snapshot!(attached(&base, &subject()));
}

#[test]
fn what_was_not_seen_of_attachments_is_said() {
    let mut subject = subject();
    subject.volume = Ok(volume(json!({"nodeAffinity": null, "accessModes": ["ReadWriteOncePod"]})));
    subject.needs_attach = Ok(Some(true));
    subject.attachments = Ok(vec![AttachmentRecord {
        name: "csi-1".into(),
        node: "node-2".into(),
        volume: "pv-1".into(),
        is_attached: true,
        ..Default::default()
    }]);
    let base = base(
        vec![report("node-1", json!({"truncated": {"stale": true}}))],
        vec![node("node-1", "True"), node("node-2", "True"), node("node-3", "True")],
    );
    insta::assert_snapshot!(attached(&base, &subject));
    subject.attachments = Err("403 a".into());
    subject.pods = Err("403 b".into());
    subject.volume = Err("403 c".into());
    subject.storages = Err("403 d".into());
    insta::assert_snapshot!(attached(&base, &subject));
}

#[test]
fn who_fences_a_second_writer() {
    let nodes = Ok([("node-1".to_owned(), node("node-1", "True"))].into());
    let fenced = |more: Value, needs: Read<Option<bool>>| {
        let volume = volume(more);
        let attachments = Ok(Vec::new());
        let lines = fences(&volume, &reach(&volume, &nodes), &attachments, &needs, &[]);
        lines.into_iter().map(|(who, text)| format!("{who}: {text}")).collect::<Vec<_>>().join("\n")
    };
    let anywhere = json!({"nodeAffinity": null});
    insta::assert_snapshot!([
        fenced(json!({}), Ok(Some(false))),
        fenced(json!({"accessModes": ["ReadWriteOncePod"]}), Ok(Some(false))),
        fenced(json!({"accessModes": ["ReadWriteMany"]}), Ok(Some(false))),
        fenced(anywhere.clone(), Ok(Some(true))),
        fenced(anywhere.clone(), Ok(None)),
        fenced(anywhere.clone(), Ok(Some(false))),
        fenced(anywhere, Err("403".into())),
        fenced(json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}}}), Ok(Some(false))),
        fenced(json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "n", "operator": "Near", "values": ["b"]}]}]}}}), Ok(Some(false))),
    ]
    .join("\n\n"));
}

#[test]
fn long_and_hostile_names_neither_control_the_terminal_nor_break_the_table() {
    let mut drive = bad_drive();
    drive["model"] = json!("\u{1b}[2J\u{202e}evil\nsecond line");
    drive["serial"] = json!("S".repeat(300));
    let name = "n".repeat(300);
    let base = base(
        vec![report(&name, json!({"drives": [drive], "health": "Bad"}))],
        vec![node(&name, "True")],
    );
    for width in [40, 80, 200] {
        let text = render::overview::screen(
            &overview(&base, &named()),
            false,
            &Screen { width: Some(width), ..screen(None) },
        );
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}') && !text.contains("\nsecond"),
            "{text}"
        );
    }
}

fn of_controller(status: Value, breaker: &str) -> Remediation {
    let object = json!({"metadata": {"name": "default"}, "spec": {"mode": "Propose"}, "status": {"observedGeneration": 1,
        "conditions": [{"type": "BreakerOpen", "status": breaker, "reason": "ManyDrives", "message": "7 drives went BAD", "lastTransitionTime": "2026-03-01T11:00:00Z"}]}});
    let claim = json!({"claim": {"name": "data", "uid": "claim-1"}});
    Remediation {
        actions: Ok(action_rows(&[record(claim, status)], screen(None).now)),
        policies: Ok(vec![policy(&PolicyRecord::from(object))]),
    }
}

fn stuck() -> Value {
    json!({"conditions": [{"type": "Stuck", "status": "True", "reason": "PodNotEvicted", "message": "the pod does not end", "lastTransitionTime": "2026-03-01T11:00:00Z"}]})
}

#[test]
fn the_screen_says_what_waits_for_a_person() {
    let storage = report(
        "node-1",
        json!({"health": "Bad", "drives": [bad_drive()], "volumes": [bad_volume()]}),
    );
    let base = base(vec![storage], vec![node("node-1", "True")]);
    let view = overview_with(&base, &named(), &of_controller(json!({}), "True"));
    let text = render::overview::screen(&view, false, &screen(None));
    for part in [
        "1 action waiting; 1 breaker open",
        "release waits for approval",
        "release-data-db-0-1",
        "opened 1 h ago by ManyDrives: 7 drives went BAD",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_stuck_action_or_an_open_breaker_is_a_warning_and_what_is_not_read_is_unknown() {
    let base = base(vec![report("n", json!({}))], vec![node("n", "True")]);
    let verdict = |remediation: &Remediation| overview_with(&base, &named(), remediation).verdict();
    assert_eq!(verdict(&of_controller(json!({}), "False")), Verdict::Good);
    assert_eq!(verdict(&of_controller(json!({}), "True")), Verdict::Warning);
    assert_eq!(verdict(&of_controller(stuck(), "False")), Verdict::Warning);
    let mut unread = of_controller(json!({}), "False");
    unread.actions = Err("403".into());
    assert_eq!(verdict(&unread), Verdict::Unknown);
    let text =
        render::overview::screen(&overview_with(&base, &named(), &unread), false, &screen(None));
    assert!(text.contains("whether an action waits or is stuck is not known"), "{text}");
}
