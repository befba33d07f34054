//! Sockets: their paths, permissions, and the effect of misbehaving clients on other clients
//! (none).

use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use diskvitals_daemon::api::server::{Limits, SocketAccess, bind};
use diskvitals_host::listen::ListenError;
use diskvitals_wire as wire;
use diskvitals_wire::inventory_client::InventoryClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::fixture::{Served, channel, snapshot, within};

#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    drop(UnixListener::bind(&path).unwrap());
    let listener = bind(&path, SocketAccess::Group).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let locks = format!(".diskvitals.lock-{}", nix::unistd::geteuid());
    assert_eq!(names, [locks.as_str(), "s.sock"], "no temporary name is left");
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_is_replaced_and_keeps_off_its_successors_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let dying = bind(&path, SocketAccess::Group).await.unwrap();
    let successor = bind(&path, SocketAccess::Group).await.unwrap();
    drop(dying);
    assert!(path.exists());
    drop(successor);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_second_live_daemon_is_refused_on_either_socket() {
    let served = Served::start(snapshot(0)).await;
    for path in [served.socket(), served.agent_socket()] {
        let error = bind(&path, SocketAccess::Group).await.unwrap_err();
        assert!(matches!(error, ListenError::InUse(_)), "{error}");
        assert!(error.to_string().contains("another process listens on"));
    }
    served.client().await.node().await.unwrap();
}

#[tokio::test]
async fn invalid_socket_paths_are_errors_that_name_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("x".repeat(120));
    let error = bind(&long, SocketAccess::Group).await.unwrap_err().to_string();
    assert!(error.contains("at most 107") && error.contains("xxx"), "{error}");
    let file = dir.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(matches!(bind(&file, SocketAccess::Group).await, Err(ListenError::NotASocket(_))));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    let deep = dir.path().join("no/such/s.sock");
    let error = bind(&deep, SocketAccess::Group).await.unwrap_err().to_string();
    assert!(error.contains("no/such"), "{error}");
    // 107 bytes are possible although the temporary name would be longer.
    let name = "y".repeat(107 - dir.path().as_os_str().len() - 1);
    let longest = dir.path().join(&name[..1]).join(&name[2..]);
    bind(&longest, SocketAccess::Group).await.unwrap();
}

#[tokio::test]
async fn grpc_health_is_not_serving_until_the_first_full_snapshot() {
    let mut snapshot = snapshot(0);
    snapshot.settled = false;
    let served = Served::start(snapshot).await;
    let mut health = HealthClient::new(channel(&served.socket()).await);
    for service in ["", "diskvitals.v1.Inventory", "diskvitals.v1.Admin"] {
        let answer = health
            .check(HealthCheckRequest { service: service.into() })
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.status(), ServingStatus::NotServing, "{service}");
    }
    let mut statuses =
        health.watch(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
    served.owner.settle();
    within(30, async {
        while statuses.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}
    })
    .await;
}

/// The answer of reflection (v1) to one request.
async fn reflected(
    channel: tonic::transport::Channel,
    request: tonic_reflection::pb::v1::server_reflection_request::MessageRequest,
) -> tonic_reflection::pb::v1::server_reflection_response::MessageResponse {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let mut answers = ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    answer.message_response.expect("an answer")
}

/// The services that reflection lists, sorted.
async fn listed_services(channel: tonic::transport::Channel) -> Vec<String> {
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let list = MessageRequest::ListServices(String::new());
    let MessageResponse::ListServicesResponse(list) = reflected(channel, list).await else {
        panic!("no list");
    };
    let mut names: Vec<String> = list.service.into_iter().map(|it| it.name).collect();
    names.sort();
    names
}

#[tokio::test]
async fn reflection_lists_on_each_socket_what_that_socket_serves() {
    let served = Served::start(snapshot(0)).await;
    let main = channel(&served.socket()).await;
    assert_eq!(
        listed_services(main.clone()).await,
        [
            "diskvitals.v1.Admin",
            "diskvitals.v1.Checks",
            "diskvitals.v1.Inventory",
            "grpc.health.v1.Health",
        ]
    );
    use tonic_reflection::pb::v1alpha::ServerReflectionRequest;
    use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1alpha::server_reflection_request::MessageRequest;
    let symbol = MessageRequest::FileContainingSymbol("diskvitals.v1.Inventory".into());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(symbol) };
    let mut answers = ServerReflectionClient::new(main)
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    assert!(answer.message_response.is_some());

    served.allow(nix::unistd::geteuid().as_raw());
    assert_eq!(
        listed_services(channel(&served.agent_socket()).await).await,
        ["diskvitals.v1.Inventory", "diskvitals.v1.Storage", "grpc.health.v1.Health",]
    );
}

