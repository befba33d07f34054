//! The text of `arcconf GETCONFIG N AL`: of one controller, its logical devices and its drives.
//!
//! A word that is not known makes a state unknown; an answer in another language, or without its last
//! line, is none.

use crate::smart::raid_tools::words::{self, Block, ParseError, pair, word};
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::{
    ARCCONF, ArrayName, CacheProtection, RaidReport, ReportedArray,
};

const FOUND: &str = "Controllers found: ";
const END: &str = "Command completed successfully";
const PCI: &str = "PCI Address (Domain:Bus:Device:Function)";

#[derive(Default)]
struct Controller<'a> {
    itself: Block<'a>,
    battery: Block<'a>,
    logical: Vec<Block<'a>>,
    physical: Vec<Block<'a>>,
    section: Section,
}

#[derive(Default)]
enum Section {
    #[default]
    Controller,
    Battery,
    Logical,
    Physical,
    Other,
}

/// How many controllers there are.
pub(super) fn count(bytes: &[u8]) -> u32 {
    let text = String::from_utf8_lossy(bytes);
    let count = text.lines().find_map(|line| line.trim().strip_prefix(FOUND)?.trim().parse().ok());
    count.unwrap_or(0)
}

pub(super) fn parse(bytes: &[u8]) -> Result<Vec<RaidReport>, ParseError> {
    if count(bytes) == 0 {
        return Err(ParseError::NoControllers);
    }
    let text = String::from_utf8_lossy(bytes);
    let mut controller = Controller::default();
    text.lines().for_each(|line| controller.read(line.trim()));
    match text.lines().next_back().map(str::trim) {
        _ if text.lines().any(|line| line.trim().starts_with(END)) => {
            Ok(vec![controller.report()?])
        }
        Some(last) if last.starts_with("Command ") => {
            Err(ParseError::Refused(word(last).unwrap_or_default()))
        }
        _ => Err(ParseError::NoEnd),
    }
}

impl<'a> Controller<'a> {
    fn read(&mut self, line: &'a str) {
        let lower = line.to_ascii_lowercase();
        if lower.starts_with("logical device number ") {
            self.logical.push(Block::new(line.rsplit(' ').next().unwrap_or_default()));
            self.section = Section::Logical;
        } else if let Some(number) = line.strip_prefix("Device #") {
            self.physical.push(Block::new(number));
            self.section = Section::Physical;
        } else if let Some(field) = pair(line) {
            let block = match self.section {
                Section::Controller => Some(&mut self.itself),
                Section::Battery => Some(&mut self.battery),
                Section::Logical => self.logical.last_mut(),
                Section::Physical => self.physical.last_mut(),
                Section::Other => None,
            };
            block.into_iter().for_each(|block| block.add(field));
        } else if lower.ends_with(" information") {
            self.section = match self.section {
                _ if lower == "controller battery information" => Section::Battery,
                // Parts of the controller, of which each key is one's alone.
                Section::Controller | Section::Battery if is_of_controller(&lower) => {
                    Section::Controller
                }
                _ => Section::Other,
            };
        }
    }

    fn report(&self) -> Result<RaidReport, ParseError> {
        let caches_anyway = self.itself.get("No-Battery Write Cache") == "Enabled";
        let arrays = self.logical.iter().filter_map(|it| array(it, caches_anyway)).collect();
        let in_state =
            |test: fn(&str) -> bool| self.physical.iter().filter(move |it| test(it.get("State")));
        Ok(RaidReport {
            tool: ARCCONF.name,
            pci: words::pci(self.itself.get(PCI)),
            arrays: words::distinct(arrays)?,
            hot_spares: in_state(|it| it.contains("Hot Spare") || it.contains("Hot-Spare")).count(),
            rebuilding: in_state(|it| it.starts_with("Rebuilding")).map(place).collect(),
            failed: in_state(|it| it.starts_with("Failed"))
                .map(|it| format!("{} ({})", place(it), it.get("State")))
                .collect(),
            foreign: Vec::new(),
            protection: self.protection(),
            has_preserved_cache: false,
        })
    }

    /// Only words that are known to be bad are bad: they differ by generation.
    fn protection(&self) -> CacheProtection {
        let states = [
            self.itself.get("Backup Power Status"),
            self.itself.get("Overall Backup Unit Status"),
            self.battery.get("Status"),
        ];
        let Some(state) = states.into_iter().find(|state| !state.is_empty()) else {
            return CacheProtection::Unknown;
        };
        let has = |words: &[&str]| words.iter().any(|word| state.contains(word));
        match () {
            () if matches!(state, "Ok" | "OK" | "Ready" | "Optimal" | "Fully Charged") => {
                CacheProtection::Optimal
            }
            () if has(&["Not Installed", "Not Present"]) => CacheProtection::Absent,
            () if has(&["Not Fully Charged", "Charging", "Fail", "Low", "Error", "Degraded"]) => {
                word(state).map_or(CacheProtection::Unknown, CacheProtection::Impaired)
            }
            () => CacheProtection::Unknown,
        }
    }
}

fn is_of_controller(title: &str) -> bool {
    !["logical device information", "physical device information", "array information"]
        .contains(&title)
}

/// By the identifier of the volume, or the SCSI target where the controller has none (aacraid).
fn array(block: &Block<'_>, caches_anyway: bool) -> Option<ReportedArray> {
    let name = match words::wwn(block.get("Volume Unique Identifier")) {
        Some(wwn) => ArrayName::Wwn(wwn),
        None => ArrayName::Target(target(block)?),
    };
    let status = ["Status of Logical Device", "Status of logical device"]
        .into_iter()
        .map(|key| block.get(key))
        .find(|status| !status.is_empty())
        .unwrap_or_default();
    let words = block.words(&["RAID level", "Size"]);
    let number = word(block.name).unwrap_or_default();
    Some(ReportedArray {
        name,
        state: array_state(status),
        has_lost_blocks: block.get("Failed stripes") == "Yes",
        forces_write_back: caches_anyway && block.get("Caching") == "Enabled",
        text: format!("logical device {number} RAID {words} {}", word(status).unwrap_or_default()),
    })
}

/// `/dev/sda (Disk0) (Bus: 0, Target: 0, Lun: 0)`; older versions have the number alone, which is the
/// container's, as the target is.
fn target(block: &Block<'_>) -> Option<u32> {
    match block.get("Disk Name").split_once("(Bus: 0, Target: ") {
        Some((_, rest)) => rest.split(',').next()?.parse().ok(),
        None if block.get("Disk Name").contains("(Bus: ") => None,
        None => block.name.parse().ok(),
    }
}

/// `Impacted` (its parity was not built yet) is none of these.
fn array_state(status: &str) -> Option<ArrayState> {
    match status {
        "Optimal" => Some(ArrayState::Optimal),
        "Failed" | "Offline" => Some(ArrayState::Offline),
        _ if status.starts_with("Degraded") => Some(ArrayState::Degraded),
        _ => None,
    }
}

/// `Enclosure 0, Slot 1`
fn place(drive: &Block<'_>) -> String {
    let location = drive.get("Reported Location").split('(').next().unwrap_or_default();
    word(location).unwrap_or_else(|| format!("device {}", word(drive.name).unwrap_or_default()))
}
