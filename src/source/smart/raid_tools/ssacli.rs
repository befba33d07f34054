//! The text of `ssacli ctrl all show config detail`; hpssacli and hpacucli are its older names.
//!
//! A controller begins in the first column, an array of drives with `Array:`, what the kernel has as a
//! disk with `Logical Drive:`, a drive with `physicaldrive` and its place. A word that is not known makes
//! a state unknown; an answer in another language has no controller.

use std::collections::BTreeSet;

use crate::smart::raid_tools::words::{self, Block, ParseError, pair, word};
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::{
    ArrayName, CacheProtection, RaidReport, ReportedArray, SSACLI,
};

const PCI: &str = "PCI Address (Domain:Bus:Device.Function)";

#[derive(Default)]
struct Controller<'a> {
    itself: Block<'a>,
    logical: Vec<Block<'a>>,
    physical: Vec<Block<'a>>,
    section: Section,
}

#[derive(Default)]
enum Section {
    #[default]
    Controller,
    Logical,
    Physical,
    Other,
}

pub(super) fn parse(bytes: &[u8]) -> Result<Vec<RaidReport>, ParseError> {
    let text = String::from_utf8_lossy(bytes);
    let mut controllers: Vec<Controller<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match controllers.last_mut() {
            _ if !line.starts_with(' ') && line.contains(" in Slot ") => {
                controllers.push(Controller::default());
            }
            Some(controller) => controller.read(line),
            None => {}
        }
    }
    if controllers.is_empty() {
        let refusal = text.lines().find_map(|line| line.trim().strip_prefix("Error: "));
        return Err(match refusal.and_then(word) {
            Some(why) => ParseError::Refused(why),
            None => ParseError::NoControllers,
        });
    }
    controllers.iter().map(Controller::report).collect()
}

impl<'a> Controller<'a> {
    fn read(&mut self, line: &'a str) {
        let trimmed = line.trim();
        if let Some(number) = trimmed.strip_prefix("Logical Drive: ") {
            self.logical.push(Block::new(number));
            self.section = Section::Logical;
        } else if let Some(place) = trimmed.strip_prefix("physicaldrive ") {
            // In the list of a mirror's members more follows, and the block continues.
            if !place.contains(' ') {
                self.physical.push(Block::new(place));
                self.section = Section::Physical;
            }
        } else if let Some(field) = pair(trimmed) {
            let is_own = line.starts_with("   ") && !line.starts_with("    ");
            if field.0 == "Array" {
                self.section = Section::Other;
            }
            let block = match self.section {
                Section::Controller if is_own => Some(&mut self.itself),
                Section::Logical => self.logical.last_mut(),
                Section::Physical => self.physical.last_mut(),
                Section::Controller | Section::Other => None,
            };
            block.into_iter().for_each(|block| block.add(field));
        } else if !line.starts_with("       ") {
            // An enclosure, an expander, drives of no array.
            self.section = Section::Other;
        }
    }

    fn report(&self) -> Result<RaidReport, ParseError> {
        let caches_anyway = self.itself.get("No-Battery Write Cache") == "Enabled";
        let arrays = self.logical.iter().filter_map(|it| array(it, caches_anyway)).collect();
        let with = |prefixes: &'static [&str]| {
            let has_prefix = move |it: &&Block<'a>| {
                let status = it.get("Status");
                prefixes.iter().any(|prefix| status.starts_with(prefix))
            };
            self.physical.iter().filter(has_prefix)
        };
        let is_spare = |it: &&Block<'a>| it.get("Drive Type").starts_with("Spare");
        // A spare of two arrays is listed twice.
        let spares: BTreeSet<&str> = with(&["OK"]).filter(is_spare).map(|it| it.name).collect();
        let progress = self.logical.iter().filter_map(progress);
        let rebuilding = with(&["Rebuilding"]).filter_map(|it| word(it.name));
        Ok(RaidReport {
            tool: SSACLI.name,
            pci: words::pci(self.itself.get(PCI)),
            arrays: words::distinct(arrays)?,
            hot_spares: spares.len(),
            rebuilding: rebuilding.chain(progress).collect(),
            failed: with(&["Failed", "Predictive Failure"])
                .filter_map(|it| word(&format!("{} ({})", it.name, it.get("Status"))))
                .collect(),
            foreign: Vec::new(),
            protection: self.protection(),
            has_preserved_cache: false,
        })
    }

    fn protection(&self) -> CacheProtection {
        match self.itself.get("Battery/Capacitor Status") {
            "OK" => CacheProtection::Optimal,
            "" if self.itself.get("Battery/Capacitor Count") == "0" => CacheProtection::Absent,
            other => word(other).map_or(CacheProtection::Unknown, CacheProtection::Impaired),
        }
    }
}

/// Without the identifier that the kernel has too it may be any array.
fn array(block: &Block<'_>, caches_anyway: bool) -> Option<ReportedArray> {
    let words = block.words(&["Fault Tolerance", "Status", "Size"]);
    Some(ReportedArray {
        name: ArrayName::Wwn(words::wwn(block.get("Unique Identifier"))?),
        state: array_state(block.get("Status")),
        has_lost_blocks: block.get("Unrecoverable Media Errors") == "Detected",
        forces_write_back: caches_anyway && block.get("Caching") == "Enabled",
        text: format!("logical drive {} RAID {words}", word(block.name).unwrap_or_default()),
    })
}

/// The controller's words (`logicaldrivestatusstr` of cciss_vol_status, which reads the same states).
fn array_state(status: &str) -> Option<ArrayState> {
    let has_prefix = |prefix: &&str| status.starts_with(prefix);
    match status {
        "OK" => Some(ArrayState::Optimal),
        "Failed" => Some(ArrayState::Offline),
        _ if ["Interim Recovery", "Recovering", "Ready for Re"].iter().any(has_prefix) => {
            Some(ArrayState::Degraded)
        }
        _ => None,
    }
}

/// `Recovering, 26% complete`
fn progress(block: &Block<'_>) -> Option<String> {
    let progress = block.get("Status").strip_prefix("Recovering")?;
    word(&format!("logical drive {}{progress}", block.name))
}
