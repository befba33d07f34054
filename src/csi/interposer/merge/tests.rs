use std::collections::{BTreeSet, HashSet};

use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::health::HealthErrorType;
use crate::health::HealthErrorType::{DataLoss, Degraded, Inaccessible};
use crate::wire;
use crate::wire::volume_health::VolumeHealthEntry;

/// A field that CSI does not have: number 1000, a string.
fn unknown(text: &str) -> Vec<u8> {
    let mut field = Vec::new();
    raw::put_bytes(&mut field, 1000, text.as_bytes());
    field
}

fn unknowns(message: &[u8]) -> Vec<String> {
    let fields = raw::fields(message).expect("reads");
    fields
        .iter()
        .filter_map(|field| field.bytes(1000))
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect()
}

fn abnormal(message: &str) -> VolumeCondition {
    VolumeCondition { abnormal: true, message: message.into() }
}

fn status(status: HealthErrorType, reason: &str) -> HealthStatus {
    HealthStatus { status, reason: reason.into(), message: format!("{reason} it is") }
}

fn stats_with(condition: Option<wire::VolumeCondition>) -> Vec<u8> {
    let usage = vec![wire::VolumeUsage { available: 1, total: 3, used: 2, unit: 1 }];
    wire::NodeGetVolumeStatsResponse { usage, volume_condition: condition }.encode_to_vec()
}

fn theirs(abnormal: bool, message: &str) -> wire::VolumeCondition {
    wire::VolumeCondition { abnormal, message: message.into() }
}

#[test]
fn capabilities_are_announced_once_and_in_addition() {
    let announce = |numbers: &[i32]| {
        let one = |number: &i32| wire::NodeServiceCapability {
            r#type: Some(wire::node_service_capability::Type::Rpc(
                wire::node_service_capability::Rpc { r#type: *number },
            )),
        };
        wire::NodeGetCapabilitiesResponse { capabilities: numbers.iter().map(one).collect() }
            .encode_to_vec()
    };
    let theirs = announce(&[1, 2, 99]);
    assert_eq!(add_capabilities(&theirs, &[2, 4, 7, 8]), Ok(announce(&[1, 2, 99, 4, 7, 8])));
    assert_eq!(add_capabilities(&theirs, &[2]), Ok(theirs.clone()));
    assert_eq!(announced_capabilities(&theirs), Ok(vec![1, 2, 99]));
    // An entry without a type, as another oneof member of a later CSI would look.
    let strange = [&theirs[..], &[0x0a, 0x02, 0x12, 0x00]].concat();
    assert_eq!(add_capabilities(&strange, &[4]), Ok([&strange[..], &announce(&[4])].concat()));
    assert_eq!(add_capabilities(&[0xff], &[4]), Err(DecodeError));
}

#[test]
fn a_condition_of_ours_comes_first_and_the_upstreams_stays() {
    let merged = |condition, ours: &VolumeCondition| {
        let merged = stats(&stats_with(condition), ours).expect("reads");
        let merged = wire::NodeGetVolumeStatsResponse::decode(merged.as_slice()).expect("reads");
        assert_eq!(merged.usage.len(), 1);
        merged.volume_condition.expect("a condition")
    };
    let fine = VolumeCondition { abnormal: false, message: "fine".into() };
    assert_eq!(merged(None, &abnormal("disk")), theirs(true, "disk"));
    assert_eq!(merged(None, &fine), theirs(false, "fine"));
    assert_eq!(merged(Some(theirs(true, "link")), &abnormal("disk")), theirs(true, "disk; link"));
    assert_eq!(merged(Some(theirs(true, "disk")), &abnormal("disk")), theirs(true, "disk"));
    assert_eq!(merged(Some(theirs(false, "healthy")), &abnormal("disk")), theirs(true, "disk"));
    assert_eq!(merged(Some(theirs(true, "link")), &fine), theirs(true, "link"));
    assert_eq!(merged(Some(theirs(false, "healthy")), &fine), theirs(false, "healthy"));
}

