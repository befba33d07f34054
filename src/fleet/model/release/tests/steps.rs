use proptest::prelude::*;

use super::*;
use crate::model::release::steps::{
    Act, ClaimProgress, EVICTED_AGAIN, PodProgress, Progress, REFUSED, Step, StepLimits,
    VolumeProgress, next,
};
use diskvitals_cluster::storage_action::{
    ABORTED, ActionType, CLAIM_DELETED, CONFIRMED, POD_EVICTED, PREPARED, REPLACED, STUCK,
};

fn progress() -> Progress {
    Progress {
        volume: Reading::Read(Some(VolumeProgress {
            uid: "of-volume".into(),
            resource_version: "1".into(),
            reclaim_policy: "Delete".into(),
            kept_by: None,
            previous_policy: None,
        })),
        claim: Reading::Read(Some(ClaimProgress {
            uid: "of-claim".into(),
            volume_name: "pv1".into(),
            drives: Health::Bad,
            is_terminating: false,
        })),
        pod: Reading::Read(Some(PodProgress {
            uid: "of-pod".into(),
            is_pending: true,
            created: Some(wall(-9999)),
            ..PodProgress::default()
        })),
    }
}

/// An action and the objects that it changes.
#[derive(Clone)]
struct Run {
    cluster: Cluster,
    progress: Progress,
    seconds: u64,
    deleted: Vec<String>,
    evicted: Vec<String>,
}

impl Run {
    fn new() -> Run {
        Run {
            cluster: Cluster::approved(),
            progress: progress(),
            seconds: 0,
            deleted: Vec::new(),
            evicted: Vec::new(),
        }
    }

    /// With these conditions since now.
    fn with(conditions: &[&str]) -> Run {
        let mut run = Run::new();
        for name in conditions {
            run.mark(name);
        }
        if conditions.contains(&PREPARED) {
            run.keep_volume();
        }
        run
    }

    fn now(&self) -> Now {
        Now {
            elapsed: ELAPSED + Duration::from_secs(self.seconds),
            wall: wall(i64::try_from(self.seconds).expect("small")),
        }
    }

    fn next(&self) -> Step {
        let action = self.cluster.action.as_ref().expect("an action");
        let limits = StepLimits::default();
        next(&self.cluster.case(), action, &self.progress, &limits, self.now())
    }

    fn mark(&mut self, name: &str) {
        let since = self.now().wall;
        self.cluster.action().status.conditions.push(condition(name, since));
    }

    fn volume(&mut self) -> &mut VolumeProgress {
        there(&mut self.progress.volume)
    }

    fn claim(&mut self) -> &mut ClaimProgress {
        there(&mut self.progress.claim)
    }

    fn pod(&mut self) -> &mut PodProgress {
        there(&mut self.progress.pod)
    }

    fn keep_volume(&mut self) {
        let name = self.cluster.action().full_name();
        let volume = self.volume();
        volume.reclaim_policy = "Retain".into();
        volume.kept_by = Some(name);
        volume.previous_policy = Some("Delete".into());
    }

    /// What the API server and Kubernetes' controllers do after a step.
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Nothing | Step::Wait { .. } => {}
            Step::TakeBackApproval(_) => self.cluster.action().spec.approval = Approval::Pending,
            Step::Challenge => {
                let asked_at = self.now().elapsed;
                self.cluster.action().answer = Reading::Read(Answer { asked_at, ..answer() });
            }
            Step::MarkConfirmed => self.mark(CONFIRMED),
            Step::Act(Act::KeepVolume { resource_version, previous_policy }) => {
                let name = self.cluster.action().full_name();
                let volume = self.volume();
                if volume.resource_version != *resource_version {
                    return;
                }
                volume.resource_version.push('1');
                volume.reclaim_policy = "Retain".into();
                volume.kept_by = Some(name);
                volume.previous_policy = Some(previous_policy.clone());
            }
            Step::MarkPrepared => self.mark(PREPARED),
            Step::Act(Act::DeleteClaim { uid }) => {
                let claim = self.claim();
                if claim.uid == *uid && !claim.is_terminating {
                    claim.is_terminating = true;
                    self.deleted.push(uid.clone());
                }
            }
            Step::MarkClaimDeleted => self.mark(CLAIM_DELETED),
            Step::Act(Act::EvictPod { uid } | Act::EvictAgain { uid }) => {
                if self.pod().uid == *uid && !self.pod().is_terminating {
                    self.pod().is_terminating = true;
                    self.evicted.push(uid.clone());
                }
            }
            Step::MarkPodEvicted => self.mark(POD_EVICTED),
            Step::MarkReplaced => self.mark(REPLACED),
            Step::MarkStuck(_) => self.mark(STUCK),
            Step::Act(Act::RestoreVolume { policy, .. }) => {
                let volume = self.volume();
                volume.reclaim_policy.clone_from(policy);
                (volume.kept_by, volume.previous_policy) = (None, None);
            }
            Step::MarkAborted { .. } => self.mark(ABORTED),
        }
    }

    /// The old pod has ended: the claim goes, and both come back on another node.
    fn replace(&mut self) {
        self.progress.claim = Reading::Read(Some(ClaimProgress {
            uid: "new-claim".into(),
            volume_name: "pv2".into(),
            drives: Health::Good,
            is_terminating: false,
        }));
        self.progress.pod = Reading::Read(Some(PodProgress {
            uid: "new-pod".into(),
            is_ready: true,
            created: Some(self.now().wall),
            ..PodProgress::default()
        }));
    }

    fn gate(&self) -> Option<Gate> {
        match self.next() {
            Step::Wait { gate, .. } | Step::MarkAborted { gate, .. } => gate,
            step => unreachable!("{step:?}"),
        }
    }
}

