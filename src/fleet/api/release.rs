//! Policies and actions in the API server, and the question to a node.
//!
//! In: calls of the owner. Out: reduced objects, and whether a write was accepted. A write names the
//! version of the object that it is meant for.

pub(super) mod act;
mod read;
mod room;

use kube::ResourceExt;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::{Api, FIELD_MANAGER};
use crate::model::release::check::{PolicyObject, PolicyState};
use crate::model::release::proposal::Proposal;
use crate::release::action::{ActionList, ActionObject};
use diskvitals_cluster::node_storage::{Challenge, NodeStorage};
use diskvitals_cluster::storage_action::{StorageAction, StorageActionSpec, StorageActionStatus};
use diskvitals_cluster::storage_policy::{StoragePolicy, StoragePolicySpec, StoragePolicyStatus};
use diskvitals_kubernetes::api_error::{
    ApiError, CallError, Rejection, already_exists, classify_error,
};

impl Api {
    /// A consistent read, in pages. An action that this version cannot read fails the whole list:
    /// it may be under way.
    pub(crate) async fn list_actions(&self) -> Result<ActionList, ApiError> {
        let resource = ApiResource::erase::<StorageAction>(&());
        let actions = kube::Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let (actions, version) = self.list(&actions, |object| Some(action(object))).await?;
        Ok(ActionList {
            revision: version.and_then(|version| version.parse().ok()),
            actions: actions.into_iter().collect::<Result<_, _>>()?,
        })
    }

    /// False: an action of this name exists.
    pub(crate) async fn create_action(&self, proposal: &Proposal) -> Result<bool, ApiError> {
        let actions: kube::Api<StorageAction> =
            kube::Api::namespaced(self.client.clone(), &proposal.namespace);
        let object = StorageAction::new(&proposal.name, proposal.spec.clone());
        let parameters = PostParams::default();
        match self.call(actions.create(&parameters, &object)).await {
            Ok(_) => Ok(true),
            Err(error) if already_exists(&error) => Ok(false),
            Err(error) => Err(classify_error(error)),
        }
    }

    pub(crate) async fn write_action_status(
        &self,
        action: &ActionObject,
        status: &StorageActionStatus,
    ) -> Result<bool, ApiError> {
        let actions: kube::Api<StorageAction> =
            kube::Api::namespaced(self.client.clone(), &action.namespace);
        let patch = json!({
            "metadata": {"uid": action.uid, "resourceVersion": action.resource_version},
            "status": merge_patch(&action.status, status)?,
        });
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let call = actions.patch_status(&action.name, &parameters, &patch);
        is_accepted(self.call(call).await)
    }

    /// The approval no longer counts: the action waits for another one.
    pub(crate) async fn take_back_approval(&self, action: &ActionObject) -> Result<bool, ApiError> {
        let actions: kube::Api<StorageAction> =
            kube::Api::namespaced(self.client.clone(), &action.namespace);
        let patch = json!({
            "metadata": {"uid": action.uid, "resourceVersion": action.resource_version},
            "spec": {"approval": "Pending", "approvedBy": "", "approvedAt": null, "approvedHash": ""},
        });
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let call = actions.patch(&action.name, &parameters, &patch);
        is_accepted(self.call(call).await)
    }

    /// Of a finished action, exactly this version.
    pub(crate) async fn delete_action(&self, action: &ActionObject) -> Result<bool, ApiError> {
        let actions: kube::Api<StorageAction> =
            kube::Api::namespaced(self.client.clone(), &action.namespace);
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(action.uid.clone()),
                resource_version: Some(action.resource_version.clone()),
            }),
            ..DeleteParams::default()
        };
        let call = actions.delete(&action.name, &parameters);
        is_accepted(self.call(call).await)
    }

    pub(crate) async fn write_policy_status(
        &self,
        policy: &PolicyObject,
        status: &StoragePolicyStatus,
    ) -> Result<bool, ApiError> {
        let policies: kube::Api<StoragePolicy> = kube::Api::all(self.client.clone());
        let patch = json!({
            "metadata": {"uid": policy.uid, "resourceVersion": policy.resource_version},
            "status": merge_patch(&policy.status, status)?,
        });
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let call = policies.patch_status(&policy.state.name, &parameters, &patch);
        is_accepted(self.call(call).await)
    }

    /// None: removes the question. `uid` is that of the NodeStorage.
    pub(crate) async fn write_challenge(
        &self,
        node: &str,
        uid: &str,
        challenge: Option<&Challenge>,
    ) -> Result<bool, ApiError> {
        let reports: kube::Api<NodeStorage> = kube::Api::all(self.client.clone());
        let patch =
            Patch::Merge(json!({"metadata": {"uid": uid}, "spec": {"challenge": challenge}}));
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let call = reports.patch(node, &parameters, &patch);
        is_accepted(self.call(call).await)
    }
}

pub(super) use read::why;

/// False: the object is gone, or was changed meanwhile.
pub(super) fn is_accepted<T>(answer: Result<T, CallError>) -> Result<bool, ApiError> {
    match answer {
        Ok(_) => Ok(true),
        Err(CallError::Kube(kube::Error::Api(status))) if [404, 409].contains(&status.code) => {
            Ok(false)
        }
        Err(error) => Err(classify_error(error)),
    }
}

/// The new value, with `null` for each field that only the old one has.
fn merge_patch<T: Serialize>(old: &T, new: &T) -> Result<Value, ApiError> {
    let encode = |value: &T| {
        serde_json::to_value(value).map_err(|error| {
            ApiError::Rejected(Rejection {
                kind: "encoding".to_owned(),
                why: format!("encoding a status: {error}"),
            })
        })
    };
    let (old, mut new) = (encode(old)?, encode(new)?);
    if let (Value::Object(old), Value::Object(new)) = (old, &mut new) {
        for (key, _) in old {
            new.entry(key).or_insert(Value::Null);
        }
    }
    Ok(new)
}

fn action(object: DynamicObject) -> Result<ActionObject, ApiError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let unreadable = |error: serde_json::Error| {
        ApiError::Rejected(Rejection {
            kind: "unreadable action".to_owned(),
            why: format!("StorageAction {namespace}/{name} cannot be read: {error}"),
        })
    };
    let field = |key: &str| object.data.get(key).cloned().unwrap_or_else(|| json!({}));
    let spec = StorageActionSpec::deserialize(field("spec")).map_err(unreadable)?;
    let status = StorageActionStatus::deserialize(field("status")).map_err(unreadable)?;
    Ok(ActionObject {
        uid: object.metadata.uid.unwrap_or_default(),
        resource_version: object.metadata.resource_version.unwrap_or_default(),
        generation: object.metadata.generation,
        namespace,
        name,
        spec,
        status,
    })
}

/// One that cannot be read refuses everything.
pub(super) fn policy(object: DynamicObject) -> PolicyObject {
    let name = object.name_any();
    let field = |key: &str| object.data.get(key).cloned().unwrap_or_else(|| json!({}));
    let created = object.metadata.creation_timestamp.as_ref();
    let state = StoragePolicySpec::deserialize(field("spec")).map_or_else(
        |_| PolicyState::unreadable(&name),
        |spec| PolicyState { name: name.clone(), spec, created: created.map(|time| time.0) },
    );
    PolicyObject {
        status: StoragePolicyStatus::deserialize(field("status")).unwrap_or_default(),
        uid: object.metadata.uid.unwrap_or_default(),
        resource_version: object.metadata.resource_version.unwrap_or_default(),
        generation: object.metadata.generation,
        state,
    }
}

#[cfg(test)]
mod tests;
