use proptest::prelude::*;

use super::*;
use crate::model::release::breaker::{Open, Opener};
use crate::model::release::budget::{ActionSummary, per_day};
use crate::model::release::proposal::tally;
use diskvitals_cluster::gate::{Effect, Stage};
use diskvitals_cluster::node_storage::TimeSpan;
use diskvitals_cluster::storage_action::{CONFIRMED, STUCK, StorageActionStatus};
use diskvitals_cluster::storage_policy::PolicyReason;

fn open(opener: Opener) -> BreakerState {
    BreakerState { open: Some(Open { opener, text: "too much".into(), at: wall(-1) }), pause: None }
}

fn other_action() -> ActionSummary {
    ActionSummary {
        namespace: "shop".into(),
        name: "other".into(),
        node: "z".into(),
        group: "app=z".into(),
        confirmed: Some(wall(-60)),
        ..ActionSummary::default()
    }
}

/// Breaks one thing of a case that nothing refuses. A gate without a line does not compile.
pub(super) fn break_for(gate: Gate, cluster: &mut Cluster) {
    match gate {
        Gate::PolicyInvalid => cluster.policy.spec.hold = "5m".into(),
        Gate::PolicySuspended => cluster.policy.spec.suspended = true,
        Gate::StoreWentBack => cluster.fleet.breaker = open(Opener::StoreWentBack),
        Gate::BreakerOpen => cluster.fleet.breaker = open(Opener::ManyDrives),
        Gate::FleetPaused => cluster.fleet.breaker.pause = Some("3 of 10 nodes".into()),
        Gate::ControllerYoung => cluster.fleet.started = ELAPSED - Duration::from_secs(1799),
        Gate::ReportNotCurrent => cluster.sighting = Sighting::Unknown,
        Gate::Truncated => cluster.candidate().is_truncated = true,
        Gate::FindingGone => cluster.sighting = Sighting::Gone,
        Gate::NotInaccessible => cluster.candidate().is_inaccessible = false,
        Gate::ReasonNotAllowed => cluster.policy.spec.reasons = vec![PolicyReason::DriveMissing],
        Gate::Redundant => cluster.candidate().is_redundant = true,
        Gate::FindingAcknowledged => cluster.candidate().is_acknowledged = true,
        Gate::DriveInMaintenance => cluster.candidate().in_maintenance = true,
        Gate::HoldNotOver => {
            cluster.candidate().held_since = Some(ELAPSED - Duration::from_secs(1799));
        }
        Gate::OlderThanInstallation => cluster.candidate().since = Some(wall(-1_000_001)),
        Gate::DaemonYoung => {
            cluster.candidate().daemon_since = Some(ELAPSED - Duration::from_secs(1799));
        }
        Gate::BootChanged => cluster.candidate().boot_id.clear(),
        Gate::DriveElsewhere => {
            cluster.candidate().elsewhere.insert("b".into());
        }
        Gate::NodeNotReady => {
            cluster.candidate().node_ready_since = Some(ELAPSED - Duration::from_secs(599));
        }
        Gate::NodeUnschedulable => there(&mut cluster.evidence.node).is_unschedulable = true,
        Gate::NodeMaintenance => {
            there(&mut cluster.evidence.node).maintenance = vec!["DrainInProgress".into()];
        }
        Gate::NotPinned => there(&mut cluster.evidence.volume).pinned_to = Some("b".into()),
        Gate::ClaimChanged => there(&mut cluster.evidence.claim).volume_name = "pv2".into(),
        Gate::ClaimTerminating => there(&mut cluster.evidence.claim).is_terminating = true,
        Gate::NotLabeled => there(&mut cluster.evidence.claim).labels.clear(),
        Gate::NotSelected => cluster.evidence.namespace_is_selected = Reading::Read(false),
        Gate::PodElsewhere => cluster.pod().node = "b".into(),
        Gate::ReadyPod => cluster.pod().is_ready = true,
        Gate::NotStatefulSet => cluster.pod().stateful_set = None,
        Gate::OrdinalNotWanted => cluster.set().replicas = 1,
        Gate::RolloutUnderWay => cluster.set().is_rolling_out = true,
        Gate::NotWaitForFirstConsumer => {
            there(&mut cluster.evidence.storage_class).waits_for_first_consumer = false;
        }
        Gate::HasDataSource => cluster.set().templates[0].has_source = true,
        Gate::EmptyMemberNotDeclared => cluster.set().empty_member = None,
        Gate::OtherClaimPinned => read(&mut cluster.evidence.other_claims)[0].is_movable = false,
        Gate::GroupUnknown => cluster.evidence.group = Reading::Read(None),
        Gate::GroupNotReady => cluster.group().peers[0].is_ready = false,
        Gate::GroupInTrouble => cluster.group().claims[0].is_pending = true,
        Gate::NoRoomElsewhere => cluster.evidence.room = Reading::Read(vec!["a".into()]),
        Gate::DisruptionBudget => {
            cluster.evidence.eviction = Reading::Read(DryRun::Refused("429".into()));
        }
        Gate::NotApproved => cluster.action().spec.approval = Approval::Pending,
        Gate::EvidenceChanged => cluster.action().spec.approved_hash = "another".into(),
        Gate::ApprovalExpired => cluster.action().spec.approved_at = Some(Time(wall(-3600))),
        Gate::BudgetUsed => cluster.fleet.actions = Reading::Read(vec![other_action()]),
        Gate::LeaseShort => cluster.fleet.lease_left = Some(Duration::from_secs(9)),
        Gate::NoAnswer => cluster.action().answer = Reading::Failed("no answer".into()),
        Gate::NotSettled => cluster.answer().is_settled = false,
        Gate::OneWitness => cluster.answer().findings[0].witnesses = vec![Witness::KernelLog],
    }
}

