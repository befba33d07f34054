//! What a RAID controller's own tool knows of its arrays, and which tool that is.

/// A vendor's program that reads the state of arrays (virtual drives, logical drives).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RaidTool {
    Storcli,
    Ssacli,
    Arcconf,
}

impl RaidTool {
    /// `driver`: the kernel's, of the controller. None: the state of its arrays is not looked at.
    pub fn of_driver(driver: &str) -> Option<RaidTool> {
        match driver {
            "megaraid_sas" => Some(RaidTool::Storcli),
            "hpsa" | "smartpqi" => Some(RaidTool::Ssacli),
            "aacraid" => Some(RaidTool::Arcconf),
            _ => None,
        }
    }

    /// What to install.
    pub(crate) fn programs(self) -> &'static str {
        match self {
            RaidTool::Storcli => "storcli or perccli",
            // smartpqi is of HPE's and of Microchip's controllers.
            RaidTool::Ssacli => "ssacli (HPE) or arcconf",
            RaidTool::Arcconf => "arcconf",
        }
    }
}
