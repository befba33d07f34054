//! What is wrong with a field is said with the field's name.

use proptest::prelude::*;
use tonic::Code;

use super::*;

fn mount(mode: i32) -> wire::VolumeCapability {
    let access_type = Some(AccessType::Mount(wire::volume_capability::MountVolume {
        fs_type: "ext4".into(),
        ..Default::default()
    }));
    wire::VolumeCapability {
        access_type,
        access_mode: Some(wire::volume_capability::AccessMode { mode }),
    }
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, words: &str) {
    let status = result.expect_err("refused");
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(words), "{} lacks {words}", status.message());
}

#[test]
fn an_empty_field_is_named() {
    assert_refused(validate_volume_id(""), Code::InvalidArgument, "volume_id: is empty");
    assert_refused(validate_node_id(""), Code::InvalidArgument, "node_id: is empty");
    assert_refused(validate_name(""), Code::InvalidArgument, "name: is empty");
    assert_refused(
        validate_path("target_path", ""),
        Code::InvalidArgument,
        "target_path: is empty",
    );
    assert_refused(
        is_possible_path("volume_path", ""),
        Code::InvalidArgument,
        "volume_path: is empty",
    );
    assert_refused(parse_capabilities(&[]), Code::InvalidArgument, "volume_capabilities: is empty");
    assert_refused(
        parse_capability("volume_capability", None),
        Code::InvalidArgument,
        "volume_capability: is missing",
    );
}

#[test]
fn a_target_path_is_absolute_and_normalized() {
    for good in ["/var/lib/kubelet/pods/a/volumes/x/mount", "/a", "/a/", "/with blank/ü"] {
        assert!(validate_path("target_path", good).is_ok(), "{good}");
    }
    for bad in [
        "some/path",
        "/",
        "//",
        "/a//b",
        "/a/../b",
        "/a/..",
        "/./a",
        "/a\0b",
        "..",
        &format!("/{}", "a".repeat(5000)),
    ] {
        assert_refused(validate_path("target_path", bad), Code::InvalidArgument, "target_path: ");
    }
}

#[test]
fn a_relative_volume_path_is_impossible_but_not_invalid() {
    assert!(!is_possible_path("volume_path", "some/path").expect("said"));
    assert!(is_possible_path("volume_path", "/some/path").expect("said"));
}

#[test]
fn an_impossible_id_is_not_found_and_not_invalid() {
    assert!(
        validate_id_form("../../etc/passwd").is_ok(),
        "it is data: the daemon knows no such volume"
    );
    for id in ["a\0b", &"a".repeat(129)] {
        assert_refused(validate_id_form(id), Code::NotFound, "volume_id: no volume has the id");
    }
    assert_refused(validate_id_form(&"ä".repeat(100_000)), Code::NotFound, "…`");
}

#[test]
fn a_name_is_any_text_of_128_bytes_without_control_characters() {
    for good in ["pvc-1", "a/b", "ü 🙂", &"a".repeat(128)] {
        assert!(validate_name(good).is_ok(), "{good}");
    }
    for bad in ["a\nb", "a\0", &"a".repeat(129)] {
        assert_refused(validate_name(bad), Code::InvalidArgument, "name: ");
    }
}

#[test]
fn an_access_mode_has_the_same_number_in_csi_and_in_the_api_of_the_daemon() {
    use diskvitals_finding::provision::AccessMode;
    use wire::volume_capability::access_mode::Mode;

    for number in -1..16 {
        let name = AccessMode::from_number(number).map(|mode| format!("{mode:?}"));
        let csi = Mode::try_from(number).ok().filter(|mode| *mode != Mode::Unknown);
        assert_eq!(name, csi.map(|mode| format!("{mode:?}")), "{number}");
        let ours = daemon::AccessMode::try_from(number).ok();
        let ours = ours.filter(|mode| *mode != daemon::AccessMode::Unspecified);
        assert_eq!(name, ours.map(|mode| format!("{mode:?}")), "{number}");
    }
}

#[test]
fn a_capability_has_a_type_and_a_mode() {
    let access = parse_capability("volume_capability", Some(&mount(1))).expect("right");
    assert_eq!(
        (access.mode(), access.block, access.fs_type.as_str()),
        (daemon::AccessMode::SingleNodeWriter, false, "ext4")
    );
    for number in [0, 8, -1] {
        assert_refused(
            parse_capability("volume_capability", Some(&mount(number))),
            Code::InvalidArgument,
            "is no access mode",
        );
    }
    let no_type = wire::VolumeCapability { access_type: None, ..mount(1) };
    assert_refused(
        parse_capability("volume_capability", Some(&no_type)),
        Code::InvalidArgument,
        "volume_capability: access_type is missing",
    );
    let no_mode = wire::VolumeCapability { access_mode: None, ..mount(1) };
    assert_refused(
        parse_capability("volume_capability", Some(&no_mode)),
        Code::InvalidArgument,
        "volume_capability: access_mode is missing",
    );
}