#[tokio::test]
async fn reflection_carries_the_comments_of_the_proto_files() {
    use prost::Message;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let served = Served::start(snapshot(0)).await;
    let symbol = MessageRequest::FileContainingSymbol("diskvitals.v1.Finding".into());
    let answer = reflected(channel(&served.socket()).await, symbol).await;
    let MessageResponse::FileDescriptorResponse(files) = answer else {
        panic!("{answer:?}");
    };
    let file = prost_types::FileDescriptorProto::decode(&*files.file_descriptor_proto[0]).unwrap();
    let comments: Vec<&str> = file
        .source_code_info
        .iter()
        .flat_map(|source| &source.location)
        .filter_map(|location| location.leading_comments.as_deref())
        .collect();
    let says = |text: &str| comments.iter().any(|comment| comment.contains(text));
    assert!(says("The node itself: identity"), "{}", comments.len());
    assert!(says("What to do about it: the action of its reason"));
}

#[tokio::test]
async fn a_method_that_is_not_served_is_named_in_the_answer() {
    let served = Served::start(snapshot(0)).await;
    served.allow(nix::unistd::geteuid().as_raw());
    let main = channel(&served.socket()).await;
    let status = wire::volumes_client::VolumesClient::new(main.clone())
        .delete(wire::DeleteRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unimplemented, "this socket does not serve `diskvitals.v1.Volumes/Delete`")
    );
    // A service that is served, and a method that it does not have.
    let mut grpc = tonic::client::Grpc::new(main);
    grpc.ready().await.unwrap();
    let status = grpc
        .unary(
            tonic::Request::new(wire::GetNodeRequest {}),
            "/diskvitals.v1.Inventory/NoSuch%20Method".parse().unwrap(),
            tonic_prost::ProstCodec::<_, wire::Node>::default(),
        )
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::Unimplemented,
            "this socket does not serve `diskvitals.v1.Inventory/NoSuch%20Method`"
        )
    );
    let agent = channel(&served.agent_socket()).await;
    let status = wire::admin_client::AdminClient::new(agent)
        .refresh(wire::RefreshRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unimplemented, "this socket does not serve `diskvitals.v1.Admin/Refresh`")
    );
}

