//! Follows the daemon: a complete state after each change of a finding or a cause, and whether it
//! answers at all.
//!
//! In: the daemon's socket. Out: the newest view. Watch says that something has changed; the lists
//! say what, so that nothing is lost between two connections.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::message::clean;
use crate::node_state::{Answers, NodeState};
use diskvitals_text::backoff::Backoff;
use diskvitals_text::causes::with_causes;
use diskvitals_wire as wire;
use diskvitals_wire::API_REVISION;
use diskvitals_wire::client::{Client, ClientError};
use diskvitals_wire::watch_event::Item;

/// For one call: answers come from memory.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A change rarely comes alone.
const DEBOUNCE: Duration = Duration::from_millis(300);
/// The shortest time between two readings of all lists.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);
/// All lists are read again after this time without a change.
const READ_INTERVAL: Duration = Duration::from_secs(300);
/// Interval at which the daemon is asked whether it answers.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(20);
/// Between connections. A daemon that is replaced is back soon.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));

#[derive(Clone, Debug)]
pub(crate) enum DaemonView {
    Answers {
        state: Arc<NodeState>,
        /// The time of its latest answer.
        at: Instant,
    },
    /// It has not been reached yet, or no longer is; the reason.
    Silent(String),
}

#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("diskvitalsd has ended the Watch")]
    Ended,
    #[error("diskvitalsd has just started and has no complete snapshot yet")]
    Unsettled,
    #[error("diskvitalsd is older than this diskvitals-notify and knows no causes: upgrade it")]
    NoCauses,
    #[error(
        "diskvitalsd {version} speaks API revision {theirs}, this diskvitals-notify only up to {API_REVISION}: upgrade diskvitals-notify"
    )]
    TooNew { theirs: u32, version: String },
}

/// Follows the daemon at `socket` for ever.
pub(crate) async fn run(socket: &Path, view: &watch::Sender<DaemonView>) -> Infallible {
    let mut backoff = BACKOFF;
    loop {
        let before = Instant::now();
        let error = match follow(socket, view).await {
            Err(error) => error,
            Ok(never) => match never {},
        };
        let why = clean(&with_causes(&error));
        view.send_if_modified(|view| {
            let same = matches!(view, DaemonView::Silent(old) if *old == why);
            if !same {
                *view = DaemonView::Silent(why);
            }
            !same
        });
        if before.elapsed() > BACKOFF.max() {
            backoff.reset();
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

async fn follow(socket: &Path, view: &watch::Sender<DaemonView>) -> Result<Infallible, WatchError> {
    let client = Client::connect(socket, CALL_TIMEOUT).await?;
    let node = client.node().await?;
    if node.api_revision > API_REVISION {
        return Err(WatchError::TooNew {
            theirs: node.api_revision,
            version: clean(&node.version),
        });
    }
    let mut events = client.watch(0).await?;
    let mut last_read: Option<Instant> = None;
    let mut read_at = Instant::now() + DEBOUNCE;
    let mut poll_at = Instant::now() + POLL_INTERVAL;
    loop {
        tokio::select! {
            event = events.message() => {
                let event = event.map_err(|status| client.error(status))?.ok_or(WatchError::Ended)?;
                if matches!(event.item, Some(Item::Finding(_) | Item::Cause(_))) {
                    let soonest = last_read.map_or(Instant::now(), |read| read + MIN_READ_INTERVAL);
                    read_at = read_at.min(soonest.max(Instant::now() + DEBOUNCE));
                }
            }
            () = sleep_until(read_at) => {
                let state = read(&client).await?;
                let now = Instant::now();
                view.send_replace(DaemonView::Answers { state: Arc::new(state), at: now });
                (last_read, read_at, poll_at) = (Some(now), now + READ_INTERVAL, now + POLL_INTERVAL);
            }
            () = sleep_until(poll_at) => {
                client.node().await?;
                let now = Instant::now();
                view.send_modify(|view| if let DaemonView::Answers { at, .. } = view { *at = now });
                poll_at = now + POLL_INTERVAL;
            }
        }
    }
}

/// All lists. They are of one moment only as far as nothing changes between them; each change brings
/// another reading.
async fn read(client: &Client) -> Result<NodeState, WatchError> {
    let node = client.node().await?;
    if !node.settled {
        return Err(WatchError::Unsettled);
    }
    let causes = client.causes().await?.ok_or(WatchError::NoCauses)?.causes;
    let answers = Answers {
        findings: client.findings(true).await?.findings,
        drives: client.drives().await?.drives,
        volumes: client.volumes().await?.volumes,
        node,
        causes,
    };
    Ok(NodeState::from_wire(&answers))
}

/// Whether the daemon answers now, for `--check-config`.
pub(crate) async fn ask_once(socket: &Path) -> Result<wire::Node, String> {
    let ask = async {
        let client = Client::connect(socket, CALL_TIMEOUT).await?;
        Ok(client.node().await?)
    };
    in_time(ask).await
}

/// One complete answer, for a test message.
pub(crate) async fn read_once(socket: &Path) -> Result<NodeState, String> {
    let ask = async {
        let client = Client::connect(socket, CALL_TIMEOUT).await?;
        read(&client).await
    };
    in_time(ask).await
}

async fn in_time<T>(ask: impl Future<Output = Result<T, WatchError>>) -> Result<T, String> {
    match timeout(CALL_TIMEOUT, ask).await {
        Ok(answer) => answer.map_err(|error| clean(&with_causes(&error))),
        Err(_) => Err(format!("diskvitalsd does not answer within {} s", CALL_TIMEOUT.as_secs())),
    }
}
