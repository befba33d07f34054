use proptest::prelude::*;

use super::*;
use crate::model::release::evidence::{former_hash, lines};
use crate::model::release::proposal::{evidence_update, is_same_intervention};
use diskvitals_cluster::storage_action::StorageActionSpec;

#[test]
fn people_read_which_drive_which_volume_and_what_would_take_over() {
    let cluster = Cluster::unproposed();
    insta::assert_snapshot!(lines(&candidate(), &cluster.evidence).join("\n"), @r"
    node a reports DriveOffline of drive naa.5000c500a1b2c3d4 (model M, serial S, slot 3) since 2027-01-15T07:10:00Z
    volume pv1 of claim shop/data-db-1 is inaccessible, and has no redundancy
    pod db-1 on node a is not Ready
    StatefulSet db wants 3 replicas and declares rejoins about empty members
    other members of app.kubernetes.io/instance=db that are Ready on good drives: db-0, db-2
    nodes with room for the new volume: b
    ");
}

#[test]
fn a_proposal_names_the_objects_by_uid_and_the_same_case_has_the_same_name() {
    let cluster = Cluster::unproposed();
    let first = proposal("default", &candidate(), &cluster.evidence).expect("all is known");
    let again = proposal("other", &candidate(), &cluster.evidence).expect("all is known");
    assert_eq!(first.name, again.name);
    assert!(first.name.starts_with("release-data-db-1-"), "{}", first.name);
    let after_boot = Candidate { boot_id: "later".into(), ..candidate() };
    let other = proposal("default", &after_boot, &cluster.evidence).expect("all is known");
    assert_ne!(first.name, other.name);
    let unread = Evidence { volume: Reading::default(), ..evidence() };
    assert_eq!(proposal("default", &candidate(), &unread), None);
    let mut action = ActionState { spec: first.spec, ..ActionState::default() };
    assert_eq!(evidence_update(&action, &candidate(), &evidence()), None);
    action.status.evidence_hash = "older".into();
    assert!(evidence_update(&action, &candidate(), &evidence()).is_some());
}

#[test]
fn an_action_of_an_earlier_version_is_recognized_by_its_objects() {
    let mut cluster = Cluster::approved();
    let new = cluster.action().spec.clone();
    // Another name and another hash, as an earlier version made them.
    let old = StorageActionSpec {
        evidence_hash: former_hash(&candidate(), &evidence()).expect("all is read"),
        approval: Approval::Rejected,
        ..new.clone()
    };
    assert!(is_same_intervention(&new, &old));
    type Break = fn(&mut StorageActionSpec);
    let changes: &[Break] = &[
        |it| it.claim.uid = "new".into(),
        |it| it.persistent_volume.name = "new".into(),
        |it| it.pod.uid = "new".into(),
        |it| it.node.uid = "new".into(),
        |it| it.node.boot_id = "new".into(),
        |it| it.drive.id = "new".into(),
        |it| it.finding.reason = "DriveMissing".into(),
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut other = old.clone();
        change(&mut other);
        assert!(!is_same_intervention(&new, &other), "change {at}");
    }
}

#[test]
fn an_approval_of_an_earlier_version_stays_and_what_waits_gets_the_new_hash() {
    let mut cluster = Cluster::approved();
    let former = former_hash(&candidate(), &evidence()).expect("all is read");
    assert_eq!(former.len(), 32);
    let spec = &mut cluster.action().spec;
    spec.approved_hash.clone_from(&former);
    spec.evidence_hash.clone_from(&former);
    assert_eq!(cluster.gates(), []);
    let action = cluster.action().clone();
    assert_eq!(evidence_update(&action, &candidate(), &evidence()), None);

    let mut waiting = action.clone();
    waiting.spec.approval = Approval::Pending;
    let update = evidence_update(&waiting, &candidate(), &evidence()).expect("another hash");
    assert_eq!((update.hash.len(), update.has_changed), (64, false));

    // Other evidence is other evidence, whichever hash it had.
    cluster.candidate().drive.id = "another".into();
    let update = evidence_update(&action, cluster.candidate(), &evidence()).expect("it changed");
    assert!(update.has_changed);
    assert!(cluster.gates().contains(&Gate::EvidenceChanged));
}

#[test]
fn another_object_another_boot_or_another_declaration_changes_the_hash() {
    let before = hash(&candidate(), &evidence()).expect("all is read");
    type Break = fn(&mut Cluster);
    let changes: &[Break] = &[
        |it| it.pod().uid = "new".into(),
        |it| it.candidate().claim.uid = "new".into(),
        |it| it.candidate().volume = "new".into(),
        |it| it.candidate().node_uid = "new".into(),
        |it| it.candidate().boot_id = "new".into(),
        |it| it.candidate().machine_id = "new".into(),
        |it| it.candidate().drive.id = "new".into(),
        |it| it.candidate().reason = "DriveMissing".into(),
        |it| it.candidate().is_inaccessible = false,
        |it| it.candidate().is_redundant = true,
        |it| it.set().uid = "new".into(),
        |it| it.set().empty_member = Some("rejoins-any".into()),
        |it| it.group().name = "new".into(),
        |it| read(&mut it.evidence.other_claims)[0].name = "new".into(),
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut cluster = Cluster::unproposed();
        change(&mut cluster);
        let candidate = cluster.candidate().clone();
        assert_ne!(hash(&candidate, &cluster.evidence).as_ref(), Some(&before), "change {at}");
    }
    assert_eq!(before.len(), 64);
}

proptest! {
    #[test]
    fn neither_order_nor_times_nor_health_of_others_change_the_hash(
        claims in Just(vec![0, 1]).prop_shuffle(),
        seconds in -1_000_000..1_000_000_i64,
        is_ready in any::<bool>(),
        rooms in proptest::collection::vec("[a-z]{1,8}", 0..4),
    ) {
        let mut cluster = Cluster::unproposed();
        let before = hash(&candidate(), &cluster.evidence);
        let all = read(&mut cluster.evidence.other_claims).clone();
        cluster.evidence.other_claims = Reading::Read(claims.iter().map(|&at| all[at].clone()).collect());
        cluster.candidate().since = Some(wall(seconds));
        cluster.candidate().held_since = None;
        cluster.candidate().daemon_version = "2".into();
        cluster.group().peers[0].is_ready = is_ready;
        cluster.group().peers.reverse();
        cluster.evidence.room = Reading::Read(rooms);
        let candidate = cluster.candidate().clone();
        prop_assert_eq!(hash(&candidate, &cluster.evidence), before);
    }
}
