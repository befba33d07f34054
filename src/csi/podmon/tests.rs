use std::sync::Mutex;

use proptest::prelude::*;

use super::*;

/// Answers as told, and remembers what it was asked.
struct FakeDaemon {
    answer: Result<ConnectivityStatus, Status>,
    asked: Mutex<Vec<(Vec<String>, Duration)>>,
}

impl Connectivity for FakeDaemon {
    async fn check(
        &self,
        handles: Vec<String>,
        sample: Duration,
    ) -> Result<ConnectivityStatus, Status> {
        self.asked.lock().expect("no panic").push((handles, sample));
        self.answer.clone()
    }
}

type Answer = ValidateVolumeHostConnectivityResponse;

async fn ask(
    answer: Result<ConnectivityStatus, Status>,
    request: ValidateVolumeHostConnectivityRequest,
) -> (Result<Answer, Status>, Vec<(Vec<String>, Duration)>) {
    let daemon = Arc::new(FakeDaemon { answer, asked: Mutex::default() });
    let service = PodmonService::new("node-1".into(), Arc::clone(&daemon));
    let answer = service
        .validate_volume_host_connectivity(Request::new(request))
        .await
        .map(Response::into_inner);
    let asked = daemon.asked.lock().expect("no panic").clone();
    (answer, asked)
}

fn request(node: &str, volumes: &[&str], seconds: i32) -> ValidateVolumeHostConnectivityRequest {
    ValidateVolumeHostConnectivityRequest {
        volume_ids: volumes.iter().map(|id| (*id).to_owned()).collect(),
        node_id: node.into(),
        io_sample_time_seconds: seconds,
        ..Default::default()
    }
}

fn connected() -> ConnectivityStatus {
    ConnectivityStatus { connected: true, ..ConnectivityStatus::default() }
}

fn disconnected() -> ConnectivityStatus {
    ConnectivityStatus {
        connected: false,
        ios_in_progress: false,
        messages: vec!["naa.5000: gone since 12:00".into()],
    }
}

#[tokio::test]
async fn the_empty_request_reports_the_nodes_connectivity() {
    let (answer, asked) = ask(Ok(connected()), Default::default()).await;
    assert!(answer.expect("OK").connected);
    assert_eq!(asked, [(vec![], Duration::ZERO)]);
    let (answer, _) = ask(Ok(disconnected()), Default::default()).await;
    assert!(!answer.expect("OK").connected);
}

#[tokio::test]
async fn the_empty_request_is_connected_when_the_daemon_does_not_know() {
    let (answer, _) =
        ask(Err(Status::unavailable("no diskvitalsd listens")), Default::default()).await;
    let answer = answer.expect("an error would switch the module's check off");
    assert!(answer.connected && !answer.ios_in_progress);
    assert_eq!(answer.messages, ["not known now: no diskvitalsd listens"]);
}

#[tokio::test]
async fn any_other_request_is_an_error_while_the_daemon_does_not_know() {
    for asked in [
        request("node-1", &[], 0),
        request("", &["v"], 0),
        request("node-1", &["v"], 5),
        request("", &[], 1),
    ] {
        let (answer, _) = ask(Err(Status::unavailable("away")), asked).await;
        assert_eq!(answer.expect_err("unknown").code(), Code::Unavailable);
    }
}

#[tokio::test]
async fn another_nodes_id_is_an_error_and_the_daemon_is_not_asked() {
    let (answer, asked) = ask(Ok(disconnected()), request("node-2", &["v"], 0)).await;
    let status = answer.expect_err("not ours");
    assert_eq!((status.code(), asked.len()), (Code::NotFound, 0));
    assert!(status.message().starts_with("node_id: "), "{status}");
}

