//! What a check has let go of and what has not ended by then: a run that is dropped closes its
//! helper's pipes, by which the helper kills its checker and goes; one whose checker hangs in the
//! kernel stays, and until it has gone nothing else may check this filesystem.
//!
//! One for each check. In: ends that are awaited by nobody else. Out: those that do not come.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::host::exec::UnkillableChild;
use crate::host::helper::{Helper, HelperError};
use crate::source::checks::runner::{EXIT_TIMEOUT, await_exit};

#[derive(Clone, Debug, Default)]
pub struct OrphanedRuns(Arc<Mutex<Vec<JoinHandle<Option<UnkillableChild>>>>>);

impl OrphanedRuns {
    /// `end` waits a moment, and hands over what has not ended by then.
    pub fn add(&self, end: impl Future<Output = Option<UnkillableChild>> + Send + 'static) {
        // Without a runtime the daemon ends, and nobody asks any more.
        if let Ok(runtime) = Handle::try_current() {
            self.lock().push(runtime.spawn(end));
        }
    }

    /// What is left of all that was let go of: waits for as long as a process that was killed takes
    /// to go.
    pub async fn collect_unkillable(&self) -> Vec<UnkillableChild> {
        let ends = std::mem::take(&mut *self.lock());
        let mut left = Vec::new();
        for end in ends {
            // An error: the runtime ends.
            left.extend(end.await.ok().flatten());
        }
        left
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<Option<UnkillableChild>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A helper that is a stray as soon as it is let go of.
pub(super) struct GuardedHelper {
    helper: Option<Helper>,
    orphans: OrphanedRuns,
}

impl GuardedHelper {
    pub(super) fn new(helper: Helper, strays: &OrphanedRuns) -> GuardedHelper {
        GuardedHelper {
            helper: Some(helper),
            orphans: strays.clone(),
        }
    }

    pub(super) fn helper(&mut self) -> Result<&mut Helper, HelperError> {
        self.helper.as_mut().ok_or(HelperError::Exited)
    }

    pub(super) fn kill(&mut self) {
        if let Some(helper) = &mut self.helper {
            helper.kill();
        }
    }

    /// Whoever takes it waits for its end himself.
    pub(super) fn take(mut self) -> Option<Helper> {
        self.helper.take()
    }
}

impl Drop for GuardedHelper {
    fn drop(&mut self) {
        if let Some(helper) = self.helper.take() {
            self.orphans.add(await_exit(helper, EXIT_TIMEOUT));
        }
    }
}
