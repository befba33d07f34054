//! The engine's view: an immutable copy of all volumes and capacities, published after each change.
//!
//! In: nothing. Out: the types that API handlers read, and the lookup of one volume.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::error::ProvisionError;
use crate::record::formatting::FormatAuthorization;
use crate::step::PoolCapacity;
use diskvitals_finding::provision::{BackingKind, ProvidedVolume, VolumeAccess};
use diskvitals_host::clock;

/// One volume, as callers receive it.
#[derive(Clone, Debug)]
pub struct VolumeView {
    pub provided: ProvidedVolume,
    pub name: String,
    pub created: Option<Timestamp>,
    pub mkfs_options: String,
    pub accesses: Vec<VolumeAccess>,
    /// Root's permission for one mkfs; it may have expired.
    pub authorization: Option<FormatAuthorization>,
    /// Description of the operation that is running on it.
    pub activity: Option<watch::Receiver<String>>,
}

impl VolumeView {
    pub fn valid_authorization(&self) -> Option<&FormatAuthorization> {
        let is_valid = |it: &&FormatAuthorization| it.is_valid(clock::now());
        self.authorization.as_ref().filter(is_valid)
    }

    pub fn current_activity(&self) -> Option<String> {
        self.activity.as_ref().map(|busy| busy.borrow().clone())
    }
}

/// All volumes and capacities, as of the last change.
#[derive(Clone, Debug, Default)]
pub struct EngineView {
    /// None after the records were read; before, the reason why the volumes are unknown.
    pub records_error: Option<String>,
    /// The reason why the volumes of the volume group are unknown.
    pub volume_group_error: Option<String>,
    pub volumes: BTreeMap<String, VolumeView>,
    /// One entry for each configured kind.
    pub capacities: Vec<(BackingKind, Result<PoolCapacity, ProvisionError>)>,
}

impl EngineView {
    /// Finds a volume. While some records are unreadable, a missing handle is `Unavailable` instead
    /// of `NotFound`.
    pub fn find(&self, handle: &str) -> Result<&VolumeView, ProvisionError> {
        if let Some(why) = &self.records_error {
            return Err(ProvisionError::Unavailable(why.clone()));
        }
        match (self.volumes.get(handle), &self.volume_group_error) {
            (Some(seen), _) => Ok(seen),
            (None, Some(why)) => Err(ProvisionError::Unavailable(why.clone())),
            (None, None) => Err(ProvisionError::volume_not_found(handle)),
        }
    }
}
