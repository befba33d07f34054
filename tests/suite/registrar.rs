//! `diskvitals-csi --mode registrar` as a process, with a driver that the test serves. The client
//! calls like the kubelet: its `:authority` is the socket's path.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use diskvitals_csi::wire;
use diskvitals_csi::wire::identity_server::{Identity, IdentityServer};
use diskvitals_csi::wire::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use loona_hpack::{Decoder, Encoder};
use nix::sys::signal::Signal;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::programs::built_program;

/// For a loaded machine; a passing test never waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
const DRIVER: &str = "csi.example.com";
const KUBELET_PATH: &str = "/var/lib/kubelet/plugins/csi.example.com/csi.sock";

/// Killed at the end of the test, also after a failure.
struct Registrar(Option<Child>);

impl Registrar {
    #[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
    fn start(dir: &Path) -> Registrar {
        let child = Command::new(built_program("diskvitals-csi"))
            .args([
                "--mode",
                "registrar",
                "--kubelet-registration-path",
                KUBELET_PATH,
                "--endpoint",
            ])
            .arg(format!("unix://{}", driver_socket(dir).display()))
            .arg("--registration-dir")
            .arg(dir)
            .stderr(Stdio::piped())
            .spawn();
        Registrar(Some(child.expect("starts")))
    }

    fn signal(&self, signal: Signal) {
        let id = self.0.as_ref().expect("running").id();
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(i32::try_from(id).expect("a pid")),
            signal,
        )
        .expect("running");
    }

    /// Returns the exit status and the output.
    async fn ended(mut self) -> (Option<i32>, String) {
        let child = self.0.take().expect("running");
        let output = tokio::task::spawn_blocking(|| child.wait_with_output());
        let output: Output = tokio::time::timeout(PATIENCE, output)
            .await
            .expect("ends in time")
            .expect("no panic")
            .expect("ends");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // The process may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn driver_socket(dir: &Path) -> PathBuf {
    dir.join("csi.sock")
}

fn registration_socket(dir: &Path) -> PathBuf {
    dir.join(format!("{DRIVER}-reg.sock"))
}

