use proptest::prelude::*;

use super::{T, md_state, mirror};
use crate::assess::{MAX_MESSAGE, assess};
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::{Status, Verdict};

fn full_host() -> TestHost {
    let mut host = mirror()
        .mounted("8:32", "/", "/plain", "xfs", "/dev/sdc")
        .mounted("8:32", "/", T, "xfs", "/dev/sdc")
        .csi("d", "h", Some("/staging"), &[("u1", T)]);
    host.plug("sdc", "8:32", "C");
    host.read_all(0);
    host
}

/// One thing that can be heard, by number.
fn event(host: &mut TestHost, kind: u8, seconds: i64) {
    match kind % 16 {
        0 => host.pull_if("sda"),
        1 => host.pull_if("sdc"),
        2 => host.plug_if("sdx", "8:64", "C"),
        3 => drop(host.scan(seconds)),
        4 => drop(host.read_mounts(seconds)),
        5 => drop(host.read_kubelet(seconds)),
        6 => drop(host.probe("/plain", failing_probe(5), seconds)),
        7 => drop(host.probe(T, healthy_probe(usage(GIB, 0)), seconds)),
        8 => drop(host.stuck("/data", seconds)),
        9 => drop(host.layer("md0", md_state(1, &["sda"]), seconds)),
        10 => drop(host.layer("md0", md_state(0, &["sda", "sdb"]), seconds)),
        11 => drop(host.io("8:32", "sdc", 5, 1, seconds)),
        12 => host.umount("/plain"),
        13 => host
            .mounts
            .mounts
            .iter_mut()
            .for_each(|mount| mount.super_options = vec!["ro".into()].into()),
        14 => drop(host.probe("/plain", healthy_probe(usage(GIB, GIB)), seconds)),
        _ => drop(host.probe("/data", failing_probe(13), seconds)),
    }
}

/// One failure or silence, by number.
fn failure(host: &mut TestHost, kind: u8, seconds: i64) {
    let took = std::time::Duration::ZERO;
    let report = match kind % 8 {
        0 => SourceUpdate::Inventory(Observation::failed(at(seconds), "no")),
        1 => SourceUpdate::Mounts(Observation::failed(at(seconds), "no")),
        2 => SourceUpdate::Kubelet(Observation::failed(at(seconds), "no")),
        3 => SourceUpdate::Probe {
            path: "/data".into(),
            result: Observation::failed(at(seconds), "no"),
            duration: took,
        },
        4 => SourceUpdate::Probe {
            path: T.into(),
            result: Observation::failed(at(seconds), "no"),
            duration: took,
        },
        5 => SourceUpdate::Layer {
            device: "md0".into(),
            state: Observation::failed(at(seconds), "no"),
        },
        6 => SourceUpdate::DiskStats(Observation::failed(at(seconds), "no")),
        _ => SourceUpdate::Probe {
            path: "/plain".into(),
            result: Observation::Unavailable,
            duration: took,
        },
    };
    host.apply(report, seconds);
}

impl TestHost {
    fn pull_if(&mut self, name: &str) {
        if self.inventory.devices.contains_key(name) {
            self.pull(name);
        }
    }

