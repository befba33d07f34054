//! Client of the Kubernetes API server: a few small calls through the kube crate, with the pod's
//! service account or, outside a cluster, a kubeconfig (KUBECONFIG).
//!
//! In: events and conditions. Out: success, or whether another attempt can help. The reporter reads
//! its own node with an empty patch of the node's status: this needs no permission to read nodes,
//! and the admission policy that restricts patches to one node applies to it too.

mod node_storage;

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference, PersistentVolume};
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::report::ReportTiming;
use crate::report::condition::StorageCondition;
use crate::report::node_condition::NodeConditionKind;
use crate::report::node_snapshot::PvUse;
use diskvitals_cluster::naming::is_dns_subdomain;
use diskvitals_kubernetes::api_error::{
    ApiError, CallError, Rejection, already_exists, classify_error, with_timeout,
};
use diskvitals_kubernetes::event::{Event, Regarding, to_kube_event};
use diskvitals_kubernetes::{ApiSetupError, Config, connect};

pub use crate::report::api::node_storage::StorageChange;

const FIELD_MANAGER: &str = "diskvitals-report";
/// Of the reporter.
const REPORTING_CONTROLLER: &str = "diskvitals.io/report";

pub struct ApiServer {
    client: kube::Client,
    node: String,
    server: String,
    /// Time limit for one answer.
    request_timeout: Duration,
}

impl ApiServer {
    pub fn new(
        config: Config,
        node: &str,
        timing: &ReportTiming,
    ) -> Result<ApiServer, ApiSetupError> {
        if !is_dns_subdomain(node) {
            return Err(ApiSetupError::Node(node.to_owned()));
        }
        let server = config.cluster_url.to_string();
        Ok(ApiServer {
            client: connect(config, timing.request_timeout)?,
            node: node.to_owned(),
            server,
            request_timeout: timing.request_timeout,
        })
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Creates an event; one that already exists counts as published.
    pub(crate) async fn create_event(&self, event: &Event) -> Result<(), ApiError> {
        if !is_dns_subdomain(&event.namespace) {
            let why = format!("{:?} is no namespace", event.namespace);
            return Err(ApiError::Rejected(Rejection { kind: "no namespace".into(), why }));
        }
        let events: kube::Api<KubeEvent> =
            kube::Api::namespaced(self.client.clone(), &event.namespace);
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        match self
            .with_timeout(events.create(&parameters, &to_kube_event(event, REPORTING_CONTROLLER)))
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if already_exists(&error) => Ok(()),
            Err(error) => Err(classify_error(error)),
        }
    }

    /// The claim of a volume, if a pod of its namespace uses it on this node.
    pub(crate) async fn find_claim(&self, claimed: &PvUse) -> Result<Option<Regarding>, ApiError> {
        if !is_dns_subdomain(&claimed.pv) {
            return Ok(None);
        }
        let volumes: kube::Api<PersistentVolume> = kube::Api::all(self.client.clone());
        let volume =
            self.with_timeout(volumes.get_opt(&claimed.pv)).await.map_err(classify_error)?;
        Ok(volume
            .and_then(|volume| volume.spec?.claim_ref)
            .and_then(|claim| claim_if_used(claim, claimed)))
    }

    /// The node's current conditions, of all writers.
    pub(crate) async fn current_conditions(&self) -> Result<Vec<NodeCondition>, ApiError> {
        let status = self.own_node().await?.status;
        Ok(status.and_then(|status| status.conditions).unwrap_or_default())
    }

    /// uid of the Node object.
    pub async fn node_uid(&self) -> Result<String, ApiError> {
        Ok(self.own_node().await?.metadata.uid.unwrap_or_default())
    }

    async fn own_node(&self) -> Result<Node, ApiError> {
        let nodes: kube::Api<Node> = kube::Api::all(self.client.clone());
        let nothing = Patch::Merge(json!({}));
        self.with_timeout(nodes.patch_status(&self.node, &PatchParams::default(), &nothing))
            .await
            .map_err(classify_error)
    }

    pub(crate) async fn apply_condition(
        &self,
        kind: &NodeConditionKind,
        condition: &StorageCondition,
        since: Timestamp,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let condition = NodeCondition {
            type_: kind.name.into(),
            status: condition.status.name().into(),
            reason: Some(condition.reason.clone()),
            message: Some(condition.message.to_string()),
            last_transition_time: Some(Time(since)),
            last_heartbeat_time: Some(Time(now)),
        };
        self.apply_conditions(kind, vec![condition]).await
    }

    /// Removes the condition: server-side apply removes what its manager applied before and no
    /// longer applies.
    pub(crate) async fn remove_condition(&self, kind: &NodeConditionKind) -> Result<(), ApiError> {
        self.apply_conditions(kind, Vec::new()).await
    }

    async fn apply_conditions(
        &self,
        kind: &NodeConditionKind,
        conditions: Vec<NodeCondition>,
    ) -> Result<(), ApiError> {
        let nodes: kube::Api<Node> = kube::Api::all(self.client.clone());
        let applied = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node},
            "status": {"conditions": conditions},
        });
        let parameters = PatchParams::apply(kind.manager).force();
        self.with_timeout(nodes.patch_status(&self.node, &parameters, &Patch::Apply(applied)))
            .await
            .map_err(classify_error)?;
        Ok(())
    }

    async fn with_timeout<T>(
        &self,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CallError> {
        with_timeout(self.request_timeout, call).await
    }
}

fn claim_if_used(claim: ObjectReference, claimed: &PvUse) -> Option<Regarding> {
    let (namespace, name, uid) = (claim.namespace?, claim.name?, claim.uid?);
    let used = claimed.namespaces.is_empty() || claimed.namespaces.contains(&namespace);
    used.then_some(Regarding { kind: "PersistentVolumeClaim", namespace, name, uid })
}
