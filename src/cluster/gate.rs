//! The gates of an action: the closed list of what can hold it back. The name stands in
//! `StorageAction.status.blockedBy`, in `StoragePolicy.status.blocked`, in metrics and in events.
//!
//! In: nothing. Out: the table. What each gate looks at is in `fleet::model::release::check`.

use std::fmt;
use std::str::FromStr;

/// From when on a gate is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Before an action is proposed, and at each later step.
    Propose,
    /// Before an approved action begins, and at each later step.
    Confirm,
}

/// What a refusal does to an action that exists and has not deleted the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It waits.
    Hold,
    /// It ends: what it rests on has turned out to be otherwise, or a person has decided so.
    Abort,
}

macro_rules! gates {
    ($($name:ident, $stage:ident, $effect:ident, $meaning:literal, $advice:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Gate { $($name),* }

        impl Gate {
            /// In the order in which refusals are listed: the first one is `blockedBy`.
            pub const ALL: &[Gate] = &[$(Gate::$name),*];

            pub fn name(self) -> &'static str {
                match self { $(Gate::$name => stringify!($name)),* }
            }

            pub fn stage(self) -> Stage {
                match self { $(Gate::$name => Stage::$stage),* }
            }

            pub fn effect(self) -> Effect {
                match self { $(Gate::$name => Effect::$effect),* }
            }

            /// Why it holds an action back, in one sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Gate::$name => $meaning),* }
            }

            /// What a person can do.
            pub fn advice(self) -> &'static str {
                match self { $(Gate::$name => $advice),* }
            }
        }
    };
}

