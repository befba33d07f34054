//! What users, and pods that are not asked about, can put into /proc.

use super::*;

const HOST: &str = "2 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                    3 2 8:2 /k /var/lib/kubelet rw - ext4 /dev/sdb1 rw\n";

/// The mount table of a namespace that began with the host's mounts, and has one more.
fn with(more: &str) -> String {
    format!("{HOST}{more}")
}

fn user(proc: &Proc, pid: u32, mounts: &str) {
    proc.process(pid, "sleep", "/session", &format!("mnt:[{pid}]"), mounts);
    let link = |pid: u32| proc.0.path().join(format!("proc/{pid}/ns/user"));
    std::os::unix::fs::symlink("user:[1]", link(1)).ok();
    std::os::unix::fs::symlink(format!("user:[{pid}]"), link(pid)).expect("a link");
}

fn held(at: &str) -> [(HoldKind, String); 1] {
    let text = format!("900 (sleep) has it mounted at {at} in a namespace of its own");
    [(HoldKind::MountElsewhere, text)]
}

fn of_user(more: &str) -> Vec<(HoldKind, String)> {
    let proc = Proc::new(HOST);
    user(&proc, 900, &with(more));
    proc.holds()
}

fn of_container(more: &str) -> Vec<(HoldKind, String)> {
    let proc = Proc::new(HOST);
    let group = "/kubepods/podb/1";
    proc.process(900, "sleep", group, "mnt:[2]", &with(more));
    proc.holds()
}

#[test]
fn a_path_alone_holds_nothing_where_users_or_pods_choose_it() {
    let at = format!("/home/u{}", volume());
    let subpath = format!("/k/pods/b/volumes/kubernetes.io~empty-dir/e{}", volume());
    let foreign = [
        // A filesystem of the user's, and a directory and a device of the host.
        format!("9 2 0:50 / {at} rw - tmpfs x rw\n"),
        format!("9 2 8:1 /home/u{} /b rw - ext4 /dev/sda1 rw\n", volume()),
        format!("9 2 8:1 /usr {at} rw - ext4 /dev/sda1 rw\n"),
        // A pod's own directory, by subPath and mountPath.
        format!("9 2 8:2 {subpath} /data rw - ext4 /dev/sdb1 rw\n"),
        format!("9 2 8:2 {subpath} {} rw - ext4 /dev/sdb1 rw\n", volume().replace("/var", "/srv")),
        // The kubelet's path, above a mount of the user's.
        format!(
            "8 2 0:51 / /var rw - tmpfs x rw\n9 8 8:1 /usr {} rw - ext4 /dev/sda1 rw\n",
            volume()
        ),
        // The mount below is not seen.
        format!("9 77 8:1 /usr {} rw - ext4 /dev/sda1 rw\n", volume()),
    ];
    for more in foreign {
        assert_eq!(of_user(&more), [], "{more}");
        assert_eq!(of_container(&more), [], "{more}");
    }
}

#[test]
fn the_kubelets_own_directory_holds_wherever_it_is_seen() {
    let own = [
        // As the host had it, and below another path.
        (volume(), format!("9 3 8:3 / {} rw - ext4 /dev/sdc rw\n", volume())),
        (
            format!("/host/pods/{UID}/volumes/kubernetes.io~csi/pv-1/mount"),
            format!(
                "8 2 8:2 /k /host rw - ext4 /dev/sdb1 rw\n\
                 9 8 8:3 / /host/pods/{UID}/volumes/kubernetes.io~csi/pv-1/mount rw - ext4 /dev/sdc rw\n"
            ),
        ),
        // A FUSE filesystem: its type says nothing about who has mounted it.
        (volume(), format!("9 3 0:60 / {} rw - fuse.s3fs s3 rw,user_id=0\n", volume())),
        // A directory of the kubelet's that is no mount of its own.
        (
            "/data".to_owned(),
            format!("9 2 8:2 /k/pods/{UID}/volumes/acme~flex/x /data rw - ext4 /dev/sdb1 rw\n"),
        ),
    ];
    for (at, more) in own {
        assert_eq!(of_user(&more), held(&at), "{more}");
        assert_eq!(of_container(&more), held(&at), "{more}");
    }
    // What is mounted on it is of the volume as well.
    let below = format!("{}/sub", volume());
    let both = format!(
        "9 3 8:3 / {} rw - ext4 /dev/sdc rw\n10 9 0:70 / {below} rw - nfs4 s:/x rw\n",
        volume()
    );
    assert_eq!(of_user(&both).len(), 2);
}

