//! The life of a volume: the requests to the daemon, and the results for the caller.

use diskvitals_csi::wire;
use diskvitals_wire as daemon;
use tonic::{Code, Status};

use super::*;

fn create(name: &str) -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest {
        name: name.into(),
        capacity_range: Some(wire::CapacityRange { required_bytes: 1 << 20, limit_bytes: 1 << 21 }),
        volume_capabilities: vec![mounted(Mode::SingleNodeWriter)],
        ..Default::default()
    }
}

fn stage(id: &str) -> wire::NodeStageVolumeRequest {
    wire::NodeStageVolumeRequest {
        volume_id: id.into(),
        staging_target_path: "/k/stage".into(),
        volume_capability: Some(mounted(Mode::SingleNodeWriter)),
        ..Default::default()
    }
}

fn publish(id: &str) -> wire::NodePublishVolumeRequest {
    wire::NodePublishVolumeRequest {
        volume_id: id.into(),
        staging_target_path: "/k/stage".into(),
        target_path: "/k/target".into(),
        volume_capability: Some(block(Mode::SingleNodeReaderOnly)),
        readonly: true,
        ..Default::default()
    }
}

async fn validated(
    shim: &Shim,
    request: wire::ValidateVolumeCapabilitiesRequest,
) -> wire::ValidateVolumeCapabilitiesResponse {
    let mut controller = shim.controller();
    let answer = controller.validate_volume_capabilities(request).await;
    answer.expect("an answer").into_inner()
}

#[tokio::test]
async fn a_volume_is_created_with_its_parameters_and_topology() {
    let shim = Shim::start(&[]).await;
    let parameters = [
        ("diskvitals.io/kind", "loop"),
        ("diskvitals.io/mkfs-options", "-i 8192"),
        ("csi.storage.k8s.io/fstype", "xfs"),
        ("csi.storage.k8s.io/pvc/name", "claim"),
    ];
    let mut bare = mounted(Mode::SingleNodeWriter);
    bare.access_type = Some(AccessType::Mount(MountVolume::default()));
    let request = wire::CreateVolumeRequest {
        parameters: parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        volume_capabilities: vec![
            bare,
            mounted(Mode::SingleNodeMultiWriter),
            block(Mode::SingleNodeSingleWriter),
        ],
        accessibility_requirements: Some(wire::TopologyRequirement {
            requisite: vec![here()],
            preferred: vec![here()],
        }),
        secrets: [("key".to_owned(), "hunter2".to_owned())].into(),
        ..create("pvc-1")
    };
    let answer = shim.controller().create_volume(request).await.expect("made").into_inner();
    let expected = wire::Volume {
        capacity_bytes: 1 << 20,
        volume_id: "dv-pvc-1".into(),
        volume_context: [("diskvitals.io/topology".to_owned(), NODE.to_owned())].into(),
        content_source: None,
        accessible_topology: vec![here()],
    };
    assert_eq!(answer.volume, Some(expected));
    let access = |mode: daemon::AccessMode, fs_type: &str, flags: &[&str], block| daemon::Access {
        mode: mode.into(),
        block,
        fs_type: fs_type.into(),
        mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
    };
    let expected = daemon::CreateRequest {
        name: "pvc-1".into(),
        required_bytes: 1 << 20,
        limit_bytes: 1 << 21,
        kind: daemon::ProvidedKind::Loop.into(),
        accesses: vec![
            access(daemon::AccessMode::SingleNodeWriter, "xfs", &[], false),
            access(daemon::AccessMode::SingleNodeMultiWriter, "ext4", &["noatime"], false),
            access(daemon::AccessMode::SingleNodeSingleWriter, "", &[], true),
        ],
        mkfs_options: "-i 8192".into(),
    };
    assert_eq!(shim.daemon.state().created, [expected]);
}

