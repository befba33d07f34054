use crate::model::cleanup::{Action, Plan, Refusal, Wanted, plan};
use crate::model::fixture::*;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::report::{Report, Source, SourceStatus};
use crate::model::snapshot::{Snapshot, Volume};
use crate::model::stale::{Attachment, GRACE};
use crate::model::storage;

const GRACE_SECONDS: i64 = GRACE.as_secs() as i64;
const K: &str = "/var/lib/kubelet";

fn target(uid: &str) -> String {
    format!("{K}/pods/{uid}/volumes/kubernetes.io~csi/pv-h/mount")
}

fn staging() -> String {
    format!("{K}/plugins/kubernetes.io/csi/d/0af/globalmount")
}

/// One volume, staged and published to the pods of which `mounts` are, and what the kubelet has
/// written down of it.
fn world(mounts: &[&str], recorded: &[(&str, &str)]) -> World {
    let mut world = World::default()
        .disk("sda", "8:0", "A")
        .uuid("sda", "u-1")
        .mounted("8:0", "/", &staging(), "ext4", "/dev/sda");
    for path in mounts {
        world = world.mounted("8:0", "/", path, "ext4", "/dev/sda");
    }
    world.csi("d", "h", Some(&staging()), recorded)
}

fn picture(world: &World) -> Snapshot {
    let volume = |known: &crate::model::facts::KnownVolume| storage::tests::volume(known);
    Snapshot {
        settled: true,
        volumes: world
            .facts
            .volumes
            .iter()
            .map(|(id, known)| (id.clone(), volume(known).into()))
            .collect(),
        attachments: world.facts.attachments.clone(),
        surroundings: world.facts.surroundings.clone(),
        ..Snapshot::default()
    }
}

fn planned(snapshot: &Snapshot) -> Result<Plan, Refusal> {
    let volume: &Volume = snapshot.volumes.values().next().expect("one");
    plan(snapshot, Wanted::Volume(volume))
}

fn words(plan: &Plan) -> Vec<String> {
    plan.actions
        .iter()
        .map(|action| format!("{} {}", action.words(), action.path()))
        .collect()
}

#[test]
fn what_containers_have_goes_before_pods_and_these_before_what_is_staged() {
    let subpath = format!("{K}/pods/u1/volume-subpaths/pv-h/web/0");
    let (one, other) = (target("u1"), target("u2"));
    let mut world = world(&[&one, &other, &subpath], &[]);
    world.kubelet.volumes.clear();
    world.read_all(0);
    world.read_kubelet(GRACE_SECONDS);
    let plan = planned(&picture(&world)).expect("nobody uses it");
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
    assert_eq!(words(&plan), steps);
    assert!(!plan.ours);
}

#[test]
fn it_is_refused_while_a_pod_has_a_record() {
    let path = target("u1");
    let mut world = world(&[&path], &[("u1", &path)]);
    world.read_all(0);
    let refused = planned(&picture(&world)).expect_err("in use");
    assert!(
        matches!(&refused, Refusal::InUse { path: at, by } if *at == HostPath::from(path.as_str()) && by.contains("pod default/pod-u1")),
        "{refused}"
    );
    // The record alone: its mount is gone.
    world.umount(&path);
    world.read_all(1);
    assert!(matches!(
        planned(&picture(&world)),
        Err(Refusal::InUse { .. })
    ));
    // And the folder of logs alone.
    world.kubelet.volumes[0].publications.clear();
    world = world.mounted("8:0", "/", &path, "ext4", "/dev/sda");
    world.read_all(2);
    assert!(matches!(
        planned(&picture(&world)),
        Err(Refusal::InUse { .. })
    ));
    world.kubelet.pods.clear();
    world.read_all(3);
    world.read_kubelet(2 + GRACE_SECONDS);
    let refused = planned(&picture(&world)).expect_err("the pod has only just gone");
    assert!(
        matches!(&refused, Refusal::Fresh { since, .. } if *since == at(3)),
        "{refused}"
    );
    world.read_kubelet(3 + GRACE_SECONDS);
    planned(&picture(&world)).expect("only the kubelet's own record of the staging is left");
}

