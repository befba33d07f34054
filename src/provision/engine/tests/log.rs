//! What is told in the log, and how often.

use std::io;
use std::sync::Mutex;

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

use super::lifecycle::fake_host;
use super::*;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic while it is written").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Of this thread, for as long as the guard is there.
    fn capture(&self) -> DefaultGuard {
        let log = self.clone();
        let layer =
            tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || log.clone());
        tracing::subscriber::set_default(tracing_subscriber::registry().with(layer))
    }

    /// How many lines have this message.
    fn count(&self, message: &str) -> usize {
        let text = self.0.lock().expect("no panic while it is written");
        String::from_utf8_lossy(&text).lines().filter(|line| line.contains(message)).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lasting_error_is_logged_when_it_begins_and_when_it_ends() {
    // While there is one dispatcher only, tracing asks the thread that reaches an event first whether it
    // is logged, and switches it off for all others.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let log = Log::default();
    let _listening = log.capture();
    cause_lasting_errors(|message, stage| {
        assert_eq!(log.count(message), 1, "{message} {stage}");
    })
    .await;
}

/// Calls `check` for each message that must have been logged once by now.
async fn cause_lasting_errors(check: impl Fn(&str, &str)) {
    let fake = fake_host();
    fake.with_state(|state| {
        state.group_broken = true;
        state.records.insert("/pool/volumes/a b.json".into(), "{}".into());
    });
    let daemon = Daemon::ready(fake).await;
    let handle = daemon.create("pvc-1").await.unwrap();
    daemon.host.with_state(|state| state.growing_broken = true);
    daemon.grow(&handle, 2 << 20).await.unwrap_err();
    let before = daemon.host.with_state(|state| state.executed.len());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let tried = daemon.host.with_state(|state| {
        state.executed[before..].iter().filter(|step| step.starts_with("GrowImage")).count()
    });
    assert!(tried > 10, "it was tried {tried} times");
    let begun = [
        "recovering a volume from an interrupted operation",
        "recovery of a volume failed",
        "volumes may be missing",
        "directory of the pool's records is no record",
    ];
    for message in begun {
        check(message, "begun");
    }
    daemon.host.with_state(|state| (state.growing_broken, state.group_broken) = (false, false));
    tokio::time::sleep(Duration::from_secs(90)).await;
    for message in begun
        .into_iter()
        .chain(["succeeded after earlier failures", "the volume group are known again"])
    {
        check(message, "ended");
    }
}
