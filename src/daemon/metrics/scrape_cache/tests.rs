use std::io::Read;
use std::sync::{Mutex, mpsc as waiting};

use flate2::read::GzDecoder;
use jiff::Timestamp;
use tokio::time::advance;

use super::*;

const OPENMETRICS: ScrapeFormat = ScrapeFormat { format: Format::OpenMetrics, gzip: false };
const PLAIN: ScrapeFormat = ScrapeFormat { format: Format::Plain, gzip: false };
/// For what should not take long at all.
const PATIENCE: Duration = Duration::from_secs(20);

fn snapshot(revision: u64) -> Arc<Snapshot> {
    Arc::new(Snapshot { revision, settled: true, ..Snapshot::default() })
}

/// Texts that name the snapshot that they are of, and how many have been written.
struct CountingCache {
    texts: ScrapeHandle,
    snapshots: watch::Sender<Arc<Snapshot>>,
    written: Arc<Mutex<Vec<(u64, ScrapeFormat)>>>,
}

fn counting_cache() -> CountingCache {
    let written: Arc<Mutex<Vec<(u64, ScrapeFormat)>>> = Arc::default();
    let log = written.clone();
    let (sender, snapshots) = watch::channel(snapshot(1));
    let (texts, keeper) = ScrapeHandle::with_encoder(
        Arc::new(move |snapshot, form| {
            log.lock().expect("the log").push((snapshot.revision, form));
            Ok(format!("snapshot {}", snapshot.revision).into())
        }),
        snapshots,
    );
    tokio::spawn(keeper.run());
    CountingCache { texts, snapshots: sender, written }
}

impl CountingCache {
    async fn ask(&self, form: ScrapeFormat) -> Bytes {
        self.texts.scrape(form).await.expect("is written")
    }

    fn written(&self) -> Vec<(u64, ScrapeFormat)> {
        self.written.lock().expect("the log").clone()
    }
}

#[tokio::test]
async fn each_format_is_encoded_once_per_snapshot() {
    let counted = counting_cache();
    for _ in 0..3 {
        assert_eq!(counted.ask(OPENMETRICS).await, "snapshot 1");
        assert_eq!(counted.ask(PLAIN).await, "snapshot 1");
    }
    assert_eq!(counted.written(), [(1, OPENMETRICS), (1, PLAIN)]);
}

#[tokio::test]
async fn a_newer_snapshot_replaces_every_cached_format() {
    let counted = counting_cache();
    counted.ask(OPENMETRICS).await;
    counted.ask(PLAIN).await;
    // The same revision: what is told to watchers does not change with every figure.
    counted
        .snapshots
        .send_replace(Arc::new(Snapshot { node: Arc::default(), ..(*snapshot(1)).clone() }));
    counted.ask(PLAIN).await;
    counted.snapshots.send_replace(snapshot(2));
    assert_eq!(counted.ask(OPENMETRICS).await, "snapshot 2");
    assert_eq!(counted.ask(PLAIN).await, "snapshot 2");
    assert_eq!(
        counted.written(),
        [(1, OPENMETRICS), (1, PLAIN), (1, PLAIN), (2, OPENMETRICS), (2, PLAIN)]
    );
}

#[tokio::test(start_paused = true)]
async fn counts_that_are_no_part_of_the_snapshot_are_read_again_however_often_a_text_is_used() {
    let counted = counting_cache();
    for _ in 0..60 {
        counted.ask(PLAIN).await;
        advance(Duration::from_millis(500)).await;
    }
    assert_eq!(counted.written().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn an_unused_text_is_evicted() {
    let counted = counting_cache();
    counted.ask(PLAIN).await;
    advance(RETENTION - Duration::from_millis(100)).await;
    counted.ask(PLAIN).await;
    assert_eq!(counted.written().len(), 1);
    advance(RETENTION + Duration::from_millis(100)).await;
    counted.ask(PLAIN).await;
    assert_eq!(counted.written().len(), 2);
}

#[tokio::test]
async fn concurrent_scrapes_share_one_encoding_and_do_not_block_the_runtime() {
    let (begun, has_begun) = waiting::channel();
    let (go_on, wait) = waiting::channel::<()>();
    let wait = Mutex::new(wait);
    let (_sender, snapshots) = watch::channel(snapshot(1));
    let (texts, keeper) = ScrapeHandle::with_encoder(
        Arc::new(move |_, _| {
            begun.send(()).expect("the test goes on");
            wait.lock().expect("the test").recv_timeout(PATIENCE).map_err(io::Error::other)?;
            Ok("text".into())
        }),
        snapshots,
    );
    tokio::spawn(keeper.run());
    let asking: Vec<_> = (0..5)
        .map(|_| {
            let texts = texts.clone();
            tokio::spawn(async move { texts.scrape(PLAIN).await })
        })
        .collect();
    // This thread is the runtime's only one: were the text written on it, nothing would go on here.
    while has_begun.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    go_on.send(()).expect("is waited for");
    for asked in asking {
        assert_eq!(asked.await.expect("ends").expect("is written"), "text");
    }
    assert!(has_begun.try_recv().is_err(), "written more than once");
}

#[test]
fn a_scrape_needs_no_thread_of_the_blocking_pool() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (answers, disk) = waiting::channel::<()>();
        let hangs = tokio::task::spawn_blocking(move || disk.recv_timeout(PATIENCE * 2));
        let counted = counting_cache();
        let text = tokio::time::timeout(PATIENCE, counted.ask(PLAIN))
            .await
            .expect("is answered while the disk hangs");
        assert_eq!(text, "snapshot 1");
        drop(answers);
        hangs.await.expect("ends").expect_err("nothing was sent");
    });
}

#[tokio::test]
async fn a_failed_encoding_is_reported_and_not_cached() {
    let (_sender, snapshots) = watch::channel(snapshot(1));
    let times = Mutex::new(0);
    let (texts, keeper) = ScrapeHandle::with_encoder(
        Arc::new(move |_, _| {
            let mut times = times.lock().expect("the test");
            *times += 1;
            if *times == 1 { Err(io::Error::other("no")) } else { Ok("text".into()) }
        }),
        snapshots,
    );
    tokio::spawn(keeper.run());
    assert!(matches!(texts.scrape(PLAIN).await, Err(ScrapeError::Encode(_))));
    assert_eq!(texts.scrape(PLAIN).await.expect("is written"), "text");
}

#[tokio::test]
async fn gzip_holds_the_same_text() {
    let node = Node {
        name: "n".into(),
        kernel: "6.1".into(),
        version: "1".into(),
        started: Timestamp::UNIX_EPOCH,
    };
    let (_sender, snapshots) = watch::channel(snapshot(1));
    let (texts, keeper) = ScrapeHandle::new(node, snapshots, SocketRefusals::default());
    tokio::spawn(keeper.run());
    for form in [OPENMETRICS, PLAIN] {
        let (text, packed) = (
            texts.scrape(form).await.expect("is written"),
            texts.scrape(ScrapeFormat { gzip: true, ..form }).await.expect("is written"),
        );
        let mut unpacked = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).expect("is gzip");
        assert_eq!(Bytes::from(unpacked), text);
        assert_eq!(text.ends_with(b"# EOF\n"), form == OPENMETRICS);
    }
}
