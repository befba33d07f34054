//! Users who pretend that a deleted pod is still on its node, or keep the node from finding out, in user
//! and mount namespaces of their own; and holds that are genuine all the same. The order to clean up must
//! tell them apart.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use diskvitals_wire::pod_cleaning::State;

use crate::csi::clean_stale::order;
use crate::support::tools::{mount_device, umount};
use crate::support::{Daemon, SOON, Testbed, eventually};

const USER: u32 = 4001;
const POD: &str = "5d000000-0000-4000-8000-0000000000b1";

/// A process in a user and a mount namespace of its own.
struct InNamespaces(Child);

impl InNamespaces {
    /// Returns when the commands have been carried out.
    #[expect(clippy::disallowed_methods, reason = "the attack is a program that mounts")]
    fn start(uid: u32, group: Option<&Path>, commands: &str) -> InNamespaces {
        let enter = group.map(|group| format!("echo 0 >'{}/cgroup.procs'; ", group.display()));
        let script = format!(
            "{}exec setpriv --reuid {uid} --regid {uid} --clear-groups \
             unshare --user --map-root-user --mount sh -ec \"$0\"",
            enter.unwrap_or_default()
        );
        let commands = format!("{commands}\necho ready\nexec sleep 1000");
        let mut child = Command::new("/bin/sh")
            .args(["-ec", &script, &commands])
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output"))
            .read_line(&mut line)
            .expect("readable");
        let started = InNamespaces(child);
        assert_eq!(line, "ready\n", "the commands failed");
        started.assert_foreign();
        started
    }

    fn assert_foreign(&self) {
        for name in ["user", "mnt"] {
            let link = |pid: String| std::fs::read_link(format!("/proc/{pid}/ns/{name}"));
            let its = link(self.0.id().to_string()).expect("readable");
            assert_ne!(its, link("self".into()).expect("readable"));
        }
    }

    fn mounts(&self) -> String {
        let path = format!("/proc/{}/mountinfo", self.0.id());
        String::from_utf8_lossy(&std::fs::read(path).expect("readable")).into_owned()
    }

    fn assert_has(&self, mount: &str) {
        let mounts = self.mounts();
        assert!(mounts.contains(mount), "{mount} is not in {mounts}");
    }
}

impl Drop for InNamespaces {
    fn drop(&mut self) {
        // Its mounts disappear with it. It may have ended.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A folder that the user owns.
fn users_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), mode).expect("its mode");
    chown(folder.path(), Some(USER), Some(USER)).expect("its owner");
    folder
}

async fn state(testbed: &Testbed) -> (State, String) {
    let answer = order(&testbed.path("run/agent"), "q-1", &[POD]).await;
    assert_eq!(answer.unreadable, "", "{answer:?}");
    let pod = answer.pods.into_iter().next().expect("one pod");
    (pod.state(), pod.detail)
}

async fn until(testbed: &Testbed, wanted: State) -> String {
    eventually(&format!("{wanted:?}"), SOON, async || {
        let answer = order(&testbed.path("run/agent"), "q-1", &[POD]).await;
        let pod = answer.pods.into_iter().next().expect("one pod");
        (pod.state() == wanted).then_some(pod.detail)
    })
    .await
}

fn volume() -> String {
    format!("pods/{POD}/volumes/kubernetes.io~csi/pv")
}

/// The pod's volume on a device of its own, mounted at the kubelet's path.
fn mount_volume(testbed: &Testbed) -> PathBuf {
    let disk = testbed.ext4("volume.img", 16, &[]);
    let target = testbed.kubelet.root().join(volume()).join("mount");
    mount_device(&disk.device, "ext4", &target, "");
    target
}

/// A control group, with those above it that the test has created; removed when dropped.
struct Group(Vec<PathBuf>);

impl Group {
    fn new(below: &str) -> Group {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let line =
            mounts.lines().find(|line| line.contains(" - cgroup2 ")).expect("a unified hierarchy");
        let mut path = Path::new(line.split(' ').nth(4).expect("a path"))
            .join(format!("dvhw-{}", std::process::id()));
        let mut created = Vec::new();
        for part in Path::new(below) {
            created.push(path.clone());
            path = path.join(part);
        }
        created.push(path);
        for path in &created {
            std::fs::create_dir(path).expect("a group");
        }
        Group(created)
    }

