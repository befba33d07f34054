//! bcache: I/O errors of backing and cache devices (drivers/md/bcache/sysfs.c). Both have a folder
//! `bcache` at the block device that they are; /sys/block/bcacheN/bcache and
//! /sys/fs/bcache/SET/{bdev,cache}N are links to these.
//!
//! A cache's count decays with `io_error_halflife`, so it may go back. Reading takes bcache's one
//! lock, which a registration holds over its I/O: it is a question of its own.

use std::collections::BTreeMap;

use crate::model::counters::{Counted, Reading};
use crate::source::inventory::sysfs::{Gone, Reader};

/// Whether the block device is part of a bcache. Reads no attribute.
pub fn is_part(reader: &Reader<'_>, name: &str) -> bool {
    !name.starts_with("bcache") && reader.is_dir(&format!("/sys/class/block/{name}/bcache"))
}

pub fn read(reader: &Reader<'_>, name: &str) -> Result<Option<Reading>, Gone> {
    let file = format!("/sys/class/block/{name}/bcache/io_errors");
    let of = Counted::Block(name.to_owned());
    let reading = |value| Reading {
        of,
        source: "bcache".into(),
        file: file.clone(),
        values: BTreeMap::from([("io_errors".to_owned(), value)]),
        details: BTreeMap::new(),
    };
    Ok(reader.number(&file)?.map(reading))
}
