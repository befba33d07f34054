//! The first contact with the daemon: asked again and again, ever more slowly, until it answers in a language that we speak.
//!
//! In: the path of the agent's socket. Out: `ready` becomes true, once. Each new trouble is logged once, not each attempt.

use std::path::Path;
use std::time::Duration;

use tokio::sync::watch;

use crate::api::API_REVISION;
use crate::api::client::{Client, ClientError};
use crate::api::wire;

/// Before the second attempt; doubled for each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For one answer. The daemon answers from memory.
const CALL: Duration = Duration::from_secs(5);

/// Why there is no contact yet.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    NotReached(String),
    #[error("diskvitalsd {version} speaks API revision {theirs}, this diskvitals-csi only up to {API_REVISION}: upgrade diskvitals-csi")]
    TooNew { theirs: u32, version: String },
}

/// Returns after the first contact, with `ready` true.
pub async fn keep_trying(agent: &Path, ready: &watch::Sender<bool>) {
    let mut told = None;
    let mut pause = FIRST_PAUSE;
    loop {
        match ask(agent).await {
            Ok(node) => {
                tracing::info!(agent = %agent.display(), node = node.name, version = node.version, "diskvitalsd answers: ready");
                ready.send_replace(true);
                return;
            }
            Err(trouble) => {
                if told.as_ref() != Some(&trouble) {
                    tell(agent, &trouble);
                    told = Some(trouble);
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = longer(pause);
    }
}

fn tell(agent: &Path, trouble: &Trouble) {
    match trouble {
        Trouble::NotReached(_) => tracing::warn!(agent = %agent.display(), %trouble, "diskvitalsd is not reached: not ready; trying on"),
        Trouble::TooNew { .. } => tracing::error!(agent = %agent.display(), %trouble, "diskvitalsd is too new: not ready; trying on"),
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_PAUSE)
}

async fn ask(agent: &Path) -> Result<wire::Node, Trouble> {
    let client = Client::connect(agent, CALL).await.map_err(not_reached)?;
    understood(client.node().await.map_err(not_reached)?)
}

/// An older daemon is understood: what it does not know yet, it leaves out.
fn understood(node: wire::Node) -> Result<wire::Node, Trouble> {
    if node.api_revision > API_REVISION {
        return Err(Trouble::TooNew { theirs: node.api_revision, version: node.version });
    }
    Ok(node)
}

/// The client's words are for people at a shell; on the agent's socket other advice helps.
fn not_reached(error: ClientError) -> Trouble {
    Trouble::NotReached(match error {
        ClientError::NoDaemon(path) => format!("no diskvitalsd listens on {}", path.display()),
        ClientError::NoPermission(path) => format!("no permission to connect to {}: its folder keeps this uid out", path.display()),
        error => format!("{:#}", anyhow::Error::from(error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_double_up_to_half_a_minute() {
        let pauses: Vec<u64> =
            std::iter::successors(Some(FIRST_PAUSE), |pause| Some(longer(*pause))).take(7).map(|p| p.as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn a_daemon_of_a_newer_revision_is_refused_and_said_to_be() {
        let node = |api_revision| wire::Node { api_revision, version: "9.0.0".into(), ..Default::default() };
        assert!(understood(node(API_REVISION)).is_ok());
        let trouble = understood(node(API_REVISION + 1)).expect_err("too new");
        assert!(trouble.to_string().contains("diskvitalsd 9.0.0 speaks API revision 2"), "{trouble}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_daemon_is_tried_again_and_never_ready() {
        let dir = tempfile::tempdir().expect("dir");
        let (sender, ready) = watch::channel(false);
        let path = dir.path().join("agent.sock");
        let ended = tokio::time::timeout(Duration::from_secs(600), keep_trying(&path, &sender)).await;
        assert!(ended.is_err() && !*ready.borrow());
        let trouble = ask(&path).await.expect_err("nobody there");
        assert_eq!(trouble.to_string(), format!("no diskvitalsd listens on {}", path.display()));
    }
}
