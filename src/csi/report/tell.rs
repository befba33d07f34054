//! Tells news as events, each once, no faster than the API server may be asked to take them.
//!
//! In: what is seen of the daemon. Out: events. What cannot be told for now waits, in order and bounded; what the API server will never take is logged and
//! dropped.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::csi::report::api::{Api, Failure};
use crate::csi::report::event::{Event, Regarding, of_node};
use crate::csi::report::news::{About, KNOWN, Kind, News, UNKNOWN, news, told};
use crate::csi::report::pause::Pause;
use crate::csi::report::picture::Picture;
use crate::csi::report::{Pace, Sight, at, now};

/// News that wait. More are dropped, the oldest first, and counted.
const WAITING: usize = 2000;

pub async fn run(mut sights: watch::Receiver<Sight>, api: &Api, node: &str, pace: &Pace) -> Infallible {
    let mut teller = Teller::new(api, node, pace);
    loop {
        let sight = sights.borrow_and_update().clone();
        let patient = sight.patient_until(pace.patience);
        teller.look(&sight, patient.is_some());
        let due = teller.due();
        tokio::select! {
            changed = sights.changed() => if changed.is_err() {
                // Nobody looks any more: the process ends.
                std::future::pending::<()>().await;
            },
            () = at(patient) => {}
            () = at(due) => teller.next().await,
        }
    }
}

struct Teller<'a> {
    api: &'a Api,
    node: &'a str,
    seen: Option<Arc<Picture>>,
    /// It, with what is still to be told the end of.
    told: Option<Picture>,
    /// That the daemon is away has been told, or was so from the beginning.
    away: bool,
    waiting: VecDeque<News>,
    bucket: Bucket,
    pause: Pause,
    not_before: Option<Instant>,
    trouble: Option<String>,
    refusals: BTreeMap<String, u64>,
}

impl<'a> Teller<'a> {
    fn new(api: &'a Api, node: &'a str, pace: &Pace) -> Teller<'a> {
        Teller {
            api,
            node,
            seen: None,
            told: None,
            away: false,
            waiting: VecDeque::new(),
            bucket: Bucket::new(pace),
            pause: Pause::new(pace, node),
            not_before: None,
            trouble: None,
            refusals: BTreeMap::new(),
        }
    }

    fn look(&mut self, sight: &Sight, patient: bool) {
        let now = now();
        if let Some(picture) = &sight.picture
            && self.seen.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, picture))
        {
            self.enqueue(news(self.told.as_ref(), picture, now));
            self.told = Some(self.told.as_ref().map_or_else(|| Picture::clone(picture), |before| told(before, picture)));
            self.seen = Some(picture.clone());
        }
        match &sight.lost {
            // A reporter that has never seen the daemon does not know since when it is away: one before it may have told it.
            Some(lost) if !patient && !self.away && self.seen.is_some() => {
                let note = format!("how the storage of this node is cannot be told: diskvitalsd cannot be asked: {}", lost.why);
                self.enqueue(vec![self.of_daemon(Kind::Lost, UNKNOWN, note, now)]);
                self.away = true;
            }
            None if self.away => {
                let note = "diskvitalsd answers again: how the storage of this node is can be told".to_owned();
                self.enqueue(vec![self.of_daemon(Kind::Found, KNOWN, note, now)]);
                self.away = false;
            }
            _ => {}
        }
    }

    fn of_daemon(&self, kind: Kind, reason: &str, note: String, at: jiff::Timestamp) -> News {
        News { key: format!("daemon {} {at}", kind.action()), about: About::Node, kind, reason: reason.to_owned(), note, at }
    }

    fn enqueue(&mut self, news: Vec<News>) {
        self.waiting.extend(news);
        let over = self.waiting.len().saturating_sub(WAITING);
        if over > 0 {
            self.waiting.drain(..over);
            tracing::warn!(dropped = over, waiting = WAITING, "events wait for too long, the oldest are dropped");
        }
    }

    fn due(&mut self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.bucket.next().max(self.not_before.unwrap_or_else(Instant::now)))
    }

    async fn next(&mut self) {
        let Some(news) = self.waiting.front().cloned() else { return };
        self.bucket.take();
        match self.tell(&news).await {
            Ok(()) => {
                self.pause.succeeded();
                (self.not_before, self.trouble) = (None, None);
            }
            Err(Failure::Refused(why)) => self.refused(&news, why),
            Err(failure @ Failure::NotNow { .. }) => {
                let (why, wish) = failure.parts();
                if self.trouble.as_ref() != Some(&why) {
                    tracing::warn!(trouble = why, waiting = self.waiting.len(), "events cannot be told; trying on");
                }
                self.trouble = Some(why);
                self.not_before = Some(Instant::now() + self.pause.failed(wish));
                return;
            }
        }
        self.waiting.pop_front();
    }

    /// Each kind of refusal is logged once: a pod's namespace may be going away, or a right is missing, for all of them.
    fn refused(&mut self, news: &News, why: String) {
        if self.refusals.len() >= 64 {
            self.refusals.clear();
        }
        let times = self.refusals.entry(why.clone()).or_default();
        *times += 1;
        if *times == 1 {
            tracing::warn!(reason = news.reason, why, "the API server does not take an event; it is dropped");
        }
    }

    async fn tell(&self, news: &News) -> Result<(), Failure> {
        let regarding = match &news.about {
            About::Node => of_node(self.node),
            About::Pod(pod) => Regarding { kind: "Pod", namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() },
            About::Claim(claimed) => match self.api.claim(claimed).await? {
                Some(claim) => claim,
                // A volume that belongs to no claim, or to one that no pod of this node has.
                None => return Ok(()),
            },
        };
        self.api.tell_event(&Event::new(news, regarding, self.node)).await
    }
}

/// So many at once, then one each so often.
#[derive(Debug)]
struct Bucket {
    size: u32,
    every: std::time::Duration,
    left: u32,
    filled: Instant,
}

impl Bucket {
    fn new(pace: &Pace) -> Bucket {
        Bucket { size: pace.burst, every: pace.every, left: pace.burst, filled: Instant::now() }
    }

    /// When one may be taken.
    fn next(&mut self) -> Instant {
        self.fill();
        if self.left > 0 { Instant::now() } else { self.filled + self.every }
    }

    fn take(&mut self) {
        self.fill();
        self.left = self.left.saturating_sub(1);
    }

    fn fill(&mut self) {
        while self.left < self.size && self.filled + self.every <= Instant::now() {
            self.left += 1;
            self.filled += self.every;
        }
        if self.left == self.size {
            self.filled = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_one_by_one() {
        let mut bucket = Bucket::new(&Pace { burst: 3, every: Duration::from_secs(5), ..Pace::default() });
        let begin = Instant::now();
        let mut times = Vec::new();
        for _ in 0..6 {
            tokio::time::sleep_until(bucket.next()).await;
            bucket.take();
            times.push(begin.elapsed().as_secs());
        }
        assert_eq!(times, [0, 0, 0, 5, 10, 15]);
        // Rest fills it again, to its size and not beyond.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let rested = Instant::now();
        for _ in 0..4 {
            tokio::time::sleep_until(bucket.next()).await;
            bucket.take();
        }
        assert_eq!(rested.elapsed().as_secs(), 5);
    }
}
