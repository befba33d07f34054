//! Attachments and stale mounts, and their removal.

use std::path::Path;
use std::sync::{Arc, Mutex};

use diskvitals_daemon::api::server::cleanup::CleanupBackend;
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::PodRef;
use diskvitals_model::clean_order::PodHolds;
use diskvitals_model::snapshot::{NodeContext, Snapshot};
use diskvitals_model::source_update::SourceRequest;
use diskvitals_model::stale::{Attachment, OrphanState};
use diskvitals_model::volume::MountRole;
use diskvitals_provision::step::{Step, StepError, StepErrorKind, StepOutput};
use diskvitals_wire as wire;
use diskvitals_wire::cleanup_step::State;
use diskvitals_wire::client::ClientError;
use jiff::SignedDuration;
use tonic::Code;

use super::fixture::{Served, now, snapshot};

use crate::programs::built_program;

const K: &str = "/var/lib/kubelet";

pub fn target(handle: &str) -> String {
    format!("{K}/pods/uid-{handle}/volumes/kubernetes.io~csi/pv-{handle}/mount")
}

fn attachment(handle: &str, role: MountRole, stale: bool) -> Attachment {
    let path = match role {
        MountRole::Staging => {
            format!("{K}/plugins/kubernetes.io/csi/d.example/{handle}/globalmount")
        }
        _ => target(handle),
    };
    let orphaned = OrphanState {
        since: now() - SignedDuration::from_secs(600),
        confirmed_at: now(),
        why: "its pod is gone".into(),
    };
    Attachment {
        path: path.as_str().into(),
        role,
        volume: VolumeId::csi("d.example", handle),
        driver: "d.example".into(),
        handle: handle.into(),
        read_only: false,
        block: false,
        mode: None,
        pod: (role == MountRole::Pod)
            .then(|| PodRef { uid: format!("uid-{handle}"), ..PodRef::default() }),
        since: now(),
        used_by: (!stale).then(|| "the kubelet's record says that a pod has it".into()),
        orphaned: stale.then_some(orphaned),
    }
}

/// Volume `a` is stale, volume `b` and `more` others are in use.
pub fn attached_snapshot(more: usize) -> Snapshot {
    let mut snapshot = snapshot(more);
    let root = HostPath::from(K);
    snapshot.node_context = Arc::new(NodeContext {
        configured_kubelet_root: root.clone(),
        kubelet_root: root,
        ..NodeContext::default()
    });
    let handles = (0..more).map(|n| format!("more{n:05}")).chain(["a".to_owned(), "b".to_owned()]);
    let attachments = handles.flat_map(|handle| {
        [MountRole::Staging, MountRole::Pod].map(|role| attachment(&handle, role, handle == "a"))
    });
    snapshot.attachments =
        attachments.map(|attachment| (attachment.path.clone(), Arc::new(attachment))).collect();
    snapshot
}

#[derive(Default)]
struct RecordingBackend {
    taken: Mutex<Vec<(String, Step)>>,
    openers: Mutex<Option<Result<Vec<String>, StepError>>>,
    /// The configured answer to unmounts.
    unmount: Mutex<Option<StepError>>,
    /// The target whose steps all hang.
    hung: Mutex<Option<String>>,
}

#[tonic::async_trait]
impl CleanupBackend for RecordingBackend {
    async fn execute(&self, target: &str, step: Step) -> Result<StepOutput, StepError> {
        let is_unmount = matches!(step, Step::Unmount { .. });
        let is_parent = matches!(&step, Step::RemoveTarget { target, .. } if !target.path.to_string().ends_with("mount"));
        self.taken.lock().unwrap().push((target.to_owned(), step));
        if self.hung.lock().unwrap().as_deref() == Some(target) {
            return std::future::pending().await;
        }
        let refused = self.unmount.lock().unwrap().clone().filter(|_| is_unmount);
        let not_empty = is_parent
            .then(|| StepError { kind: StepErrorKind::InUse, message: "it is not empty".into() });
        refused.or(not_empty).map_or(Ok(StepOutput::Empty), Err)
    }

    async fn openers(&self, _: Vec<HostPath>) -> Result<Vec<String>, StepError> {
        let openers = self.openers.lock().unwrap().clone();
        openers.unwrap_or(Ok(Vec::new()))
    }

    async fn pod_holds(&self, _: HostPath, _: Vec<String>) -> Result<PodHolds, StepError> {
        Ok(PodHolds::default())
    }

    async fn rescan(&self) {}
}