#[tokio::test]
async fn staging_and_publishing_forward_the_kubelets_arguments() {
    let shim = Shim::start(&[]).await;
    shim.provide("dv-1");
    let context = [
        ("diskvitals.io/topology", NODE),
        ("csi.storage.k8s.io/pod.uid", "u"),
        ("csi.storage.k8s.io/pod.name", "n"),
        ("csi.storage.k8s.io/pod.namespace", "ns"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()));
    shim.node()
        .node_stage_volume(wire::NodeStageVolumeRequest {
            volume_context: context.clone().into(),
            ..stage("dv-1")
        })
        .await
        .expect("staged");
    shim.node()
        .node_publish_volume(wire::NodePublishVolumeRequest {
            volume_context: context.into(),
            ..publish("dv-1")
        })
        .await
        .expect("published");
    let unpublish = wire::NodeUnpublishVolumeRequest {
        volume_id: "dv-1".into(),
        target_path: "/k/target".into(),
    };
    shim.node().node_unpublish_volume(unpublish).await.expect("unpublished");
    let unstage = wire::NodeUnstageVolumeRequest {
        volume_id: "dv-1".into(),
        staging_target_path: "/k/stage".into(),
    };
    shim.node().node_unstage_volume(unstage).await.expect("unstaged");
    shim.controller()
        .delete_volume(wire::DeleteVolumeRequest { volume_id: "dv-1".into(), ..Default::default() })
        .await
        .expect("deleted");
    let state = shim.daemon.state();
    let access = daemon::Access {
        mode: 1,
        block: false,
        fs_type: "ext4".into(),
        mount_flags: vec!["noatime".into()],
    };
    assert_eq!(
        state.staged,
        [daemon::StageRequest {
            handle: "dv-1".into(),
            staging_path: "/k/stage".into(),
            access: Some(access)
        }]
    );
    let expected = daemon::PublishRequest {
        handle: "dv-1".into(),
        staging_path: "/k/stage".into(),
        target_path: "/k/target".into(),
        access: Some(daemon::Access { mode: 2, block: true, ..Default::default() }),
        read_only: true,
        pod_uid: "u".into(),
        pod_name: "n".into(),
        pod_namespace: "ns".into(),
    };
    assert_eq!(state.published, [expected]);
    let undone = [("dv-1", "/k/target"), ("dv-1", "/k/stage"), ("dv-1", "")]
        .map(|(handle, path)| (handle.to_owned(), path.to_owned()));
    assert_eq!(state.undone, undone);
}

#[tokio::test]
async fn the_daemons_errors_are_forwarded_with_code_and_message() {
    let shim = Shim::start(&[]).await;
    shim.provide("dv-1");
    for code in [
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::FailedPrecondition,
        Code::OutOfRange,
        Code::ResourceExhausted,
        Code::Aborted,
        Code::Unavailable,
        Code::DeadlineExceeded,
    ] {
        shim.daemon.state().refusal = Some(Status::new(code, "held by pod ns/n"));
        refused(shim.node().node_stage_volume(stage("dv-1")).await, code, "held by pod ns/n");
        refused(shim.controller().create_volume(create("x")).await, code, "held by pod ns/n");
    }
    // Problems between the two programs are not the caller's error.
    for (code, words) in [
        (Code::PermissionDenied, "allow_uids"),
        (Code::Unimplemented, "older than this diskvitals-csi"),
    ] {
        shim.daemon.state().refusal = Some(Status::new(code, "uid 9 may not"));
        refused(shim.node().node_stage_volume(stage("dv-1")).await, Code::Unavailable, words);
    }
}

#[tokio::test]
async fn a_volume_made_under_another_topology_value_is_not_staged() {
    let shim = Shim::start(&[]).await;
    shim.provide("dv-1");
    let context = || [("diskvitals.io/topology".to_owned(), "worker-9".to_owned())].into();
    let staged = shim
        .node()
        .node_stage_volume(wire::NodeStageVolumeRequest {
            volume_context: context(),
            ..stage("dv-1")
        })
        .await;
    refused(staged, Code::FailedPrecondition, "`worker-9`, this one's is `worker-1`");
    let published = shim
        .node()
        .node_publish_volume(wire::NodePublishVolumeRequest {
            volume_context: context(),
            ..publish("dv-1")
        })
        .await;
    refused(published, Code::FailedPrecondition, "volume_context");
    assert!(shim.daemon.state().staged.is_empty());
    let request = wire::ValidateVolumeCapabilitiesRequest {
        volume_id: "dv-1".into(),
        volume_context: context(),
        volume_capabilities: vec![mounted(Mode::SingleNodeWriter)],
        ..Default::default()
    };
    let answer = validated(&shim, request).await;
    assert!(answer.confirmed.is_none() && answer.message.contains("worker-9"), "{answer:?}");
}