#[test]
fn a_perfect_case_is_refused_by_no_gate_before_the_proposal_and_after_the_approval() {
    assert_eq!(Cluster::unproposed().refusals(), []);
    assert_eq!(Cluster::approved().refusals(), []);
}

#[test]
fn each_gate_refuses_alone() {
    for &gate in Gate::ALL {
        let mut cluster = match gate.stage() {
            Stage::Propose => Cluster::unproposed(),
            Stage::Confirm => Cluster::approved(),
        };
        break_for(gate, &mut cluster);
        assert_eq!(cluster.gates(), [gate]);
        // It holds an approved action back too.
        let mut approved = Cluster::approved();
        break_for(gate, &mut approved);
        assert!(approved.gates().contains(&gate), "{gate}");
    }
}

#[test]
fn second_ways_in_which_a_gate_refuses() {
    type Break = fn(&mut Cluster);
    let cases: &[(Gate, Break)] = &[
        (Gate::PolicySuspended, |it| it.policy.spec.mode = Mode::Observe),
        (Gate::PolicyInvalid, |it| it.policy = PolicyState::unreadable("gone")),
        (Gate::FindingGone, |it| it.answer().findings.clear()),
        (Gate::FindingAcknowledged, |it| it.answer().findings[0].acknowledged = true),
        (Gate::OlderThanInstallation, |it| it.candidate().since = None),
        (Gate::OlderThanInstallation, |it| it.policy.created = None),
        (Gate::HoldNotOver, |it| it.candidate().held_since = None),
        (Gate::DaemonYoung, |it| it.candidate().daemon_since = None),
        (Gate::BootChanged, |it| it.answer().boot_id = "later".into()),
        (Gate::BootChanged, |it| it.answer().machine_id = "other".into()),
        (Gate::BootChanged, |it| it.action().spec.node.boot_id = "earlier".into()),
        (Gate::BootChanged, |it| it.action().spec.node.uid = "earlier".into()),
        (Gate::NodeNotReady, |it| there(&mut it.evidence.node).is_ready = false),
        (Gate::NodeNotReady, |it| it.candidate().node_ready_since = None),
        (Gate::NodeNotReady, |it| there(&mut it.evidence.node).uid = "new".into()),
        (Gate::NodeNotReady, |it| it.evidence.node = Reading::Read(None)),
        (Gate::NotPinned, |it| there(&mut it.evidence.volume).pinned_to = None),
        (Gate::NotPinned, |it| it.evidence.volume = Reading::Read(None)),
        (Gate::ClaimChanged, |it| it.evidence.claim = Reading::Read(None)),
        (Gate::ClaimChanged, |it| there(&mut it.evidence.claim).uid = "new".into()),
        (Gate::ClaimChanged, |it| there(&mut it.evidence.volume).claim = None),
        (Gate::ClaimChanged, |it| it.action().spec.claim.uid = "old".into()),
        (Gate::ClaimChanged, |it| it.action().spec.persistent_volume.uid = "old".into()),
        (Gate::NotLabeled, |it| {
            let labels = &mut there(&mut it.evidence.claim).labels;
            labels.insert(CLAIM_LABEL.into(), "handover".into());
        }),
        (Gate::NotSelected, |it| {
            it.policy.spec.claims.storage_class_names = vec!["slow".into()];
        }),
        (Gate::PodElsewhere, |it| it.action().spec.pod.uid = "old".into()),
        (Gate::NotStatefulSet, |it| it.set().templates[0].name = "wal".into()),
        (Gate::NotStatefulSet, |it| it.evidence.stateful_set = Reading::Read(None)),
        (Gate::OrdinalNotWanted, |it| it.set().first_ordinal = 2),
        (Gate::NotWaitForFirstConsumer, |it| it.evidence.storage_class = Reading::Read(None)),
        (Gate::GroupNotReady, |it| it.group().peers[1].drives = Health::Suspect),
        (Gate::GroupNotReady, |it| it.group().peers[1].drives = Health::Unknown),
        (Gate::GroupInTrouble, |it| it.group().claims[0].is_terminating = true),
        (Gate::GroupInTrouble, |it| it.group().claims[0].is_in_action = true),
        (Gate::NoRoomElsewhere, |it| it.evidence.room = Reading::Read(Vec::new())),
        (Gate::NotApproved, |it| it.action().spec.approval = Approval::Rejected),
        (Gate::ApprovalExpired, |it| it.action().spec.approved_at = None),
        (Gate::ApprovalExpired, |it| it.action().spec.approved_at = Some(Time(wall(121)))),
        (Gate::LeaseShort, |it| it.fleet.lease_left = None),
        (Gate::NoAnswer, |it| it.answer().asked_at = ELAPSED - Duration::from_secs(61)),
        (Gate::NotSettled, |it| it.answer().reads_inventory = false),
        (Gate::NotSettled, |it| it.answer().reads_kernel_log = false),
        (Gate::OneWitness, |it| {
            it.answer().findings[0].witnesses = vec![Witness::Inventory, Witness::Probe];
        }),
        (Gate::OneWitness, |it| {
            it.answer().findings[0].witnesses = vec![Witness::KernelLog, Witness::Smart];
        }),
    ];
    for (at, (gate, break_it)) in cases.iter().enumerate() {
        let mut cluster = Cluster::approved();
        break_it(&mut cluster);
        let gates = cluster.gates();
        assert!(gates.contains(gate), "case {at}, {gate}: {gates:?}");
    }
}

