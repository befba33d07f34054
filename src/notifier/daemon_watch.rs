//! Follows the daemon: a complete state after each change of a finding or a cause, and whether it
//! answers at all.
//!
//! In: the daemon's socket. Out: the newest view.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::message::clean;
use crate::node_state::NodeState;
use diskvitals_text::backoff::Backoff;
use diskvitals_wire as wire;
use diskvitals_wire::API_REVISION;
use diskvitals_wire::client::Client;
use diskvitals_wire::node_watch::{NodeWatch, Settings};
use diskvitals_wire::watch_event::Item;

/// For one call: answers come from memory.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the daemon is asked whether it answers.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(20);
const SETTINGS: Settings = Settings {
    // A daemon that is replaced is back soon.
    backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(15)),
    // A change rarely comes alone. Also the shortest time between two states.
    debounce: Duration::from_secs(1),
    poll_interval: POLL_INTERVAL,
    is_urgent: |item| matches!(item, Item::Finding(_) | Item::Cause(_)),
};

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

/// Follows the daemon at `socket` for ever.
pub(crate) async fn run(socket: &Path, view: &watch::Sender<DaemonView>) -> Infallible {
    let mut node_watch = NodeWatch::new(|| connect(socket), SETTINGS);
    loop {
        match node_watch.next().await {
            Ok(node) => {
                let state = Arc::new(NodeState::from_wire(&node.node, &node.objects));
                view.send_replace(DaemonView::Answers { state, at: Instant::now() });
            }
            Err(why) => {
                let why = clean(&why);
                view.send_if_modified(|view| {
                    let same = matches!(view, DaemonView::Silent(old) if *old == why);
                    if !same {
                        *view = DaemonView::Silent(why);
                    }
                    !same
                });
            }
        }
    }
}

async fn connect(socket: &Path) -> Result<Client, String> {
    let client = Client::connect(socket, CALL_TIMEOUT).await?;
    let wire::Node { api_revision: theirs, version, .. } = client.node().await?;
    if theirs > API_REVISION {
        return Err(format!(
            "diskvitalsd {version} speaks API revision {theirs}, this diskvitals-notify only up to {API_REVISION}: upgrade diskvitals-notify"
        ));
    }
    match client.causes().await? {
        Some(_) => Ok(client),
        None => {
            Err("diskvitalsd is older than this diskvitals-notify and knows no causes: upgrade it"
                .to_owned())
        }
    }
}

/// Whether the daemon answers now, for `--check-config`.
pub(crate) async fn ask_once(socket: &Path) -> Result<wire::Node, String> {
    in_time(async { Ok(connect(socket).await?.node().await?) }).await
}

/// One complete answer, for a test message.
pub(crate) async fn read_once(socket: &Path) -> Result<NodeState, String> {
    let mut node_watch = NodeWatch::new(|| connect(socket), SETTINGS);
    in_time(async { node_watch.next().await.map(|it| NodeState::from_wire(&it.node, &it.objects)) })
        .await
}

async fn in_time<T>(ask: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match timeout(CALL_TIMEOUT, ask).await {
        Ok(answer) => answer.map_err(|why| clean(&why)),
        Err(_) => Err(format!("diskvitalsd does not answer within {} s", CALL_TIMEOUT.as_secs())),
    }
}
