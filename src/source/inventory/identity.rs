//! Decides which device nodes are one drive, and which identity the drive has. Pure.
//!
//! In: the attributes of each device node. Out: groups of nodes, each a drive, with an id that does
//! not depend on kernel names.
//!
//! The order of identities (the first one that is valid and unique among the drives):
//! 1. a wide number from a registration authority: nguid, eui64, uuid;
//! 2. naa (the WWN of SCSI and ATA);
//! 3. `MODEL_SERIAL`, then a vendor's `t10.` text;
//! 4. `path:…`, the location, which is marked unstable.
//!
//! An NVMe controller is a drive, and nguid and eui64 belong to its namespaces, which change: a
//! second one is created, the only one is deleted, a failing controller loses all. So a
//! controller's `MODEL_SERIAL` (mandatory in Identify Controller) comes first, and a namespace's
//! number is used only if the serial is bogus or not unique.

use std::collections::{BTreeMap, BTreeSet};

use diskvitals_finding::ids::DriveId;

/// A device node (or NVMe subsystem) that may be a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityCandidate {
    /// Identities, best first, without bogus ones. Never empty strings.
    pub identities: Vec<String>,
    /// Its location, for the fallback; differs between any two present nodes, except for namespaces
    /// at one location.
    pub path: String,
    /// Its location in sysfs, without its kernel name: distinguishes nodes with the same `path`.
    pub exact_path: String,
    /// None if bogus.
    pub serial: Option<String>,
    pub model: Option<String>,
    pub size_bytes: u64,
    /// The target (host:channel:target) through which it is reached, if one drive can have several.
    /// None if it cannot (USB, a SATA port, virtio-blk): there, equal serial numbers are a fault of
    /// the hardware.
    pub nexus: Option<String>,
    /// The non-path identities do not stay with the drive (true for loop devices).
    pub is_unstable: bool,
    /// The kernel reaches it over a network: never a path of a local drive.
    pub is_remote: bool,
}

impl IdentityCandidate {
    /// A model and a serial number are the device's choice: they make no id of another form.
    fn identities(&self) -> impl Iterator<Item = &String> {
        self.identities.iter().filter(|identity| {
            !identity.starts_with("path:") && (self.is_unstable || !identity.starts_with("loop:"))
        })
    }
}

/// A drive: the indices of its candidates, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityAssignment {
    pub members: Vec<usize>,
    pub id: DriveId,
    pub stable: bool,
    /// Best first, common to all members.
    pub identities: Vec<DriveId>,
    pub place: DriveId,
}

/// Without knowledge of former scans: `model::facts::identities` has it, and the last word.
pub(crate) fn assign_ids(candidates: &[IdentityCandidate]) -> Vec<IdentityAssignment> {
    let groups = group_paths(candidates);
    // How many drives have each identity, at any level.
    let mut claims: BTreeMap<&str, usize> = BTreeMap::new();
    let mut paths: BTreeMap<&str, usize> = BTreeMap::new();
    for members in &groups {
        *paths.entry(group_path(candidates, members)).or_default() += 1;
        let own: BTreeSet<&str> = members
            .iter()
            .flat_map(|at| candidates[*at].identities().map(String::as_str))
            .collect();
        for identity in own {
            *claims.entry(identity).or_default() += 1;
        }
    }
    groups
        .iter()
        .map(|members| {
            let first = &candidates[members[0]];
            let common = |identity: &&String| {
                members.iter().all(|at| candidates[*at].identities.contains(*identity))
            };
            let own: Vec<&String> = first.identities().filter(common).collect();
            let mut unique = own.iter();
            let unique = unique.find(|identity| claims.get(identity.as_str()) == Some(&1));
            let path = group_path(candidates, members);
            let place = DriveId::new(match paths.get(path) {
                Some(1) => format!("path:{path}"),
                _ => format!("path:{}", first.exact_path),
            });
            let (id, stable) = match unique {
                Some(identity) => (DriveId::new(identity), !first.is_unstable),
                None => (place.clone(), false),
            };
            IdentityAssignment {
                members: members.clone(),
                id,
                stable,
                identities: own.into_iter().map(DriveId::new).collect(),
                place,
            }
        })
        .collect()
}

/// The location of a drive with several paths is the first in alphabetical order, so that it does
/// not depend on the order of discovery.
fn group_path<'a>(candidates: &'a [IdentityCandidate], members: &[usize]) -> &'a str {
    members.iter().map(|at| candidates[*at].path.as_str()).min().unwrap_or_default()
}