/// A record that was lost makes the evidence older, not void.
#[test]
fn where_records_were_lost_a_counter_or_a_probe_stands_beside_the_scan() {
    use Witness::{Check, Counter, Inventory, KernelLog, Layer, MountTable, Probe, Smart};
    for (witnesses, whole, lost) in [
        (vec![KernelLog, Inventory], true, true),
        (vec![KernelLog, Probe], true, true),
        (vec![Inventory, Counter], false, true),
        (vec![Inventory, Probe], false, true),
        (vec![Inventory], false, false),
        (vec![KernelLog], false, false),
        (vec![KernelLog, Counter], false, false),
        (vec![Counter, Probe], false, false),
        (vec![Inventory, MountTable, Layer, Smart, Check], false, false),
    ] {
        let gates = |records_lost: Option<TimeSpan>| {
            let mut cluster = Cluster::approved();
            let finding = &mut cluster.answer().findings[0];
            (finding.witnesses, finding.records_lost) = (witnesses.clone(), records_lost);
            cluster.gates()
        };
        let expected = |passes| if passes { Vec::new() } else { vec![Gate::OneWitness] };
        let span = TimeSpan { since: Time(wall(-90)), until: Time(wall(-30)) };
        assert_eq!(gates(None), expected(whole), "{witnesses:?}");
        assert_eq!(gates(Some(span)), expected(lost), "{witnesses:?}");
    }
}

#[test]
fn a_gate_names_the_source_and_since_when_and_until_when_it_was_not_read() {
    let text = |cluster: &Cluster| cluster.refusals().remove(0).text;
    let mut cluster = Cluster::approved();
    cluster.answer().reads_kernel_log = false;
    cluster.answer().missing = vec!["kernel-log has lost records since A, until B".into()];
    assert_eq!(
        text(&cluster),
        "node a: the daemon does not read its kernel log; kernel-log has lost records since A, until B"
    );
    let mut cluster = Cluster::approved();
    let finding = &mut cluster.answer().findings[0];
    finding.witnesses = vec![Witness::Inventory];
    finding.records_lost = Some(TimeSpan { since: Time(wall(-90)), until: Time(wall(-30)) });
    let [since, until] = [wall(-90), wall(-30)];
    assert_eq!(
        text(&cluster),
        format!(
            "witnesses: Inventory; kernel-log has lost records since {since:.0}, until {until:.0}"
        )
    );
    let mut cluster = Cluster::approved();
    cluster.group().peers[0].drives = Health::Unknown;
    cluster.group().peers[1].is_ready = false;
    assert!(
        text(&cluster).ends_with(", db-0 has drives that are Unknown, db-2 is not Ready"),
        "{}",
        text(&cluster)
    );
}

