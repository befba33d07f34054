//! The texts of `arcconf GETCONFIG N AL` and `GETSTATUS N`: of one controller, its logical devices, their
//! rebuilds and its drives.
//!
//! A word that is not known makes a state unknown; an answer in another language, or without its last
//! line, is none.

use std::borrow::Cow;

use crate::smart::raid_tools::words::{self, Block, ParseError, pair, word};
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::{
    ARCCONF, ArrayName, CacheProtection, RaidReport, Rebuild, ReportedArray,
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
pub(super) fn count(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let count = text.lines().find_map(|line| line.trim().strip_prefix(FOUND)?.trim().parse().ok());
    count.unwrap_or(0)
}

pub(super) fn parse(bytes: &[u8], status: Option<&[u8]>) -> Result<Vec<RaidReport>, ParseError> {
    let text = complete(bytes)?;
    let mut controller = Controller::default();
    text.lines().for_each(|line| controller.read(line.trim()));
    let status = status.map(complete).transpose()?.unwrap_or_default();
    Ok(vec![controller.report(&tasks(&status))?])
}

/// An answer that has its last line.
fn complete(bytes: &[u8]) -> Result<Cow<'_, str>, ParseError> {
    if count(bytes) == 0 {
        return Err(ParseError::NoControllers);
    }
    let text = String::from_utf8_lossy(bytes);
    match text.lines().next_back().map(str::trim) {
        _ if text.lines().any(|line| line.trim().starts_with(END)) => Ok(text),
        Some(last) if last.starts_with("Command ") => {
            Err(ParseError::Refused(word(last).unwrap_or_default()))
        }
        _ => Err(ParseError::NoEnd),
    }
}

