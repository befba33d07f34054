//! The metrics of one report. The name of an ATA attribute defines its meaning, not its number:
//! vendors assign numbers freely. The drive database of smartmontools (drivedb.h) has the names.
//!
//! In: one report. Out: the value of each metric. A value of unknown meaning is left out.

use std::collections::BTreeMap;

use crate::history::Metric;
use crate::report::{Ata, Attribute, Body, ErrorCounter, Identity, Nvme, Scsi, SmartReport};

/// Names of drivedb.h (7.0 to 7.5), and ataprint.cpp's for its `-v` formats. Names that resemble
/// these but have another meaning are left out on purpose: `Current_Pending_ECC_Cnt` and
/// `Bogus_Current_Pend_Sect` (a firmware that flips between 0 and 1), `Error_Correction_Count`
/// (errors that were corrected), `Unc_Soft_Read_Err_Rate` (a rate), `Total_Pending_Sectors` (the
/// lifetime total).
const ATTRIBUTE_NAMES: &[(&str, Metric)] = &[
    ("Reallocated_Sector_Ct", Metric::Reallocated),
    ("Reallocate_NAND_Blk_Cnt", Metric::Reallocated),
    ("Reallocated_Block_Count", Metric::Reallocated),
    ("Retired_Block_Count", Metric::Reallocated),
    ("Retried_Blk_Ct", Metric::Reallocated),
    ("New_Bad_Blk_Cnt", Metric::Reallocated),
    ("Later_Bad_Block", Metric::Reallocated),
    ("Reallocated_Event_Count", Metric::ReallocationEvents),
    ("Current_Pending_Sector", Metric::Pending),
    ("Pending_Sector_Count", Metric::Pending),
    ("Offline_Uncorrectable", Metric::OfflineUncorrectable),
    ("Off-line_Scan_UNC_Sector_Ct", Metric::OfflineUncorrectable),
    ("Reported_Uncorrect", Metric::ReportedUncorrectable),
    ("Reported_UE_Counts", Metric::ReportedUncorrectable),
    ("Uncorrectable_Error_Cnt", Metric::ReportedUncorrectable),
    ("Uncorrectable_Err_Ct", Metric::ReportedUncorrectable),
    ("Uncorrectable_ECC_Ct", Metric::ReportedUncorrectable),
    ("Uncorrectable_ECC_Cnt", Metric::ReportedUncorrectable),
    ("Soft_Read_Error_Rate", Metric::SoftReadErrors),
    ("End-to-End_Error", Metric::EndToEndErrors),
    ("End-to-End_Error_Count", Metric::EndToEndErrors),
    ("End_to_End_Err_Detect", Metric::EndToEndErrors),
    ("IO_Error_Detect_Code_Ct", Metric::EndToEndErrors),
    ("Command_Timeout", Metric::CommandTimeouts),
    ("Command_Timeouts", Metric::CommandTimeouts),
    ("Spin_Retry_Count", Metric::SpinRetries),
    ("UDMA_CRC_Error_Count", Metric::CrcErrors),
    ("SATA_CRC_Error_Count", Metric::CrcErrors),
    ("SATA_CRC_Error", Metric::CrcErrors),
    ("CRC_Error_Count", Metric::CrcErrors),
];

/// Numbers with the same meaning for every manufacturer of rotating drives in drivedb.h. They count
/// even if a name is missing.
const CONVENTIONAL_IDS: &[(u8, Metric)] = &[
    (5, Metric::Reallocated),
    (187, Metric::ReportedUncorrectable),
    (196, Metric::ReallocationEvents),
    (197, Metric::Pending),
    (198, Metric::OfflineUncorrectable),
    (199, Metric::CrcErrors),
];

