//! Runs that were dropped and have not ended yet. Dropping a run closes the pipes of its helper,
//! which then kills its checker and exits. A checker that hangs in the kernel remains; until it
//! exits, nothing else may check this filesystem.
//!
//! One instance per check. In: exits that nothing else awaits. Out: the checkers that could not be
//! killed.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::checks::runner::{EXIT_TIMEOUT, await_exit};
use diskvitals_host::exec::UnkillableChild;
use diskvitals_host::helper::{Helper, HelperError};

#[derive(Clone, Debug, Default)]
pub struct OrphanedRuns(Arc<Mutex<Vec<JoinHandle<Option<UnkillableChild>>>>>);

impl OrphanedRuns {
    /// `end` waits a moment, and returns the process if it has not exited by then.
    pub fn add(&self, end: impl Future<Output = Option<UnkillableChild>> + Send + 'static) {
        // Without a runtime the daemon is ending, and nothing reads the result.
        if let Ok(runtime) = Handle::try_current() {
            self.lock().push(runtime.spawn(end));
        }
    }

    /// The dropped runs that could not be killed. Waits as long as a killed process needs to exit.
    pub(crate) async fn collect_unkillable(&self) -> Vec<UnkillableChild> {
        let ends = std::mem::take(&mut *self.lock());
        let mut left = Vec::new();
        for end in ends {
            // An error: the runtime is ending.
            left.extend(end.await.ok().flatten());
        }
        left
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<Option<UnkillableChild>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A helper that becomes an orphan when it is dropped.
pub(super) struct GuardedHelper {
    helper: Option<Helper>,
    orphans: OrphanedRuns,
}

impl GuardedHelper {
    pub(super) fn new(helper: Helper, orphans: &OrphanedRuns) -> GuardedHelper {
        GuardedHelper { helper: Some(helper), orphans: orphans.clone() }
    }

    pub(super) fn helper(&mut self) -> Result<&mut Helper, HelperError> {
        self.helper.as_mut().ok_or(HelperError::Exited)
    }

    pub(super) fn kill(&mut self) {
        if let Some(helper) = &mut self.helper {
            helper.kill();
        }
    }

    /// Takes the helper; the caller then waits for its exit.
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