#[test]
fn it_is_refused_while_nobody_can_tell_whether_a_pod_has_it() {
    let path = target("u1");
    let mut world = world(&[&path], &[]);
    world.read_all(0);
    let mut snapshot = picture(&world);
    let down = (
        SourceStatus::Down("reading /var/lib/kubelet: permission denied".into()),
        at(0),
    );
    std::sync::Arc::make_mut(&mut snapshot.node)
        .sources
        .insert(Source::Kubelet, down);
    assert!(matches!(planned(&snapshot), Err(Refusal::Blind(_))));
    snapshot.node = Default::default();
    snapshot.settled = false;
    assert!(matches!(planned(&snapshot), Err(Refusal::Blind(_))));
    // A reading that fails leaves what was known: nothing was known of this one.
    world.tell(Report::Kubelet(Observation::failed(at(1), "no")), 1);
    assert!(
        world
            .facts
            .attachments
            .values()
            .all(|it| it.stale().is_none())
    );
}

#[test]
fn without_a_kubelet_nothing_of_a_volume_is_known_to_be_unused() {
    let mut world = storage::tests::pool(Some(&staging()), &[&target("u1")]);
    world.scan(0);
    world.read_mounts(0);
    world.tell_provision(0);
    world.tell(Report::Kubelet(Observation::Unavailable), 0);
    world.read_mounts(100 * GRACE_SECONDS);
    let snapshot = picture(&world);
    let refused = plan(
        &snapshot,
        Wanted::Volume(snapshot.csi_volume("own", "v1").expect("there")),
    )
    .expect_err("nobody can tell");
    assert!(matches!(refused, Refusal::Untold(_)), "{refused}");
}

#[test]
fn a_place_of_which_the_kubelet_keeps_no_records_is_not_known_to_be_unused() {
    let mut world = storage::tests::pool(Some(&staging()), &["/srv/elsewhere"]);
    world.read_all(0);
    world.tell_provision(0);
    world.read_kubelet(GRACE_SECONDS);
    let snapshot = picture(&world);
    let refused = plan(
        &snapshot,
        Wanted::Volume(snapshot.csi_volume("own", "v1").expect("there")),
    )
    .expect_err("nobody can tell");
    assert!(
        matches!(&refused, Refusal::Untold(path) if *path == HostPath::from("/srv/elsewhere")),
        "{refused}"
    );
}

#[test]
fn one_place_is_one_place_and_what_lies_elsewhere_is_never_touched() {
    let (one, other) = (target("u1"), target("u2"));
    let mut world = world(&[&one, &other, "/srv/bind"], &[("u2", &other)]);
    world.read_all(0);
    let fresh = picture(&world);
    let place = Wanted::Place(&fresh.attachments[&HostPath::from(one.as_str())]);
    assert!(
        matches!(plan(&fresh, place), Err(Refusal::Fresh { .. })),
        "its pod may only just be coming"
    );
    world.read_kubelet(GRACE_SECONDS);
    let snapshot = picture(&world);
    let attachment: &Attachment = &snapshot.attachments[&HostPath::from(one.as_str())];
    let plan = plan(&snapshot, Wanted::Place(attachment)).expect("its pod is gone");
    assert_eq!(plan.mounts, [HostPath::from(one.as_str())]);
    assert!(
        matches!(planned(&snapshot), Err(Refusal::InUse { .. })),
        "the other pod has it"
    );
    let staged = &snapshot.attachments[&HostPath::from(staging().as_str())];
    assert!(
        matches!(
            super::plan(&snapshot, Wanted::Place(staged)),
            Err(Refusal::InUse { .. })
        ),
        "what is staged is the other pod's as well"
    );
}

#[test]
fn a_volume_of_ours_gives_its_loop_device_back() {
    let mut world = storage::tests::pool(Some(&staging()), &[]);
    world.read_all(0);
    world.tell_provision(0);
    world.read_kubelet(GRACE_SECONDS);
    let snapshot = picture(&world);
    let plan = plan(
        &snapshot,
        Wanted::Volume(snapshot.csi_volume("own", "v1").expect("there")),
    )
    .expect("nobody uses it");
    assert_eq!(
        plan.actions.last(),
        Some(&Action::Detach {
            image: "/pool/images/v1.img".into()
        })
    );
    assert!(plan.ours && plan.target == "v1");
    let idle = plan_of_idle();
    assert!(matches!(idle, Err(Refusal::Nothing(_))));
}

fn plan_of_idle() -> Result<Plan, Refusal> {
    let mut world = storage::tests::pool(None, &[]);
    world.read_all(0);
    world.tell_provision(0);
    let snapshot = picture(&world);
    plan(
        &snapshot,
        Wanted::Volume(snapshot.csi_volume("own", "v1").expect("there")),
    )
}
