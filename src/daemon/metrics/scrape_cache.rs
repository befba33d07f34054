//! The cached metrics text of the newest snapshot: rendered when a scrape needs it, shared by all
//! scrapes of the same format.
//! In: scrapes with their format, the newest snapshot. Out: bytes. One text is rendered at a time,
//! on a separate thread; scrapes that arrive during that time wait for it and share it. A text is
//! dropped when its snapshot is no longer the newest. It contains timestamps and no ages, so it
//! does not become outdated by itself. HTTP does not belong here.

use std::io::{self, Write};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::metrics::view::{self, Node};
use diskvitals_exposition::plain_text;
use diskvitals_model::snapshot::Snapshot;
use diskvitals_quota::refusals::SocketRefusals;

/// All of the daemon's memory is locked. A scraper returns after about a minute, when a newer
/// snapshot is likely, so a megabyte is not kept for it. Counts of refused clients are no part of a
/// snapshot, and are no older either.
const RETENTION: Duration = Duration::from_secs(5);

/// Rendering needs little stack, whatever the number of drives.
const STACK_BYTES: usize = 512 * 1024;

/// The format and encoding that a scraper accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeFormat {
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
pub enum ScrapeError {
    #[error("the daemon is ending")]
    ShuttingDown,
    #[error("writing the metrics")]
    Encode(#[source] io::Error),
    #[error("starting the thread that writes the metrics")]
    SpawnThread(#[source] io::Error),
}

type EncodeFn = Arc<dyn Fn(&Arc<Snapshot>, ScrapeFormat) -> io::Result<Bytes> + Send + Sync>;

struct ScrapeRequest {
    form: ScrapeFormat,
    reply: oneshot::Sender<Result<Bytes, ScrapeError>>,
}

/// The handle that scrapes use.
#[derive(Clone, Debug)]
pub struct ScrapeHandle(mpsc::Sender<ScrapeRequest>);

impl ScrapeHandle {
    /// The requests of this handle are answered by `ScrapeCache::run`.
    pub fn new(
        node: Node,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        refusals: SocketRefusals,
    ) -> (ScrapeHandle, ScrapeCache) {
        let node = Arc::new(node);
        ScrapeHandle::with_encoder(
            Arc::new(move |snapshot, form| encode(&node, snapshot, &refusals, form)),
            snapshots,
        )
    }

    fn with_encoder(
        write: EncodeFn,
        snapshots: watch::Receiver<Arc<Snapshot>>,
    ) -> (ScrapeHandle, ScrapeCache) {
        let (sender, requests) = mpsc::channel(1);
        (
            ScrapeHandle(sender),
            ScrapeCache {
                requests,
                snapshots,
                encode: write,
                encoded_snapshot: Weak::new(),
                entries: Vec::new(),
                encoded_at: Instant::now(),
            },
        )
    }

    /// The text of the snapshot that is the newest when the request is handled.
    pub async fn scrape(&self, form: ScrapeFormat) -> Result<Bytes, ScrapeError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(ScrapeRequest { form, reply }).await.map_err(|_| ScrapeError::ShuttingDown)?;
        answer.await.map_err(|_| ScrapeError::ShuttingDown)?
    }
}

pub struct ScrapeCache {
    requests: mpsc::Receiver<ScrapeRequest>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    encode: EncodeFn,
    /// The snapshot of the texts. The weak reference keeps only the allocation, so no newer
    /// snapshot can have the same address.
    encoded_snapshot: Weak<Snapshot>,
    entries: Vec<(ScrapeFormat, Bytes)>,
    /// When the first of them was encoded.
    encoded_at: Instant,
}

impl ScrapeCache {
    /// Runs until all handles are dropped.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                // Expired texts are dropped before a request is answered.
                biased;
                () = sleep_until(self.encoded_at + RETENTION), if !self.entries.is_empty() => self.entries = Vec::new(),
                request = self.requests.recv() => match request {
                    Some(request) => self.respond(request).await,
                    None => return,
                },
            }
        }
    }

    async fn respond(&mut self, ScrapeRequest { form, reply }: ScrapeRequest) {
        // A scraper that has disconnected needs no text.
        if reply.is_closed() {
            return;
        }
        let snapshot = self.snapshots.borrow().clone();
        if !Weak::ptr_eq(&self.encoded_snapshot, &Arc::downgrade(&snapshot)) {
            self.encoded_snapshot = Arc::downgrade(&snapshot);
            self.entries = Vec::new();
        }
        let kept = self.entries.iter().find(|(of, _)| *of == form).map(|(_, text)| text.clone());
        let text = match kept {
            Some(text) => Ok(text),
            None => {
                if self.entries.is_empty() {
                    self.encoded_at = Instant::now();
                }
                let text = encode_on_thread(self.encode.clone(), snapshot, form).await;
                self.entries.extend(text.iter().map(|text| (form, text.clone())));
                text
            }
        };
        // The scraper may have disconnected.
        let _ = reply.send(text);
    }
}

/// Encodes on a separate thread, because the runtime's few threads for blocking calls may all wait
/// for a disk that hangs.
async fn encode_on_thread(
    write: EncodeFn,
    snapshot: Arc<Snapshot>,
    form: ScrapeFormat,
) -> Result<Bytes, ScrapeError> {
    let (done, written) = oneshot::channel();
    let work = move || {
        // The receiver may no longer exist.
        let _ = done.send(write(&snapshot, form));
    };
    std::thread::Builder::new()
        .name("metrics".into())
        .stack_size(STACK_BYTES)
        .spawn(work)
        .map_err(ScrapeError::SpawnThread)?;
    let text = written
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the thread has ended before its time")));
    text.map_err(ScrapeError::Encode)
}

fn encode(
    node: &Arc<Node>,
    snapshot: &Arc<Snapshot>,
    refusals: &SocketRefusals,
    form: ScrapeFormat,
) -> io::Result<Bytes> {
    let openmetrics = view::render(node, snapshot, refusals).map_err(io::Error::other)?;
    let text = match form.format {
        Format::OpenMetrics => openmetrics,
        Format::Plain => plain_text::plain(&openmetrics),
    };
    if !form.gzip {
        return Ok(text.into());
    }
    // The fastest level reduces this text to less than a tenth. A better one takes more time than
    // it saves in the transfer.
    let mut gzip = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    gzip.write_all(text.as_bytes())?;
    gzip.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests;
