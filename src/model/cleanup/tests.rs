use crate::cleanup::{
    CleanupAction, CleanupError, CleanupPlan, CleanupTarget, Grace, plan as plan_with,
};
use crate::fixture::*;
use crate::snapshot::{Snapshot, Volume};
use crate::source_update::{SourceStatus, SourceUpdate};
use crate::stale::{Attachment, GRACE};
use crate::storage;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::source::Source;

const GRACE_SECONDS: i64 = GRACE.as_secs() as i64;
const K: &str = "/var/lib/kubelet";

fn plan(snapshot: &Snapshot, wanted: CleanupTarget<'_>) -> Result<CleanupPlan, CleanupError> {
    plan_with(snapshot, wanted, Grace::Required)
}

fn target(uid: &str) -> String {
    format!("{K}/pods/{uid}/volumes/kubernetes.io~csi/pv-h/mount")
}

fn staging() -> String {
    format!("{K}/plugins/kubernetes.io/csi/d/0af/globalmount")
}

/// One volume, staged and published to the pods of which `mounts` are, and what the kubelet has
/// written down of it.
fn host(mounts: &[&str], recorded: &[(&str, &str)]) -> TestHost {
    let mut host = TestHost::default().disk("sda", "8:0", "A").uuid("sda", "u-1").mounted(
        "8:0",
        "/",
        &staging(),
        "ext4",
        "/dev/sda",
    );
    for path in mounts {
        host = host.mounted("8:0", "/", path, "ext4", "/dev/sda");
    }
    host.csi("d", "h", Some(&staging()), recorded)
}

fn snapshot_of(host: &TestHost) -> Snapshot {
    let volume = |known: &crate::facts::KnownVolume| storage::tests::volume(known);
    Snapshot {
        settled: true,
        volumes: host
            .facts
            .volumes
            .iter()
            .map(|(id, known)| (id.clone(), volume(known).into()))
            .collect(),
        attachments: host.facts.attachments.clone(),
        node_context: host.facts.node_context.clone(),
        ..Snapshot::default()
    }
}

fn planned(snapshot: &Snapshot) -> Result<CleanupPlan, CleanupError> {
    let volume: &Volume = snapshot.volumes.values().next().expect("one");
    plan(snapshot, CleanupTarget::Volume(volume))
}

fn descriptions(plan: &CleanupPlan) -> Vec<String> {
    plan.actions
        .iter()
        .map(|action| format!("{} {}", action.description(), action.path()))
        .collect()
}

#[test]
fn subpaths_are_unmounted_before_pod_mounts_and_those_before_staging() {
    let subpath = format!("{K}/pods/u1/volume-subpaths/pv-h/web/0");
    let (one, other) = (target("u1"), target("u2"));
    let mut host = host(&[&one, &other, &subpath], &[]);
    host.kubelet.volumes.clear();
    host.read_all(0);
    host.read_kubelet(GRACE_SECONDS);
    let plan = planned(&snapshot_of(&host)).expect("nobody uses it");
    let folder = |path: &str| path.trim_end_matches("/mount").to_owned();
    let steps = [
        format!("unmount {subpath}"),
        format!("remove {subpath}"),
        format!("remove if empty {K}/pods/u1/volume-subpaths/pv-h/web"),
        format!("unmount {other}"),
        format!("remove {other}"),
        format!("remove if empty {}", folder(&other)),
        format!("unmount {one}"),
        format!("remove {one}"),
        format!("remove if empty {}", folder(&one)),
        format!("unmount {}", staging()),
        format!("remove {}", staging()),
        format!("remove if empty {K}/plugins/kubernetes.io/csi/d/0af"),
    ];
    assert_eq!(descriptions(&plan), steps);
    assert!(!plan.is_provided);
}

#[test]
fn cleanup_is_refused_while_a_pod_has_a_record() {
    let path = target("u1");
    let mut host = host(&[&path], &[("u1", &path)]);
    host.read_all(0);
    let refused = planned(&snapshot_of(&host)).expect_err("in use");
    assert!(
        matches!(&refused, CleanupError::InUse { path: at, by } if *at == HostPath::from(path.as_str()) && by.contains("pod default/pod-u1")),
        "{refused}"
    );
    // The record alone: its mount is gone.
    host.umount(&path);
    host.read_all(1);
    assert!(matches!(planned(&snapshot_of(&host)), Err(CleanupError::InUse { .. })));
    // And the folder of logs alone.
    host.kubelet.volumes[0].publications.clear();
    host = host.mounted("8:0", "/", &path, "ext4", "/dev/sda");
    host.read_all(2);
    assert!(matches!(planned(&snapshot_of(&host)), Err(CleanupError::InUse { .. })));
    host.kubelet.pods.clear();
    host.read_all(3);
    host.read_kubelet(2 + GRACE_SECONDS);
    let refused = planned(&snapshot_of(&host)).expect_err("the pod has only just gone");
    assert!(
        matches!(&refused, CleanupError::WithinGrace { since, .. } if *since == at(3)),
        "{refused}"
    );
    host.read_kubelet(3 + GRACE_SECONDS);
    planned(&snapshot_of(&host)).expect("only the kubelet's own record of the staging is left");
}