/// Attributes whose normalized value is the remaining percent of life, according to drivedb.h's
/// comments and the data sheets that it cites.
const LIFE_LEFT_NAMES: &[&str] = &[
    "Media_Wearout_Indicator",
    "Wear_Leveling_Count",
    "SSD_Life_Left",
    "SSD_Life_Left_Perc",
    "Lifetime_Left",
    "Percent_Lifetime_Remain",
    "Percent_Life_Remaining",
    "Perc_Rated_Life_Remain",
    "Perc_Rated_Life_Used",
    "Percent_Lifetime_Used",
    "Remaining_Lifetime_Perc",
    "Remaining_Life",
    "PCT_Life_Remaining",
    "Lifetime_Remaining%",
    "DriveLife_Remaining%",
    "Drive_Life_Remaining%",
];

/// Attributes of that list whose name does not say in which direction they count.
const SILENT_NAMES: &[&str] = &["Media_Wearout_Indicator", "Wear_Leveling_Count"];

/// Numbers of `Media_Wearout_Indicator` that count the used percent upwards: WD and SanDisk
/// (drivedb.h, `-v 230,hex48` and `-v 230,raw16`). 233, of Intel and others, counts what is left.
const MEDIA_WEAROUT_USED_IDS: &[u8] = &[230];

/// Attributes whose raw value is the mean number of erasures of a block.
const MEAN_ERASURE_NAMES: &[&str] = &[
    "Wear_Leveling_Count",
    "Average_PE_Cycles_TLC",
    "Average_Erase_Count",
    "Avg_Write/Erase_Count",
    "Ave_Block-Erase_Count",
    "Average_Block-Erase_Ct",
];

/// No flash is designed for fewer erasures of a block (QLC: a few hundred).
const MIN_DESIGNED_ERASURES: u64 = 100;

/// Sources of the used percent may differ by this much.
const WEAR_TOLERANCE: u64 = 3;

/// Attributes of that list whose raw value counts the same percent down while the normalized value
/// stays at 100 (Silicon Motion, Phison).
const RAW_LIFE_LEFT_NAMES: &[&str] = &[
    "SSD_Life_Left",
    "SSD_Life_Left_Perc",
    "Lifetime_Left",
    "Remaining_Lifetime_Perc",
    "Lifetime_Remaining%",
    "DriveLife_Remaining%",
    "Drive_Life_Remaining%",
];

/// Attributes whose raw value counts the used percent (Micron: `norm = max(100-raw,0)`, in
/// drivedb.h; in older firmware the normalized value wraps).
const RAW_LIFE_USED_NAMES: &[&str] = &[
    "Percent_Lifetime_Remain",
    "Perc_Rated_Life_Used",
    "Percent_Lifetime_Used",
    "Percent_Life_Used",
    "Drive_Life_Used%",
    "DriveLife_Used%",
];

/// Attributes whose normalized value is the remaining percent of reserve blocks.
const SPARE_LEFT_NAMES: &[&str] = &[
    "Available_Reservd_Space",
    "Available_Reserved_Space",
    "Perc_Avail_Resrvd_Space",
    "Spares_Remaining_Perc",
    "Reserved_Block_Pct",
];

/// The metrics of one report. A value that the drive did not report is absent.
pub fn metric_values(report: &SmartReport) -> BTreeMap<Metric, u64> {
    let mut values = BTreeMap::new();
    let mut record = |metric: Metric, value: Option<u64>| {
        if let Some(value) = value {
            let most: &mut u64 = values.entry(metric).or_insert(value);
            *most = (*most).max(value);
        }
    };
    // Implausible temperatures come from a drive without a working sensor.
    record(
        Metric::Temperature,
        report
            .temperature
            .filter(|celsius| (1..=150).contains(celsius))
            .and_then(|celsius| u64::try_from(celsius).ok()),
    );
    record(Metric::PowerOnHours, report.power_on_hours);
    match &report.body {
        Body::Ata(ata) => record_ata(ata, &report.identity, &mut record),
        Body::Nvme(nvme) => record_nvme(nvme, &mut record),
        Body::Scsi(scsi) => record_scsi(scsi, &mut record),
        Body::None => {}
    }
    values
}

