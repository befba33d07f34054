//! The answer of `storcli /cALL show all J nolog`, which perccli gives too: arrays, hot spares, foreign
//! drives, and what protects the write cache.
//!
//! Keys and types differ by version: all are optional but the list of controllers. A word that is not
//! known makes a state unknown, never optimal.

use serde_json::Value;

use crate::smart::raid_tools::words::{self, ParseError, word};
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::{
    ArrayName, CacheProtection, RaidReport, ReportedArray, STORCLI,
};

pub(super) fn parse(bytes: &[u8]) -> Result<Vec<RaidReport>, ParseError> {
    let answer: Value = serde_json::from_slice(bytes).map_err(ParseError::Json)?;
    let controllers = answer["Controllers"].as_array().ok_or(ParseError::NoControllers)?;
    let (mut reports, mut refusal) = (Vec::new(), None);
    for controller in controllers {
        let status = &controller["Command Status"];
        match status["Status"].as_str() {
            Some("Success") => reports.push(report(&controller["Response Data"])?),
            _ => refusal = Some(text(&status["Description"]).unwrap_or_default()),
        }
    }
    match refusal {
        Some(why) if reports.is_empty() => Err(ParseError::Refused(why)),
        _ => Ok(reports),
    }
}

fn report(data: &Value) -> Result<RaidReport, ParseError> {
    let arrays = words::distinct(rows(&data["VD LIST"]).filter_map(array).collect())?;
    let drives = |test: fn(&Value) -> bool| rows(&data["PD LIST"]).filter(move |it| test(it));
    let slots = |test| drives(test).filter_map(|it| text(&it["EID:Slt"])).collect();
    let failed = drives(|it| is_one_of(&it["State"], &["Offln", "UBad", "Failed", "Msng"]));
    let with_state =
        |it: &Value| Some(format!("{} ({})", text(&it["EID:Slt"])?, text(&it["State"])?));
    // `00:65:00:00`.
    let pci = |value: &Value| words::pci(&text(value)?);
    Ok(RaidReport {
        tool: STORCLI.name,
        pci: [&data["Basics"]["PCI Address"], &data["PCI Address"]].into_iter().find_map(pci),
        arrays,
        hot_spares: drives(|it| is_one_of(&it["State"], &["GHS", "DHS"])).count(),
        rebuilding: slots(|it| is_one_of(&it["State"], &["Rbld"])),
        failed: failed.filter_map(with_state).collect(),
        foreign: slots(|it| is_one_of(&it["DG"], &["F"])),
        protection: protection(data),
        has_preserved_cache: is_one_of(&data["Status"]["Any Offline VD Cache Preserved"], &["Yes"]),
    })
}

/// The number is the firmware's target id, which the kernel has in the SCSI address: 239 is `0:3:111:0`
/// (MEGASAS_DEV_INDEX, megaraid_sas.h).
fn array(row: &Value) -> Option<ReportedArray> {
    let name = text(&row["DG/VD"])?;
    let number = name.rsplit_once('/')?.1.trim().parse().ok()?;
    let state = text(&row["State"]).unwrap_or_default();
    let cache = text(&row["Cache"]).unwrap_or_default();
    let words = [&row["TYPE"], &row["State"], &row["Cache"], &row["Size"], &row["Name"]];
    let words: Vec<String> = words.into_iter().filter_map(text).collect();
    Some(ReportedArray {
        name: ArrayName::Target(number),
        state: array_state(&state),
        has_lost_blocks: false,
        // Always WriteBack.
        forces_write_back: cache.contains("AWB"),
        text: format!("{name} {}", words.join(" ")),
    })
}

/// The tool's own legend. `Rec`: it is being recovered.
fn array_state(word: &str) -> Option<ArrayState> {
    match word {
        "Optl" => Some(ArrayState::Optimal),
        "Dgrd" | "Pdgd" | "Rec" => Some(ArrayState::Degraded),
        "OfLn" => Some(ArrayState::Offline),
        _ => None,
    }
}

/// `BBU Status` is a bit mask that nobody documents: the words of the section count.
fn protection(data: &Value) -> CacheProtection {
    let sections = ["Cachevault_Info", "BBU_Info"].into_iter().flat_map(|key| rows(&data[key]));
    let states: Vec<String> = sections.filter_map(|row| text(&row["State"])).collect();
    match states.iter().find(|state| *state != "Optimal") {
        Some(state) => CacheProtection::Impaired(state.clone()),
        None if !states.is_empty() => CacheProtection::Optimal,
        None if is_one_of(&data["HwCfg"]["BBU"], &["Absent"]) => CacheProtection::Absent,
        None => CacheProtection::Unknown,
    }
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text or a number: which of them depends on the version.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => word(text),
        Value::Number(number) => word(&number.to_string()),
        _ => None,
    }
}

fn is_one_of(value: &Value, words: &[&str]) -> bool {
    text(value).is_some_and(|text| words.contains(&text.as_str()))
}
