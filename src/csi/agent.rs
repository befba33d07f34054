//! Connection to the daemon's agent socket, shared by all services of the shim and restored
//! automatically when it is lost.
//!
//! In: the path of the socket. Out: answers, or the CSI status that explains why there is none. One
//! task ([`Reconnector`]) owns the connection. It checks the API revision on each new connection,
//! because shim and daemon are upgraded at different times, and retries with growing delays. A call
//! without a connection triggers an attempt at once. Each new error is logged once, not each
//! attempt. The module does not depend on the contents of calls.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code, Status};

use diskvitals_text::backoff::Backoff;
use diskvitals_text::causes::with_causes;
use diskvitals_wire as wire;
use diskvitals_wire::API_REVISION;
use diskvitals_wire::client::{Client, ClientError, ConnectionClosed};

/// Delay between two attempts to connect.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// The minimum delay between attempts, independent of the number of calls.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
/// Time limit for the connection and the first call (GetNode). Calls are already refused after
/// [`CONNECTION_WAIT`].
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call waits for a connection in progress.
const CONNECTION_WAIT: Duration = Duration::from_millis(500);
/// Time limit for an answer from the daemon's memory, including the connection: the kubelet queries
/// the volumes of all drivers one after another.
const QUERY_TIMEOUT: Duration = Duration::from_millis(900);
/// Longest time for a call that changes something.
pub(crate) const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(90);

/// The reason why the daemon cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ConnectionError {
    #[error("diskvitalsd has not been reached yet")]
    NotConnectedYet,
    #[error("{0}")]
    Unreachable(String),
    #[error(
        "diskvitalsd {version} speaks API revision {theirs}, this diskvitals-csi only up to {API_REVISION}: upgrade diskvitals-csi"
    )]
    TooNew { theirs: u32, version: String },
}

#[derive(Clone)]
enum LinkState {
    /// The connection is up; `generation` counts connections from 1.
    Up {
        client: Client,
        generation: u64,
    },
    /// A connection attempt is in progress.
    Connecting {
        since: Instant,
        error: ConnectionError,
    },
    Down {
        error: ConnectionError,
    },
}

/// Cheap to clone: all clones share the connection.
#[derive(Clone)]
pub(crate) struct Agent {
    links: watch::Receiver<LinkState>,
    wake: Arc<Notify>,
    /// The newest connection on which a call failed.
    failed: Arc<watch::Sender<u64>>,
}

/// Makes and restores the connection while [`Reconnector::run`] runs.
pub(crate) struct Reconnector {
    path: PathBuf,
    link: watch::Sender<LinkState>,
    wake: Arc<Notify>,
    failed: watch::Receiver<u64>,
    ready: watch::Sender<bool>,
}

/// Must be called within a tokio runtime.
pub(crate) fn new_agent(path: &Path) -> (Agent, Reconnector) {
    let (link, links) = watch::channel(LinkState::Connecting {
        since: Instant::now(),
        error: ConnectionError::NotConnectedYet,
    });
    let (failed, failures) = watch::channel(0);
    let wake = Arc::new(Notify::new());
    let agent = Agent { links, wake: wake.clone(), failed: Arc::new(failed) };
    (
        agent,
        Reconnector {
            path: path.to_owned(),
            link,
            wake,
            failed: failures,
            ready: watch::channel(false).0,
        },
    )
}

impl Agent {
    /// Executes a call that the daemon answers from memory. Returns UNAVAILABLE within a second if
    /// there is no answer. `call` may run twice, on two connections.
    pub(crate) async fn query<T, F, A>(&self, call: F) -> Result<T, Status>
    where
        F: Fn(Client) -> A,
        A: Future<Output = Result<T, ClientError>>,
    {
        self.call(Instant::now() + QUERY_TIMEOUT, call).await?.map_err(|generation| {
            self.mark_failed(generation);
            unavailable(format_args!("it has not answered within {} ms", QUERY_TIMEOUT.as_millis()))
        })
    }

    /// Executes a slow call: for at most `limit`, and never more than [`MAX_CALL_TIMEOUT`]. The
    /// call must be idempotent: it is repeated if the connection ends during the call.
    pub(crate) async fn execute<T, F, A>(&self, limit: Duration, call: F) -> Result<T, Status>
    where
        F: Fn(Client) -> A,
        A: Future<Output = Result<T, ClientError>>,
    {
        let until = Instant::now() + limit.min(MAX_CALL_TIMEOUT);
        self.call(until, |client| call(client.with_timeout(MAX_CALL_TIMEOUT)))
            .await?
            .map_err(|_| deadline_exceeded())
    }

