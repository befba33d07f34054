//! The duties that own a state of their own: each is called with what it may look at, and what it has
//! to say is published.
//!
//! In: a call. Out: its outcome.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::release::Now;
use crate::quarantine::Quarantines;
use crate::release::{Context, Engine};
use crate::run::Owner;
use crate::unreachable::{self, UnreachableStorage};
use diskvitals_host::clock;

impl Owner {
    pub(super) fn with_release<T>(
        &mut self,
        act: impl FnOnce(&mut Engine, Context<'_>) -> T,
    ) -> Option<T> {
        let (now, lease_left) = self.moment();
        let release = self.release.as_mut()?;
        let view = &self.view;
        let outcome = act(release, Context { view, now, lease_left });
        let news = release.take_news();
        self.announce_all(news);
        Some(outcome)
    }

    pub(super) fn with_quarantines<T>(
        &mut self,
        act: impl FnOnce(&mut Quarantines, Context<'_>) -> T,
    ) -> Option<T> {
        let (now, lease_left) = self.moment();
        let quarantines = self.quarantines.as_mut()?;
        let view = &self.view;
        let outcome = act(quarantines, Context { view, now, lease_left });
        let news = quarantines.take_news();
        self.announce_all(news);
        Some(outcome)
    }

    pub(super) fn with_unreachable<T>(
        &mut self,
        act: impl FnOnce(&mut UnreachableStorage, unreachable::Context<'_>) -> T,
    ) -> Option<T> {
        let (now, server) = (self.now(), self.api.server_now());
        let unreachable = self.unreachable.as_mut()?;
        let view = &self.view;
        let outcome = act(unreachable, unreachable::Context { view, now, server });
        let news = unreachable.take_news();
        self.announce_all(news);
        Some(outcome)
    }

    /// The time of a decision, and how much longer this process leads.
    fn moment(&self) -> (Now, Option<Duration>) {
        let now = Now { elapsed: self.now(), wall: clock::wall_now() };
        let until = self.leads_until.filter(|_| self.leads);
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        (now, left)
    }
}