/// A driver with this name.
struct Named(&'static str);

#[tonic::async_trait]
impl Identity for Named {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Result<Response<wire::GetPluginInfoResponse>, Status> {
        Ok(Response::new(wire::GetPluginInfoResponse {
            name: self.0.into(),
            vendor_version: "1".into(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<wire::GetPluginCapabilitiesResponse>, Status> {
        Err(Status::unimplemented("not asked by a registrar"))
    }

    async fn probe(
        &self,
        _: Request<wire::ProbeRequest>,
    ) -> Result<Response<wire::ProbeResponse>, Status> {
        Err(Status::unimplemented("not asked by a registrar"))
    }
}

fn serve_driver(dir: &Path, name: &'static str) -> JoinHandle<()> {
    let incoming = UnixListenerStream::new(UnixListener::bind(driver_socket(dir)).expect("bound"));
    tokio::spawn(async move {
        let router =
            tonic::transport::Server::builder().add_service(IdentityServer::new(Named(name)));
        router.serve_with_incoming(incoming).await.expect("serves");
    })
}

/// Repeats `attempt` until it returns a value.
async fn awaited<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = attempt().await {
            return result;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An HTTP/2 client by hand, because no client in Rust sends this authority.
struct Kubelet {
    connection: UnixStream,
    encoder: Encoder<'static>,
    decoder: Decoder<'static>,
    authority: String,
    stream: u32,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Kubelet {
    async fn dial(socket: &Path) -> Kubelet {
        let mut connection = awaited("the registration socket is there", async || {
            UnixStream::connect(socket).await.ok()
        })
        .await;
        connection
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await
            .expect("written");
        let authority = socket.display().to_string().replace('/', "%2F");
        Kubelet {
            connection,
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            authority,
            stream: 1,
        }
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
        let frame = [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat();
        self.connection.write_all(&frame).await.expect("written");
    }

    async fn read(&mut self) -> Frame {
        let mut head = [0; 9];
        self.connection.read_exact(&mut head).await.expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).expect("small")];
        self.connection.read_exact(&mut payload).await.expect("a frame");
        Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        }
    }

    /// A unary call; returns its answer and its trailers.
    async fn call<A: Message + Default>(
        &mut self,
        method: &str,
        request: impl Message,
    ) -> (Option<A>, Vec<(String, String)>) {
        let path = format!("/pluginregistration.Registration/{method}");
        let authority = self.authority.clone();
        let headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", &path),
            (":authority", &authority),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.83.1"),
            ("te", "trailers"),
            ("grpc-timeout", "10S"),
        ];
        let block = self
            .encoder
            .encode(headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        let body = request.encode_to_vec();
        let length = u32::try_from(body.len()).expect("small").to_be_bytes();
        let stream = self.stream;
        self.stream += 2;
        self.write(0x1, 0x4, stream, &block).await;
        self.write(0x0, 0x1, stream, &[&[0], &length[..], &body].concat()).await;
        let (mut answer, mut trailers) = (Vec::new(), Vec::new());
        loop {
            let frame = tokio::time::timeout(PATIENCE, self.read()).await.expect("an answer");
            match frame.kind {
                0x0 if frame.stream == stream => answer.extend(frame.payload),
                0x1 if frame.stream == stream => {
                    let list = self.decoder.decode(&frame.payload).expect("HPACK");
                    trailers.extend(list.into_iter().map(|(name, value)| {
                        (
                            String::from_utf8(name).expect("text"),
                            String::from_utf8(value).expect("text"),
                        )
                    }));
                    if frame.flags & 0x1 != 0 {
                        break;
                    }
                }
                // A call that is answered before its body is read also ends with a reset, with
                // NO_ERROR (RFC 9113, 8.1): it may arrive during the next call.
                0x3 if frame.stream == stream => {
                    panic!("the server resets the stream: {:?}", frame.payload)
                }
                0x7 => panic!("the server ends the connection: {:?}", frame.payload),
                0x4 if frame.flags & 0x1 == 0 => self.write(0x4, 0x1, 0, &[]).await,
                0x6 if frame.flags & 0x1 == 0 => self.write(0x6, 0x1, 0, &frame.payload).await,
                _ => {}
            }
        }
        (answer.get(5..).map(|message| A::decode(message).expect("a message")), trailers)
    }

    async fn info(&mut self) -> PluginInfo {
        let (answer, trailers) = self.call("GetInfo", InfoRequest {}).await;
        assert_eq!(status(&trailers), "0");
        answer.expect("an answer")
    }

    async fn notify(&mut self, plugin_registered: bool, error: &str) {
        let request = RegistrationStatus { plugin_registered, error: error.into() };
        let (answer, trailers) =
            self.call::<RegistrationStatusResponse>("NotifyRegistrationStatus", request).await;
        assert_eq!((status(&trailers), answer), ("0", Some(RegistrationStatusResponse {})));
    }
}

fn status(trailers: &[(String, String)]) -> &str {
    trailers
        .iter()
        .find(|(name, _)| name == "grpc-status")
        .map(|(_, value)| value.as_str())
        .expect("a status")
}

async fn health(socket: &Path) -> ServingStatus {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("unix://{}", socket.display()))
        .expect("an endpoint");
    let mut client = HealthClient::new(endpoint.connect().await.expect("connects"));
    client
        .check(HealthCheckRequest { service: String::new() })
        .await
        .expect("an answer")
        .into_inner()
        .status()
}

#[tokio::test]
async fn a_kubelet_that_dials_the_bare_path_registers_the_driver() {
    let dir = tempfile::tempdir().expect("dir");
    serve_driver(dir.path(), DRIVER);
    let registrar = Registrar::start(dir.path());
    let socket = registration_socket(dir.path());
    let mut kubelet = Kubelet::dial(&socket).await;
    assert_eq!(kubelet.authority.chars().take(3).collect::<String>(), "%2F");
    let expected = PluginInfo {
        r#type: "CSIPlugin".into(),
        name: DRIVER.into(),
        endpoint: KUBELET_PATH.into(),
        supported_versions: vec!["1.0.0".into()],
    };
    assert_eq!(kubelet.info().await, expected);
    assert_eq!(health(&socket).await, ServingStatus::NotServing);
    kubelet.notify(true, "").await;
    assert_eq!(health(&socket).await, ServingStatus::Serving);
    assert_eq!(std::fs::metadata(&socket).expect("there").permissions().mode() & 0o777, 0o600);

    // The kubelet restarts.
    drop(kubelet);
    let mut kubelet = Kubelet::dial(&socket).await;
    assert_eq!(kubelet.info().await, expected);
    kubelet.notify(true, "").await;

    registrar.signal(Signal::SIGTERM);
    let (code, words) = registrar.ended().await;
    assert_eq!(code, Some(0), "{words}");
    assert!(!socket.exists(), "the kubelet takes the driver away when the socket goes");
    assert_eq!(words.matches("has registered the driver").count(), 1, "{words}");
}

#[tokio::test]
async fn an_unknown_method_is_unimplemented_and_the_connection_goes_on() {
    let dir = tempfile::tempdir().expect("dir");
    serve_driver(dir.path(), DRIVER);
    let _registrar = Registrar::start(dir.path());
    let mut kubelet = Kubelet::dial(&registration_socket(dir.path())).await;
    let (answer, trailers) = kubelet.call::<PluginInfo>("Nothing", InfoRequest {}).await;
    assert_eq!((answer, status(&trailers)), (None, "12"));
    assert_eq!(kubelet.info().await.name, DRIVER);
}

#[tokio::test]
async fn a_refusal_is_answered_and_ends_the_registrar_with_status_1() {
    let dir = tempfile::tempdir().expect("dir");
    serve_driver(dir.path(), DRIVER);
    let registrar = Registrar::start(dir.path());
    let mut kubelet = Kubelet::dial(&registration_socket(dir.path())).await;
    kubelet.notify(false, "a plugin of that name is registered with another endpoint").await;
    let (code, words) = registrar.ended().await;
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("the kubelet refuses csi.example.com: a plugin of that name is registered with another endpoint"), "{words}");
    assert!(!registration_socket(dir.path()).exists());
}

#[tokio::test]
async fn a_driver_that_is_not_there_yet_is_waited_for() {
    let dir = tempfile::tempdir().expect("dir");
    let mut registrar = Registrar::start(dir.path());
    let mut said = std::io::BufReader::new(
        registrar.0.as_mut().and_then(|child| child.stderr.take()).expect("piped"),
    );
    let waits = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).map(|_| line)
    });
    let line = tokio::time::timeout(PATIENCE, waits)
        .await
        .expect("in time")
        .expect("no panic")
        .expect("read");
    assert!(line.contains("the driver does not answer, so it cannot be registered yet"), "{line}");
    assert!(!registration_socket(dir.path()).exists());
    serve_driver(dir.path(), DRIVER);
    let mut kubelet = Kubelet::dial(&registration_socket(dir.path())).await;
    assert_eq!(kubelet.info().await.name, DRIVER);
}

#[tokio::test]
async fn a_registrar_that_waits_for_its_driver_can_be_stopped() {
    let dir = tempfile::tempdir().expect("dir");
    // The socket accepts connections and never answers.
    let silent = UnixListener::bind(driver_socket(dir.path())).expect("bound");
    let registrar = Registrar::start(dir.path());
    let _connection =
        tokio::time::timeout(PATIENCE, silent.accept()).await.expect("in time").expect("asked");
    registrar.signal(Signal::SIGTERM);
    let (code, words) = registrar.ended().await;
    assert_eq!(code, Some(0), "{words}");
}

#[tokio::test]
async fn a_dead_registrars_socket_is_replaced_and_a_live_ones_is_not() {
    let dir = tempfile::tempdir().expect("dir");
    serve_driver(dir.path(), DRIVER);
    let first = Registrar::start(dir.path());
    Kubelet::dial(&registration_socket(dir.path())).await.info().await;
    let (code, words) = Registrar::start(dir.path()).ended().await;
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("another process listens on"), "{words}");

    first.signal(Signal::SIGKILL);
    first.ended().await;
    assert!(registration_socket(dir.path()).exists());
    let _second = Registrar::start(dir.path());
    assert_eq!(Kubelet::dial(&registration_socket(dir.path())).await.info().await.name, DRIVER);
}

