//! The calls that the duty makes, one at a time.
//!
//! In: a job. Out: what became of it.

use crate::cluster::node_storage::Challenge;
use crate::cluster::storage_action::StorageActionStatus;
use crate::cluster::storage_policy::StoragePolicyStatus;
use crate::csi::report::api::ApiError;
use crate::fleet::api::Api;
use crate::fleet::model::release::proposal::Proposal;
use crate::fleet::release::action::{ActionList, ActionObject, PolicyObject};
use crate::fleet::release::readings::{Question, Readings};

#[derive(Clone, Debug)]
pub(crate) enum Job {
    List,
    Read(Question),
    Create(Box<Proposal>),
    ActionStatus(Box<ActionObject>, Box<StorageActionStatus>),
    /// With the reason, for people.
    TakeBack(Box<ActionObject>, String),
    PolicyStatus(Box<PolicyObject>, Box<StoragePolicyStatus>),
    /// To the node of this name, whose NodeStorage has this uid.
    Ask(String, String, Option<Box<Challenge>>),
    Delete(Box<ActionObject>),
}

pub(crate) enum Done {
    Listed(Result<ActionList, ApiError>),
    Read(Box<Readings>),
    /// False: it existed.
    Created(Box<Proposal>, Result<bool, ApiError>),
    TakenBack(Box<ActionObject>, String, Result<bool, ApiError>),
    /// False: the object was changed meanwhile.
    Written(Result<bool, ApiError>),
}

impl Job {
    pub(crate) async fn run(self, api: &Api) -> Done {
        match self {
            Job::List => Done::Listed(api.list_actions().await),
            Job::Read(question) => Done::Read(Box::new(api.read_release(&question).await)),
            Job::Create(proposal) => {
                let created = api.create_action(&proposal).await;
                Done::Created(proposal, created)
            }
            Job::ActionStatus(action, status) => {
                Done::Written(api.write_action_status(&action, &status).await)
            }
            Job::TakeBack(action, why) => {
                let written = api.take_back_approval(&action).await;
                Done::TakenBack(action, why, written)
            }
            Job::PolicyStatus(policy, status) => {
                Done::Written(api.write_policy_status(&policy, &status).await)
            }
            Job::Ask(node, uid, challenge) => {
                Done::Written(api.write_challenge(&node, &uid, challenge.as_deref()).await)
            }
            Job::Delete(action) => Done::Written(api.delete_action(&action).await),
        }
    }
}
