//! The newest picture's text: written when a scrape asks for it, kept for those that ask for the
//! same.
//!
//! In: scrapes with the form that they want, the newest snapshot. Out: bytes. One text is written
//! at a time, on a thread of its own; who asks meanwhile waits for it and shares it. A text never
//! outlives its snapshot's being the newest, so that what is gone from the one is gone from the
//! other; it holds moments (of an answer, of a start) and no ages, so that it does not grow old by
//! itself. May not enter: anything of HTTP.

use std::io::{self, Write};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::metrics::text;
use crate::metrics::view::{self, Node};
use crate::model::snapshot::Snapshot;

/// All of the daemon's memory is locked: a megabyte is not kept for a scrape that comes in a
/// minute, when most likely there is a newer picture.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// Writing goes some calls deep, and no deeper with more drives.
const STACK: usize = 512 * 1024;

/// How a scraper wants its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub format: Format,
    pub gzip: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    OpenMetrics,
    /// Version 0.0.4.
    Plain,
}

#[derive(Debug, thiserror::Error)]
pub enum Unwritten {
    #[error("the daemon is ending")]
    Ending,
    #[error("writing the metrics")]
    Writing(#[source] io::Error),
    #[error("starting the thread that writes the metrics")]
    Thread(#[source] io::Error),
}

type Writer = Arc<dyn Fn(&Arc<Snapshot>, Form) -> io::Result<Bytes> + Send + Sync>;

struct Ask {
    form: Form,
    reply: oneshot::Sender<Result<Bytes, Unwritten>>,
}

/// Whom scrapes ask.
#[derive(Clone, Debug)]
pub struct Texts(mpsc::Sender<Ask>);

impl Texts {
    /// `Keeper::run` answers.
    pub fn new(node: Node, snapshots: watch::Receiver<Arc<Snapshot>>) -> (Texts, Keeper) {
        let node = Arc::new(node);
        Texts::written_by(
            Arc::new(move |snapshot, form| write(&node, snapshot, form)),
            snapshots,
        )
    }

    fn written_by(write: Writer, snapshots: watch::Receiver<Arc<Snapshot>>) -> (Texts, Keeper) {
        let (sender, asks) = mpsc::channel(1);
        (
            Texts(sender),
            Keeper {
                asks,
                snapshots,
                write,
                of: Weak::new(),
                kept: Vec::new(),
                used: Instant::now(),
            },
        )
    }

    /// Of the newest snapshot when its turn comes.
    pub async fn of_now(&self, form: Form) -> Result<Bytes, Unwritten> {
        let (reply, answer) = oneshot::channel();
        self.0
            .send(Ask { form, reply })
            .await
            .map_err(|_| Unwritten::Ending)?;
        answer.await.map_err(|_| Unwritten::Ending)?
    }
}

pub struct Keeper {
    asks: mpsc::Receiver<Ask>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    write: Writer,
    /// Whose texts these are. What it points to is not kept, only that nothing newer can have its
    /// place.
    of: Weak<Snapshot>,
    kept: Vec<(Form, Bytes)>,
    used: Instant,
}

impl Keeper {
    /// Until nobody can ask any more.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                // What is over is let go before anybody is answered.
                biased;
                () = sleep_until(self.used + KEPT_FOR), if !self.kept.is_empty() => self.kept = Vec::new(),
                ask = self.asks.recv() => match ask {
                    Some(ask) => self.answer(ask).await,
                    None => return,
                },
            }
        }
    }

    async fn answer(&mut self, Ask { form, reply }: Ask) {
        // A scraper that has gone needs none written.
        if reply.is_closed() {
            return;
        }
        let snapshot = self.snapshots.borrow().clone();
        if !Weak::ptr_eq(&self.of, &Arc::downgrade(&snapshot)) {
            self.of = Arc::downgrade(&snapshot);
            self.kept = Vec::new();
        }
        let kept = self
            .kept
            .iter()
            .find(|(of, _)| *of == form)
            .map(|(_, text)| text.clone());
        let text = match kept {
            Some(text) => Ok(text),
            None => {
                let text = on_a_thread(self.write.clone(), snapshot, form).await;
                self.kept
                    .extend(text.iter().map(|text| (form, text.clone())));
                text
            }
        };
        self.used = Instant::now();
        // Whoever asked may have gone.
        let _ = reply.send(text);
    }
}

/// One of its own: those that the runtime has for what may block are few, and all of them may wait
/// for a disk that hangs.
async fn on_a_thread(
    write: Writer,
    snapshot: Arc<Snapshot>,
    form: Form,
) -> Result<Bytes, Unwritten> {
    let (done, written) = oneshot::channel();
    let work = move || {
        // Who waits for it may have gone.
        let _ = done.send(write(&snapshot, form));
    };
    std::thread::Builder::new()
        .name("metrics".into())
        .stack_size(STACK)
        .spawn(work)
        .map_err(Unwritten::Thread)?;
    let text = written
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the thread has ended before its time")));
    text.map_err(Unwritten::Writing)
}

fn write(node: &Arc<Node>, snapshot: &Arc<Snapshot>, form: Form) -> io::Result<Bytes> {
    let openmetrics = view::render(node, snapshot).map_err(io::Error::other)?;
    let text = match form.format {
        Format::OpenMetrics => openmetrics,
        Format::Plain => text::plain(&openmetrics),
    };
    if !form.gzip {
        return Ok(text.into());
    }
    // The fastest: of such text it leaves less than a tenth, and better ones take longer than what
    // they spare takes on the way.
    let mut gzip = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    gzip.write_all(text.as_bytes())?;
    gzip.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests;
