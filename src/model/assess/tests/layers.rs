use crate::block::LayerState;
use crate::fixture::*;
use crate::stack::{Multipath, MultipathPath, ThinPool};
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
        needs_check: false,
        status_line: "0 8 thin-pool".into(),
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
