//! The calls that the duty makes, one at a time.
//!
//! In: a job. Out: what became of it.

use crate::calls::Caller;
use crate::model::release::check::PolicyObject;
use crate::model::release::proposal::Proposal;
use crate::model::release::steps::Act;
use crate::release::action::{ActionList, ActionObject};
use crate::release::readings::{Question, Readings};
use diskvitals_cluster::node_storage::Challenge;
use diskvitals_cluster::storage_action::StorageActionStatus;
use diskvitals_cluster::storage_policy::StoragePolicyStatus;
use diskvitals_kubernetes::api_error::ApiError;

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
    /// A step of an approved action.
    Act(Box<ActionObject>, Act),
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acted {
    Done,
    /// The object is gone or was changed meanwhile, or this process leads no longer.
    Changed,
    /// With the API server's reason.
    Refused(String),
}

pub(crate) enum Done {
    Listed(Result<ActionList, ApiError>),
    Read(Box<Readings>),
    /// False: it existed.
    Created(Box<Proposal>, Result<bool, ApiError>),
    TakenBack(Box<ActionObject>, String, Result<bool, ApiError>),
    /// False: the object was changed meanwhile.
    Written(Result<bool, ApiError>),
    Acted(Box<ActionObject>, Act, Result<Acted, ApiError>),
}

impl Job {
    pub(crate) async fn run(self, caller: Caller) -> Done {
        let api = &caller.api;
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
            Job::Act(action, act) => {
                let acted =
                    if caller.leads() { api.act(&action, &act).await } else { Ok(Acted::Changed) };
                Done::Acted(action, act, acted)
            }
        }
    }
}
