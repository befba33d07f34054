//! md: blocks that differed at the last check or repair, and read errors of each member that were
//! corrected (Documentation/admin-guide/md.rst). Reading can take the array's lock, which I/O can
//! hold: each array is a question of its own.

use std::collections::BTreeMap;

use crate::model::counters::CounterReading;
use crate::source::counters::block_reading;
use crate::source::inventory::sysfs::{DeviceRemoved, SysfsReader};

/// `mismatch_cnt` is of the array, in sectors, set to 0 when a check begins; `errors` is of the
/// member, by its own name.
pub(crate) fn read(
    reader: &SysfsReader<'_>,
    array: &str,
) -> Result<Vec<CounterReading>, DeviceRemoved> {
    let dir = format!("/sys/block/{array}/md");
    let reading = |device: &str, file: String, name: &str, value: u64| {
        let values = BTreeMap::from([(name.to_owned(), value)]);
        let details = BTreeMap::from([("array".to_owned(), array.to_owned())]);
        block_reading(device, "md", file, values, details)
    };
    let mut readings = Vec::new();
    // Levels without redundancy have none.
    let file = format!("{dir}/mismatch_cnt");
    if let Some(value) = reader.number(&file)? {
        readings.push(reading(array, file, "mismatch_cnt", value));
    }
    for member in reader
        .list(&dir)
        .iter()
        .filter(|name| name.starts_with("dev-"))
    {
        // Of a member that was pulled out, the link is gone and the name remains; it may be
        // another's by now.
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
