use proptest::prelude::*;

use super::*;

mod users;

const K: &str = "/var/lib/kubelet";
const UID: &str = "6fd59b60-3a3b-4a9e-8d52-0c8e2f1c9d11";

fn line(id: u32, dev: &str, root: &str, at: &str, fs_type: &str) -> String {
    format!("{id} 1 {dev} {root} {at} rw - {fs_type} source rw\n")
}

struct Proc(tempfile::TempDir);

impl Proc {
    fn new(mounts: &str) -> Proc {
        let proc = Proc(tempfile::tempdir().expect("a folder"));
        proc.process(1, "systemd", "/init.scope", "mnt:[1]", mounts);
        proc
    }

    fn process(&self, pid: u32, comm: &str, group: &str, namespace: &str, mounts: &str) {
        let folder = self.0.path().join(format!("proc/{pid}"));
        std::fs::create_dir_all(folder.join("ns")).expect("a folder");
        for (name, text) in [
            ("comm", format!("{comm}\n")),
            ("cgroup", format!("0::{group}\n")),
            ("mountinfo", mounts.to_owned()),
        ] {
            std::fs::write(folder.join(name), text).expect("written");
        }
        std::os::unix::fs::symlink(namespace, folder.join("ns/mnt")).expect("a link");
    }

    fn holds(&self) -> Vec<(HoldKind, String)> {
        let root = HostRoot::new(self.0.path());
        let found = holds_of_pods(&root, &K.into(), &[UID.to_owned(), "other".to_owned()])
            .expect("readable");
        let found = found.holds;
        assert!(found.iter().all(|hold| hold.pod_uid == UID));
        found.into_iter().map(|it| (it.kind, it.detail)).collect()
    }
}

fn volume() -> String {
    format!("{K}/pods/{UID}/volumes/kubernetes.io~csi/pv-1/mount")
}

#[test]
fn the_hosts_mounts_of_a_pod_are_found_for_every_plugin_that_another_node_can_reach() {
    let nfs = format!("{K}/pods/{UID}/volumes/kubernetes.io~nfs/data");
    let subpath = format!("{K}/pods/{UID}/volume-subpaths/pv-1/web/0");
    let block = format!("{K}/plugins/kubernetes.io/csi/volumeDevices/publish/pv-2/{UID}");
    let token = format!("{K}/pods/{UID}/volumes/kubernetes.io~projected/kube-api-access");
    let config = format!("{K}/pods/{UID}/volume-subpaths/config/web/0");
    let config_root = format!("{K}/pods/{UID}/volumes/kubernetes.io~configmap/config/a");
    let others = format!("{K}/pods/one-more/volumes/kubernetes.io~nfs/data");
    let mounts = [
        line(2, "8:1", "/", &volume(), "ext4"),
        line(3, "0:50", "/", &nfs, "nfs4"),
        line(4, "8:1", "/a", &subpath, "ext4"),
        line(5, "0:5", "/sdb", &block, "devtmpfs"),
        line(6, "0:51", "/", &token, "tmpfs"),
        line(7, "8:2", &config_root, &config, "ext4"),
        line(8, "0:50", "/", &others, "nfs4"),
    ];
    let mut expected = [volume(), nfs, subpath, block].map(|path| (HoldKind::Mount, path));
    expected.sort();
    assert_eq!(Proc::new(&mounts.concat()).holds(), expected);
}

#[test]
fn a_process_in_a_control_group_of_the_pod_holds_it_under_both_drivers() {
    let proc = Proc::new("");
    let systemd = UID.replace('-', "_");
    proc.process(
        812,
        "mysqld",
        &format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice/cri-containerd-1.scope"),
        "mnt:[1]",
        "",
    );
    proc.process(813, "sh", &format!("/../kubepods/pod{UID}/1"), "mnt:[1]", "");
    proc.process(814, "sh", &format!("/kubepods/pod{UID}0/1"), "mnt:[1]", "");
    let text = |pid: u32, comm: &str| {
        let detail = format!("{pid} ({comm}) runs in its container");
        (HoldKind::Process, detail)
    };
    assert_eq!(proc.holds(), [text(812, "mysqld"), text(813, "sh")]);
}