fn record_ata(ata: &Ata, identity: &Identity, record: &mut impl FnMut(Metric, Option<u64>)) {
    let mut by_attribute = [false; 3];
    for attribute in &ata.attributes {
        let Some(metric) = attribute_metric(attribute, ata, identity) else {
            continue;
        };
        let value = raw_count(metric, attribute);
        match metric {
            Metric::Reallocated => by_attribute[0] |= value.is_some(),
            Metric::ReportedUncorrectable => by_attribute[1] |= value.is_some(),
            Metric::CrcErrors => by_attribute[2] |= value.is_some(),
            _ => {}
        }
        record(metric, value);
    }
    // ACS-4, Device Statistics: the same values without a vendor's packing. They are read less
    // often, so they count only if no attribute has the value.
    let statistic = |page: u8, offset: u32| {
        let found = ata.statistics.iter().find(|statistic| {
            statistic.page == page && statistic.offset == offset && !statistic.normalized
        });
        found.and_then(|statistic| u64::try_from(statistic.value).ok())
    };
    for (by_attribute, metric, value) in [
        (by_attribute[0], Metric::Reallocated, statistic(3, 0x20)),
        (by_attribute[1], Metric::ReportedUncorrectable, statistic(4, 0x08)),
        (by_attribute[2], Metric::CrcErrors, statistic(6, 0x18)),
    ] {
        record(metric, value.filter(|_| !by_attribute));
    }
    record(Metric::Pending, ata.pending_defects);
    record(Metric::LoggedErrors, ata.error_count);
    for attribute in &ata.attributes {
        record(Metric::WearPercent, wear_percent(attribute, ata, identity));
    }
    record(Metric::WearPercent, endurance_statistic(ata));
    record(Metric::WearPercent, endurance_used(ata, identity));
    let by_attribute =
        ata.attributes.iter().filter_map(|attribute| spare_percent(attribute, ata, identity)).min();
    record(Metric::SparePercent, by_attribute.or_else(|| spare_available(ata, identity)));
}

fn record_nvme(nvme: &Nvme, record: &mut impl FnMut(Metric, Option<u64>)) {
    record(Metric::WearPercent, nvme.percentage_used.map(u64::from));
    // Drives that count no spare blocks report 0 % with a threshold of 0 % (QEMU's hw/nvme/ctrl.c
    // leaves both empty).
    let counts = nvme.available_spare != Some(0) || nvme.available_spare_threshold.unwrap_or(0) > 0;
    record(
        Metric::SparePercent,
        nvme.available_spare.filter(|percent| counts && *percent <= 100).map(u64::from),
    );
    record(Metric::MediaErrors, nvme.media_errors);
    record(Metric::UnsafeShutdowns, nvme.unsafe_shutdowns);
}

fn record_scsi(scsi: &Scsi, record: &mut impl FnMut(Metric, Option<u64>)) {
    record(Metric::GrownDefects, scsi.grown_defects);
    record(Metric::Pending, scsi.pending_defects);
    record(Metric::WearPercent, scsi.percentage_used.map(u64::from));
    let uncorrected =
        |counter: &Option<ErrorCounter>| counter.as_ref().and_then(|counter| counter.uncorrected);
    let counts = [uncorrected(&scsi.read), uncorrected(&scsi.write), uncorrected(&scsi.verify)];
    let sum = counts.iter().flatten().fold(0_u64, |sum, value| sum.saturating_add(*value));
    record(Metric::UncorrectedErrors, counts.iter().any(Option::is_some).then_some(sum));
}

