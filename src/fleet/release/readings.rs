//! What is read from the API server for one claim, joined with what is watched. Pure.
//!
//! In: the objects of one claim, without a cache. Out: evidence for the gates, and the progress of
//! an action. A reading that failed stays one that failed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::model::pin::Pin;
use crate::model::release::candidate::volume_health;
use crate::model::release::evidence::{Evidence, Reading};
use crate::model::release::steps::Progress;
use crate::model::{Claim, View};
use crate::release::action::ActionObject;
use diskvitals_cluster::node_storage::Health;

/// The claim in question, and how the policy selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Question {
    pub claim: Claim,
    /// Name of the PersistentVolume.
    pub volume: String,
    pub node: String,
    pub namespace_selector: Option<LabelSelector>,
    pub label_keys: Vec<String>,
    /// The action that is to go on.
    pub action: Option<Box<ActionObject>>,
}

/// Answers to one question. What depends on watched objects is filled in by `complete`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    pub evidence: Evidence,
    pub progress: Progress,
    /// Of the volume.
    pub pins: Vec<Pin>,
    /// Of the volumes of the pod's other claims, by claim.
    pub other_pins: BTreeMap<String, Vec<Pin>>,
    /// PersistentVolumes of the other pods of the group. None: a claim has no volume.
    pub peer_volumes: BTreeMap<String, Option<Vec<String>>>,
    /// The action of the question, as it is now.
    pub action: Reading<Option<ActionObject>>,
}

impl Readings {
    pub(crate) fn complete(
        mut self,
        claim: &Claim,
        view: &View,
        actions: &[ActionObject],
    ) -> (Evidence, Progress) {
        if let Reading::Read(Some(volume)) = &mut self.evidence.volume {
            let node = self.pins.iter().find_map(|pin| pin.node(view));
            volume.pinned_to = node.map(str::to_owned);
        }
        if let Reading::Read(others) = &mut self.evidence.other_claims {
            for other in others {
                let pins = self.other_pins.get(&other.name);
                other.is_movable = !pins.into_iter().flatten().any(|pin| pin.ties(view));
            }
        }
        if let Reading::Read(Some(group)) = &mut self.evidence.group {
            for peer in &mut group.peers {
                let volumes = self.peer_volumes.get(&peer.name).and_then(Option::as_ref);
                peer.drives = volumes.map_or(Health::Unknown, |volumes| worst(view, volumes));
            }
            for of_group in &mut group.claims {
                of_group.is_in_action = actions.iter().any(|action| {
                    action.namespace == claim.namespace
                        && action.spec.claim.name == of_group.name
                        && !action.status.is_finished()
                });
            }
        }
        if let Reading::Read(Some(claim)) = &mut self.progress.claim
            && !claim.volume_name.is_empty()
        {
            claim.drives = volume_health(view, &claim.volume_name);
        }
        (self.evidence, self.progress)
    }
}

fn worst(view: &View, volumes: &[String]) -> Health {
    let health = volumes.iter().map(|name| volume_health(view, name));
    health.max_by_key(|it| it.severity()).unwrap_or(Health::Good)
}