gates! {
    PolicyInvalid, Propose, Hold,
        "The policy cannot be read, or its hold time is shorter than ten minutes.",
        "Correct the StoragePolicy; its condition Ready says what is wrong.";
    PolicySuspended, Propose, Hold,
        "A person has suspended the policy.",
        "Set spec.suspended of the StoragePolicy to false when actions are wanted again.";
    StoreWentBack, Propose, Hold,
        "The API server showed an older state than before: its store was restored from a backup, or requests reach different stores.",
        "Compare the cluster with the backup, then reset the breaker.";
    BreakerOpen, Propose, Hold,
        "The breaker is open: too much failed at once, which may be a fault of the diagnosis.",
        "Find the common cause (the policy's condition BreakerOpen names it), then reset the breaker.";
    FleetPaused, Propose, Hold,
        "Too many nodes are not ready or do not report; the fleet has not been in order for 30 minutes since.",
        "Bring the nodes back. The pause ends by itself.";
    ControllerYoung, Propose, Hold,
        "The controller has watched the cluster for less than 30 minutes.",
        "Wait.";
    ReportNotCurrent, Propose, Hold,
        "The node's daemon does not answer, or its report is about another Node object.",
        "Look at the daemon and the reporter of the node.";
    Truncated, Propose, Hold,
        "The node's report is cut: what it does not list is unknown.",
        "Resolve other findings of the node, or release the claim by hand.";
    FindingGone, Propose, Abort,
        "The node no longer reports the failure of the drive for this volume.",
        "Nothing: the drive may have returned.";
    NotInaccessible, Propose, Abort,
        "The volume is not inaccessible: it still works, or nothing is known about its data.",
        "Move the data with the means of the database while it can be read.";
    ReasonNotAllowed, Propose, Abort,
        "The policy does not allow an action for this reason.",
        "Add the reason to spec.reasons of the StoragePolicy, or release the claim by hand.";
    Redundant, Propose, Abort,
        "Redundancy below the volume still holds its data.",
        "Replace the drive; the volume needs no release.";
    FindingAcknowledged, Propose, Abort,
        "A person has acknowledged the finding.",
        "Withdraw the acknowledgement on the node if an action is wanted.";
    DriveInMaintenance, Propose, Abort,
        "The drive is under maintenance.",
        "End the maintenance if the drive is not coming back.";
    HoldNotOver, Propose, Hold,
        "The failure has not held for the policy's time without interruption, in one boot and under one version of the daemon.",
        "Wait.";
    OlderThanInstallation, Propose, Hold,
        "The failure began before the policy existed, or its beginning is not known.",
        "Release the claim by hand: an old failure is no emergency, and somebody may rely on the present state.";
    DaemonYoung, Propose, Hold,
        "The daemon of the node has run this version for less than 30 minutes.",
        "Wait.";
    BootChanged, Propose, Abort,
        "The node was started anew, or another machine has its name.",
        "Nothing: after the hold time a failure that lasts is proposed again.";
    DriveElsewhere, Propose, Abort,
        "Another node lists the same drive: it was moved, or is attached twice.",
        "Find out where the drive is, and detach it from all nodes but one.";
    NodeNotReady, Propose, Hold,
        "The node has not been Ready for ten minutes. A node that is away is no dead drive.",
        "Bring the node back.";
    NodeUnschedulable, Propose, Hold,
        "The node is cordoned: somebody works on it.",
        "Uncordon the node when the work is over.";
    NodeMaintenance, Propose, Abort,
        "A condition of the node says that it is in maintenance or being drained.",
        "End the maintenance of the node.";
    NotPinned, Propose, Abort,
        "The volume is not tied to this one node.",
        "Nothing: Kubernetes can attach the volume elsewhere.";
    ClaimChanged, Propose, Abort,
        "The claim is gone, or claim and volume are no longer bound to each other.",
        "Nothing.";
    ClaimTerminating, Propose, Abort,
        "The claim is being deleted already.",
        "Find out who deletes it.";
    NotLabeled, Propose, Abort,
        "The claim does not carry the label diskvitals.io/on-dead-drive: release.",
        "Label the claim if its data may be replaced by an empty volume.";
    NotSelected, Propose, Abort,
        "The policy does not select the claim's namespace or storage class.",
        "Extend spec.claims of the StoragePolicy.";
    PodElsewhere, Propose, Abort,
        "The pod of the claim does not exist, is another one than before, or runs on another node.",
        "Look at the pod and its controller.";
    ReadyPod, Propose, Abort,
        "The pod is Ready although its volume is said to be inaccessible: one of the two is wrong.",
        "Find out whether the drive works: diskvitals explain on the node.";
    NotStatefulSet, Propose, Abort,
        "The pod is not controlled by a StatefulSet, or the claim does not come from its volumeClaimTemplates: nobody would create the claim anew.",
        "Release the claim by hand, as the pod's controller needs it.";
    OrdinalNotWanted, Propose, Abort,
        "The StatefulSet no longer wants this pod: it was scaled down.",
        "Nothing.";
    RolloutUnderWay, Propose, Hold,
        "The StatefulSet is being rolled out.",
        "Wait for the rollout, or repair it.";
    NotWaitForFirstConsumer, Propose, Abort,
        "The storage class does not bind on first use: the new volume could be on this node again.",
        "Use a class with volumeBindingMode: WaitForFirstConsumer.";
    HasDataSource, Propose, Abort,
        "The template of the claim names a data source or a volume: the new claim would not be an empty one.",
        "Release the claim by hand.";
    EmptyMemberNotDeclared, Propose, Abort,
        "Nobody has declared that a member of this StatefulSet may return with an empty volume.",
        "If the database allows it, annotate the StatefulSet with diskvitals.io/empty-member: rejoins; for ordinal 0 rejoins-any (docs/remediation.md lists databases that lose data).";
    OtherClaimPinned, Propose, Abort,
        "Another claim of the pod is tied to this node: the pod could not start elsewhere.",
        "Release all claims of the pod by hand.";
    GroupUnknown, Propose, Hold,
        "The pod carries none of the labels that name its group.",
        "Add the label of the database to spec.group.labelKeys of the StoragePolicy.";
    GroupNotReady, Propose, Hold,
        "Fewer members of the group than the policy asks for are Ready on drives that are Good.",
        "Bring the other members back first.";
    GroupInTrouble, Propose, Hold,
        "Another claim of the group is pending, being deleted or part of an action.",
        "Resolve that one first.";
    NoRoomElsewhere, Propose, Hold,
        "No other node has room for the new volume.",
        "Free or add space on another node that the pod may run on.";
    DisruptionBudget, Propose, Hold,
        "The API server would refuse to evict the pod: a PodDisruptionBudget forbids it.",
        "Bring the other members back, or correct the PodDisruptionBudget.";
    NotApproved, Confirm, Hold,
        "No person has approved the action.",
        "kubectl diskvitals approve, after reading the evidence.";
    EvidenceChanged, Confirm, Hold,
        "The evidence is not the one that was approved.",
        "Read the new evidence and approve again.";
    ApprovalExpired, Confirm, Hold,
        "The approval is more than one hour old, or its time lies in the future.",
        "Approve again.";
    BudgetUsed, Confirm, Hold,
        "As many actions as the policy allows are under way, or were done within 24 hours.",
        "Resolve actions that are stuck, or wait.";
    LeaseShort, Confirm, Hold,
        "The controller leads for less than ten seconds more.",
        "Nothing: the next leader goes on.";
    NoAnswer, Confirm, Hold,
        "The node has not answered the controller's challenge of this step.",
        "Look at the daemon and the reporter of the node.";
    NotSettled, Confirm, Hold,
        "The daemon of the node does not know its whole state yet, does not read the inventory or the kernel log, or has lost records of the log and not read its counters since.",
        "Wait, or look at the source that is named, with diskvitals status on the node.";
    OneWitness, Confirm, Hold,
        "Fewer than two kinds of witness say that the drive has failed: a record of the kernel log, and a scan or probe of now. If the log has lost records of that time: a scan of now, and a counter of errors or a probe.",
        "Look at the evidence on the node: diskvitals explain.";
}

impl fmt::Display for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no gate")]
pub struct UnknownGate(String);

impl FromStr for Gate {
    type Err = UnknownGate;

    fn from_str(name: &str) -> Result<Gate, UnknownGate> {
        let gate = Gate::ALL.iter().find(|gate| gate.name() == name);
        gate.copied().ok_or_else(|| UnknownGate(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_read_by_its_name_and_fits_into_the_field() {
        for gate in Gate::ALL {
            assert_eq!(gate.to_string().parse(), Ok(*gate));
            assert!(gate.name().len() <= 64);
            for text in [gate.meaning(), gate.advice()] {
                assert!(text.ends_with('.'), "{gate}: {text}");
            }
        }
        let error = "Mood".parse::<Gate>().map_err(|error| error.to_string());
        assert_eq!(error, Err("`Mood` is no gate".to_owned()));
    }
}