/// The metric that an attribute counts, if known.
pub(crate) fn attribute_metric(
    attribute: &Attribute,
    ata: &Ata,
    identity: &Identity,
) -> Option<Metric> {
    let solid = is_solid_state(ata, identity);
    let Some((_, metric)) = ATTRIBUTE_NAMES.iter().find(|(name, _)| *name == attribute.name) else {
        let nameless = attribute.name.is_empty() || attribute.name.starts_with("Unknown_");
        return CONVENTIONAL_IDS
            .iter()
            .find(|(id, _)| *id == attribute.id)
            .map(|(_, metric)| *metric)
            .filter(|_| nameless && !solid);
    };
    let known = match metric {
        Metric::SpinRetries | Metric::SoftReadErrors => !solid,
        // All manufacturers of SSDs in drivedb.h use 5, 187 and 188 with these meanings.
        Metric::Reallocated | Metric::ReportedUncorrectable | Metric::CommandTimeouts => true,
        // The other numbers have several meanings (198, 199: gibibytes read and written), so a
        // default name proves nothing for an SSD.
        _ => !solid || in_database(identity),
    };
    known.then_some(*metric)
}

/// Whether this model is in drivedb.h: then the names are the manufacturer's and not defaults.
fn in_database(identity: &Identity) -> bool {
    identity.in_database.unwrap_or(identity.family.is_some())
}

/// Whether the drive is solid state: rotation rate 0 (ACS-4, IDENTIFY DEVICE word 217). Old
/// rotating drives report no rate, but have an attribute for their spin-up.
pub(crate) fn is_solid_state(ata: &Ata, identity: &Identity) -> bool {
    match identity.rotation_rate {
        Some(rate) => rate == 0,
        None => !ata.attributes.iter().any(|attribute| {
            ["Spin_Up_Time", "Spin_Retry_Count"].contains(&attribute.name.as_str())
        }),
    }
}

/// The amount in a raw value, as smartctl prints it: `269`, `2111 (12437 0)`, `0 0 5`.
fn raw_count(metric: Metric, attribute: &Attribute) -> Option<u64> {
    let numbers: Vec<u64> =
        attribute.raw_text.split(' ').map_while(|word| word.parse().ok()).collect();
    match (metric, numbers.as_slice()) {
        (_, []) => None,
        // Seagate, three fields of 16 bits (drivedb.h: raw16, the highest first): commands above
        // 7.5 s, above 5 s, all time-outs.
        (Metric::CommandTimeouts, [_, _, all]) => Some(*all),
        (Metric::CommandTimeouts, [packed, ..]) if *packed > 0xffff => Some(packed & 0xffff),
        // Only drivedb defines whether a plain number is packed: by a guess, a count of 65,536
        // would restart at 1. No error counter needs more than 32 bits: a larger value is no count,
        // and neither are 32 bits that are all set.
        (_, [first, ..]) => Some(*first).filter(|count| *count < u64::from(u32::MAX)),
    }
}

/// The used percent of the designed life, if this attribute has it.
pub(crate) fn wear_percent(attribute: &Attribute, ata: &Ata, identity: &Identity) -> Option<u64> {
    if !in_database(identity) || !is_solid_state(ata, identity) {
        return None;
    }
    let used = wear_by_name(attribute)?;
    if counts_upwards(attribute, used, ata) {
        return Some(100 - used);
    }
    Some(used)
}

/// Whether the normalized value of a life that seems to be `used` counts the used percent after
/// all: the drive database says so of this number, or another field of the drive contradicts it and
/// confirms the other direction.
fn counts_upwards(attribute: &Attribute, used: u64, ata: &Ata) -> bool {
    if used > 100 || !SILENT_NAMES.contains(&attribute.name.as_str()) {
        return false;
    }
    if attribute.name == "Media_Wearout_Indicator" && MEDIA_WEAROUT_USED_IDS.contains(&attribute.id)
    {
        return true;
    }
    let reversed = 100 - used;
    let by_name = ata.attributes.iter().filter_map(|other| {
        let directed = !SILENT_NAMES.contains(&other.name.as_str());
        wear_by_name(other).filter(|_| directed)
    });
    let is_contradicted = endurance_statistic(ata).into_iter().chain(by_name).any(|other| {
        other.abs_diff(reversed) <= WEAR_TOLERANCE && other.abs_diff(used) > 2 * WEAR_TOLERANCE
    });
    // Nothing wears out by so few erasures.
    let erasures = ata
        .attributes
        .iter()
        .filter(|other| MEAN_ERASURE_NAMES.contains(&other.name.as_str()))
        .filter_map(|other| first_number(&other.raw_text).filter(|count| *count > 0))
        .max();
    let too_few = used >= 50
        && erasures.is_some_and(|count| count.saturating_mul(100) < used * MIN_DESIGNED_ERASURES);
    is_contradicted || too_few
}

