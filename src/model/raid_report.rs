//! What a vendor's tool reports of a RAID controller and its arrays.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::drive::DriveFacts;
use crate::facts::device_names::array_number;
use diskvitals_kernel_log::raid_array::ArrayState;

/// A vendor's tool, and where it is installed.
#[derive(Clone, Copy, Debug)]
pub struct RaidTool {
    pub name: &'static str,
    /// Names of the program, the best first.
    pub programs: &'static [&'static str],
    /// Directories that no search path has.
    pub places: &'static [&'static str],
}

pub const STORCLI: RaidTool = RaidTool {
    name: "storcli",
    programs: &["storcli64", "storcli", "perccli64", "perccli"],
    places: &["/opt/MegaRAID/storcli", "/opt/MegaRAID/perccli"],
};
pub const STORCLI2: RaidTool = RaidTool {
    name: "storcli2",
    programs: &["storcli2", "perccli2"],
    places: &["/opt/MegaRAID/storcli2", "/opt/MegaRAID/perccli2"],
};
pub const SSACLI: RaidTool = RaidTool {
    name: "ssacli",
    programs: &["ssacli", "hpssacli", "hpacucli"],
    places: &["/opt/smartstorageadmin/ssacli/bin"],
};
pub const ARCCONF: RaidTool = RaidTool {
    name: "arcconf",
    programs: &["arcconf"],
    places: &["/usr/Arcconf", "/usr/StorMan", "/usr/Adaptec_Event_Monitor"],
};

/// Controllers that one tool knows, or one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RaidFamily {
    /// storcli, perccli.
    MegaRaid,
    /// storcli2, perccli2: MegaRAID 96xx, PERC 12.
    Mpi3mr,
    /// ssacli, or arcconf for another vendor's controller.
    SmartArray,
    /// arcconf.
    Adaptec,
}

impl RaidFamily {
    pub const ALL: [RaidFamily; 4] =
        [RaidFamily::MegaRaid, RaidFamily::Mpi3mr, RaidFamily::SmartArray, RaidFamily::Adaptec];

    /// Of the driver of an array's SCSI host.
    pub fn of_driver(driver: &str) -> Option<RaidFamily> {
        match driver {
            "megaraid_sas" => Some(RaidFamily::MegaRaid),
            "mpi3mr" => Some(RaidFamily::Mpi3mr),
            "hpsa" | "smartpqi" => Some(RaidFamily::SmartArray),
            "aacraid" => Some(RaidFamily::Adaptec),
            _ => None,
        }
    }

    pub(crate) fn tools(self) -> &'static str {
        match self {
            RaidFamily::MegaRaid => "storcli or perccli",
            RaidFamily::Mpi3mr => "storcli2 or perccli2",
            RaidFamily::SmartArray => "ssacli or arcconf",
            RaidFamily::Adaptec => "arcconf",
        }
    }
}

/// The families whose arrays are here, and when the kernel last logged a reset of such a controller.
pub type RaidToolRequests = BTreeMap<RaidFamily, Option<Timestamp>>;

/// One controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaidReport {
    /// `storcli`.
    pub tool: &'static str,
    /// `0000:02:00.0`. arcconf has none for older controllers.
    pub pci: Option<String>,
    pub arrays: Vec<ReportedArray>,
    pub hot_spares: usize,
    /// Slots of drives that do not work, with the tool's word: `252:4 (Failed)`.
    pub failed: Vec<String>,
    /// Slots of drives with a configuration that is not this controller's.
    pub foreign: Vec<String>,
    pub protection: CacheProtection,
    /// Data of an array that is gone waits in the cache.
    pub has_preserved_cache: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedArray {
    pub name: ArrayName,
    /// None: a word that is not known.
    pub state: Option<ArrayState>,
    /// Blocks that no member can give.
    pub has_lost_blocks: bool,
    /// Writes are cached even without a working battery.
    pub forces_write_back: bool,
    /// None: the tool reports none.
    pub rebuild: Option<Rebuild>,
    /// The tool's words.
    pub text: String,
}

/// Members that are being filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuild {
    /// Their slots: `252:3`. Empty: the tool does not name them.
    pub onto: Vec<String>,
    /// How much is done; of several members the least.
    pub percent: Option<u64>,
    /// Of several members the longest.
    pub seconds_left: Option<u64>,
}

/// What a tool and the kernel both have of an array.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArrayName {
    /// The SCSI target, as `array_number` counts it.
    Target(u32),
    /// `naa.600508b1…`
    Wwn(String),
}

impl ArrayName {
    pub(crate) fn is_of(&self, drive: &DriveFacts) -> bool {
        match self {
            ArrayName::Target(number) => array_number(drive) == Some(*number),
            ArrayName::Wwn(wwn) => drive.wwn.as_ref() == Some(wwn),
        }
    }
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