#[tokio::test]
async fn another_topology_has_no_capacity_and_no_volumes() {
    let shim = Shim::start(&[]).await;
    let elsewhere =
        wire::Topology { segments: [(TOPOLOGY.to_owned(), "worker-2".to_owned())].into() };
    let requirement =
        wire::TopologyRequirement { requisite: vec![elsewhere.clone()], preferred: vec![] };
    let created = shim
        .controller()
        .create_volume(wire::CreateVolumeRequest {
            accessibility_requirements: Some(requirement),
            ..create("x")
        })
        .await;
    refused(created, Code::ResourceExhausted, "accessibility_requirements");
    assert!(shim.daemon.state().created.is_empty());
    let kind = daemon::PoolKind {
        kind: 1,
        total_bytes: 99,
        available_bytes: 50,
        largest_bytes: 40,
        smallest_bytes: 4,
        problem: String::new(),
    };
    shim.daemon.state().pool = daemon::Pool { kinds: vec![kind] };
    let capacity = async |request: wire::GetCapacityRequest| {
        shim.controller().get_capacity(request).await.expect("an answer").into_inner()
    };
    let whole = wire::GetCapacityResponse {
        available_capacity: 50,
        maximum_volume_size: Some(40),
        minimum_volume_size: Some(4),
    };
    assert_eq!(capacity(wire::GetCapacityRequest::default()).await, whole);
    assert_eq!(
        capacity(wire::GetCapacityRequest {
            accessible_topology: Some(here()),
            ..Default::default()
        })
        .await,
        whole
    );
    let there =
        wire::GetCapacityRequest { accessible_topology: Some(elsewhere), ..Default::default() };
    assert_eq!(capacity(there).await, wire::GetCapacityResponse::default());
    let shared = wire::GetCapacityRequest {
        volume_capabilities: vec![mounted(Mode::MultiNodeMultiWriter)],
        ..Default::default()
    };
    assert_eq!(capacity(shared).await, wire::GetCapacityResponse::default());
    let cordon = "no new volume is placed in the pool (loop): drive sda is failing";
    shim.daemon.state().pool.kinds[0].problem = cordon.into();
    assert_eq!(
        capacity(wire::GetCapacityRequest::default()).await,
        wire::GetCapacityResponse::default(),
        "a cordoned pool has no room, whatever is free in it"
    );
    shim.daemon.state().refusal = Some(tonic::Status::resource_exhausted(cordon));
    let cordoned = shim.controller().create_volume(create("y")).await;
    refused(cordoned, Code::ResourceExhausted, cordon);
    shim.daemon.state().refusal = None;
    shim.daemon.state().pool.kinds[0].problem.clear();
    let info = shim
        .node()
        .node_get_info(wire::NodeGetInfoRequest {})
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!(
        info,
        wire::NodeGetInfoResponse {
            node_id: NODE.into(),
            max_volumes_per_node: 0,
            accessible_topology: Some(here())
        }
    );
}

