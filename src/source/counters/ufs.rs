//! The health descriptor of a UFS device: its own report of wear (JESD220; drivers/ufs/core/ufs-sysfs.c,
//! since 4.17). Reading is a query to the device and wakes it: once an hour, in a job of its own, and
//! not while the device or its disk is suspended.

use std::collections::BTreeMap;

use crate::counters::block_reading;
use crate::inventory::block::{file_name, parent};
use crate::inventory::classify::is_numbered_name;
use crate::inventory::formats::parse_codes;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::counters::CounterReading;
use diskvitals_model::drive::{UFS, UFS_LIFE_TIME, UFS_PRE_EOL};

/// The folder of the UFS host controller above a disk, which has the descriptors.
fn controller(reader: &SysfsReader<'_>, name: &str) -> Option<String> {
    let sysfs = reader.link(&format!("/sys/class/block/{name}"))?;
    let mut dir = sysfs.as_str();
    while !is_numbered_name(file_name(dir), "host") {
        dir = Some(parent(dir)).filter(|dir| !dir.is_empty())?;
    }
    let dir = parent(dir);
    reader.exists(&format!("{dir}/health_descriptor")).then(|| dir.to_owned())
}

/// Whether it is a logical unit of a UFS device that is awake.
pub(super) fn is_awake(reader: &SysfsReader<'_>, name: &str) -> bool {
    let is_active = |dir: &str| {
        let status = reader.text(&format!("{dir}/power/runtime_status"));
        matches!(status, Ok(status) if matches!(status.as_deref(), None | Some("active" | "unsupported")))
    };
    name.starts_with("sd")
        && !reader.exists(&format!("/sys/class/block/{name}/partition"))
        && controller(reader, name).is_some_and(|dir| is_active(&dir))
        && is_active(&format!("/sys/class/block/{name}/device"))
}

pub(super) fn read(
    reader: &SysfsReader<'_>,
    name: &str,
) -> Result<Option<CounterReading>, DeviceRemoved> {
    let Some(dir) = controller(reader, name) else {
        return Ok(None);
    };
    let folder = format!("{dir}/health_descriptor");
    let mut values = BTreeMap::new();
    for attribute in [UFS_PRE_EOL, UFS_LIFE_TIME[0], UFS_LIFE_TIME[1]] {
        let file = format!("{folder}/{attribute}");
        let Some(text) = reader.text(&file)? else {
            continue;
        };
        match parse_codes(&text) {
            Some([code]) => {
                values.insert(attribute.to_owned(), u64::from(code));
            }
            None => reader.warn(format!("{file}: `{text:.40}` is no code of the standard")),
        }
    }
    Ok((!values.is_empty()).then(|| block_reading(name, UFS, folder, values, BTreeMap::new())))
}
