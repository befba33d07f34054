//! Client of the API server: the only module of the controller that knows kube.
//!
//! In: calls of the owner. Out: reduced objects from the watches, and what became of a write. Each
//! call has a time limit; a write names the uid that it is meant for and never forces.

mod lost_nodes;
mod quarantine;
mod reduce;
mod release;
mod unreachable;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node as KubeNode, PersistentVolumeClaim};
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{
    ApiResource, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::listing::{ClusterChange, List};
use crate::model::Claim;
use crate::model::claims::{Condition, Entry};
use crate::model::retention::Expired;
use crate::timing::Timing;
use diskvitals_cluster::node_storage::NodeStorage;
use diskvitals_cluster::storage_policy::StoragePolicy;
use diskvitals_kubernetes::api_error::{
    ApiError, CallError, already_exists, classify_error, with_timeout,
};
use diskvitals_kubernetes::event::Event;
use diskvitals_kubernetes::lease::{LeaseRecord, LeaseStore};
use diskvitals_kubernetes::pages::{ListError, OnExpiry, Page, read_pages};
use diskvitals_kubernetes::watch::Watch;

/// Owner of the fields of `healthStatus` (server-side apply).
pub(crate) const FIELD_MANAGER: &str = "diskvitals-fleet";
const CONTROLLER: &str = "diskvitals.io/fleet";

/// What became of a write to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClaimWrite {
    Done,
    /// The API server answered and dropped the field: its gate CSIVolumeHealth is off, or it is too
    /// old.
    NotKept,
    /// The claim is gone, or another one has its name.
    Gone,
    /// Another manager owns the field.
    Foreign(String),
    Failed(ApiError),
}

pub(crate) struct Api {
    client: kube::Client,
    timing: Timing,
    /// A time of the API server's clock, and when it was received.
    server_time: Mutex<Option<(Timestamp, Instant)>>,
}

impl Api {
    pub(crate) fn new(client: kube::Client, timing: Timing) -> Api {
        Api { client, timing, server_time: Mutex::new(None) }
    }

    /// The API server's clock, within the few seconds between two renewals of the lease. None: the
    /// lease was not read yet. This machine's own clock may be wrong.
    pub(crate) fn server_now(&self) -> Option<Timestamp> {
        let known = *self.server_time.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, at) = known?;
        time.checked_add(at.elapsed()).ok()
    }

    /// The API server stamps each renewal of a lease, and only controllers may write that lease.
    fn learn_time(&self, lease: Lease, is_just_written: bool) -> LeaseRecord {
        let stamp = reduce::last_write(&lease.metadata, None);
        if let Some(time) = stamp
            && (is_just_written || self.server_now().is_none_or(|known| known < time))
        {
            let mut known = self.server_time.lock().unwrap_or_else(PoisonError::into_inner);
            *known = Some((time, Instant::now()));
        }
        LeaseRecord::of(lease)
    }

    /// Follows all objects of one kind, until nobody receives the changes.
    pub(crate) async fn watch(&self, list: List, into: &mpsc::Sender<ClusterChange>) {
        let (client, what) = (self.client.clone(), list.resource());
        let timing = self.timing.watch();
        match list {
            List::Nodes => {
                let (objects, wrap) = (kube::Api::all(client), ClusterChange::Node);
                Watch { objects, what, reduce: reduce::node, wrap }.follow(&timing, into).await;
            }
            List::Volumes => {
                let (objects, wrap) = (kube::Api::all(client), ClusterChange::Volume);
                Watch { objects, what, reduce: reduce::volume, wrap }.follow(&timing, into).await;
            }
            List::Drivers => {
                let (objects, wrap) = (kube::Api::all(client), ClusterChange::Drivers);
                Watch { objects, what, reduce: reduce::csi_node, wrap }.follow(&timing, into).await;
            }
            // As untyped objects: one that a person or a newer version wrote in another form must
            // not hide all others.
            List::Reports => {
                let resource = ApiResource::erase::<NodeStorage>(&());
                let objects = kube::Api::all_with(client, &resource);
                let (reduce, wrap) = (reduce::report, ClusterChange::Report);
                Watch { objects, what, reduce, wrap }.follow(&timing, into).await;
            }
            List::Policies => {
                let resource = ApiResource::erase::<StoragePolicy>(&());
                let objects = kube::Api::all_with(client, &resource);
                let (reduce, wrap) = (release::policy, ClusterChange::Policy);
                Watch { objects, what, reduce, wrap }.follow(&timing, into).await;
            }
        }
    }

    async fn call<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        with_timeout(self.timing.request_timeout, call).await
    }

    /// What `keep` leaves of all objects, read in pages, and the version of the list.
    async fn list<K, T>(
        &self,
        objects: &kube::Api<K>,
        keep: impl Fn(K) -> Option<T>,
    ) -> Result<(Vec<T>, Option<String>), ApiError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let (mut kept, mut version) = (Vec::new(), None);
        let fetch = async |parameters: ListParams| {
            let page = self.call(objects.list(&parameters)).await;
            let page = page.map_err(ListError::Call)?;
            Ok(Page { metadata: page.metadata, items: page.items })
        };
        let read = read_pages(ListParams::default(), OnExpiry::Fail, fetch, |page, _| {
            kept.extend(page.items.into_iter().filter_map(&keep));
            if version.is_none() {
                version = page.metadata.resource_version;
            }
        });
        match read.await {
            Ok(()) => Ok((kept, version)),
            Err(ListError::Call(error)) => Err(classify_error(error)),
            Err(ListError::Malformed(why)) => Err(ApiError::Retryable { why, after: None }),
        }
    }

    /// The claims whose health this manager has written, in pages. Read once by a new leader.
    pub(crate) async fn own_claims(&self) -> Result<Vec<(Claim, Entry)>, ApiError> {
        let claims: kube::Api<PersistentVolumeClaim> = kube::Api::all(self.client.clone());
        Ok(self.list(&claims, reduce::own_claim).await?.0)
    }

    /// Applies the conditions; none: removes what this manager applied.
    pub(crate) async fn apply_health(
        &self,
        claim: &Claim,
        conditions: &[Condition],
        since: Timestamp,
    ) -> ClaimWrite {
        let claims: kube::Api<PersistentVolumeClaim> =
            kube::Api::namespaced(self.client.clone(), &claim.namespace);
        let mut applied = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
        });
        if !conditions.is_empty() {
            let entries: Vec<_> = conditions
                .iter()
                .map(|it| json!({"status": it.status, "reason": it.reason, "message": it.message}))
                .collect();
            applied["status"] = json!({"healthStatus": {"healthConditions": entries, "lastTransitionTime": Time(since)}});
        }
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let patch = Patch::Apply(applied);
        let call = claims.patch_status(&claim.name, &parameters, &patch);
        match self.call(call).await {
            Ok(_) if conditions.is_empty() => ClaimWrite::Done,
            Ok(claim) => {
                let health = claim.status.and_then(|status| status.health_status);
                let kept = health.and_then(|health| health.health_conditions);
                if kept.is_none_or(|kept| kept.is_empty()) {
                    ClaimWrite::NotKept
                } else {
                    ClaimWrite::Done
                }
            }
            Err(error) => classify_claim_error(error),
        }
    }

    pub(crate) async fn node_exists(&self, name: &str) -> Result<bool, ApiError> {
        let nodes: kube::Api<KubeNode> = kube::Api::all(self.client.clone());
        let node = self.call(nodes.get_metadata_opt(name)).await;
        node.map(|node| node.is_some()).map_err(classify_error)
    }

    /// Deletes exactly this version of the object. True: it is gone, by our hand or another's.
    pub(crate) async fn delete_report(&self, report: &Expired) -> Result<bool, ApiError> {
        let reports: kube::Api<NodeStorage> = kube::Api::all(self.client.clone());
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(report.uid.clone()),
                resource_version: Some(report.resource_version.clone()),
            }),
            ..DeleteParams::default()
        };
        match self.call(reports.delete(&report.name, &parameters)).await {
            Ok(_) => Ok(true),
            Err(CallError::Kube(kube::Error::Api(status))) if status.code == 404 => Ok(true),
            // It was written meanwhile.
            Err(CallError::Kube(kube::Error::Api(status))) if status.code == 409 => Ok(false),
            Err(error) => Err(classify_error(error)),
        }
    }

    /// One that already exists counts as published.
    pub(crate) async fn publish(&self, event: &Event) -> Result<(), ApiError> {
        let events: kube::Api<KubeEvent> =
            kube::Api::namespaced(self.client.clone(), &event.namespace);
        let object = diskvitals_kubernetes::event::to_kube_event(event, CONTROLLER);
        let parameters = PostParams::default();
        match self.call(events.create(&parameters, &object)).await {
            Ok(_) => Ok(()),
            Err(error) if already_exists(&error) => Ok(()),
            Err(error) => Err(classify_error(error)),
        }
    }
}

