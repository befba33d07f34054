//! PCIe: errors of the link and of transactions that a drive's controller has reported (Advanced
//! Error Reporting, drivers/pci/pcie/aer.c; since 4.19). The counters are in kernel memory; the
//! device is not queried, and a sleeping one is not woken.
//!
//! Only the function of a drive, or of its host bus adapter, is read. The port above it counts
//! errors of its own end of the link and, on a switch, of other devices; it is left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::inventory::classify;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::counters::{CounterDevice, CounterReading};

/// The severities: suffixes of the attribute names, and prefixes of our counter names, since fatal
/// and non-fatal errors have the same names.
const SEVERITIES: [&str; 3] = ["correctable", "nonfatal", "fatal"];

/// Lines of `NAME COUNT`; the last is a total (`TOTAL_ERR_COR`). None for malformed text.
pub fn parse(text: &str) -> Option<Vec<(&str, u64)>> {
    let line = |line: &'_ str| -> Option<(usize, u64)> {
        // Kernels before 5.4 have spaces in the names (`Receiver Error 0`); the count follows the
        // last space.
        let at = line.trim_end().rfind(' ')?;
        Some((at, line[at..].trim().parse().ok()?))
    };
    text.lines().map(|text| line(text).map(|(at, count)| (text[..at].trim_end(), count))).collect()
}

/// Reads each PCIe function above the block devices `names` and above the NVMe controllers once.
pub fn read(reader: &SysfsReader<'_>, names: &[String]) -> Vec<CounterReading> {
    let blocks = names.iter().map(|name| format!("/sys/class/block/{name}"));
    // With native multipath, the block device of a namespace is below no controller.
    let controllers =
        reader.list("/sys/class/nvme").into_iter().map(|name| format!("/sys/class/nvme/{name}"));
    let paths: Vec<String> =
        blocks.chain(controllers).filter_map(|link| reader.link(&link)).collect();
    // The path, cut off after the function's address.
    let folder = |path: &str| {
        classify::pci_address(path).and_then(|name| {
            Some((name.to_owned(), path[..path.rfind(name)? + name.len()].to_owned()))
        })
    };
    let functions: BTreeSet<(String, String)> =
        paths.iter().filter_map(|path| folder(path)).collect();
    functions
        .into_iter()
        .filter_map(|(name, folder)| read_one(reader, name, &folder).ok().flatten())
        .collect()
}

fn read_one(
    reader: &SysfsReader<'_>,
    name: String,
    folder: &str,
) -> Result<Option<CounterReading>, DeviceRemoved> {
    let mut values = BTreeMap::new();
    for severity in SEVERITIES {
        let file = format!("{folder}/aer_dev_{severity}");
        let Some(text) = reader.text(&file)? else {
            continue;
        };
        match parse(&text) {
            Some(counts) => values.extend(
                counts.into_iter().map(|(name, count)| (format!("{severity}.{name}"), count)),
            ),
            None => reader.warn(format!("{file}: `{text:.80}` are not counters")),
        }
    }
    let file = format!("/sys/bus/pci/devices/{name}/aer_dev_*");
    Ok((!values.is_empty()).then(|| CounterReading {
        device: CounterDevice::Pci(name),
        source: "aer".into(),
        file,
        values,
        details: BTreeMap::new(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_counter() {
        let counts = parse("RxErr 3\nBadTLP 0\nTOTAL_ERR_COR 3\n").expect("counters");
        assert_eq!(counts, [("RxErr", 3), ("BadTLP", 0), ("TOTAL_ERR_COR", 3)]);
        assert_eq!((parse("RxErr"), parse("RxErr x")), (None, None));
    }

    #[test]
    fn the_function_is_the_nearest_one_above_the_device() {
        let path = "/sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sda";
        assert_eq!(classify::pci_address(path), Some("0000:03:00.0"));
        assert_eq!(
            classify::pci_address(
                "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0/nvme/nvme0"
            ),
            Some("10000:e1:00.0")
        );
        assert_eq!(classify::pci_address("/sys/devices/virtual/block/loop0"), None);
        assert_eq!(
            classify::pci_address(
                "/sys/devices/platform/ahci/ata1/host0/target0:0:0/0:0:0:0/block/sda"
            ),
            None
        );
    }
}
