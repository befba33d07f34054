//! The wire format of CSI, podmon and plugin registration: names and numbers are compared with a
//! table of the published definitions (CSI 1.13, and 1.12 for items that 1.13 removed), and answers
//! with bytes, encoded by hand.

use std::collections::BTreeMap;

use diskvitals_csi::wire;
use prost::Message;
use prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor,
};

fn pool() -> DescriptorPool {
    DescriptorPool::decode(wire::DESCRIPTORS).expect("a descriptor set")
}

fn type_of(field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Kind::Message(message) if field.is_map() => {
            let part = |number| type_of(&message.get_field(number).expect("a map has two fields"));
            return format!("map<{}, {}>", part(1), part(2));
        }
        Kind::Message(message) => message.full_name().trim_start_matches("csi.v1.").to_owned(),
        Kind::Enum(values) => values.full_name().trim_start_matches("csi.v1.").to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    };
    if field.cardinality() == Cardinality::Repeated { format!("repeated {kind}") } else { kind }
}

/// A message as one line: `name number type`, sorted by number.
fn shape(message: &MessageDescriptor) -> String {
    let fields: BTreeMap<u32, String> = message
        .fields()
        .map(|field| {
            (field.number(), format!("{} {} {}", field.name(), field.number(), type_of(&field)))
        })
        .collect();
    fields.into_values().collect::<Vec<_>>().join("; ")
}

fn values(values: &EnumDescriptor) -> String {
    values
        .values()
        .map(|value| format!("{} {}", value.name(), value.number()))
        .collect::<Vec<_>>()
        .join("; ")
}

/// Package csi.v1.
const MESSAGES: &[(&str, &str)] = &[
    (
        "NodeGetVolumeHealthRequest",
        "volume_id 1 string; volume_publish_path 2 string; staging_target_path 3 string",
    ),
    ("NodeGetVolumeHealthResponse", "volume_health 1 VolumeHealth"),
    ("NodeGetStorageHealthRequest", "secrets 1 map<string, string>"),
    (
        "NodeGetStorageHealthResponse",
        "backend_health 1 repeated NodeGetStorageHealthResponse.StorageBackendHealth",
    ),
    (
        "NodeGetStorageHealthResponse.StorageBackendHealth",
        "status 1 StorageHealthErrorType; reason 2 string; message 3 string; volume_capability 4 VolumeCapability",
    ),
    ("ControllerGetVolumeHealthRequest", "volume_id 1 string; secrets 2 map<string, string>"),
    ("ControllerGetVolumeHealthResponse", "volume_health 1 VolumeHealth"),
    (
        "ControllerListVolumeHealthRequest",
        "max_entries 1 int32; starting_token 2 string; secrets 3 map<string, string>",
    ),
    ("ControllerListVolumeHealthResponse", "entries 1 repeated VolumeHealth; next_token 2 string"),
    (
        "VolumeHealth",
        "volume_id 1 string; health_statuses 2 repeated VolumeHealth.VolumeHealthEntry",
    ),
    (
        "VolumeHealth.VolumeHealthEntry",
        "status 1 VolumeHealthErrorType; reason 2 string; message 3 string",
    ),
    // Defined until 1.12; 1.13 reserves these numbers and does not reuse them.
    ("VolumeCondition", "abnormal 1 bool; message 2 string"),
    (
        "NodeGetVolumeStatsResponse",
        "usage 1 repeated VolumeUsage; volume_condition 2 VolumeCondition",
    ),
    (
        "ListVolumesResponse.VolumeStatus",
        "published_node_ids 1 repeated string; volume_condition 2 VolumeCondition",
    ),
    (
        "ControllerGetVolumeResponse.VolumeStatus",
        "published_node_ids 1 repeated string; volume_condition 2 VolumeCondition",
    ),
    // The messages that these belong to.
    (
        "NodeGetVolumeStatsRequest",
        "volume_id 1 string; volume_path 2 string; staging_target_path 3 string",
    ),
    ("VolumeUsage", "available 1 int64; total 2 int64; used 3 int64; unit 4 VolumeUsage.Unit"),
    ("ListVolumesRequest", "max_entries 1 int32; starting_token 2 string"),
    ("ListVolumesResponse", "entries 1 repeated ListVolumesResponse.Entry; next_token 2 string"),
    ("ListVolumesResponse.Entry", "volume 1 Volume; status 2 ListVolumesResponse.VolumeStatus"),
    (
        "ControllerGetVolumeResponse",
        "volume 1 Volume; status 2 ControllerGetVolumeResponse.VolumeStatus",
    ),
    (
        "Volume",
        "capacity_bytes 1 int64; volume_id 2 string; volume_context 3 map<string, string>; content_source 4 VolumeContentSource; \
         accessible_topology 5 repeated Topology",
    ),
    (
        "NodePublishVolumeRequest",
        "volume_id 1 string; publish_context 2 map<string, string>; staging_target_path 3 string; target_path 4 string; \
         volume_capability 5 VolumeCapability; readonly 6 bool; secrets 7 map<string, string>; volume_context 8 map<string, string>",
    ),
    (
        "NodeStageVolumeRequest",
        "volume_id 1 string; publish_context 2 map<string, string>; staging_target_path 3 string; volume_capability 4 VolumeCapability; \
         secrets 5 map<string, string>; volume_context 6 map<string, string>",
    ),
    // New in 1.13 besides health.
    (
        "CreateSnapshotRequest",
        "source_volume_id 1 string; name 2 string; secrets 3 map<string, string>; parameters 4 map<string, string>; \
         accessibility_requirements 5 TopologyRequirement",
    ),
];

