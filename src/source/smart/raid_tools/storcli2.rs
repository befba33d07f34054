//! The answers of `storcli2 /call show all nolog J` and `/call/vall show all nolog J`, which perccli2 gives
//! too (StorCLI 2 User Guide UG104; outputs of a MegaRAID 9660-16i and of a Cisco controller that users
//! publish): the envelope of storcli with other keys. A drive has its use as `State` and whether it works as
//! `Status`; an array has the identifier that the kernel has too.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::smart::raid_tools::storcli::{array_state, controllers, foreign, is_one_of, rows, text};
use crate::smart::raid_tools::words::{self, ParseError};
use diskvitals_model::raid_report::{
    ArrayName, CacheProtection, RaidReport, Rebuild, ReportedArray, STORCLI2,
};

pub(super) fn parse(bytes: &[u8], arrays: &[u8]) -> Result<Vec<RaidReport>, ParseError> {
    let arrays: BTreeMap<String, Value> = controllers(arrays)?.into_iter().collect();
    let report = |(number, data): &(String, Value)| report(data, arrays.get(number));
    controllers(bytes)?.iter().map(report).collect()
}

fn report(data: &Value, arrays: Option<&Value>) -> Result<RaidReport, ParseError> {
    let arrays = arrays.into_iter().flat_map(|it| rows(&it["Virtual Drives"])).filter_map(array);
    let drives = || rows(&data["PD LIST"]);
    let is_spare = |it: &&Value| {
        is_one_of(&it["State"], &["GHS", "DHS"]) && is_one_of(&it["Status"], &["Good", "Online"])
    };
    let failed =
        drives().filter(|it| is_one_of(&it["Status"], &["Failed", "Offline", "Missing", "Bad"]));
    let with_status =
        |it: &Value| Some(format!("{} ({})", text(&it["EID:Slt"])?, text(&it["Status"])?));
    // `00:16:00:0`.
    let pci = text(&data["HostInterface"]["PCI Address"]);
    Ok(RaidReport {
        tool: STORCLI2.name,
        pci: pci.and_then(|it| words::pci(&it)),
        arrays: words::distinct(arrays.collect())?,
        hot_spares: drives().filter(is_spare).count(),
        failed: failed.filter_map(with_status).collect(),
        foreign: foreign(data),
        protection: protection(data),
        has_preserved_cache: is_one_of(&data["Status"]["Preserved Cache Present"], &["Yes"]),
    })
}

fn array(drive: &Value) -> Option<ReportedArray> {
    let (info, properties) = (&drive["VD Info"], &drive["VD Properties"]);
    let state = text(&info["State"]).unwrap_or_default();
    let cache = text(&info["CurrentCache"]).unwrap_or_default();
    let keys = ["DG/VD", "TYPE", "State", "CurrentCache", "Size", "Name"];
    let words: Vec<String> = keys.iter().filter_map(|key| text(&info[key])).collect();
    let filling = rows(&drive["PDs"]).filter(|it| is_one_of(&it["Status"], &["Rebuild"]));
    let onto: Vec<String> = filling.filter_map(|it| text(&it["EID:Slt"])).collect();
    Some(ReportedArray {
        name: ArrayName::Wwn(words::wwn(&text(&properties["SCSI NAA Id"])?)?),
        state: array_state(&state),
        has_lost_blocks: is_one_of(&properties["Bad Block Exists"], &["Yes"]),
        // Always WriteBack.
        forces_write_back: cache.contains("AWB"),
        // In which form JSON has its progress is not known.
        rebuild: (!onto.is_empty()).then(|| Rebuild { onto, ..Rebuild::default() }),
        text: words.join(" "),
    })
}

/// A word that is not known is no finding.
fn protection(data: &Value) -> CacheProtection {
    let states: Vec<String> =
        rows(&data["Energy Pack Info"]).filter_map(|row| text(&row["Status"])).collect();
    let bad = states.iter().find(|it| matches!(it.as_str(), "Need Attention" | "Critical"));
    match bad {
        Some(state) => CacheProtection::Impaired(state.clone()),
        None if states.is_empty() && is_one_of(&data["HwCfg"]["Energy Pack"], &["Absent"]) => {
            CacheProtection::Absent
        }
        None if !states.is_empty() && states.iter().all(|it| it == "Optimal") => {
            CacheProtection::Optimal
        }
        None => CacheProtection::Unknown,
    }
}
