//! Follows a daemon that may restart: `EventFeed` connects again and resumes; `NodeWatch` gives a view
//! of the node out only while it is complete, settled and as new as the daemon's state.
//!
//! In: connections to the daemon. Out: events, views, and the reasons of outages.

pub mod view;

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tonic::{Status, Streaming};

use crate::WatchEvent;
use crate::client::{Client, ClientError};
use crate::node_watch::view::{NodeView, Resume, Standing};
use crate::watch_event::{Change, Item};
use diskvitals_text::backoff::Backoff;
use diskvitals_text::causes::with_causes;

/// Records that the daemon reads late from its disk are no events: its history is read this often.
const HISTORY_INTERVAL: Duration = Duration::from_secs(300);

pub enum Update {
    /// A new connection, also the first one.
    Connected(Client),
    Event(Box<WatchEvent>),
    /// The reason. Another attempt follows.
    Lost(String),
}

/// After an interruption the events continue, or a full list follows if the daemon no longer has the
/// changes.
pub struct EventFeed<F> {
    connect: F,
    backoff: Backoff,
    resume: Resume,
    connection: Option<(Client, Streaming<WatchEvent>)>,
    /// Before the next attempt.
    delay: Option<Duration>,
}

impl<F, A, E> EventFeed<F>
where
    F: Fn() -> A,
    A: Future<Output = Result<Client, E>>,
    E: From<ClientError> + Into<String>,
{
    /// `connect`: makes a new connection, or says why there is none.
    pub fn new(connect: F, backoff: Backoff) -> EventFeed<F> {
        EventFeed { connect, backoff, resume: Resume::default(), connection: None, delay: None }
    }

    /// Loses nothing if it is cancelled, but begins to connect anew.
    pub async fn next(&mut self) -> Update {
        let update = self.try_next().await.unwrap_or_else(|why| {
            self.reconnect();
            Update::Lost(why.into())
        });
        // A list that always fails is not asked for in a hurry.
        if matches!(update, Update::Event(_)) && !self.resume.needs_list() {
            self.backoff.reset();
        }
        update
    }

    pub fn reconnect(&mut self) {
        self.connection = None;
        self.delay = Some(self.backoff.next_delay());
    }

    /// After an error, [`EventFeed::reconnect`] is to be called.
    pub async fn try_next(&mut self) -> Result<Update, E> {
        let Some((client, events)) = &mut self.connection else {
            if let Some(delay) = self.delay {
                sleep(delay).await;
                self.delay = None;
            }
            let client = (self.connect)().await?;
            let events = client.watch(self.resume.revision).await?;
            self.connection = Some((client.clone(), events));
            return Ok(Update::Connected(client));
        };
        let event = events.message().await.transpose();
        let event = event.unwrap_or(Err(Status::unavailable("it has ended the Watch")));
        let event = event.map_err(|status| client.error(status))?;
        self.resume.note(&event);
        Ok(Update::Event(Box::new(event)))
    }
}

pub struct Settings {
    /// Between attempts to connect.
    pub backoff: Backoff,
    /// How long changes are collected.
    pub debounce: Duration,
    /// How often to check that the daemon answers; also the time limit for a complete view.
    pub poll_interval: Duration,
    /// The other changes come with the next poll.
    pub is_urgent: fn(&Item) -> bool,
}

pub struct NodeWatch<F> {
    feed: EventFeed<F>,
    settings: Settings,
    view: NodeView,
    poll_at: Instant,
    current_at: Instant,
    /// An answer of GetNode is of the same moment as the objects, or of a later one.
    is_asked: bool,
    /// When the cleared findings were read, which a list leaves out.
    history_at: Option<Instant>,
}

impl<F, A> NodeWatch<F>
where
    F: Fn() -> A,
    A: Future<Output = Result<Client, String>>,
{
    pub fn new(connect: F, settings: Settings) -> NodeWatch<F> {
        let feed = EventFeed::new(connect, settings.backoff);
        let (view, now) = (NodeView::default(), Instant::now());
        NodeWatch {
            feed,
            settings,
            view,
            poll_at: now,
            current_at: now,
            is_asked: false,
            history_at: None,
        }
    }

    /// The view after changes or an answer of the daemon; or why there is none now.
    pub async fn next(&mut self) -> Result<&NodeView, String> {
        match self.follow().await.inspect_err(|_| self.feed.reconnect())? {
            Standing::Current => Ok(&self.view),
            _ => Err("it has just started and has no complete snapshot yet".to_owned()),
        }
    }

    /// Another connection is made for the next view.
    pub fn reconnect(&mut self) {
        self.feed.reconnect();
    }

    /// Never returns [`Standing::Behind`].
    async fn follow(&mut self) -> Result<Standing, String> {
        let Settings { debounce, poll_interval, is_urgent, .. } = self.settings;
        loop {
            let client = self.feed.connection.as_ref().map(|(client, _)| client.clone());
            let mut is_late = false;
            tokio::select! {
                update = self.feed.try_next() => {
                    let now = Instant::now();
                    let Update::Event(event) = update? else {
                        (self.poll_at, self.current_at, self.is_asked) = (now, now, false);
                        continue;
                    };
                    let change = event.change();
                    if event.item.as_ref().is_some_and(is_urgent) {
                        self.poll_at = self.poll_at.min(now + debounce);
                    }
                    self.view.apply(*event);
                    if change == Change::SnapshotBegin {
                        (self.is_asked, self.history_at) = (false, None);
                    } else if change == Change::SnapshotEnd {
                        self.poll_at = now;
                    }
                }
                () = sleep_until(self.poll_at), if client.is_some() => {
                    let Some(client) = client else { continue };
                    is_late = self.current_at.elapsed() > 2 * poll_interval;
                    let is_due = |at: Instant| at.elapsed() > HISTORY_INTERVAL;
                    if !self.feed.resume.needs_list() && self.history_at.is_none_or(is_due) {
                        self.view.add_cleared(client.findings(true).await?.findings);
                        self.history_at = Some(Instant::now());
                    }
                    self.view.node = client.node().await?;
                    (self.poll_at, self.is_asked) = (Instant::now() + debounce, true);
                }
            }
            let standing = self.view.standing();
            // After its restart with a clock that was set back, the daemon is behind: a list follows.
            let is_ahead = self.feed.resume.revision > self.view.node.revision;
            let is_whole = standing != Standing::Behind && self.history_at.is_some();
            if self.is_asked && is_whole && !is_ahead {
                (self.current_at, self.is_asked) = (Instant::now(), false);
                self.feed.backoff.reset();
                if standing == Standing::Current {
                    self.poll_at = self.current_at + poll_interval;
                }
                return Ok(standing);
            }
            if is_late {
                self.feed.resume = Resume::default();
                return Err("it does not send a complete snapshot in time".to_owned());
            }
        }
    }
}

impl From<ClientError> for String {
    fn from(error: ClientError) -> String {
        with_causes(&error)
    }
}