#[test]
fn a_namespace_of_the_hosts_with_a_sandbox_in_it_is_still_the_hosts() {
    let proc = Proc::new(HOST);
    let more = format!("9 2 8:3 / /other{} rw - ext4 /dev/sdc rw\n", volume());
    user(&proc, 900, &with(&more));
    assert_eq!(proc.holds(), []);
    proc.process(901, "kubelet", "/system.slice", "mnt:[900]", &with(&more));
    assert_eq!(proc.holds().len(), 1);
}

#[test]
fn a_fuse_filesystem_of_a_user_holds_nothing_in_the_hosts_namespace_either() {
    let at = format!("/home/u{}", volume());
    let mount =
        |owner: u32, at: &str| with(&format!("9 2 0:50 / {at} rw - fuse.x x rw,user_id={owner}\n"));
    assert_eq!(Proc::new(&mount(4001, &at)).holds(), []);
    assert_eq!(Proc::new(&mount(0, &at)).holds(), [(HoldKind::Mount, at)]);
    // A driver without root's uid, at the kubelet's place.
    let of_driver = mount(4001, &volume()).replace("9 2 ", "9 3 ");
    assert_eq!(Proc::new(&of_driver).holds(), [(HoldKind::Mount, volume())]);
    // A pod's own directory by subPath.
    let subpath = format!(
        "9 3 8:2 /k/pods/b/volumes/kubernetes.io~empty-dir/e{} {K}/pods/b/volume-subpaths/e/c/0 rw - ext4 /dev/sdb1 rw\n",
        volume()
    );
    assert_eq!(Proc::new(&with(&subpath)).holds(), []);
}

#[test]
fn a_table_that_is_too_long_is_named_and_what_it_began_with_counts() {
    let proc = Proc::new(HOST);
    let own = format!("9 3 8:3 / {} rw - ext4 /dev/sdc rw\n", volume());
    let flood = format!("10 2 0:50 / /{} rw - tmpfs x rw\n", "z".repeat(3000)).repeat(3000);
    user(&proc, 900, &with(&format!("{own}{flood}")));
    for pid in 901..920 {
        user(&proc, pid, &with(&flood));
    }
    // Neither is a line that is no mount a reason to know nothing.
    user(&proc, 920, "no mount\n");
    assert_eq!(proc.holds(), held(&volume()));
    let root = HostRoot::new(proc.0.path());
    let found = holds_of_pods(&root, &K.into(), &[UID.to_owned()]).expect("readable");
    assert_eq!(found.not_read[0], "900 (sleep) has too many mounts");
    assert_eq!(found.not_read.len(), MAX_NAMED + 1);
}

#[test]
fn control_groups_that_users_and_containers_name_are_of_no_pod() {
    let pods = |group: &str, init: &str| pods_of_process(group.as_bytes(), init.as_bytes());
    let pod = BTreeSet::from(["a".to_owned()]);
    let none = BTreeSet::new();
    let user = "0::/user.slice/user-4001.slice/user@4001.service/kubepods/poda\n";
    assert_eq!(pods(user, "0::/init.scope\n"), none);
    assert_eq!(pods(&format!("4:memory:/kubepods/poda/1\n{user}"), "0::/\n"), pod);
    // The whole host is a container of a user, or of a pod.
    assert_eq!(pods(user, "0::/user.slice/user-4001.slice/init.scope\n"), pod);
    let nested = format!("0::/kubepods/pod{UID}/1/kubepods/poda/2\n");
    let own = format!("0::/kubepods/pod{UID}/1/init.scope\n");
    let outer = BTreeSet::from([UID.to_owned()]);
    assert_eq!(pods(&nested, "0::/init.scope\n"), outer);
    assert_eq!(pods(&nested, &own), pod);
    // A group above all pods whose name begins as a pod's.
    assert!(pods("0::/pods/kubepods/poda/2\n", "0::/\n").contains("a"));
}
