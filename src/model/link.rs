//! What the kernel reports of the links of a drive (PCIe, SAS) and of the paths of NVMe multipath, beside
//! the best that the drive had in the same place. Pure.
//!
//! In: the history of such a reading (`facts::links` has compared it). Must not contain: judgement.

use jiff::Timestamp;

use crate::counters::CounterHistory;

/// Sources of a `CounterReading`.
pub const PCIE_LINK: &str = "pcie-link";
pub const SAS_LINK: &str = "sas-link";
pub const NVME_PATHS: &str = "nvme-paths";

/// Lanes of PCIe, phys of a SAS port.
pub const LANES: &str = "lanes";
/// Mega-transfers (PCIe) or megabits (SAS) per second.
pub const RATE: &str = "rate";
/// Phys of the narrowest port between the adapter and the expander that a SAS disk is on.
pub const SHELF_LANES: &str = "shelf_lanes";
/// Over which the kernel sends I/O.
pub const PATHS: &str = "paths";
/// The most lanes and the highest rate of which the drive is capable, of PCIe.
pub const BEST_OF_DRIVE: [&str; 2] = ["max_lanes", "max_rate"];
/// What a drive has read and written, and does now: only whether it works is kept of it.
pub const COMPLETED: &str = "completed";
pub const IN_FLIGHT: &str = "in_flight";
/// What a SAS phy counts (SPL-4, 9.2.9 of SAS-2.1 for the log page).
pub const PHY_ERRORS: [&str; 4] = [
    "invalid_dword_count",
    "running_disparity_error_count",
    "loss_of_dword_sync_count",
    "phy_reset_problem_count",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    Pcie,
    Sas,
    NvmePaths,
}

impl LinkKind {
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Pcie => "PCIe",
            LinkKind::Sas => "SAS",
            LinkKind::NvmePaths => "NVMe paths",
        }
    }

    /// `16 GT/s`, `12 Gbit/s`.
    pub(crate) fn rate_text(self, rate: u64) -> String {
        let unit = if self == LinkKind::Pcie { "GT/s" } else { "Gbit/s" };
        format!("{} {unit}", rate as f64 / 1000.0)
    }
}

/// A value, and the highest that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    pub now: u64,
    pub best: u64,
    /// Readings in a row that were below the best, while the drive worked; it stays at
    /// ten.
    pub low_readings: u64,
}

/// One link, or the paths to one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveLink {
    pub kind: LinkKind,
    /// Where it is in sysfs.
    pub file: String,
    /// Lanes; of `NvmePaths`, the paths.
    pub lanes: Option<Compared>,
    pub rate: Option<Compared>,
    pub shelf_lanes: Option<Compared>,
    pub max_lanes: Option<u64>,
    pub max_rate: Option<u64>,
    /// What its phys counted in the last day for which they were watched without a break, by the
    /// kernel's name; only what grew all day.
    pub errors_a_day: Vec<(String, u64)>,
    /// When a value last changed.
    pub changed: Timestamp,
}

pub(crate) fn best(what: &str) -> String {
    format!("best_{what}")
}

pub(crate) fn low(what: &str) -> String {
    format!("low_{what}")
}

pub(crate) fn in_a_day(counter: &str) -> String {
    format!("day_{counter}")
}

impl DriveLink {
    /// `series`: its name, which begins with the source.
    pub(crate) fn of_history(series: &str, history: &CounterHistory) -> Option<DriveLink> {
        let kind = match series.split(' ').next()? {
            PCIE_LINK => LinkKind::Pcie,
            SAS_LINK => LinkKind::Sas,
            NVME_PATHS => LinkKind::NvmePaths,
            _ => return None,
        };
        let compared = |what: &str| {
            Some(Compared {
                now: history.last(what)?,
                best: history.last(&best(what))?,
                low_readings: history.last(&low(what)).unwrap_or(0),
            })
        };
        let a_day = |name: &str| {
            let grown = history.last(&in_a_day(name)).filter(|grown| *grown > 0)?;
            Some((name.to_owned(), grown))
        };
        let changes = history.counters().map(|(_, counter)| counter.moved_at());
        Some(DriveLink {
            kind,
            file: history.file.clone(),
            lanes: compared(if kind == LinkKind::NvmePaths { PATHS } else { LANES }),
            rate: compared(RATE),
            shelf_lanes: compared(SHELF_LANES),
            max_lanes: history.last(BEST_OF_DRIVE[0]),
            max_rate: history.last(BEST_OF_DRIVE[1]),
            errors_a_day: PHY_ERRORS.into_iter().filter_map(a_day).collect(),
            changed: changes.max()?,
        })
    }
}

impl Compared {
    /// What it is of its best; 1 if it is as good as ever.
    pub fn ratio(self) -> f64 {
        if self.best == 0 { 1.0 } else { self.now as f64 / self.best as f64 }
    }
}
