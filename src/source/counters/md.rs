//! md: corrected read errors of each member (Documentation/admin-guide/md.rst). Reading can take the
//! array's lock, which I/O can hold: each array is a separate job.

use std::collections::BTreeMap;

use crate::counters::block_reading;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::counters::CounterReading;

pub fn read(reader: &SysfsReader<'_>, array: &str) -> Result<Vec<CounterReading>, DeviceRemoved> {
    let dir = format!("/sys/block/{array}/md");
    let mut readings = Vec::new();
    for member in reader.list(&dir).iter().filter(|name| name.starts_with("dev-")) {
        // When a member is pulled out, its link disappears and its name remains, which another
        // device may have now.
        let Some(block) = reader.link(&format!("{dir}/{member}/block")) else {
            continue;
        };
        let device = block.rsplit('/').next().unwrap_or_default();
        let file = format!("{dir}/{member}/errors");
        if let Some(value) = reader.number(&file)? {
            let values = BTreeMap::from([("errors".to_owned(), value)]);
            let details = BTreeMap::from([("array".to_owned(), array.to_owned())]);
            readings.push(block_reading(device, "md", file, values, details));
        }
    }
    Ok(readings)
}
