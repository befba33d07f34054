//! What the duty `lost-nodes` writes: the condition StorageHealthy of a node.
//!
//! In: the node as it was decided on. Out: whether the write was accepted. It names the version of the
//! Node that it is meant for, and applies the fields as the reporter does.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node as KubeNode, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::api::quarantine::version_of;
use crate::api::release::is_accepted;
use crate::api::{Api, reduce};
use crate::model::lost_nodes::LostNode;
use diskvitals_cluster::node_condition::{NODE_LOST, STORAGE_HEALTHY, STORAGE_HEALTHY_MANAGER};
use diskvitals_kubernetes::api_error::{ApiError, classify_error};
use diskvitals_kubernetes::event::message;

impl Api {
    /// False: the node is ready, its reporter has written, or the Node was changed meanwhile.
    pub(crate) async fn end_healthy(
        &self,
        lost: &LostNode,
        server: Timestamp,
    ) -> Result<bool, ApiError> {
        let nodes = kube::Api::<KubeNode>::all(self.client.clone());
        let node = self.call(nodes.get_opt(&lost.name)).await.map_err(classify_error)?;
        let Some(applied) = node.and_then(|node| applied(node, lost, server)) else {
            return Ok(false);
        };
        // The reporter is the only other writer of these fields, and forces as well.
        let parameters = PatchParams::apply(STORAGE_HEALTHY_MANAGER).force();
        let patch = Patch::Apply(applied);
        is_accepted(self.call(nodes.patch_status(&lost.name, &parameters, &patch)).await)
    }
}

fn applied(node: KubeNode, lost: &LostNode, server: Timestamp) -> Option<Value> {
    let (uid, version) = version_of(&node);
    let is_lost =
        uid == lost.uid && reduce::node(node.clone()).healthy_report == Some(lost.last_report);
    let mut conditions = node.status?.conditions?.into_iter();
    let before = conditions.find(|it| it.type_ == STORAGE_HEALTHY).filter(|_| is_lost)?;
    let why = format!(
        "the node is not Ready and nothing was reported since {}; the last report: {}",
        lost.last_report,
        before.message.unwrap_or_default()
    );
    let condition = NodeCondition {
        type_: STORAGE_HEALTHY.to_owned(),
        status: "Unknown".to_owned(),
        reason: Some(NODE_LOST.to_owned()),
        message: Some(message(&why).to_string()),
        last_transition_time: Some(Time(server)),
        // Of the reporter.
        last_heartbeat_time: before.last_heartbeat_time,
    };
    Some(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": lost.name, "uid": uid, "resourceVersion": version},
        "status": {"conditions": [condition]},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).expect("a time")
    }

    /// Statuses of Ready and StorageHealthy; when the reporter wrote it.
    fn node(ready: &str, healthy: &str, written: i64) -> KubeNode {
        let read = serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "managedFields": [
                {"manager": "kubelet", "operation": "Update", "time": time(900)},
                {"manager": "diskvitals-report-failed", "operation": "Apply", "time": time(900)},
                {"manager": "diskvitals-report", "operation": "Apply", "time": time(written)}]},
            "status": {"conditions": [
                {"type": "Ready", "status": ready},
                {"type": "StorageHealthy", "status": healthy, "reason": "NothingFound", "message": "no findings",
                 "lastHeartbeatTime": time(written)}]},
        }));
        read.expect("a node")
    }

    #[test]
    fn only_a_node_that_is_not_ready_and_says_healthy_has_a_report_to_end() {
        let report = |ready, healthy| reduce::node(node(ready, healthy, 5)).healthy_report;
        for ready in ["False", "Unknown"] {
            assert_eq!(report(ready, "True"), Some(time(5)));
        }
        // Its heartbeat changes nothing that is known.
        assert_eq!(report("True", "True"), None);
        for healthy in ["False", "Unknown"] {
            assert_eq!(report("Unknown", healthy), None, "{healthy}");
        }
    }

    #[test]
    fn the_write_says_since_when_nothing_was_reported_and_keeps_the_reporters_time() {
        let lost = LostNode { name: "a".into(), uid: "u".into(), last_report: time(0) };
        let written = applied(node("Unknown", "True", 0), &lost, time(600)).expect("written");
        let message = format!(
            "the node is not Ready and nothing was reported since {}; the last report: no findings",
            time(0)
        );
        let condition = json!({
            "type": "StorageHealthy", "status": "Unknown", "reason": "NodeLost", "message": message,
            "lastTransitionTime": time(600), "lastHeartbeatTime": time(0),
        });
        assert_eq!(
            written,
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "a", "uid": "u", "resourceVersion": "7"},
                "status": {"conditions": [condition]},
            })
        );
    }

    #[test]
    fn a_node_that_came_back_meanwhile_is_left_alone() {
        let lost = LostNode { name: "a".into(), uid: "u".into(), last_report: time(0) };
        let other = LostNode { uid: "v".into(), ..lost.clone() };
        for (node, lost) in [
            (node("True", "True", 0), &lost),
            (node("Unknown", "True", 1), &lost),
            (node("Unknown", "False", 0), &lost),
            (node("Unknown", "True", 0), &other),
        ] {
            assert_eq!(applied(node, lost, time(600)), None);
        }
    }
}
