//! SCSI disks: commands that failed and that timed out, as counted by the mid layer
//! (show_iostat_counterbits(), drivers/scsi/scsi_sysfs.c). The counters are in kernel memory and
//! start at 0 at each boot or hot-plug.
//!
//! `ioerr_cnt` counts every command whose result is not 0 (scsi_complete(),
//! drivers/scsi/scsi_lib.c), including a page that the disk does not support, or the unit attention
//! after a reset. Alone it proves nothing.
//!
//! `iotmo_cnt` of a libata disk counts more than time-outs: everything that libata passes to its
//! error handler goes through the block layer's time-out (ata_qc_schedule_eh(),
//! blk_abort_request(); scsi_timeout()), even a log page that the disk does not support. So it has
//! another name there, and confirms errors of the log. libata's own errors are not in `ioerr_cnt`: they
//! end in the error handler (scsi_eh_flush_done_q()), and not in scsi_complete().

use std::collections::BTreeMap;

use crate::counters::block_reading;
use crate::inventory::classify;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::counters::{CounterReading, DISK_SEQUENCE, LIBATA_ERRORS};

/// Commands that ended with an error; commands that timed out (since 6.1).
const ERROR_COUNTERS: [&str; 2] = ["ioerr_cnt", "iotmo_cnt"];
/// Numbers of requested and completed commands. They always grow, so they are no error counters;
/// they are reported for comparison.
const REQUEST_COUNTERS: [&str; 2] = ["iorequest_cnt", "iodone_cnt"];

/// `0x1f`.
pub fn parse(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// None for a device that is no SCSI disk.
pub fn read(reader: &SysfsReader<'_>, name: &str) -> Result<Option<CounterReading>, DeviceRemoved> {
    // sr and st have the same attributes, but an unreadable CD is no drive failure.
    if !name.starts_with("sd") {
        return Ok(None);
    }
    let (mut values, mut details) = (BTreeMap::new(), BTreeMap::new());
    let path = |attribute: &str| format!("/sys/class/block/{name}/device/{attribute}");
    let of_libata = reader
        .link(&format!("/sys/class/block/{name}"))
        .is_some_and(|path| classify::ata_port(&path).is_some());
    for attribute in ERROR_COUNTERS {
        let Some(text) = reader.text(&path(attribute))? else {
            continue;
        };
        match parse(&text) {
            Some(value) => {
                let name = match attribute {
                    "iotmo_cnt" if of_libata => LIBATA_ERRORS,
                    name => name,
                };
                values.insert(name.to_owned(), value);
            }
            None => reader
                .warn(format!("{}: `{text:.40}` is not a hexadecimal number", path(attribute))),
        }
    }
    if values.is_empty() {
        return Ok(None);
    }
    for attribute in REQUEST_COUNTERS {
        details.extend(reader.text(&path(attribute))?.map(|text| (attribute.to_owned(), text)));
    }
    let sequence = reader.text(&format!("/sys/class/block/{name}/{DISK_SEQUENCE}"))?;
    details.extend(sequence.map(|text| (DISK_SEQUENCE.to_owned(), text)));
    let file = format!("/sys/block/{name}/device");
    Ok(Some(block_reading(name, "scsi", file, values, details)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_hexadecimal() {
        assert_eq!(
            (parse("0x1f\n"), parse("0x0"), parse("31"), parse("0x"), parse("")),
            (Some(31), Some(0), None, None, None)
        );
    }
}
