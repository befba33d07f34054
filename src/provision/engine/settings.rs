//! Settings of the engine: the pool, the kubelet's root, the static volumes, and the time limits.
//!
//! In: values from the configuration. Out: the settings that every operation reads.

use std::time::Duration;

use crate::step::Wipe;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{BackingKind, default_kind};

/// Settings of the engine. `wipe`, `static_roots` and `static_volumes` may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name of the CSI driver of the volumes.
    pub driver: String,
    /// The pool's folder as a path on the host; it contains the images and all records.
    pub directory: HostPath,
    /// Whether the configuration names the folder. Then it must exist; otherwise its disk is not
    /// mounted and its content is unknown. A default folder is created on demand.
    pub directory_configured: bool,
    /// The pool's volume group, if there is one.
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
    /// The kind of a volume if the request has none.
    pub fn default_kind(&self) -> BackingKind {
        default_kind(self.directory_configured, self.volume_group.is_some())
    }

    /// Whether the static volume is missed although its device was never here.
    pub(crate) fn is_expected(&self, name: &str) -> bool {
        self.static_volumes.iter().any(|entry| entry.name == name && entry.expected)
    }
}

/// An entry of `[[static]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticVolume {
    pub name: String,
    /// `StaticDevice` or `StaticDirectory`.
    pub kind: BackingKind,
    pub path: HostPath,
    /// It is missed here although its device was never seen.
    pub expected: bool,
}