#[test]
fn a_mount_that_only_another_namespace_has_holds_the_pod_and_a_copy_of_the_hosts_does_not() {
    let copy = line(9, "8:1", "/", &format!("/host{}", volume()), "ext4");
    let here = Proc::new(&line(2, "8:1", "/", &volume(), "ext4"));
    here.process(900, "agent", "/", "mnt:[2]", &copy);
    assert_eq!(here.holds(), [(HoldKind::Mount, volume())]);
    let gone = Proc::new("");
    gone.process(900, "agent", "/", "mnt:[2]", &copy);
    gone.process(901, "agent-2", "/", "mnt:[2]", &copy);
    let holds = gone.holds();
    assert_eq!(holds.len(), 1, "once for a namespace: {holds:?}");
    assert_eq!(holds[0].0, HoldKind::MountElsewhere);
}

#[test]
fn who_uses_a_mount_that_no_container_has_any_more_is_named() {
    let mounts = line(2, "8:1", "/", &volume(), "ext4");
    let proc = Proc::new(&mounts);
    proc.process(900, "bash", "/user.slice", "mnt:[1]", &mounts);
    let folder = proc.0.path().join("proc/900/cwd");
    std::os::unix::fs::symlink(volume(), folder).expect("a link");
    let works = format!("900 (bash) works in {}", volume());
    // In a container, on the same filesystem.
    let other = line(9, "8:1", "/state", "/state", "ext4");
    proc.process(902, "daemon", "/", "mnt:[2]", &other);
    let folder = proc.0.path().join("proc/902/cwd");
    std::os::unix::fs::symlink("/state", folder).expect("a link");
    let expected = [(HoldKind::Mount, volume()), (HoldKind::Opener, works)];
    assert_eq!(proc.holds(), expected);
    // While a container runs, it is the container that is to end.
    let group = format!("/kubepods/pod{UID}/1");
    proc.process(901, "mysqld", &group, "mnt:[1]", &mounts);
    let kinds: Vec<HoldKind> = proc.holds().into_iter().map(|it| it.0).collect();
    assert_eq!(kinds, [HoldKind::Mount, HoldKind::Process]);
}

#[test]
fn a_process_that_ends_is_skipped_and_what_cannot_be_read_is_an_error() {
    let proc = Proc::new("");
    std::fs::create_dir_all(proc.0.path().join("proc/77")).expect("a folder");
    assert_eq!(proc.holds(), []);
    let cgroup = proc.0.path().join("proc/77/cgroup");
    std::fs::create_dir_all(&cgroup).expect("a folder where a file should be");
    let root = HostRoot::new(proc.0.path());
    let error = holds_of_pods(&root, &K.into(), &[UID.to_owned()]).expect_err("unreadable");
    assert!(error.to_string().contains("/proc/77/cgroup"), "{error}");
    std::fs::remove_dir(&cgroup).expect("removed");
    std::fs::write(proc.0.path().join("proc/1/mountinfo"), "no mount\n").expect("written");
    holds_of_pods(&root, &K.into(), &[UID.to_owned()]).expect_err("a mount that cannot be read");
}

proptest! {
    /// However the rest of the group looks, another pod's processes are not this one's.
    #[test]
    fn a_longer_uid_is_another_pod(uid in "[0-9a-f-]{1,36}", more in "[0-9a-f]{1,4}") {
        let group = |uid: &str| format!("0::/kubepods/besteffort/pod{uid}/1\n");
        prop_assert!(pods_of_groups(group(&uid).as_bytes()).contains(&uid));
        let longer = format!("{uid}{more}");
        prop_assert!(!pods_of_groups(group(&longer).as_bytes()).contains(&uid));
    }
}