/// Two nodes are one drive only if their best identity, model, size and (if both have one) serial
/// are equal, both or neither are reached over a network, and their targets differ.
fn group_paths(candidates: &[IdentityCandidate]) -> Vec<Vec<usize>> {
    let mut by_key: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let mut groups = Vec::new();
    for (at, candidate) in candidates.iter().enumerate() {
        match (candidate.identities().next(), &candidate.nexus) {
            (Some(identity), Some(_)) => {
                let key = (identity, &candidate.model, candidate.size_bytes);
                let key = (key, candidate.is_remote);
                by_key.entry(key).or_default().push(at);
            }
            _ => groups.push(vec![at]),
        }
    }
    for members in by_key.into_values() {
        let targets: BTreeSet<_> = members.iter().map(|at| &candidates[*at].nexus).collect();
        let serials: BTreeSet<_> =
            members.iter().filter_map(|at| candidates[*at].serial.as_ref()).collect();
        if targets.len() == members.len() && serials.len() <= 1 {
            groups.push(members);
        } else {
            groups.extend(members.into_iter().map(|at| vec![at]));
        }
    }
    groups.sort();
    groups
}

/// A serial number that identifies nothing: empty, one repeated character, ascending digits, a
/// placeholder, unprintable.
pub(crate) fn is_bogus_serial(serial: &str) -> bool {
    const PLACEHOLDERS: [&str; 10] = [
        "1.0",
        "none",
        "null",
        "n/a",
        "unknown",
        "serial",
        "default string",
        "not specified",
        "to be filled by o.e.m.",
        // Bridges of JMicron and ASMedia with an empty EEPROM.
        "dd56419883891",
    ];
    let serial = serial.trim();
    let lower = serial.to_ascii_lowercase();
    !serial.chars().all(|c| c == ' ' || c.is_ascii_graphic())
        || is_repeated_character(&lower)
        || is_sequential(&lower)
        || PLACEHOLDERS.contains(&lower.as_str())
}

/// The digits of a nguid, eui64 or naa number that identify nothing: zeros, one repeated digit,
/// ascending digits, or a constant of a bridge whose vendor part is empty (`5000000000000001`).
pub(crate) fn is_bogus_number(digits: &str) -> bool {
    let lower = digits.to_ascii_lowercase();
    let plain: String = lower.chars().filter(char::is_ascii_hexdigit).collect();
    // Without the format digit, all but the last two digits are zero.
    let almost_empty = plain.len() > 3 && plain[1..plain.len() - 2].bytes().all(|b| b == b'0');
    is_repeated_character(&plain) || is_sequential(&plain) || almost_empty
}

/// True for an empty text too.
fn is_repeated_character(text: &str) -> bool {
    let mut characters = text.chars().filter(|c| !matches!(c, ' ' | '-' | '.' | ':'));
    match characters.next() {
        None => true,
        Some(first) => characters.all(|c| c == first),
    }
}