#[test]
fn a_condition_goes_into_the_listed_volumes_that_we_know() {
    let entry = |id: &str, status| wire::list_volumes_response::Entry {
        volume: Some(wire::Volume { volume_id: id.into(), ..Default::default() }),
        status,
    };
    let nodes = |condition| wire::list_volumes_response::VolumeStatus {
        published_node_ids: vec!["n".into()],
        volume_condition: condition,
    };
    let list = wire::ListVolumesResponse {
        entries: vec![entry("a", None), entry("b", Some(nodes(None))), entry("c", None)],
        next_token: "t".into(),
    };
    let told =
        VolumeHealth { statuses: Ok(Vec::new()), condition: Some(abnormal("disk")), local: true };
    let ours = HashMap::from([("a".to_owned(), told.clone()), ("b".to_owned(), told)]);
    let merged = volumes(&list.encode_to_vec(), &ours).expect("reads");
    let merged = wire::ListVolumesResponse::decode(merged.as_slice()).expect("reads");
    let alone = wire::list_volumes_response::VolumeStatus {
        published_node_ids: vec![],
        volume_condition: Some(theirs(true, "disk")),
    };
    let expected = vec![
        entry("a", Some(alone)),
        entry("b", Some(nodes(Some(theirs(true, "disk"))))),
        entry("c", None),
    ];
    assert_eq!((merged.entries, merged.next_token), (expected, "t".to_owned()));
}

#[test]
fn of_equally_bad_statuses_the_upstreams_come_first() {
    let entry = |status: HealthErrorType, reason: &str| VolumeHealthEntry {
        status: status.number(),
        reason: reason.into(),
        message: "theirs".into(),
    };
    let health = wire::VolumeHealth {
        volume_id: "v".into(),
        health_statuses: vec![entry(Degraded, "Slow"), entry(Inaccessible, "Gone")],
    };
    let ours = [
        status(DataLoss, "FilesystemCorrupted"),
        status(Degraded, "DriveFailing"),
        status(Inaccessible, "Gone"),
    ];
    let answer = wire::NodeGetVolumeHealthResponse { volume_health: Some(health) }.encode_to_vec();
    let merged = wire::NodeGetVolumeHealthResponse::decode(
        super::health(&answer, "v", &ours).expect("reads").as_slice(),
    )
    .expect("reads");
    let merged = merged.volume_health.expect("there").health_statuses;
    let order: Vec<(i32, &str, &str)> = merged
        .iter()
        .map(|entry| (entry.status, entry.reason.as_str(), entry.message.as_str()))
        .collect();
    assert_eq!(
        order,
        [
            (DataLoss.number(), "FilesystemCorrupted", "FilesystemCorrupted it is"),
            (Inaccessible.number(), "Gone", "theirs"),
            (Degraded.number(), "Slow", "theirs"),
            (Degraded.number(), "DriveFailing", "DriveFailing it is"),
        ]
    );
}

#[test]
fn storage_entries_that_differ_in_what_they_are_limited_to_are_two() {
    let limited = |fs_type: &str| wire::node_get_storage_health_response::StorageBackendHealth {
        status: 1,
        reason: "Slow".into(),
        message: String::new(),
        volume_capability: Some(wire::VolumeCapability {
            access_type: Some(wire::volume_capability::AccessType::Mount(
                wire::volume_capability::MountVolume {
                    fs_type: fs_type.into(),
                    ..Default::default()
                },
            )),
            access_mode: Some(wire::volume_capability::AccessMode { mode: 1 }),
        }),
    };
    let answer = wire::NodeGetStorageHealthResponse {
        backend_health: vec![limited("ext4"), limited("xfs"), limited("xfs")],
    };
    let merged =
        storage(&answer.encode_to_vec(), &[status(Degraded, "Slow"), status(Inaccessible, "Gone")])
            .expect("reads");
    let merged = wire::NodeGetStorageHealthResponse::decode(merged.as_slice())
        .expect("reads")
        .backend_health;
    assert_eq!(merged.len(), 4);
    assert_eq!((merged[0].status, &merged[1..3]), (2, &[limited("ext4"), limited("xfs")][..]));
    assert_eq!((merged[3].reason.as_str(), &merged[3].volume_capability), ("Slow", &None));
}

fn text() -> impl Strategy<Value = String> {
    // Repeated, because a thousand random characters take a hundred times as long.
    let long = ("[a-zä]{3,9}", 1000..=1100_usize)
        .prop_map(|(part, length)| part.chars().cycle().take(length).collect());
    prop_oneof!["[A-Z][a-z]{0,3}", "\\PC{0,5}", long]
}

fn entries() -> impl Strategy<Value = Vec<(i32, String, String)>> {
    prop::collection::vec((-1i32..6, text(), text()), 0..24)
}

fn local_statuses() -> impl Strategy<Value = Vec<HealthStatus>> {
    let status = prop::sample::select(vec![Degraded, Inaccessible, DataLoss]);
    let entry = (status, text(), text()).prop_map(|(status, reason, message)| HealthStatus {
        status,
        reason,
        message,
    });
    prop::collection::vec(entry, 0..24)
}

