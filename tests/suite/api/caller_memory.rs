//! What callers can hold in the daemon's memory, measured on the daemon as a process: unfinished
//! requests, answers that nobody reads, long headers, open watches and idle connections.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use diskvitals_wire::client::Client;
use h2::client::SendRequest;
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use crate::process::Daemon;
use crate::tree;

/// What callers may add to the daemon's memory, whatever they do.
const BUDGET: u64 = 16 << 20;
/// What may stay of it when all callers have gone.
const REST: u64 = 5 << 20;
/// As many as the daemon accepts of one uid, and some more.
const CONNECTIONS: usize = 40;
const STREAMS: usize = 60;

/// A connection that never reads.
struct WriteOnly(UnixStream);

impl AsyncRead for WriteOnly {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for WriteOnly {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// What the callers of one flood send on each stream.
#[derive(Clone)]
struct Flood {
    name: &'static str,
    socket: PathBuf,
    method: &'static str,
    /// Of a request with `header_bytes` of metadata.
    header_bytes: usize,
    /// The message, or its first part.
    body: Bytes,
    complete: bool,
    /// Of the client's HTTP/2 windows.
    window: u32,
    reads: bool,
}

/// A gRPC message with its prefix: not compressed, its length.
fn message(length: usize, sent: usize) -> Bytes {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&u32::try_from(length).expect("small").to_be_bytes());
    bytes.resize(5 + sent, 0);
    bytes.into()
}

impl Flood {
    /// Opens a connection with all streams. What the daemon refuses counts as sent: the connection
    /// and its streams stay open until the task is aborted.
    async fn connection(self) {
        let Ok(stream) = UnixStream::connect(&self.socket).await else {
            return;
        };
        let mut client = h2::client::Builder::new();
        client
            .initial_window_size(self.window)
            .initial_connection_window_size(self.window.max(65_535))
            .initial_max_send_streams(STREAMS);
        if self.reads {
            let Ok((send, connection)) = client.handshake::<_, Bytes>(stream).await else {
                return;
            };
            tokio::join!(self.streams(send), async { drop(connection.await) });
        } else {
            let Ok((send, connection)) = client.handshake::<_, Bytes>(WriteOnly(stream)).await
            else {
                return;
            };
            tokio::join!(self.streams(send), async { drop(connection.await) });
        }
    }

    async fn streams(&self, send: SendRequest<Bytes>) {
        let mut held = Vec::new();
        for _ in 0..STREAMS {
            let Ok(mut send) = send.clone().ready().await else {
                break;
            };
            let mut request = Request::post(format!("http://x/{}", self.method))
                .header("content-type", "application/grpc")
                .header("te", "trailers");
            if self.header_bytes > 0 {
                request = request.header("x-text", "x".repeat(self.header_bytes));
            }
            let request = request.body(()).expect("a request");
            let Ok((response, mut stream)) = send.send_request(request, false) else {
                break;
            };
            if stream.send_data(self.body.clone(), self.complete).is_err() {
                break;
            }
            held.push((response, stream));
        }
        std::future::pending::<()>().await;
    }
}

/// A value of /proc/PID/status in bytes.
fn status(daemon: &Daemon, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id()))
        .expect("the daemon runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    let kib: u64 = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number");
    kib << 10
}

/// The highest VmRSS from now on is VmHWM (proc_pid_clear_refs(5)).
fn reset_peak(daemon: &Daemon) {
    std::fs::write(format!("/proc/{}/clear_refs", daemon.child.id()), "5").expect("own process");
}

async fn connect(socket: &Path) -> Client {
    Client::connect(socket, Duration::from_secs(10)).await.expect("the daemon answers")
}

async fn answers(socket: &Path) -> bool {
    match Client::connect(socket, Duration::from_secs(10)).await {
        Ok(client) => client.node().await.is_ok_and(|node| node.settled),
        Err(_) => false,
    }
}

/// Waits until the daemon's memory has not grown for a second.
async fn peak_is_reached(daemon: &Daemon) -> u64 {
    let mut peak = status(daemon, "VmHWM");
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = status(daemon, "VmHWM");
        if now == peak {
            return peak;
        }
        peak = now;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_hold_at_most_16_mib_and_give_it_back() {
    let root = tempfile::tempdir().expect("a folder");
    let plan = tree::Plan { drives: 24, volumes: 600, hung: 0 };
    tree::write(root.path(), plan).expect("a recorded host");
    let daemon = Daemon::start(root.path(), "", None);
    let (main, agent) = (daemon.dir.path().join("d.sock"), daemon.dir.path().join("a.sock"));
    super::fixture::within(60, async {
        while !(agent.exists() && answers(&main).await) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // All code paths and threads are used once.
    for socket in [&main, &agent] {
        let client = connect(socket).await;
        client.volumes().await.expect("volumes");
        client.findings(true).await.expect("findings");
    }

    let unfinished = |socket: &PathBuf, method| Flood {
        name: "unfinished requests",
        socket: socket.clone(),
        method,
        header_bytes: 0,
        body: message(60 << 10, 50 << 10),
        complete: false,
        window: 65_535,
        reads: true,
    };
    let unread = |socket: &PathBuf, method, window, reads| Flood {
        name: "unread answers",
        socket: socket.clone(),
        method,
        header_bytes: 0,
        body: message(0, 0),
        complete: true,
        window,
        reads,
    };
    let (large, closed) = (1 << 30, 0);
    let volumes = "diskvitals.v1.Inventory/ListVolumes";
    let headers = |socket, header_bytes| Flood {
        name: "long headers",
        header_bytes,
        body: message(100, 1),
        ..unfinished(socket, volumes)
    };
    let floods = [
        unfinished(&main, "diskvitals.v1.Inventory/Explain"),
        unfinished(&agent, "diskvitals.v1.Volumes/Stage"),
        headers(&main, 1500),
        // Refused as too long.
        headers(&agent, 15 << 10),
        unread(&main, volumes, closed, true),
        unread(&main, volumes, large, false),
        unread(&agent, volumes, large, false),
        unread(&main, "diskvitals.v1.Inventory/Watch", closed, true),
        unread(&main, "diskvitals.v1.Inventory/Watch", large, false),
    ];
    let mut report = String::new();
    let before = status(&daemon, "VmRSS");
    for flood in floods {
        reset_peak(&daemon);
        let callers: Vec<_> =
            (0..CONNECTIONS).map(|_| tokio::spawn(flood.clone().connection())).collect();
        let peak = peak_is_reached(&daemon).await;
        callers.iter().for_each(|caller| caller.abort());
        report += &format!(
            "{} of {}: +{} KiB\n",
            flood.name,
            flood.method,
            peak.saturating_sub(before) >> 10
        );
        assert!(peak <= before + BUDGET, "{report}");
        // It answers as soon as it knows that the callers' connections have ended.
        super::fixture::within(30, async { while !answers(&main).await {} }).await;
    }
    eprintln!("{report}");
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let after = status(&daemon, "VmRSS");
        if after <= before + REST {
            break;
        }
        let more = (after - before) >> 10;
        assert!(tokio::time::Instant::now() < end, "{more} KiB stay\n{report}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    daemon.stop();
}
