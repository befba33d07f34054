//! Starts checks and scrubs that are due: a helper process for each (`worker_main::care`).
//!
//! In: `SourceRequest::Scrub`. Out: `SourceUpdate::ScrubStarted`. Whether it runs, and how it ends, other
//! sources see.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;

use crate::context::{Context, SourceError};
use crate::worker_main::{WorkerRole, arguments};
use diskvitals_host::exec::{Exec, ExecError, UnkillableChild, run_own};
use diskvitals_model::care::scrubs::{ScrubStart, ScrubTarget};
use diskvitals_model::source_update::{SourceRequest, SourceUpdate};
use diskvitals_text::causes::with_causes;

/// `zpool scrub` waits for the pool's transactions.
const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_OUTPUT: usize = 4096;

/// Runs until the owner of the state ends.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    let mut starting = JoinSet::new();
    let mut stuck: BTreeMap<ScrubTarget, UnkillableChild> = BTreeMap::new();
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Ok(SourceRequest::Scrub(start)) => {
                    stuck.retain(|_, child| !child.has_exited());
                    if stuck.contains_key(&start.target) {
                        let why = "an earlier start hangs in the kernel".to_owned();
                        report(&context, start.target, Err(why)).await?;
                    } else {
                        starting.spawn(begin(helper(&context, &start), start.target));
                    }
                }
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
            },
            Some(Ok((target, result, child))) = starting.join_next() => {
                if let Some(child) = child {
                    stuck.insert(target.clone(), child);
                }
                report(&context, target, result).await?;
            }
        }
    }
}

async fn report(
    context: &Context,
    target: ScrubTarget,
    result: Result<(), String>,
) -> Result<(), SourceError> {
    match &result {
        Ok(()) => tracing::info!(?target, "a check or scrub has begun"),
        Err(why) => tracing::warn!(?target, why, "a check or scrub did not begin"),
    }
    context.report(SourceUpdate::ScrubStarted { target, result }).await
}

fn helper(context: &Context, start: &ScrubStart) -> Exec {
    let ours = arguments(WorkerRole::Care, &context.root).into_iter();
    let ours = ours.map(|argument| argument.to_string_lossy().into_owned());
    Exec {
        program: context.checker.program.clone(),
        args: ours.chain([serde_json::json!(start).to_string()]).collect(),
        stdin: Vec::new(),
        timeout: TIMEOUT,
        max_output: MAX_OUTPUT,
    }
}

async fn begin(
    exec: Exec,
    target: ScrubTarget,
) -> (ScrubTarget, Result<(), String>, Option<UnkillableChild>) {
    match run_own(&exec).await {
        Ok(output) if ExitStatus::from_raw(output.status).success() => (target, Ok(()), None),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            (target, Err(said), None)
        }
        Err(ExecError::Unkillable { child, .. }) => {
            (target, Err("its start hangs in the kernel".to_owned()), Some(child))
        }
        Err(error) => (target, Err(with_causes(&error)), None),
    }
}
