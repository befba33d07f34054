use super::argument;
use crate::block::{BlockDevice, Layer, LayerState};
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::stack::{PoolState, ZfsPool};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;

fn state(state: PoolState) -> LayerState {
    LayerState::Zfs(ZfsPool { state })
}

/// A pool over sda1 and sdb1 with two datasets, one of them with a blank in its name.
fn tank() -> TestHost {
    let partition = |name: &str, dev: &str, disk: &str| {
        device(name, dev, Layer::Partition { number: 1, start_bytes: 1 << 20 }, &[disk])
    };
    let pool = |below: &[&str]| BlockDevice {
        size_bytes: 0,
        iostats: false,
        ..device("zfs:tank", "0:0", Layer::ZfsPool { name: "tank".into() }, below)
    };
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .with(partition("sda1", "8:1", "sda"))
        .with(partition("sdb1", "8:17", "sdb"))
        .with(pool(&["sda1", "sdb1"]))
        .mounted("0:50", "/", "/tank", "zfs", "tank")
        .mounted("0:51", "/", "/home", "zfs", "tank/home dirs")
        .mounted("0:52", "/", "/home/.zfs/snapshot/a", "zfs", "tank/home dirs@a");
    host.read_all(0);
    host.layer("zfs:tank", state(PoolState::Online), 0);
    for path in ["/tank", "/home"] {
        host.probe(path, healthy_probe(usage(100 * GIB, 50 * GIB)), 1);
    }
    host
}

#[test]
fn datasets_are_volumes_on_the_drives_of_their_pool_and_snapshots_are_none() {
    let host = tank();
    let volumes = host.volumes();
    let ids: Vec<&str> = volumes.iter().map(|volume| volume.id.as_str()).collect();
    assert_eq!(ids, ["mnt:/home", "mnt:/tank"]);
    for volume in &volumes {
        assert_eq!(volume.device.as_deref(), Some("zfs:tank"));
        assert_eq!(volume.devices, ["zfs:tank", "sda1", "sdb1", "sda", "sdb"]);
        assert_eq!(volume.drive_ids.len(), 2);
    }
    let mut host = host;
    assert_eq!(host.raised(2), [""; 0]);
}

#[test]
fn each_state_of_a_pool_has_one_finding_for_each_volume() {
    for (word, expected) in [
        (PoolState::Online, None),
        (PoolState::Degraded, Some("PoolDegraded Suspect Degraded")),
        (PoolState::Suspended, Some("PoolSuspended Bad Inaccessible")),
        (PoolState::Faulted, Some("PoolFaulted Bad Inaccessible")),
        (PoolState::Unavail, Some("PoolFaulted Bad Inaccessible")),
        (PoolState::Removed, Some("PoolFaulted Bad Inaccessible")),
    ] {
        let mut host = tank();
        host.layer("zfs:tank", state(word), 10);
        let expected: Vec<String> = expected
            .into_iter()
            .flat_map(|text| ["mnt:/home", "mnt:/tank"].map(|id| format!("{id} {text}")))
            .collect();
        assert_eq!(host.raised(11), expected, "{word:?}");
        host.layer("zfs:tank", state(PoolState::Online), 20);
        assert_eq!(host.raised(21), [""; 0], "{word:?}");
    }
}

#[test]
fn the_evidence_is_the_file_of_the_module_and_the_advice_has_the_quoted_name() {
    let mut host = tank();
    host.layer("zfs:tank", state(PoolState::Suspended), 10);
    let raised = host.raised_for(Reason::PoolSuspended, 11).unwrap();
    assert_eq!(raised.evidence[0].source, "/proc/spl/kstat/zfs/tank/state");
    assert_eq!(raised.evidence[0].text, "SUSPENDED");
    assert!(raised.advice.unwrap().contains("`zpool clear tank`"));
    assert_eq!((argument("my pool"), argument("tank")), ("'my pool'".into(), "tank".into()));
}

#[test]
fn a_state_that_cannot_be_read_clears_nothing() {
    let mut host = tank();
    host.layer("zfs:tank", state(PoolState::Suspended), 10);
    assert_eq!(host.raised(11).len(), 2);
    let failed = Observation::failed(at(20), "the pool is being imported or exported");
    host.apply(SourceUpdate::Layer { device: "zfs:tank".into(), state: failed }, 20);
    assert_eq!(host.raised(21), [""; 0], "nothing is raised anew");
    assert_eq!(host.active.len(), 2, "and nothing clears");
}

#[test]
fn a_pool_that_carries_no_volume_has_the_finding_itself() {
    let mut host = tank();
    for path in ["/tank", "/home", "/home/.zfs/snapshot/a"] {
        host.umount(path);
    }
    host.read_mounts(5);
    host.layer("zfs:tank", state(PoolState::Faulted), 10);
    assert_eq!(host.raised(11), ["dev:zfs:tank PoolFaulted Bad Inaccessible"]);
    // Exported.
    host.inventory.devices.remove("zfs:tank");
    host.scan(20);
    host.raised(21);
    assert!(host.active.is_empty(), "{:?}", host.active);
}

#[test]
fn a_drive_that_a_working_pool_lacks_makes_nothing_inaccessible() {
    let mut host = tank();
    host.pull("sdb");
    host.inventory.devices.get_mut("zfs:tank").unwrap().underlying = vec!["sda1".into()];
    host.scan(10);
    host.layer("zfs:tank", state(PoolState::Degraded), 11);
    assert_eq!(
        host.raised(12),
        [
            "B DriveMissing Bad Inaccessible",
            "mnt:/home DriveFailing Suspect Degraded",
            "mnt:/home PoolDegraded Suspect Degraded",
            "mnt:/tank DriveFailing Suspect Degraded",
            "mnt:/tank PoolDegraded Suspect Degraded",
        ]
    );
    // The spare took its place.
    host.layer("zfs:tank", state(PoolState::Online), 20);
    assert_eq!(host.raised(21), ["B DriveMissing Info Information"]);
}
