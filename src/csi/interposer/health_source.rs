//! What the interposer wants to know of the daemon, and what it tells it: plain values and one
//! trait.
//!
//! In: driver names and volume handles. Out: what is known of them. Knows neither the daemon's wire
//! nor CSI's: whoever implements [`Witness`] asks the daemon, and `merge` and `answer` put it into
//! CSI's messages.

use std::future::Future;

pub use crate::csi::stats::{Amount, Usage};

/// CSI 1.13, VolumeHealthErrorType.
pub const DEGRADED: i32 = 1;
pub const INACCESSIBLE: i32 = 2;
pub const DATA_LOSS: i32 = 3;
/// CSI 1.13, StorageHealthErrorType.
pub const STORAGE_DEGRADED: i32 = 1;
pub const STORAGE_UNREACHABLE: i32 = 2;

/// One adverse thing, of a volume or of the storage beneath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthStatus {
    /// The enum's number on the wire: one of the constants above.
    pub status: i32,
    /// One CamelCase word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// CSI ≤ 1.12, VolumeCondition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeCondition {
    pub abnormal: bool,
    pub message: String,
}

/// What is known of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeHealth {
    /// Worst first; empty: nothing adverse. An error where it is not known, with the reason: then
    /// no list is given to anybody, since an empty one would say healthy.
    pub statuses: Result<Vec<HealthStatus>, String>,
    /// The same for callers of the old kind; where it is not known, the last that was (DESIGN:
    /// "unknown since").
    pub condition: VolumeCondition,
    /// Its drives are this node's own: what cannot be reached from here, can be reached from
    /// nowhere.
    pub local: bool,
}

impl VolumeHealth {
    /// As a controller says it, for which INACCESSIBLE means: from all nodes. Of a volume that
    /// others reach as well, one node's trouble is no more than DEGRADED.
    pub fn for_controller(mut self) -> VolumeHealth {
        if !self.local
            && let Ok(statuses) = &mut self.statuses
        {
            for status in statuses
                .iter_mut()
                .filter(|status| status.status == INACCESSIBLE)
            {
                status.status = DEGRADED;
                status.message = format!("as seen from one node: {}", status.message);
            }
        }
        self
    }
}

/// A volume of the driver's that the daemon knows of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVolume {
    pub handle: String,
    /// Staged or published on this node, by the kubelet's records and the mount table.
    pub attached: bool,
    pub health: VolumeHealth,
}

/// A call that went by, or did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifecycleEvent {
    Staged {
        handle: String,
        path: String,
    },
    Published {
        handle: String,
        path: String,
    },
    Unpublished {
        handle: String,
        path: String,
    },
    Unstaged {
        handle: String,
        path: String,
    },
    /// The volume is here, and no call for it went by since the interposer started: the kubelet
    /// reaches the driver by another way.
    Bypassed {
        handle: String,
    },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HealthSourceError {
    /// The daemon cannot be asked.
    #[error("{0}")]
    Unavailable(String),
    /// It was asked, and does not know (yet).
    #[error("not known: {0}")]
    Unknown(String),
    /// It knows no such volume, or not at this path.
    #[error("{0}")]
    NotFound(String),
}

/// Whoever asks the daemon. Each answer comes from memory, or soon as an error: the interposer
/// waits for none longer than a second.
pub trait HealthSource: Send + Sync + 'static {
    fn health(
        &self,
        driver: &str,
        handle: &str,
    ) -> impl Future<Output = Result<VolumeHealth, HealthSourceError>> + Send;
    /// `path`: where the caller believes it to be; NotFound where it is not there. Empty: not
    /// compared.
    fn usage(
        &self,
        driver: &str,
        handle: &str,
        path: &str,
    ) -> impl Future<Output = Result<Usage, HealthSourceError>> + Send;
    /// What is wrong with the drives beneath the driver's volumes; empty: nothing, or none of them
    /// are this node's.
    fn storage_health(
        &self,
        driver: &str,
    ) -> impl Future<Output = Result<Vec<HealthStatus>, HealthSourceError>> + Send;
    /// All volumes of the driver that are known.
    fn volumes(
        &self,
        driver: &str,
    ) -> impl Future<Output = Result<Vec<ListedVolume>, HealthSourceError>> + Send;
    fn notify(
        &self,
        driver: &str,
        event: &LifecycleEvent,
    ) -> impl Future<Output = Result<(), HealthSourceError>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_volume_unreachable_from_one_node_is_degraded_for_the_controller() {
        let status = |status, message: &str| HealthStatus {
            status,
            reason: "NotAccessible".into(),
            message: message.into(),
        };
        let told = |local, statuses| VolumeHealth {
            statuses: Ok(statuses),
            condition: VolumeCondition::default(),
            local,
        };
        let here = vec![status(INACCESSIBLE, "stale"), status(DATA_LOSS, "lost")];
        assert_eq!(
            told(true, here.clone()).for_controller().statuses,
            Ok(here.clone())
        );
        let demoted = vec![
            status(DEGRADED, "as seen from one node: stale"),
            status(DATA_LOSS, "lost"),
        ];
        assert_eq!(told(false, here).for_controller().statuses, Ok(demoted));
    }
}
