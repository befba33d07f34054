use super::removal::{clear, groups_in};
use super::*;

const MOUNTS: &[u8] = b"31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
    33 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
    32 25 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

fn bounds() -> RunBounds {
    RunBounds {
        memory: 1 << 30,
        tasks: 576,
        low_priority: true,
        read_rate: Some(1 << 20),
        devices: vec![DevNo { major: 8, minor: 1 }],
    }
}

/// A host whose unified hierarchy enables these controllers below /system.slice.
fn host(enabled: &str) -> tempfile::TempDir {
    let host = tempfile::tempdir().unwrap();
    let slice = host.path().join("sys/fs/cgroup/unified/system.slice");
    std::fs::create_dir_all(&slice).unwrap();
    std::fs::write(slice.join("cgroup.subtree_control"), enabled).unwrap();
    host
}

#[test]
fn the_group_is_made_beside_our_own_where_the_controllers_are_enabled() {
    let host = host("cpu io memory pids hugetlb\n");
    let parent = |line| parent_of(line, MOUNTS, host.path());
    let at = |path: &str| host.path().join("sys/fs/cgroup").join(path);
    assert_eq!(
        parent("0::/system.slice/diskvitalsd.service"),
        Some(Parent {
            hierarchy: at("unified"),
            path: at("unified/system.slice"),
            is_v2: true,
            controllers: ["cpu", "io", "memory", "pids"].map(str::to_owned).to_vec(),
        })
    );
    let v1 = |hierarchy: &str, below: &str, controller: &str| {
        Some(Parent {
            hierarchy: at(hierarchy),
            path: at(hierarchy).join(below),
            is_v2: false,
            controllers: vec![controller.to_owned()],
        })
    };
    assert_eq!(parent("4:memory:/a/b:c"), v1("memory", "a", "memory"));
    assert_eq!(parent("4:memory:/"), v1("memory", "", "memory"));
    assert_eq!(parent("5:cpu,cpuacct:/x"), v1("cpu,cpuacct", "", "cpu"));
    for none in [
        "0::/../../x",
        "0::/user.slice/x.scope",
        "6:freezer:/x",
        "7:pids:/x",
        "9:name=systemd:/x",
        "",
    ] {
        assert_eq!(parent(none), None, "{none}");
    }
}

#[test]
fn what_no_group_can_bound_is_named_and_the_rest_is_bounded() {
    let parent = |path: &Path, names: &[&str]| Parent {
        hierarchy: path.to_owned(),
        path: path.to_owned(),
        is_v2: false,
        controllers: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let none = Path::new("/nonexistent");
    let root = HostRoot::new("/");
    let unbounded = |parents: &[Parent]| {
        let group = RunGroup::create_in(Ok(parents.to_vec()), bounds(), &root);
        let Unbounded { memory, tasks } = group.unbounded.clone();
        [memory, tasks].map(Option::unwrap_or_default)
    };
    assert_eq!(
        unbounded(&[]),
        ["no control group can bound memory here", "no control group can bound pids here"]
    );
    let [memory, tasks] = unbounded(&[parent(none, &["memory", "cpu"]), parent(none, &["io"])]);
    assert!(memory.starts_with("making /nonexistent/diskvitals-check-"), "{memory}");
    assert_eq!(tasks, "no control group can bound pids here");
    let unreadable = GroupError::Read("/x".into(), io::ErrorKind::PermissionDenied.into());
    let group = RunGroup::create_in(Err(unreadable), bounds(), &root);
    assert_eq!(group.unbounded.memory.as_deref(), Some("reading /x: permission denied"));
    assert_eq!(group.unbounded.memory, group.unbounded.tasks);
}

/// The files of a group that the kernel makes in its directory.
fn group_files(dir: &Path, files: &[&str]) {
    for file in files {
        std::fs::write(dir.join(file), "").unwrap();
    }
}

#[test]
fn each_version_gets_its_own_files_for_the_same_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let lock = Flock::lock(File::open(dir.path()).unwrap(), FlockArg::LockShared).unwrap();
    let group = GroupDir {
        path: dir.path().to_owned(),
        controllers: ["memory", "pids", "cpu", "io"].map(str::to_owned).to_vec(),
        _lock: lock,
    };
    let sysfs = tempfile::tempdir().unwrap();
    let disk = sysfs.path().join("sys/block/sda");
    std::fs::create_dir_all(disk.join("sda1")).unwrap();
    std::fs::create_dir_all(sysfs.path().join("sys/dev/block")).unwrap();
    std::fs::write(disk.join("dev"), "8:0\n").unwrap();
    std::fs::write(disk.join("sda1/partition"), "1\n").unwrap();
    std::os::unix::fs::symlink("../../block/sda/sda1", sysfs.path().join("sys/dev/block/8:1"))
        .unwrap();
    let root = HostRoot::new(sysfs.path());
    let set_bounds = |is_v2| {
        let mut unbounded = Unbounded::default();
        group.set_bounds(is_v2, &bounds(), &root, &mut unbounded);
        unbounded
    };
    let all = Unbounded::default();
    // Each alone: without one's files, the other holds.
    group_files(dir.path(), &["pids.max"]);
    let Unbounded { memory, tasks } = set_bounds(true);
    assert!(memory.is_some_and(|why| why.contains("/memory.max")) && tasks.is_none());
    // Without swap accounting, memory.memsw.limit_in_bytes and memory.swap.max are missing.
    group_files(dir.path(), &["memory.max", "memory.oom.group", "pids.max", "io.max"]);
    // Without cpu.weight, the rest holds nevertheless.
    assert_eq!(set_bounds(true), all);
    let swap = "memory.swap.max";
    assert!(!dir.path().join(swap).exists());
    group_files(dir.path(), &["cpu.weight", swap]);
    assert_eq!(set_bounds(true), all);
    group_files(
        dir.path(),
        &["memory.limit_in_bytes", "cpu.shares", "blkio.throttle.read_bps_device"],
    );
    assert_eq!(set_bounds(false), all);
    let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
    assert_eq!(read("memory.max"), "1073741824");
    assert_eq!(read("memory.limit_in_bytes"), "1073741824");
    assert_eq!(read("memory.oom.group"), "1");
    // Both versions write the same number.
    assert!(read("pids.max").starts_with("576"));
    assert_eq!(read("cpu.weight"), "10");
    assert_eq!(read("cpu.shares"), "102");
    assert_eq!(read("io.max"), "8:0 rbps=33554432");
    assert_eq!(read("blkio.throttle.read_bps_device"), "8:0 33554432");
    assert_eq!(read(swap), "0");

    let group = RunGroup { dirs: vec![group], bounds: bounds(), unbounded: Unbounded::default() };
    assert_eq!(group.exceeded(), None);
    std::fs::write(dir.path().join("pids.events"), "max 0\n").unwrap();
    std::fs::write(dir.path().join("memory.events"), "low 0\noom 0\noom_kill 0\n").unwrap();
    assert_eq!(group.exceeded(), None);
    std::fs::write(dir.path().join("pids.events"), "max 3\n").unwrap();
    let reason = group.exceeded().unwrap();
    assert!(reason.starts_with("wanted more than the 576 processes"), "{reason}");
    std::fs::write(dir.path().join("memory.oom_control"), "under_oom 0\noom_kill 1\n").unwrap();
    let reason = group.exceeded().unwrap();
    assert!(reason.contains("may use 1024 MiB together"), "{reason}");
}

