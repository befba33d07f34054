//! The interposer's interface to the daemon: one trait and the plain values that it exchanges.
//!
//! In: driver names, volume handles, lifecycle events. Out: health and usage. The interface depends
//! on no protocol: an implementation of [`HealthSource`] queries the daemon; `merge` and
//! `local_replies` encode the result as CSI messages.

use std::future::Future;

pub use crate::health::{
    HealthErrorType, HealthStatus, HealthUnknown, VolumeCondition, VolumeHealth,
};
pub use crate::stats::{Amount, Usage};

/// A volume of the driver in the daemon's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVolume {
    pub handle: String,
    /// Staged or published on this node, according to the kubelet's records and the mount table.
    pub attached: bool,
    pub health: VolumeHealth,
}

/// A successful lifecycle call, or the lack of one.
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
    /// kubelet uses another socket of the driver.
    Bypassed {
        handle: String,
    },
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HealthSourceError {
    /// The daemon cannot be reached.
    #[error("{0}")]
    Unavailable(String),
    /// The daemon answers, but the value is unknown (yet).
    #[error("not known: {0}")]
    Unknown(String),
    /// The daemon has no volume with this handle, or not at this path.
    #[error("{0}")]
    NotFound(String),
}

/// Queries the daemon. Each answer comes from memory, or an error comes soon: the interposer waits
/// at most a second.
pub trait HealthSource: Send + Sync + 'static {
    fn health(
        &self,
        driver: &str,
        handle: &str,
    ) -> impl Future<Output = Result<VolumeHealth, HealthSourceError>> + Send;
    /// `path`: where the caller expects the volume; NotFound if it is not there. An empty path is
    /// not compared.
    fn usage(
        &self,
        driver: &str,
        handle: &str,
        path: &str,
    ) -> impl Future<Output = Result<Usage, HealthSourceError>> + Send;
    /// Faults of the drives below the driver's volumes; empty if there are none or no drive is
    /// local.
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
