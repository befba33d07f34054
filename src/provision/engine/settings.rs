//! Settings of the engine: the pool, the kubelet's root, the static volumes, and the time limits.
//!
//! In: values from the configuration. Out: the settings that every operation reads.

use std::time::Duration;

use crate::model::path::HostPath;
use crate::model::provision::{BackingKind, default_kind};
use crate::provision::step::Wipe;

/// What the engine must know. `wipe`, `roots` and `statics` may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The CSI driver that the volumes are of.
    pub driver: String,
    /// The pool's folder, as the host names it: images, and all records.
    pub directory: HostPath,
    /// An administrator has named the folder: it must be there, else its disk is not mounted and
    /// nobody knows what is in it. One that nobody named is made when it is needed.
    pub directory_configured: bool,
    /// The pool's volume group, where there is one.
    pub volume_group: Option<String>,
    pub kubelet_root: HostPath,
    /// Folders that static volumes may lie below.
    pub static_roots: Vec<HostPath>,
    pub wipe: Wipe,
    pub static_volumes: Vec<StaticVolume>,
    /// A caller waits no longer than this; the operation goes on.
    pub request_timeout: Duration,
    /// How often the pool's room is looked at, and what is not settled is tried again.
    pub rescan_interval: Duration,
}

impl Settings {
    /// Of volumes for which none is asked.
    pub fn default_kind(&self) -> BackingKind {
        default_kind(self.directory_configured, self.volume_group.is_some())
    }
}

/// An entry of `[[static]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticVolume {
    pub name: String,
    /// `StaticDevice` or `StaticDirectory`.
    pub kind: BackingKind,
    pub path: HostPath,
}