#[test]
fn an_approved_action_goes_through_all_steps_in_their_order() {
    let mut run = Run::new();
    run.cluster.action().answer = Reading::default();
    let mut steps = Vec::new();
    for _ in 0..20 {
        let step = run.next();
        run.apply(&step);
        run.seconds += 1;
        if matches!(step, Step::Wait { .. }) {
            run.replace();
        }
        let is_last = step == Step::Nothing;
        let text = match &step {
            Step::Act(act) => format!("{act:?}"),
            step => format!("{step:?}"),
        };
        steps.push(text.split([' ', '(']).next().unwrap_or_default().to_owned());
        if is_last {
            break;
        }
    }
    assert_eq!(
        steps,
        [
            "Challenge",
            "MarkConfirmed",
            "KeepVolume",
            "MarkPrepared",
            "DeleteClaim",
            "MarkClaimDeleted",
            "EvictPod",
            "MarkPodEvicted",
            "Wait",
            "MarkReplaced",
            "Nothing",
        ]
    );
    assert_eq!(run.deleted, ["of-claim"]);
    assert_eq!(run.evicted, ["of-pod"]);
}

proptest! {
    /// A step is done twice where a second controller, or the same one after a crash, repeats it.
    #[test]
    fn whatever_is_repeated_or_late_there_is_one_deletion_and_one_eviction(
        repeats in proptest::collection::vec(0..3_u8, 60),
        delays in proptest::collection::vec(0..40_u64, 60),
    ) {
        let mut run = Run::new();
        for (repeat, delay) in repeats.into_iter().zip(delays) {
            let step = run.next();
            for _ in 0..=repeat {
                run.apply(&step);
            }
            if run.cluster.action().status.has(POD_EVICTED) && !run.cluster.action().status.has(REPLACED) {
                run.replace();
            }
            run.seconds += delay;
        }
        prop_assert_eq!(&run.deleted, &["of-claim"]);
        prop_assert_eq!(&run.evicted, &["of-pod"]);
        prop_assert!(run.cluster.action().status.has(REPLACED));
    }

    #[test]
    fn while_a_gate_refuses_nothing_is_changed(at in 0..Gate::ALL.len(), prepared in any::<bool>()) {
        let mut run = if prepared { Run::with(&[CONFIRMED, PREPARED]) } else { Run::new() };
        super::gates::break_for(Gate::ALL[at], &mut run.cluster);
        for _ in 0..10 {
            let step = run.next();
            let changes = matches!(&step, Step::Act(act) if !matches!(act, Act::RestoreVolume { .. }));
            prop_assert!(!changes, "{:?}", step);
            // An answer would open this gate.
            if !matches!(step, Step::Challenge) {
                run.apply(&step);
            }
        }
        prop_assert!(run.deleted.is_empty() && run.evicted.is_empty());
    }

    #[test]
    fn a_reading_that_failed_is_no_step_forward(bits in 1_u8..8, stage in 0..5_usize) {
        let conditions = [CONFIRMED, PREPARED, CLAIM_DELETED, POD_EVICTED];
        let mut run = Run::with(&conditions[..stage]);
        if bits & 1 != 0 { run.progress.volume = Reading::default(); }
        if bits & 2 != 0 { run.progress.claim = Reading::default(); }
        if bits & 4 != 0 { run.progress.pod = Reading::default(); }
        run.seconds = 1;
        let step = run.next();
        let needed = match stage {
            0 => 0,
            1 => 1,
            2 => 1 | 2,
            3 => 4,
            _ => 2 | 4,
        };
        let waits = matches!(step, Step::Wait { gate: None, .. });
        prop_assert_eq!(waits, stage == 4 || bits & needed != 0, "{:?}", step);
    }
}

