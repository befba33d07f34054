//! CleanStale: an order of the cluster to clean up after deleted pods, and the answer what is left of
//! them.
//!
//! In: a quarantine's id, uids of pods. Out: the state of each pod, from readings that are newer than
//! the request (`model::clean_order`). What this node may remove is removed by a task of its own,
//! which the answer does not wait for; the caller repeats the request. One order at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Extensions, Status};

use crate::api::server::caller::{AgentAccess, AgentCallers, caller_uid};
use crate::api::server::cleanup::{Cleaner, OrderPermit};
use crate::api::status::{MAX_QUERY, denied, failed_precondition, invalid, required};
use crate::state::handle::{Handle, WantedReading};
use diskvitals_convert as convert;
use diskvitals_convert::node_facts::NodeFacts;
use diskvitals_finding::path::HostPath;
use diskvitals_model::clean_order::{
    CleanResult, OrderEvidence, OrderStatus, PodProgress, PodState, judge, plans, recorded_pods,
    unreadable_cause,
};
use diskvitals_model::cleanup::CleanupPlan;
use diskvitals_model::snapshot::Snapshot;
use diskvitals_model::source_update::SourceRequest;
use diskvitals_text::echo::{echo, truncate};
use diskvitals_wire as wire;

const MAX_PODS: usize = 64;
const MAX_UID_LEN: usize = 64;
/// Mounts that are listed besides the pods'.
const MAX_LEFT: usize = 16;
/// Longest detail of a pod, in bytes: an opener's path may be long.
const MAX_DETAIL_LEN: usize = 512;
/// A kubelet's directory that hangs is reported as unreadable within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval of attempts for a mount that cannot be removed.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Who may give orders, and whether they are carried out (`[cleanup]` in the configuration).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderSettings {
    pub allowed: bool,
    /// Besides the callers that may do everything on the agent's socket.
    pub uids: Vec<u32>,
}

#[derive(Clone)]
pub(crate) struct CleanOrders {
    handle: Handle,
    node: Arc<NodeFacts>,
    cleaner: Cleaner,
    callers: watch::Receiver<AgentCallers>,
    settings: watch::Receiver<OrderSettings>,
    state: Arc<Mutex<OrderState>>,
}

/// What the present order has done.
#[derive(Default)]
struct OrderState {
    id: String,
    results: BTreeMap<String, CleanResult>,
    /// Removals are under way.
    is_busy: bool,
    /// Their pods, each with the start.
    running: BTreeMap<String, Instant>,
    /// Since when the kubelet has had a record of a pod without a mount.
    recorded_since: BTreeMap<String, Instant>,
    next_attempt: Option<Instant>,
    /// The log names what was not read once.
    has_named_not_read: bool,
}

impl CleanOrders {
    pub(crate) fn new(
        handle: Handle,
        node: Arc<NodeFacts>,
        cleaner: Cleaner,
        callers: watch::Receiver<AgentCallers>,
        settings: watch::Receiver<OrderSettings>,
    ) -> CleanOrders {
        CleanOrders { handle, node, cleaner, callers, settings, state: Arc::default() }
    }

    pub(crate) async fn clean_stale(
        &self,
        caller: &Extensions,
        request: &wire::CleanStaleRequest,
    ) -> Result<wire::StaleCleaning, Status> {
        self.authorize(caller)?;
        let pod_uids = validate(request)?;
        self.begin(&request.quarantine_id)?;
        let is_allowed = self.settings.borrow().allowed;
        let fresh = self
            .handle
            .read_again(
                vec![SourceRequest::Mounts, SourceRequest::Kubelet],
                vec![WantedReading::MountTable, WantedReading::KubeletRecords],
                PATIENCE,
            )
            .await?;
        // /proc is not searched for nothing.
        let holds = match unreadable_cause(&fresh.snapshot, &fresh.missing) {
            Some(why) => Err(why),
            None => {
                let uids = pod_uids.iter().cloned().collect();
                let root = fresh.snapshot.node_context.kubelet_root.clone();
                self.cleaner.pod_holds(root, uids).await
            }
        };
        let status = {
            let mut state = self.state();
            state.note_records(recorded_pods(&fresh.snapshot, &pod_uids).collect());
            if let Ok(holds) = &holds {
                state.name_not_read(&holds.not_read);
            }
            judge(&OrderEvidence {
                snapshot: &fresh.snapshot,
                missing: &fresh.missing,
                holds: holds.as_ref().map(|it| it.holds.as_slice()).map_err(String::as_str),
                pod_uids: &pod_uids,
                progress: &state.progress(&pod_uids),
                is_allowed,
            })
        };
        if is_allowed {
            self.start_removals(&fresh.snapshot, &status, &request.quarantine_id);
        }
        Ok(wire::StaleCleaning {
            node: Some(convert::node(&fresh.snapshot, &self.node)),
            orders_allowed: is_allowed,
            unreadable: status.unreadable.unwrap_or_default(),
            pods: status.pods.into_iter().map(pod_to_wire).collect(),
            left: status
                .left
                .iter()
                .take(MAX_LEFT)
                .map(|(path, why)| truncate(&format!("{path}: {why}"), MAX_DETAIL_LEN))
                .collect(),
        })
    }

    fn authorize(&self, caller: &Extensions) -> Result<(), Status> {
        let uid = caller_uid(caller);
        if uid.is_some_and(|uid| self.settings.borrow().uids.contains(&uid)) {
            return Ok(());
        }
        let callers = self.callers.borrow();
        callers
            .require(AgentAccess::Full, caller, "give orders to clean up")
            .map_err(|_| denied("give orders to clean up: see order_uids of [cleanup]", uid))
    }

