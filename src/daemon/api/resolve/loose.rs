//! Names that are not unique by themselves and are taken where they are: a slot, a pod without its
//! namespace, the end of a serial. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::resolve::{ResolveError, Resolved, describe, unknown};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_model::snapshot::{Drive, Presence, Snapshot};
use diskvitals_text::echo::echo;
use diskvitals_text::naming::slot_name;

/// Shorter ends of serials are too often something else.
const MIN_SERIAL_END: usize = 4;

/// Only for what has no other meaning.
pub(super) fn resolve(snapshot: &Snapshot, query: &str) -> Result<Resolved, ResolveError> {
    let drives = drives(snapshot, query);
    let pods = pods(snapshot, query);
    match (drives.first_key_value(), drives.len(), pods.len()) {
        (_, 0, 0) => Err(unknown(snapshot, query)),
        (Some((drive, Named::Wholly)), 1, 0) => {
            Ok(Resolved::Subject(Subject::Drive(drive.clone())))
        }
        (Some((drive, Named::ByEndOfSerial)), 1, 0) => Ok(Resolved::EndOfSerial(drive.clone())),
        (_, 0, 1) => Ok(Resolved::Pod(pods.into_values().next().unwrap_or_default())),
        _ => {
            let drives = drives.into_keys().map(Subject::Drive);
            let drives = drives.map(|drive| describe(snapshot, &drive));
            let pods = pods.into_keys().map(|(namespace, name)| format!("pod {namespace}/{name}"));
            Err(ResolveError::Ambiguous {
                query: echo(query),
                candidates: drives.chain(pods).collect(),
            })
        }
    }
}

/// How a drive is named.
enum Named {
    /// By its slot, or its serial in other letters.
    Wholly,
    ByEndOfSerial,
}

fn drives(snapshot: &Snapshot, query: &str) -> BTreeMap<DriveId, Named> {
    let slot = slot(query);
    let end = query.to_ascii_lowercase();
    let named = |drive: &Drive| {
        let serial = drive.facts.serial.as_ref().map(|it| it.to_ascii_lowercase());
        let by_slot = slot.is_some()
            && drive.presence == Presence::Present
            && drive.facts.location.slot.as_deref().map(bare_slot) == slot;
        match serial {
            _ if by_slot => Some(Named::Wholly),
            Some(serial) if serial == end => Some(Named::Wholly),
            Some(serial) if end.len() >= MIN_SERIAL_END && serial.ends_with(&end) => {
                Some(Named::ByEndOfSerial)
            }
            _ => None,
        }
    };
    let drives = snapshot.drives.values();
    drives.filter_map(|drive| Some((drive.facts.id.clone(), named(drive)?))).collect()
}

/// `5` of `slot 05` and `Slot:5`.
fn slot(query: &str) -> Option<&str> {
    let (word, rest) = query.split_at_checked("slot".len())?;
    let rest = rest.trim_start_matches([' ', ':', '=', '-']);
    (word.eq_ignore_ascii_case("slot") && !rest.is_empty()).then(|| bare_slot(rest))
}

/// Without the word and leading zeros.
fn bare_slot(name: &str) -> &str {
    let name = slot_name(name.trim()).trim();
    match name.trim_start_matches('0') {
        "" => name.get(..1).unwrap_or(name),
        bare => bare,
    }
}

/// Volumes of the pods with this name, by namespace and name.
fn pods(snapshot: &Snapshot, query: &str) -> BTreeMap<(String, String), Vec<VolumeId>> {
    let mut found: BTreeMap<(String, String), Vec<VolumeId>> = BTreeMap::new();
    for volume in snapshot.volumes.values() {
        let names = volume.facts.pods.iter().filter_map(|pod| pod.name.as_ref());
        let names: BTreeSet<_> = names
            .filter(|pod| pod.name == query)
            .map(|pod| (pod.namespace.clone(), pod.name.clone()))
            .collect();
        for name in names {
            found.entry(name).or_default().push(volume.facts.id.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_compared_without_the_word_and_leading_zeros() {
        for (query, bare) in [
            ("slot 05", Some("5")),
            ("Slot:5", Some("5")),
            ("slot05", Some("5")),
            ("slot 00", Some("0")),
            ("slot B 2", Some("B 2")),
            ("slot", None),
            ("slow 5", None),
            ("s", None),
        ] {
            assert_eq!(slot(query), bare, "{query}");
        }
        assert_eq!(bare_slot("Slot 05"), "5");
    }
}
