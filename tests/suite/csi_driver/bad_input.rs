//! For every invalid request: CSI's status code, a message that names the field, and no daemon
//! request that changes anything.

use diskvitals_csi::wire;
use tonic::Code;

use super::*;

const PATH: &str = "/k/p";

/// Checks that nothing was changed.
#[track_caller]
fn untouched(shim: &Shim) {
    let state = shim.daemon.state();
    assert!(
        state.created.is_empty()
            && state.staged.is_empty()
            && state.published.is_empty()
            && state.expanded.is_empty()
    );
    assert!(state.undone.is_empty(), "{:?}", state.undone);
}

fn stage(id: &str, path: &str) -> wire::NodeStageVolumeRequest {
    wire::NodeStageVolumeRequest {
        volume_id: id.into(),
        staging_target_path: path.into(),
        volume_capability: Some(mounted(Mode::SingleNodeWriter)),
        ..Default::default()
    }
}

fn publish(id: &str, staging: &str, target: &str) -> wire::NodePublishVolumeRequest {
    wire::NodePublishVolumeRequest {
        volume_id: id.into(),
        staging_target_path: staging.into(),
        target_path: target.into(),
        volume_capability: Some(mounted(Mode::SingleNodeWriter)),
        ..Default::default()
    }
}

fn create() -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest {
        name: "pvc-1".into(),
        volume_capabilities: vec![mounted(Mode::SingleNodeWriter)],
        ..Default::default()
    }
}

#[tokio::test]
async fn node_calls_check_their_fields_before_they_look_for_the_volume() {
    let shim = Shim::start(&[]).await;
    let mut node = shim.node();
    let ia = Code::InvalidArgument;
    refused(node.node_stage_volume(stage("", PATH)).await, ia, "volume_id: is empty");
    refused(node.node_stage_volume(stage("x", "")).await, ia, "staging_target_path: is empty");
    let without = wire::NodeStageVolumeRequest { volume_capability: None, ..stage("x", PATH) };
    refused(node.node_stage_volume(without).await, ia, "volume_capability: is missing");
    refused(node.node_publish_volume(publish("", PATH, PATH)).await, ia, "volume_id: is empty");
    refused(node.node_publish_volume(publish("x", PATH, "")).await, ia, "target_path: is empty");
    refused(
        node.node_publish_volume(publish("x", "", PATH)).await,
        Code::FailedPrecondition,
        "staging_target_path: is empty",
    );
    let without =
        wire::NodePublishVolumeRequest { volume_capability: None, ..publish("x", PATH, PATH) };
    refused(node.node_publish_volume(without).await, ia, "volume_capability: is missing");
    for (id, path, words) in [("", PATH, "volume_id: is empty"), ("x", "", "target_path: is empty")]
    {
        let unpublish =
            wire::NodeUnpublishVolumeRequest { volume_id: id.into(), target_path: path.into() };
        refused(node.node_unpublish_volume(unpublish).await, ia, words);
        let unstage = wire::NodeUnstageVolumeRequest {
            volume_id: id.into(),
            staging_target_path: path.into(),
        };
        refused(node.node_unstage_volume(unstage).await, ia, words);
    }
    for (id, path, code, words) in [
        ("", "some/path", ia, "volume_id: is empty"),
        ("x", "", ia, "volume_path: is empty"),
        ("x", "some/path", Code::NotFound, "volume_path"),
        ("x", PATH, Code::NotFound, "volume_id"),
    ] {
        let stats = wire::NodeGetVolumeStatsRequest {
            volume_id: id.into(),
            volume_path: path.into(),
            ..Default::default()
        };
        refused(node.node_get_volume_stats(stats).await, code, words);
    }
    shim.provide("known");
    let stats = wire::NodeGetVolumeStatsRequest {
        volume_id: "known".into(),
        volume_path: "some/path".into(),
        ..Default::default()
    };
    refused(node.node_get_volume_stats(stats).await, Code::NotFound, "volume_path");
    let expand = wire::NodeExpandVolumeRequest {
        volume_id: "known".into(),
        volume_path: "some/path".into(),
        ..Default::default()
    };
    refused(node.node_expand_volume(expand).await, Code::NotFound, "volume_path");
    let health = wire::NodeGetVolumeHealthRequest::default();
    refused(node.node_get_volume_health(health).await, ia, "volume_id: is empty");
    untouched(&shim);
}

#[tokio::test]
async fn unknown_volume_ids_of_any_form_are_not_found() {
    let shim = Shim::start(&[]).await;
    for id in [
        "x",
        "../../etc/passwd",
        "a/b",
        "a\0b",
        "-rf",
        "$(id)",
        "ü\n",
        &"a".repeat(129),
        &"a".repeat(100_000),
    ] {
        let mut node = shim.node();
        refused(node.node_stage_volume(stage(id, PATH)).await, Code::NotFound, "");
        refused(node.node_publish_volume(publish(id, PATH, PATH)).await, Code::NotFound, "");
        let health =
            wire::NodeGetVolumeHealthRequest { volume_id: id.into(), ..Default::default() };
        refused(node.node_get_volume_health(health).await, Code::NotFound, "volume_id");
        let mut controller = shim.controller();
        let health =
            wire::ControllerGetVolumeHealthRequest { volume_id: id.into(), ..Default::default() };
        refused(controller.controller_get_volume_health(health).await, Code::NotFound, "volume_id");
        let get = wire::ControllerGetVolumeRequest { volume_id: id.into() };
        refused(controller.controller_get_volume(get).await, Code::NotFound, "volume_id");
        let validate = wire::ValidateVolumeCapabilitiesRequest {
            volume_id: id.into(),
            volume_capabilities: vec![mounted(Mode::SingleNodeWriter)],
            ..Default::default()
        };
        refused(
            controller.validate_volume_capabilities(validate).await,
            Code::NotFound,
            "volume_id",
        );
        // The volume is deleted already.
        controller
            .delete_volume(wire::DeleteVolumeRequest { volume_id: id.into(), ..Default::default() })
            .await
            .expect("deleted");
    }
}

