//! podmon's request over a socket: by a client generated from the same definition, and, if
//! hwtests/csi/build-sanity has built it, by podmon's own stubs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use diskvitals_csi::podmon::{Connectivity, ConnectivityStatus, PodmonService};
use diskvitals_csi::wire::podmon::podmon_client::PodmonClient;
use diskvitals_csi::wire::podmon::{
    ValidateVolumeHostConnectivityRequest, ValidateVolumeHostConnectivityResponse,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Status};

/// A node with one missing drive, below the volume `gone`; `busy` has I/O if the sample is long
/// enough.
struct Node;

impl Connectivity for Node {
    async fn check(
        &self,
        handles: Vec<String>,
        sample: Duration,
    ) -> Result<ConnectivityStatus, Status> {
        let mut answer = ConnectivityStatus { connected: true, ..ConnectivityStatus::default() };
        for handle in handles {
            match handle.as_str() {
                "gone" => {
                    answer.connected = false;
                    answer.messages.push("gone: the drive naa.5000 is missing".into());
                }
                "busy" => answer.ios_in_progress |= !sample.is_zero(),
                "idle" => {}
                other => {
                    return Err(Status::not_found(format!("volume_ids: no volume {other:?}")));
                }
            }
        }
        Ok(answer)
    }
}

fn serve(dir: &Path) -> PathBuf {
    let socket = dir.join("csi.sock");
    let incoming = UnixListenerStream::new(UnixListener::bind(&socket).expect("bound"));
    let service = PodmonService::new("node-1".into(), Arc::new(Node)).server();
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming),
    );
    socket
}

#[tokio::test]
async fn podmon_requests_with_and_without_volumes_are_answered() {
    let dir = tempfile::tempdir().expect("dir");
    let mut client = PodmonClient::connect(format!("unix://{}", serve(dir.path()).display()))
        .await
        .expect("connects");
    let here = client
        .validate_volume_host_connectivity(ValidateVolumeHostConnectivityRequest::default())
        .await
        .expect("an answer");
    assert_eq!(
        here.into_inner(),
        ValidateVolumeHostConnectivityResponse { connected: true, ..Default::default() }
    );
    let request = |volume: &str| ValidateVolumeHostConnectivityRequest {
        volume_ids: vec![volume.into()],
        node_id: "node-1".into(),
        ..Default::default()
    };
    let gone = client
        .validate_volume_host_connectivity(request("gone"))
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!(
        (gone.connected, gone.messages),
        (false, vec!["gone: the drive naa.5000 is missing".to_owned()])
    );
    let busy = client
        .validate_volume_host_connectivity(request("busy"))
        .await
        .expect("an answer")
        .into_inner();
    assert!(busy.ios_in_progress, "the caller has named no sample time");
    let unknown =
        client.validate_volume_host_connectivity(request("other")).await.expect_err("not known");
    assert_eq!(unknown.code(), Code::NotFound);
}

/// The folder that lib.sh of scripts/ uses.
fn tools() -> PathBuf {
    let cache = || {
        std::env::var_os("XDG_CACHE_HOME").map_or_else(
            || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"),
            PathBuf::from,
        )
    };
    std::env::var_os("DISKVITALS_TOOLS")
        .map_or_else(|| cache().join("diskvitals-tools"), PathBuf::from)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods)] // A test starts the programs it tests with.
async fn podmons_own_stubs_take_the_answers() {
    let program = tools().join("bin/podmon-client");
    if !program.exists() {
        eprintln!(
            "{} is not there (hwtests/csi/build-sanity podmon-client): left out",
            program.display()
        );
        return;
    }
    let dir = tempfile::tempdir().expect("dir");
    let socket = serve(dir.path());
    // Exit status of the program: 0 as expected, 1 not as expected, 3 an error.
    for (arguments, status, says) in [
        ("-presence -want-connected true", 0, r#""connected":true"#),
        ("-node node-1 -want-connected true -want-ios false", 0, r#""connected":true"#),
        (
            "-node node-1 -volume idle,gone -want-connected false",
            0,
            "the drive naa.5000 is missing",
        ),
        ("-node node-1 -volume busy -sample 5 -want-ios true", 0, r#""ios_in_progress":true"#),
        ("-node node-1 -volume busy -want-ios true", 0, r#""ios_in_progress":true"#),
        ("-node node-2 -volume idle", 3, "NotFound: node_id: "),
        ("-node node-1 -volume other", 3, "NotFound: volume_ids: no volume"),
        ("-node node-1 -sample 61", 3, "InvalidArgument: io_sample_time_seconds: "),
    ] {
        let mut command = Command::new(&program);
        command
            .arg("-endpoint")
            .arg(format!("unix:{}", socket.display()))
            .args(arguments.split(' '));
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .expect("no panic")
            .expect("runs");
        let words = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(status), "{arguments}: {words}");
        assert!(words.contains(says), "{arguments}: {words}");
    }
}
