//! Watches: one list in pages, then the changes, for as long as it works.
//!
//! In: one kind of objects. Out: changes. After any failure the objects are listed anew: a watch
//! that goes on after a gap says nothing about the gap, and in a quiet cluster nothing at all.
//! Attempts have growing delays, and observe the delay that the API server asks for.

use std::fmt::Debug;
use std::time::Duration;

use kube::ResourceExt;
use kube::core::Status;
use kube::runtime::watcher;
use kube::runtime::watcher::{Config, Error as WatcherError, Event};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt;

use crate::retry_delay::RetryDelay;
use diskvitals_text::causes::with_causes;

/// A change of one kind of objects.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// A new list begins: what was known stays in force until `Listed`.
    Listing,
    ListedOne(String, T),
    Listed,
    Set(String, T),
    Deleted(String),
    /// The watch is failing: what is known may be outdated.
    Failing,
}

#[derive(Clone, Debug)]
pub struct WatchTiming {
    /// Of one page of a list.
    pub page_timeout: Duration,
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
}

#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error(transparent)]
    Watcher(#[from] WatcherError),
    #[error("the API server has not sent the list within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("the watch has ended")]
    Ended,
}

/// Nobody receives the changes.
struct Unread;

/// `C`: the changes of all kinds that the receiver follows.
pub struct Watch<K, T, C> {
    pub objects: kube::Api<K>,
    pub what: &'static str,
    pub reduce: fn(K) -> T,
    pub wrap: fn(Change<T>) -> C,
}

impl<K, T, C> Watch<K, T, C>
where
    K: kube::Resource + Clone + Debug + serde::de::DeserializeOwned + Send + 'static,
{
    /// Ends when the receiver is gone.
    pub async fn follow(&self, timing: &WatchTiming, into: &mpsc::Sender<C>) {
        let resource = self.what;
        let mut delay = RetryDelay::new(timing.initial_backoff, timing.max_backoff, resource);
        let mut is_failing = false;
        loop {
            let begin = Instant::now();
            let Ok(error) = self.once(timing, &mut is_failing, into).await else {
                return;
            };
            if !std::mem::replace(&mut is_failing, true) {
                let error = with_causes(&error);
                tracing::warn!(resource, error, "watching fails; it is tried again");
            }
            if into.send((self.wrap)(Change::Failing)).await.is_err() {
                return;
            }
            // One that lists and then fails at once is no success.
            if begin.elapsed() > timing.max_backoff {
                delay.reset();
            }
            sleep(delay.next(retry_after(&error))).await;
        }
    }

    async fn once(
        &self,
        timing: &WatchTiming,
        is_failing: &mut bool,
        into: &mpsc::Sender<C>,
    ) -> Result<WatchError, Unread> {
        let stream = watcher(self.objects.clone(), Config::default());
        let mut stream = std::pin::pin!(stream);
        let mut is_listing = true;
        loop {
            let next = if is_listing {
                match timeout(timing.page_timeout, stream.next()).await {
                    Ok(next) => next,
                    Err(_) => return Ok(WatchError::TimedOut(timing.page_timeout)),
                }
            } else {
                stream.next().await
            };
            let change = match next {
                Some(Ok(Event::Init)) => Change::Listing,
                Some(Ok(Event::InitApply(object))) => {
                    Change::ListedOne(object.name_any(), (self.reduce)(object))
                }
                Some(Ok(Event::InitDone)) => {
                    is_listing = false;
                    if std::mem::take(is_failing) {
                        tracing::info!(resource = self.what, "watching works again");
                    }
                    Change::Listed
                }
                Some(Ok(Event::Apply(object))) => {
                    Change::Set(object.name_any(), (self.reduce)(object))
                }
                Some(Ok(Event::Delete(object))) => Change::Deleted(object.name_any()),
                Some(Err(error)) => return Ok(error.into()),
                None => return Ok(WatchError::Ended),
            };
            if into.send((self.wrap)(change)).await.is_err() {
                return Err(Unread);
            }
        }
    }
}

fn retry_after(error: &WatchError) -> Option<Duration> {
    let status: &Status = match error {
        WatchError::Watcher(WatcherError::WatchError(status)) => status,
        WatchError::Watcher(
            WatcherError::InitialListFailed(kube::Error::Api(status))
            | WatcherError::WatchStartFailed(kube::Error::Api(status))
            | WatcherError::WatchFailed(kube::Error::Api(status)),
        ) => status,
        _ => return None,
    };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}
