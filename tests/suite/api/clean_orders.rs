//! CleanStale on the agent's socket: who may order what, and what an order changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diskvitals_daemon::api::server::cleanup::CleanupBackend;
use diskvitals_daemon::api::server::{AgentCallers, OrderSettings};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{BackingKind, ProvidedVolume, VolumePresence};
use diskvitals_finding::source::Source;
use diskvitals_model::clean_order::{HoldKind, PodHold, PodHolds};
use diskvitals_model::snapshot::Snapshot;
use diskvitals_model::source_update::SourceStatus;
use diskvitals_provision::step::{Step, StepError, StepErrorKind, StepOutput};
use diskvitals_wire::pod_cleaning::State;
use diskvitals_wire::storage_client::StorageClient;
use diskvitals_wire::{CleanStaleRequest, StaleCleaning};
use tokio::sync::{Notify, watch};
use tonic::{Code, Status};

use super::cleanup::{attached_snapshot, target};
use super::fixture::{Served, channel, now, within};

/// Volume `a` is this node's own; its pod is gone since a moment, volume `b` is in use.
fn node() -> Snapshot {
    let mut node = attached_snapshot(0);
    Arc::make_mut(&mut node.node_context).driver = Some("d.example".into());
    let volume = node.volumes.values_mut().next().expect("volume a");
    Arc::make_mut(&mut Arc::make_mut(volume).facts).provided = Some(Box::new(ProvidedVolume {
        handle: "a".into(),
        kind: BackingKind::StaticDirectory,
        size: 0,
        device: None,
        backing: "/srv/a".into(),
        staged: None,
        published: Vec::new(),
        presence: VolumePresence::Present,
        error: None,
        is_unread: false,
    }));
    for attachment in node.attachments.values_mut() {
        if let Some(orphaned) = &mut Arc::make_mut(attachment).orphaned {
            // Within the grace.
            orphaned.since = now();
        }
    }
    let sources = &mut Arc::make_mut(&mut node.node).sources;
    for source in [Source::Kubelet, Source::Mounts] {
        sources.insert(source, (SourceStatus::Active("read".into()), now()));
    }
    node
}

/// Unmounts wait for `go`.
#[derive(Default)]
struct Host {
    steps: Mutex<Vec<Step>>,
    holds: Mutex<Vec<PodHold>>,
    asked: Mutex<Vec<Vec<String>>>,
    waits: Mutex<bool>,
    go: Notify,
    refusal: Mutex<Option<StepError>>,
}

impl Host {
    fn unmounted(&self) -> Vec<String> {
        let steps = self.steps.lock().unwrap();
        let paths = steps.iter().filter_map(|step| match step {
            Step::Unmount { target, lazy } => {
                assert!(!lazy, "never lazily");
                Some(target.path.to_string())
            }
            _ => None,
        });
        paths.collect()
    }
}

#[tonic::async_trait]
impl CleanupBackend for Host {
    async fn execute(&self, _: &str, step: Step) -> Result<StepOutput, StepError> {
        let is_unmount = matches!(step, Step::Unmount { .. });
        self.steps.lock().unwrap().push(step);
        let waits = *self.waits.lock().unwrap();
        if is_unmount && waits {
            self.go.notified().await;
        }
        let refusal = self.refusal.lock().unwrap().clone();
        refusal.filter(|_| is_unmount).map_or(Ok(StepOutput::Empty), Err)
    }

    async fn openers(&self, _: Vec<HostPath>) -> Result<Vec<String>, StepError> {
        Ok(Vec::new())
    }

    async fn pod_holds(&self, _: HostPath, pod_uids: Vec<String>) -> Result<PodHolds, StepError> {
        self.asked.lock().unwrap().push(pod_uids);
        Ok(PodHolds { holds: self.holds.lock().unwrap().clone(), not_read: Vec::new() })
    }

    async fn rescan(&self) {}
}

struct Scene {
    served: Served,
    host: Arc<Host>,
    settings: watch::Sender<OrderSettings>,
}

