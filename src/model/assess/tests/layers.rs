use super::risk::answer;
use super::smart::report;
use crate::block::{Layer, LayerState};
use crate::fixture::*;
use crate::stack::{BlockCache, Multipath, MultipathPath, ThinPool};
use diskvitals_finding::Status;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;

fn pool(data: u64, metadata: u64, mode: &str) -> LayerState {
    LayerState::Thin(ThinPool {
        metadata_used: metadata,
        metadata_total: 100,
        data_used: data,
        data_total: 100,
        mode: mode.into(),
        status_line: "0 8 thin-pool".into(),
        ..ThinPool::default()
    })
}

#[test]
fn a_thin_pool_fills_with_hysteresis() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(dm("dm-0", "253:0", "vg-pool", "LVM-x-tpool", &["sda"]))
        .mounted("253:0", "/", "/d", "xfs", "/dev/mapper/vg-pool");
    host.read_all(0);
    for (data, metadata, mode, expected) in [
        (50, 50, "rw", None),
        (89, 10, "rw", None),
        (90, 10, "rw", Some((Severity::Suspect, Status::Degraded))),
        (86, 10, "rw", Some((Severity::Suspect, Status::Degraded))),
        (86, 98, "rw", Some((Severity::Bad, Status::Degraded))),
        (91, 10, "rw", Some((Severity::Bad, Status::Degraded))),
        (88, 10, "rw", Some((Severity::Suspect, Status::Degraded))),
        (84, 10, "rw", None),
        (100, 10, "out_of_data_space", Some((Severity::Bad, Status::Inaccessible))),
        (10, 10, "Fail", Some((Severity::Bad, Status::Inaccessible))),
        (10, 10, "rw", None),
    ] {
        host.layer("dm-0", pool(data, metadata, mode), 10);
        let found = host
            .raised_for(Reason::ThinPoolFull, 11)
            .map(|raised| (raised.severity, raised.status));
        assert_eq!(found, expected, "{data} {metadata} {mode}");
    }
}

#[test]
fn multipath_degrades_with_each_failed_path() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(dm("dm-0", "253:0", "mpatha", "mpath-1", &["sda"]))
        .mounted("253:0", "/", "/d", "xfs", "/dev/mapper/mpatha");
    host.read_all(0);
    for (first, second, expected) in [
        (true, true, None),
        (true, false, Some((Severity::Suspect, Status::Degraded))),
        (false, false, Some((Severity::Bad, Status::Inaccessible))),
    ] {
        let path =
            |minor, active| MultipathPath { dev: DevNo::new(8, minor), active, fail_count: 0 };
        let state = Multipath {
            paths: vec![path(0, first), path(16, second)],
            status_line: "0 8 multipath".into(),
        };
        host.layer("dm-0", LayerState::Multipath(state), 10);
        let found = host
            .raised_for(Reason::PathsDegraded, 11)
            .map(|raised| (raised.severity, raised.status));
        assert_eq!(found, expected);
    }
}

#[test]
fn vdo_fills_like_a_thin_pool_and_is_bad_when_it_accepts_no_writes() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(dm("dm-0", "253:0", "vg-vpool0-vpool", "LVM-x-vpool", &["sda"]))
        .mounted("253:0", "/", "/d", "xfs", "/dev/mapper/vg-vpool0-vpool");
    host.read_all(0);
    for (used, mode, expected) in [
        (50, "rw", None),
        (91, "rw", Some("is filling up: 91 % of its space are used")),
        (50, "ro", Some("accepts no writes (its mode is `ro`): 50 % of its space are used")),
    ] {
        let vdo = ThinPool {
            data_used: used,
            data_total: 100,
            mode: mode.into(),
            is_vdo: true,
            ..ThinPool::default()
        };
        host.layer("dm-0", LayerState::Thin(vdo), 10);
        let found = host.raised_for(Reason::ThinPoolFull, 11).map(|raised| raised.message);
        let expected = expected.map(|text| format!("VDO pool vg-vpool0-vpool {text}"));
        assert_eq!(found, expected, "{used} {mode}");
    }
}

/// A volume on sda, with a cache on sdb.
fn cached(is_dirty: bool, fault: Option<&str>) -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .with(dm("dm-0", "253:0", "vg-lv", "LVM-x", &["sda", "sdb"]))
        .mounted("253:0", "/", "/d", "xfs", "/dev/mapper/vg-lv");
    host.inventory.devices.get_mut("dm-0").unwrap().layer = Layer::Dm {
        name: "vg-lv".into(),
        uuid: None,
        volume_group: Some("vg".into()),
        logical_volume: Some("lv".into()),
    };
    host.read_all(0);
    let cache = BlockCache {
        kind: "dm-cache".into(),
        devices: vec![DevNo::new(8, 16)],
        is_dirty,
        fault: fault.map(str::to_owned),
        status_line: "0 8 cache".into(),
    };
    host.layer("dm-0", LayerState::Cache(cache), 1);
    host
}

#[test]
fn a_cache_that_does_not_work_is_bad() {
    let found = |host: &mut TestHost| host.raised_for(Reason::CacheFailed, 2).map(|it| it.message);
    assert_eq!(found(&mut cached(true, None)), None);
    let message = "the dm-cache of vg/lv does not work (`needs_check`)";
    assert_eq!(found(&mut cached(true, Some("needs_check"))).as_deref(), Some(message));
}

#[test]
fn what_only_a_failing_cache_holds_is_written_back_before_anything_else() {
    for (is_dirty, drive, is_advised) in
        [(true, "B", true), (false, "B", false), (true, "A", false)]
    {
        let mut host = cached(is_dirty, None);
        answer(&mut host, drive, report(drive, 0, 8), 10);
        let advice = host.raised_for(Reason::DriveFailing, 11).unwrap().advice;
        let flushes = |advice: String| {
            advice.contains("`lvchange --cachemode writethrough vg/lv`")
                && advice.contains("never detach it by force")
        };
        assert_eq!(advice.is_some_and(flushes), is_advised, "{is_dirty} {drive}");
    }
}