fn first_number(raw_text: &str) -> Option<u64> {
    raw_text.split(' ').next()?.parse().ok()
}

/// The used percent as the attribute's name says.
fn wear_by_name(attribute: &Attribute) -> Option<u64> {
    let name = attribute.name.as_str();
    let value = u64::from(attribute.value);
    let raw = attribute.raw_text.parse::<u64>().ok();
    let by_value = LIFE_LEFT_NAMES
        .contains(&name)
        .then_some(value)
        .filter(|left| *left <= 100)
        .map(|left| 100 - left);
    let used = raw.filter(|used| RAW_LIFE_USED_NAMES.contains(&name) && *used <= 255);
    let left = raw.filter(|left| {
        RAW_LIFE_LEFT_NAMES.contains(&name) && value == 100 && (1..100).contains(left)
    });
    match (by_value, used, left) {
        (_, _, Some(left)) => Some(100 - left),
        // The name refers to the used share, so the normalized value may be either.
        (_, Some(used), _) if name.contains("Used") => Some(used),
        // If both are reported, they have to agree. 112 % used is a value of 244 in firmware whose
        // value wraps.
        (None, Some(used), _) if (value + used) % 256 == 100 => Some(used),
        (by_value, ..) => by_value,
    }
}

/// ACS-4, Device Statistics, Solid State Device page: Percentage Used Endurance Indicator.
fn endurance_statistic(ata: &Ata) -> Option<u64> {
    let found =
        ata.statistics.iter().find(|statistic| statistic.page == 7 && statistic.offset == 8);
    // One byte: 255 from 255 % on.
    found.and_then(|statistic| u8::try_from(statistic.value).ok().map(u64::from))
}

/// The value that smartctl 7.5 and later derives from attributes and statistics, also for models
/// that are not in drivedb. The attributes and statistics themselves take precedence.
pub(crate) fn endurance_used(ata: &Ata, identity: &Identity) -> Option<u64> {
    let by_attribute =
        ata.attributes.iter().any(|attribute| wear_percent(attribute, ata, identity).is_some());
    ata.endurance_used
        .filter(|_| {
            !by_attribute && endurance_statistic(ata).is_none() && is_solid_state(ata, identity)
        })
        .map(u64::from)
}

/// The remaining percent of spare blocks, derived in the same manner.
pub(crate) fn spare_available(ata: &Ata, identity: &Identity) -> Option<u64> {
    let by_attribute =
        ata.attributes.iter().any(|attribute| spare_percent(attribute, ata, identity).is_some());
    ata.spare_available
        .filter(|left| !by_attribute && *left <= 100 && is_solid_state(ata, identity))
        .map(u64::from)
}

/// The remaining percent of reserve blocks, if this attribute has it.
pub(crate) fn spare_percent(attribute: &Attribute, ata: &Ata, identity: &Identity) -> Option<u64> {
    let known = in_database(identity)
        && is_solid_state(ata, identity)
        && SPARE_LEFT_NAMES.contains(&attribute.name.as_str())
        && attribute.value <= 100;
    known.then_some(u64::from(attribute.value))
}

/// Whether an attribute is about the temperature: heat is not failure, and its normalized value is
/// often the temperature itself.
pub(crate) fn is_temperature(attribute: &Attribute) -> bool {
    attribute.name.contains("Temp")
        || (matches!(attribute.id, 190 | 194) && attribute.name.starts_with("Unknown_"))
}
