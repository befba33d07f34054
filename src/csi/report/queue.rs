//! News that waits to be told: in order for each object, bounded, and no object for ever before the
//! others.
//!
//! In: news, and that the first of it was told or was not. Out: which is next. Knows no API server.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::csi::report::news::{About, News};

/// More are dropped.
const MOST: usize = 2000;
/// After so many failures the others go first: a webhook may be down that looks at one namespace's
/// events only.
const TRIES: u32 = 8;

#[derive(Debug)]
struct Waiting {
    news: News,
    since: Instant,
    failures: u32,
}

#[derive(Debug)]
pub struct Queue {
    waiting: VecDeque<Waiting>,
    /// What has failed for so long is given up.
    longest: Duration,
}

impl Queue {
    pub fn new(longest: Duration) -> Queue {
        Queue {
            waiting: VecDeque::new(),
            longest,
        }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn first(&self) -> Option<&News> {
        self.waiting.front().map(|waiting| &waiting.news)
    }

    /// How many had to be dropped: the oldest, but the node's own last, which say most in least.
    pub fn add(&mut self, news: Vec<News>) -> usize {
        let since = Instant::now();
        self.waiting.extend(news.into_iter().map(|news| Waiting {
            news,
            since,
            failures: 0,
        }));
        let dropped = self.waiting.len().saturating_sub(MOST);
        let mut over = dropped;
        self.waiting.retain(|waiting| {
            let kept = over == 0 || waiting.news.about == About::Node;
            over -= usize::from(!kept);
            kept
        });
        self.waiting.drain(..over);
        dropped
    }

    /// The first was told, or will never be.
    pub fn done(&mut self) {
        self.waiting.pop_front();
    }

    /// The first could not be told. `aside`: others may well be. Whether it is given up.
    pub fn failed(&mut self, aside: bool) -> bool {
        let Some(first) = self.waiting.front_mut() else {
            return false;
        };
        first.failures += 1;
        if first.failures < TRIES && !aside {
            return false;
        }
        if first.failures >= TRIES && first.since.elapsed() >= self.longest {
            self.waiting.pop_front();
            return true;
        }
        let about = first.news.about.clone();
        let (same, others): (VecDeque<Waiting>, VecDeque<Waiting>) =
            std::mem::take(&mut self.waiting)
                .into_iter()
                .partition(|waiting| waiting.news.about == about);
        self.waiting = others;
        self.waiting.extend(same);
        false
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::csi::report::news::Kind;
    use crate::model::attach::PodOf;

    fn of(about: About, number: usize) -> News {
        let (key, reason) = (number.to_string(), "SmartFailing".to_owned());
        News {
            key,
            about,
            kind: Kind::Raised,
            reason,
            note: String::new(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn pod(uid: &str) -> About {
        About::Pod(PodOf {
            uid: uid.into(),
            name: "web".into(),
            namespace: "shop".into(),
        })
    }

    fn keys(queue: &mut Queue) -> Vec<String> {
        let mut keys = Vec::new();
        while let Some(first) = queue.first() {
            keys.push(first.key.clone());
            queue.done();
        }
        keys
    }

    fn queue(abouts: &[About]) -> Queue {
        let mut queue = Queue::new(Duration::from_secs(3600));
        queue.add(
            abouts
                .iter()
                .cloned()
                .enumerate()
                .map(|(number, about)| of(about, number))
                .collect(),
        );
        queue
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_whose_events_fail_eight_times_goes_behind_the_others_in_its_own_order() {
        let mut queue = queue(&[pod("a"), About::Node, pod("a"), pod("b")]);
        for _ in 0..7 {
            assert!(!queue.failed(false));
            assert_eq!(queue.first().map(|news| news.key.as_str()), Some("0"));
        }
        queue.failed(false);
        // From then on each failure puts it aside at once.
        assert_eq!(queue.first().map(|news| news.key.as_str()), Some("1"));
        queue.done();
        queue.done();
        queue.add(vec![of(About::Node, 4)]);
        queue.failed(false);
        assert_eq!(keys(&mut queue), ["4", "0", "2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_failed_for_an_hour_is_given_up_and_what_was_not_tried_is_not() {
        let mut queue = queue(&[pod("a"), pod("b")]);
        tokio::time::advance(Duration::from_secs(3600)).await;
        let given_up: Vec<bool> = std::iter::repeat_with(|| queue.failed(false))
            .take(8)
            .collect();
        assert_eq!(given_up.iter().position(|given_up| *given_up), Some(7));
        assert_eq!(keys(&mut queue), ["1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_the_oldest_are_dropped_and_the_nodes_own_last() {
        let mut queue = queue(&[About::Node, pod("a"), pod("b")]);
        let more = |count: usize, about: About| {
            (0..count)
                .map(|number| of(about.clone(), 10 + number))
                .collect::<Vec<News>>()
        };
        assert_eq!(queue.add(more(MOST - 2, pod("c"))), 1);
        assert_eq!(
            queue.first().map(|news| news.about.clone()),
            Some(About::Node)
        );
        assert_eq!(queue.waiting[1].news.key, "2");
        assert_eq!(
            (queue.add(more(MOST + 5, About::Node)), queue.len()),
            (MOST + 5, MOST)
        );
        assert_eq!(
            queue.first().map(|news| news.key.as_str()),
            Some("15"),
            "the node's too, where there are no others"
        );
    }
}
