//! ForceCleanup: removes a volume's stale mounts, after its pods have been deleted, step by step,
//! and logs each step.
//!
//! In: a plan (`model::cleanup`). Out: the state of each step. Worker processes execute the steps;
//! a step that hangs ends the clean-up, not the daemon. The answer does not wait for a step that is
//! still running when the answer is due; the step continues.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tonic::Status;

use crate::api::resolve::resolve_volume;
use crate::api::status::{failed_precondition, unresolved};
use crate::state::handle::Handle;
use diskvitals_finding::path::HostPath;
use diskvitals_model::clean_order::{CleanResult, PodHolds};
use diskvitals_model::cleanup::{CleanupAction, CleanupPlan, CleanupTarget, Grace, plan};
use diskvitals_model::snapshot::Snapshot;
use diskvitals_model::source_update::SourceRequest as RefreshTarget;
use diskvitals_provision::step::{RootedPath, Step, StepError, StepErrorKind, StepOutput};
use diskvitals_wire as wire;
use diskvitals_wire::cleanup_step::State;

/// Shorter than the server's time-out for an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(9);
/// The kernel first detaches a mount from the tree and then writes back its data, which a device
/// that hangs never accepts.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(3);
/// The records of this node's own volumes are small.
const RESCAN_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of processes that a refusal names.
const MAX_NAMED_OPENERS: usize = 5;

/// Executes steps in worker processes, each with its time-out.
#[tonic::async_trait]
pub trait CleanupBackend: Send + Sync + 'static {
    async fn execute(&self, target: &str, step: Step) -> Result<StepOutput, StepError>;

    /// The processes that use these mounts, read from /proc only: one line each (`812 (mysqld) has
    /// /x/y open`). An error if they cannot be determined.
    async fn openers(&self, mounts: Vec<HostPath>) -> Result<Vec<String>, StepError>;

    /// What holds these pods, read from /proc only. An error if it cannot be determined.
    async fn pod_holds(
        &self,
        kubelet_root: HostPath,
        pod_uids: Vec<String>,
    ) -> Result<PodHolds, StepError>;

    /// The engine of the node's own volumes compares its records with the host again.
    async fn rescan(&self);
}

/// Runs one clean-up at a time. One lazy clean-up may run beside it, for the mount in which the
/// first one hangs.
#[derive(Clone)]
pub struct Cleaner {
    backend: Arc<dyn CleanupBackend>,
    permit: Arc<Mutex<()>>,
    lazy_permit: Arc<Mutex<()>>,
}

impl Cleaner {
    pub fn new(backend: Arc<dyn CleanupBackend>) -> Cleaner {
        Cleaner { backend, permit: Arc::default(), lazy_permit: Arc::default() }
    }

    pub async fn run(
        &self,
        handle: &Handle,
        request: &wire::ForceCleanupRequest,
    ) -> Result<wire::ForceCleanupResponse, Status> {
        let snapshot = handle.snapshot();
        let plan = make_plan(&snapshot, &request.query)?;
        self.refuse_if_in_use(&plan).await?;
        let volume_id = plan.volume.to_string();
        if !request.commit {
            return Ok(wire::ForceCleanupResponse { volume_id, steps: planned_steps(&plan) });
        }
        let permit = match request.lazy {
            true => &self.lazy_permit,
            false => &self.permit,
        };
        let Ok(permit) = permit.clone().try_lock_owned() else {
            return Err(failed_precondition("another clean-up is under way"));
        };
        tracing::info!(
            volume = volume_id,
            lazy = request.lazy,
            steps = plan.actions.len(),
            "a clean-up begins"
        );
        let (progress, mut shown) = watch::channel(planned_steps(&plan));
        let root = snapshot.node_context.kubelet_root.clone();
        let run = CleanupRun {
            backend: self.backend.clone(),
            handle: handle.clone(),
            root,
            lazy: request.lazy,
            offers_lazy: true,
            progress,
            _permit: Arc::new(permit),
        };
        let mut work = tokio::spawn(run.run(plan));
        // A panic was already logged by its thread; its steps appear as not started.
        let _ = tokio::time::timeout(RESPONSE_TIMEOUT, &mut work).await;
        let steps = shown.borrow_and_update().clone();
        Ok(wire::ForceCleanupResponse { volume_id, steps })
    }

    async fn refuse_if_in_use(&self, plan: &CleanupPlan) -> Result<(), Status> {
        match self.openers(plan).await {
            Ok(None) => Ok(()),
            Ok(Some(openers)) => Err(failed_precondition(format!(
                "it is in use: {openers}; these processes must end first"
            ))),
            Err(why) => {
                Err(failed_precondition(format!("whether a process uses it is unknown: {why}")))
            }
        }
    }