#[tokio::test]
async fn volumes_and_sample_reach_the_daemon_each_volume_once() {
    let whole = ConnectivityStatus {
        ios_in_progress: true,
        messages: vec!["a: I/O".into()],
        ..connected()
    };
    let (answer, asked) = ask(Ok(whole), request("node-1", &["a", "sub/b", "a"], 60)).await;
    let answer = answer.expect("OK");
    assert_eq!(
        (answer.connected, answer.ios_in_progress, answer.messages),
        (true, true, vec!["a: I/O".to_owned()])
    );
    assert_eq!(asked, [(vec!["a".to_owned(), "sub/b".to_owned()], Duration::from_secs(60))]);
}

#[tokio::test]
async fn a_request_without_a_sample_time_uses_the_default() {
    for asked in [request("node-1", &["a"], 0), request("node-1", &[], 0), request("", &["a"], 0)] {
        let (_, asked) = ask(Ok(connected()), asked).await;
        assert_eq!(asked[0].1, DEFAULT_SAMPLE);
    }
}

#[tokio::test]
async fn wrong_arguments_are_refused_by_their_field_and_the_daemon_is_not_asked() {
    let many: Vec<String> = (0..=MAX_VOLUMES).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = "x".repeat(MAX_ID_LEN + 1);
    for (asked, field) in [
        (request("", &[], -1), "io_sample_time_seconds: -1 is not between 0 and 60"),
        (request("", &[], 61), "io_sample_time_seconds: 61 is not between 0 and 60"),
        (request("", &[], i32::MIN), "io_sample_time_seconds: "),
        (request("", &["a", ""], 0), "volume_ids[1]: empty"),
        (request("", &["a\0b"], 0), "volume_ids[0]: a control character in it"),
        (request("", &[&long], 0), "volume_ids[0]: 1025 bytes long, at most 1024 are taken"),
        (request("", &many, 0), "volume_ids: 1001 of them, at most 1000 are answered for"),
    ] {
        let (answer, calls) = ask(Ok(disconnected()), asked).await;
        let status = answer.expect_err(field);
        assert_eq!((status.code(), calls.len()), (Code::InvalidArgument, 0), "{field}");
        assert!(status.message().starts_with(field), "{status}");
    }
}

#[tokio::test]
async fn an_error_never_has_the_words_that_are_read_as_not_connected() {
    let text = "volume There is no corresponding SDC: not found";
    let (answer, _) =
        ask(Err(Status::not_found(text)), request("", &["There is no corresponding SDC"], 0)).await;
    let status = answer.expect_err("unknown");
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "whether the volumes are connected is not known")
    );
    let (answer, _) = ask(Err(Status::ok("")), request("node-1", &[], 0)).await;
    assert_eq!(answer.expect_err("no answer").code(), Code::Internal);
}

#[tokio::test]
async fn messages_are_bounded_in_number_and_length() {
    let flood = ConnectivityStatus { messages: vec!["é".repeat(3000); 2000], ..connected() };
    let (answer, _) = ask(Ok(flood), request("node-1", &[], 0)).await;
    let messages = answer.expect("OK").messages;
    assert_eq!(messages, vec!["é".repeat(MAX_MESSAGE_CHARS); MAX_MESSAGES]);
}

proptest! {
    #[test]
    fn an_uncertain_state_is_never_reported_as_not_connected(
        node in prop_oneof![Just(String::new()), Just("node-1".to_owned()), ".*"],
        volumes in prop::collection::vec(".*", 0..5),
        seconds in any::<i32>(),
        array in ".*",
        words in ".*",
        code in 0i32..17,
    ) {
        let request = ValidateVolumeHostConnectivityRequest { volume_ids: volumes, node_id: node, io_sample_time_seconds: seconds, array_id: array };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (answer, _) = runtime.block_on(ask(Err(Status::new(Code::from_i32(code), words)), request));
        match answer {
            Ok(answer) => prop_assert!(answer.connected),
            Err(status) => {
                prop_assert_ne!(status.code(), Code::Ok);
                prop_assert!(!status.message().to_lowercase().contains(NOT_CONNECTED_TEXT));
            }
        }
    }
}
