//! The watch of a daemon that may restart: connects again, with growing delays, and resumes.
//!
//! In: the socket. Out: events, and when the daemon is lost and found. After an interruption the
//! events continue, or a full list follows if the daemon no longer has the changes.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::Streaming;

use diskvitals_host::terminal::is_output_closed;
use diskvitals_text::backoff::Backoff;
use diskvitals_text::causes::with_causes;
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};
use diskvitals_wire::watch_event::Change;

const FIRST_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(10);
const PIPE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Events that wait for the reader; when they are full, the daemon waits.
const QUEUE: usize = 64;

pub enum Update {
    /// A new connection, also the first one.
    Connected(Client),
    Event(Box<wire::WatchEvent>),
    /// The reason. Another attempt follows.
    Lost(String),
}

pub struct Feed {
    updates: mpsc::Receiver<Update>,
    task: JoinHandle<()>,
}

struct Connector {
    socket: PathBuf,
    timeout: Duration,
    /// The last one that was received completely.
    revision: u64,
    in_list: bool,
    backoff: Backoff,
}

impl Feed {
    /// The first connection is an error if there is no daemon: the socket may be wrong.
    pub async fn start(socket: &Path, timeout: Duration) -> Result<Feed, ClientError> {
        let mut connector = Connector {
            socket: socket.to_owned(),
            timeout,
            revision: 0,
            in_list: false,
            backoff: Backoff::new(FIRST_DELAY, MAX_DELAY),
        };
        let first = connector.connect().await?;
        let (sender, updates) = mpsc::channel(QUEUE);
        let task = tokio::spawn(async move {
            // An error: the reader has ended.
            let _ = connector.run(first, &sender).await;
        });
        Ok(Feed { updates, task })
    }

    /// Loses nothing if it is cancelled.
    pub async fn next(&mut self) -> Update {
        match self.updates.recv().await {
            Some(update) => update,
            // The task ends with this reader only, or with a panic, which ends the program.
            None => pending().await,
        }
    }
}

impl Feed {
    /// For commands that print lines: None when nothing reads standard output, which is
    /// noticed within a second, also when nothing changes. Loses nothing if it is cancelled.
    pub async fn next_while_read(&mut self) -> Option<Update> {
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

type Connection = (Client, Streaming<wire::WatchEvent>);

impl Connector {
    async fn connect(&self) -> Result<Connection, ClientError> {
        let client = Client::connect(&self.socket, self.timeout).await?;
        let events = client.watch(self.revision).await?;
        Ok((client, events))
    }

    async fn run(
        &mut self,
        first: Connection,
        updates: &mpsc::Sender<Update>,
    ) -> Result<(), mpsc::error::SendError<Update>> {
        let mut connection = Ok(first);
        loop {
            let why = match connection {
                Ok((client, events)) => {
                    updates.send(Update::Connected(client)).await?;
                    self.follow(events, updates).await?
                }
                Err(error) => with_causes(&error),
            };
            updates.send(Update::Lost(why)).await?;
            tokio::time::sleep(self.backoff.next_delay()).await;
            connection = self.connect().await;
        }
    }

    /// A list that is interrupted must come again.
    fn note_revision(&mut self, event: &wire::WatchEvent) {
        match event.change() {
            Change::SnapshotBegin => (self.in_list, self.revision) = (true, 0),
            Change::SnapshotEnd => self.in_list = false,
            _ => {}
        }
        if !self.in_list {
            self.revision = event.revision;
        }
    }

    /// Passes events on until the watch ends; returns why.
    async fn follow(
        &mut self,
        mut events: Streaming<wire::WatchEvent>,
        updates: &mpsc::Sender<Update>,
    ) -> Result<String, mpsc::error::SendError<Update>> {
        loop {
            match events.message().await {
                Ok(Some(event)) => {
                    self.backoff.reset();
                    self.note_revision(&event);
                    updates.send(Update::Event(Box::new(event))).await?;
                }
                Ok(None) => return Ok("the daemon has ended the watch".to_owned()),
                Err(status) => return Ok(status.message().to_owned()),
            }
        }
    }
}