#[test]
fn cleanup_is_refused_while_pod_use_is_unknown() {
    let path = target("u1");
    let mut host = host(&[&path], &[]);
    host.read_all(0);
    let mut snapshot = snapshot_of(&host);
    let down = (SourceStatus::Down("reading /var/lib/kubelet: permission denied".into()), at(0));
    std::sync::Arc::make_mut(&mut snapshot.node).sources.insert(Source::Kubelet, down);
    assert!(matches!(planned(&snapshot), Err(CleanupError::SnapshotIncomplete(_))));
    snapshot.node = Default::default();
    snapshot.settled = false;
    assert!(matches!(planned(&snapshot), Err(CleanupError::SnapshotIncomplete(_))));
    // A reading that fails leaves what was known: nothing was known of this one.
    host.apply(SourceUpdate::Kubelet(Observation::failed(at(1), "no")), 1);
    assert!(host.facts.attachments.values().all(|it| it.stale_cause().is_none()));
}

#[test]
fn without_a_kubelet_nothing_of_a_volume_is_known_to_be_unused() {
    let mut host = storage::tests::pool(Some(&staging()), &[&target("u1")]);
    host.scan(0);
    host.read_mounts(0);
    host.read_provision(0);
    host.apply(SourceUpdate::Kubelet(Observation::Unavailable), 0);
    host.read_mounts(100 * GRACE_SECONDS);
    let snapshot = snapshot_of(&host);
    let refused =
        plan(&snapshot, CleanupTarget::Volume(snapshot.csi_volume("own", "v1").expect("there")))
            .expect_err("nobody can tell");
    assert!(matches!(refused, CleanupError::UseUnknown(_)), "{refused}");
}

#[test]
fn use_of_a_path_without_kubelet_records_is_unknown() {
    let mut host = storage::tests::pool(Some(&staging()), &["/srv/elsewhere"]);
    host.read_all(0);
    host.read_provision(0);
    host.read_kubelet(GRACE_SECONDS);
    let snapshot = snapshot_of(&host);
    let refused =
        plan(&snapshot, CleanupTarget::Volume(snapshot.csi_volume("own", "v1").expect("there")))
            .expect_err("nobody can tell");
    assert!(
        matches!(&refused, CleanupError::UseUnknown(path) if *path == HostPath::from("/srv/elsewhere")),
        "{refused}"
    );
}

#[test]
fn cleaning_one_attachment_touches_nothing_else() {
    let (one, other) = (target("u1"), target("u2"));
    let mut host = host(&[&one, &other, "/srv/bind"], &[("u2", &other)]);
    host.read_all(0);
    let fresh = snapshot_of(&host);
    let place = CleanupTarget::Attachment(&fresh.attachments[&HostPath::from(one.as_str())]);
    assert!(
        matches!(plan(&fresh, place), Err(CleanupError::WithinGrace { .. })),
        "its pod may only just be coming"
    );
    host.read_kubelet(GRACE_SECONDS);
    let snapshot = snapshot_of(&host);
    let attachment: &Attachment = &snapshot.attachments[&HostPath::from(one.as_str())];
    let plan = plan(&snapshot, CleanupTarget::Attachment(attachment)).expect("its pod is gone");
    assert_eq!(plan.mounts, [HostPath::from(one.as_str())]);
    assert!(matches!(planned(&snapshot), Err(CleanupError::InUse { .. })), "the other pod has it");
    let staged = &snapshot.attachments[&HostPath::from(staging().as_str())];
    assert!(
        matches!(
            plan_with(&snapshot, CleanupTarget::Attachment(staged), Grace::Required),
            Err(CleanupError::InUse { .. })
        ),
        "what is staged is the other pod's as well"
    );
}

#[test]
fn cleanup_of_a_provided_volume_detaches_its_loop_device() {
    let mut host = storage::tests::pool(Some(&staging()), &[]);
    host.read_all(0);
    host.read_provision(0);
    host.read_kubelet(GRACE_SECONDS);
    let snapshot = snapshot_of(&host);
    let plan =
        plan(&snapshot, CleanupTarget::Volume(snapshot.csi_volume("own", "v1").expect("there")))
            .expect("nobody uses it");
    assert_eq!(
        plan.actions.last(),
        Some(&CleanupAction::Detach { image: "/pool/images/v1.img".into() })
    );
    assert!(plan.is_provided && plan.target == "v1");
    let idle = plan_of_idle();
    assert!(matches!(idle, Err(CleanupError::NothingAttached(_))));
}

fn plan_of_idle() -> Result<CleanupPlan, CleanupError> {
    let mut host = storage::tests::pool(None, &[]);
    host.read_all(0);
    host.read_provision(0);
    let snapshot = snapshot_of(&host);
    plan(&snapshot, CleanupTarget::Volume(snapshot.csi_volume("own", "v1").expect("there")))
}
