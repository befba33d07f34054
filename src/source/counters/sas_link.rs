//! The SAS link of a disk: its phys, their rate and their error counters (scsi_transport_sas;
//! drivers/scsi/scsi_transport_sas.c), and the phys on the way to its shelf.
//!
//! The rates are in the kernel's memory. For the counters it asks the adapter, or by SMP the expander,
//! which may take long: a job of its own, once an hour.

use std::collections::BTreeMap;

use crate::counters::block_reading;
use crate::inventory::block::{file_name, parent};
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::counters::{CounterReading, DISK_SEQUENCE};
use diskvitals_model::link::{LANES, PHY_ERRORS, RATE, SAS_LINK, SHELF_LANES};

/// `12.0 Gbit` as megabits per second. None for `Unknown`, `Phy disabled`, `Link Rate failed` and others
/// (sas_linkspeed_names).
fn parse_rate(text: &str) -> Option<u64> {
    let (whole, tenths) = text.strip_suffix(" Gbit")?.split_once('.')?;
    let tenths: u64 = tenths.parse().ok().filter(|_| tenths.len() == 1)?;
    Some(whole.parse::<u64>().ok().filter(|whole| *whole < 1000)? * 1000 + tenths * 100)
}

/// The folder of the port of a SAS end device: `…/port-0:0/end_device-0:0/…`.
fn port(sysfs: &str) -> Option<&str> {
    let mut dir = sysfs;
    while !dir.is_empty() {
        if file_name(dir).starts_with("end_device-") {
            return Some(parent(dir));
        }
        dir = parent(dir);
    }
    None
}

/// Whether it is an awake disk on a SAS port.
pub(super) fn has_port(reader: &SysfsReader<'_>, name: &str) -> bool {
    let sysfs = reader.link(&format!("/sys/class/block/{name}"));
    let status = || reader.text(&format!("/sys/class/block/{name}/device/power/runtime_status"));
    name.starts_with("sd")
        && sysfs.is_some_and(|sysfs| {
            port(&sysfs).is_some() && !reader.exists(&format!("{sysfs}/partition"))
        })
        && !matches!(status(), Ok(Some(status)) if status != "active" && status != "unsupported")
}

/// None if no phy of its port has a rate.
pub(super) fn read(
    reader: &SysfsReader<'_>,
    name: &str,
) -> Result<Option<CounterReading>, DeviceRemoved> {
    let sysfs = reader.link(&format!("/sys/class/block/{name}"));
    let Some(port) = sysfs.as_deref().and_then(port) else {
        return Ok(None);
    };
    let phys = phys(reader, port);
    let mut values: BTreeMap<String, u64> = BTreeMap::new();
    for phy in &phys {
        let attribute = |name: &str| reader.text(&format!("/sys/class/sas_phy/{phy}/{name}"));
        let Some(rate) = attribute("negotiated_linkrate")?.as_deref().and_then(parse_rate) else {
            continue;
        };
        *values.entry(LANES.to_owned()).or_default() += 1;
        let slowest = values.entry(RATE.to_owned()).or_insert(rate);
        *slowest = rate.min(*slowest);
        for name in PHY_ERRORS {
            // Some adapters answer with EINVAL: then there is no count.
            let count = attribute(name)?.and_then(|text| text.parse::<u64>().ok());
            if let Some(count) = count {
                let sum = values.entry(name.to_owned()).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
    if values.is_empty() {
        return Ok(None);
    }
    let mut dir = parent(port);
    while !dir.is_empty() {
        if file_name(dir).starts_with("expander-") {
            let lanes = self::phys(reader, parent(dir)).len() as u64;
            let fewest = values.entry(SHELF_LANES.to_owned()).or_insert(lanes);
            *fewest = lanes.min(*fewest);
        }
        dir = parent(dir);
    }
    let sequence = reader.text(&format!("/sys/class/block/{name}/{DISK_SEQUENCE}"))?;
    let details = sequence.map(|text| (DISK_SEQUENCE.to_owned(), text)).into_iter().collect();
    Ok(Some(block_reading(name, SAS_LINK, port.to_owned(), values, details)))
}

fn phys(reader: &SysfsReader<'_>, port: &str) -> Vec<String> {
    reader.list(port).into_iter().filter(|name| name.starts_with("phy-")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_megabits_and_states_of_a_phy_are_none() {
        assert_eq!(
            ["1.5 Gbit", "12.0 Gbit", "22.5 Gbit"].map(parse_rate),
            [Some(1500), Some(12_000), Some(22_500)]
        );
        let states = ["Unknown", "Phy disabled", "Link Rate failed", "Spin-up hold"];
        assert_eq!(states.map(parse_rate), [None; 4]);
    }

    #[test]
    fn the_port_is_above_the_end_device() {
        let shelf = "/sys/devices/pci0000:00/0000:03:00.0/host0/port-0:0/expander-0:0/port-0:0:1";
        let disk = format!("{shelf}/end_device-0:0:1/target0:0:1/0:0:1:0/block/sdb");
        assert_eq!(port(&disk), Some(shelf));
        assert_eq!(port("/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda"), None);
    }
}