/// `0123456789ABCDEF`, `123456789012`, `ABCDEF0123456789`: each digit is the one before plus one.
fn is_sequential(text: &str) -> bool {
    let follows = |a: u8, b: u8| match a {
        b'9' => b == b'a' || b == b'0',
        b'f' => b == b'0',
        _ => a.is_ascii_hexdigit() && b == a + 1,
    };
    text.len() >= 6 && text.as_bytes().windows(2).all(|pair| follows(pair[0], pair[1]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(identities: &[&str], path: &str, size_bytes: u64) -> IdentityCandidate {
        IdentityCandidate {
            identities: identities.iter().map(|text| (*text).to_owned()).collect(),
            path: path.to_owned(),
            exact_path: format!("exact/{path}"),
            size_bytes,
            ..IdentityCandidate::default()
        }
    }

    fn ids(candidates: &[IdentityCandidate]) -> Vec<(String, bool, usize)> {
        assign_ids(candidates)
            .into_iter()
            .map(|drive| (drive.id.to_string(), drive.stable, drive.members.len()))
            .collect()
    }

    #[test]
    fn placeholders_identify_nothing() {
        for serial in [
            "",
            "   ",
            "000000000000",
            "0123456789ABCDEF",
            "123456789012",
            "ABCDEF0123456789",
            "1.0",
            "FFFFFFFF",
            "a\u{7}b",
            "DD56419883891",
        ] {
            assert!(is_bogus_serial(serial), "{serial:?}");
        }
        for serial in ["QM00001", "S5GXNX0R123456", "2000", "overlayblk", "WD-WX11A00000", "root"] {
            assert!(!is_bogus_serial(serial), "{serial:?}");
        }
        for number in
            ["0000000000000000", "ffffffffffffffff", "5000000000000001", "5000000000000000"]
        {
            assert!(is_bogus_number(number), "{number}");
        }
        for number in [
            "5000c500a1b2c3d4",
            "0025385b01234567",
            "33333330000007d0",
            "60014055a9b8a5ee27f4b4b8a8e1d2c3",
        ] {
            assert!(!is_bogus_number(number), "{number}");
        }
    }

    #[test]
    fn the_same_serial_on_two_drives_identifies_neither() {
        let mut docks =
            [candidate(&["JMicron_DOCK1"], "usb-1", 1), candidate(&["JMicron_DOCK1"], "usb-2", 1)];
        for dock in &mut docks {
            dock.serial = Some("DOCK1".into());
        }
        assert_eq!(ids(&docks), [("path:usb-1".into(), false, 1), ("path:usb-2".into(), false, 1)]);
    }

    #[test]
    fn a_duplicate_falls_to_the_next_level_only() {
        let drives = [candidate(&["naa.1", "M_A"], "1", 1), candidate(&["naa.1", "M_B"], "2", 2)];
        assert_eq!(ids(&drives), [("M_A".into(), true, 1), ("M_B".into(), true, 1)]);
    }

    #[test]
    fn paths_of_one_unit_are_one_drive() {
        let path = |nexus: &str| IdentityCandidate {
            nexus: Some(nexus.into()),
            ..candidate(&["naa.6", "LUN_1"], nexus, 10)
        };
        assert_eq!(ids(&[path("0:0:0"), path("1:0:0")]), [("naa.6".into(), true, 2)]);
        // The same target cannot be two ways to one unit.
        assert_eq!(ids(&[path("0:0:0"), path("0:0:0")]).len(), 2);
        // Another size is another drive, and a drive behind a network is no path of a local one.
        for other in [
            IdentityCandidate { size_bytes: 11, ..path("2:0:0") },
            IdentityCandidate { is_remote: true, ..path("2:0:0") },
        ] {
            assert_eq!(ids(&[path("0:0:0"), other]).len(), 2);
        }
    }

    #[test]
    fn no_model_or_serial_makes_an_id_of_another_form() {
        let liar = candidate(&["path:a_b", "loop:/a_b"], "1", 1);
        assert_eq!(ids(&[liar]), [("path:1".into(), false, 1)]);
    }

    #[test]
    fn two_devices_with_one_path_get_different_ids() {
        let mut luns = [candidate(&[], "pci-1", 1), candidate(&[], "pci-1", 1)];
        luns[1].exact_path = "exact/other".into();
        assert_eq!(
            ids(&luns),
            [("path:exact/pci-1".into(), false, 1), ("path:exact/other".into(), false, 1)]
        );
    }

    fn any_candidate() -> impl Strategy<Value = IdentityCandidate> {
        let identities = proptest::collection::vec("[ab]_[12]", 0..3);
        let serial = proptest::option::of("[12]");
        let nexus = proptest::option::of("[0-3]:0:0");
        (identities, serial, proptest::option::of("[ab]"), 0u64..3, nexus).prop_map(
            |(identities, serial, model, size_bytes, nexus)| IdentityCandidate {
                identities,
                serial,
                model,
                size_bytes,
                nexus,
                ..IdentityCandidate::default()
            },
        )
    }

    fn placed(mut candidates: Vec<IdentityCandidate>) -> Vec<IdentityCandidate> {
        for (at, candidate) in candidates.iter_mut().enumerate() {
            candidate.path = format!("place-{at}");
            candidate.exact_path = format!("exact-{at}");
        }
        candidates
    }

    proptest! {
        #[test]
        fn no_two_drives_share_an_id_and_no_node_is_lost(candidates in proptest::collection::vec(any_candidate(), 0..8)) {
            let candidates = placed(candidates);
            let drives = assign_ids(&candidates);
            let ids: BTreeSet<_> = drives.iter().map(|drive| drive.id.clone()).collect();
            prop_assert_eq!(ids.len(), drives.len());
            let mut members: Vec<usize> = drives.iter().flat_map(|drive| drive.members.clone()).collect();
            members.sort_unstable();
            prop_assert_eq!(members, (0..candidates.len()).collect::<Vec<_>>());
        }

        #[test]
        fn nodes_of_different_size_model_or_serial_are_never_one_drive(candidates in proptest::collection::vec(any_candidate(), 0..8)) {
            let candidates = placed(candidates);
            for drive in assign_ids(&candidates) {
                for pair in drive.members.windows(2) {
                    let (a, b) = (&candidates[pair[0]], &candidates[pair[1]]);
                    prop_assert_eq!(a.size_bytes, b.size_bytes);
                    prop_assert_eq!(&a.model, &b.model);
                    prop_assert!(a.serial.is_none() || b.serial.is_none() || a.serial == b.serial);
                    prop_assert!(a.nexus.is_some() && a.nexus != b.nexus);
                }
            }
        }

        #[test]
        fn the_order_in_which_drives_are_found_changes_no_id(candidates in proptest::collection::vec(any_candidate(), 0..8)) {
            let candidates = placed(candidates);
            let mut reversed = candidates.clone();
            reversed.reverse();
            let name = |candidates: &[IdentityCandidate]| -> BTreeSet<(String, bool)> {
                assign_ids(candidates).into_iter().map(|drive| (drive.id.to_string(), drive.stable)).collect()
            };
            prop_assert_eq!(name(&candidates), name(&reversed));
        }
    }
}