    fn plug_if(&mut self, name: &str, dev: &str, serial: &str) {
        if !self.inventory.drives.iter().any(|drive| drive.id == DriveId::new(serial)) {
            self.plug(name, dev, serial);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_failure_makes_a_finding_disappear_or_a_drive_come_back(events in proptest::collection::vec(any::<u8>(), 0..20), failures in proptest::collection::vec(any::<u8>(), 1..12)) {
        let mut host = full_host();
        let mut seconds = 1;
        for kind in events {
            seconds += 7;
            event(&mut host, kind, seconds);
            host.judge(seconds);
        }
        seconds += 100;
        // Time alone may raise more; what is active now must stay.
        host.judge(seconds);
        let before: Vec<_> = host.active.keys().cloned().collect();
        let missing: Vec<_> = host.facts.drives.iter().filter(|(_, drive)| drive.missing_since.is_some()).map(|(id, _)| id.clone()).collect();
        for kind in failures {
            seconds += 7;
            failure(&mut host, kind, seconds);
            host.judge(seconds);
        }
        for key in before {
            prop_assert!(host.active.contains_key(&key), "{key:?} disappeared");
        }
        for id in missing {
            prop_assert!(host.facts.drives[&id].missing_since.is_some());
        }
    }

    #[test]
    fn the_order_of_independent_reports_does_not_change_the_verdict(order in Just((0..8u8).collect::<Vec<_>>()).prop_shuffle()) {
        let tell = |order: &[u8]| {
            let mut host = mirror().mounted("8:32", "/", "/plain", "xfs", "/dev/sdc").csi("d", "h", Some("/staging"), &[("u1", T)]);
            host.plug("sdc", "8:32", "C");
            host.inventory.drives.iter_mut().find(|drive| drive.name == "sdc").unwrap().devices[0].state = Some("offline".into());
            host.mount_mut("/plain").super_options = vec!["emergency_ro".into()].into();
            for kind in order {
                match kind {
                    0 => drop(host.scan(10)),
                    1 => drop(host.read_mounts(10)),
                    2 => drop(host.read_kubelet(10)),
                    3 => drop(host.layer("md0", md_state(1, &["sda"]), 10)),
                    4 => drop(host.io("8:32", "sdc", 5, 1, 10)),
                    _ => {}
                }
            }
            host.io("8:32", "sdc", 5, 1, 100);
            host.probe("/plain", failing_probe(5), 100);
            host.probe("/data", healthy_probe(usage(100 * GIB, 0)), 100);
            let mut raised = host.raised(200);
            raised.sort();
            raised
        };
        let straight: Vec<u8> = (0..8).collect();
        prop_assert_eq!(tell(&order), tell(&straight));
    }

    #[test]
    fn no_facts_make_judgement_panic_or_a_message_too_long(events in proptest::collection::vec((any::<u8>(), any::<bool>(), -50i64..200), 0..40)) {
        let mut host = full_host();
        let mut seconds = 0;
        for (kind, fails, step) in events {
            seconds += step;
            if fails { failure(&mut host, kind, seconds) } else { event(&mut host, kind, seconds) }
            for judgement in assess(&host.facts, &host.active, &host.policy, at(seconds)) {
                if let Verdict::Raised(raised) = judgement.verdict {
                    prop_assert!(raised.message.len() <= MAX_MESSAGE);
                    prop_assert!(!raised.evidence.is_empty(), "{} without evidence", judgement.reason);
                    prop_assert!(!raised.clears_when.is_empty() && raised.status != Status::DataLoss);
                }
            }
            host.judge(seconds);
        }
    }

    #[test]
    fn findings_do_not_depend_on_kernel_names(first in "sd[a-z]", second in "sd[a-z]{2}") {
        let verdicts = |one: &str, two: &str| {
            let mut host = TestHost::default().disk(one, "8:0", "A").disk(two, "8:16", "B").uuid(one, "u").uuid(two, "v");
            host = host.mounted("8:0", "/", "/a", "ext4", "/dev/x").mounted("8:16", "/", "/b", "ext4", "/dev/y");
            host.read_all(0);
            host.pull(one);
            host.inventory.drives[0].devices[0].state = Some("offline".into());
            host.scan(10);
            host.raised(11)
        };
        prop_assert_eq!(verdicts(&first, &second), verdicts("sda", "sdb"));
    }
}

#[test]
fn a_thousand_mount_points_make_no_message_too_long() {
    let mut host = TestHost::default().disk("sda", "8:0", "A");
    for number in 0..1000 {
        host =
            host.mounted("8:0", "/", &format!("/{}/{number}", "x".repeat(400)), "ext4", "/dev/sda");
    }
    host.read_all(0);
    host.pull("sda");
    host.scan(10);
    for judgement in host.judge(11) {
        if let Verdict::Raised(raised) = judgement.verdict {
            assert!(raised.message.len() <= MAX_MESSAGE);
        }
    }
}