#[tokio::test]
async fn the_agent_socket_is_read_only() {
    let served = Served::start(snapshot(0)).await;
    let channel = channel(&served.agent_socket()).await;
    let uid = nix::unistd::geteuid().as_raw();
    let node = InventoryClient::new(channel.clone()).get_node(wire::GetNodeRequest {}).await;
    if uid == 0 {
        node.unwrap();
    } else {
        let status = node.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains(&uid.to_string()));
        served.allow(uid);
        InventoryClient::new(channel.clone()).get_node(wire::GetNodeRequest {}).await.unwrap();
    }
    let refused = wire::admin_client::AdminClient::new(channel)
        .refresh(wire::RefreshRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_request_beyond_64_kib_is_refused() {
    let served = Served::start(snapshot(0)).await;
    let mut inventory = InventoryClient::new(channel(&served.socket()).await);
    let query = |length| wire::ExplainRequest { query: "x".repeat(length), ..Default::default() };
    let refused = inventory.explain(query(65 << 10)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let read = inventory.explain(query(60 << 10)).await.unwrap_err();
    assert_eq!(read.code(), Code::InvalidArgument, "{read:?}");
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let limits = Limits { preface_timeout: Duration::from_millis(200), ..Limits::default() };
    let served = Served::with(snapshot(0), limits).await;
    let mut silent = tokio::net::UnixStream::connect(served.socket()).await.unwrap();
    let mut half = tokio::net::UnixStream::connect(served.socket()).await.unwrap();
    half.write_all(b"PRI * HT").await.unwrap();
    for stream in [&mut silent, &mut half] {
        // The server's first frame (SETTINGS) may arrive before the end.
        let mut bytes = Vec::new();
        let _ = within(30, stream.read_to_end(&mut bytes)).await;
    }
    served.client().await.node().await.unwrap();
}

/// The flood uses up the quota of root while others are served. Here all clients are one process, so
/// the others are the earlier connections that are in use; idle ones yield to newcomers.
#[tokio::test]
async fn a_flood_of_connections_does_not_interrupt_existing_ones() {
    let limits = Limits {
        connections: 16,
        connections_per_uid: 8,
        // None of them is closed for its silence.
        preface_timeout: Duration::from_secs(600),
        ..Limits::default()
    };
    let served = Served::with(snapshot(10), limits).await;
    let before = served.client().await;
    let watch = before.watch(0).await.unwrap();
    let flood: Vec<UnixStream> =
        (0..100).map(|_| UnixStream::connect(served.socket()).unwrap()).collect();
    within(30, before.volumes()).await.unwrap();
    drop(watch);
    // The excess is closed at once, not queued.
    let is_closed = |mut one: &UnixStream| {
        one.set_nonblocking(true).unwrap();
        !one.read(&mut [0; 64])
            .map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |read| read > 0)
    };
    within(30, async {
        while flood.iter().filter(|one| is_closed(one)).count() < flood.len() - 16 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // After the flood there is capacity again.
    drop(flood);
    within(30, async {
        loop {
            if let Ok(client) =
                diskvitals_wire::client::Client::connect(&served.socket(), Duration::from_secs(5))
                    .await
                && client.node().await.is_ok()
            {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// PRIORITY, SETTINGS, PING and WINDOW_UPDATE (RFC 9113, 6), without any call.
#[tokio::test]
async fn a_flood_of_control_frames_ends_its_connection_and_no_other() {
    let served = Served::start(snapshot(10)).await;
    let polite = served.client().await;
    polite.node().await.unwrap();
    let payloads: [(u8, u8, &[u8]); 4] =
        [(2, 1, &[0, 0, 0, 0, 1]), (4, 0, &[]), (6, 0, &[0; 8]), (8, 0, &[0, 0, 0, 1])];
    for (kind, stream, payload) in payloads {
        let mut frame = vec![0, 0, u8::try_from(payload.len()).unwrap(), kind, 0];
        frame.extend([0, 0, 0, stream]);
        frame.extend(payload);
        let mut flooder = tokio::net::UnixStream::connect(served.socket()).await.unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        flooder.write_all(preface).await.unwrap();
        let (mut answers, mut flood) = flooder.split();
        let read = async {
            // A reset of the connection is its end, too.
            let _ = tokio::io::copy(&mut answers, &mut tokio::io::sink()).await;
        };
        let write = async { while flood.write_all(&frame.repeat(1000)).await.is_ok() {} };
        within(30, async { tokio::join!(read, write) }).await;
        within(30, polite.node()).await.unwrap();
    }
}

#[tokio::test]
async fn a_hung_client_does_not_delay_the_shutdown() {
    let limits = Limits { drain_timeout: Duration::from_millis(300), ..Limits::default() };
    let mut served = Served::with(snapshot(3000), limits).await;
    let watching = served.client().await.watch(0).await.unwrap();
    let silent = tokio::net::UnixStream::connect(served.socket()).await.unwrap();
    within(10, served.stop()).await;
    assert!(!served.socket().exists());
    drop((watching, silent));
}

#[tokio::test]
async fn without_a_daemon_the_client_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none.sock");
    let error = diskvitals_wire::client::Client::connect(&path, Duration::from_secs(1))
        .await
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "no diskvitalsd at {}: start it (on a host: systemctl start diskvitalsd; in a cluster: its pod) or give --socket",
            path.display()
        )
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_exhausts_its_quota_and_not_the_daemons_memory() {
    let limits = Limits {
        // Four calls and a part of a fifth.
        bytes_per_uid: 20 << 10,
        ..Limits::default()
    };
    let served = Served::with(snapshot(0), limits).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(served.client().await.watch(0).await.unwrap());
    }
    let refused = served.client().await.node().await.unwrap_err().to_string();
    assert!(refused.contains("hold too much memory"), "{refused}");
    drop(held);
    within(30, async { while served.client().await.node().await.is_err() {} }).await;
}
