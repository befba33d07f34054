//! What an approved action changes in the cluster. Each call names the object by its uid, so that a
//! call that comes late, or from a second controller, changes nothing else.
//!
//! In: an action and what is to be done. Out: whether it was done. No call is repeated here.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    DeleteOptions, ObjectMeta, Preconditions as UidPrecondition,
};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use crate::api::Api;
use crate::model::release::steps::Act;
use crate::model::release::{POLICY_ANNOTATION, VOLUME_ANNOTATION};
use crate::release::action::ActionObject;
use crate::release::job::Acted;
use diskvitals_kubernetes::api_error::{ApiError, CallError, classify_error};

/// Whether an eviction is asked for, or only whether it would be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) enum Evict {
    DryRun,
    Now,
}

impl Api {
    pub(crate) async fn act(&self, action: &ActionObject, act: &Act) -> Result<Acted, ApiError> {
        let (namespace, spec) = (&action.namespace, &action.spec);
        match act {
            Act::KeepVolume { resource_version, previous_policy } => {
                let annotations = json!({
                    VOLUME_ANNOTATION: format!("{namespace}/{}", action.name),
                    POLICY_ANNOTATION: previous_policy,
                });
                self.patch_volume(action, resource_version, "Retain", annotations).await
            }
            Act::RestoreVolume { resource_version, policy } => {
                let annotations = json!({VOLUME_ANNOTATION: null, POLICY_ANNOTATION: null});
                self.patch_volume(action, resource_version, policy, annotations).await
            }
            Act::DeleteClaim { uid } => {
                let claims =
                    kube::Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), namespace);
                let parameters = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: Some(uid.clone()),
                        resource_version: None,
                    }),
                    ..DeleteParams::default()
                };
                let call = claims.delete(&spec.claim.name, &parameters);
                acted(self.call(call).await)
            }
            Act::EvictPod { uid } | Act::EvictAgain { uid } => {
                self.evict_pod(namespace, &spec.pod.name, uid, Evict::Now).await
            }
        }
    }

    pub(in crate::api) async fn evict_pod(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        evict: Evict,
    ) -> Result<Acted, ApiError> {
        let pods = kube::Api::<Pod>::namespaced(self.client.clone(), namespace);
        let answer = self.evict(&pods, name, uid, evict).await;
        // 429 of an eviction: a PodDisruptionBudget forbids it now.
        match refusal_of_eviction(&answer) {
            Some(why) => Ok(Acted::Refused(why)),
            None => acted(answer),
        }
    }

    async fn patch_volume(
        &self,
        action: &ActionObject,
        resource_version: &str,
        policy: &str,
        annotations: Value,
    ) -> Result<Acted, ApiError> {
        let volumes = kube::Api::<PersistentVolume>::all(self.client.clone());
        let volume = &action.spec.persistent_volume;
        let patch = Patch::Merge(json!({
            "metadata": {
                "uid": volume.uid,
                "resourceVersion": resource_version,
                "annotations": annotations,
            },
            "spec": {"persistentVolumeReclaimPolicy": policy},
        }));
        let parameters = PatchParams::default();
        let call = volumes.patch(&volume.name, &parameters, &patch);
        acted(self.call(call).await)
    }

    /// kube's own call names the options as the API server does not know them, and would lose the
    /// uid.
    pub(super) async fn evict(
        &self,
        pods: &kube::Api<Pod>,
        name: &str,
        uid: &str,
        evict: Evict,
    ) -> Result<Value, CallError> {
        let is_dry_run = evict == Evict::DryRun;
        let eviction = Eviction {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            delete_options: Some(DeleteOptions {
                dry_run: is_dry_run.then(|| vec!["All".to_owned()]),
                preconditions: Some(UidPrecondition {
                    uid: Some(uid.to_owned()),
                    resource_version: None,
                }),
                ..DeleteOptions::default()
            }),
        };
        let parameters = PostParams { dry_run: is_dry_run, ..PostParams::default() };
        let call = pods.create_subresource("eviction", name, &parameters, &eviction);
        self.call(call).await
    }
}

fn refusal_of_eviction<T>(answer: &Result<T, CallError>) -> Option<String> {
    match answer {
        Err(CallError::Kube(kube::Error::Api(status))) if status.code == 429 => {
            Some(status.message.clone())
        }
        _ => None,
    }
}

/// 403 and 422 are for people: a right is missing, or an admission policy forbids it.
fn acted<T>(answer: Result<T, CallError>) -> Result<Acted, ApiError> {
    match answer {
        Ok(_) => Ok(Acted::Done),
        Err(CallError::Kube(kube::Error::Api(status))) => match status.code {
            404 | 409 => Ok(Acted::Changed),
            403 | 422 => Ok(Acted::Refused(status.message.clone())),
            _ => Err(classify_error(CallError::Kube(kube::Error::Api(status)))),
        },
        Err(error) => Err(classify_error(error)),
    }
}
