//! `status --watch`: a screen that is drawn again when something changes and scrolls, until q.
//!
//! In: the feed, polls of what a watch does not carry (the node, I/O counters, the progress of
//! checks), keys, signals. Out: screens; with JSON, one document for each change. The terminal is
//! restored in every case.

mod node_state;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::args::Args;
use crate::complain;
use crate::error::Error;
use crate::feed::{Feed, Update};
use crate::live::node_state::{IoRates, Lists};
use crate::printer::{Printer, print_json};
use crate::render::live::position::Position;
use crate::render::live::{LiveView, Outage, lines, page, waiting};
use crate::render::status::StatusView;
use diskvitals_host::clock::{monotonic, wall_now};
use diskvitals_host::terminal::{self, FullScreen, Key};
use diskvitals_terminal::screen::Screen;
use diskvitals_text::causes::with_causes;
use diskvitals_text::echo::Shown;
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};
use diskvitals_wire::node_watch::view::{NodeView, Standing};

/// I/O rates are means over this time.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Ages on the screen grow.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// Changes that follow one another closely are drawn once.
const SETTLE: Duration = Duration::from_millis(50);

/// One answer to what a watch does not carry.
struct Polled {
    node: wire::Node,
    io: Option<(wire::ListDriveIoResponse, Duration)>,
    checks: Vec<wire::Check>,
}

/// Polls until it is dropped.
struct Poller {
    answers: mpsc::Receiver<Result<Polled, ClientError>>,
    /// Asks for an answer before the interval is over.
    wake: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Poller {
    fn start(client: Client) -> Poller {
        let (sender, answers) = mpsc::channel(1);
        let wake = Arc::new(Notify::new());
        let woken = wake.clone();
        let task = tokio::spawn(async move {
            let mut timer = tokio::time::interval(POLL_INTERVAL);
            loop {
                let is_due = tokio::select! {
                    _ = timer.tick() => true,
                    () = woken.notified() => false,
                };
                let answer = poll(&client, is_due).await;
                if sender.send(answer).await.is_err() {
                    return;
                }
            }
        });
        Poller { answers, wake, task }
    }
}

/// The I/O counters only at even intervals, since rates over moments say nothing.
async fn poll(client: &Client, with_io: bool) -> Result<Polled, ClientError> {
    let node = client.node().await?;
    let io = match with_io {
        true => match client.drive_io().await {
            Ok(answer) => answer.map(|answer| (answer, monotonic())),
            // The counters cannot be read: there is no rate, and all else is known.
            Err(ClientError::Rejected(_)) => Some((Default::default(), monotonic())),
            Err(error) => return Err(error),
        },
        false => None,
    };
    let mut checks = Vec::new();
    if with_io {
        checks = client.checks("").await?.checks;
        checks.retain(|check| check.state() != wire::check::State::Ended);
    }
    Ok(Polled { node, io, checks })
}

#[derive(Default)]
struct Live {
    view: NodeView,
    /// The objects were complete once.
    is_known: bool,
    /// The node in the view is an answer of this connection.
    is_answered: bool,
    io: IoRates,
    outage: Option<Outage>,
    position: Position,
}

impl Live {
    fn lost(&mut self, why: String) {
        self.io.clear();
        self.is_answered = false;
        let since = self.outage.take().map(|outage| outage.since);
        let now = wall_now();
        self.outage = Some(Outage {
            since: since.unwrap_or(prost_types::Timestamp {
                seconds: now.as_second(),
                nanos: now.subsec_nanosecond(),
            }),
            why,
        });
    }

    /// Returns whether the screen may look different.
    fn changed(&mut self, event: wire::WatchEvent) -> bool {
        self.view.apply(event);
        self.end_outage();
        !self.view.is_listing()
    }

    /// After an outage the objects are old until the changes since have come.
    fn end_outage(&mut self) {
        if self.is_answered && self.view.standing() != Standing::Behind {
            (self.is_known, self.outage) = (true, None);
        }
    }

    fn polled(&mut self, answer: Polled) {
        (self.view.node, self.is_answered) = (answer.node, true);
        self.end_outage();
        if let Some((io, at)) = answer.io {
            self.io.apply(io, at);
        }
        for check in answer.checks {
            if let Some(known) = self.view.objects.checks.get_mut(&check.id) {
                *known = check;
            }
        }
    }

    /// Returns whether the program ends.
    fn typed(&mut self, keys: &[Key], page: usize) -> bool {
        let causes = Lists::new(&self.view.objects).causes;
        for key in keys {
            if *key == Key::Quit {
                return true;
            }
            self.position.apply(*key, &causes, page);
        }
        false
    }

    fn lines(&mut self, screen: &Screen, height: Option<u16>) -> Vec<String> {
        if !self.is_known {
            return waiting(self.outage.as_ref(), screen);
        }
        let lists = Lists::new(&self.view.objects);
        let view = LiveView {
            status: StatusView {
                node: &self.view.node,
                drives: &lists.drives,
                volumes: &lists.volumes,
                findings: &lists.findings,
                causes: Some(&lists.causes),
            },
            checks: &lists.checks,
            io: self.io.rates(),
            outage: self.outage.as_ref(),
        };
        lines(&view, &mut self.position, screen, height)
    }
}

/// The signals that end the program, and a new size.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    resized: Signal,
}

