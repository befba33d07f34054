//! Every recorded host in `tests/hosts` is scanned and compared with its `inventory.json`. Each new
//! folder is a new test. `UPDATE_EXPECTED=1` rewrites the files; review them before the commit.

use std::path::{Path, PathBuf};

use diskvitals_host::root::HostRoot;
use diskvitals_model::block::LayerState;
use diskvitals_source::{inventory, layers};

fn cases() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts");
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = entries.filter(|path| path.join("sys").is_dir()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

#[test]
fn every_recorded_host_is_scanned_as_expected() {
    let mut wrong = Vec::new();
    for case in cases() {
        let inventory = inventory::scan(&HostRoot::new(&case), &[], &[]).unwrap();
        let found = format!("{}\n", serde_json::to_string_pretty(&inventory).unwrap());
        let file = case.join("inventory.json");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&file, found).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        if let Some((at, (expected, found))) = expected
            .lines()
            .zip(found.lines())
            .enumerate()
            .find(|(_, (expected, found))| expected != found)
        {
            wrong.push(format!(
                "{}:{}: expected `{expected}`, found `{found}`",
                file.display(),
                at + 1
            ));
        } else if expected != found {
            wrong.push(format!(
                "{}: expected {} lines, found {}",
                file.display(),
                expected.lines().count(),
                found.lines().count()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_layer_of_every_recorded_host_can_be_read() {
    for case in cases() {
        let root = HostRoot::new(&case);
        for device in inventory::scan(&root, &[], &[]).unwrap().devices.values() {
            layers::read(&root, &device.name, &device.layer)
                .unwrap_or_else(|error| panic!("{}: {error}", case.display()));
        }
    }
}

#[test]
fn the_recorded_layers_report_their_faults() {
    let read = |case: &str, device: &str| {
        let root =
            HostRoot::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts").join(case));
        let layer = inventory::scan(&root, &[], &[]).unwrap().devices[device].layer.clone();
        layers::read(&root, device, &layer).unwrap()
    };
    assert!(
        matches!(read("lvm-on-md", "md127"), LayerState::Md(md) if md.degraded == 1 && md.members[1].state == "faulty")
    );
    assert!(matches!(read("lvm-on-md", "dm-2"), LayerState::Thin(pool) if pool.data_used == 46080));
    assert!(
        matches!(read("multipath", "dm-0"), LayerState::Multipath(paths) if !paths.paths[1].active)
    );
}

#[test]
fn two_scans_of_a_host_give_the_same_answer() {
    for case in cases() {
        let root = HostRoot::new(&case);
        assert_eq!(
            inventory::scan(&root, &[], &[]).unwrap(),
            inventory::scan(&root, &[], &[]).unwrap()
        );
    }
}