fn encoded(entries: &[(i32, String, String)]) -> Vec<u8> {
    let mut message = Vec::new();
    raw::put_bytes(&mut message, HEALTH_VOLUME_ID, b"v");
    for (index, (status, reason, text)) in entries.iter().enumerate() {
        let entry =
            VolumeHealthEntry { status: *status, reason: reason.clone(), message: text.clone() }
                .encode_to_vec();
        raw::put_bytes(
            &mut message,
            HEALTH_STATUSES,
            &[entry, unknown(&format!("e{index}"))].concat(),
        );
    }
    [message, unknown("outer")].concat()
}

proptest! {
    #[test]
    fn merged_statuses_keep_to_kubernetes_limits(theirs in entries(), ours in local_statuses()) {
        let merged = volume_health(&encoded(&theirs), "v", &ours).expect("reads");
        prop_assert_eq!(unknowns(&merged), ["outer"]);
        let read = wire::VolumeHealth::decode(merged.as_slice()).expect("reads");
        let entries = &read.health_statuses;
        prop_assert_eq!(&read.volume_id, "v");
        prop_assert!(entries.len() <= 16);
        let unique: HashSet<(i32, &str)> = entries.iter().map(|entry| (entry.status, entry.reason.as_str())).collect();
        prop_assert_eq!(unique.len(), entries.len());
        for entry in entries {
            prop_assert!(!entry.reason.is_empty() && entry.reason.len() <= 256 && entry.message.len() <= 1024);
            prop_assert!(entry.reason.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c)));
        }
        if !ours.is_empty() && merged != encoded(&theirs) {
            let badness = |status: i32| if (1..=3).contains(&status) { status } else { 0 };
            prop_assert!(entries.is_sorted_by_key(|entry| std::cmp::Reverse(badness(entry.status))));
        }
        // Merged again, nothing changes.
        prop_assert_eq!(volume_health(&merged, "v", &ours).expect("reads"), merged);
    }

    #[test]
    fn unknown_fields_of_the_upstreams_entries_survive(theirs in prop::collection::btree_set("[A-Z][a-z]{1,3}", 0..8), ours in local_statuses()) {
        let theirs: Vec<_> = theirs.into_iter().map(|reason| (DataLoss.number(), reason, "x".repeat(1500))).collect();
        let merged = volume_health(&encoded(&theirs), "v", &ours).expect("reads");
        let fields = raw::fields(&merged).expect("reads");
        let kept: BTreeSet<String> = fields.iter().filter_map(|field| field.bytes(HEALTH_STATUSES)).flat_map(unknowns).collect();
        prop_assert_eq!(kept, (0..theirs.len()).map(|index| format!("e{index}")).collect::<BTreeSet<_>>());
    }

    #[test]
    fn unknown_fields_around_a_condition_survive(abnormal: bool, message in text(), ours in text(), worse: bool) {
        let condition = [theirs(abnormal, &message).encode_to_vec(), unknown("in")].concat();
        let mut answer = stats_with(None);
        raw::put_bytes(&mut answer, CONDITION, &condition);
        answer.extend(unknown("out"));
        let merged = stats(&answer, &VolumeCondition { abnormal: worse, message: ours }).expect("reads");
        prop_assert_eq!(unknowns(&merged), ["out"]);
        let fields = raw::fields(&merged).expect("reads");
        let conditions: Vec<&[u8]> = fields.iter().filter_map(|field| field.bytes(CONDITION)).collect();
        prop_assert_eq!(conditions.len(), 1);
        prop_assert_eq!(unknowns(conditions[0]), ["in"]);
        let read = wire::NodeGetVolumeStatsResponse::decode(merged.as_slice()).expect("reads");
        prop_assert_eq!(read.usage.len(), 1);
        prop_assert_eq!(read.volume_condition.expect("there").abnormal, abnormal || worse);
    }

    #[test]
    fn malformed_messages_are_refused_or_stay_readable(junk in prop::collection::vec(any::<u8>(), 0..64)) {
        let told = VolumeHealth { statuses: Ok(vec![status(Degraded, "X")]), condition: Some(abnormal("x")), local: true };
        let ours = [status(Degraded, "X")];
        let known = HashMap::from([(String::new(), told.clone())]);
        for merged in [
            add_capabilities(&junk, &[4]),
            stats(&junk, &abnormal("x")),
            volume(&junk, &abnormal("x")),
            volumes(&junk, &known),
            health(&junk, "v", &ours),
            storage(&junk, &ours),
            append_entries(&junk, &[], ""),
        ]
        .into_iter()
        .flatten()
        {
            prop_assert!(raw::fields(&junk).is_ok() && raw::fields(&merged).is_ok());
        }
    }
}
