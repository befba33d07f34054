//! The engine over a small cluster that behaves as the API server and Kubernetes' controllers do.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;
use crate::model::Volume;
use crate::model::pin::Pin;
use crate::model::release::check::{PolicyObject, PolicyState};
use crate::model::release::steps::{
    Act, ClaimProgress, EVICTED_AGAIN, PodProgress, Progress, VolumeProgress,
};
use crate::model::release::tests::{answer, candidates, evidence, wall as model_wall};
use diskvitals_cluster::node_storage::{AnsweredFinding, ChallengeAnswer};
use diskvitals_cluster::storage_action::{
    Approval, CLAIM_DELETED, CONFIRMED, POD_EVICTED, PREPARED, REPLACED, STUCK, present_evidence,
};
use diskvitals_cluster::storage_policy::{Mode, StoragePolicySpec};

const NAMESPACE: &str = "shop";

/// Durations that let a new process go on at once.
fn timing() -> ReleaseTiming {
    let mut timing = ReleaseTiming::default();
    timing.limits.hold_divisor = 600;
    timing.limits.controller_age = Duration::ZERO;
    timing.limits.node_ready = Duration::ZERO;
    timing.limits.daemon_age = Duration::ZERO;
    timing.round = Duration::from_secs(10);
    timing
}

fn engine(carry_out: bool) -> Engine {
    let namespaces = if carry_out { &[NAMESPACE.to_owned()][..] } else { &[] };
    Engine::new(timing(), namespaces)
}

struct Cluster {
    view: View,
    seconds: u64,
    action: Option<ActionObject>,
    volume: VolumeProgress,
    claim: ClaimProgress,
    /// Nobody creates the new claim.
    is_claim_missing: bool,
    pod: PodProgress,
    is_finding_gone: bool,
    eviction: Acted,
    created: usize,
    /// By uid, each time.
    deleted: Vec<String>,
    evicted: Vec<String>,
    announced: Vec<&'static str>,
    /// Those about the claim itself.
    announced_of_claim: Vec<&'static str>,
}

impl Cluster {
    fn new() -> Cluster {
        let mut view = candidates::view();
        let new = Volume {
            csi: Some(("csi.example.com".into(), "h2".into())),
            claim: None,
            pins: vec![Pin::Name("b".into())],
        };
        view.volumes.insert("pv2".into(), new);
        let policy = PolicyObject {
            state: PolicyState {
                name: "default".into(),
                spec: StoragePolicySpec { mode: Mode::Propose, ..StoragePolicySpec::default() },
                created: Some(model_wall(-1_000_000)),
            },
            ..PolicyObject::default()
        };
        view.policies.insert("default".into(), policy);
        Cluster {
            view,
            seconds: 0,
            action: None,
            volume: VolumeProgress {
                uid: "of-volume".into(),
                resource_version: "1".into(),
                reclaim_policy: "Delete".into(),
                ..VolumeProgress::default()
            },
            claim: ClaimProgress {
                uid: "of-claim".into(),
                volume_name: "pv1".into(),
                ..ClaimProgress::default()
            },
            pod: PodProgress { uid: "of-pod".into(), is_pending: true, ..PodProgress::default() },
            is_claim_missing: false,
            is_finding_gone: false,
            eviction: Acted::Done,
            created: 0,
            deleted: Vec::new(),
            evicted: Vec::new(),
            announced: Vec::new(),
            announced_of_claim: Vec::new(),
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            view: &self.view,
            now: Now {
                elapsed: Duration::from_secs(self.seconds),
                wall: model_wall(i64::try_from(self.seconds).expect("small")),
            },
            server: None,
            lease_left: Some(Duration::from_secs(15)),
        }
    }

    fn status(&self) -> &diskvitals_cluster::storage_action::StorageActionStatus {
        &self.action.as_ref().expect("proposed").status
    }

    fn message_of(&self, condition: &str) -> &str {
        let mut conditions = self.status().conditions.iter();
        let found = conditions.find(|it| it.type_ == condition);
        &found.expect("the condition").message
    }