    fn path(&self) -> &Path {
        self.0.last().expect("one")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            if let Err(error) = std::fs::remove_dir(path) {
                eprintln!("{}: {error}", path.display());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_users_mount_and_name_in_namespaces_of_their_own_holds_no_pod() {
    let testbed = Testbed::new();
    let daemon = Daemon::start(&testbed).await;
    until(&testbed, State::Absent).await;
    let folder = users_folder();
    let (u, volume) = (folder.path().display(), volume());
    let kubelet = testbed.kubelet.root().display().to_string();
    let top = testbed.kubelet.root().ancestors().collect::<Vec<_>>();
    let top = top[top.len() - 2].display();
    let attacks = [
        // A filesystem of the user's own at such a path.
        format!("mkdir -p {u}/{volume} && mount -t tmpfs x {u}/{volume}"),
        // A directory of the host with such a path, at another one.
        format!("mkdir -p {u}/a/{volume} {u}/b && mount --bind {u}/a/{volume} {u}/b"),
        // A device of the host at such a path.
        format!("mkdir -p {u}/c/{volume} && mount --bind /usr {u}/c/{volume}"),
        // The kubelet's own path, above a mount of the user's.
        format!(
            "mount -t tmpfs x {top} && mkdir -p {kubelet}/{volume} && mount --bind /usr {kubelet}/{volume}"
        ),
        // From another root directory the mount below is not seen.
        format!(
            "mkdir -p {u}/d/usr {u}/d/{volume} && mount --rbind /usr {u}/d/usr && mount --bind /usr {u}/d/{volume}"
        ),
    ];
    for attack in &attacks {
        let user = InNamespaces::start(USER, None, attack);
        user.assert_has(&volume);
        assert_eq!(state(&testbed).await, (State::Absent, String::new()), "{attack}");
    }

    // The service manager of a user may create control groups with any name.
    let group = Group::new(&format!("user.slice/user@{USER}.service/kubepods/pod{POD}"));
    let user = InNamespaces::start(USER, Some(group.path()), ":");
    let its = std::fs::read_to_string(format!("/proc/{}/cgroup", user.0.id())).expect("readable");
    assert!(its.contains(&format!("kubepods/pod{POD}")), "{its}");
    assert_eq!(state(&testbed).await, (State::Absent, String::new()));
    drop(user);
    daemon.stop().await;
}

/// 100 MB of mount table each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_mounts_in_namespaces_of_users_neither_prevents_the_answer_nor_hides_a_hold() {
    let testbed = Testbed::new();
    let daemon = Daemon::start(&testbed).await;
    until(&testbed, State::Absent).await;
    let folder = users_folder();
    let target = mount_volume(&testbed);
    // Each of these keeps what the host had mounted then.
    let long = format!("/{}", "z".repeat(250)).repeat(12);
    let commands = format!(
        "cd {}; mkdir -p .{long}; cd .{long}; mount -t tmpfs x .; cd \"$PWD\"; \
         for n in $(seq 15); do mkdir $n; done; for n in $(seq 15); do mount --rbind . $n; done",
        folder.path().display()
    );
    let floods: Vec<InNamespaces> =
        (0..4).map(|_| InNamespaces::start(USER, None, &commands)).collect();
    for flood in &floods {
        let mounts = flood.mounts();
        assert!(mounts.lines().count() > 30_000 && mounts.len() > 90 << 20);
    }
    assert_eq!(state(&testbed).await.0, State::Foreign);
    umount(&target);
    // The filesystem is still mounted, in these namespaces.
    let (state_now, detail) = state(&testbed).await;
    assert_eq!(state_now, State::Held, "{detail}");
    let place = format!("has it mounted at {}", target.display());
    assert!(detail.contains(&place), "{detail}");
    // Without the directory the kernel detaches it everywhere.
    std::fs::remove_dir(&target).expect("not a mount of the host");
    assert!(!floods[0].mounts().contains(&target.display().to_string()));
    assert_eq!(state(&testbed).await, (State::Absent, String::new()));
    assert!(daemon.log().contains("has too many mounts"), "it is named");
    drop(floods);
    daemon.stop().await;
}

/// As a pod with `hostUsers: false`: the container has a user namespace, and the volume at a path that
/// says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_in_a_user_namespace_holds_its_volume_when_the_host_has_unmounted_it() {
    let testbed = Testbed::new();
    let daemon = Daemon::start(&testbed).await;
    until(&testbed, State::Absent).await;
    let target = mount_volume(&testbed);
    let group = Group::new(&format!("kubepods/besteffort/pod{POD}/container"));
    let commands = format!("mount --bind '{}' /mnt", target.display());
    let container = InNamespaces::start(0, Some(group.path()), &commands);
    umount(&target);
    std::fs::remove_dir(&target).expect("not a mount of the host");
    container.assert_has(" /mnt ");
    let (state_now, detail) = state(&testbed).await;
    assert_eq!(state_now, State::Held, "{detail}");
    let named = format!("{} (sleep) runs in its container", container.0.id());
    assert!(detail.contains(&named), "{detail}");
    drop(container);
    until(&testbed, State::Absent).await;
    daemon.stop().await;
}
