//! Withdrawal of health: before a shim goes, it answers the health calls with empty lists, because
//! the kubelet keeps the last answer in `pod.status.volumeHealth` and `csinode.status.storageHealth`
//! for ever once no driver answers. It is never automatic: an empty list means healthy.
//!
//! In: `--withdraw` or the Withdraw call, and the node's health calls. Out: whether health is
//! withdrawn, and whether the kubelet has completed a round since.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tonic::{Request, Response, Status};

use crate::health::VolumeHealth;
use crate::wire::withdrawal::withdrawal_server::{Withdrawal as WithdrawalCalls, WithdrawalServer};
use crate::wire::withdrawal::{WithdrawRequest, WithdrawResponse};

/// The kubelet queries each driver's storage exactly once in a round, and a volume once for each of
/// its pods (pkg/kubelet/volumemanager/volumehealth, 1.37). The first call for the storage may belong
/// to a round that began before the withdrawal. The second begins a complete round at the latest, and
/// the third comes after its end.
const CALLS_AFTER_A_ROUND: u64 = 3;
/// Callers could send any number of ids. A kubelet has far fewer volumes.
const MAX_COUNTED_VOLUMES: usize = 10_000;

/// The path of the Withdraw call.
pub(crate) const WITHDRAW: &str = "/diskvitals.withdrawal.v1.Withdrawal/Withdraw";

#[derive(Debug, Default)]
pub struct Withdrawal(Mutex<Option<Rounds>>);

/// The node's health calls since the withdrawal.
#[derive(Debug)]
struct Rounds {
    since: SystemTime,
    volumes: HashSet<String>,
    storage_calls: u64,
}

impl Rounds {
    fn begin() -> Rounds {
        tracing::warn!(
            "health is withdrawn: the health calls are answered with empty lists until this process ends"
        );
        Rounds { since: SystemTime::now(), volumes: HashSet::new(), storage_calls: 0 }
    }
}

impl Withdrawal {
    pub fn new(withdrawn: bool) -> Arc<Withdrawal> {
        Arc::new(Withdrawal(Mutex::new(withdrawn.then(Rounds::begin))))
    }

    pub fn is_active(&self) -> bool {
        self.lock().is_some()
    }

    /// Withdraws health, or returns the progress.
    pub fn begin(&self) -> WithdrawResponse {
        let mut rounds = self.lock();
        let rounds = rounds.get_or_insert_with(Rounds::begin);
        WithdrawResponse {
            since: Some(rounds.since.into()),
            volumes: rounds.volumes.len() as u64,
            storage_calls: rounds.storage_calls,
            round_completed: rounds.storage_calls >= CALLS_AFTER_A_ROUND,
        }
    }

    /// Records NodeGetVolumeHealth.
    pub(crate) fn record_volume_call(&self, id: &str) {
        if let Some(rounds) = self.lock().as_mut()
            && rounds.volumes.len() < MAX_COUNTED_VOLUMES
        {
            rounds.volumes.insert(id.to_owned());
        }
    }

    /// Records NodeGetStorageHealth.
    pub(crate) fn record_storage_call(&self) {
        if let Some(rounds) = self.lock().as_mut() {
            rounds.storage_calls += 1;
            if rounds.storage_calls == CALLS_AFTER_A_ROUND {
                tracing::info!(
                    volumes = rounds.volumes.len(),
                    "health is withdrawn: the kubelet has completed a round since"
                );
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Rounds>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The health of any volume while health is withdrawn. A condition (CSI 1.12) is left out: nothing
/// keeps it, and a normal one would be a statement.
pub(crate) fn withdrawn_health() -> VolumeHealth {
    VolumeHealth { statuses: Ok(Vec::new()), condition: None, local: true }
}

/// The Withdraw call, for the mode driver.
pub(crate) struct WithdrawalService(pub Arc<Withdrawal>);

impl WithdrawalService {
    pub(crate) fn server(self) -> WithdrawalServer<WithdrawalService> {
        WithdrawalServer::new(self)
    }
}

#[tonic::async_trait]
impl WithdrawalCalls for WithdrawalService {
    async fn withdraw(
        &self,
        _: Request<WithdrawRequest>,
    ) -> Result<Response<WithdrawResponse>, Status> {
        Ok(Response::new(self.0.begin()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_withdrawn_or_counted_without_a_request() {
        let withdrawal = Withdrawal::default();
        withdrawal.record_storage_call();
        assert!(!withdrawal.is_active());
        let begun = withdrawal.begin();
        assert!(withdrawal.is_active());
        assert_eq!((begun.storage_calls, begun.volumes), (0, 0));
    }

    #[test]
    fn a_round_is_complete_when_the_next_one_has_begun() {
        let withdrawal = Withdrawal::new(true);
        let since = withdrawal.begin().since;
        let completed = [(); 3].map(|()| {
            withdrawal.record_storage_call();
            withdrawal.begin().round_completed
        });
        assert_eq!(completed, [false, false, true]);
        assert_eq!(withdrawal.begin().since, since);
    }

    #[test]
    fn a_volume_of_many_pods_does_not_complete_a_round() {
        let withdrawal = Withdrawal::new(true);
        for _ in 0..10 {
            withdrawal.record_volume_call("shared");
        }
        let progress = withdrawal.begin();
        assert_eq!((progress.volumes, progress.round_completed), (1, false));
    }

    #[test]
    fn ids_that_never_end_take_bounded_memory() {
        let withdrawal = Withdrawal::new(true);
        for number in 0..2 * MAX_COUNTED_VOLUMES {
            withdrawal.record_volume_call(&number.to_string());
        }
        assert_eq!(withdrawal.begin().volumes, MAX_COUNTED_VOLUMES as u64);
    }
}