    /// A person approves what is proposed.
    fn approve(&mut self) {
        let now = self.context().now.wall;
        if let Some(action) = &mut self.action
            && action.spec.approval == Approval::Pending
        {
            let hash = present_evidence(&action.spec, Some(&action.status)).1.to_owned();
            action.spec.approval = Approval::Approved;
            action.spec.approved_by = "jane".into();
            action.spec.approved_at = Some(Time(now));
            action.spec.approved_hash = hash;
            touch(action);
        }
    }

    /// A second passes for the StatefulSet controller, the binder and the kubelet.
    fn pass(&mut self) {
        self.seconds += 1;
        if self.pod.is_terminating {
            self.pod = PodProgress {
                uid: format!("pod-{}", self.seconds),
                is_pending: true,
                created: Some(self.context().now.wall),
                ..PodProgress::default()
            };
        } else if self.claim.is_terminating && self.pod.uid != "of-pod" {
            self.claim = ClaimProgress {
                uid: "new-claim".into(),
                volume_name: "pv2".into(),
                ..ClaimProgress::default()
            };
        } else if self.claim.uid == "new-claim" {
            (self.pod.is_pending, self.pod.is_ready) = (false, true);
        }
    }

    /// The drive is back.
    fn end_finding(&mut self) {
        self.is_finding_gone = true;
        let report = self.view.reports.get_mut("a").expect("a");
        let status = report.status.as_mut().expect("reported");
        status.drives.clear();
        status.volumes.clear();
    }

    fn readings(&self, question: &Question) -> Readings {
        let mut evidence = evidence();
        let mut state = evidence.node.as_ref().expect("read").clone().expect("there");
        state.uid = "uid-of-a".into();
        evidence.node = Reading::Read(Some(state));
        if self.claim.uid != "of-claim" {
            evidence.claim = Reading::Read(None);
        }
        Readings {
            evidence,
            progress: Progress {
                volume: Reading::Read(Some(self.volume.clone())),
                claim: Reading::Read((!self.is_claim_missing).then(|| self.claim.clone())),
                pod: Reading::Read(Some(self.pod.clone())),
            },
            pins: vec![Pin::Name("a".into())],
            peer_volumes: ["db-0", "db-2"]
                .map(|name| (name.to_owned(), Some(vec!["pv2".to_owned()])))
                .into(),
            action: match &question.action {
                Some(_) => Reading::Read(self.action.clone()),
                None => Reading::default(),
            },
            ..Readings::default()
        }
    }

    fn run(&mut self, job: Job) -> Done {
        match job {
            Job::List => Done::Listed(Ok(ActionList {
                revision: None,
                actions: self.action.iter().cloned().collect(),
            })),
            Job::Read(question) => Done::Read(Box::new(self.readings(&question))),
            Job::Create(proposal) => {
                let is_new = self.action.is_none();
                if is_new {
                    self.created += 1;
                    self.action = Some(ActionObject {
                        namespace: proposal.namespace.clone(),
                        name: proposal.name.clone(),
                        uid: "of-action".into(),
                        resource_version: "1".into(),
                        spec: proposal.spec.clone(),
                        ..ActionObject::default()
                    });
                }
                Done::Created(proposal, Ok(is_new))
            }
            Job::ActionStatus(read, status) => {
                let action = self.action.as_mut().expect("proposed");
                let is_same = action.resource_version == read.resource_version;
                if is_same {
                    action.status = *status;
                    touch(action);
                }
                Done::Written(Ok(is_same))
            }
            Job::TakeBack(read, why) => {
                let action = self.action.as_mut().expect("proposed");
                let is_same = action.resource_version == read.resource_version;
                if is_same {
                    action.spec.approval = Approval::Pending;
                    touch(action);
                }
                Done::TakenBack(read, why, Ok(is_same))
            }
            Job::Ask(_, _, challenge) => {
                self.answer(challenge.map(|it| it.nonce));
                Done::Written(Ok(true))
            }
            Job::PolicyStatus(..) | Job::Delete(_) => Done::Written(Ok(true)),
            Job::Act(action, act) => {
                let acted = self.act(&act);
                Done::Acted(action, act, Ok(acted))
            }
        }
    }

