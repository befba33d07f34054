//! The text of `ssacli ctrl all show config detail`; hpssacli and hpacucli are its older names.
//!
//! A controller begins in the first column, an array of drives with `Array:`, what the kernel has as a
//! disk with `Logical Drive:`, a drive with `physicaldrive` and its place. A word that is not known makes
//! a state unknown; an answer in another language has no controller.

use std::collections::BTreeSet;

use crate::smart::raid_tools::words::{self, Block, ParseError, pair, word};
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::{
    ArrayName, CacheProtection, RaidReport, Rebuild, ReportedArray, SSACLI,
};

const PCI: &str = "PCI Address (Domain:Bus:Device.Function)";

#[derive(Default)]
struct Controller<'a> {
    itself: Block<'a>,
    /// The array that its lines are about.
    array: &'a str,
    /// With their arrays.
    logical: Vec<(&'a str, Block<'a>)>,
    physical: Vec<(&'a str, Block<'a>)>,
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
            self.logical.push((self.array, Block::new(number)));
            self.section = Section::Logical;
        } else if let Some(place) = trimmed.strip_prefix("physicaldrive ") {
            // In the list of a mirror's members more follows, and the block continues.
            if !place.contains(' ') {
                self.physical.push((self.array, Block::new(place)));
                self.section = Section::Physical;
            }
        } else if let Some(field) = pair(trimmed) {
            let is_own = line.starts_with("   ") && !line.starts_with("    ");
            if field.0 == "Array" {
                (self.array, self.section) = (field.1, Section::Other);
            }
            let block = match self.section {
                Section::Controller if is_own => Some(&mut self.itself),
                Section::Logical => self.logical.last_mut().map(|(_, block)| block),
                Section::Physical => self.physical.last_mut().map(|(_, block)| block),
                Section::Controller | Section::Other => None,
            };
            block.into_iter().for_each(|block| block.add(field));
        } else if !line.starts_with("       ") {
            // An enclosure, an expander, drives of no array.
            (self.array, self.section) = ("", Section::Other);
        }
    }

    fn report(&self) -> Result<RaidReport, ParseError> {
        let caches_anyway = self.itself.get("No-Battery Write Cache") == "Enabled";
        let arrays = self.logical.iter().filter_map(|(of, it)| self.array(of, it, caches_anyway));
        let is_spare = |it: &&Block<'a>| it.get("Drive Type").starts_with("Spare");
        // A spare of two arrays is listed twice.
        let spares: BTreeSet<&str> =
            self.drives(&["OK"]).map(|(_, it)| it).filter(is_spare).map(|it| it.name).collect();
        Ok(RaidReport {
            tool: SSACLI.name,
            pci: words::pci(self.itself.get(PCI)),
            arrays: words::distinct(arrays.collect())?,
            hot_spares: spares.len(),
            failed: self
                .drives(&["Failed", "Offline", "Predictive Failure"])
                .filter_map(|(_, it)| word(&format!("{} ({})", it.name, it.get("Status"))))
                .collect(),
            foreign: Vec::new(),
            protection: self.protection(),
            has_preserved_cache: false,
        })
    }

    /// Drives whose status begins with one of these words, with their arrays.
    fn drives(&self, words: &'static [&str]) -> impl Iterator<Item = &(&'a str, Block<'a>)> {
        self.physical.iter().filter(|(_, it)| begins_with(it.get("Status"), words))
    }

    /// Without the identifier that the kernel has too it may be any array. `of`: the drives that it is on.
    fn array(&self, of: &str, block: &Block<'_>, caches_anyway: bool) -> Option<ReportedArray> {
        let words = block.words(&["Fault Tolerance", "Status", "Size"]);
        Some(ReportedArray {
            name: ArrayName::Wwn(words::wwn(block.get("Unique Identifier"))?),
            state: array_state(block.get("Status")),
            has_lost_blocks: block.get("Unrecoverable Media Errors") == "Detected",
            forces_write_back: caches_anyway && block.get("Caching") == "Enabled",
            rebuild: self.rebuild(of, block.get("Status")),
            text: format!("logical drive {} RAID {words}", word(block.name).unwrap_or_default()),
        })
    }

    /// `Recovering, 26% complete`. Of several logical drives on the same drives one after the other is
    /// rebuilt; the others are `Ready for Rebuild`.
    fn rebuild(&self, of: &str, status: &str) -> Option<Rebuild> {
        let filling = self.drives(&["Rebuilding"]).filter(|(array, _)| *array == of);
        begins_with(status, REBUILDS).then(|| Rebuild {
            onto: filling.filter_map(|(_, it)| word(it.name)).collect(),
            percent: words::percent(status),
            seconds_left: None,
        })
    }

    /// A word that is not known is no finding.
    fn protection(&self) -> CacheProtection {
        match self.itself.get("Battery/Capacitor Status") {
            "OK" => CacheProtection::Optimal,
            "" if self.itself.get("Battery/Capacitor Count") == "0" => CacheProtection::Absent,
            bad if begins_with(bad, &["Failed", "Recharging"]) => {
                word(bad).map_or(CacheProtection::Unknown, CacheProtection::Impaired)
            }
            _ => CacheProtection::Unknown,
        }
    }
}

const REBUILDS: &[&str] = &["Recovering", "Rebuilding"];

fn begins_with(status: &str, words: &[&str]) -> bool {
    words.iter().any(|word| status.starts_with(word))
}

/// The controller's words (`logicaldrivestatusstr` of cciss_vol_status, which reads the same states).
fn array_state(status: &str) -> Option<ArrayState> {
    match status {
        "OK" => Some(ArrayState::Optimal),
        "Failed" => Some(ArrayState::Offline),
        _ if begins_with(status, &["Interim Recovery", "Ready for Re"])
            || begins_with(status, REBUILDS) =>
        {
            Some(ArrayState::Degraded)
        }
        _ => None,
    }
}
