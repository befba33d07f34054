//! ext4: errors recorded in its superblock since it was created or last checked, and messages since
//! it was mounted (fs/ext4/sysfs.c). Reads the superblock in memory.

use std::collections::BTreeMap;

use crate::counters::block_reading;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::counters::CounterReading;

const DIR: &str = "/sys/fs/ext4";
/// Warnings and messages since 5.0. Mounting also logs a message, so those two count no errors.
const COUNTERS: [&str; 3] = ["errors_count", "warning_count", "msg_count"];
/// Details of the first and of the last error; codes, inode, block, line and function exist since
/// 5.8 (fs/ext4/ext4.h, EXT4_ERR_* for the codes).
const FIELDS: [&str; 6] = ["time", "errcode", "func", "line", "ino", "block"];

pub fn read(reader: &SysfsReader<'_>) -> Vec<CounterReading> {
    // The directory `features` is no filesystem and has no counts.
    reader.list(DIR).iter().filter_map(|name| read_one(reader, name).ok().flatten()).collect()
}

fn read_one(reader: &SysfsReader<'_>, name: &str) -> Result<Option<CounterReading>, DeviceRemoved> {
    let file = format!("{DIR}/{name}");
    let (mut values, mut details) = (BTreeMap::new(), BTreeMap::new());
    for attribute in COUNTERS {
        values.extend(
            reader
                .number(&format!("{file}/{attribute}"))?
                .map(|value| (attribute.to_owned(), value)),
        );
    }
    let Some(errors) = values.get("errors_count") else {
        return Ok(None);
    };
    if *errors > 0 {
        for attribute in ["first", "last"]
            .iter()
            .flat_map(|which| FIELDS.map(|field| format!("{which}_error_{field}")))
        {
            details
                .extend(reader.text(&format!("{file}/{attribute}"))?.map(|text| (attribute, text)));
        }
    }
    Ok(Some(block_reading(name, "ext4", file, values, details)))
}
