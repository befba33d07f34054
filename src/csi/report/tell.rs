//! Tells news as events, each once, no faster than the API server may be asked to take them.
//!
//! In: what is seen of the daemon. Out: events. What cannot be told for now waits, in order and
//! bounded; what the API server will never take is logged and dropped.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::csi::report::api::{Api, Failure, Refusal};
use crate::csi::report::bucket::Bucket;
use crate::csi::report::event::{Event, Regarding, of_node};
use crate::csi::report::news::{About, KNOWN, Kind, News, UNKNOWN, news, told};
use crate::csi::report::pause::Pause;
use crate::csi::report::picture::Picture;
use crate::csi::report::queue::Queue;
use crate::csi::report::{Pace, Sight, at, now};

pub async fn run(
    mut sights: watch::Receiver<Sight>,
    api: &Api,
    node: &str,
    pace: &Pace,
) -> Infallible {
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
    waiting: Queue,
    bucket: Bucket,
    pause: Pause,
    not_before: Option<Instant>,
    trouble: Option<String>,
    /// By kind and namespace.
    refusals: BTreeMap<(String, String), u64>,
    /// By namespace.
    forbidden: BTreeMap<String, Forbidden>,
    /// How long a right may be on its way.
    rights: Duration,
    given_up: u64,
}

/// Since when a right is missing without anything being taken, and when that was last seen.
#[derive(Clone, Copy, Debug)]
struct Forbidden {
    since: Instant,
    last: Instant,
}

impl<'a> Teller<'a> {
    fn new(api: &'a Api, node: &'a str, pace: &Pace) -> Teller<'a> {
        Teller {
            api,
            node,
            seen: None,
            told: None,
            away: false,
            waiting: Queue::new(pace.longest_wait),
            bucket: Bucket::new(pace.burst, pace.every),
            pause: Pause::new(pace, node),
            not_before: None,
            trouble: None,
            refusals: BTreeMap::new(),
            forbidden: BTreeMap::new(),
            rights: pace.rights,
            given_up: 0,
        }
    }

    fn look(&mut self, sight: &Sight, patient: bool) {
        let now = now();
        if let Some(picture) = &sight.picture
            && self
                .seen
                .as_ref()
                .is_none_or(|seen| !Arc::ptr_eq(seen, picture))
        {
            self.enqueue(news(self.told.as_ref(), picture, now));
            self.told = Some(
                self.told
                    .as_ref()
                    .map_or_else(|| Picture::clone(picture), |before| told(before, picture)),
            );
            self.seen = Some(picture.clone());
        }
        match &sight.lost {
            // A reporter that has never seen the daemon does not know since when it is away: one
            // before it may have told it.
            Some(lost) if !patient && !self.away && self.seen.is_some() => {
                let note = format!(
                    "how the storage of this node is cannot be told: diskvitalsd cannot be asked: {}",
                    lost.why
                );
                self.enqueue(vec![self.of_daemon(Kind::Lost, UNKNOWN, note, now)]);
                self.away = true;
            }
            None if self.away => {
                let note = "diskvitalsd answers again: how the storage of this node is can be told"
                    .to_owned();
                self.enqueue(vec![self.of_daemon(Kind::Found, KNOWN, note, now)]);
                self.away = false;
            }
            _ => {}
        }
    }

    fn of_daemon(&self, kind: Kind, reason: &str, note: String, at: jiff::Timestamp) -> News {
        News {
            key: format!("daemon {} {at}", kind.action()),
            about: About::Node,
            kind,
            reason: reason.to_owned(),
            note,
            at,
        }
    }

    fn enqueue(&mut self, news: Vec<News>) {
        let dropped = self.waiting.add(news);
        if dropped > 0 {
            tracing::warn!(
                dropped,
                waiting = self.waiting.len(),
                "too many events wait, the oldest are dropped"
            );
        }
    }

    fn due(&mut self) -> Option<Instant> {
        self.waiting.first().is_some().then(|| {
            self.bucket
                .next()
                .max(self.not_before.unwrap_or_else(Instant::now))
        })
    }

    async fn next(&mut self) {
        let Some(news) = self.waiting.first().cloned() else {
            return;
        };
        self.bucket.take();
        match self.tell(&news).await {
            Ok(()) => {
                self.pause.succeeded();
                (self.not_before, self.trouble) = (None, None);
                self.forbidden.remove(namespace(&news.about));
                self.waiting.done();
            }
            Err(Failure::Refused(refusal)) => self.refused(&news, refusal),
            Err(Failure::Forbidden(refusal))
                if self.is_forbidden_for_good(namespace(&news.about)) =>
            {
                self.refused(&news, refusal)
            }
            Err(failure) => {
                // Other namespaces' events may be taken.
                let aside = matches!(failure, Failure::Forbidden(_));
                let (why, wish) = failure.parts();
                self.failed(&news, why, wish, aside);
            }
        }
    }

    fn failed(&mut self, news: &News, why: String, wish: Option<Duration>, aside: bool) {
        if self.trouble.as_ref() != Some(&why) {
            tracing::warn!(
                trouble = why,
                waiting = self.waiting.len(),
                "events cannot be told; trying on"
            );
        }
        if self.waiting.failed(aside) {
            self.given_up += 1;
            tracing::warn!(
                reason = news.reason,
                why,
                given_up = self.given_up,
                "an event could not be told for too long; it is given up"
            );
        }
        self.trouble = Some(why);
        self.not_before = Some(Instant::now() + self.pause.failed(wish));
    }

    /// Right after an installation its roles may not be known everywhere yet.
    fn is_forbidden_for_good(&mut self, namespace: &str) -> bool {
        let (now, rights) = (Instant::now(), self.rights);
        self.forbidden
            .retain(|_, forbidden| now < forbidden.last + rights);
        let forbidden = self
            .forbidden
            .entry(namespace.to_owned())
            .or_insert(Forbidden {
                since: now,
                last: now,
            });
        forbidden.last = now;
        now >= forbidden.since + rights
    }

    /// Each kind of refusal is logged once for each namespace: that may be going away, or a right
    /// is missing, for all of its events.
    fn refused(&mut self, news: &News, refusal: Refusal) {
        self.waiting.done();
        if self.refusals.len() >= 64 {
            self.refusals.clear();
        }
        let Refusal { kind, why } = refusal;
        let times = self
            .refusals
            .entry((kind, namespace(&news.about).to_owned()))
            .or_default();
        *times += 1;
        if *times == 1 {
            tracing::warn!(
                reason = news.reason,
                why,
                "the API server does not take an event; it is dropped"
            );
        }
    }

    async fn tell(&self, news: &News) -> Result<(), Failure> {
        let regarding = match &news.about {
            About::Node => of_node(self.node),
            About::Pod(pod) => Regarding {
                kind: "Pod",
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            },
            About::Claim(claimed) => match self.api.claim(claimed).await? {
                Some(claim) => claim,
                // A volume that belongs to no claim, or to one that no pod of this node has.
                None => return Ok(()),
            },
        };
        self.api
            .tell_event(&Event::new(news, regarding, self.node))
            .await
    }
}