    /// The processes that use the plan's mounts, or why that is not known.
    async fn openers(&self, plan: &CleanupPlan) -> Result<Option<String>, String> {
        let openers = self.backend.openers(plan.mounts.clone());
        let openers = match tokio::time::timeout(RESPONSE_TIMEOUT, openers).await {
            Ok(openers) => openers.map_err(|error| error.to_string())?,
            Err(_) => return Err(no_answer()),
        };
        if openers.is_empty() {
            return Ok(None);
        }
        let more = openers.len().saturating_sub(MAX_NAMED_OPENERS);
        let rest = match more {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let named = openers[..openers.len() - more].join(", ");
        Ok(Some(format!("{named}{rest}")))
    }

    /// What holds these pods, or why that is not known.
    pub async fn pod_holds(
        &self,
        kubelet_root: HostPath,
        pod_uids: Vec<String>,
    ) -> Result<PodHolds, String> {
        let holds = self.backend.pod_holds(kubelet_root, pod_uids);
        match tokio::time::timeout(RESPONSE_TIMEOUT, holds).await {
            Ok(holds) => holds.map_err(|error| format!("what holds the pods is unknown: {error}")),
            Err(_) => Err(format!("what holds the pods is unknown: {}", no_answer())),
        }
    }

    /// The right to carry out plans of an order; None while another clean-up is under way.
    pub(crate) fn try_begin_order(&self) -> Option<OrderPermit> {
        let permit = self.permit.clone().try_lock_owned().ok()?;
        Some(OrderPermit(Arc::new(permit)))
    }

    /// Carries out a plan, never lazily, unless a process uses one of its mounts.
    pub async fn carry_out(
        &self,
        handle: &Handle,
        root: HostPath,
        plan: CleanupPlan,
        permit: &OrderPermit,
    ) -> CleanResult {
        match self.openers(&plan).await {
            Ok(None) => {}
            Ok(Some(openers)) => return CleanResult::Held(openers),
            Err(why) => {
                let why = format!("whether a process uses it is unknown: {why}");
                return CleanResult::Failed(why);
            }
        }
        let run = CleanupRun {
            backend: self.backend.clone(),
            handle: handle.clone(),
            root,
            lazy: false,
            offers_lazy: false,
            progress: watch::channel(planned_steps(&plan)).0,
            _permit: permit.0.clone(),
        };
        match run.run(plan).await {
            None => CleanResult::Done,
            Some((StepErrorKind::InUse, why)) => CleanResult::Held(why),
            Some((StepErrorKind::Stuck, why)) => CleanResult::Hung(why),
            Some((_, why)) => CleanResult::Failed(why),
        }
    }
}

/// Clean-ups of one order run beside each other.
#[derive(Clone)]
pub struct OrderPermit(Arc<OwnedMutexGuard<()>>);

fn no_answer() -> String {
    format!("no answer within {} s", RESPONSE_TIMEOUT.as_secs())
}

/// The path of one attachment selects that attachment only; any other query selects a volume.
fn make_plan(snapshot: &Snapshot, query: &str) -> Result<CleanupPlan, Status> {
    let by_path = query
        .starts_with('/')
        .then(|| snapshot.node_context.resolve_kubelet_path(&HostPath::unescape(query.as_bytes())));
    let wanted = match by_path.and_then(|path| snapshot.attachments.get(&path)) {
        Some(attachment) => CleanupTarget::Attachment(attachment),
        None => {
            CleanupTarget::Volume(resolve_volume(snapshot, query).map_err(unresolved("query"))?)
        }
    };
    plan(snapshot, wanted, Grace::Required)
        .map_err(|refusal| failed_precondition(refusal.to_string()))
}

fn planned_steps(plan: &CleanupPlan) -> Vec<wire::CleanupStep> {
    let step = |action: &CleanupAction| wire::CleanupStep {
        action: action.description().to_owned(),
        path: action.path().to_string(),
        state: State::Planned.into(),
        detail: String::new(),
    };
    plan.actions.iter().map(step).collect()
}

struct CleanupRun {
    backend: Arc<dyn CleanupBackend>,
    handle: Handle,
    root: HostPath,
    lazy: bool,
    /// A person who reads the answer may decide to unmount lazily.
    offers_lazy: bool,
    progress: watch::Sender<Vec<wire::CleanupStep>>,
    _permit: Arc<OwnedMutexGuard<()>>,
}

impl CleanupRun {
    /// Returns the step that failed and ended the clean-up.
    async fn run(self, plan: CleanupPlan) -> Option<(StepErrorKind, String)> {
        let mut failure = None;
        for (at, action) in plan.actions.iter().enumerate() {
            self.set_step_state(at, State::Planned, "under way");
            let (state, detail, kind) = self.execute_action(&plan, action).await;
            let (path, volume) = (action.path().to_string(), plan.volume.as_str());
            let step = action.description();
            match state {
                State::Failed => {
                    tracing::warn!(volume, step, path, detail, "a step of a clean-up failed");
                }
                _ => tracing::info!(volume, step, path, detail, "a step of a clean-up is done"),
            }
            self.set_step_state(at, state, &detail);
            if let Some(kind) = kind.filter(|_| action.is_required()) {
                failure = Some((kind, detail));
                break;
            }
        }
        let rescan = tokio::time::timeout(RESCAN_TIMEOUT, self.backend.rescan());
        if plan.is_provided && rescan.await.is_err() {
            tracing::warn!(
                "the node's own volumes were not rescanned after a clean-up: their disk does not respond"
            );
        }
        for target in [RefreshTarget::Mounts, RefreshTarget::Kubelet] {
            // An error: the daemon is ending; it reads both again at its next start.
            let _ = self.handle.refresh(target).await;
        }
        failure
    }

