use super::*;

const TABLE: &[u8] = b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                       30 20 7:3 / /p rw - ext4 /dev/loop3 rw\n\
                       31 30 7:4 / /p ro - xfs /dev/loop4 rw\n\
                       32 20 7:5 / /q rw - xfs /dev/loop5 rw\n";

#[test]
fn stacked_mounts_are_listed_from_the_top_down_and_no_others() {
    let table = parse(TABLE).0;
    let ids = |at, below| {
        mounts_above(&table, &mut { at }, below)
            .map(|stack| stack.iter().map(|mount| mount.id).collect::<Vec<_>>())
    };
    assert_eq!(ids(31, 20), Some(vec![31, 30]));
    assert_eq!(ids(32, 20), Some(vec![32]));
    assert_eq!(ids(20, 20), Some(vec![]));
    assert_eq!(ids(99, 20), None, "gone since");
}

#[test]
fn a_mount_that_is_its_own_parent_ends_the_search() {
    let table = parse(b"1 1 0:1 / / rw - rootfs rootfs rw\n").0;
    assert!(mounts_above(&table, &mut 1, 7).is_none());
}

fn place(dir: &tempfile::TempDir, path: &str) -> RootedPath {
    let root = HostPath::from(dir.path());
    RootedPath { path: root.join(path), root }
}

#[test]
fn only_an_empty_directory_or_file_is_removed_and_an_absent_one_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("a/full/x")).unwrap();
    std::fs::create_dir(dir.path().join("a/empty")).unwrap();
    std::fs::write(dir.path().join("a/file"), "").unwrap();
    std::fs::write(dir.path().join("a/data"), "x").unwrap();
    std::os::unix::fs::symlink("empty", dir.path().join("a/link")).unwrap();
    let remove =
        |path: &str| remove_target(&place(&dir, path), None).map_err(|failure| failure.kind);
    assert_eq!(remove("a/full"), Err(StepErrorKind::InUse));
    assert_eq!(remove("a/data"), Err(StepErrorKind::InUse));
    assert_eq!(remove("a/link"), Err(StepErrorKind::InvalidPath));
    for gone in ["a/empty", "a/empty", "a/file", "a/file", "b/none"] {
        assert_eq!(remove(gone), Ok(()), "{gone}");
    }
    assert_eq!(find_mount(&place(&dir, "a/full"), None).unwrap(), None);
}

/// Of a folder and the root of a mount of it elsewhere.
#[test]
fn a_mount_shows_a_folder_if_both_are_one_path_of_one_filesystem() {
    let table = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                 30 20 8:1 /var/lab/tmp /tmp rw - ext4 /dev/sda1 rw\n\
                 31 20 0:40 /@data /data rw - btrfs /dev/sdb rw\n\
                 32 31 8:33 / /data/disk rw - xfs /dev/sdc1 rw\n\
                 33 32 8:49 / /data/disk rw - xfs /dev/sdd1 rw\n";
    let shows = |dev: &str, root: &str, folder: &str| {
        let text = format!("{table}40 20 {dev} {root} /k/target rw - x y rw\n");
        let table = parse(text.as_bytes()).0;
        let mount = table.iter().find(|mount| mount.id == 40).expect("it is in the table");
        shows(&table, mount, &HostPath::from(folder))
    };
    assert!(shows("8:1", "/srv/a", "/srv/a"));
    assert!(shows("8:1", "/var/lab/tmp/a", "/tmp/a"), "below a bind mount");
    assert!(shows("0:40", "/@data/a", "/data/a"), "in a subvolume");
    assert!(shows("8:49", "/", "/data/disk"), "a whole filesystem, the one on top");
    assert!(!shows("8:33", "/", "/data/disk"), "the one below it");
    assert!(!shows("8:1", "/@data/a", "/data/a"), "another filesystem");
    assert!(!shows("8:1", "/srv", "/srv/a"), "the folder above");
    assert!(!shows("8:1", "/srv/ab", "/srv/a"));
}