/// `Logical device Task:` and its fields, which are spelt in two ways.
fn tasks(status: &str) -> Vec<Block<'_>> {
    let mut tasks: Vec<Block<'_>> = Vec::new();
    for line in status.lines().map(str::trim) {
        match (pair(line), tasks.last_mut()) {
            (None, _) if line.ends_with(" Task:") => tasks.push(Block::new(line)),
            (Some(("Logical Device" | "Logical device", number)), Some(task)) => {
                task.name = number;
            }
            (Some(field), Some(task)) => task.add(field),
            _ => {}
        }
    }
    tasks
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
                // A ZMM is flash with a capacitor.
                _ if ["controller battery information", "controller zmm information"]
                    .contains(&lower.as_str()) =>
                {
                    Section::Battery
                }
                Section::Logical if lower == "logical device segment information" => {
                    Section::Logical
                }
                // Parts of the controller, of which each key is one's alone.
                Section::Controller | Section::Battery if is_of_controller(&lower) => {
                    Section::Controller
                }
                _ => Section::Other,
            };
        }
    }

    fn report(&self, tasks: &[Block<'_>]) -> Result<RaidReport, ParseError> {
        let arrays = self.logical.iter().filter_map(|it| self.array(it, tasks)).collect();
        let in_state =
            |test: fn(&str) -> bool| self.physical.iter().filter(move |it| test(it.get("State")));
        Ok(RaidReport {
            tool: ARCCONF.name,
            pci: words::pci(self.itself.get(PCI)),
            arrays: words::distinct(arrays)?,
            hot_spares: in_state(|it| it.contains("Hot Spare") || it.contains("Hot-Spare")).count(),
            failed: in_state(|it| it.starts_with("Failed"))
                .map(|it| format!("{} ({})", place(it), it.get("State")))
                .chain(self.logical.iter().flat_map(missing))
                .collect(),
            foreign: Vec::new(),
            protection: self.protection(),
            has_preserved_cache: false,
        })
    }

    /// By the identifier of the volume, or the SCSI target where the controller has none (aacraid).
    fn array(&self, block: &Block<'_>, tasks: &[Block<'_>]) -> Option<ReportedArray> {
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
        let caches_anyway = self.itself.get("No-Battery Write Cache") == "Enabled";
        Some(ReportedArray {
            name,
            state: array_state(status),
            has_lost_blocks: block.get("Failed stripes") == "Yes",
            forces_write_back: caches_anyway && block.get("Caching") == "Enabled",
            rebuild: rebuild(block, status, tasks),
            text: format!(
                "logical device {number} RAID {words} {}",
                word(status).unwrap_or_default()
            ),
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
        match state.strip_prefix("ZMM ").unwrap_or(state) {
            "Ok" | "OK" | "Ready" | "Optimal" | "Fully Charged" => CacheProtection::Optimal,
            "not installed" => CacheProtection::Absent,
            _ if has(&["Not Installed", "Not Present"]) => CacheProtection::Absent,
            _ if has(&["Not Fully Charged", "Charging", "Fail", "Low", "Error", "Degraded"]) => {
                word(state).map_or(CacheProtection::Unknown, CacheProtection::Impaired)
            }
            _ => CacheProtection::Unknown,
        }
    }
}

fn is_of_controller(title: &str) -> bool {
    !["logical device information", "physical device information", "array information"]
        .contains(&title)
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

/// `Impacted` (its parity was not built yet, or is being verified) is none of these. `Suboptimal`: of the
/// members of a RAID 6 one is missing.
fn array_state(status: &str) -> Option<ArrayState> {
    match status {
        "Optimal" => Some(ArrayState::Optimal),
        "Failed" | "Offline" => Some(ArrayState::Offline),
        _ if status.starts_with("Degraded") || status.starts_with("Suboptimal") => {
            Some(ArrayState::Degraded)
        }
        _ => None,
    }
}

/// `Degraded, Rebuilding ( Rebuild : 38 % )`, or `Degraded` with a segment that is `Rebuilding (…)` and a
/// task of the device.
fn rebuild(block: &Block<'_>, status: &str, tasks: &[Block<'_>]) -> Option<Rebuild> {
    let filling = segments(block, "Rebuilding");
    let onto: Vec<String> = filling.filter_map(|(key, value)| word(&segment(key, value))).collect();
    if onto.is_empty() && !status.contains("Rebuild") {
        return None;
    }
    let mut running = tasks.iter().filter(|task| {
        task.name == block.name
            && task.get("Current operation") == "Rebuild"
            && task.get("Status") == "In Progress"
    });
    let done = running.next().and_then(|task| task.get("Percentage complete").parse().ok());
    let percent = words::percent(status).or(done.filter(|percent| *percent <= 100));
    Some(Rebuild { onto, percent, seconds_left: None })
}

/// The members in this state, of a RAID 10 as `Group 0, Segment 1`.
fn segments<'a>(
    block: &Block<'a>,
    state: &'static str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let of_state =
        move |(key, value): &(&str, &str)| key.contains("Segment ") && value.starts_with(state);
    block.fields().filter(of_state)
}

/// `logical device 0, Group 0, Segment 1 (Missing)`: no drive is listed for it.
fn missing(block: &Block<'_>) -> Vec<String> {
    let missing = segments(block, "Missing");
    let text = |key: &str| word(&format!("logical device {}, {key} (Missing)", block.name));
    missing.filter_map(|(key, _)| text(key)).collect()
}

/// `Enclosure 0, Slot 3` of `Rebuilding (Controller:1,Enclosure:0,Slot:3) SERIAL`; otherwise the segment.
fn segment(key: &str, value: &str) -> String {
    let number = |name: &str| {
        let rest = value.split_once(name)?.1;
        rest.split(|letter: char| !letter.is_ascii_digit()).next().filter(|it| !it.is_empty())
    };
    match (number("Enclosure:"), number("Slot:")) {
        (Some(enclosure), Some(slot)) => format!("Enclosure {enclosure}, Slot {slot}"),
        _ => key.to_owned(),
    }
}

/// `Enclosure 0, Slot 1`
fn place(drive: &Block<'_>) -> String {
    let location = drive.get("Reported Location").split('(').next().unwrap_or_default();
    word(location).unwrap_or_else(|| format!("device {}", word(drive.name).unwrap_or_default()))
}