#[test]
fn a_contradiction_before_the_deletion_puts_the_volume_back_and_ends_the_action() {
    let mut run = Run::with(&[CONFIRMED, PREPARED]);
    run.cluster.pod().is_ready = true;
    let step = run.next();
    assert_eq!(
        step,
        Step::Act(Act::RestoreVolume { resource_version: "1".into(), policy: "Delete".into() })
    );
    run.apply(&step);
    assert_eq!(run.gate(), Some(Gate::ReadyPod));
    run.apply(&run.next());
    assert!(run.cluster.action().status.has(ABORTED));
    assert_eq!(run.next(), Step::Nothing);
}

/// Its reclaim policy must not become Delete again: that would wipe it.
#[test]
fn a_volume_whose_claim_somebody_deleted_meanwhile_stays_kept() {
    for claim in [None, Some("other")] {
        let mut run = Run::with(&[CONFIRMED]);
        run.keep_volume();
        run.progress.claim = Reading::Read(
            claim.map(|uid| ClaimProgress { uid: uid.into(), ..ClaimProgress::default() }),
        );
        run.cluster.evidence.claim = Reading::Read(None);
        let kept =
            Step::Act(Act::RestoreVolume { resource_version: "1".into(), policy: "Retain".into() });
        assert_eq!(run.next(), kept);
        run.apply(&kept);
        assert!(matches!(run.next(), Step::MarkAborted { .. }));
        run.keep_volume();
        run.progress.claim = Reading::default();
        assert!(matches!(run.next(), Step::Wait { gate: None, .. }));
    }
}

#[test]
fn a_rejection_ends_an_action_in_any_case() {
    let mut run = Run::new();
    run.cluster.action().spec.approval = Approval::Rejected;
    run.cluster.sighting = Sighting::Unknown;
    assert!(matches!(run.next(), Step::MarkAborted { gate: None, .. }));
}

#[test]
fn an_approval_of_other_evidence_or_of_long_ago_is_taken_back() {
    for gate in [Gate::EvidenceChanged, Gate::ApprovalExpired] {
        let mut run = Run::new();
        super::gates::break_for(gate, &mut run.cluster);
        let Step::TakeBackApproval(refusal) = run.next() else {
            panic!("{:?}", run.next());
        };
        assert_eq!(refusal.gate, gate);
    }
}

#[test]
fn an_action_of_a_newer_version_is_left_alone() {
    let mut run = Run::new();
    run.cluster.action().spec.kind = ActionType::Unknown;
    assert_eq!(run.next(), Step::Nothing);
}

#[test]
fn a_claim_that_is_being_deleted_ends_an_action_before_it_is_prepared_and_counts_as_done_after() {
    let mut run = Run::with(&[CONFIRMED]);
    run.claim().is_terminating = true;
    there(&mut run.cluster.evidence.claim).is_terminating = true;
    assert_eq!(run.gate(), Some(Gate::ClaimTerminating));
    let mut run = Run::with(&[CONFIRMED, PREPARED]);
    run.claim().is_terminating = true;
    there(&mut run.cluster.evidence.claim).is_terminating = true;
    assert_eq!(run.next(), Step::MarkClaimDeleted);
    run.progress.claim = Reading::Read(None);
    assert_eq!(run.next(), Step::MarkClaimDeleted);
}

#[test]
fn the_volume_is_looked_at_again_before_the_deletion() {
    let mut run = Run::with(&[CONFIRMED, PREPARED]);
    assert!(matches!(run.next(), Step::Act(Act::DeleteClaim { .. })));
    // Somebody set the policy back: it is kept again, and the policy of before is not forgotten.
    run.volume().reclaim_policy = "Delete".into();
    assert!(
        matches!(run.next(), Step::Act(Act::KeepVolume { previous_policy, .. }) if previous_policy == "Delete")
    );
    run.volume().kept_by = Some("shop/other".into());
    assert!(matches!(run.next(), Step::Wait { gate: None, .. }));
    run.volume().uid = "new".into();
    assert!(matches!(run.next(), Step::Wait { gate: None, .. }));
}

#[test]
fn after_the_deletion_no_gate_holds_it_back() {
    for &gate in Gate::ALL {
        let mut run = Run::with(&[CONFIRMED, PREPARED, CLAIM_DELETED]);
        super::gates::break_for(gate, &mut run.cluster);
        assert!(matches!(run.next(), Step::Act(Act::EvictPod { .. })), "{gate}");
    }
}

