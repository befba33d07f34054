//! Settings of the engine: the pool, the kubelet's root, the static volumes, and the time limits.
//!
//! In: values from the configuration. Out: the settings that every operation reads.

use std::time::Duration;

use crate::model::path::HostPath;
use crate::model::provision::{BackingKind, default_kind};
use crate::provision::step::Wipe;

/// Settings of the engine. `wipe`, `static_roots` and `static_volumes` may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The CSI driver that the volumes are of.
    pub driver: String,
    /// The pool's folder, as the host names it: images, and all records.
    pub directory: HostPath,
    /// The configuration names the folder: it must exist, otherwise its disk is not mounted and its
    /// content is unknown. A default folder is created when it is needed.
    pub directory_configured: bool,
    /// The pool's volume group, where there is one.
    pub volume_group: Option<String>,
    pub kubelet_root: HostPath,
    /// Static volumes must be below one of these folders.
    pub static_roots: Vec<HostPath>,
    pub wipe: Wipe,
    pub static_volumes: Vec<StaticVolume>,
    /// A caller's time limit; the operation continues after it.
    pub request_timeout: Duration,
    /// Interval at which free space is measured and failed recoveries are tried again.
    pub rescan_interval: Duration,
}

impl Settings {
    /// The kind of volumes whose request names none.
    pub(crate) fn default_kind(&self) -> BackingKind {
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
