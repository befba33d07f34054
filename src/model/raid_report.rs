//! What storcli or perccli reports of a RAID controller and its arrays.

use jiff::Timestamp;

use diskvitals_kernel_log::raid_array::ArrayState;

/// Whether storcli is to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorcliRequest {
    /// There are arrays of a controller that it knows.
    pub is_needed: bool,
    /// When the kernel last logged a reset of such a controller.
    pub last_reset: Option<Timestamp>,
}

/// One controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaidReport {
    /// `0000:02:00.0`.
    pub pci: Option<String>,
    pub arrays: Vec<ReportedArray>,
    pub hot_spares: usize,
    /// Slots of members that are being rebuilt: `252:3`.
    pub rebuilding: Vec<String>,
    /// Slots of drives with a configuration that is not this controller's.
    pub foreign: Vec<String>,
    pub protection: CacheProtection,
    /// Data of an array that is gone waits in the cache.
    pub has_preserved_cache: bool,
}

impl RaidReport {
    pub(crate) fn is_impaired(&self) -> bool {
        matches!(self.protection, CacheProtection::Impaired(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedArray {
    /// The SCSI target: 128 for each channel behind the first one.
    pub number: u32,
    /// None: a word that is not known.
    pub state: Option<ArrayState>,
    /// Writes are cached even without a working battery.
    pub forces_write_back: bool,
    /// The tool's words.
    pub text: String,
}

/// The battery or capacitor of a controller's write cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CacheProtection {
    #[default]
    Unknown,
    Absent,
    Optimal,
    /// The tool's word.
    Impaired(String),
}