    /// An order replaces another one that has nothing under way.
    fn begin(&self, id: &str) -> Result<(), Status> {
        let mut state = self.state();
        if state.id == id {
            return Ok(());
        }
        if state.is_busy {
            return Err(failed_precondition(format!(
                "the order `{}` is still being carried out",
                echo(&state.id)
            )));
        }
        *state = OrderState { id: id.to_owned(), ..OrderState::default() };
        Ok(())
    }

    fn start_removals(&self, snapshot: &Snapshot, status: &OrderStatus, id: &str) {
        let plans = plans(snapshot, status);
        let mut state = self.state();
        let now = Instant::now();
        let waits = state.next_attempt.is_some_and(|next| next > now);
        // Another caller may have begun, or replaced the order.
        if plans.is_empty() || state.is_busy || waits || state.id != id {
            return;
        }
        let Some(permit) = self.cleaner.try_begin_order() else {
            return;
        };
        state.next_attempt = Some(now + RETRY_INTERVAL);
        state.is_busy = true;
        for uid in plans.iter().flat_map(|(uids, _)| uids) {
            state.running.insert(uid.clone(), now);
        }
        drop(state);
        tracing::info!(order = id, volumes = plans.len(), "an order to clean up is carried out");
        let root = snapshot.node_context.kubelet_root.clone();
        tokio::spawn(self.clone().carry_out(plans, root, permit));
    }

    /// One volume that hangs delays no other one.
    async fn carry_out(
        self,
        plans: Vec<(BTreeSet<String>, CleanupPlan)>,
        root: HostPath,
        permit: OrderPermit,
    ) {
        let mut removals = JoinSet::new();
        for (uids, plan) in plans {
            let (orders, root, permit) = (self.clone(), root.clone(), permit.clone());
            removals.spawn(async move {
                let cleaner = &orders.cleaner;
                let result = cleaner.carry_out(&orders.handle, root, plan, &permit).await;
                orders.state().record(&uids, &result);
            });
        }
        while let Some(ended) = removals.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a removal of stale mounts has panicked");
            }
        }
        let mut state = self.state();
        // Also of those that have panicked.
        state.running.clear();
        state.is_busy = false;
    }

    /// The guard is never held across an await.
    fn state(&self) -> MutexGuard<'_, OrderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OrderState {
    fn note_records(&mut self, recorded: BTreeSet<&String>) {
        self.recorded_since.retain(|uid, _| recorded.contains(uid));
        for uid in recorded {
            self.recorded_since.entry(uid.clone()).or_insert_with(Instant::now);
        }
    }

    fn name_not_read(&mut self, not_read: &[String]) {
        if !not_read.is_empty() && !self.has_named_not_read {
            tracing::warn!(
                order = self.id,
                not_read = not_read.join(", "),
                "mounts in user namespaces are too many to read all of them; they hold no pod"
            );
        }
        self.has_named_not_read = !not_read.is_empty();
    }

    fn progress(&self, pod_uids: &BTreeSet<String>) -> BTreeMap<String, PodProgress> {
        let of = |uid: &String| PodProgress {
            last: self.results.get(uid).cloned(),
            running_for: self.running.get(uid).map(Instant::elapsed),
            recorded_for: self.recorded_since.get(uid).map(Instant::elapsed),
        };
        pod_uids.iter().map(|uid| (uid.clone(), of(uid))).collect()
    }

    /// A pod with several volumes keeps the worst result.
    fn record(&mut self, uids: &BTreeSet<String>, result: &CleanResult) {
        for uid in uids {
            let began = self.running.remove(uid);
            let is_first = began.is_some();
            let known = self.results.get(uid);
            if is_first || known.is_none_or(|known| *known == CleanResult::Done) {
                self.results.insert(uid.clone(), result.clone());
            }
        }
    }
}

fn validate(request: &wire::CleanStaleRequest) -> Result<BTreeSet<String>, Status> {
    required("quarantine_id", &request.quarantine_id, MAX_QUERY)?;
    let uids = &request.pod_uids;
    if uids.len() > MAX_PODS {
        let entries = uids.len();
        return Err(invalid(
            "pod_uids",
            format_args!("has {entries} entries, at most {MAX_PODS} are allowed"),
        ));
    }
    for uid in uids {
        required("pod_uids", uid, MAX_UID_LEN)?;
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !uid.bytes().all(is_valid) {
            return Err(invalid(
                "pod_uids",
                format_args!("has `{}`, which is no uid of a pod", echo(uid)),
            ));
        }
    }
    Ok(uids.iter().cloned().collect())
}

fn pod_to_wire(pod: diskvitals_model::clean_order::PodStatus) -> wire::PodCleaning {
    use wire::pod_cleaning::State;
    let state = match pod.state {
        PodState::Absent => State::Absent,
        PodState::Cleaned => State::Cleaned,
        PodState::Cleaning => State::Cleaning,
        PodState::Held => State::Held,
        PodState::Hung => State::Hung,
        PodState::Foreign => State::Foreign,
        PodState::Unreadable => State::Unreadable,
        PodState::InUse => State::InUse,
        PodState::Failed => State::Failed,
        PodState::OrdersOff => State::OrdersOff,
    };
    wire::PodCleaning {
        pod_uid: pod.uid,
        state: state.into(),
        detail: truncate(&pod.detail, MAX_DETAIL_LEN),
    }
}
