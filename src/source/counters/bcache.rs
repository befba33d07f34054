//! bcache: I/O errors of backing and cache devices (drivers/md/bcache/sysfs.c). Each has a
//! directory `bcache` below its block device; /sys/block/bcacheN/bcache and
//! /sys/fs/bcache/SET/{bdev,cache}N are links to these.
//!
//! A cache's count decays with `io_error_halflife`, so it may decrease. Reading takes bcache's
//! global lock, which a registration holds during its I/O: therefore it is a separate job.

use std::collections::BTreeMap;

use crate::counters::block_reading;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::counters::CounterReading;

/// Whether the block device is part of a bcache. Reads no attribute.
pub fn is_member(reader: &SysfsReader<'_>, name: &str) -> bool {
    !name.starts_with("bcache") && reader.is_dir(&format!("/sys/class/block/{name}/bcache"))
}

pub fn read(reader: &SysfsReader<'_>, name: &str) -> Result<Option<CounterReading>, DeviceRemoved> {
    let file = format!("/sys/class/block/{name}/bcache/io_errors");
    Ok(reader.number(&file)?.map(|value| {
        let values = BTreeMap::from([("io_errors".to_owned(), value)]);
        block_reading(name, "bcache", file, values, BTreeMap::new())
    }))
}