    fn answer(&mut self, nonce: Option<String>) {
        let report = self.view.reports.get_mut("a").expect("a");
        report.challenge.clone_from(&nonce);
        let status = report.status.as_mut().expect("reported");
        status.challenge = nonce.map(|nonce| ChallengeAnswer {
            nonce,
            boot_id: "boot".into(),
            machine_id: "machine".into(),
            settled: true,
            inventory: true,
            kernel_log: true,
            findings: if self.is_finding_gone {
                Vec::<AnsweredFinding>::new()
            } else {
                answer().findings
            },
            ..ChallengeAnswer::default()
        });
    }

    /// As the API server does it: a uid or version that is another one changes nothing.
    fn act(&mut self, act: &Act) -> Acted {
        match act {
            Act::KeepVolume { resource_version, previous_policy } => {
                if self.volume.resource_version != *resource_version {
                    return Acted::Changed;
                }
                self.volume = VolumeProgress {
                    uid: "of-volume".into(),
                    resource_version: format!("{resource_version}1"),
                    reclaim_policy: "Retain".into(),
                    kept_by: self.action.as_ref().map(|it| format!("{NAMESPACE}/{}", it.name)),
                    previous_policy: Some(previous_policy.clone()),
                };
            }
            Act::RestoreVolume { resource_version, policy } => {
                if self.volume.resource_version != *resource_version {
                    return Acted::Changed;
                }
                self.volume = VolumeProgress {
                    uid: "of-volume".into(),
                    resource_version: format!("{resource_version}1"),
                    reclaim_policy: policy.clone(),
                    ..VolumeProgress::default()
                };
            }
            Act::DeleteClaim { uid } => {
                if self.claim.uid != *uid {
                    return Acted::Changed;
                }
                if !self.claim.is_terminating {
                    self.deleted.push(uid.clone());
                }
                self.claim.is_terminating = true;
            }
            Act::EvictPod { uid } | Act::EvictAgain { uid } => {
                if self.pod.uid != *uid {
                    return Acted::Changed;
                }
                if self.eviction != Acted::Done {
                    return self.eviction.clone();
                }
                if !self.pod.is_terminating {
                    self.evicted.push(uid.clone());
                }
                self.pod.is_terminating = true;
            }
        }
        Acted::Done
    }

    /// One second of a process that leads.
    fn turn(&mut self, engine: &mut Engine) {
        engine.observe(self.context());
        while let Some(job) = engine.next_job(self.context()) {
            let done = self.run(job);
            engine.finish(done, self.context()).expect("an answer");
        }
        for announcement in engine.take_announcements() {
            self.announced.push(announcement.reason);
            if announcement.regarding.kind == "PersistentVolumeClaim" {
                self.announced_of_claim.push(announcement.reason);
            }
        }
        self.pass();
    }

    fn run_until(&mut self, engine: &mut Engine, condition: &str) {
        for _ in 0..300 {
            self.turn(engine);
            self.approve();
            if self.action.as_ref().is_some_and(|it| it.status.has(condition)) {
                return;
            }
        }
        panic!("{condition} is not reached: {:?}", self.action);
    }
}

fn touch(action: &mut ActionObject) {
    action.resource_version.push('1');
}

#[test]
fn an_approved_action_is_carried_out_step_by_step() {
    let (mut cluster, mut engine) = (Cluster::new(), engine(true));
    cluster.run_until(&mut engine, REPLACED);
    assert_eq!(cluster.deleted, ["of-claim"]);
    assert_eq!(cluster.evicted, ["of-pod"]);
    assert_eq!(cluster.volume.reclaim_policy, "Retain");
    assert_eq!(cluster.volume.previous_policy.as_deref(), Some("Delete"));
    for condition in [CONFIRMED, PREPARED, CLAIM_DELETED, POD_EVICTED] {
        assert!(cluster.status().has(condition), "{condition}");
    }
    assert_eq!(cluster.status().step, REPLACED);
    assert!(cluster.message_of(REPLACED).contains("pv2"));
    for reason in [
        "ReleaseProposed",
        "ReleaseConfirmed",
        "ReleaseVolumeKept",
        "ReleaseClaimDeleted",
        "ReleasePodEvicted",
        "ReleaseReplaced",
    ] {
        assert!(cluster.announced.contains(&reason), "{reason}: {:?}", cluster.announced);
    }
}

