//! What a source tells the owner of the state. Each report is whole: it replaces what the same source said before of the same thing.

use std::time::Duration;

use crate::model::block::{DiskStat, Inventory, LayerState};
use crate::model::kubelet::KubeletRecords;
use crate::model::mount::MountTable;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::probe::{MountProbe, Stuck};

#[derive(Clone, Debug)]
pub enum Report {
    Inventory(Observation<Inventory>),
    /// State of one md or dm device, by kernel name.
    Layer {
        device: String,
        state: Observation<LayerState>,
    },
    /// A worker that reads `device`'s state has not come back in its time.
    LayerStuck {
        device: String,
        stuck: Stuck,
    },
    Mounts(Observation<MountTable>),
    Kubelet(Observation<KubeletRecords>),
    /// The answer for one path. `Failed` means that the probe could not be made, not that the volume said no.
    Probe {
        path: HostPath,
        result: Observation<MountProbe>,
        took: Duration,
    },
    ProbeStuck {
        path: HostPath,
        stuck: Stuck,
    },
    DiskStats(Observation<Vec<DiskStat>>),
    /// How a source itself is.
    Source {
        source: Source,
        status: SourceStatus,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    Udev,
    Mounts,
    Kubelet,
    Probe,
    DiskStats,
    Layers,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Source::Udev => "udev",
            Source::Mounts => "mounts",
            Source::Kubelet => "kubelet",
            Source::Probe => "probe",
            Source::DiskStats => "diskstats",
            Source::Layers => "layers",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// Works as it should; the text says how (`udev events`).
    Active(String),
    /// Works with less than it should have; the text says what is missing and what is done instead.
    Limited(String),
    /// Gives nothing; the text says why and what to do.
    Down(String),
    /// Does not apply to this node (`no kubelet folder`).
    Absent(String),
}

/// What the owner asks of sources: look again, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Everything.
    All,
    Inventory,
    Kubelet,
    /// Probe these paths now.
    Probe(Vec<HostPath>),
}
