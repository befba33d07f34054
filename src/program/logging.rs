//! Logging of all programs: text on a terminal, journald fields under systemd, JSON on request.
//! Logging never blocks the daemon.
//!
//! Why no crate: tracing-appender's non-blocking writer takes formatted text only, so journald's
//! fields would be lost; tracing-journald writes to the socket on the caller's thread. On a dead
//! disk journald hangs, and every thread that logs would hang with it.
//!
//! In: tracing events. Each event is copied into a bounded queue; a separate thread writes it.
//! While the sink hangs (journald on a dead disk, a pipe without a reader), events are dropped and
//! counted. The count is logged when the sink accepts events again.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use diskvitals_text::echo::Shown;

/// Events that wait for the sink, with a few hundred bytes each.
const QUEUE: usize = 1024;
/// Interval between attempts to send to a full queue.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// The client of the API server logs an error without a name at each attempt, for as long as the
/// server is away. Those who call it log a failure once, with the operation.
const NOISY_TARGET: &str = "kube_client::client::builder";
/// More fields than any of our events has; further fields are left out.
const MAX_FIELDS: usize = 12;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// journald when standard error is connected to it, else text.
    #[default]
    Auto,
    Text,
    Json,
    Journald,
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("connecting to journald at /run/systemd/journal/socket")]
    Journald(#[source] std::io::Error),
    #[error("starting the log thread")]
    Thread(#[source] std::io::Error),
    #[error("a log subscriber is already installed")]
    Installed(#[from] tracing_subscriber::util::TryInitError),
}

/// Says why a program ends, on standard error.
pub fn complain(program: &str, text: &str) {
    // The error cannot be reported on an unwritable standard error.
    let _ = writeln!(std::io::stderr(), "{program}: {}", Shown::screen(text));
}

/// Owned by `main`: changes the level, and flushes at the end.
pub struct Logging {
    queue: SyncSender<Message>,
    /// The levels of the process and of the sink. If one of them enables an event, both check it at
    /// each log statement, and a call through h2 has a hundred log statements.
    levels: [LevelHandle; 2],
}

type LevelHandle = reload::Handle<LevelFilter, Registry>;

impl Logging {
    pub fn set_level(&self, level: LevelFilter) {
        for handle in &self.levels {
            // It fails only when the subscriber no longer exists; then there is nothing to filter.
            let _ = handle.modify(|current| *current = level);
        }
    }

    /// Gives the sink half a second to write the queued events.
    pub fn flush(&self) {
        self.queue().flush(Duration::from_millis(500));
    }

    /// The queue, for a thread that logs before it ends the process.
    pub fn queue(&self) -> LogQueue {
        LogQueue(self.queue.clone())
    }
}

/// The queue of the log thread.
#[derive(Clone)]
pub struct LogQueue(SyncSender<Message>);

impl LogQueue {
    /// Waits until all earlier messages are written, for at most `at_most`. False if they are not.
    pub fn flush(&self, at_most: Duration) -> bool {
        let end = Instant::now() + at_most;
        let (done, wait) = sync_channel(1);
        let mut message = Message::Flush(done);
        loop {
            message = match self.0.try_send(message) {
                Ok(()) => {
                    return wait
                        .recv_timeout(end.saturating_duration_since(Instant::now()))
                        .is_ok();
                }
                // The sink is busy or hangs.
                Err(TrySendError::Full(message)) if Instant::now() < end => message,
                Err(_) => return false,
            };
            std::thread::park_timeout(RETRY_INTERVAL);
        }
    }
}

/// Installs the process-wide subscriber.
pub fn init(format: LogFormat, level: LevelFilter) -> Result<Logging, LogError> {
    let (sink, of_sink) = sink(format, level)?;
    let (queue, events) = sync_channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let lost = dropped.clone();
    std::thread::Builder::new()
        .name("log".into())
        .stack_size(128 * 1024)
        .spawn(move || write_all(&events, &sink, &lost))
        .map_err(LogError::Thread)?;
    let (filter, handle) = reload::Layer::new(level);
    tracing_subscriber::registry()
        .with(QueueLayer { queue: queue.clone(), dropped }.with_filter(filter))
        .try_init()?;
    Ok(Logging { queue, levels: [handle, of_sink] })
}

fn sink(format: LogFormat, level: LevelFilter) -> Result<(Dispatch, LevelHandle), LogError> {
    let text = || {
        let colours = std::io::stderr().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        filtered(
            tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(colours)
                .with_target(false),
            level,
        )
    };
    let journald = || {
        tracing_journald::layer()
            .map(|layer| filtered(layer.with_field_prefix(Some("DISKVITALS".into())), level))
    };
    match format {
        LogFormat::Text => Ok(text()),
        LogFormat::Json => Ok(filtered(
            tracing_subscriber::fmt::layer()
                .json()
                .flatten_event(true)
                .with_writer(std::io::stderr),
            level,
        )),
        LogFormat::Journald => journald().map_err(LogError::Journald),
        LogFormat::Auto if stderr_is_journald() => Ok(journald().unwrap_or_else(|_| text())),
        LogFormat::Auto => Ok(text()),
    }
}

fn filtered(
    layer: impl Layer<Registry> + Send + Sync,
    level: LevelFilter,
) -> (Dispatch, LevelHandle) {
    let (filter, handle) = reload::Layer::new(level);
    (Dispatch::new(Registry::default().with(layer.with_filter(filter))), handle)
}

/// systemd sets JOURNAL_STREAM to device:inode of the socket that it passed (systemd.exec(5)).
/// Shells inherit the variable, so the numbers are compared.
fn stderr_is_journald() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    nix::sys::stat::fstat(std::io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

enum Message {
    Event(EventRecord),
    Flush(SyncSender<()>),
}

/// An event that owns its values.
struct EventRecord {
    metadata: &'static Metadata<'static>,
    values: Vec<(Field, FieldValue)>,
}

/// A text longer than this is cut.
const MAX_FIELD_CHARS: usize = 4096;

/// Texts are escaped here, for every sink: names and labels of users are among them.
enum FieldValue {
    Text(Shown),
    Debug(Shown),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Bool(bool),
}

struct QueueLayer {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl<S: Subscriber> Layer<S> for QueueLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() == Level::ERROR && metadata.target() == NOISY_TARGET {
            return;
        }
        let mut values = FieldCollector(Vec::with_capacity(4));
        event.record(&mut values);
        let record = EventRecord { metadata, values: values.0 };
        if self.queue.try_send(Message::Event(record)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct FieldCollector(Vec<(Field, FieldValue)>);

impl FieldCollector {
    fn push(&mut self, field: &Field, value: FieldValue) {
        if self.0.len() < MAX_FIELDS {
            self.0.push((field.clone(), value));
        }
    }
}

impl Visit for FieldCollector {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, FieldValue::Debug(Shown::line(&format!("{value:?}"), MAX_FIELD_CHARS)));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, FieldValue::Text(Shown::line(value, MAX_FIELD_CHARS)));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, FieldValue::Signed(value));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, FieldValue::Unsigned(value));
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, FieldValue::Float(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, FieldValue::Bool(value));
    }
}