#[test]
fn a_claim_that_no_policy_selects_has_no_event_of_it() {
    for (class, is_announced) in [("other", false), ("", true)] {
        let (mut cluster, mut engine) = (Cluster::new(), engine(false));
        let policy = &mut cluster.view.policies.get_mut("default").expect("there").state.spec;
        policy.mode = Mode::Observe;
        policy
            .claims
            .storage_class_names
            .extend(Some(class.to_owned()).filter(|it| !it.is_empty()));
        for _ in 0..1200 {
            cluster.turn(&mut engine);
        }
        let refused = engine.figures().refusals[&Gate::NotSelected];
        assert_eq!(
            (refused > 0, cluster.announced_of_claim.is_empty()),
            (!is_announced, !is_announced)
        );
    }
}

#[test]
fn the_steps_of_an_action_do_not_count_as_gates_that_hold_its_claim_back() {
    let (mut cluster, mut engine) = (Cluster::new(), engine(true));
    cluster.run_until(&mut engine, CONFIRMED);
    cluster.announced_of_claim.clear();
    cluster.run_until(&mut engine, PREPARED);
    cluster.announced.clear();
    cluster.run_until(&mut engine, REPLACED);
    assert!(!cluster.announced.contains(&"ReleaseHeldBack"), "{:?}", cluster.announced);
    assert_eq!(cluster.announced_of_claim, ["ReleaseClaimDeleted", "ReleaseReplaced"]);
}

#[test]
fn a_pod_that_somebody_else_deletes_is_marked_as_ended_before_it_counts_as_replaced() {
    let (mut cluster, mut engine) = (Cluster::new(), engine(true));
    cluster.eviction = Acted::Refused("not now".into());
    cluster.run_until(&mut engine, CLAIM_DELETED);
    cluster.pod.is_terminating = true;
    cluster.run_until(&mut engine, REPLACED);
    assert!(cluster.status().has(POD_EVICTED));
}

#[test]
fn a_confirmed_action_takes_less_than_the_lifetime_of_one_answer_up_to_the_deletion() {
    let (mut cluster, mut engine) = (Cluster::new(), engine(true));
    cluster.run_until(&mut engine, CONFIRMED);
    let begun = cluster.seconds;
    cluster.run_until(&mut engine, CLAIM_DELETED);
    assert!(cluster.seconds - begun < 60, "{}", cluster.seconds - begun);
}

#[test]
fn in_another_namespace_nothing_is_changed_and_a_person_has_the_commands() {
    let (mut cluster, mut engine) = (Cluster::new(), engine(false));
    for _ in 0..100 {
        cluster.turn(&mut engine);
        cluster.approve();
    }
    let before = Cluster::new();
    assert_eq!(cluster.volume, before.volume);
    assert_eq!(cluster.claim, before.claim);
    assert!(cluster.deleted.is_empty() && cluster.evicted.is_empty());
    assert!(cluster.message_of(CONFIRMED).contains("kubectl delete pvc -n shop data-db-1"));
    assert!(cluster.announced.contains(&"ReleaseNotCarriedOut"));
}

#[test]
fn what_was_begun_goes_on_by_hand_when_the_namespace_is_carried_out_no_longer() {
    let (mut cluster, mut carries) = (Cluster::new(), engine(true));
    cluster.run_until(&mut carries, CLAIM_DELETED);
    let mut shows = engine(false);
    for _ in 0..30 {
        cluster.turn(&mut shows);
    }
    assert!(cluster.evicted.is_empty());
    let text = cluster.message_of(POD_EVICTED);
    assert!(text.ends_with("By hand: kubectl delete pod -n shop db-1"), "{text}");
    // A person does it.
    cluster.pod.is_terminating = true;
    cluster.run_until(&mut shows, REPLACED);
}