const ENUMS: &[(&str, &str)] = &[
    (
        "VolumeHealthErrorType",
        "UNKNOWN_VOLUME_HEALTH_TYPE 0; DEGRADED 1; INACCESSIBLE 2; DATA_LOSS 3",
    ),
    (
        "StorageHealthErrorType",
        "UNKNOWN_STORAGE_HEALTH_ERROR_TYPE 0; STORAGE_DEGRADED 1; STORAGE_UNREACHABLE 2",
    ),
    (
        "PluginCapability.Service.Type",
        "UNKNOWN 0; CONTROLLER_SERVICE 1; VOLUME_ACCESSIBILITY_CONSTRAINTS 2; GROUP_CONTROLLER_SERVICE 3; SNAPSHOT_METADATA_SERVICE 4; \
         SNAPSHOT_ACCESSIBILITY_CONSTRAINTS 5",
    ),
    ("PluginCapability.VolumeExpansion.Type", "UNKNOWN 0; ONLINE 1; OFFLINE 2"),
    (
        "NodeServiceCapability.RPC.Type",
        "UNKNOWN 0; STAGE_UNSTAGE_VOLUME 1; GET_VOLUME_STATS 2; EXPAND_VOLUME 3; VOLUME_CONDITION 4; SINGLE_NODE_MULTI_WRITER 5; \
         VOLUME_MOUNT_GROUP 6; GET_VOLUME_HEALTH 7; GET_STORAGE_HEALTH 8",
    ),
    (
        "ControllerServiceCapability.RPC.Type",
        "UNKNOWN 0; CREATE_DELETE_VOLUME 1; PUBLISH_UNPUBLISH_VOLUME 2; LIST_VOLUMES 3; GET_CAPACITY 4; CREATE_DELETE_SNAPSHOT 5; \
         LIST_SNAPSHOTS 6; CLONE_VOLUME 7; PUBLISH_READONLY 8; EXPAND_VOLUME 9; LIST_VOLUMES_PUBLISHED_NODES 10; VOLUME_CONDITION 11; \
         GET_VOLUME 12; SINGLE_NODE_MULTI_WRITER 13; MODIFY_VOLUME 14; GET_SNAPSHOT 15; GET_VOLUME_HEALTH 16; LIST_VOLUME_HEALTH 17",
    ),
    (
        "GroupControllerServiceCapability.RPC.Type",
        "UNKNOWN 0; CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT 1",
    ),
    (
        "VolumeCapability.AccessMode.Mode",
        "UNKNOWN 0; SINGLE_NODE_WRITER 1; SINGLE_NODE_READER_ONLY 2; MULTI_NODE_READER_ONLY 3; MULTI_NODE_SINGLE_WRITER 4; \
         MULTI_NODE_MULTI_WRITER 5; SINGLE_NODE_SINGLE_WRITER 6; SINGLE_NODE_MULTI_WRITER 7",
    ),
    ("VolumeUsage.Unit", "UNKNOWN 0; BYTES 1; INODES 2"),
];

