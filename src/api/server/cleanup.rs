//! Taking away what is left mounted of a volume whose pods are gone: looked at, then done one step
//! after the other, each logged and told.
//!
//! In: a plan (`model::cleanup`). Out: how far it came. The steps are taken by worker processes; a
//! step that hangs ends the clean-up, not the daemon. The answer does not wait for it: what is
//! under way when the answer is due goes on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tonic::Status;

use crate::api::resolve::resolve_volume;
use crate::api::status::{failed_precondition, unresolved};
use crate::api::wire;
use crate::api::wire::cleanup_step::State;
use crate::attach::step::{Done, Place, Step, StepError, Trouble};
use crate::model::cleanup::{Action, Plan, Wanted, plan};
use crate::model::path::HostPath;
use crate::model::report::Request as Look;
use crate::model::snapshot::Snapshot;
use crate::state::handle::Handle;

/// Below what the server allows one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(9);
/// The kernel takes a mount out of the tree first and then writes back what is not written, which a
/// device that hangs never takes.
const UNMOUNT_WITHIN: Duration = Duration::from_secs(3);
/// The records of this node's own volumes are small.
const LOOKED_WITHIN: Duration = Duration::from_secs(60);
/// Holders that a refusal names.
const NAMED: usize = 5;

/// What a clean-up needs done; in worker processes, each with its time-out.
#[tonic::async_trait]
pub trait Cleanup: Send + Sync + 'static {
    async fn take(&self, target: &str, step: Step) -> Result<Done, StepError>;

    /// Who holds what is mounted at these places, from /proc alone: a line each
    /// (`812 (mysqld) has /x/y open`). An error where that cannot be told.
    async fn holders(&self, mounts: Vec<HostPath>) -> Result<Vec<String>, String>;

    /// The keeper of this node's own volumes looks at them anew.
    async fn look_again(&self);
}

/// One clean-up at a time, and a lazy one beside it: that is for what the other hangs in.
#[derive(Clone)]
pub struct Cleaner {
    hands: Arc<dyn Cleanup>,
    turn: Arc<Mutex<()>>,
    lazy_turn: Arc<Mutex<()>>,
}

impl Cleaner {
    pub fn new(hands: Arc<dyn Cleanup>) -> Cleaner {
        Cleaner {
            hands,
            turn: Arc::default(),
            lazy_turn: Arc::default(),
        }
    }

    pub async fn clean(
        &self,
        handle: &Handle,
        request: &wire::ForceCleanupRequest,
    ) -> Result<wire::ForceCleanupResponse, Status> {
        let snapshot = handle.snapshot();
        let plan = planned(&snapshot, &request.query)?;
        self.refuse_if_held(&plan).await?;
        let volume_id = plan.volume.to_string();
        if !request.commit {
            return Ok(wire::ForceCleanupResponse {
                volume_id,
                steps: steps(&plan),
            });
        }
        let turn = if request.lazy {
            &self.lazy_turn
        } else {
            &self.turn
        };
        let Ok(turn) = turn.clone().try_lock_owned() else {
            return Err(failed_precondition("another clean-up is under way"));
        };
        tracing::info!(
            volume = volume_id,
            lazy = request.lazy,
            steps = plan.actions.len(),
            "a clean-up begins"
        );
        let (told, mut shown) = watch::channel(steps(&plan));
        let root = snapshot.surroundings.kubelet_root.clone();
        let conduct = Conduct {
            hands: self.hands.clone(),
            handle: handle.clone(),
            root,
            lazy: request.lazy,
            told,
            _turn: turn,
        };
        let mut work = tokio::spawn(conduct.run(plan));
        // A panic has been told by its thread, and shows as steps that were not begun.
        let _ = tokio::time::timeout(ANSWER_WITHIN, &mut work).await;
        let steps = shown.borrow_and_update().clone();
        Ok(wire::ForceCleanupResponse { volume_id, steps })
    }

    async fn refuse_if_held(&self, plan: &Plan) -> Result<(), Status> {
        let looking =
            tokio::time::timeout(ANSWER_WITHIN, self.hands.holders(plan.mounts.clone())).await;
        let holders = looking
            .unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())));
        let holders = holders.map_err(|why| {
            failed_precondition(format!(
                "it cannot be told whether a process holds it: {why}"
            ))
        })?;
        if holders.is_empty() {
            return Ok(());
        }
        let more = holders.len().saturating_sub(NAMED);
        let rest = if more > 0 {
            format!(", and {more} more")
        } else {
            String::new()
        };
        let named: Vec<String> = holders.into_iter().take(NAMED).collect();
        Err(failed_precondition(format!(
            "it is held: {}{rest}; what holds it must end first",
            named.join(", ")
        )))
    }
}

/// A path of one attachment means that one alone; anything else is a volume.
fn planned(snapshot: &Snapshot, query: &str) -> Result<Plan, Status> {
    let by_path = query.starts_with('/').then(|| {
        snapshot
            .surroundings
            .as_mounted(&HostPath::unescape(query.as_bytes()))
    });
    let wanted = match by_path.and_then(|path| snapshot.attachments.get(&path)) {
        Some(attachment) => Wanted::Place(attachment),
        None => Wanted::Volume(
            resolve_volume(snapshot, query).map_err(|error| unresolved("query", &error))?,
        ),
    };
    plan(snapshot, wanted).map_err(|refusal| failed_precondition(refusal.to_string()))
}