#[test]
fn a_finding_that_ends_before_the_deletion_puts_the_volume_back() {
    let (mut cluster, mut engine) = (Cluster::new(), engine(true));
    cluster.run_until(&mut engine, PREPARED);
    cluster.end_finding();
    cluster.run_until(&mut engine, ABORTED);
    assert!(cluster.deleted.is_empty() && cluster.evicted.is_empty());
    assert_eq!(cluster.volume.reclaim_policy, "Delete");
    assert_eq!((&cluster.volume.kept_by, &cluster.volume.previous_policy), (&None, &None));
    assert!(!cluster.status().has(PREPARED));
    assert!(cluster.announced.contains(&"ReleaseAborted"));
}

#[test]
fn a_finding_that_ends_after_the_deletion_stops_nothing() {
    let (mut cluster, mut engine) = (Cluster::new(), engine(true));
    cluster.run_until(&mut engine, CLAIM_DELETED);
    cluster.end_finding();
    cluster.run_until(&mut engine, REPLACED);
    assert_eq!(cluster.evicted, ["of-pod"]);
}

#[test]
fn a_refused_eviction_is_asked_again_and_then_is_stuck() {
    let (mut cluster, mut engine) = (Cluster::new(), engine(true));
    cluster.eviction = Acted::Refused("the PodDisruptionBudget db needs 2 healthy pods".into());
    cluster.run_until(&mut engine, CLAIM_DELETED);
    for _ in 0..30 {
        cluster.turn(&mut engine);
    }
    assert!(cluster.message_of(POD_EVICTED).contains("PodDisruptionBudget db"));
    cluster.seconds += 1800;
    cluster.run_until(&mut engine, STUCK);
    assert!(cluster.announced.contains(&"ReleaseStuck"));
    // A person ends the pod.
    cluster.pod.is_terminating = true;
    cluster.run_until(&mut engine, REPLACED);
    assert!(!cluster.status().has(STUCK));
    assert!(cluster.evicted.is_empty());
}

#[test]
fn a_new_pod_that_waits_for_a_claim_that_nobody_creates_is_evicted_once() {
    let (mut cluster, mut engine) = (Cluster::new(), engine(true));
    cluster.run_until(&mut engine, POD_EVICTED);
    cluster.is_claim_missing = true;
    for _ in 0..600 {
        cluster.turn(&mut engine);
        cluster.pod.is_ready = false;
        cluster.pod.is_pending = true;
    }
    assert_eq!(cluster.evicted.len(), 2, "{:?}", cluster.evicted);
    let mut conditions = cluster.status().conditions.iter();
    assert!(conditions.any(|it| it.type_ == POD_EVICTED && it.reason == EVICTED_AGAIN));
    cluster.is_claim_missing = false;
    cluster.run_until(&mut engine, REPLACED);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Each number is how many calls a process makes until it is killed; then another one leads.
    /// The last call of a killed process is lost, arrives unheard, or arrives later, when the next
    /// process has gone on.
    #[test]
    fn however_often_the_controller_is_killed_there_is_one_release(
        lives in proptest::collection::vec((1_usize..25, 0_u8..3), 0..12),
    ) {
        let mut cluster = Cluster::new();
        let mut late: Option<Job> = None;
        for (calls, fate) in lives {
            let mut engine = engine(true);
            let mut left = calls;
            'life: for _ in 0..200 {
                engine.observe(cluster.context());
                while let Some(job) = engine.next_job(cluster.context()) {
                    left -= 1;
                    if left == 0 {
                        match fate {
                            0 => {}
                            1 => drop(cluster.run(job)),
                            _ => late = Some(job),
                        }
                        break 'life;
                    }
                    let done = cluster.run(job);
                    engine.finish(done, cluster.context()).expect("an answer");
                    if left % 3 == 0 && let Some(job) = late.take() {
                        drop(cluster.run(job));
                    }
                }
                cluster.pass();
                cluster.approve();
            }
        }
        let mut engine = engine(true);
        cluster.run_until(&mut engine, REPLACED);
        if let Some(job) = late {
            drop(cluster.run(job));
        }
        prop_assert_eq!(cluster.created, 1);
        prop_assert_eq!(&cluster.deleted, &["of-claim"]);
        prop_assert_eq!(&cluster.evicted, &["of-pod"]);
        prop_assert_eq!(cluster.volume.reclaim_policy, "Retain");
        prop_assert_eq!(cluster.claim.uid, "new-claim");
    }
}
