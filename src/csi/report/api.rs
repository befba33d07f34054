//! Client of the Kubernetes API server: a few small calls through the kube crate, with the pod's
//! service account or, outside a cluster, a kubeconfig (KUBECONFIG).
//!
//! In: events and conditions. Out: success, or whether another attempt can help. The reporter reads
//! its own node with an empty patch of the node's status: this needs no permission to read nodes,
//! and the admission policy that restricts patches to one node applies to it too.

mod node_storage;
mod retry_after;

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference, PersistentVolume};
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::json;

use crate::csi::report::ReportTiming;
use crate::csi::report::condition::StorageCondition;
use crate::csi::report::event::{CAUSE_ANNOTATION, Event, Regarding, is_dns_subdomain};
use crate::csi::report::node_condition::NodeConditionKind;
use crate::csi::report::node_snapshot::PvUse;
use crate::model::causes::with_causes;

pub(crate) use crate::csi::report::api::node_storage::StorageChange;
pub use kube::Config;
pub use retry_after::client_of;

const FIELD_MANAGER: &str = "diskvitals-report";
/// Of the reporter.
const REPORTING_CONTROLLER: &str = "diskvitals.io/report";

/// The reason why there is no client of the API server: a problem of the setup.
#[derive(Debug, thiserror::Error)]
pub enum ApiSetupError {
    #[error(
        "finding the API server: in a pod by its service account's token, elsewhere by KUBECONFIG"
    )]
    Config(#[source] Box<kube::config::InferConfigError>),
    #[error("making a client of the API server")]
    Client(#[source] Box<kube::Error>),
    #[error("{0:?} is no name of a node: give --node-id, in Kubernetes spec.nodeName")]
    Node(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// Another attempt may help, after a delay if the server requests one.
    Retryable { why: String, after: Option<Duration> },
    /// A permission is missing, permanently or because the API server has not loaded it yet.
    Forbidden(Rejection),
    /// The API server will never accept the request.
    Rejected(Rejection),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// Code and reason, without the names of the refused objects.
    pub kind: String,
    pub why: String,
}

impl ApiError {
    /// The message, and the delay that the server requests.
    pub(crate) fn into_message_and_delay(self) -> (String, Option<Duration>) {
        match self {
            ApiError::Retryable { why, after } => (why, after),
            ApiError::Forbidden(refusal) | ApiError::Rejected(refusal) => (refusal.why, None),
        }
    }
}

pub struct ApiServer {
    client: kube::Client,
    node: String,
    server: String,
    /// Time limit for one answer.
    request_timeout: Duration,
}

impl ApiServer {
    /// Configuration from the environment.
    pub(crate) async fn infer_config() -> Result<Config, ApiSetupError> {
        Config::infer().await.map_err(|error| ApiSetupError::Config(Box::new(error)))
    }

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

    pub(crate) fn server(&self) -> &str {
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
    pub(crate) async fn node_uid(&self) -> Result<String, ApiError> {
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
            message: Some(condition.message.clone()),
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

/// A client whose caller decides on retries.
pub(crate) fn connect(
    mut config: Config,
    connect_timeout: Duration,
) -> Result<kube::Client, ApiSetupError> {
    config.default_retry = false;
    config.connect_timeout = Some(connect_timeout);
    let builder = kube::client::ClientBuilder::try_from(config)
        .map_err(|error| ApiSetupError::Client(Box::new(error)))?;
    Ok(client_of(builder))
}

pub(crate) async fn with_timeout<T>(
    limit: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(CallError::Kube),
        Err(_) => Err(CallError::TimedOut(limit)),
    }
}

/// The failure of one call.
pub(crate) enum CallError {
    Kube(kube::Error),
    TimedOut(Duration),
}

pub(crate) fn already_exists(error: &CallError) -> bool {
    matches!(error, CallError::Kube(kube::Error::Api(status)) if status.reason == "AlreadyExists")
}

/// Errors of the request are final; errors of the server, of its load or of the token's age are
/// not. A conflict between writers resolves itself.
pub(crate) fn classify_error(error: CallError) -> ApiError {
    let status = match error {
        CallError::Kube(kube::Error::Api(status)) => status,
        CallError::Kube(error) => {
            return ApiError::Retryable { why: with_causes(&error), after: None };
        }
        CallError::TimedOut(limit) => {
            return ApiError::Retryable {
                why: format!("the API server has not answered within {} s", limit.as_secs_f32()),
                after: None,
            };
        }
    };
    let kind = format!("{} {}", status.code, status.reason);
    let why = format!("{kind}: {}", status.message);
    match status.code {
        // The answer is not from the API server: kube parses any JSON as a status, for example a
        // load balancer's error.
        0..=399 => ApiError::Retryable {
            why: format!("an error of what is before the API server: {}", status.message),
            after: None,
        },
        401 | 408 | 409 | 429 | 500..=599 => {
            let seconds = status
                .details
                .map(|details| details.retry_after_seconds)
                .filter(|seconds| *seconds > 0);
            ApiError::Retryable {
                why,
                after: seconds.map(|seconds| Duration::from_secs(seconds.into())),
            }
        }
        403 if !is_namespace_terminating(&status) => ApiError::Forbidden(Rejection { kind, why }),
        _ => ApiError::Rejected(Rejection { kind, why }),
    }
}

/// As reported by the NamespaceLifecycle admission plugin
/// (plugin/pkg/admission/namespace/lifecycle; metav1.NamespaceTerminatingCause).
fn is_namespace_terminating(status: &Status) -> bool {
    status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .any(|cause| cause.reason == "NamespaceTerminating")
}

fn claim_if_used(claim: ObjectReference, claimed: &PvUse) -> Option<Regarding> {
    let (namespace, name, uid) = (claim.namespace?, claim.name?, claim.uid?);
    let used = claimed.namespaces.is_empty() || claimed.namespaces.contains(&namespace);
    used.then_some(Regarding { kind: "PersistentVolumeClaim", namespace, name, uid })
}

pub(crate) fn to_kube_event(event: &Event, controller: &str) -> KubeEvent {
    let Event {
        namespace,
        name,
        regarding,
        reason,
        action,
        note,
        warning,
        reporting_instance: instance,
        cause,
        time,
    } = event;
    KubeEvent {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            annotations: cause.clone().map(|cause| [(CAUSE_ANNOTATION.to_owned(), cause)].into()),
            ..ObjectMeta::default()
        },
        regarding: Some(ObjectReference {
            api_version: Some(regarding.api_version().into()),
            kind: Some(regarding.kind.into()),
            namespace: Some(regarding.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(regarding.name.clone()),
            uid: Some(regarding.uid.clone()),
            ..ObjectReference::default()
        }),
        reason: Some(reason.clone()),
        action: Some((*action).into()),
        note: Some(note.clone()),
        type_: Some(if *warning { "Warning" } else { "Normal" }.into()),
        event_time: Some(MicroTime(*time)),
        reporting_controller: Some(controller.into()),
        reporting_instance: Some(instance.clone()),
        ..KubeEvent::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kube reads an error's body.
    fn of(body: serde_json::Value) -> ApiError {
        classify_error(CallError::Kube(kube::Error::Api(
            serde_json::from_value(body).expect("a status"),
        )))
    }

    #[test]
    fn an_error_that_is_not_from_the_api_server_is_retried() {
        for body in [
            json!({"message": "no healthy upstream"}),
            json!({"code": 14, "message": "unavailable"}),
            json!({}),
        ] {
            assert!(matches!(of(body.clone()), ApiError::Retryable { after: None, .. }), "{body}");
        }
    }

    #[test]
    fn a_missing_permission_is_forbidden_and_a_terminating_namespace_is_rejected() {
        let status = |code: u16, causes: serde_json::Value| {
            of(
                json!({"kind": "Status", "code": code, "reason": "Forbidden", "message": "events \"a\" is forbidden", "details": {"causes": causes}}),
            )
        };
        let refusal = || Rejection {
            kind: "403 Forbidden".into(),
            why: "403 Forbidden: events \"a\" is forbidden".into(),
        };
        assert_eq!(status(403, json!([])), ApiError::Forbidden(refusal()));
        let going = json!([{"reason": "NamespaceTerminating", "message": "namespace shop is being terminated", "field": "metadata.namespace"}]);
        assert_eq!(status(403, going), ApiError::Rejected(refusal()));
        assert!(matches!(status(422, json!([])), ApiError::Rejected(_)));
    }
}
