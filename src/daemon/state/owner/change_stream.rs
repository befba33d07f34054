//! The stream of changes for watchers; the latest changes are kept for watchers that reconnect.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::broadcast;

use crate::state::handle::{Change, Subscription, SubscriptionStart};
use diskvitals_model::snapshot::Snapshot;

/// Changes that are kept for resuming and queued for each watcher. Each keeps an old version of a
/// volume or a finding in locked memory.
pub(crate) const MAX_BUFFERED: usize = 2048;

#[derive(Debug)]
pub struct ChangeStream {
    buffer: VecDeque<Arc<Change>>,
    /// Every change after this revision is kept.
    oldest_resumable: u64,
    subscribers: broadcast::Sender<Arc<Change>>,
}

impl ChangeStream {
    pub fn new(start: u64) -> ChangeStream {
        ChangeStream {
            buffer: VecDeque::new(),
            oldest_resumable: start,
            subscribers: broadcast::Sender::new(MAX_BUFFERED),
        }
    }

    pub fn publish(&mut self, changes: Vec<Change>) {
        for change in changes.into_iter().map(Arc::new) {
            if self.buffer.len() == MAX_BUFFERED
                && let Some(oldest) = self.buffer.pop_front()
            {
                self.oldest_resumable = oldest.revision;
            }
            self.buffer.push_back(change.clone());
            // Having no subscriber is not an error.
            let _ = self.subscribers.send(change);
        }
    }

    /// `current` is the snapshot after all published changes.
    pub fn subscribe(&self, resume: Option<u64>, current: &Arc<Snapshot>) -> Subscription {
        let start = match resume {
            Some(after) if (self.oldest_resumable..=current.revision).contains(&after) => {
                SubscriptionStart::Resume(
                    self.buffer.iter().filter(|change| change.revision > after).cloned().collect(),
                )
            }
            _ => SubscriptionStart::Snapshot(current.clone()),
        };
        Subscription { start, changes: self.subscribers.subscribe() }
    }
}
