use crate::assess::tests::pool::{mirrored, tank};
use crate::block::LayerState;
use crate::fixture::*;
use crate::probe::Usage;
use crate::stack::{PoolState, VdevState};
use diskvitals_finding::reason::Reason;

const MIB: u64 = GIB / 1024;

/// What statfs shows of a dataset: its size is what it holds and what it can still write.
fn holding(used: u64, available: u64) -> Usage {
    usage(used + available, available)
}

/// /tank is the root dataset, and holds next to nothing.
fn with_space(root: u64, home: Usage) -> TestHost {
    let mut host = tank();
    for name in ["sda1", "sdb1"] {
        host.inventory.devices.get_mut(name).unwrap().size_bytes = 400 * GIB;
    }
    host.scan(5);
    let pool = mirrored(PoolState::Online, VdevState::Online, None);
    host.layer("zfs:tank", LayerState::Zfs(pool), 6);
    host.probe("/tank", healthy_probe(holding(MIB, root)), 10);
    host.probe("/home", healthy_probe(home), 10);
    host
}

#[test]
fn a_full_pool_is_found_once_for_all_its_datasets_by_what_the_root_can_write() {
    for (left, expected) in [
        (21 * GIB, None),
        (19 * GIB, Some("PoolFull Suspect Degraded")),
        (63 * MIB, Some("PoolFull Bad Degraded")),
        (0, Some("PoolFull Bad Degraded")),
    ] {
        let expected: Vec<String> = expected
            .into_iter()
            .flat_map(|text| ["mnt:/home", "mnt:/tank"].map(|id| format!("{id} {text}")))
            .collect();
        // No OutOfSpace and no OutOfInodes of either.
        let available_inodes = left.min(900);
        let home = Usage { available_inodes, ..holding(300 * GIB, left) };
        assert_eq!(with_space(left, home).raised(11), expected, "{left}");
    }
}

#[test]
fn the_finding_says_what_is_left_of_what_the_mirror_holds_and_clears_as_space_does() {
    let mut host = with_space(GIB, holding(300 * GIB, GIB));
    let raised = host.raised_for(Reason::PoolFull, 11).unwrap();
    assert_eq!(
        raised.message,
        "ZFS pool tank is nearly full: 1.0 GiB of about 400.0 GiB (less than 1 %) left for what has no reservation, by /tank"
    );
    assert_eq!(raised.evidence[0].source, "statfs /tank");
    assert_eq!(raised.clears_when, "28.0 GiB are available");
    assert!(raised.advice.unwrap().contains("`zfs list -r -o space tank`"));
    for (left, findings) in [(27 * GIB, 2), (29 * GIB, 0)] {
        for path in ["/tank", "/home"] {
            host.probe(path, healthy_probe(holding(0, left)), 20);
        }
        assert_eq!(host.raised(21).len(), findings, "{left}");
    }
}

#[test]
fn a_dataset_at_its_own_quota_is_its_own_cause() {
    let mut host = with_space(200 * GIB, holding(10 * GIB, 0));
    assert_eq!(host.raised(11), ["mnt:/home OutOfSpace Bad Degraded"]);
    // Also in a pool that is short itself.
    let mut host = with_space(10 * GIB, holding(20 * GIB, GIB / 4));
    let both = ["mnt:/home OutOfSpace Suspect Degraded", "mnt:/tank PoolFull Suspect Degraded"];
    assert_eq!(host.raised(11), both);
}

#[test]
fn a_dataset_with_room_of_its_own_is_not_full_with_its_pool() {
    let mut host = with_space(0, holding(20 * GIB, 60 * GIB));
    assert_eq!(host.raised(11), ["mnt:/tank PoolFull Bad Degraded"]);
}

#[test]
fn without_the_root_dataset_the_one_that_can_write_most_shows_what_is_left() {
    let mut host = with_space(100 * GIB, holding(10 * GIB, 0));
    host.umount("/tank");
    host.mount_mut("/home/.zfs/snapshot/a").source = "tank/vm".into();
    host.mount_mut("/home/.zfs/snapshot/a").mount_point = "/vm".into();
    host.read_mounts(12);
    host.probe("/vm", healthy_probe(holding(10 * GIB, 150 * GIB)), 13);
    assert_eq!(host.raised(14), ["mnt:/home OutOfSpace Bad Degraded"], "a quota");
    host.probe("/vm", healthy_probe(holding(10 * GIB, MIB)), 15);
    let both = ["mnt:/home PoolFull Bad Degraded", "mnt:/vm PoolFull Bad Degraded"];
    assert_eq!(host.raised(16), both);
}

#[test]
fn a_pool_whose_datasets_cannot_be_read_stays_full() {
    let mut host = with_space(0, holding(300 * GIB, 0));
    assert_eq!(host.raised(11).len(), 2);
    for path in ["/tank", "/home"] {
        host.probe(path, failing_probe(5), 20);
    }
    host.raised(21);
    let is_full = |(_, reason): &&(_, Reason)| *reason == Reason::PoolFull;
    assert_eq!(host.active.keys().filter(is_full).count(), 2);
}

#[test]
fn a_dataset_whose_space_cannot_be_read_keeps_what_it_has() {
    let mut host = with_space(200 * GIB, holding(10 * GIB, 0));
    assert_eq!(host.raised(11), ["mnt:/home OutOfSpace Bad Degraded"]);
    host.probe("/tank", healthy_probe(holding(MIB, 0)), 20);
    host.probe("/home", failing_probe(5), 20);
    let raised = host.raised(21);
    assert!(raised.contains(&"mnt:/tank PoolFull Bad Degraded".to_owned()), "{raised:?}");
    let mut reasons = host.active.keys().map(|(_, reason)| *reason);
    assert!(reasons.any(|reason| reason == Reason::OutOfSpace), "{:?}", host.active);
}

#[test]
fn a_layout_that_is_not_known_still_shows_a_pool_without_any_space() {
    let mut host = tank();
    for path in ["/tank", "/home"] {
        host.probe(path, healthy_probe(holding(MIB, 0)), 10);
    }
    assert_eq!(host.raised(11).len(), 2);
    assert!(host.raised_for(Reason::PoolFull, 12).is_some());
}

#[test]
fn a_thousand_datasets_of_a_full_pool_have_nothing_but_that() {
    let mut host = tank();
    for number in 0..1000 {
        let (dev, name) = (format!("0:{}", 100 + number), format!("tank/a b/{number}"));
        host = host.mounted(&dev, "/", &format!("/many/{number}"), "zfs", &name);
    }
    host.read_mounts(5);
    for path in ["/tank".to_owned(), "/home".to_owned()]
        .into_iter()
        .chain((0..1000).map(|number| format!("/many/{number}")))
    {
        host.probe(&path, healthy_probe(holding(GIB, 0)), 10);
    }
    let raised = host.raised(11);
    assert_eq!(raised.len(), 1002);
    assert!(raised.iter().all(|line| line.ends_with("PoolFull Bad Degraded")), "{}", raised[0]);
}