    /// The inner error is the generation of a connection that did not answer until `until`.
    async fn call<T, F, A>(&self, until: Instant, call: F) -> Result<Result<T, u64>, Status>
    where
        F: Fn(Client) -> A,
        A: Future<Output = Result<T, ClientError>>,
    {
        let mut failed = 0;
        loop {
            let (client, generation) = self.client(until, failed).await?;
            match timeout_at(until, call(client)).await {
                Ok(Ok(answer)) => return Ok(Ok(answer)),
                // The connection ended, perhaps because the daemon restarted. The call may be
                // repeated once.
                Ok(Err(ClientError::ConnectionLost { .. })) if failed == 0 => {
                    failed = self.mark_failed(generation)
                }
                Ok(Err(error)) => return Err(to_status(error)),
                Err(_) => return Ok(Err(generation)),
            }
        }
    }

    /// True while the daemon is connected and its API revision is accepted.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(*self.links.borrow(), LinkState::Up { .. })
    }

    /// Returns when [`Agent::is_connected`] may have changed.
    pub(crate) async fn changed(&mut self) {
        if self.links.changed().await.is_err() {
            // The reconnector has ended because the process is ending.
            std::future::pending().await
        }
    }

    /// Returns a connection newer than `failed`; UNAVAILABLE if there is none within
    /// [`CONNECTION_WAIT`].
    async fn client(&self, until: Instant, failed: u64) -> Result<(Client, u64), Status> {
        let mut links = self.links.clone();
        let mut until = until.min(Instant::now() + CONNECTION_WAIT);
        let mut woken = false;
        loop {
            let error = match links.borrow_and_update().clone() {
                LinkState::Up { client, generation } if generation > failed => {
                    return Ok((client, generation));
                }
                LinkState::Up { .. } => {
                    ConnectionError::Unreachable("the connection is closed".into())
                }
                LinkState::Connecting { since, error } => {
                    until = until.min(since + CONNECTION_WAIT);
                    error
                }
                LinkState::Down { error } if woken => return Err(unavailable(error)),
                LinkState::Down { error } => {
                    woken = true;
                    self.wake.notify_one();
                    error
                }
            };
            match timeout_at(until, links.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(unavailable(error)),
            }
        }
    }

    /// Marks the connection `generation` as unusable.
    fn mark_failed(&self, generation: u64) -> u64 {
        self.failed.send_if_modified(|failed| {
            let newer = generation > *failed;
            *failed = generation.max(*failed);
            newer
        });
        generation
    }
}

impl Reconnector {
    /// True from the first connection on; it never becomes false again.
    pub(crate) fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    pub(crate) async fn run(mut self) -> std::convert::Infallible {
        let (mut generation, mut backoff, mut last) =
            (0, BACKOFF, ConnectionError::NotConnectedYet);
        loop {
            self.link
                .send_replace(LinkState::Connecting { since: Instant::now(), error: last.clone() });
            let error = match handshake(&self.path).await {
                Ok((client, closed, node)) => {
                    tracing::info!(agent = %self.path.display(), node = node.name, version = node.version, "diskvitalsd answers: ready");
                    generation += 1;
                    self.link.send_replace(LinkState::Up { client, generation });
                    self.ready.send_replace(true);
                    backoff.reset();
                    last = self.wait_closed(generation, closed).await;
                    tracing::warn!(agent = %self.path.display(), error = %last, "the connection to diskvitalsd is lost; reconnecting");
                    continue;
                }
                Err(error) => error,
            };
            if error != last {
                match &error {
                    ConnectionError::TooNew { .. } => {
                        tracing::error!(agent = %self.path.display(), %error, "diskvitalsd is too new for this diskvitals-csi; retrying")
                    }
                    _ => {
                        tracing::warn!(agent = %self.path.display(), %error, "diskvitalsd cannot be reached; retrying")
                    }
                }
            }
            self.link.send_replace(LinkState::Down { error: error.clone() });
            last = error;
            tokio::time::sleep(MIN_BACKOFF).await;
            // An attempt follows in both cases.
            let _ = timeout(backoff.next_delay(), self.wake.notified()).await;
        }
    }

    async fn wait_closed(
        &mut self,
        generation: u64,
        mut closed: ConnectionClosed,
    ) -> ConnectionError {
        tokio::select! {
            () = closed.wait() => ConnectionError::Unreachable("the connection is closed".into()),
            // An error means that all agents are dropped, so no call can fail.
            _ = self.failed.wait_for(|failed| *failed >= generation) => ConnectionError::Unreachable("it does not answer in time".into()),
        }
    }
}

