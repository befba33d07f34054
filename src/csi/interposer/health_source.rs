//! What the interposer wants to know of the daemon, and what it tells it: plain values and one
//! trait.
//!
//! In: driver names and volume handles. Out: what is known of them. Knows neither the daemon's wire
//! nor CSI's: whoever implements [`Witness`] asks the daemon, and `merge` and `answer` put it into
//! CSI's messages.

use std::future::Future;

pub use crate::csi::health::{
    HealthErrorType, HealthStatus, HealthUnknown, VolumeCondition, VolumeHealth,
};
pub use crate::csi::stats::{Amount, Usage};

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