/// Services and their calls; each call has the messages NAMERequest and NAMEResponse.
const SERVICES: &[(&str, &[&str])] = &[
    ("Identity", &["GetPluginInfo", "GetPluginCapabilities", "Probe"]),
    (
        "Controller",
        &[
            "CreateVolume",
            "DeleteVolume",
            "ControllerPublishVolume",
            "ControllerUnpublishVolume",
            "ValidateVolumeCapabilities",
            "ListVolumes",
            "ControllerListVolumeHealth",
            "ControllerGetVolumeHealth",
            "GetCapacity",
            "ControllerGetCapabilities",
            "CreateSnapshot",
            "DeleteSnapshot",
            "ListSnapshots",
            "GetSnapshot",
            "ControllerExpandVolume",
            "ControllerGetVolume",
            "ControllerModifyVolume",
        ],
    ),
    (
        "GroupController",
        &[
            "GroupControllerGetCapabilities",
            "CreateVolumeGroupSnapshot",
            "DeleteVolumeGroupSnapshot",
            "GetVolumeGroupSnapshot",
        ],
    ),
    ("SnapshotMetadata", &["GetMetadataAllocated", "GetMetadataDelta"]),
    (
        "Node",
        &[
            "NodeStageVolume",
            "NodeUnstageVolume",
            "NodePublishVolume",
            "NodeUnpublishVolume",
            "NodeGetVolumeStats",
            "NodeGetVolumeHealth",
            "NodeGetStorageHealth",
            "NodeExpandVolume",
            "NodeGetCapabilities",
            "NodeGetInfo",
        ],
    ),
];

#[test]
fn the_messages_have_the_published_numbers_and_types() {
    let pool = pool();
    for (name, expected) in MESSAGES {
        let message = pool
            .get_message_by_name(&format!("csi.v1.{name}"))
            .unwrap_or_else(|| panic!("no message {name}"));
        assert_eq!(shape(&message), *expected, "{name}");
    }
}

#[test]
fn the_enums_have_the_published_numbers() {
    let pool = pool();
    for (name, expected) in ENUMS {
        let found = pool
            .get_enum_by_name(&format!("csi.v1.{name}"))
            .unwrap_or_else(|| panic!("no enum {name}"));
        assert_eq!(values(&found), *expected, "{name}");
    }
}

#[test]
fn every_call_has_its_published_path_and_only_snapshot_metadata_streams() {
    let pool = pool();
    let csi = |name: &str| {
        pool.services().filter(|service| service.full_name().starts_with(name)).count()
    };
    assert_eq!(csi("csi.v1."), SERVICES.len());
    for (name, calls) in SERVICES {
        let service = pool.get_service_by_name(&format!("csi.v1.{name}")).expect("a service");
        let found: Vec<_> = service.methods().collect();
        assert_eq!(
            found.iter().map(|call| call.name().to_owned()).collect::<Vec<_>>(),
            *calls,
            "{name}"
        );
        for call in found {
            assert_eq!(call.input().full_name(), format!("csi.v1.{}Request", call.name()));
            assert_eq!(call.output().full_name(), format!("csi.v1.{}Response", call.name()));
            assert_eq!(
                (call.is_client_streaming(), call.is_server_streaming()),
                (false, *name == "SnapshotMetadata")
            );
        }
    }
}

#[test]
fn podmon_and_registration_have_their_numbers() {
    let pool = pool();
    let message = |name: &str| shape(&pool.get_message_by_name(name).expect("a message"));
    assert_eq!(
        message("podmon.v1.ValidateVolumeHostConnectivityRequest"),
        "volume_ids 1 repeated string; node_id 2 string; io_sample_time_seconds 3 int32; array_id 4 string"
    );
    assert_eq!(
        message("podmon.v1.ValidateVolumeHostConnectivityResponse"),
        "connected 1 bool; ios_in_progress 2 bool; messages 3 repeated string"
    );
    assert_eq!(
        message("pluginregistration.PluginInfo"),
        "type 1 string; name 2 string; endpoint 3 string; supported_versions 4 repeated string"
    );
    assert_eq!(
        message("pluginregistration.RegistrationStatus"),
        "plugin_registered 1 bool; error 2 string"
    );
    assert_eq!(message("pluginregistration.InfoRequest"), "");
    let calls = |name: &str| -> Vec<String> {
        let service = pool.get_service_by_name(name).expect("a service");
        service
            .methods()
            .map(|call| format!("{} {} {}", call.name(), call.input().name(), call.output().name()))
            .collect()
    };
    assert_eq!(
        calls("podmon.v1.Podmon"),
        [
            "ValidateVolumeHostConnectivity ValidateVolumeHostConnectivityRequest ValidateVolumeHostConnectivityResponse"
        ]
    );
    assert_eq!(
        calls("pluginregistration.Registration"),
        [
            "GetInfo InfoRequest PluginInfo",
            "NotifyRegistrationStatus RegistrationStatus RegistrationStatusResponse"
        ]
    );
}

/// Key and length before an embedded message or string; all are shorter than 128 bytes here.
fn field(number: u8, payload: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(payload.len()).expect("short")], payload].concat()
}