async fn handshake(path: &Path) -> Result<(Client, ConnectionClosed, wire::Node), ConnectionError> {
    let (client, closed) =
        Client::connect_single(path, HANDSHAKE_TIMEOUT).await.map_err(unreachable_error)?;
    let node = check_revision(client.node().await.map_err(unreachable_error)?)?;
    Ok((client, closed, node))
}

/// Accepts an older daemon: a call that the older daemon does not implement fails with UNAVAILABLE
/// and the advice to upgrade it.
fn check_revision(node: wire::Node) -> Result<wire::Node, ConnectionError> {
    if node.api_revision > API_REVISION {
        return Err(ConnectionError::TooNew { theirs: node.api_revision, version: node.version });
    }
    Ok(node)
}

/// The client's error texts are for shell users. The agent socket needs other advice.
fn unreachable_error(error: ClientError) -> ConnectionError {
    ConnectionError::Unreachable(match error {
        ClientError::NoDaemon(path) => format!("no diskvitalsd listens on {}", path.display()),
        ClientError::NoPermission(path) => format!(
            "no permission to connect to {}: its directory does not admit this uid",
            path.display()
        ),
        ClientError::Rejected(status) if status.code() == Code::PermissionDenied => {
            not_admitted_message(&status)
        }
        error => with_causes(&error),
    })
}

fn not_admitted_message(status: &Status) -> String {
    format!(
        "diskvitalsd does not admit this program: {} (its [csi] allow_uids, or read_uids where it only reads)",
        status.message()
    )
}

fn unavailable(why: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("diskvitalsd is not available: {why}"))
}

fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("diskvitalsd has not finished yet and continues: retry the call")
}

/// Converts an error to a status. The daemon uses CSI's codes. Problems between shim and daemon
/// become UNAVAILABLE, because the caller did not cause them.
fn to_status(error: ClientError) -> Status {
    match error {
        ClientError::Rejected(status) => match status.code() {
            Code::PermissionDenied | Code::Unauthenticated => {
                Status::unavailable(not_admitted_message(&status))
            }
            Code::Unimplemented => unavailable(
                "it is older than this diskvitals-csi and does not know this call: upgrade it",
            ),
            code => Status::new(code, status.message()),
        },
        ClientError::RequestTimeout { .. } => deadline_exceeded(),
        error => unavailable(with_causes(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_with_a_newer_api_revision_is_refused_with_its_version() {
        let node = |api_revision| wire::Node {
            api_revision,
            version: "9.0.0".into(),
            ..Default::default()
        };
        assert!(check_revision(node(API_REVISION)).is_ok());
        let error = check_revision(node(API_REVISION + 1)).expect_err("too new");
        assert!(error.to_string().contains("diskvitalsd 9.0.0 speaks API revision 2"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_daemon_is_retried_and_never_ready() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("agent.sock");
        let (agent, reconnector) = new_agent(&path);
        let ready = reconnector.ready();
        let ended = timeout(Duration::from_secs(600), reconnector.run()).await;
        assert!(ended.is_err() && !*ready.borrow() && !agent.is_connected());
        let error = handshake(&path).await.err().expect("nobody there");
        assert_eq!(error.to_string(), format!("no diskvitalsd listens on {}", path.display()));
    }

    #[tokio::test]
    async fn a_call_without_a_daemon_is_unavailable_within_a_second_and_says_why() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("agent.sock");
        let (agent, reconnector) = new_agent(&path);
        tokio::select! {
            never = reconnector.run() => match never {},
            () = async {
                for _ in 0..3 {
                    let began = Instant::now();
                    let status = agent.query(async |client: Client| client.node().await).await.expect_err("away");
                    assert!(began.elapsed() < Duration::from_secs(1));
                    assert_eq!(status.code(), Code::Unavailable);
                    assert!(status.message().contains("no diskvitalsd listens on"), "{}", status.message());
                }
            } => {}
        }
    }

    #[test]
    fn version_and_permission_problems_are_unavailable() {
        for (theirs, ours) in [
            (Code::NotFound, Code::NotFound),
            (Code::Aborted, Code::Aborted),
            (Code::ResourceExhausted, Code::ResourceExhausted),
            (Code::PermissionDenied, Code::Unavailable),
            (Code::Unimplemented, Code::Unavailable),
        ] {
            assert_eq!(
                to_status(ClientError::Rejected(Box::new(Status::new(theirs, "x")))).code(),
                ours
            );
        }
    }
}
