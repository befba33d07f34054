//! The state of a ZFS pool, from /proc/spl/kstat/zfs/POOL/state: one word, which the module prints
//! without a lock, as a heartbeat (module/zfs/spa_stats.c, spa_state_data(); OpenZFS 0.7 and later).

use crate::layers::LayerError;
use diskvitals_host::root::HostRoot;
use diskvitals_model::stack::{PoolState, ZfsPool};

pub fn read(root: &HostRoot, pool: &str) -> Result<ZfsPool, LayerError> {
    let path = format!("/proc/spl/kstat/zfs/{pool}/state");
    let text = match root.read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        Err(source) => return Err(LayerError::Read { path, source }),
    };
    match PoolState::of_word(&text) {
        Some(state) => Ok(ZfsPool { state, ..ZfsPool::default() }),
        None if text == "TRANSITIONING" => Err(LayerError::Transitioning { path }),
        None => Err(LayerError::Malformed { path, text }),
    }
}