#[tokio::test]
async fn capabilities_are_confirmed_or_refused_with_a_message() {
    let shim = Shim::start(&[]).await;
    shim.provide("dv-1");
    let validate = |capability: wire::VolumeCapability| wire::ValidateVolumeCapabilitiesRequest {
        volume_id: "dv-1".into(),
        volume_capabilities: vec![capability],
        ..Default::default()
    };
    let served = [
        Mode::SingleNodeWriter,
        Mode::SingleNodeReaderOnly,
        Mode::SingleNodeSingleWriter,
        Mode::SingleNodeMultiWriter,
        Mode::MultiNodeReaderOnly,
    ];
    for mode in served {
        for capability in [mounted(mode), block(mode)] {
            let answer = validated(&shim, validate(capability.clone())).await;
            assert_eq!(answer.confirmed.expect("confirmed").volume_capabilities, [capability]);
        }
    }
    for mode in [Mode::MultiNodeSingleWriter, Mode::MultiNodeMultiWriter] {
        let answer = validated(&shim, validate(mounted(mode))).await;
        assert!(
            answer.confirmed.is_none() && answer.message.contains("one node only"),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_newly_published_volume_gets_its_statistics_as_soon_as_they_exist() {
    let shim = Shim::start(&[]).await;
    shim.provide("dv-1");
    let attach = |path: &str, since: std::time::SystemTime| {
        let attachment = daemon::Attachment {
            path: path.into(),
            since: Some(since.into()),
            ..Default::default()
        };
        shim.daemon.state().provided.get_mut("dv-1").expect("there").attachments.push(attachment);
    };
    let now = std::time::SystemTime::now();
    attach("/p", now);
    attach("/unmounted-by-hand", now - Duration::from_secs(60));
    {
        let mut state = shim.daemon.state();
        state.usage.insert(
            ("dv-1".into(), "/p".into()),
            daemon::VolumeUsageAnswer { total_bytes: 7, ..Default::default() },
        );
        state.late = 3;
    }
    let request = |path: &str| wire::NodeGetVolumeStatsRequest {
        volume_id: "dv-1".into(),
        volume_path: path.into(),
        ..Default::default()
    };
    let stats =
        shim.node().node_get_volume_stats(request("/p")).await.expect("an answer").into_inner();
    assert_eq!(stats.usage[0].total, 7);
    let began = Instant::now();
    refused(
        shim.node().node_get_volume_stats(request("/elsewhere")).await,
        Code::NotFound,
        "is not at `/elsewhere`",
    );
    refused(
        shim.node().node_get_volume_stats(request("/unmounted-by-hand")).await,
        Code::NotFound,
        "",
    );
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "what was not attached there just now is not waited for"
    );
}

#[tokio::test]
async fn expanding_a_volume_returns_the_new_size() {
    let shim = Shim::start(&["--controller-publish"]).await;
    shim.provide("dv-1");
    let range = Some(wire::CapacityRange { required_bytes: 1 << 21, limit_bytes: 0 });
    let request = wire::NodeExpandVolumeRequest {
        volume_id: "dv-1".into(),
        volume_path: "/p".into(),
        capacity_range: range,
        ..Default::default()
    };
    assert_eq!(
        shim.node().node_expand_volume(request).await.expect("grown").into_inner().capacity_bytes,
        1 << 21
    );
    let request = wire::ControllerExpandVolumeRequest {
        volume_id: "dv-1".into(),
        capacity_range: range,
        ..Default::default()
    };
    let answer =
        shim.controller().controller_expand_volume(request).await.expect("grown").into_inner();
    assert_eq!(
        answer,
        wire::ControllerExpandVolumeResponse {
            capacity_bytes: 1 << 21,
            node_expansion_required: true
        }
    );
    let asked: Vec<(String, bool)> = shim
        .daemon
        .state()
        .expanded
        .iter()
        .map(|expand| (expand.volume_path.clone(), expand.device_only))
        .collect();
    assert_eq!(asked, [("/p".to_owned(), false), (String::new(), true)]);
}

#[tokio::test]
async fn controller_publish_checks_the_node_and_only_where_it_is_announced() {
    let publish = |volume: &str, node: &str| wire::ControllerPublishVolumeRequest {
        volume_id: volume.into(),
        node_id: node.into(),
        volume_capability: Some(mounted(Mode::SingleNodeWriter)),
        ..Default::default()
    };
    let shim = Shim::start(&["--controller-publish"]).await;
    shim.provide("dv-1");
    shim.controller().controller_publish_volume(publish("dv-1", NODE)).await.expect("attached");
    refused(
        shim.controller().controller_publish_volume(publish("dv-1", "worker-2")).await,
        Code::NotFound,
        "node_id",
    );
    refused(
        shim.controller().controller_publish_volume(publish("nobody", NODE)).await,
        Code::NotFound,
        "volume_id",
    );
    let readonly = wire::ControllerPublishVolumeRequest { readonly: true, ..publish("dv-1", NODE) };
    refused(
        shim.controller().controller_publish_volume(readonly).await,
        Code::InvalidArgument,
        "readonly",
    );
    for node in [NODE, ""] {
        let request = wire::ControllerUnpublishVolumeRequest {
            volume_id: "dv-1".into(),
            node_id: node.into(),
            ..Default::default()
        };
        shim.controller().controller_unpublish_volume(request).await.expect("detached");
    }
    let attachment = daemon::Attachment { path: "/p".into(), ..Default::default() };
    shim.daemon.state().provided.get_mut("dv-1").expect("there").attachments.push(attachment);
    let page = shim
        .controller()
        .list_volumes(wire::ListVolumesRequest::default())
        .await
        .expect("a page")
        .into_inner();
    assert_eq!(page.entries[0].status.as_ref().expect("given").published_node_ids, [NODE]);

    let without = Shim::start(&[]).await;
    refused(
        without.controller().controller_publish_volume(publish("dv-1", NODE)).await,
        Code::Unimplemented,
        "--controller-publish",
    );
    let request = wire::ControllerExpandVolumeRequest::default();
    refused(
        without.controller().controller_expand_volume(request).await,
        Code::Unimplemented,
        "--controller-publish",
    );
}

#[tokio::test]
async fn mode_controller_does_not_serve_the_node_service() {
    let shim = Shim::start(&["--mode", "controller"]).await;
    shim.controller().create_volume(create("pvc-1")).await.expect("made");
    refused(shim.node().node_get_info(wire::NodeGetInfoRequest {}).await, Code::Unimplemented, "");
}