fn steps(plan: &Plan) -> Vec<wire::CleanupStep> {
    let step = |action: &Action| wire::CleanupStep {
        action: action.words().to_owned(),
        path: action.path().to_string(),
        state: State::Planned.into(),
        detail: String::new(),
    };
    plan.actions.iter().map(step).collect()
}

struct Conduct {
    hands: Arc<dyn Cleanup>,
    handle: Handle,
    root: HostPath,
    lazy: bool,
    told: watch::Sender<Vec<wire::CleanupStep>>,
    _turn: OwnedMutexGuard<()>,
}

impl Conduct {
    async fn run(self, plan: Plan) {
        for (at, action) in plan.actions.iter().enumerate() {
            self.tell(at, State::Planned, "under way");
            let (state, detail) = self.take(&plan, action).await;
            let (path, volume) = (action.path().to_string(), plan.volume.as_str());
            match state {
                State::Failed => tracing::warn!(
                    volume,
                    step = action.words(),
                    path,
                    detail,
                    "a step of a clean-up failed"
                ),
                _ => tracing::info!(
                    volume,
                    step = action.words(),
                    path,
                    detail,
                    "a step of a clean-up is done"
                ),
            }
            self.tell(at, state, &detail);
            if state == State::Failed && action.is_needed() {
                break;
            }
        }
        if plan.ours
            && tokio::time::timeout(LOOKED_WITHIN, self.hands.look_again())
                .await
                .is_err()
        {
            tracing::warn!(
                "this node's own volumes have not been looked at after a clean-up: their disk does not answer"
            );
        }
        for look in [Look::Mounts, Look::Kubelet] {
            // An error: the daemon ends, and looks again when it starts.
            let _ = self.handle.refresh(look).await;
        }
    }

    async fn take(&self, plan: &Plan, action: &Action) -> (State, String) {
        let target = self.target(plan, action);
        let mut taken = std::pin::pin!(self.hands.take(&target, self.step(action)));
        let Action::Unmount { path } = action else {
            return self.outcome(action, taken.await);
        };
        if let Ok(taken) = tokio::time::timeout(UNMOUNT_WITHIN, &mut taken).await {
            return self.outcome(action, taken);
        }
        // Under a name of its own: the step that hangs keeps the other one.
        let look = Step::WhatIsMounted {
            target: Place {
                root: self.root.clone(),
                path: path.clone(),
            },
        };
        match tokio::time::timeout(
            UNMOUNT_WITHIN,
            self.hands.take(&format!("look at {path}"), look),
        )
        .await
        {
            Ok(Ok(Done::Mounted { mounted: None })) => (
                State::Done,
                "it is out of the tree; the kernel has not finished with what lies beneath"
                    .to_owned(),
            ),
            _ => self.outcome(action, taken.await),
        }
    }

    /// Whose turn a step waits for. What is taken out of the tree lazily, with the place beneath
    /// it, waits for no step of the volume: one that hangs is what it is for.
    fn target(&self, plan: &Plan, action: &Action) -> String {
        match action {
            Action::Unmount { path } | Action::Remove { path } | Action::RemoveIfEmpty { path }
                if self.lazy =>
            {
                format!("lazily {path}")
            }
            _ => plan.target.clone(),
        }
    }

    fn step(&self, action: &Action) -> Step {
        let target = |path: &HostPath| Place {
            root: self.root.clone(),
            path: path.clone(),
        };
        match action {
            Action::Unmount { path } => Step::Unmount {
                target: target(path),
                lazy: self.lazy,
            },
            Action::Remove { path } | Action::RemoveIfEmpty { path } => Step::RemoveTarget {
                target: target(path),
            },
            Action::Detach { image } => Step::DetachImage {
                image: image.clone(),
            },
            Action::Deactivate { group, name } => Step::DeactivateLogicalVolume {
                group: group.clone(),
                name: name.clone(),
            },
        }
    }

    fn outcome(&self, action: &Action, taken: Result<Done, StepError>) -> (State, String) {
        match taken {
            Ok(_) => (State::Done, String::new()),
            Err(error)
                if matches!(action, Action::RemoveIfEmpty { .. })
                    && error.kind == Trouble::Held =>
            {
                (State::Done, "it is not empty and stays".to_owned())
            }
            Err(error) => {
                let lazily = matches!(action, Action::Unmount { .. })
                    && !self.lazy
                    && matches!(error.kind, Trouble::Held | Trouble::Stuck);
                let hint = if lazily {
                    "; a lazy unmount takes it out of the tree all the same"
                } else {
                    ""
                };
                (State::Failed, format!("{error}{hint}"))
            }
        }
    }

    fn tell(&self, at: usize, state: State, detail: &str) {
        self.told.send_modify(|steps| {
            if let Some(step) = steps.get_mut(at) {
                step.state = state.into();
                step.detail = detail.to_owned();
            }
        });
    }
}