#[test]
fn an_eviction_that_is_refused_for_thirty_minutes_is_stuck() {
    let mut run = Run::with(&[CONFIRMED, PREPARED, CLAIM_DELETED, POD_EVICTED]);
    let refused = run.cluster.action().status.conditions.last_mut();
    let refused = refused.expect("PodEvicted");
    (refused.status, refused.reason) = ("False".into(), REFUSED.into());
    run.seconds = 1799;
    assert!(matches!(run.next(), Step::Act(Act::EvictPod { .. })));
    run.seconds = 1800;
    assert!(matches!(run.next(), Step::MarkStuck(text) if text.contains("refused for 30 min")));
}

#[test]
fn after_an_outage_an_eviction_is_tried_before_it_is_stuck() {
    let mut run = Run::with(&[CONFIRMED, PREPARED, CLAIM_DELETED]);
    run.seconds = 3599;
    assert!(matches!(run.next(), Step::Act(Act::EvictPod { .. })));
    run.seconds = 3600;
    assert!(matches!(run.next(), Step::MarkStuck(text) if text.contains("impossible for 60 min")));
}

#[test]
fn a_pod_that_is_ready_after_the_deletion_is_not_evicted() {
    let mut run = Run::with(&[CONFIRMED, PREPARED, CLAIM_DELETED]);
    run.pod().is_ready = true;
    assert!(matches!(run.next(), Step::MarkStuck(text) if text.contains("is Ready although")));
}

#[test]
fn a_pod_that_is_gone_needs_no_eviction() {
    for pod in [None, Some(PodProgress { uid: "new".into(), ..PodProgress::default() })] {
        let mut run = Run::with(&[CONFIRMED, PREPARED, CLAIM_DELETED]);
        run.progress.pod = Reading::Read(pod);
        assert_eq!(run.next(), Step::MarkPodEvicted);
    }
}

const EVICTED: [&str; 4] = [CONFIRMED, PREPARED, CLAIM_DELETED, POD_EVICTED];

#[test]
fn a_pod_that_does_not_end_is_stuck_with_advice_and_nothing_is_forced() {
    let mut run = Run::with(&EVICTED);
    run.pod().is_terminating = true;
    run.claim().is_terminating = true;
    run.seconds = 1799;
    assert!(matches!(run.next(), Step::Wait { gate: None, .. }));
    run.seconds = 1800;
    let Step::MarkStuck(text) = run.next() else {
        panic!("{:?}", run.next());
    };
    assert!(text.contains("Power node a off"), "{text}");
    run.apply(&Step::MarkStuck(text));
    assert!(matches!(run.next(), Step::Wait { gate: None, .. }));
    // A person has powered the node off, and Kubernetes finishes.
    run.replace();
    assert_eq!(run.next(), Step::MarkReplaced);
}

#[test]
fn a_new_volume_counts_only_on_a_good_drive_with_a_ready_pod() {
    let mut run = Run::with(&EVICTED);
    run.replace();
    assert_eq!(run.next(), Step::MarkReplaced);
    let before = run.clone();
    run.claim().drives = Health::Unknown;
    assert!(matches!(run.next(), Step::Wait { .. }));
    run.claim().drives = Health::Bad;
    assert!(matches!(run.next(), Step::MarkStuck(text) if text.contains("is BAD")));
    let mut run = before.clone();
    run.pod().is_ready = false;
    assert!(matches!(run.next(), Step::Wait { .. }));
    let mut run = before.clone();
    run.claim().volume_name = "pv1".into();
    assert!(matches!(run.next(), Step::Wait { .. }));
    let mut run = before;
    run.claim().uid = "of-claim".into();
    assert!(matches!(run.next(), Step::Wait { .. }));
}

#[test]
fn a_new_pod_without_a_claim_is_evicted_once_after_two_minutes() {
    let mut run = Run::with(&EVICTED);
    run.seconds = 200;
    run.progress.claim = Reading::Read(None);
    run.progress.pod = Reading::Read(Some(PodProgress {
        uid: "new-pod".into(),
        is_pending: true,
        created: Some(wall(81)),
        ..PodProgress::default()
    }));
    assert!(matches!(run.next(), Step::Wait { .. }));
    run.pod().created = None;
    assert!(matches!(run.next(), Step::Wait { .. }));
    run.pod().created = Some(wall(80));
    assert_eq!(run.next(), Step::Act(Act::EvictAgain { uid: "new-pod".into() }));
    let conditions = &mut run.cluster.action().status.conditions;
    conditions.last_mut().expect("PodEvicted").reason = EVICTED_AGAIN.into();
    assert!(matches!(run.next(), Step::Wait { .. }));
}
