//! md: blocks that differed at the last check or repair, and corrected read errors of each member
//! (Documentation/admin-guide/md.rst). Reading can take the array's lock, which I/O can hold: each
//! array is a separate job.

use std::collections::BTreeMap;

use crate::counters::block_reading;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::counters::CounterReading;

/// `mismatch_cnt` belongs to the array, in sectors, and is set to 0 when a check begins; `errors`
/// belongs to a member.
pub fn read(reader: &SysfsReader<'_>, array: &str) -> Result<Vec<CounterReading>, DeviceRemoved> {
    let dir = format!("/sys/block/{array}/md");
    let reading = |device: &str, file: String, name: &str, value: u64| {
        let values = BTreeMap::from([(name.to_owned(), value)]);
        let details = BTreeMap::from([("array".to_owned(), array.to_owned())]);
        block_reading(device, "md", file, values, details)
    };
    let mut readings = Vec::new();
    // Levels without redundancy have no such file.
    let file = format!("{dir}/mismatch_cnt");
    if let Some(value) = reader.number(&file)? {
        readings.push(reading(array, file, "mismatch_cnt", value));
    }
    for member in reader.list(&dir).iter().filter(|name| name.starts_with("dev-")) {
        // When a member is pulled out, its link disappears and its name remains, which another
        // device may have now.
        let Some(block) = reader.link(&format!("{dir}/{member}/block")) else {
            continue;
        };
        let device = block.rsplit('/').next().unwrap_or_default();
        let file = format!("{dir}/{member}/errors");
        if let Some(value) = reader.number(&file)? {
            readings.push(reading(device, file, "errors", value));
        }
    }
    Ok(readings)
}
