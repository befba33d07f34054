//! The tree that stands for a host of any size is what it claims to be.

#[path = "support/tree.rs"]
mod tree;

use std::path::Path;

use tree::Plan;

fn walk(dir: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(dir).expect("readable") {
        let path = entry.expect("readable").path();
        visit(&path);
        if path.is_dir() && !path.is_symlink() {
            walk(&path, visit);
        }
    }
}

#[test]
fn every_link_of_the_tree_leads_into_the_tree() {
    let dir = tempfile::tempdir().expect("a folder");
    tree::write(dir.path(), Plan { drives: 7, volumes: 40, hung: 1 }).expect("written");
    let root = dir.path().canonicalize().expect("there");
    let mut links = 0;
    walk(&root, &mut |path| {
        if path.is_symlink() {
            let target = path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(target.starts_with(&root), "{} leads to {}", path.display(), target.display());
            links += 1;
        }
    });
    assert!(links > 40, "{links}");
}

#[test]
fn device_numbers_are_unique_and_every_device_has_its_udev_record() {
    let dir = tempfile::tempdir().expect("a folder");
    let volumes = tree::write(dir.path(), Plan { drives: 64, volumes: 1000, hung: 0 }).expect("written");
    let ids: std::collections::BTreeSet<String> = volumes.iter().map(|volume| volume.id()).collect();
    assert_eq!(ids.len(), 1000);
    let mut seen = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(dir.path().join("sys/class/block")).expect("readable") {
        let path = entry.expect("readable").path();
        let dev = std::fs::read_to_string(path.join("dev")).expect("has a number").trim().to_owned();
        assert!(dir.path().join(format!("run/udev/data/b{dev}")).is_file(), "{}", path.display());
        if let Some(other) = seen.insert(dev.clone(), path.clone()) {
            panic!("{dev} is {} and {}", other.display(), path.display());
        }
    }
    // A disk, two partitions each, and two of three volumes have a device of their own.
    assert!(seen.len() > 64 * 3 + 600, "{}", seen.len());
}
