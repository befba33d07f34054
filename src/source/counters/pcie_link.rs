//! The PCIe link of an NVMe drive: how many lanes it has, and their rate (drivers/pci/pci-sysfs.c).
//!
//! Reading asks the device, and since 6.18 (and later updates of 5.10 to 6.12) wakes it up: only one
//! that is awake is read. The kernel answers `power_state` (5.11) and `runtime_status` by itself.

use std::collections::BTreeMap;

use crate::inventory::classify;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::counters::{CounterDevice, CounterReading};
use diskvitals_model::link::{BEST_OF_DRIVE, COMPLETED, IN_FLIGHT, LANES, PCIE_LINK, RATE};

/// `16.0 GT/s PCIe`, in older kernels `8 GT/s`, as mega-transfers per second. None for `Unknown`.
fn parse_rate(text: &str) -> Option<u64> {
    let (number, rest) = text.split_once(' ')?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let tenths: u64 = tenths.parse().ok().filter(|_| tenths.len() == 1)?;
    let whole: u64 = whole.parse().ok().filter(|whole| *whole < 1000)?;
    rest.starts_with("GT/s").then_some(whole * 1000 + tenths * 100)
}

/// The controllers over PCIe, by name.
pub(super) fn controllers(reader: &SysfsReader<'_>) -> Vec<String> {
    let is_pcie = |name: &String| {
        let transport = reader.text(&format!("/sys/class/nvme/{name}/transport"));
        matches!(transport, Ok(Some(transport)) if transport == "pcie")
    };
    reader.list("/sys/class/nvme").into_iter().filter(is_pcie).collect()
}

/// None if the device is not awake, or is no PCIe device.
pub(super) fn read(
    reader: &SysfsReader<'_>,
    controller: &str,
) -> Result<Option<CounterReading>, DeviceRemoved> {
    let Some(sysfs) = reader.link(&format!("/sys/class/nvme/{controller}")) else {
        return Ok(None);
    };
    let Some(function) = classify::pci_address(&sysfs) else {
        return Ok(None);
    };
    let folder = &sysfs[..sysfs.rfind(function).map_or(0, |at| at + function.len())];
    let text = |name: &str| reader.text(&format!("{folder}/{name}"));
    let (power, runtime) = (text("power_state")?, text("power/runtime_status")?);
    if power.is_some_and(|state| state != "D0")
        || runtime.is_some_and(|state| !matches!(state.as_str(), "active" | "unsupported"))
    {
        return Ok(None);
    }
    let mut values = BTreeMap::new();
    let (mut completed, mut in_flight) = (0_u64, 0_u64);
    for namespace in reader.list(&sysfs).iter().filter(|name| name.starts_with("nvme")) {
        if let Some(stat) = reader.text(&format!("{sysfs}/{namespace}/stat"))? {
            let (done, flying) = transfers(&stat);
            (completed, in_flight) =
                (completed.saturating_add(done), in_flight.saturating_add(flying));
        }
    }
    values.insert(COMPLETED.to_owned(), completed);
    values.insert(IN_FLIGHT.to_owned(), in_flight);
    // A link that is down has no lanes; a device that is gone has all bits set.
    let lanes = |text: Option<String>| text?.parse().ok().filter(|lanes| (1..=32).contains(lanes));
    let rate = |text: Option<String>| parse_rate(&text?);
    for (name, value) in [
        (LANES, lanes(text("current_link_width")?)),
        (RATE, rate(text("current_link_speed")?)),
        (BEST_OF_DRIVE[0], lanes(text("max_link_width")?)),
        (BEST_OF_DRIVE[1], rate(text("max_link_speed")?)),
    ] {
        values.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(values.contains_key(LANES).then(|| CounterReading {
        device: CounterDevice::Nvme(controller.to_owned()),
        source: PCIE_LINK.to_owned(),
        file: format!("/sys/bus/pci/devices/{function}"),
        values,
        details: BTreeMap::new(),
    }))
}

/// Completed and running reads and writes (Documentation/block/stat.rst).
fn transfers(stat: &str) -> (u64, u64) {
    let fields: Vec<u64> = stat.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or(0);
    (field(0).saturating_add(field(4)), field(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_mega_transfers() {
        let rates = ["2.5 GT/s PCIe", "8.0 GT/s PCIe", "8 GT/s", "64.0 GT/s PCIe"];
        assert_eq!(rates.map(parse_rate), [Some(2500), Some(8000), Some(8000), Some(64_000)]);
        assert_eq!(["Unknown", "Unknown speed", "8.0", ""].map(parse_rate), [None; 4]);
    }

    #[test]
    fn reads_and_writes_are_transfers_and_the_ninth_field_runs() {
        assert_eq!(transfers("100 0 800 20 50 0 400 40 3 60 60"), (150, 3));
        assert_eq!(transfers(""), (0, 0));
    }
}