#[test]
fn a_group_that_is_locked_is_not_cleared() {
    let parent = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let path = parent.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let other = make("system.slice");
    let (left, below, used) = (
        make("diskvitals-check-1-0"),
        make("system.slice/diskvitals-check-1-0"),
        make("diskvitals-check-2-0"),
    );
    let _held = Flock::lock(File::open(&used).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
    std::fs::create_dir_all(left.join("made/by the run")).unwrap();
    // Also when the time is over.
    assert_eq!(clear(parent.path(), 1, Instant::now()), Vec::<PathBuf>::new());
    assert_eq!([left, below, used, other].map(|path| path.exists()), [false, false, true, true]);
}

#[test]
fn a_group_that_does_not_take_the_process_bounds_nothing_of_it() {
    let parent = tempfile::tempdir().unwrap();
    let dir = |name: &str| {
        let path = parent.path().join(name);
        std::fs::create_dir(&path).unwrap();
        // What is dropped is killed by this file, not by the kernel.
        group_files(&path, &["cgroup.kill"]);
        let lock = Flock::lock(File::open(&path).unwrap(), FlockArg::LockShared).unwrap();
        GroupDir { path, controllers: vec![name.to_owned()], _lock: lock }
    };
    let mut group = RunGroup {
        dirs: vec![dir("cpu"), dir("memory")],
        bounds: bounds(),
        unbounded: Unbounded::default(),
    };
    group_files(&group.dirs[1].path, &["cgroup.procs"]);
    let nobody = Pid::from_raw(0);
    assert_eq!(group.add(nobody), Unbounded::default());
    group.dirs.push(dir("pids"));
    let Unbounded { memory, tasks } = group.add(nobody);
    assert_eq!(memory, None);
    assert!(tasks.unwrap().contains("/pids/cgroup.procs"));
}

#[test]
fn what_is_no_group_of_ours_is_removed_again() {
    let dir = tempfile::tempdir().unwrap();
    let parent = Parent {
        hierarchy: dir.path().to_owned(),
        path: dir.path().to_owned(),
        is_v2: true,
        controllers: ["memory", "pids"].map(str::to_owned).to_vec(),
    };
    // Here, a new directory has no cgroup.procs.
    let group = RunGroup::create_in(Ok(vec![parent]), bounds(), &HostRoot::new("/"));
    assert_eq!(group.unbounded.tasks, Some(GroupError::NoName.to_string()));
    assert!(group.dirs.is_empty());
    assert_eq!(groups_in(dir.path()), Vec::<PathBuf>::new());
}
