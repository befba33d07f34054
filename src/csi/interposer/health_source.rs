//! What the interposer needs from the daemon: one trait and the plain values that it exchanges.
//!
//! In: driver names, volume handles, lifecycle events. Out: health and usage. Knows neither the
//! daemon's wire nor CSI's: an implementation of [`HealthSource`] queries the daemon; `merge` and
//! `local_replies` encode the result as CSI messages.

use std::future::Future;

pub use crate::csi::health::{
    HealthErrorType, HealthStatus, HealthUnknown, VolumeCondition, VolumeHealth,
};
pub use crate::csi::stats::{Amount, Usage};

/// A volume of the driver in the daemon's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVolume {
    pub handle: String,
    /// Staged or published on this node, by the kubelet's records and the mount table.
    pub attached: bool,
    pub health: VolumeHealth,
}

/// A lifecycle call that succeeded, or the lack of one.
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
    /// The volume is attached here, but no call for it has passed since the interposer started: the
    /// kubelet reaches the driver by another socket.
    Bypassed {
        handle: String,
    },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HealthSourceError {
    /// The daemon cannot be reached.
    #[error("{0}")]
    Unavailable(String),
    /// The daemon answers, but the value is unknown (yet).
    #[error("not known: {0}")]
    Unknown(String),
    /// The daemon has no such volume, or not at this path.
    #[error("{0}")]
    NotFound(String),
}

/// Queries the daemon. Each answer comes from memory, or an error comes soon: the interposer waits
/// for no answer longer than a second.
pub trait HealthSource: Send + Sync + 'static {
    fn health(
        &self,
        driver: &str,
        handle: &str,
    ) -> impl Future<Output = Result<VolumeHealth, HealthSourceError>> + Send;
    /// `path`: where the caller expects the volume; NotFound where it is not there. Empty: not
    /// compared.
    fn usage(
        &self,
        driver: &str,
        handle: &str,
        path: &str,
    ) -> impl Future<Output = Result<Usage, HealthSourceError>> + Send;
    /// Faults of the drives below the driver's volumes; empty: none, or no drive is local.
    fn storage_health(
        &self,
        driver: &str,
    ) -> impl Future<Output = Result<Vec<HealthStatus>, HealthSourceError>> + Send;
    /// All known volumes of the driver.
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
