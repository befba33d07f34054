//! The stream of changes: told to whoever listens, and the latest kept for watchers that come back.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::broadcast;

use crate::model::snapshot::Snapshot;
use crate::state::handle::{Change, Start, Subscription};

/// Kept for resuming, and queued for each watcher. Each keeps a volume or a finding as it was in
/// locked memory.
pub const KEPT: usize = 2048;

#[derive(Debug)]
pub struct Changes {
    kept: VecDeque<Arc<Change>>,
    /// Every change after this revision is kept.
    floor: u64,
    listeners: broadcast::Sender<Arc<Change>>,
}

impl Changes {
    pub fn new(start: u64) -> Changes {
        Changes {
            kept: VecDeque::new(),
            floor: start,
            listeners: broadcast::Sender::new(KEPT),
        }
    }

    pub fn tell(&mut self, changes: Vec<Change>) {
        for change in changes.into_iter().map(Arc::new) {
            if self.kept.len() == KEPT
                && let Some(oldest) = self.kept.pop_front()
            {
                self.floor = oldest.revision;
            }
            self.kept.push_back(change.clone());
            // Nobody listening is no error.
            let _ = self.listeners.send(change);
        }
    }

    /// `current` is the picture after all that has been told.
    pub fn subscribe(&self, resume: Option<u64>, current: &Arc<Snapshot>) -> Subscription {
        let start = match resume {
            Some(after) if (self.floor..=current.revision).contains(&after) => Start::Resume(
                self.kept
                    .iter()
                    .filter(|change| change.revision > after)
                    .cloned()
                    .collect(),
            ),
            _ => Start::Snapshot(current.clone()),
        };
        Subscription {
            start,
            changes: self.listeners.subscribe(),
        }
    }
}
