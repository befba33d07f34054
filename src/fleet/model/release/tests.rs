mod breaker;
pub(crate) mod candidates;
mod evidence;
mod gates;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::breaker::BreakerState;
use super::candidate::{Candidate, Sighting};
use super::check::{ActionState, Case, FleetState, PolicyState, Refusal, check};
use super::evidence::{
    Answer, ClaimState, ClaimTemplate, DryRun, Evidence, GroupClaim, GroupState, NodeState,
    OtherClaim, Peer, PodState, Reading, StatefulSetState, StorageClassState, VolumeState, hash,
};
use super::proposal::proposal;
use super::*;
use crate::model::Claim;
use diskvitals_cluster::gate::Gate;
use diskvitals_cluster::node_storage::{AnsweredFinding, Health, Witness};
use diskvitals_cluster::storage_action::{Approval, DriveRef, ObjectRef};
use diskvitals_cluster::storage_policy::{Mode, StoragePolicySpec};

pub(crate) const DRIVE: &str = "naa.5000c500a1b2c3d4";
/// The controller has watched for ten hours.
const ELAPSED: Duration = Duration::from_secs(36_000);

pub(crate) fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
}

fn now() -> Now {
    Now { elapsed: ELAPSED, wall: wall(0) }
}

fn condition(name: &str, since: Timestamp) -> Condition {
    Condition {
        last_transition_time: Time(since),
        message: String::new(),
        observed_generation: None,
        reason: name.into(),
        status: "True".into(),
        type_: name.into(),
    }
}

/// A case that no gate refuses.
#[derive(Clone)]
struct Cluster {
    policy: PolicyState,
    sighting: Sighting,
    evidence: Evidence,
    fleet: FleetState,
    action: Option<ActionState>,
    limits: Limits,
}

impl Cluster {
    /// Nothing is proposed yet.
    fn unproposed() -> Cluster {
        Cluster {
            policy: PolicyState {
                name: "default".into(),
                spec: StoragePolicySpec { mode: Mode::Propose, ..StoragePolicySpec::default() },
                created: Some(wall(-1_000_000)),
            },
            sighting: Sighting::Listed(Box::new(candidate())),
            evidence: evidence(),
            fleet: FleetState {
                started: Duration::ZERO,
                nodes: 10,
                breaker: BreakerState::default(),
                lease_left: Some(Duration::from_secs(11)),
                actions: Reading::Read(Vec::new()),
            },
            action: None,
            limits: Limits::default(),
        }
    }

    /// A person has approved it, and the node has answered.
    fn approved() -> Cluster {
        let mut cluster = Cluster::unproposed();
        let proposed = proposal("default", &candidate(), &cluster.evidence).expect("all is known");
        let mut spec = proposed.spec;
        spec.approval = Approval::Approved;
        spec.approved_by = "jane".into();
        spec.approved_at = Some(Time(wall(-60)));
        spec.approved_hash.clone_from(&spec.evidence_hash);
        cluster.action = Some(ActionState {
            namespace: proposed.namespace,
            name: proposed.name,
            spec,
            answer: Reading::Read(answer()),
            ..ActionState::default()
        });
        cluster
    }

    fn case(&self) -> Case<'_> {
        Case {
            policy: &self.policy,
            sighting: &self.sighting,
            evidence: &self.evidence,
            fleet: &self.fleet,
            action: self.action.as_ref(),
            limits: &self.limits,
        }
    }

    fn refusals(&self) -> Vec<Refusal> {
        check(&self.case(), now())
    }

    fn gates(&self) -> Vec<Gate> {
        self.refusals().into_iter().map(|it| it.gate).collect()
    }

    fn candidate(&mut self) -> &mut Candidate {
        match &mut self.sighting {
            Sighting::Listed(candidate) => candidate,
            Sighting::Gone | Sighting::Unknown => unreachable!("listed in this test"),
        }
    }

    fn action(&mut self) -> &mut ActionState {
        self.action.as_mut().expect("approved in this test")
    }

    fn answer(&mut self) -> &mut Answer {
        read(&mut self.action().answer)
    }

    fn pod(&mut self) -> &mut PodState {
        there(&mut self.evidence.pod)
    }

    fn set(&mut self) -> &mut StatefulSetState {
        there(&mut self.evidence.stateful_set)
    }

    fn group(&mut self) -> &mut GroupState {
        there(&mut self.evidence.group)
    }
}

