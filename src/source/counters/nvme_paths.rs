//! The paths of NVMe multipath, for each namespace of a subsystem: those over which the kernel sends I/O
//! (nvme_path_is_disabled(), drivers/nvme/host/multipath.c). All of it is in the kernel's memory.

use std::collections::BTreeMap;

use crate::counters::block_reading;
use crate::inventory::block::parent;
use crate::inventory::classify::is_numbered_name;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::counters::CounterReading;
use diskvitals_model::link::{NVME_PATHS, PATHS};

/// Reads each namespace whose disk is below a subsystem: the kernel may have several paths to it.
pub(super) fn read(reader: &SysfsReader<'_>, names: &[String]) -> Vec<CounterReading> {
    names.iter().filter_map(|name| read_one(reader, name).ok().flatten()).collect()
}

fn read_one(reader: &SysfsReader<'_>, name: &str) -> Result<Option<CounterReading>, DeviceRemoved> {
    // `nvme0n1`, not a partition and not a path (`nvme0c1n1`).
    let Some((subsystem, namespace)) = name.strip_prefix("nvme").and_then(|it| it.split_once('n'))
    else {
        return Ok(None);
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if !is_number(subsystem) || !is_number(namespace) {
        return Ok(None);
    }
    let file = format!("/sys/class/block/{name}");
    let Some(sysfs) = reader.link(&file).filter(|sysfs| sysfs.contains("/nvme-subsystem/")) else {
        return Ok(None);
    };
    let mut usable = 0;
    // The kernel links each of its controllers there.
    let members = reader.list(parent(&sysfs));
    for controller in members.iter().filter(|name| is_numbered_name(name, "nvme")) {
        let number = controller.trim_start_matches("nvme");
        let dir = format!("/sys/class/nvme/{controller}");
        let state = reader.text(&format!("{dir}/state"))?;
        let path = format!("{dir}/nvme{subsystem}c{number}n{namespace}");
        // Without ANA there is no such file.
        let ana = reader.text(&format!("{path}/ana_state"))?;
        let is_usable = reader.is_dir(&path)
            && matches!(ana.as_deref(), None | Some("optimized" | "non-optimized"));
        usable += u64::from(state.as_deref() == Some("live") && is_usable);
    }
    let values = BTreeMap::from([(PATHS.to_owned(), usable)]);
    Ok(Some(block_reading(name, NVME_PATHS, file, values, BTreeMap::new())))
}
