//! Entering the host's mount namespace, from a thread of its own.

use diskvitals_host::namespace::{self, NamespaceError};
use diskvitals_host::root::HostRoot;

/// Maximum number of attempts to enter the host's mount namespace: mount tables may change during
/// their comparison.
const MAX_ATTEMPTS: usize = 5;

#[derive(Debug, thiserror::Error)]
#[error("the host's mount namespace is not reached, and so what is frozen cannot be known")]
pub(super) struct HostMountsError(#[source] NamespaceError);

pub(super) fn enter_host_mounts(root: &HostRoot) -> Result<(), HostMountsError> {
    let mut result = Ok(());
    for _ in 0..MAX_ATTEMPTS {
        result = namespace::enter_host_mounts(root);
        if result.is_ok() {
            break;
        }
    }
    result.map_err(HostMountsError)
}
