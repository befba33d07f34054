//! Drives that two nodes list at the same time: a moved or cloned disk, or an enclosure with two
//! hosts. Two writers may destroy its filesystems.
//!
//! In: the current reports of ready nodes. Out: ids with the nodes that list them. Ids that say
//! nothing about identity are left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Node, Report};

/// A stale report proves nothing: a cloud's disk may have moved on. Only nodes that are ready and
/// whose daemon answers count.
pub(crate) fn candidates(
    nodes: &BTreeMap<String, Node>,
    reports: &BTreeMap<String, Report>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut shared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, report) in reports {
        let current =
            nodes.get(name).filter(|node| node.is_ready).and_then(|node| report.current(node));
        let Some(status) = current else { continue };
        for id in status.drive_ids.iter().filter(|id| is_unique(id)) {
            match first.get(id.as_str()) {
                Some(other) if *other != name => {
                    let of = shared.entry(id.clone()).or_default();
                    of.extend([(*other).to_owned(), name.clone()]);
                }
                Some(_) => {}
                None => {
                    first.insert(id, name);
                }
            }
        }
    }
    shared
}

/// Only numbers that a standard makes unique in the world (NVMe nguid and eui64, SCSI and ATA naa).
/// Serial numbers repeat: emulators give every machine the same ones. `path:` is a place.
pub(super) fn is_unique(id: &str) -> bool {
    let number = ["nguid.", "eui.", "naa."].iter().find_map(|prefix| id.strip_prefix(prefix));
    number.is_some_and(|number| {
        number.len() >= 16 && number.bytes().any(|digit| digit != number.as_bytes()[0])
    })
}
