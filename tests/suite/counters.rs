//! The error counters of every recorded host in `tests/hosts` are read and compared with its
//! `counters.json`; a host without that file has none. `UPDATE_EXPECTED=1` rewrites the files;
//! review them before the commit.

use std::path::Path;

use diskvitals_host::root::HostRoot;
use diskvitals_source::counters::read;
use diskvitals_source::jobs::{CounterGroup, CounterReadings};

#[test]
fn the_counters_of_every_recorded_host_are_read_as_expected() {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts");
    let mut with_counters = 0;
    for entry in std::fs::read_dir(&hosts).expect("tests/hosts") {
        let tree = entry.expect("entry").path();
        if !tree.join("sys").is_dir() {
            continue;
        }
        let root = HostRoot::new(&tree);
        let CounterReadings { mut readings, warnings, arrays, bcache, drives } =
            read(&root, &CounterGroup::Plain).expect("read");
        assert_eq!((warnings, bcache), (vec![], vec![]), "{}", tree.display());
        for array in arrays {
            readings.extend(read(&root, &CounterGroup::Md { array }).expect("read").readings);
        }
        for group in drives {
            readings.extend(read(&root, &group).expect("read").readings);
        }
        let found = format!("{:#}\n", serde_json::to_value(&readings).expect("JSON"));
        let file = tree.join("counters.json");
        if std::env::var_os("UPDATE_EXPECTED").is_some() && !readings.is_empty() {
            std::fs::write(&file, &found).expect("written");
        }
        let expected = std::fs::read_to_string(&file).unwrap_or("[]\n".into());
        with_counters += usize::from(!readings.is_empty());
        assert_eq!(found, expected, "{}", file.display());
    }
    assert!(with_counters >= 2, "{with_counters}");
}