impl Signals {
    fn new() -> Result<Signals, Error> {
        let of = |kind| signal(kind).map_err(Error::Signal);
        Ok(Signals {
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
            hangup: of(SignalKind::hangup())?,
            resized: of(SignalKind::window_change())?,
        })
    }
}

pub(crate) async fn run(out: &Printer, args: &Args) -> Result<ExitCode, Error> {
    let mut feed = Feed::start(&args.socket, args.timeout).await?;
    let mut signals = Signals::new()?;
    let mut live = Live::default();
    let mut poller: Option<Poller> = None;
    let mut redraw = tokio::time::interval(REDRAW_INTERVAL);
    let screen = FullScreen::enter().map_err(Error::Output)?;
    let mut due: Option<Instant> = None;
    loop {
        let Signals { terminate, interrupt, hangup, resized } = &mut signals;
        let is_changed = tokio::select! {
            update = feed.next() => match update {
                Update::Connected(client) => {
                    poller = Some(Poller::start(client));
                    false
                }
                Update::Event(event) => {
                    let is_changed = live.changed(*event);
                    if let (true, Some(poller)) = (is_changed, &poller) {
                        poller.wake.notify_one();
                    }
                    is_changed
                }
                Update::Lost(why) => {
                    poller = None;
                    live.lost(why);
                    true
                }
            },
            Some(answer) = next_answer(&mut poller) => {
                match answer {
                    Ok(answer) => live.polled(answer),
                    // The connection exists, and the daemon does not answer.
                    Err(error) => live.lost(with_causes(&error)),
                }
                true
            }
            keys = screen.keys() => {
                if live.typed(&keys, page(terminal::size().map(|(_, lines)| lines))) {
                    return Ok(ExitCode::SUCCESS);
                }
                keys.iter().any(|key| *key != Key::Other)
            }
            _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
            _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
            _ = hangup.recv() => return Ok(ExitCode::SUCCESS),
            _ = resized.recv() => true,
            _ = redraw.tick() => true,
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                draw(out, &screen, &mut live)?;
                false
            }
        };
        if is_changed {
            // Later changes do not put it off.
            due.get_or_insert_with(|| Instant::now() + SETTLE);
        }
    }
}

/// Pending without a poller.
async fn next_answer(poller: &mut Option<Poller>) -> Option<Result<Polled, ClientError>> {
    match poller {
        Some(poller) => poller.answers.recv().await,
        None => std::future::pending().await,
    }
}

fn draw(out: &Printer, full: &FullScreen, live: &mut Live) -> Result<(), Error> {
    let size = terminal::size();
    let screen = Screen {
        width: size.map(|(columns, _)| columns).or(out.screen.width),
        now: wall_now(),
        ..out.screen.clone()
    };
    let lines = live.lines(&screen, size.map(|(_, lines)| lines));
    let lines: Vec<Shown> = lines.iter().map(|line| Shown::screen(line)).collect();
    full.draw(&lines).map_err(Error::Output)
}

/// `status -o json` again after each change, one document in each line.
pub(crate) async fn json_lines(
    args: &Args,
    document: impl AsyncFn(&Client) -> Result<serde_json::Value, Error>,
) -> Result<ExitCode, Error> {
    let mut feed = Feed::start(&args.socket, args.timeout).await?;
    let mut client: Option<Client> = None;
    let mut view = NodeView::default();
    let mut last = serde_json::Value::Null;
    let mut is_lost = false;
    loop {
        let Some(update) = feed.next_while_read().await else {
            return Ok(ExitCode::SUCCESS);
        };
        let is_changed = match update {
            Update::Connected(connected) => {
                client = Some(connected);
                is_lost = false;
                false
            }
            Update::Event(event) => {
                view.apply(*event);
                !view.is_listing()
            }
            Update::Lost(why) => {
                if !std::mem::replace(&mut is_lost, true) {
                    complain(&format!("no answer from diskvitalsd, trying again: {why}"));
                }
                false
            }
        };
        let (true, Some(client)) = (is_changed, &client) else {
            continue;
        };
        let now = match document(client).await {
            Ok(document) => document,
            // The feed says when the daemon is lost.
            Err(Error::Client(_)) => continue,
            Err(error) => return Err(error),
        };
        let mut content = now.clone();
        if let Some(members) = content.as_object_mut() {
            // It counts changes, also those of which this document says nothing.
            members.remove("revision");
        }
        if content != last {
            print_json(&now.to_string())?;
            last = content;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_wire::watch_event::Change;

    #[test]
    fn an_outage_ends_with_an_answer_and_all_changes_up_to_it() {
        let event = |change: Change, revision| wire::WatchEvent {
            change: change.into(),
            revision,
            ..Default::default()
        };
        let answer = |revision| Polled {
            node: wire::Node { revision, settled: true, ..Default::default() },
            io: None,
            checks: vec![],
        };
        let mut live = Live::default();
        live.changed(event(Change::SnapshotBegin, 5));
        live.polled(answer(5));
        assert!(!live.is_known, "the list is incomplete");
        live.changed(event(Change::SnapshotEnd, 5));
        assert!(live.is_known && live.outage.is_none());
        live.lost("it is away".to_owned());
        live.changed(event(Change::Modified, 6));
        assert!(live.outage.is_some(), "it has not answered since");
        live.polled(answer(8));
        live.changed(event(Change::Modified, 7));
        assert!(live.outage.is_some(), "a change is missing");
        live.changed(event(Change::Modified, 8));
        assert!(live.outage.is_none());
    }
}