#[test]
fn an_answer_of_a_daemon_that_is_not_settled_does_not_say_that_the_finding_is_gone() {
    let mut cluster = Cluster::approved();
    cluster.answer().findings.clear();
    cluster.answer().is_settled = false;
    assert_eq!(cluster.gates(), [Gate::NotSettled]);
}

#[test]
fn ordinal_zero_needs_a_declaration_of_its_own() {
    let mut cluster = Cluster::unproposed();
    cluster.pod().name = "db-0".into();
    cluster.candidate().claim.name = "data-db-0".into();
    there(&mut cluster.evidence.volume).claim.as_mut().expect("bound").name = "data-db-0".into();
    assert_eq!(cluster.gates(), [Gate::EmptyMemberNotDeclared]);
    cluster.set().empty_member = Some("rejoins-any".into());
    assert_eq!(cluster.gates(), []);
}

#[test]
fn a_pod_that_only_looks_like_a_member_is_none() {
    for name in ["db-01", "db-+1", "db--1", "db-", "db1", "other-1"] {
        let mut cluster = Cluster::unproposed();
        cluster.pod().name = name.into();
        let claim = format!("data-{name}");
        cluster.candidate().claim.name.clone_from(&claim);
        there(&mut cluster.evidence.volume).claim.as_mut().expect("bound").name = claim;
        assert_eq!(cluster.gates(), [Gate::NotStatefulSet], "{name}");
    }
}

#[test]
fn a_stuck_action_uses_the_budget_until_a_person_resolves_it() {
    let status = StorageActionStatus {
        conditions: vec![condition(CONFIRMED, wall(-1_000_000)), condition(STUCK, wall(-1))],
        ..StorageActionStatus::default()
    };
    let spec = Cluster::approved().action().spec.clone();
    let stuck = ActionSummary::new("shop", "other", &spec, &status);
    let mut cluster = Cluster::approved();
    cluster.policy.spec.budget.in_flight = 9;
    cluster.fleet.actions = Reading::Read(vec![stuck.clone()]);
    assert_eq!(cluster.gates(), [Gate::BudgetUsed]);
    assert!(cluster.refusals()[0].text.contains("in the group"));
    let finished = ActionSummary { is_stuck: false, is_finished: true, ..stuck };
    cluster.fleet.actions = Reading::Read(vec![finished]);
    assert_eq!(cluster.gates(), []);
}

#[test]
fn the_budget_counts_the_cluster_the_group_the_node_and_the_day_without_the_action_itself() {
    let mut own = other_action();
    let action = Cluster::approved().action().clone();
    (own.namespace, own.name) = (action.namespace.clone(), action.name.clone());
    let of_group = ActionSummary { group: action.spec.group.clone(), ..other_action() };
    let other_namespace = ActionSummary { namespace: "b".into(), ..of_group.clone() };
    let of_node = ActionSummary { node: "a".into(), ..other_action() };
    let done = |seconds: i64| ActionSummary {
        confirmed: Some(wall(-seconds)),
        is_finished: true,
        ..other_action()
    };
    let undone = ActionSummary { changed_nothing: true, ..done(60) };
    for (actions, expected) in [
        (vec![own], None),
        (vec![of_group], Some("in the group")),
        (vec![other_namespace], None),
        (vec![of_node], Some("on the node")),
        (vec![done(60), done(61), done(62)], Some("within 24 hours")),
        (vec![done(60), done(61), done(86_400)], None),
        (vec![done(60), done(61), undone], None),
    ] {
        let mut cluster = Cluster::approved();
        cluster.policy.spec.budget.in_flight = 9;
        cluster.fleet.actions = Reading::Read(actions.clone());
        let texts: Vec<String> = cluster.refusals().into_iter().map(|it| it.text).collect();
        match expected {
            None => assert_eq!(texts, Vec::<String>::new(), "{actions:?}"),
            Some(scope) => {
                assert!(texts.len() == 1 && texts[0].ends_with(scope), "{actions:?}: {texts:?}")
            }
        }
    }
    let budget = StoragePolicySpec::default().budget.per_day;
    assert_eq!([3, 1500, 5000].map(|nodes| per_day(&budget, nodes)), [3, 3, 10]);
}

