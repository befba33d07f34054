//! The node's own volumes over the agent socket: fields, codes, pages. The host keeps records in
//! memory and has free space; nothing is mounted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diskvitals_daemon::api::server::AgentCallers;
use diskvitals_finding::provision::BackingKind;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Health, Subject};
use diskvitals_model::snapshot::{NodeContext, Snapshot};
use diskvitals_model::volume::Stack;
use diskvitals_provision::engine::{Engine, Settings};
use diskvitals_provision::step::{
    PoolCapacity, RecordFile, Step, StepError, StepErrorKind, StepExecutor, StepOutput, Wipe,
};
use diskvitals_wire::inventory_client::InventoryClient;
use diskvitals_wire::storage_client::StorageClient;
use diskvitals_wire::volumes_client::VolumesClient;
use diskvitals_wire::*;
use tokio::sync::{mpsc, watch};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::fixture::{Served, channel, finding, now, snapshot};

#[derive(Clone, Default)]
struct Host {
    records: Arc<Mutex<BTreeMap<String, String>>>,
}

impl StepExecutor for Host {
    async fn execute(&self, _: &str, step: Step) -> Result<StepOutput, StepError> {
        let mut records = self.records.lock().unwrap();
        match step {
            Step::DirectoryCapacity { .. } => Ok(StepOutput::Capacity(PoolCapacity {
                total: 1 << 34,
                available: 1 << 33,
                unit: 4096,
                physical_volumes: Vec::new(),
            })),
            Step::ReadRecords { folder } => {
                let of = |(path, text): (&String, &String)| {
                    let name = path.strip_prefix(&format!("{folder}/"))?.to_owned();
                    Some(RecordFile { name, text: Ok(text.clone()) })
                };
                Ok(StepOutput::Records { records: records.iter().filter_map(of).collect() })
            }
            Step::WriteRecord { folder, name, text } => {
                records.insert(folder.join(name).to_string(), text);
                Ok(StepOutput::Empty)
            }
            Step::RemoveRecord { folder, name } => {
                records.remove(&folder.join(name).to_string());
                Ok(StepOutput::Empty)
            }
            Step::CreateImage { .. }
            | Step::RemoveImage { .. }
            | Step::DetachImage { .. }
            | Step::FindImage { .. } => Ok(StepOutput::Empty),
            Step::FindMount { .. } => Ok(StepOutput::Mounted { mounted: None }),
            Step::CheckTarget { .. } | Step::RemoveTarget { .. } => Ok(StepOutput::Empty),
            other => Err(StepError {
                kind: StepErrorKind::Other,
                message: format!("this host cannot {other:?}"),
            }),
        }
    }
}

/// The pool's folder is on the drive sdb.
fn with_pool(mut snapshot: Snapshot) -> Snapshot {
    let drive = snapshot.drives.values().find(|it| it.facts.name == "sdb");
    let stack = Stack::Drive(drive.expect("is there").facts.id.clone());
    snapshot.settled = true;
    snapshot.node_context = Arc::new(NodeContext {
        driver: Some("csi.diskvitals.io".into()),
        pool: [(BackingKind::Loop, stack)].into(),
        ..NodeContext::default()
    });
    snapshot
}

async fn served() -> (Served, VolumesClient<Channel>) {
    served_with(with_pool(snapshot(0))).await
}

async fn served_with(snapshot: Snapshot) -> (Served, VolumesClient<Channel>) {
    let settings = Settings {
        driver: "csi.diskvitals.io".into(),
        directory: "/pool".into(),
        directory_configured: false,
        volume_group: None,
        kubelet_root: "/k".into(),
        static_roots: Vec::new(),
        wipe: Wipe::Zero,
        static_volumes: Vec::new(),
        request_timeout: Duration::from_secs(20),
        rescan_interval: Duration::from_secs(30),
    };
    let (reports, mut received) = mpsc::channel(64);
    let (engine, actor) = Engine::new(
        Host::default(),
        watch::Sender::new(Arc::new(settings)).subscribe(),
        reports,
        watch::Sender::new(Arc::new(snapshot.clone())).subscribe(),
    );
    tokio::spawn(actor.run());
    tokio::spawn(async move { while received.recv().await.is_some() {} });
    engine
        .subscribe()
        .wait_for(|view| view.records_error.is_none() && !view.capacities.is_empty())
        .await
        .unwrap();
    let served = Served::with_volumes(snapshot, engine).await;
    let client = VolumesClient::new(channel(&served.agent_socket()).await);
    (served, client)
}