impl Scene {
    async fn start(allowed: bool) -> Scene {
        let host = Arc::new(Host::default());
        let (settings, given) = watch::channel(OrderSettings { allowed, uids: Vec::new() });
        let backend = host.clone();
        let served = Served::build(node(), |server| server.with_orders(backend, given)).await;
        // As uid 0 may, without root.
        served.allow(nix::unistd::geteuid().as_raw());
        Scene { served, host, settings }
    }

    async fn order(&self, id: &str, uids: &[&str]) -> Result<StaleCleaning, Status> {
        let channel = channel(&self.served.agent_socket()).await;
        let request = CleanStaleRequest {
            quarantine_id: id.into(),
            pod_uids: uids.iter().map(ToString::to_string).collect(),
        };
        StorageClient::new(channel).clean_stale(request).await.map(tonic::Response::into_inner)
    }

    async fn states(&self, id: &str, uids: &[&str]) -> Vec<State> {
        let answer = self.order(id, uids).await.expect("an answer");
        answer.pods.iter().map(|pod| pod.state()).collect()
    }

    async fn until(&self, id: &str, uids: &[&str], wanted: &[State]) {
        within(20, async {
            while self.states(id, uids).await != wanted {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    async fn refused(&self, id: &str, uids: &[&str]) -> (Code, String) {
        let status = self.order(id, uids).await.expect_err("refused");
        (status.code(), status.message().to_owned())
    }
}

#[tokio::test]
async fn an_order_is_carried_out_once_and_its_answer_does_not_wait() {
    let scene = Scene::start(true).await;
    *scene.host.waits.lock().unwrap() = true;
    let pods = &["uid-a", "uid-b", "uid-z"][..];
    let answer = within(5, scene.order("q-1", pods)).await.expect("an answer");
    let states: Vec<_> = answer.pods.iter().map(|pod| pod.state()).collect();
    assert_eq!(states, [State::Cleaning, State::InUse, State::Absent]);
    assert!(answer.orders_allowed && answer.unreadable.is_empty());
    assert_eq!(answer.node.expect("the node").boot_id, "b");
    // The same again, while it is under way.
    for _ in 0..3 {
        scene.order("q-1", pods).await.expect("an answer");
    }
    let (code, why) = scene.refused("q-2", pods).await;
    assert_eq!(code, Code::FailedPrecondition, "{why}");
    assert!(why.contains("q-1"), "{why}");
    scene.host.go.notify_one();
    within(20, async {
        while scene.host.unmounted().len() < 2 {
            scene.host.go.notify_one();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let staging =
        HostPath::from("/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/a/globalmount");
    assert_eq!(scene.host.unmounted(), [staging.to_string(), target("a")]);
    scene.served.owner.modify(|node| {
        node.attachments.retain(|path, _| {
            path.to_string().contains("/b/") || path.to_string().contains("uid-b")
        });
    });
    scene.host.go.notify_one();
    scene.until("q-1", pods, &[State::Cleaned, State::InUse, State::Absent]).await;
    // Another order begins anew.
    assert_eq!(scene.states("q-2", &["uid-a"]).await, [State::Absent]);
    assert_eq!(scene.host.unmounted().len(), 2);
}

#[tokio::test]
async fn forged_orders_change_nothing() {
    let scene = Scene::start(true).await;
    let many: Vec<String> = (0..10_000).map(|n| format!("uid-{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = "a".repeat(65);
    for uids in [
        &["../.."][..],
        &["uid-a/../uid-b"],
        &["uid-a", ""],
        &["uid a"],
        &["uid-a\0"],
        &["."],
        &[long.as_str()],
        &many[..65],
    ] {
        let (code, why) = scene.refused("q-1", uids).await;
        assert_eq!(code, Code::InvalidArgument, "{uids:?}: {why}");
        assert!(why.starts_with("pod_uids: "), "{why}");
    }
    // Larger than a request may be.
    scene.order("q-1", &many).await.expect_err("refused");
    assert_eq!(scene.refused("", &["uid-a"]).await.0, Code::InvalidArgument);
    assert_eq!(scene.states("q-1", &[]).await, []);
    // Pods that do not exist, and one that does.
    let states = scene.states("q-1", &["uid-b", "uid-x"]).await;
    assert_eq!(states, [State::InUse, State::Absent]);
    assert!(scene.host.steps.lock().unwrap().is_empty());
}

#[tokio::test]
async fn without_permission_in_the_configuration_an_order_is_answered_and_not_carried_out() {
    let scene = Scene::start(false).await;
    let answer = scene.order("q-1", &["uid-a"]).await.expect("an answer");
    assert!(!answer.orders_allowed);
    assert_eq!(answer.pods[0].state(), State::OrdersOff);
    assert_eq!(answer.pods[0].detail, target("a"));
    assert!(scene.host.steps.lock().unwrap().is_empty());
    // A reload of the configuration permits it.
    scene.settings.send_modify(|settings| settings.allowed = true);
    scene.order("q-1", &["uid-a"]).await.expect("an answer");
    within(20, async {
        while scene.host.unmounted().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn callers_that_may_only_read_give_no_orders_unless_they_are_listed() {
    let scene = Scene::start(true).await;
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    scene
        .served
        .callers
        .send_replace(AgentCallers { read_gids: vec![gid.as_raw()], ..AgentCallers::default() });
    let (code, why) = scene.refused("q-1", &["uid-a"]).await;
    assert_eq!(code, Code::PermissionDenied);
    assert!(why.contains("order_uids"), "{why}");
    assert!(scene.host.steps.lock().unwrap().is_empty());
    scene.settings.send_modify(|settings| settings.uids = vec![uid.as_raw()]);
    assert_eq!(scene.states("q-1", &["uid-a"]).await, [State::Cleaning]);
}

#[tokio::test]
async fn a_process_of_a_listed_pod_is_named_and_nothing_is_unmounted() {
    let scene = Scene::start(true).await;
    let hold = PodHold {
        pod_uid: "uid-a".into(),
        kind: HoldKind::Process,
        detail: "812 (mysqld) runs in its container".into(),
    };
    scene.host.holds.lock().unwrap().push(hold);
    let answer = scene.order("q-1", &["uid-a"]).await.expect("an answer");
    assert_eq!(answer.pods[0].state(), State::Held);
    assert_eq!(answer.pods[0].detail, "812 (mysqld) runs in its container");
    assert!(scene.host.steps.lock().unwrap().is_empty());
    scene.host.holds.lock().unwrap().clear();
    assert_eq!(scene.states("q-1", &["uid-a"]).await, [State::Cleaning]);
}

#[tokio::test]
async fn what_an_unmount_meets_is_the_answer_and_offers_no_lazy_unmount() {
    for (kind, state) in [
        (StepErrorKind::InUse, State::Held),
        (StepErrorKind::Stuck, State::Hung),
        (StepErrorKind::Other, State::Failed),
    ] {
        let scene = Scene::start(true).await;
        *scene.host.refusal.lock().unwrap() =
            Some(StepError { kind, message: "unmounting /x: no".into() });
        scene.order("q-1", &["uid-a"]).await.expect("an answer");
        scene.until("q-1", &["uid-a"], &[state]).await;
        let answer = scene.order("q-1", &["uid-a"]).await.expect("an answer");
        assert_eq!(answer.pods[0].detail, "unmounting /x: no");
    }
}

#[tokio::test]
async fn a_kubelet_whose_records_cannot_be_read_makes_everything_unreadable() {
    let scene = Scene::start(true).await;
    scene.served.owner.modify(|node| {
        let down = SourceStatus::Down("reading /var/lib/kubelet/pods: EIO".into());
        Arc::make_mut(&mut node.node).sources.insert(Source::Kubelet, (down, now()));
    });
    let answer = scene.order("q-1", &["uid-a", "uid-z"]).await.expect("an answer");
    assert!(answer.unreadable.contains("EIO"), "{answer:?}");
    assert!(answer.pods.iter().all(|pod| pod.state() == State::Unreadable));
    assert!(scene.host.steps.lock().unwrap().is_empty());
}