/// In which it is told, as far as is known here.
fn namespace(about: &About) -> &str {
    match about {
        About::Node => "",
        About::Pod(pod) => &pod.namespace,
        About::Claim(claimed) => claimed.namespaces.first().map_or("", String::as_str),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::report::api::Config;
    use crate::model::attach::PodOf;

    fn pod(name: &str, namespace: &str) -> News {
        let about = About::Pod(PodOf {
            uid: name.into(),
            name: name.into(),
            namespace: namespace.into(),
        });
        News {
            key: name.into(),
            about,
            kind: Kind::Raised,
            reason: "DriveFailing".into(),
            note: String::new(),
            at: now(),
        }
    }

    fn api(pace: &Pace) -> Api {
        Api::new(
            Config::new("http://127.0.0.1:1".parse().expect("an address")),
            "worker-1",
            pace,
        )
        .expect("a client")
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_of_one_kind_whatever_the_names_in_its_words() {
        let pace = Pace::default();
        let api = api(&pace);
        let mut teller = Teller::new(&api, "worker-1", &pace);
        for (name, namespace) in [("a", "shop"), ("b", "shop"), ("c", "bank")] {
            let refusal = Refusal {
                kind: "403 Forbidden".into(),
                why: format!("403 Forbidden: events {name:?} is forbidden"),
            };
            teller.refused(&pod(name, namespace), refusal);
        }
        assert_eq!(teller.refusals.values().collect::<Vec<_>>(), [&1, &2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_right_is_waited_for_five_minutes_and_then_no_more() {
        let pace = Pace::default();
        let api = api(&pace);
        let mut teller = Teller::new(&api, "worker-1", &pace);
        let mut after = async |seconds| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            teller.is_forbidden_for_good("shop")
        };
        assert_eq!(
            [
                after(0).await,
                after(120).await,
                after(120).await,
                after(120).await,
                after(1).await
            ],
            [false, false, false, true, true]
        );
        // Not seen for long: it may be another installation's.
        assert!(!after(301).await);
    }
}
