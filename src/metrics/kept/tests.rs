use std::io::Read;
use std::sync::{Mutex, mpsc as waiting};

use flate2::read::GzDecoder;
use jiff::Timestamp;
use tokio::time::advance;

use super::*;

const OPENMETRICS: Form = Form {
    format: Format::OpenMetrics,
    gzip: false,
};
const PLAIN: Form = Form {
    format: Format::Plain,
    gzip: false,
};
/// For what should not take long at all.
const PATIENCE: Duration = Duration::from_secs(20);

fn picture(revision: u64) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        revision,
        settled: true,
        ..Snapshot::default()
    })
}

/// Texts that tell of which picture they are, and how many have been written.
struct Counted {
    texts: Texts,
    pictures: watch::Sender<Arc<Snapshot>>,
    written: Arc<Mutex<Vec<(u64, Form)>>>,
}

fn counted() -> Counted {
    let written: Arc<Mutex<Vec<(u64, Form)>>> = Arc::default();
    let log = written.clone();
    let (pictures, snapshots) = watch::channel(picture(1));
    let (texts, keeper) = Texts::written_by(
        Arc::new(move |snapshot, form| {
            log.lock().expect("the log").push((snapshot.revision, form));
            Ok(format!("picture {}", snapshot.revision).into())
        }),
        snapshots,
    );
    tokio::spawn(keeper.run());
    Counted {
        texts,
        pictures,
        written,
    }
}

impl Counted {
    async fn ask(&self, form: Form) -> Bytes {
        self.texts.of_now(form).await.expect("is written")
    }

    fn written(&self) -> Vec<(u64, Form)> {
        self.written.lock().expect("the log").clone()
    }
}

#[tokio::test]
async fn of_one_picture_each_form_is_written_once() {
    let counted = counted();
    for _ in 0..3 {
        assert_eq!(counted.ask(OPENMETRICS).await, "picture 1");
        assert_eq!(counted.ask(PLAIN).await, "picture 1");
    }
    assert_eq!(counted.written(), [(1, OPENMETRICS), (1, PLAIN)]);
}

#[tokio::test]
async fn with_a_newer_picture_nothing_of_the_older_is_told_in_any_form() {
    let counted = counted();
    counted.ask(OPENMETRICS).await;
    counted.ask(PLAIN).await;
    // The same revision: what is told to watchers does not change with every figure.
    counted.pictures.send_replace(Arc::new(Snapshot {
        node: Arc::default(),
        ..(*picture(1)).clone()
    }));
    counted.ask(PLAIN).await;
    counted.pictures.send_replace(picture(2));
    assert_eq!(counted.ask(OPENMETRICS).await, "picture 2");
    assert_eq!(counted.ask(PLAIN).await, "picture 2");
    assert_eq!(
        counted.written(),
        [
            (1, OPENMETRICS),
            (1, PLAIN),
            (1, PLAIN),
            (2, OPENMETRICS),
            (2, PLAIN)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_any_more_is_let_go() {
    let counted = counted();
    counted.ask(PLAIN).await;
    advance(KEPT_FOR - Duration::from_millis(100)).await;
    counted.ask(PLAIN).await;
    assert_eq!(counted.written().len(), 1);
    advance(KEPT_FOR + Duration::from_millis(100)).await;
    counted.ask(PLAIN).await;
    assert_eq!(counted.written().len(), 2);
}

#[tokio::test]
async fn who_asks_while_a_text_is_written_waits_for_that_one_and_the_runtime_for_none() {
    let (begun, has_begun) = waiting::channel();
    let (go_on, wait) = waiting::channel::<()>();
    let wait = Mutex::new(wait);
    let (_pictures, snapshots) = watch::channel(picture(1));
    let (texts, keeper) = Texts::written_by(
        Arc::new(move |_, _| {
            begun.send(()).expect("the test goes on");
            wait.lock()
                .expect("the test")
                .recv_timeout(PATIENCE)
                .map_err(io::Error::other)?;
            Ok("text".into())
        }),
        snapshots,
    );
    tokio::spawn(keeper.run());
    let asking: Vec<_> = (0..5)
        .map(|_| {
            let texts = texts.clone();
            tokio::spawn(async move { texts.of_now(PLAIN).await })
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
fn a_scrape_needs_none_of_the_threads_that_may_wait_for_a_disk() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (answers, disk) = waiting::channel::<()>();
        let hangs = tokio::task::spawn_blocking(move || disk.recv_timeout(PATIENCE * 2));
        let counted = counted();
        let text = tokio::time::timeout(PATIENCE, counted.ask(PLAIN))
            .await
            .expect("is answered while the disk hangs");
        assert_eq!(text, "picture 1");
        drop(answers);
        hangs.await.expect("ends").expect_err("nothing was sent");
    });
}

#[tokio::test]
async fn what_could_not_be_written_is_told_and_not_kept() {
    let (_pictures, snapshots) = watch::channel(picture(1));
    let times = Mutex::new(0);
    let (texts, keeper) = Texts::written_by(
        Arc::new(move |_, _| {
            let mut times = times.lock().expect("the test");
            *times += 1;
            if *times == 1 {
                Err(io::Error::other("no"))
            } else {
                Ok("text".into())
            }
        }),
        snapshots,
    );
    tokio::spawn(keeper.run());
    assert!(matches!(
        texts.of_now(PLAIN).await,
        Err(Unwritten::Writing(_))
    ));
    assert_eq!(texts.of_now(PLAIN).await.expect("is written"), "text");
}

#[tokio::test]
async fn gzip_holds_the_same_text() {
    let node = Node {
        name: "n".into(),
        kernel: "6.1".into(),
        version: "1".into(),
        started: Timestamp::UNIX_EPOCH,
    };
    let (_pictures, snapshots) = watch::channel(picture(1));
    let (texts, keeper) = Texts::new(node, snapshots);
    tokio::spawn(keeper.run());
    for form in [OPENMETRICS, PLAIN] {
        let (text, packed) = (
            texts.of_now(form).await.expect("is written"),
            texts
                .of_now(Form { gzip: true, ..form })
                .await
                .expect("is written"),
        );
        let mut unpacked = Vec::new();
        GzDecoder::new(&packed[..])
            .read_to_end(&mut unpacked)
            .expect("is gzip");
        assert_eq!(Bytes::from(unpacked), text);
        assert_eq!(text.ends_with(b"# EOF\n"), form == OPENMETRICS);
    }
}