#[tokio::test]
async fn a_driver_name_that_escapes_the_folder_is_refused() {
    for name in ["../escaped", "a/b", "", "..", "a\nb"] {
        let dir = tempfile::tempdir().expect("dir");
        serve_driver(dir.path(), name);
        let (code, words) = Registrar::start(dir.path()).ended().await;
        assert_eq!(code, Some(1), "{words}");
        assert!(words.contains("it calls itself"), "{words}");
        let left: Vec<_> = std::fs::read_dir(dir.path())
            .expect("there")
            .map(|entry| entry.expect("read").file_name())
            .collect();
        assert_eq!(left, ["csi.sock"]);
    }
}

#[tokio::test]
async fn a_removed_socket_ends_the_registrar_and_a_successors_socket_is_kept() {
    let dir = tempfile::tempdir().expect("dir");
    serve_driver(dir.path(), DRIVER);
    let registrar = Registrar::start(dir.path());
    let socket = registration_socket(dir.path());
    Kubelet::dial(&socket).await.info().await;
    std::fs::remove_file(&socket).expect("removed");
    let _successor = UnixListener::bind(&socket).expect("bound");
    let (code, words) = registrar.ended().await;
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("has been removed or replaced"), "{words}");
    assert!(socket.exists());
}

#[test]
fn mode_registrar_needs_its_folder_and_the_kubelets_path() {
    for (arguments, says) in [
        (vec!["--kubelet-registration-path", "/x/csi.sock"], "needs --registration-dir"),
        (vec!["--registration-dir", "/x"], "needs --kubelet-registration-path"),
        (
            vec!["--registration-dir", "/x", "--kubelet-registration-path", "x/csi.sock"],
            "the path must be absolute",
        ),
    ] {
        #[allow(clippy::disallowed_methods)]
        let output = Command::new(built_program("diskvitals-csi"))
            .args(["--mode", "registrar", "--endpoint", "unix:///nowhere/csi.sock"])
            .args(&arguments)
            .output()
            .expect("runs");
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains(says), "{words}");
    }
}
