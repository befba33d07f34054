//! The answers of `storcli /cALL show all J nolog` and `/cALL/eALL/sALL show rebuild J nolog`, which
//! perccli gives too: arrays, rebuilds, hot spares, foreign drives, and what protects the write cache.
//!
//! Keys and types differ by version: all are optional but the list of controllers. A word that is not
//! known makes a state unknown, never optimal.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::smart::raid_tools::words::{self, ParseError, word};
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::{
    ArrayName, CacheProtection, RaidReport, Rebuild, ReportedArray, STORCLI,
};

/// Percent done and seconds left, by controller and slot.
type Progress = BTreeMap<(String, String), (Option<u64>, Option<u64>)>;

pub(super) fn parse(bytes: &[u8], rebuilds: Option<&[u8]>) -> Result<Vec<RaidReport>, ParseError> {
    let progress = rebuilds.map(progress).transpose()?.unwrap_or_default();
    let controllers = controllers(bytes)?;
    controllers.iter().map(|(number, data)| report(number, data, &progress)).collect()
}

/// The controllers that answered, by the tool's numbers.
pub(super) fn controllers(bytes: &[u8]) -> Result<Vec<(String, Value)>, ParseError> {
    let mut answer: Value = serde_json::from_slice(bytes).map_err(ParseError::Json)?;
    let all = answer.get_mut("Controllers").and_then(Value::as_array_mut);
    let (mut controllers, mut refusal) = (Vec::new(), None);
    for controller in all.ok_or(ParseError::NoControllers)? {
        let status = &controller["Command Status"];
        let number = text(&status["Controller"]).unwrap_or_default();
        match status["Status"].as_str() {
            Some("Success") => {
                let data = controller.get_mut("Response Data").map(Value::take);
                controllers.push((number, data.unwrap_or_default()));
            }
            _ => refusal = Some(text(&status["Description"]).unwrap_or_default()),
        }
    }
    match refusal {
        Some(why) if controllers.is_empty() => Err(ParseError::Refused(why)),
        _ => Ok(controllers),
    }
}

fn progress(bytes: &[u8]) -> Result<Progress, ParseError> {
    let mut all = Progress::new();
    for (_, data) in controllers(bytes)? {
        for row in rows(&data) {
            let Some(drive) = text(&row["Drive-ID"]).and_then(|it| drive(&it)) else { continue };
            let percent = text(&row["Progress%"]).and_then(|it| it.parse().ok());
            let left = text(&row["Estimated Time Left"]).and_then(|it| seconds(&it));
            all.insert(drive, (percent.filter(|it| *it <= 100), left));
        }
    }
    Ok(all)
}

/// `/c0/e252/s4` and, without an enclosure, `/c0/s4`: the controller and the slot, `252:4` and `:4`.
fn drive(id: &str) -> Option<(String, String)> {
    let mut parts = id.strip_prefix("/c")?.split('/');
    let controller = parts.next()?.to_owned();
    let slot = match (parts.next()?, parts.next()) {
        (enclosure, Some(slot)) => {
            format!("{}:{}", enclosure.strip_prefix('e')?, slot.strip_prefix('s')?)
        }
        (slot, None) => format!(":{}", slot.strip_prefix('s')?),
    };
    Some((controller, slot))
}

/// `4 Days 3 Hours 51 Minutes`; None for `-`.
fn seconds(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    let mut all = 0_u64;
    while let Some(number) = words.next() {
        let unit = match words.next()?.trim_end_matches('s') {
            "Day" => 86_400,
            "Hour" => 3600,
            "Minute" => 60,
            "Second" => 1,
            _ => return None,
        };
        all = all.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
    }
    (all > 0).then_some(all)
}

fn report(number: &str, data: &Value, progress: &Progress) -> Result<RaidReport, ParseError> {
    let arrays = rows(&data["VD LIST"]).filter_map(|row| array(number, row, data, progress));
    let drives = |test: fn(&Value) -> bool| rows(&data["PD LIST"]).filter(move |it| test(it));
    let failed = drives(|it| is_one_of(&it["State"], &["Offln", "UBad", "Failed", "Msng"]));
    let with_state =
        |it: &Value| Some(format!("{} ({})", text(&it["EID:Slt"])?, text(&it["State"])?));
    // `00:65:00:00`.
    let pci = |value: &Value| words::pci(&text(value)?);
    Ok(RaidReport {
        tool: STORCLI.name,
        pci: [&data["Basics"]["PCI Address"], &data["PCI Address"]].into_iter().find_map(pci),
        arrays: words::distinct(arrays.collect())?,
        hot_spares: drives(|it| is_one_of(&it["State"], &["GHS", "DHS"])).count(),
        failed: failed.filter_map(with_state).collect(),
        foreign: foreign(data),
        protection: protection(data),
        has_preserved_cache: is_one_of(&data["Status"]["Any Offline VD Cache Preserved"], &["Yes"]),
    })
}

pub(super) fn foreign(data: &Value) -> Vec<String> {
    let drives = rows(&data["PD LIST"]).filter(|it| is_one_of(&it["DG"], &["F"]));
    drives.filter_map(|it| text(&it["EID:Slt"])).collect()
}

/// The number is the firmware's target id, which the kernel has in the SCSI address: 239 is `0:3:111:0`
/// (MEGASAS_DEV_INDEX, megaraid_sas.h).
fn array(
    controller: &str,
    row: &Value,
    data: &Value,
    progress: &Progress,
) -> Option<ReportedArray> {
    let name = text(&row["DG/VD"])?;
    let (group, number) = name.rsplit_once('/')?;
    let number = number.trim().parse().ok()?;
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
        rebuild: rebuild(controller, group, data, progress),
        text: format!("{name} {}", words.join(" ")),
    })
}

/// Of the members of this drive group.
fn rebuild(controller: &str, group: &str, data: &Value, progress: &Progress) -> Option<Rebuild> {
    let members = rows(&data["PD LIST"]).filter(|it| is_one_of(&it["DG"], &[group]));
    let filling = members.filter(|it| is_one_of(&it["State"], &["Rbld"]));
    let onto: Vec<String> = filling.filter_map(|it| text(&it["EID:Slt"])).collect();
    if onto.is_empty() {
        return None;
    }
    let running = || {
        let keys = onto.iter().map(|slot| (controller.to_owned(), slot.clone()));
        keys.filter_map(|key| progress.get(&key))
    };
    let percent = running().filter_map(|(percent, _)| *percent).min();
    let seconds_left = running().filter_map(|(_, left)| *left).max();
    Some(Rebuild { percent, seconds_left, onto })
}

/// The tool's own legend. `Rec`: it is being recovered.
pub(super) fn array_state(word: &str) -> Option<ArrayState> {
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

pub(super) fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text or a number: which of them depends on the version.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => word(text),
        Value::Number(number) => word(&number.to_string()),
        _ => None,
    }
}

pub(super) fn is_one_of(value: &Value, words: &[&str]) -> bool {
    text(value).is_some_and(|text| words.contains(&text.as_str()))
}
