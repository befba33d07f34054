//! The watch of a daemon that may restart, in a task of its own.
//!
//! In: the socket. Out: events, and when the daemon is lost and found.

use std::future::pending;
use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use diskvitals_host::terminal::is_output_closed;
use diskvitals_text::backoff::Backoff;
use diskvitals_wire::client::{Client, ClientError};
use diskvitals_wire::node_watch::EventFeed;

pub(crate) use diskvitals_wire::node_watch::Update;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));
const PIPE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Events that wait for the reader; when they are full, the daemon waits.
const QUEUE: usize = 64;

pub(crate) struct Feed {
    updates: mpsc::Receiver<Update>,
    task: JoinHandle<()>,
}

impl Feed {
    /// The first connection is an error if there is no daemon: the socket may be wrong.
    pub(crate) async fn start(socket: &Path, timeout: Duration) -> Result<Feed, ClientError> {
        let socket = socket.to_owned();
        let connect = move || {
            let socket = socket.clone();
            async move { Client::connect(&socket, timeout).await }
        };
        let mut feed = EventFeed::new(connect, BACKOFF);
        let mut update = feed.try_next().await?;
        let (sender, updates) = mpsc::channel(QUEUE);
        let task = tokio::spawn(async move {
            // An error: the reader has ended.
            while sender.send(update).await.is_ok() {
                update = feed.next().await;
            }
        });
        Ok(Feed { updates, task })
    }

    /// Loses nothing if it is cancelled.
    pub(crate) async fn next(&mut self) -> Update {
        match self.updates.recv().await {
            Some(update) => update,
            // The task ends with this reader only, or with a panic, which ends the program.
            None => pending().await,
        }
    }

    /// For commands that print lines: None when nothing reads standard output, which is
    /// noticed within a second, also when nothing changes. Loses nothing if it is cancelled.
    pub(crate) async fn next_while_read(&mut self) -> Option<Update> {
        let mut pipe = tokio::time::interval(PIPE_CHECK_INTERVAL);
        loop {
            tokio::select! {
                update = self.next() => return Some(update),
                _ = pipe.tick() => if is_output_closed() {
                    return None;
                },
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}
