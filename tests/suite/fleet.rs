//! `diskvitals-fleet` and the test's API server in one runtime with paused time: the controller has
//! its real durations, and ten minutes pass at once.

mod leadership;
mod outage;
mod overload;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clap::Parser;
use diskvitals_fleet::options::Options;
use diskvitals_fleet::{Controller, Timing};
use diskvitals_kubernetes::client_of;
use kube::client::ClientBuilder;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::report::server::{Asked, Fault, State, answer};

const NODES: &str = "/api/v1/nodes";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
const REPORTS: &str = "/apis/diskvitals.io/v1alpha1/nodestorages";
const LEASE: &str = "diskvitals-fleet";
/// After it, everything that is due has happened.
const SOON: Duration = Duration::from_secs(60);
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// Nodes a and b, each with volumes that are tied to it.
struct Cluster {
    state: Arc<Mutex<State>>,
    controllers: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// `volumes` of node a: v0, v1, …; node b has one, w.
    fn with_volumes(volumes: usize) -> Cluster {
        let cluster = Cluster { state: Arc::default(), controllers: Vec::new() };
        let mut state = cluster.state();
        for path in [NODES, VOLUMES, CLAIMS, REPORTS] {
            state.objects.insert(path, Vec::new());
        }
        for name in ["a", "b"] {
            state.set(NODES, node(name, true));
            state.set(REPORTS, report(name, &[]));
        }
        let of_a = (0..volumes).map(|number| (format!("v{number}"), "a"));
        for (volume, node) in of_a.chain([("w".to_owned(), "b")]) {
            state.set(CLAIMS, claim(&volume));
            state.set(VOLUMES, persistent_volume(&volume, node));
        }
        drop(state);
        cluster
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// Starts a replica.
    fn control(&mut self, identity: &str) -> impl Fn() -> String + use<> {
        let state = self.state.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            answer(state.clone(), request)
        });
        let client = client_of(ClientBuilder::new(service, "diskvitals"));
        let options = Options::parse_from(["diskvitals-fleet", "--duties", "claims,shared-drives"]);
        let timing = Timing::default();
        let controller = Controller::new(client, "diskvitals", &options, timing, identity);
        let metrics = controller.metrics();
        self.controllers.push(tokio::spawn(async move {
            let ended = controller.run(std::future::pending()).await;
            panic!("it has ended: {ended:?}");
        }));
        metrics
    }

    /// A replica that leads and has written what is to be written.
    async fn controlled(&mut self) {
        let _metrics = self.control("one");
        self.until("it leads", |state| holder(state) == "one").await;
        sleep(SOON).await;
        self.state().asked.clear();
    }

    async fn until(&self, what: &str, condition: impl Fn(&State) -> bool) {
        let end = Instant::now() + TEN_MINUTES;
        while !condition(&self.state()) {
            assert!(
                Instant::now() < end,
                "not so: {what}; asked last {:#?}",
                self.state().asked.iter().rev().take(5).collect::<Vec<_>>()
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn health(&self, volume: &str) -> Vec<String> {
        let state = self.state();
        let claim = format!("claim-{volume}");
        let claim =
            state.objects[CLAIMS].iter().find(|it| it["metadata"]["name"] == claim.as_str());
        let conditions = &claim.expect("a claim")["status"]["healthStatus"]["healthConditions"];
        let conditions = conditions.as_array().into_iter().flatten();
        conditions.map(|it| it["reason"].as_str().expect("text").to_owned()).collect()
    }

    /// Attempts to write the health of claims.
    fn writes(&self) -> Vec<Asked> {
        let state = self.state();
        let is_write = |asked: &&Asked| asked.method == "PATCH";
        state.asked.iter().filter(is_write).cloned().collect()
    }

    /// Successful writes of the health of one claim.
    fn written(&self, volume: &str) -> usize {
        let path = format!("/claim-{volume}/status");
        let writes = self.writes();
        let of_claim = |asked: &&Asked| asked.path.ends_with(&path) && asked.code == 200;
        writes.iter().filter(of_claim).count()
    }

    fn events(&self) -> usize {
        self.state().events.len()
    }

    fn fail(&self, fault: Fault) {
        let mut state = self.state();
        state.always = Some(fault);
        state.break_watches();
    }

    fn recover(&self) {
        let mut state = self.state();
        (state.always, state.of_path) = (None, None);
        // Connections that waited for ever are closed.
        state.break_watches();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for controller in &self.controllers {
            // A controller that has panicked has said so.
            assert!(
                std::thread::panicking() || !controller.is_finished(),
                "a controller has ended"
            );
            controller.abort();
        }
    }
}

fn holder(state: &State) -> &str {
    state
        .leases
        .get(LEASE)
        .map_or("", |lease| lease["spec"]["holderIdentity"].as_str().unwrap_or_default())
}

fn node(name: &str, is_ready: bool) -> Value {
    let ready = if is_ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "labels": {"kubernetes.io/hostname": name}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

fn persistent_volume(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": format!("uid-of-{name}")},
        "spec": {
            "csi": {"driver": "csi.example.com", "volumeHandle": name},
            "claimRef": {"namespace": "shop", "name": format!("claim-{name}"), "uid": format!("uid-of-claim-{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
            ]}]}},
        },
    })
}

fn claim(volume: &str) -> Value {
    let name = format!("claim-{volume}");
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "shop", "uid": format!("uid-of-{name}"), "name": name},
    })
}

/// A complete report of a node with one drive, on which these volumes are inaccessible.
fn report(node: &str, inaccessible: &[String]) -> Value {
    let drive = format!("naa.5000c500a1b2c30{node}");
    let health = if inaccessible.is_empty() { "Good" } else { "Bad" };
    let drives: Vec<Value> = (!inaccessible.is_empty())
        .then(|| json!({"id": drive, "name": "sda", "health": "Bad", "reason": "DriveOffline"}))
        .into_iter()
        .collect();
    let volumes: Vec<Value> = inaccessible
        .iter()
        .map(|volume| {
            json!({
                "driver": "csi.example.com", "handle": volume, "health": "Bad", "driveIDs": [drive],
                "healthConditions": [{"status": "Inaccessible", "reason": "DriveOffline", "message": "sda is offline"}],
            })
        })
        .collect();
    json!({
        "apiVersion": "diskvitals.io/v1alpha1", "kind": "NodeStorage",
        "metadata": {"name": node, "uid": format!("uid-of-report-{node}")},
        "status": {
            "nodeUID": format!("uid-of-{node}"), "health": health, "driveIDs": [drive],
            "counts": {"drives": 1, "bad": drives.len()}, "drives": drives, "volumes": volumes,
            "conditions": [{"type": "DaemonReachable", "status": "True", "reason": "Answers", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

fn volumes(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("v{number}")).collect()
}