impl LeaseStore for Api {
    async fn lease(&self, namespace: &str, name: &str) -> Result<Option<LeaseRecord>, ApiError> {
        let leases: kube::Api<Lease> = kube::Api::namespaced(self.client.clone(), namespace);
        let lease = self.call(leases.get_opt(name)).await;
        let lease = lease.map_err(classify_error)?;
        Ok(lease.map(|lease| self.learn_time(lease, false)))
    }

    async fn write_lease(
        &self,
        namespace: &str,
        name: &str,
        record: &LeaseRecord,
    ) -> Result<Option<LeaseRecord>, ApiError> {
        let leases: kube::Api<Lease> = kube::Api::namespaced(self.client.clone(), namespace);
        let object = record.to_lease(namespace, name);
        let parameters = PostParams::default();
        let call = async {
            if record.version.is_some() {
                leases.replace(name, &parameters, &object).await
            } else {
                leases.create(&parameters, &object).await
            }
        };
        match self.call(call).await {
            Ok(lease) => Ok(Some(self.learn_time(lease, true))),
            Err(CallError::Kube(kube::Error::Api(status))) if status.code == 409 => Ok(None),
            Err(error) => Err(classify_error(error)),
        }
    }
}

fn classify_claim_error(error: CallError) -> ClaimWrite {
    if let CallError::Kube(kube::Error::Api(status)) = &error {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let managers: BTreeSet<&str> = causes
            .filter(|cause| cause.reason == "FieldManagerConflict")
            .map(|cause| cause.message.as_str())
            .collect();
        if !managers.is_empty() {
            return ClaimWrite::Foreign(managers.into_iter().collect::<Vec<_>>().join("; "));
        }
        // A server that does not know the field at all (before 1.37) refuses to apply it.
        if status.message.contains("field not declared in schema") {
            return ClaimWrite::NotKept;
        }
        // A resource answers 409, its subresource `status` 422.
        let names_uid = status.message.to_lowercase().contains("uid");
        let is_uid_immutable = status.message.contains("metadata.uid: Invalid value");
        let is_other_uid =
            status.code == 409 && names_uid || status.code == 422 && is_uid_immutable;
        if status.code == 404 || is_other_uid {
            return ClaimWrite::Gone;
        }
    }
    ClaimWrite::Failed(classify_error(error))
}