fn read<T>(reading: &mut Reading<T>) -> &mut T {
    match reading {
        Reading::Read(value) => value,
        Reading::Failed(why) => unreachable!("{why}"),
    }
}

fn there<T>(reading: &mut Reading<Option<T>>) -> &mut T {
    read(reading).as_mut().expect("it exists")
}

pub(crate) fn claim() -> Claim {
    Claim { namespace: "shop".into(), name: "data-db-1".into(), uid: "of-claim".into() }
}

fn candidate() -> Candidate {
    Candidate {
        claim: claim(),
        volume: "pv1".into(),
        node: "a".into(),
        node_uid: "of-node".into(),
        boot_id: "boot".into(),
        machine_id: "machine".into(),
        daemon_version: "1".into(),
        drive: DriveRef {
            id: DRIVE.into(),
            model: "M".into(),
            serial: "S".into(),
            slot: "3".into(),
        },
        reason: "DriveOffline".into(),
        since: Some(wall(-3000)),
        is_inaccessible: true,
        is_redundant: false,
        is_acknowledged: false,
        in_maintenance: false,
        is_truncated: false,
        elsewhere: BTreeSet::new(),
        held_since: Some(ELAPSED - Duration::from_secs(1800)),
        node_ready_since: Some(ELAPSED - Duration::from_secs(600)),
        daemon_since: Some(ELAPSED - Duration::from_secs(1800)),
    }
}

fn peer(name: &str) -> Peer {
    Peer { name: name.into(), is_ready: true, drives: Health::Good }
}

pub(crate) fn evidence() -> Evidence {
    let some = |name: &str| name.to_owned();
    Evidence {
        namespace_is_selected: Reading::Read(true),
        node: Reading::Read(Some(NodeState {
            uid: some("of-node"),
            is_ready: true,
            ..NodeState::default()
        })),
        volume: Reading::Read(Some(VolumeState {
            uid: some("of-volume"),
            pinned_to: Some(some("a")),
            claim: Some(claim()),
        })),
        claim: Reading::Read(Some(ClaimState {
            uid: some("of-claim"),
            volume_name: some("pv1"),
            labels: BTreeMap::from([(some(CLAIM_LABEL), some("release"))]),
            is_terminating: false,
            storage_class: some("fast"),
        })),
        pod: Reading::Read(Some(PodState {
            name: some("db-1"),
            uid: some("of-pod"),
            node: some("a"),
            is_ready: false,
            stateful_set: Some(ObjectRef { name: some("db"), uid: some("of-set") }),
        })),
        other_claims: Reading::Read(vec![
            OtherClaim { name: some("backup-db-1"), is_movable: true },
            OtherClaim { name: some("config"), is_movable: true },
        ]),
        stateful_set: Reading::Read(Some(StatefulSetState {
            name: some("db"),
            uid: some("of-set"),
            replicas: 3,
            first_ordinal: 0,
            is_rolling_out: false,
            empty_member: Some(some("rejoins")),
            templates: vec![ClaimTemplate { name: some("data"), has_source: false }],
        })),
        storage_class: Reading::Read(Some(StorageClassState { waits_for_first_consumer: true })),
        group: Reading::Read(Some(GroupState {
            name: some("app.kubernetes.io/instance=db"),
            peers: vec![peer("db-0"), peer("db-2")],
            claims: vec![GroupClaim { name: some("data-db-0"), ..GroupClaim::default() }],
        })),
        room: Reading::Read(vec![some("b")]),
        eviction: Reading::Read(DryRun::Allowed),
    }
}

pub(crate) fn answer() -> Answer {
    Answer {
        asked_at: ELAPSED - Duration::from_secs(5),
        boot_id: "boot".into(),
        machine_id: "machine".into(),
        is_settled: true,
        reads_inventory: true,
        reads_kernel_log: true,
        missing: Vec::new(),
        findings: vec![AnsweredFinding {
            id: "7".into(),
            reason: "DriveOffline".into(),
            drive_id: DRIVE.into(),
            persistent_volume: "pv1".into(),
            witnesses: vec![Witness::KernelLog, Witness::Inventory],
            ..AnsweredFinding::default()
        }],
    }
}