async fn served(snapshot: Snapshot) -> (Served, Arc<RecordingBackend>) {
    let backend = Arc::new(RecordingBackend::default());
    let given = backend.clone();
    (Served::build(snapshot, |server| server.with_cleanup(given)).await, backend)
}

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (Code, String) {
    match answer.expect_err("refused") {
        ClientError::Rejected(status) => (status.code(), status.message().to_owned()),
        other => panic!("{other}"),
    }
}

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root may clean up");
    }
    is_root
}

#[tokio::test]
async fn attachments_are_listed_in_pages_of_any_size_and_by_volume() {
    let served = Served::start(attached_snapshot(150)).await;
    let channel = super::fixture::channel(&served.socket()).await;
    let mut client = wire::inventory_client::InventoryClient::new(channel);
    let whole = served.client().await.attachments("", "", false).await.unwrap().attachments;
    assert_eq!(whole.len(), 304);
    for page_size in [1, 7, 100, 1000] {
        let mut request = wire::ListAttachmentsRequest { page_size, ..Default::default() };
        let mut joined = Vec::new();
        loop {
            let page = client.list_attachments(request.clone()).await.unwrap().into_inner();
            joined.extend(page.attachments);
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                break;
            }
        }
        assert_eq!(joined, whole, "page size {page_size}");
    }
    let stale = served.client().await.attachments("", "", true).await.unwrap().attachments;
    assert_eq!(
        stale.iter().map(|it| (it.role(), it.stale.as_str())).collect::<Vec<_>>(),
        [(wire::MountRole::Staging, "its pod is gone"), (wire::MountRole::Pod, "its pod is gone")]
    );
    assert_eq!(
        (stale[1].pod_uid.as_str(), stale[1].volume_id.as_str()),
        ("uid-a", "csi:d.example/a")
    );
    assert_eq!(
        served.client().await.attachments("d.example", "b", false).await.unwrap().attachments.len(),
        2
    );
    assert_eq!(
        served.client().await.attachments("other", "", false).await.unwrap().attachments.len(),
        0
    );
    let wrong = wire::ListAttachmentsRequest { page_token: "junk".into(), ..Default::default() };
    assert_eq!(client.list_attachments(wrong).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_dry_run_lists_the_steps_and_takes_none() {
    if !is_root() {
        return;
    }
    let (served, backend) = served(attached_snapshot(0)).await;
    let answer = served.client().await.clean_up("csi:d.example/a", false, false).await.unwrap();
    assert_eq!(answer.volume_id, "csi:d.example/a");
    let steps: Vec<(&str, State)> =
        answer.steps.iter().map(|step| (step.action.as_str(), step.state())).collect();
    let each = ["unmount", "remove", "remove if empty"].map(|words| (words, State::Planned));
    assert_eq!(steps, [each, each].concat());
    assert_eq!(
        (answer.steps[0].path.as_str(), backend.taken.lock().unwrap().len()),
        (target("a").as_str(), 0)
    );
}

#[tokio::test]
async fn cleanup_steps_run_in_order_and_are_reported() {
    if !is_root() {
        return;
    }
    let (served, backend) = served(attached_snapshot(0)).await;
    let answer = served.client().await.clean_up("a", true, true).await.unwrap();
    assert!(answer.steps.iter().all(|step| step.state() == State::Done), "{answer:?}");
    assert_eq!(answer.steps[2].detail, "it is not empty and stays");
    let taken = backend.taken.lock().unwrap();
    assert_eq!(taken.len(), 6);
    assert!(
        matches!(&taken[0].1, Step::Unmount { target: place, lazy: true } if place.path == HostPath::from(target("a").as_str()) && place.root == HostPath::from(K))
    );
    assert!(matches!(&taken[1].1, Step::RemoveTarget { .. }));
    assert_eq!(
        *served.owner.asked.lock().unwrap(),
        [SourceRequest::Mounts, SourceRequest::Kubelet]
    );
}

#[tokio::test]
async fn a_failed_cleanup_step_stops_the_cleanup() {
    if !is_root() {
        return;
    }
    let (served, backend) = served(attached_snapshot(0)).await;
    *backend.unmount.lock().unwrap() =
        Some(StepError { kind: StepErrorKind::InUse, message: "unmounting /x: in use".into() });
    let answer = served.client().await.clean_up(&target("a"), true, false).await.unwrap();
    let states: Vec<State> = answer.steps.iter().map(wire::CleanupStep::state).collect();
    assert_eq!(states, [State::Failed, State::Planned, State::Planned]);
    assert!(
        answer.steps[0].detail.starts_with("unmounting /x: in use; a lazy unmount"),
        "{answer:?}"
    );
    assert_eq!(backend.taken.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_lazy_cleanup_does_not_wait_for_a_hung_volume() {
    if !is_root() {
        return;
    }
    let (served, backend) = served(attached_snapshot(0)).await;
    let client = served.client().await;
    let turn = {
        client.clean_up("a", true, false).await.unwrap();
        backend.taken.lock().unwrap().drain(..).next().unwrap().0
    };
    *backend.hung.lock().unwrap() = Some(turn);
    let (hanging, lazy) = tokio::join!(client.clean_up("a", true, false), async {
        while backend.taken.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        client.clean_up("a", true, true).await
    });
    assert_eq!(hanging.unwrap().steps[0].detail, "under way");
    let lazy = lazy.unwrap();
    assert!(lazy.steps.iter().all(|step| step.state() == State::Done), "{lazy:?}");
}

#[tokio::test]
async fn cleanup_is_refused_while_the_volume_is_or_may_be_in_use() {
    if !is_root() {
        return;
    }
    let (served, backend) = served(attached_snapshot(0)).await;
    let client = served.client().await;
    for commit in [false, true] {
        let (code, said) = refused(client.clean_up("b", commit, true).await);
        assert_eq!(
            (code, said.contains("says that a pod has it")),
            (Code::FailedPrecondition, true),
            "{said}"
        );
        *backend.openers.lock().unwrap() = Some(Ok(vec!["812 (mysqld) has /x/y open".into()]));
        let (code, said) = refused(client.clean_up("a", commit, true).await);
        assert_eq!(
            (code, said.contains("812 (mysqld) has /x/y open")),
            (Code::FailedPrecondition, true),
            "{said}"
        );
        *backend.openers.lock().unwrap() = Some(Err(StepError {
            kind: StepErrorKind::Stuck,
            message: "the worker does not answer".into(),
        }));
        assert_eq!(refused(client.clean_up("a", commit, true).await).0, Code::FailedPrecondition);
        *backend.openers.lock().unwrap() = None;
    }
    assert_eq!(refused(client.clean_up("nope", true, false).await).0, Code::NotFound);
    assert_eq!(refused(client.clean_up("", true, false).await).0, Code::InvalidArgument);
    served.owner.modify(|snapshot| snapshot.settled = false);
    assert_eq!(refused(client.clean_up("a", true, false).await).0, Code::FailedPrecondition);
    assert!(backend.taken.lock().unwrap().is_empty());
}

#[tokio::test]
async fn cleanup_is_refused_where_unmounting_is_impossible() {
    if !is_root() {
        return;
    }
    let served = Served::start(attached_snapshot(0)).await;
    assert_eq!(
        refused(served.client().await.clean_up("a", false, false).await).0,
        Code::FailedPrecondition
    );
}

#[allow(clippy::disallowed_methods)] // The very program that is tested.
async fn diskvitals(socket: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = std::process::Command::new(built_program("diskvitals"));
    command.args(arguments).env("DISKVITALS_SOCKET", socket).stdin(std::process::Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn the_command_line_prints_the_planned_steps_and_the_command_to_run_them() {
    if !is_root() {
        return;
    }
    let (served, backend) = served(attached_snapshot(0)).await;
    let (code, printed, _) = diskvitals(&served.socket(), &["volumes", "--stale"]).await;
    assert_eq!((code, printed.lines().count()), (Some(0), 3), "{printed}");
    let (code, printed, _) = diskvitals(&served.socket(), &["cleanup", "a"]).await;
    assert_eq!(code, Some(0));
    assert!(
        printed.ends_with(
            "nothing has been done; to execute these steps: diskvitals cleanup a --yes\n"
        ),
        "{printed}"
    );
    assert!(backend.taken.lock().unwrap().is_empty());
    let (code, printed, _) =
        diskvitals(&served.socket(), &["cleanup", "a", "--yes", "-o", "json"]).await;
    let answer: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &answer["steps"][0]["state"]), (Some(0), &"STATE_DONE".into()));
    let (code, _, complaint) = diskvitals(&served.socket(), &["cleanup", "b", "--yes"]).await;
    assert_eq!(code, Some(1));
    assert!(
        complaint.starts_with("diskvitals: ") && complaint.contains("is in use"),
        "{complaint}"
    );
}