#[test]
fn a_1_12_answer_to_volume_stats_carries_its_condition_in_field_2() {
    let answer = wire::NodeGetVolumeStatsResponse {
        usage: vec![wire::VolumeUsage {
            available: 1,
            total: 300,
            used: 2,
            unit: wire::volume_usage::Unit::Bytes.into(),
        }],
        volume_condition: Some(wire::VolumeCondition { abnormal: true, message: "disk".into() }),
    };
    // The fields are available, total (300 = 0xac 0x02), used, unit; then abnormal and message.
    let usage = [0x08, 1, 0x10, 0xac, 0x02, 0x18, 2, 0x20, 1];
    let condition = [&[0x08, 1][..], &field(2, b"disk")].concat();
    assert_eq!(answer.encode_to_vec(), [field(1, &usage), field(2, &condition)].concat());
    // A healthy condition is present and empty; drivers without conditions omit it.
    let healthy = wire::NodeGetVolumeStatsResponse {
        usage: vec![],
        volume_condition: Some(wire::VolumeCondition::default()),
    };
    assert_eq!(healthy.encode_to_vec(), [0x12, 0]);
}

#[test]
fn a_1_12_list_carries_conditions_in_the_status_of_its_entries() {
    let answer = wire::ListVolumesResponse {
        entries: vec![wire::list_volumes_response::Entry {
            volume: Some(wire::Volume { volume_id: "v".into(), ..Default::default() }),
            status: Some(wire::list_volumes_response::VolumeStatus {
                published_node_ids: vec!["n".into()],
                volume_condition: Some(wire::VolumeCondition {
                    abnormal: true,
                    message: "m".into(),
                }),
            }),
        }],
        next_token: "t".into(),
    };
    let status = [field(1, b"n"), field(2, &[&[0x08, 1][..], &field(2, b"m")].concat())].concat();
    let entry = [field(1, &field(2, b"v")), field(2, &status)].concat();
    assert_eq!(answer.encode_to_vec(), [field(1, &entry), field(2, b"t")].concat());
}

#[test]
fn a_1_13_answer_names_the_volume_and_what_is_wrong_with_it() {
    let answer = wire::NodeGetVolumeHealthResponse {
        volume_health: Some(wire::VolumeHealth {
            volume_id: "v".into(),
            health_statuses: vec![wire::volume_health::VolumeHealthEntry {
                status: wire::VolumeHealthErrorType::Inaccessible.into(),
                reason: "NotMounted".into(),
                message: "gone".into(),
            }],
        }),
    };
    let entry = [&[0x08, 2][..], &field(2, b"NotMounted"), &field(3, b"gone")].concat();
    let health = [field(1, b"v"), field(2, &entry)].concat();
    let golden = field(1, &health);
    assert_eq!(answer.encode_to_vec(), golden);
    assert_eq!(
        wire::ControllerGetVolumeHealthResponse::decode(golden.as_slice())
            .expect("alike")
            .encode_to_vec(),
        golden
    );
    let list = wire::ControllerListVolumeHealthResponse {
        entries: vec![answer.volume_health.expect("there")],
        next_token: "t".into(),
    };
    assert_eq!(list.encode_to_vec(), [field(1, &health), field(2, b"t")].concat());
}

#[test]
fn a_1_13_answer_about_storage_leaves_the_capability_out() {
    let answer = wire::NodeGetStorageHealthResponse {
        backend_health: vec![wire::node_get_storage_health_response::StorageBackendHealth {
            status: wire::StorageHealthErrorType::StorageUnreachable.into(),
            reason: "DriveMissing".into(),
            message: "sda".into(),
            volume_capability: None,
        }],
    };
    let entry = [&[0x08, 2][..], &field(2, b"DriveMissing"), &field(3, b"sda")].concat();
    assert_eq!(answer.encode_to_vec(), field(1, &entry));
}

#[test]
fn a_caller_of_1_13_skips_what_only_1_12_knows() {
    // NodeGetVolumeStatsResponse as compiled from 1.13: field 2 is reserved, so it is unknown.
    #[derive(Clone, PartialEq, Message)]
    struct Of113 {
        #[prost(message, repeated, tag = "1")]
        usage: Vec<wire::VolumeUsage>,
    }
    let usage = vec![wire::VolumeUsage { total: 1, ..Default::default() }];
    let both = wire::NodeGetVolumeStatsResponse {
        usage: usage.clone(),
        volume_condition: Some(wire::VolumeCondition::default()),
    };
    assert_eq!(Of113::decode(both.encode_to_vec().as_slice()).expect("reads"), Of113 { usage });
}