fn writer() -> Access {
    Access { mode: AccessMode::SingleNodeWriter.into(), ..Default::default() }
}

fn create(name: &str) -> CreateRequest {
    CreateRequest {
        name: name.into(),
        required_bytes: 1 << 20,
        accesses: vec![writer()],
        ..Default::default()
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, field: &str) {
    let status = answer.unwrap_err();
    assert!(status.code() == code && status.message().contains(field), "{status:?}");
}

/// The reporter and interposers: root by name, in the readers' group.
#[tokio::test]
async fn a_reader_reads_the_inventory_and_may_not_use_the_volumes() {
    let (served, mut client) = served().await;
    served.callers.send_replace(AgentCallers {
        read_gids: vec![nix::unistd::getegid().as_raw()],
        ..AgentCallers::default()
    });
    let status = client.get_pool(GetPoolRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(status.message().ends_with("may not use this node's volumes"), "{status:?}");
    let channel = channel(&served.agent_socket()).await;
    InventoryClient::new(channel.clone()).get_node(GetNodeRequest {}).await.unwrap();
    StorageClient::new(channel)
        .witness(WitnessRequest::default())
        .await
        .map_or_else(|status| assert_ne!(status.code(), Code::PermissionDenied), |_| ());
}

#[tokio::test]
async fn the_pool_is_reported_and_volumes_are_created_listed_and_deleted() {
    let (_served, mut client) = served().await;
    let pool = client.get_pool(GetPoolRequest {}).await.unwrap().into_inner();
    assert_eq!(
        (pool.kinds.len(), pool.kinds[0].kind(), pool.kinds[0].available_bytes),
        (1, ProvidedKind::Loop, 1 << 33)
    );
    let mut handles = Vec::new();
    for number in 0..5 {
        handles.push(
            client.create(create(&format!("pvc-{number}"))).await.unwrap().into_inner().handle,
        );
    }
    let again = client.create(create("pvc-3")).await.unwrap().into_inner();
    assert_eq!(
        (again.handle.as_str(), again.size_bytes, again.kind()),
        (handles[3].as_str(), 1 << 20, ProvidedKind::Loop)
    );
    handles.sort();
    let (mut listed, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = client
            .list_provided(ListProvidedRequest { page_size: 2, page_token })
            .await
            .unwrap()
            .into_inner();
        assert!(page.volumes.len() <= 2);
        listed.extend(page.volumes.into_iter().map(|volume| volume.handle));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, handles);
    for handle in handles {
        assert_eq!(
            client
                .get_provided(GetProvidedRequest { handle: handle.clone() })
                .await
                .unwrap()
                .into_inner()
                .handle,
            handle
        );
        client.delete(DeleteRequest { handle: handle.clone() }).await.unwrap();
        refused(client.get_provided(GetProvidedRequest { handle }).await, Code::NotFound, "handle");
    }
}

#[tokio::test]
async fn every_invalid_argument_has_the_specified_code_and_names_its_field() {
    let (_served, mut client) = served().await;
    refused(client.create(create("")).await, Code::InvalidArgument, "name");
    refused(
        client.create(CreateRequest { accesses: Vec::new(), ..create("a") }).await,
        Code::InvalidArgument,
        "accesses",
    );
    refused(
        client.create(CreateRequest { accesses: vec![Access::default()], ..create("a") }).await,
        Code::InvalidArgument,
        "access.mode",
    );
    for kind in [3, 2, 99] {
        let request = CreateRequest { kind, ..create("a") };
        refused(client.create(request).await, Code::InvalidArgument, "kind");
    }
    refused(
        client.create(CreateRequest { mkfs_options: "-n".into(), ..create("a") }).await,
        Code::InvalidArgument,
        "mkfs_options",
    );
    refused(
        client.create(CreateRequest { required_bytes: u64::MAX, ..create("a") }).await,
        Code::OutOfRange,
        "bytes",
    );
    refused(
        client.create(CreateRequest { required_bytes: 2, limit_bytes: 1, ..create("a") }).await,
        Code::OutOfRange,
        "limit_bytes",
    );
    refused(
        client.create(CreateRequest { required_bytes: 1 << 40, ..create("a") }).await,
        Code::ResourceExhausted,
        "pool",
    );
    client.create(create("a")).await.unwrap();
    refused(
        client.create(CreateRequest { required_bytes: 2 << 20, ..create("a") }).await,
        Code::AlreadyExists,
        "size",
    );
    refused(client.delete(DeleteRequest::default()).await, Code::InvalidArgument, "handle");
    client.delete(DeleteRequest { handle: "../../etc/passwd\0".into() }).await.unwrap();
    let stage = |handle: &str, path: &str| StageRequest {
        handle: handle.into(),
        staging_path: path.into(),
        access: Some(writer()),
    };
    refused(client.stage(stage("", "/k/s")).await, Code::InvalidArgument, "handle");
    refused(client.stage(stage("x", "s")).await, Code::InvalidArgument, "staging_path");
    refused(
        client.stage(StageRequest { access: None, ..stage("x", "/k/s") }).await,
        Code::InvalidArgument,
        "access",
    );
    refused(client.stage(stage("x", "/k/s")).await, Code::NotFound, "handle");
    let publish = PublishRequest {
        handle: "x".into(),
        target_path: "/etc/x".into(),
        access: Some(writer()),
        ..Default::default()
    };
    refused(client.publish(publish).await, Code::InvalidArgument, "target_path");
    refused(
        client.unpublish(UnpublishRequest { handle: "x".into(), target_path: "/k/t".into() }).await,
        Code::NotFound,
        "handle",
    );
    refused(
        client.unstage(UnstageRequest { handle: "x".into(), staging_path: String::new() }).await,
        Code::InvalidArgument,
        "staging_path",
    );
    let expand = ExpandRequest {
        handle: "x".into(),
        required_bytes: 1,
        volume_path: "some/path".into(),
        ..Default::default()
    };
    refused(client.expand(expand).await, Code::NotFound, "handle");
    refused(
        client
            .list_provided(ListProvidedRequest { page_token: "x".into(), ..Default::default() })
            .await,
        Code::InvalidArgument,
        "page_token",
    );
}

#[tokio::test]
async fn a_failed_step_is_reported_with_its_cause_and_undone() {
    let (_served, mut client) = served().await;
    let handle = client.create(create("a")).await.unwrap().into_inner().handle;
    let stage = StageRequest {
        handle: handle.clone(),
        staging_path: "/k/s".into(),
        access: Some(writer()),
    };
    refused(client.stage(stage).await, Code::Internal, "this host cannot AttachImage");
    let volume = client.get_provided(GetProvidedRequest { handle }).await.unwrap().into_inner();
    assert!(
        volume.attachments.is_empty() && volume.problem.is_empty() && volume.busy.is_empty(),
        "{volume:?}"
    );
}

/// As GetPool, Create and GetNode say it.
#[tokio::test]
async fn a_failing_drive_below_the_pool_is_reported_as_its_cordon() {
    let mut snapshot = with_pool(snapshot(0));
    let drive = snapshot.drives.values_mut().find(|it| it.facts.name == "sdb").expect("is there");
    let drive = Arc::make_mut(drive);
    let id = drive.facts.id.clone();
    let failing = finding(Subject::Drive(id.clone()), Reason::SmartFailing, Severity::Bad, now());
    drive.health = Health::Bad;
    drive.findings.push(failing.id.clone());
    snapshot.findings.insert(failing.id.clone(), Arc::new(failing));
    let (served, mut client) = served_with(snapshot).await;
    let pool = client.get_pool(GetPoolRequest {}).await.unwrap();
    let kind = &pool.into_inner().kinds[0];
    assert_eq!((kind.available_bytes, kind.total_bytes), (0, 1 << 34));
    let node = InventoryClient::new(channel(&served.agent_socket()).await)
        .get_node(GetNodeRequest {})
        .await
        .unwrap()
        .into_inner();
    let [cordon] = node.pool_cordons.as_slice() else {
        panic!("{:?}", node.pool_cordons);
    };
    assert_eq!(
        (cordon.kind.as_str(), cordon.drive_id.as_str(), cordon.reason.as_str()),
        ("loop", id.as_str(), "SmartFailing")
    );
    assert_eq!(cordon.message, kind.problem);
    for part in ["drive sdb (MODEL, serial S2)", "SmartFailing since", "Replace it now"] {
        assert!(cordon.message.contains(part), "{}", cordon.message);
    }
    let status = client.create(create("pvc-1")).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::ResourceExhausted, cordon.message.as_str())
    );
    assert!(
        client
            .list_provided(ListProvidedRequest::default())
            .await
            .unwrap()
            .into_inner()
            .volumes
            .is_empty()
    );
}

#[tokio::test]
async fn the_pool_has_no_figures_while_its_drives_are_unknown() {
    let mut snapshot = with_pool(snapshot(0));
    snapshot.settled = false;
    let (_served, mut client) = served_with(snapshot).await;
    refused(client.get_pool(GetPoolRequest {}).await, Code::Unavailable, "not known yet");
}
