//! The controller's tasks over one API server: the watches, the election, and the owner of the state.
//!
//! In: a client, the duties. Out: writes, and the state for metrics and probes. It ends when it is
//! asked to, and gives its lease away.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::api::Api;
use crate::metrics::{State, render};
use crate::options::Options;
use crate::run::Owner;
use crate::timing::Timing;
use diskvitals_kubernetes::lease::{Candidate, Leadership};

/// Changes of the watches that wait for the owner.
const CHANGES: usize = 1024;

#[derive(Debug, thiserror::Error)]
#[error("the watch of {0} has ended")]
pub struct WatchEnded(&'static str);

pub struct Controller {
    api: Arc<Api>,
    owner: Owner,
    candidate: Candidate<Api>,
    states: watch::Receiver<Arc<State>>,
}

impl Controller {
    /// `namespace`: where the Lease is, unless the options name another one.
    pub fn new(
        client: kube::Client,
        namespace: &str,
        options: &Options,
        timing: Timing,
        identity: &str,
    ) -> Controller {
        let api = Arc::new(Api::new(client, timing.clone()));
        let lease_namespace = options.lease_namespace.as_deref();
        let candidate = Candidate {
            api: api.clone(),
            namespace: lease_namespace.unwrap_or(namespace).to_owned(),
            name: options.lease_name.clone(),
            identity: identity.to_owned(),
            timing: timing.lease.clone(),
            request_timeout: timing.request_timeout,
            max_backoff: timing.max_backoff,
        };
        let (state, states) = watch::channel(Arc::default());
        let owner = Owner::new(api.clone(), options, timing, identity, state);
        Controller { api, owner, candidate, states }
    }

    pub(crate) fn states(&self) -> watch::Receiver<Arc<State>> {
        self.states.clone()
    }

    /// Text of the metrics, now and later.
    pub fn metrics(&self) -> impl Fn() -> String + use<> {
        let states = self.states();
        move || {
            let state = states.borrow().clone();
            render(&state).unwrap_or_default()
        }
    }

    /// # Errors
    /// A watch has ended, which it never does.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), WatchEnded> {
        let Controller { api, owner, candidate, .. } = self;
        let (leads, leadership) = watch::channel(Leadership::default());
        let (changes, received) = mpsc::channel(CHANGES);
        let mut watches = JoinSet::new();
        for list in owner.watched().iter().copied() {
            let (api, changes) = (api.clone(), changes.clone());
            watches.spawn(async move {
                api.watch(list, &changes).await;
                list.resource()
            });
        }
        let ended = tokio::select! {
            () = stop => Ok(()),
            never = owner.run(received, leadership) => match never {},
            never = candidate.run(&leads) => match never {},
            Some(ended) = watches.join_next() => Err(WatchEnded(ended.unwrap_or("objects"))),
        };
        // The owner has ended with its writes: another one may lead.
        if leads.borrow().leads {
            candidate.release().await;
        }
        ended
    }
}