fn write_all(events: &Receiver<Message>, sink: &Dispatch, dropped: &AtomicU64) {
    let mut reported = 0;
    tracing::dispatcher::with_default(sink, || {
        loop {
            match events.recv_timeout(Duration::from_secs(3600)) {
                Ok(Message::Event(record)) => record.dispatch(),
                // The caller may have stopped waiting.
                Ok(Message::Flush(done)) => drop(done.send(())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let lost = dropped.load(Ordering::Relaxed);
            if lost > reported {
                tracing::warn!(
                    lost = lost - reported,
                    "log events were dropped because the log sink did not keep up"
                );
                reported = lost;
            }
        }
    });
}

impl EventRecord {
    /// Emits the event again, on this thread's subscriber: its metadata is static, only the values
    /// were copied.
    fn dispatch(self) {
        let shown: Vec<Box<dyn tracing::Value>> =
            self.values.iter().map(|(_, value)| value.as_value()).collect();
        let fields = self.metadata.fields();
        let Some(any) = fields.iter().next() else {
            return;
        };
        let values: [(&Field, Option<&dyn tracing::Value>); MAX_FIELDS] =
            std::array::from_fn(|at| match (self.values.get(at), shown.get(at)) {
                (Some((field, _)), Some(value)) => (field, Some(&**value)),
                _ => (&any, None),
            });
        Event::dispatch(self.metadata, &fields.value_set(&values));
    }
}

impl FieldValue {
    fn as_value(&self) -> Box<dyn tracing::Value + '_> {
        match self {
            FieldValue::Text(text) => Box::new(text.as_str()),
            FieldValue::Debug(text) => Box::new(tracing::field::display(text)),
            FieldValue::Signed(number) => Box::new(*number),
            FieldValue::Unsigned(number) => Box::new(*number),
            FieldValue::Float(number) => Box::new(*number),
            FieldValue::Bool(flag) => Box::new(*flag),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic while writing").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn json_sink() -> (Dispatch, Buffer) {
        let buffer = Buffer::default();
        (json_sink_into(&buffer), buffer)
    }

    fn json_sink_into(buffer: &Buffer) -> Dispatch {
        let writer = buffer.clone();
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(move || writer.clone());
        Dispatch::new(Registry::default().with(layer))
    }

    #[test]
    fn an_event_reaches_the_sink_with_its_message_and_fields() {
        let (sink, buffer) = json_sink();
        let (queue, events) = sync_channel(8);
        let front =
            Dispatch::new(Registry::default().with(QueueLayer { queue, dropped: Arc::default() }));
        tracing::dispatcher::with_default(
            &front,
            || tracing::warn!(drive = "eui.1", count = 3_u64, ok = false, path = %"/a b", "a drive went"),
        );
        drop(front);
        write_all(&events, &sink, &AtomicU64::new(0));
        let line: serde_json::Value =
            serde_json::from_slice(&buffer.0.lock().expect("unpoisoned")).expect("one JSON line");
        assert_eq!(line["message"], "a drive went");
        assert_eq!(
            (&line["drive"], &line["count"], &line["ok"], &line["path"]),
            (&"eui.1".into(), &3.into(), &false.into(), &"/a b".into())
        );
        assert_eq!(line["level"], "WARN");
    }

    #[test]
    fn no_text_of_others_deceives_in_a_log_and_none_is_endless() {
        let hostile = "a\u{1b}[2J\u{202e}\u{2066}\u{200b}\u{9b}b\nERROR forged";
        for is_json in [false, true] {
            let buffer = Buffer::default();
            let sink = match is_json {
                true => json_sink_into(&buffer),
                false => {
                    let layer = tracing_subscriber::fmt::layer().with_ansi(false);
                    let writer = buffer.clone();
                    Dispatch::new(
                        Registry::default().with(layer.with_writer(move || writer.clone())),
                    )
                }
            };
            let (queue, events) = sync_channel(8);
            let dropped = Arc::default();
            let front = Dispatch::new(Registry::default().with(QueueLayer { queue, dropped }));
            tracing::dispatcher::with_default(&front, || {
                tracing::warn!(
                    text = hostile,
                    shown = %hostile,
                    debug = ?std::path::Path::new(hostile),
                    long = "x".repeat(1 << 20),
                    "{hostile}"
                );
            });
            drop(front);
            write_all(&events, &sink, &AtomicU64::new(0));
            let text = String::from_utf8(buffer.0.lock().expect("unpoisoned").clone());
            let text = text.expect("text");
            assert!(text.contains("forged"), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
            let line = text.trim_end_matches('\n');
            assert!(!line.chars().any(diskvitals_text::echo::is_deceptive), "{line}");
            assert!(line.len() < 8 * 1024, "{}", line.len());
        }
    }

    #[test]
    fn flush_returns_only_when_the_sink_has_written() {
        let (sink, buffer) = json_sink();
        let (queue, events) = sync_channel(8);
        let front = Dispatch::new(
            Registry::default().with(QueueLayer { queue: queue.clone(), dropped: Arc::default() }),
        );
        tracing::dispatcher::with_default(&front, || tracing::error!("a last word"));
        assert!(!LogQueue(queue.clone()).flush(Duration::ZERO), "no thread writes yet");
        drop(front);
        std::thread::scope(|scope| {
            scope.spawn(move || write_all(&events, &sink, &AtomicU64::new(0)));
            let queued = LogQueue(queue);
            assert!(queued.flush(Duration::from_secs(60)));
            assert!(
                String::from_utf8_lossy(&buffer.0.lock().expect("unpoisoned"))
                    .contains("a last word")
            );
        });
    }

    #[test]
    fn flush_retries_a_full_queue_until_its_timeout() {
        let (sink, _) = json_sink();
        let (queue, events) = sync_channel(1);
        let (done, _never) = sync_channel(1);
        queue.try_send(Message::Flush(done)).map_err(drop).expect("there is room for one");
        assert!(!LogQueue(queue.clone()).flush(RETRY_INTERVAL * 2));
        std::thread::scope(|scope| {
            let queued = LogQueue(queue);
            let waits = scope.spawn(move || queued.flush(Duration::from_secs(60)));
            scope.spawn(move || write_all(&events, &sink, &AtomicU64::new(0)));
            assert!(waits.join().expect("it ends"));
        });
    }

    #[test]
    fn the_errors_of_each_attempt_to_reach_an_api_server_are_left_out() {
        let (queue, events) = sync_channel(8);
        let front =
            Dispatch::new(Registry::default().with(QueueLayer { queue, dropped: Arc::default() }));
        tracing::dispatcher::with_default(&front, || {
            tracing::error!(target: "kube_client::client::builder", "failed with error");
            tracing::error!(target: "diskvitals_fleet::api", "watching fails");
        });
        drop(front);
        let targets: Vec<&str> = events
            .iter()
            .filter_map(|message| match message {
                Message::Event(record) => Some(record.metadata.target()),
                Message::Flush(_) => None,
            })
            .collect();
        assert_eq!(targets, ["diskvitals_fleet::api"]);
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let (queue, events) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let front =
            Dispatch::new(Registry::default().with(QueueLayer { queue, dropped: dropped.clone() }));
        tracing::dispatcher::with_default(&front, || {
            (0..5).for_each(|n| tracing::info!(n, "event"))
        });
        drop(front);
        assert_eq!(dropped.load(Ordering::Relaxed), 4);
        let (sink, buffer) = json_sink();
        write_all(&events, &sink, &dropped);
        let text = String::from_utf8(buffer.0.lock().expect("unpoisoned").clone()).expect("text");
        assert!(text.contains("log events were dropped") && text.contains("\"lost\":4"), "{text}");
    }
}