#[test]
fn a_hold_time_is_shorter_in_tests_only() {
    let mut cluster = Cluster::unproposed();
    cluster.candidate().held_since = Some(ELAPSED - Duration::from_secs(2));
    assert_eq!(cluster.gates(), [Gate::HoldNotOver]);
    cluster.limits.hold_divisor = 900;
    assert_eq!(cluster.gates(), []);
}

#[test]
fn a_contradiction_ends_an_action_and_a_shortage_only_holds_it() {
    for gate in [Gate::ReadyPod, Gate::DriveElsewhere, Gate::NodeMaintenance, Gate::NotLabeled] {
        assert_eq!(gate.effect(), Effect::Abort, "{gate}");
    }
    for gate in [Gate::BudgetUsed, Gate::GroupNotReady, Gate::NodeNotReady, Gate::BreakerOpen] {
        assert_eq!(gate.effect(), Effect::Hold, "{gate}");
    }
}

#[test]
fn the_counts_of_a_policy_name_the_first_gate() {
    let mut suspended = Cluster::unproposed();
    suspended.policy.spec.suspended = true;
    suspended.pod().is_ready = true;
    let lists = [Cluster::unproposed().refusals(), suspended.refusals(), suspended.refusals()];
    let (would_act, blocked) = tally(lists.iter().map(Vec::as_slice));
    assert_eq!(would_act, 1);
    let blocked: Vec<_> = blocked.iter().map(|it| (it.gate.as_str(), it.count)).collect();
    assert_eq!(blocked, [("PolicySuspended", 2)]);
}

/// Forgets the readings whose bits are set.
fn fail(cluster: &mut Cluster, mask: u32) {
    let evidence = &mut cluster.evidence;
    let mut forget: Vec<Box<dyn FnOnce() + '_>> = vec![
        Box::new(|| evidence.namespace_is_selected = Reading::default()),
        Box::new(|| evidence.node = Reading::default()),
        Box::new(|| evidence.volume = Reading::default()),
        Box::new(|| evidence.claim = Reading::default()),
        Box::new(|| evidence.pod = Reading::default()),
        Box::new(|| evidence.other_claims = Reading::default()),
        Box::new(|| evidence.stateful_set = Reading::default()),
        Box::new(|| evidence.storage_class = Reading::default()),
        Box::new(|| evidence.group = Reading::default()),
        Box::new(|| evidence.room = Reading::default()),
        Box::new(|| evidence.eviction = Reading::default()),
        Box::new(|| cluster.fleet.actions = Reading::default()),
    ];
    if let Some(action) = &mut cluster.action {
        forget.push(Box::new(|| action.answer = Reading::default()));
    }
    for (bit, forget) in forget.into_iter().enumerate() {
        if mask & (1 << bit) != 0 {
            forget();
        }
    }
}

/// A number of readings of `fail`.
const READINGS: u32 = 13;

proptest! {
    #[test]
    fn a_reading_that_failed_never_passes_and_never_ends_an_action(mask in 1_u32..1 << READINGS) {
        let mut cluster = Cluster::approved();
        fail(&mut cluster, mask);
        let refusals = cluster.refusals();
        prop_assert!(!refusals.is_empty(), "{mask:b}");
        for refusal in refusals {
            prop_assert_eq!(refusal.effect, Effect::Hold, "{:b} {:?}", mask, refusal);
        }
    }

    #[test]
    fn each_reading_before_a_proposal_refuses_it(bit in 0..11_u32) {
        let mut cluster = Cluster::unproposed();
        fail(&mut cluster, 1 << bit);
        prop_assert_eq!(cluster.gates().len(), 1, "{}: {:?}", bit, cluster.gates());
    }

    #[test]
    fn an_approval_is_valid_for_one_hour(seconds in -10_000..10_000_i64) {
        let mut cluster = Cluster::approved();
        cluster.action().spec.approved_at = Some(Time(wall(seconds)));
        let is_valid = (-3599..=120).contains(&seconds);
        prop_assert_eq!(cluster.gates().is_empty(), is_valid);
    }
}

#[test]
fn a_policy_that_was_deleted_is_not_one_with_a_wrong_time() {
    let why = |policy: PolicyState| {
        let mut cluster = Cluster::unproposed();
        cluster.policy = policy;
        let refusals = cluster.refusals();
        refusals.into_iter().find(|it| it.gate == Gate::PolicyInvalid).expect("refused").text
    };
    assert_eq!(
        why(PolicyState::unreadable("p")),
        "policy p was deleted, or its spec cannot be read"
    );
    let mut wrong = Cluster::unproposed().policy;
    wrong.spec.hold = "5m".into();
    let text = format!("policy {}: hold `5m` is no time of at least 10m", wrong.name);
    assert_eq!(why(wrong), text);
}