#[tokio::test]
async fn paths_that_are_not_absolute_and_normalized_are_refused() {
    let shim = Shim::start(&[]).await;
    shim.provide("dv-1");
    for path in [
        "some/path",
        "/k/../etc",
        "/k//p",
        "/k/./p",
        "/",
        "/k/\0",
        &format!("/{}", "a".repeat(5000)),
    ] {
        let mut node = shim.node();
        refused(
            node.node_stage_volume(stage("dv-1", path)).await,
            Code::InvalidArgument,
            "staging_target_path: ",
        );
        refused(
            node.node_publish_volume(publish("dv-1", PATH, path)).await,
            Code::InvalidArgument,
            "target_path: ",
        );
        refused(
            node.node_publish_volume(publish("dv-1", path, PATH)).await,
            Code::InvalidArgument,
            "staging_target_path: ",
        );
    }
    untouched(&shim);
}

#[tokio::test]
async fn an_invalid_volume_request_is_refused_with_the_name_of_its_field() {
    let shim = Shim::start(&[]).await;
    let mut controller = shim.controller();
    let range =
        |required_bytes, limit_bytes| Some(wire::CapacityRange { required_bytes, limit_bytes });
    let with = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    let source = wire::VolumeContentSource {
        r#type: Some(wire::volume_content_source::Type::Volume(
            wire::volume_content_source::VolumeSource { volume_id: "x".into() },
        )),
    };
    let ia = Code::InvalidArgument;
    for (request, code, words) in [
        (wire::CreateVolumeRequest { name: String::new(), ..create() }, ia, "name: is empty"),
        (
            wire::CreateVolumeRequest { name: "a".repeat(129), ..create() },
            ia,
            "name: has 129 bytes",
        ),
        (
            wire::CreateVolumeRequest { name: "a\0".into(), ..create() },
            ia,
            "name: has control characters",
        ),
        (
            wire::CreateVolumeRequest { volume_capabilities: vec![], ..create() },
            ia,
            "volume_capabilities: is empty",
        ),
        (
            wire::CreateVolumeRequest { volume_capabilities: vec![Default::default()], ..create() },
            ia,
            "volume_capabilities: access_mode is missing",
        ),
        (
            wire::CreateVolumeRequest {
                volume_capabilities: vec![mounted(Mode::MultiNodeMultiWriter)],
                ..create()
            },
            ia,
            "volume_capabilities: access_mode",
        ),
        (
            wire::CreateVolumeRequest { capacity_range: range(-1, 0), ..create() },
            Code::OutOfRange,
            "capacity_range.required_bytes",
        ),
        (
            wire::CreateVolumeRequest { capacity_range: range(i64::MAX, 1), ..create() },
            Code::OutOfRange,
            "capacity_range",
        ),
        (
            wire::CreateVolumeRequest { parameters: with("size", "1"), ..create() },
            ia,
            "`size` is unknown",
        ),
        (
            wire::CreateVolumeRequest { parameters: with("diskvitals.io/kind", "zfs"), ..create() },
            ia,
            "diskvitals.io/kind",
        ),
        (
            wire::CreateVolumeRequest {
                parameters: with("csi.storage.k8s.io/fstype", "ntfs"),
                volume_capabilities: vec![bare()],
                ..create()
            },
            ia,
            "fs_type: `ntfs`",
        ),
        (
            wire::CreateVolumeRequest { volume_content_source: Some(source), ..create() },
            ia,
            "volume_content_source",
        ),
        (
            wire::CreateVolumeRequest { mutable_parameters: with("a", "b"), ..create() },
            ia,
            "mutable_parameters",
        ),
    ] {
        refused(controller.create_volume(request).await, code, words);
    }
    refused(
        controller.delete_volume(wire::DeleteVolumeRequest::default()).await,
        ia,
        "volume_id: is empty",
    );
    let validate = wire::ValidateVolumeCapabilitiesRequest::default();
    refused(controller.validate_volume_capabilities(validate).await, ia, "volume_id: is empty");
    let validate =
        wire::ValidateVolumeCapabilitiesRequest { volume_id: "x".into(), ..Default::default() };
    refused(
        controller.validate_volume_capabilities(validate).await,
        ia,
        "volume_capabilities: is empty",
    );
    refused(
        controller.create_snapshot(wire::CreateSnapshotRequest::default()).await,
        Code::Unimplemented,
        "no snapshots",
    );
    untouched(&shim);
}

fn bare() -> wire::VolumeCapability {
    wire::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        ..mounted(Mode::SingleNodeWriter)
    }
}

#[tokio::test]
async fn a_ten_megabyte_message_is_answered_and_one_beyond_the_limit_is_refused() {
    let shim = Shim::start(&[]).await;
    let with = |bytes: usize| wire::CreateVolumeRequest { name: "a".repeat(bytes), ..create() };
    refused(
        shim.controller().create_volume(with(10 << 20)).await,
        Code::InvalidArgument,
        "name: has 10485760 bytes",
    );
    let status = shim.controller().create_volume(with(40 << 20)).await.expect_err("too large");
    assert!(matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted), "{status:?}");
    shim.controller().create_volume(create()).await.expect("made");
}