    async fn execute_action(
        &self,
        plan: &CleanupPlan,
        action: &CleanupAction,
    ) -> (State, String, Option<StepErrorKind>) {
        let target = self.lock_target(plan, action);
        let mut taken = std::pin::pin!(self.backend.execute(&target, self.step(action)));
        let CleanupAction::Unmount { path } = action else {
            return self.outcome(action, taken.await);
        };
        if let Ok(taken) = tokio::time::timeout(UNMOUNT_TIMEOUT, &mut taken).await {
            return self.outcome(action, taken);
        }
        // A separate target: the step that hangs keeps the lock of the other one.
        let target = format!("look at {path}");
        let find = Step::FindMount { target: self.rooted(path), folder: None };
        let found = self.backend.execute(&target, find);
        match tokio::time::timeout(UNMOUNT_TIMEOUT, found).await {
            Ok(Ok(StepOutput::Mounted { mounted: None })) => (
                State::Done,
                "it is detached from the tree; the kernel has not released the device yet"
                    .to_owned(),
                None,
            ),
            _ => self.outcome(action, taken.await),
        }
    }

    /// Steps with the same target wait for each other. Lazy steps wait for no other step of the
    /// volume: they are meant for a volume with a step that hangs.
    fn lock_target(&self, plan: &CleanupPlan, action: &CleanupAction) -> String {
        match action {
            CleanupAction::Unmount { path }
            | CleanupAction::Remove { path }
            | CleanupAction::RemoveIfEmpty { path }
                if self.lazy =>
            {
                format!("lazily {path}")
            }
            _ => plan.target.clone(),
        }
    }

    fn rooted(&self, path: &HostPath) -> RootedPath {
        RootedPath { root: self.root.clone(), path: path.clone() }
    }

    fn step(&self, action: &CleanupAction) -> Step {
        match action {
            CleanupAction::Unmount { path } => {
                Step::Unmount { target: self.rooted(path), lazy: self.lazy }
            }
            CleanupAction::Remove { path } | CleanupAction::RemoveIfEmpty { path } => {
                Step::RemoveTarget { target: self.rooted(path), owner: None }
            }
            CleanupAction::Detach { image } => Step::DetachImage { image: image.clone() },
            CleanupAction::Deactivate { group, name } => {
                Step::DeactivateLogicalVolume { group: group.clone(), name: name.clone() }
            }
        }
    }

    fn outcome(
        &self,
        action: &CleanupAction,
        taken: Result<StepOutput, StepError>,
    ) -> (State, String, Option<StepErrorKind>) {
        match taken {
            Ok(_) => (State::Done, String::new(), None),
            Err(error)
                if matches!(action, CleanupAction::RemoveIfEmpty { .. })
                    && error.kind == StepErrorKind::InUse =>
            {
                (State::Done, "it is not empty and stays".to_owned(), None)
            }
            Err(error) => {
                let lazily = matches!(action, CleanupAction::Unmount { .. })
                    && self.offers_lazy
                    && !self.lazy
                    && matches!(error.kind, StepErrorKind::InUse | StepErrorKind::Stuck);
                let hint = match lazily {
                    true => "; a lazy unmount detaches it from the tree anyway",
                    false => "",
                };
                (State::Failed, format!("{error}{hint}"), Some(error.kind))
            }
        }
    }

    fn set_step_state(&self, at: usize, state: State, detail: &str) {
        self.progress.send_modify(|steps| {
            if let Some(step) = steps.get_mut(at) {
                step.state = state.into();
                step.detail = detail.to_owned();
            }
        });
    }
}
