//! A client that sends requests without pause during a test: no RPC may wait for a device or a
//! mount.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use diskvitals_wire::{GetVolumeRequest, ListVolumesRequest};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::Code;

use super::{Client, pause};

/// Half of the answers about each volume are faster. A busy machine delays any process once in a while;
/// what waits for a mount is delayed each time, by the time-out of a probe (1 s) at least.
const FAST: Duration = Duration::from_millis(900);
/// No answer takes longer: it would wait for something.
const ANSWERED: Duration = Duration::from_secs(10);

/// By what was asked: the volume's id; empty for the list.
type Answers = BTreeMap<String, Vec<Duration>>;

pub struct Monitor {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Answers>,
}

pub struct Latency {
    pub calls: usize,
    pub median: Duration,
    pub p99: Duration,
    pub worst: Duration,
}

impl Monitor {
    pub fn start(socket: &Path) -> Monitor {
        let client = Client::new(socket);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::pin!(stopped);
            let mut took = Answers::new();
            while tokio::time::timeout(Duration::ZERO, &mut stopped).await.is_err() {
                ask(&client, &mut took).await;
                pause(Duration::from_millis(5)).await;
            }
            took
        });
        Monitor { stop, task }
    }

    /// Every request was answered, and fast.
    pub async fn finish(self) -> Latency {
        // Closed already when the task has panicked; the await below reports it.
        let _ = self.stop.send(());
        let mut answers = self.task.await.expect("every question was answered");
        for (asked, took) in &mut answers {
            took.sort();
            let median = took[(took.len() - 1) / 2];
            assert!(median < FAST, "the answers about `{asked}` take {median:?}: {took:?}");
        }
        let mut took: Vec<Duration> = answers.into_values().flatten().collect();
        took.sort();
        assert!(!took.is_empty(), "no request was sent");
        let latency = Latency {
            calls: took.len(),
            median: took[took.len() / 2],
            p99: took[(took.len() - 1) * 99 / 100],
            worst: took[took.len() - 1],
        };
        assert!(
            latency.worst < ANSWERED,
            "an answer took {:?} (of {}: median {:?}, p99 {:?})",
            latency.worst,
            latency.calls,
            latency.median,
            latency.p99
        );
        latency
    }
}

async fn ask(client: &Client, answers: &mut Answers) {
    let mut inventory = client.inventory();
    let started = Instant::now();
    let page = inventory
        .list_volumes(ListVolumesRequest::default())
        .await
        .expect("ListVolumes")
        .into_inner();
    answers.entry(String::new()).or_default().push(started.elapsed());
    for volume in page.volumes {
        let started = Instant::now();
        let answer = inventory
            .get_volume(GetVolumeRequest { id: volume.id.clone(), ..Default::default() })
            .await;
        answers.entry(volume.id).or_default().push(started.elapsed());
        if let Err(status) = answer {
            // It may have disappeared since it was listed.
            assert_eq!(status.code(), Code::NotFound, "GetVolume: {status}");
        }
    }
}
