//! Which CSI drivers' storage can be reached from the node.
//!
//! In: what the daemon says of each driver's storage on the network, and what was written last. Out:
//! the drivers that cannot be reached, and those that can: one of their volumes answers. What is not
//! known is listed as unknown.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::report::node_snapshot::{DriverStorage, NodeSnapshot};
use crate::report::node_storage::{Context, number, truncated};
use diskvitals_cluster::node_storage::{MAX_DRIVER_NAME_LEN, MAX_MESSAGE_LEN, UnreachableDriver};
use diskvitals_text::echo::truncate;

const STORAGE_UNKNOWN: &str = "StorageUnknown";

pub(super) fn unreachable_drivers(
    snapshot: &NodeSnapshot,
    context: &Context<'_>,
) -> Vec<UnreachableDriver> {
    let drivers = snapshot.driver_storage.iter();
    let mut entries: Vec<UnreachableDriver> =
        drivers.filter_map(|(driver, storage)| entry(driver, storage, snapshot)).collect();
    let last =
        context.last.and_then(|last| last.unreachable_drivers.as_deref()).unwrap_or_default();
    for entry in &mut entries {
        // One that does not answer may change its reason.
        let is_same = |last: &&UnreachableDriver| {
            last.driver == entry.driver && last.unknown == entry.unknown
        };
        let since = last.iter().find(is_same).and_then(|same| same.since.as_ref());
        // A time in the future is of a clock that was ahead.
        let since = since.map_or(context.now, |since| since.0.min(context.now));
        entry.since = Some(Time(since));
    }
    entries
}

pub(super) fn reached_drivers(snapshot: &NodeSnapshot) -> Vec<String> {
    let drivers = snapshot.driver_storage.iter();
    drivers
        .filter(|(_, storage)| **storage == DriverStorage::Reachable)
        .map(|(driver, _)| truncated(driver, MAX_DRIVER_NAME_LEN))
        .collect()
}

fn entry(
    driver: &str,
    storage: &DriverStorage,
    snapshot: &NodeSnapshot,
) -> Option<UnreachableDriver> {
    let (unknown, reason, message) = match storage {
        DriverStorage::Reachable | DriverStorage::Unproven => return None,
        DriverStorage::Unreachable { reason, message } => (false, reason.as_str(), message),
        DriverStorage::Unknown(why) => (true, STORAGE_UNKNOWN, why),
    };
    let volumes = snapshot.volumes.values();
    let volumes = volumes.filter(|volume| volume.identity.driver == driver);
    Some(UnreachableDriver {
        driver: truncated(driver, MAX_DRIVER_NAME_LEN),
        unknown,
        reason: truncated(reason, MAX_MESSAGE_LEN),
        message: truncate(message, MAX_MESSAGE_LEN),
        since: None,
        volumes: number(volumes.count()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::report::quarantine::QuarantineState;
    use crate::report::transitions::tests::{at, snapshot};
    use diskvitals_cluster::node_storage::NodeStorageStatus;

    fn node(storage: Option<DriverStorage>) -> NodeSnapshot {
        let mut node = snapshot(&[]);
        if let Some(storage) = storage {
            let volume = node.volumes.get_mut("v1").expect("there");
            volume.identity.driver = "d".into();
            node.driver_storage.insert("d".into(), storage);
        }
        node
    }

    fn gone() -> Option<DriverStorage> {
        Some(DriverStorage::Unreachable { reason: "ProbeTimeout".into(), message: "1 of 1".into() })
    }

    fn unknown() -> Option<DriverStorage> {
        Some(DriverStorage::Unknown("no worker".into()))
    }

    fn entries(
        storage: Option<DriverStorage>,
        last: &[UnreachableDriver],
        seconds: i64,
    ) -> Vec<UnreachableDriver> {
        let last = NodeStorageStatus {
            unreachable_drivers: Some(last.to_vec()),
            ..NodeStorageStatus::default()
        };
        let context = Context {
            node_uid: "uid-1",
            last: Some(&last),
            overdue: &BTreeSet::new(),
            answer: None,
            quarantine: &QuarantineState::Disabled,
            now: at(seconds),
        };
        unreachable_drivers(&node(storage), &context)
    }

    fn said(entries: &[UnreachableDriver]) -> Vec<(&str, bool, &str, Option<i64>, u32)> {
        let since = |it: &UnreachableDriver| it.since.as_ref().map(|time| time.0.as_second());
        let said = entries
            .iter()
            .map(|it| (it.driver.as_str(), it.unknown, it.reason.as_str(), since(it), it.volumes));
        said.collect()
    }

    fn second(seconds: i64) -> Option<i64> {
        Some(at(seconds).as_second())
    }

    #[test]
    fn a_driver_is_listed_since_it_was_first_unreachable_and_leaves_the_list_when_it_answers() {
        let first = entries(gone(), &[], 100);
        assert_eq!(said(&first), [("d", false, "ProbeTimeout", second(100), 1)]);
        let other =
            DriverStorage::Unreachable { reason: "DriveOffline".into(), message: String::new() };
        let second_time = entries(Some(other), &first, 200);
        assert_eq!(said(&second_time), [("d", false, "DriveOffline", second(100), 1)]);
        assert_eq!(entries(Some(DriverStorage::Reachable), &first, 300), []);
    }

    #[test]
    fn what_is_unknown_is_neither_reachable_nor_unreachable() {
        let first = entries(gone(), &[], 100);
        let then = entries(unknown(), &first, 200);
        assert_eq!(said(&then), [("d", true, "StorageUnknown", second(200), 1)]);
        assert_eq!(
            said(&entries(unknown(), &then, 300)),
            [("d", true, "StorageUnknown", second(200), 1)]
        );
    }

    #[test]
    fn a_driver_is_reached_by_proof_only() {
        let reached = |storage| reached_drivers(&node(storage));
        assert_eq!(reached(Some(DriverStorage::Reachable)), ["d"]);
        for storage in [gone(), unknown(), Some(DriverStorage::Unproven), None] {
            assert_eq!(reached(storage), Vec::<String>::new());
        }
        assert_eq!(entries(Some(DriverStorage::Unproven), &[], 100), []);
    }

    #[test]
    fn volumes_on_the_network_count_whatever_the_drives_of_the_node_are() {
        use diskvitals_wire::{NetworkStorage, StorageFault, StorageHealth};
        let of = |network: NetworkStorage, unreachable, remote| {
            let fault =
                StorageFault { unreachable, remote, reason: "R".into(), message: "m".into() };
            DriverStorage::from_wire(&StorageHealth {
                faults: vec![fault],
                network: network.into(),
            })
        };
        let cut_off = DriverStorage::Unreachable { reason: "R".into(), message: "m".into() };
        for unreachable in [true, false] {
            assert_eq!(of(NetworkStorage::CutOff, unreachable, true), cut_off);
            // Only drives of the node: they are no question of its way to the storage.
            let own = of(NetworkStorage::Unspecified, unreachable, false);
            assert_eq!(own, DriverStorage::Unproven);
        }
        let some = of(NetworkStorage::Reached, false, true);
        assert_eq!(some, DriverStorage::Reachable);
    }

    #[test]
    fn the_time_of_a_clock_that_was_ahead_is_not_kept() {
        let first = entries(gone(), &[], 200);
        assert_eq!(
            said(&entries(gone(), &first, 50)),
            [("d", false, "ProbeTimeout", second(50), 1)]
        );
    }
}
