//! The CSI shim as a process, with a real daemon on a recorded host: its answers, its readiness and
//! its refusals.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use diskvitals_csi::wire;
use diskvitals_csi::wire::identity_client::IdentityClient;
use nix::sys::signal::Signal;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

use crate::child::Process;
use crate::programs::built_program;

/// For a loaded machine; a passing test never waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

impl Process {
    #[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
    fn shim(dir: &Path) -> Process {
        let child = Command::new(built_program("diskvitals-csi"))
            .arg("--endpoint")
            .arg(format!("unix://{}", socket(dir).display()))
            .arg("--agent")
            .arg(dir.join("agent.sock"))
            .spawn();
        Process(child.expect("starts"))
    }

    #[allow(clippy::disallowed_methods)]
    fn daemon(dir: &Path) -> Process {
        let config = dir.join("diskvitals.toml");
        std::fs::write(&config, "").expect("configuration");
        let child = Command::new(built_program("diskvitalsd"))
            .arg("--host-root")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts/vm-virtio"))
            .arg("--config")
            .arg(config)
            .arg("--socket")
            .arg(dir.join("main.sock"))
            .arg("--agent-socket")
            .arg(dir.join("agent.sock"))
            .arg("--state-dir")
            .arg(dir.join("state"))
            .spawn();
        Process(child.expect("starts"))
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("csi.sock")
}

/// Repeats `attempt` until it returns a value.
async fn awaited<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = attempt().await {
            return result;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn client(dir: &Path) -> IdentityClient<Channel> {
    let endpoint =
        Endpoint::from_shared(format!("unix://{}", socket(dir).display())).expect("an endpoint");
    IdentityClient::new(awaited("the shim listens", async || endpoint.connect().await.ok()).await)
}

async fn ready(client: &mut IdentityClient<Channel>) -> bool {
    let answer = client.probe(wire::ProbeRequest {}).await.expect("an answer");
    answer.into_inner().ready.expect("said")
}

#[allow(clippy::disallowed_methods)]
fn run(arguments: &[&str], endpoint: Option<&str>) -> Output {
    let mut command = Command::new(built_program("diskvitals-csi"));
    command
        .args(arguments)
        .env_remove("CSI_ENDPOINT")
        .envs(endpoint.map(|endpoint| ("CSI_ENDPOINT", endpoint)));
    command.output().expect("runs")
}

#[tokio::test]
async fn the_shim_reports_its_name_version_and_capabilities() {
    let dir = tempfile::tempdir().expect("dir");
    let shim = Process::shim(dir.path());
    let mut client = client(dir.path()).await;
    let info = client
        .get_plugin_info(wire::GetPluginInfoRequest {})
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!(
        (info.name.as_str(), info.vendor_version.as_str()),
        ("csi.diskvitals.io", env!("CARGO_PKG_VERSION"))
    );
    let can = client
        .get_plugin_capabilities(wire::GetPluginCapabilitiesRequest {})
        .await
        .expect("an answer")
        .into_inner();
    let can: Vec<String> = can
        .capabilities
        .into_iter()
        .map(|one| format!("{:?}", one.r#type.expect("said")))
        .collect();
    assert_eq!(
        can,
        [
            "Service(Service { r#type: ControllerService })",
            "Service(Service { r#type: VolumeAccessibilityConstraints })",
            "VolumeExpansion(VolumeExpansion { r#type: Online })"
        ]
    );
    let mode = std::fs::metadata(socket(dir.path())).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert_eq!(shim.end(Signal::SIGTERM).code(), Some(0));
    assert!(!socket(dir.path()).exists());
}

#[tokio::test]
async fn the_shim_is_ready_after_the_first_contact_with_the_daemon_and_stays_ready() {
    let dir = tempfile::tempdir().expect("dir");
    let _shim = Process::shim(dir.path());
    let mut client = client(dir.path()).await;
    assert!(!ready(&mut client).await);
    let daemon = Process::daemon(dir.path());
    awaited("ready", async || ready(&mut client).await.then_some(())).await;
    daemon.end(Signal::SIGKILL);
    assert!(ready(&mut client).await);
}

#[tokio::test]
async fn a_silent_client_does_not_delay_the_shutdown() {
    let dir = tempfile::tempdir().expect("dir");
    let shim = Process::shim(dir.path());
    let _talks = client(dir.path()).await;
    let _silent = tokio::net::UnixStream::connect(socket(dir.path())).await.expect("connects");
    let ended =
        tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(|| shim.end(Signal::SIGTERM)))
            .await;
    assert_eq!(ended.expect("in time").expect("no panic").code(), Some(0));
    assert!(!socket(dir.path()).exists());
}

#[tokio::test]
async fn a_dead_shims_socket_is_replaced_and_a_live_ones_is_not() {
    let dir = tempfile::tempdir().expect("dir");
    let first = Process::shim(dir.path());
    client(dir.path()).await;
    first.end(Signal::SIGKILL);
    assert!(socket(dir.path()).exists());
    let _second = Process::shim(dir.path());
    let mut client = client(dir.path()).await;

    let third = run(&[], Some(&format!("unix://{}", socket(dir.path()).display())));
    let words = String::from_utf8_lossy(&third.stderr);
    assert_eq!(third.status.code(), Some(1), "{words}");
    assert!(words.contains("another process listens on"), "{words}");
    assert!(!ready(&mut client).await);
}

#[test]
fn a_file_in_the_place_of_the_socket_is_left_alone() {
    let dir = tempfile::tempdir().expect("dir");
    std::fs::write(socket(dir.path()), "mine").expect("written");
    let output = run(&["--endpoint", &format!("unix://{}", socket(dir.path()).display())], None);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("exists and is no socket"), "{words}");
    assert_eq!(std::fs::read(socket(dir.path())).expect("there"), b"mine");
}

#[test]
fn invalid_usage_exits_with_status_2_and_one_line() {
    let long = format!("unix:///{}", "a".repeat(107));
    for (arguments, endpoint, says) in [
        (
            vec!["--endpoint", "tcp://127.0.0.1:9"],
            None,
            "only unix sockets are served: write unix:///PATH",
        ),
        (vec![], Some("dns:///csi"), "only unix sockets are served: write unix:///PATH"),
        (vec!["--endpoint", "unix://csi.sock"], None, "the path must be absolute"),
        (vec!["--endpoint", &long], None, "the path has 108 bytes, at most 107 are possible"),
        (vec![], None, "--mode driver needs --endpoint"),
        (vec!["--report", "events", "--upstream", "unix:///b"], None, "has no use for --upstream"),
        (
            vec!["--driver-name=-x"],
            Some("unix:///nowhere/csi.sock"),
            "begins and ends with a letter or digit",
        ),
    ] {
        let output = run(&arguments, endpoint);
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
        assert!(words.contains(says), "{arguments:?}: {words}");
    }
}

#[test]
fn the_help_names_each_mode_and_what_it_needs() {
    let help = run(&["--help"], None);
    let words =
        String::from_utf8_lossy(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for flag in [
        "--mode",
        "--endpoint",
        "--agent",
        "--driver-name",
        "--node-id",
        "--topology-key",
        "--health-api",
        "--controller-publish",
        "--upstream",
        "--registration-dir",
        "--kubelet-registration-path",
        "--podmon-endpoint",
        "--report",
        "--log-format",
    ] {
        assert!(words.contains(flag), "{flag} is missing in: {words}");
    }
    for (arguments, says) in [
        (vec!["--mode", "interposer"], "--mode interposer needs --upstream"),
        (vec!["--mode", "registrar"], "--mode registrar needs --registration-dir"),
        (vec!["--upstream", "unix:///a/b.sock"], "--mode driver has no use for --upstream"),
    ] {
        let output = run(&arguments, Some("unix:///nowhere/csi.sock"));
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains(says), "{words}");
    }
}