#[test]
fn every_mode_keeps_its_number() {
    for number in 1..8 {
        assert_eq!(
            parse_capability("volume_capability", Some(&mount(number))).expect("right").mode,
            number
        );
    }
}

#[test]
fn secrets_in_mount_options_are_not_repeated() {
    let mut with = mount(1);
    let flags = vec!["password=hunter2".to_owned(); 500];
    with.access_type = Some(AccessType::Mount(wire::volume_capability::MountVolume {
        mount_flags: flags,
        ..Default::default()
    }));
    let status = parse_capability("volume_capability", Some(&with)).expect_err("too long");
    assert!(!status.message().contains("hunter2"));
}

#[test]
fn a_range_is_not_negative_and_not_empty() {
    let of = |required_bytes, limit_bytes| {
        parse_capacity_range(Some(&wire::CapacityRange { required_bytes, limit_bytes }))
    };
    assert_eq!(parse_capacity_range(None).expect("right"), (0, 0));
    assert_eq!(of(0, 0).expect("right"), (0, 0));
    assert_eq!(of(5, 0).expect("right"), (5, 0));
    assert_eq!(of(i64::MAX, i64::MAX).expect("right"), (i64::MAX as u64, i64::MAX as u64));
    assert_refused(of(-1, 0), Code::OutOfRange, "capacity_range.required_bytes: -1 is negative");
    assert_refused(of(0, i64::MIN), Code::OutOfRange, "capacity_range.limit_bytes: ");
    assert_refused(
        of(2, 1),
        Code::OutOfRange,
        "capacity_range: limit_bytes 1 is below required_bytes 2",
    );
}

#[test]
fn an_inline_volume_is_refused() {
    let context = HashMap::from([(EPHEMERAL.to_owned(), "true".to_owned())]);
    assert_refused(parse_pod(&context), Code::InvalidArgument, "volume_context: ");
    let told = HashMap::from([
        (POD_UID.to_owned(), "u".to_owned()),
        (POD_NAME.to_owned(), "n".to_owned()),
    ]);
    assert_eq!(
        parse_pod(&told).expect("right"),
        PodRef { uid: "u".into(), name: "n".into(), namespace: String::new() }
    );
}

#[test]
fn the_grpc_timeout_header_is_parsed() {
    assert_eq!(parse_grpc_timeout("2S"), Some(Duration::from_secs(2)));
    assert_eq!(parse_grpc_timeout("99999999m"), Some(Duration::from_millis(99_999_999)));
    assert_eq!(parse_grpc_timeout("1M"), Some(Duration::from_secs(60)));
    for wrong in ["", "S", "5", "123456789S", "-1S", "1x", "1ü"] {
        assert_eq!(parse_grpc_timeout(wrong), None, "{wrong}");
    }
    let mut request = Request::new(());
    assert_eq!(call_timeout(&request), MAX_CALL_TIMEOUT);
    request.metadata_mut().insert("grpc-timeout", "99H".parse().expect("ascii"));
    assert_eq!(call_timeout(&request), MAX_CALL_TIMEOUT);
    request.metadata_mut().insert("grpc-timeout", "3S".parse().expect("ascii"));
    assert_eq!(call_timeout(&request), Duration::from_secs(3));
}

proptest! {
    #[test]
    fn validation_never_panics(text in "\\PC{0,300}|.{0,20}") {
        let _ = (validate_volume_id(&text), validate_id_form(&text), validate_name(&text), validate_path("target_path", &text), is_possible_path("volume_path", &text), parse_grpc_timeout(&text));
    }
}

#[test]
fn a_daemon_refusal_names_the_csi_field() {
    let refused = |message: &str| {
        with_csi_field_names(Status::invalid_argument(message)).message().to_owned()
    };
    assert_eq!(refused("staging_path: is not below /k"), "staging_target_path: is not below /k");
    assert_eq!(refused("access.mode: cannot be"), "volume_capability.access_mode: cannot be");
    assert_eq!(refused("target_path: is relative"), "target_path: is relative");
    assert_eq!(refused("handles are many"), "handles are many");
    assert_eq!(
        with_csi_field_names(Status::not_found("handle: unknown")).code(),
        tonic::Code::NotFound
    );
}
