//! What the daemon reads: the name of each source, and what people call it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    Udev,
    Mounts,
    Kubelet,
    Probe,
    #[serde(rename = "diskstats")]
    DiskStats,
    Layers,
    KernelLog,
    Counters,
    FsErrors,
    Smart,
    Checks,
}

impl Source {
    pub const ALL: [Source; 11] = [
        Source::Udev,
        Source::Mounts,
        Source::Kubelet,
        Source::Probe,
        Source::DiskStats,
        Source::Layers,
        Source::KernelLog,
        Source::Counters,
        Source::FsErrors,
        Source::Smart,
        Source::Checks,
    ];

    pub fn from_name(name: &str) -> Option<Source> {
        Source::ALL.into_iter().find(|source| source.name() == name)
    }

    /// What it reads, as people call it.
    pub fn label(self) -> &'static str {
        match self {
            Source::Udev => "the list of drives",
            Source::Mounts => "the mount table",
            Source::Kubelet => "the kubelet's records",
            Source::Probe => "volumes",
            Source::DiskStats => "I/O counters",
            Source::Layers => "the state of arrays and pools",
            Source::KernelLog => "the kernel log",
            Source::Counters => "the kernel's error counters",
            Source::FsErrors => "filesystem errors",
            Source::Smart => "SMART",
            Source::Checks => "filesystem checkers",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Source::Udev => "udev",
            Source::Mounts => "mounts",
            Source::Kubelet => "kubelet",
            Source::Probe => "probe",
            Source::DiskStats => "diskstats",
            Source::Layers => "layers",
            Source::KernelLog => "kernel-log",
            Source::Counters => "counters",
            Source::FsErrors => "fs-errors",
            Source::Smart => "smart",
            Source::Checks => "checks",
        }
    }
}
