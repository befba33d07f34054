//! Orders to clean up after deleted pods, on real mounts: CleanStale on the agent's socket.

use std::path::{Path, PathBuf};

use diskvitals_wire::pod_cleaning::State;
use diskvitals_wire::storage_client::StorageClient;
use diskvitals_wire::{CleanStaleRequest, StaleCleaning};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::Endpoint;

use super::fixture::{MIB, Volume, both, claim, configure, ext4, loops_below, mounts_below};
use crate::support::shim::{Csi, Shim};
use crate::support::tools::{mount_device, umount};
use crate::support::{Daemon, FuseServer, Mode, SOON, Testbed, eventually};

const ALLOWED: &str = "[cleanup]\norders = true\n";

struct Node {
    testbed: Testbed,
    daemon: Daemon,
    _shim: Shim,
}

/// The kubelet's records and its directories of the pod stay.
async fn volume(testbed: &Testbed, csi: &Csi, name: &str) -> Volume {
    let handle = csi.create(name, 64 * MIB, ext4()).await.expect("created");
    let volume = claim(testbed, &handle, name, ext4());
    volume.up(csi).await;
    volume
}

impl Node {
    async fn start(more: &str) -> Node {
        let testbed = Testbed::new();
        let (daemon, shim) = both(&testbed, more).await;
        Node { testbed, daemon, _shim: shim }
    }

    async fn volume(&self, name: &str) -> Volume {
        volume(&self.testbed, &self._shim.csi, name).await
    }

    /// SIGKILL, and another daemon.
    async fn again(self, more: &str) -> Node {
        self.daemon.kill().await;
        let daemon = Daemon::start_with(&configure(&self.testbed, more)).await;
        Node { daemon, ..self }
    }

    async fn order(&self, uids: &[&str]) -> StaleCleaning {
        order(&self.testbed.path("run/agent"), "q-1", uids).await
    }

    async fn state(&self, uid: &str) -> (State, String) {
        let answer = self.order(&[uid]).await;
        let pod = answer.pods.into_iter().next().expect("one pod");
        (pod.state(), pod.detail)
    }

    async fn until(&self, uid: &str, wanted: State) -> String {
        eventually(&format!("{wanted:?}"), SOON, async || {
            let (state, detail) = self.state(uid).await;
            println!("{state:?} {detail}");
            (state == wanted).then_some(detail)
        })
        .await
    }
}

pub(crate) async fn order(agent: &Path, id: &str, uids: &[&str]) -> StaleCleaning {
    let agent = agent.to_owned();
    let channel = Endpoint::from_static("http://localhost")
        .connect_with_connector(tower::service_fn(move |_| {
            let agent = agent.clone();
            async move { UnixStream::connect(agent).await.map(TokioIo::new) }
        }))
        .await
        .expect("the agent's socket");
    let request = CleanStaleRequest {
        quarantine_id: id.to_owned(),
        pod_uids: uids.iter().map(ToString::to_string).collect(),
    };
    let answered = StorageClient::new(channel).clean_stale(request).await;
    answered.expect("CleanStale").into_inner()
}

fn uid(target: &Path) -> String {
    let parts: Vec<_> = target.iter().map(|part| part.to_string_lossy()).collect();
    let at = parts.iter().position(|part| part == "pods").expect("a pod's path");
    parts[at + 1].to_string()
}

/// The pod is deleted while the node is away: the kubelet's records are gone, the mounts are left.
fn forget(volume: &Volume) {
    for mounted in [&volume.staging, &volume.target] {
        let record = mounted.parent().expect("a folder").join("vol_data.json");
        std::fs::remove_file(record).expect("the record");
    }
}

#[tokio::test]
async fn what_is_left_of_a_listed_pod_is_unmounted_and_the_volume_keeps_its_data() {
    let node = Node::start(ALLOWED).await;
    let volume = node.volume("a").await;
    let uid = uid(&volume.target);
    std::fs::write(volume.target.join("file"), "data").expect("written");
    assert_eq!(node.state(&uid).await.0, State::InUse, "its record is there");
    forget(&volume);
    node.until(&uid, State::Cleaned).await;
    assert_eq!(mounts_below(node.testbed.kubelet.root()), [""; 0]);
    assert_eq!(loops_below(&node.testbed.path("pool")), [""; 0]);
    assert!(!volume.target.exists() && !volume.staging.exists());
    assert!(node.order(&[&uid]).await.left.is_empty());
    // Mounted again, the volume has its data.
    let again = claim(&node.testbed, &volume.handle, "again", ext4());
    again.up(&node._shim.csi).await;
    let text = std::fs::read_to_string(again.target.join("file")).expect("readable");
    assert_eq!(text, "data");
    again.down(&node._shim.csi).await;
}

#[tokio::test]
async fn without_permission_nothing_is_unmounted() {
    let node = Node::start("").await;
    let volume = node.volume("a").await;
    forget(&volume);
    let (state, path) = node.state(&uid(&volume.target)).await;
    assert_eq!((state, path), (State::OrdersOff, volume.target.display().to_string()));
    assert_eq!(mounts_below(node.testbed.kubelet.root()).len(), 2);
}

#[tokio::test]
async fn a_process_that_holds_the_mount_is_named_and_its_end_frees_it() {
    let node = Node::start(ALLOWED).await;
    let volume = node.volume("a").await;
    let uid = uid(&volume.target);
    let path = volume.target.join("file");
    let file = std::fs::File::create(&path).expect("a file");
    forget(&volume);
    let detail = node.until(&uid, State::Held).await;
    assert!(detail.contains(&format!("{} (", std::process::id())), "{detail}");
    assert!(detail.contains(&path.display().to_string()), "{detail}");
    assert_eq!(mounts_below(node.testbed.kubelet.root()).len(), 2);
    drop(file);
    node.until(&uid, State::Cleaned).await;
    assert_eq!(mounts_below(node.testbed.kubelet.root()), [""; 0]);
}

#[tokio::test]
async fn a_pod_that_is_not_listed_and_one_that_exists_again_keep_their_mounts() {
    let node = Node::start(ALLOWED).await;
    let (volume, other) = (node.volume("a").await, node.volume("bb").await);
    forget(&volume);
    let (uid, others) = (uid(&volume.target), uid(&other.target));
    let answer = node.order(&[&uid, &others, "no-such-pod"]).await;
    let of = |uid: &str| {
        let pod = answer.pods.iter().find(|pod| pod.pod_uid == uid);
        pod.expect("one").state()
    };
    assert_eq!((of(&others), of("no-such-pod")), (State::InUse, State::Absent));
    node.until(&uid, State::Cleaned).await;
    let left = mounts_below(node.testbed.kubelet.root());
    let expected = [&other.staging, &other.target].map(|path| path.display().to_string());
    assert_eq!(left, expected);
}

/// A process in a mount namespace of its own, as a container's: copies of the host's mounts, and what
/// the commands mount.
struct Container(std::process::Child);

impl Container {
    #[expect(clippy::disallowed_methods, reason = "it plays a container")]
    async fn start(testbed: &Testbed, commands: &str) -> Container {
        let ready = testbed.path("container-is-ready");
        let script = format!("{commands} && touch '{}' && exec sleep 1000", ready.display());
        let mut command = std::process::Command::new("/usr/bin/unshare");
        command.args(["--mount", "--propagation", "slave", "sh", "-ec", &script]);
        let child = command.current_dir("/").spawn().expect("unshare starts");
        let container = Container(child);
        eventually("its mounts are there", SOON, async || ready.exists().then_some(())).await;
        std::fs::remove_file(&ready).expect("the file");
        container
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Its mounts disappear with it. It may have ended.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[tokio::test]
async fn a_container_keeps_a_directory_that_it_mounts_and_no_other_of_the_filesystem() {
    let testbed = Testbed::new();
    let roots = testbed.path("static");
    let mut more = format!("{ALLOWED}[csi]\nstatic_roots = [\"{}\"]\n", roots.display());
    for name in ["mine", "other"] {
        let directory = roots.join(name);
        std::fs::create_dir_all(&directory).expect("a folder");
        more +=
            &format!("[[static]]\nname = \"{name}\"\ndirectory = \"{}\"\n", directory.display());
    }
    let (daemon, shim) = both(&testbed, &more).await;
    let volume = claim(&testbed, "mine", "mine", ext4());
    volume.up(&shim.csi).await;
    let node = Node { testbed, daemon, _shim: shim };
    let uid = uid(&volume.target);

    // As the daemon's own container: the whole host again, and other directories.
    let host = node.testbed.path("host");
    std::fs::create_dir(&host).expect("a folder");
    let (host, mine, other) = (host.display(), roots.join("mine"), roots.join("other"));
    let commands = format!(
        "mount --rbind --make-rslave / '{host}' && mount --bind '{}' /mnt",
        other.display()
    );
    let _beside = Container::start(&node.testbed, &commands).await;
    let commands = format!("mount --bind '{}' /mnt", mine.display());
    let holder = Container::start(&node.testbed, &commands).await;
    forget(&volume);
    let detail = node.until(&uid, State::Held).await;
    let named =
        format!("{} (sleep) has it mounted at /mnt in a namespace of its own", holder.pid());
    assert!(detail.contains(&named), "{detail}");
    drop(holder);
    node.until(&uid, State::Cleaned).await;
    assert_eq!(mounts_below(node.testbed.kubelet.root()), [""; 0]);
    assert!(node.order(&[&uid]).await.left.is_empty());
}

/// Another driver's volume, published to a pod that the kubelet no longer knows.
fn foreign(testbed: &Testbed, pod: &str) -> PathBuf {
    let disk = testbed.ext4("foreign", 16, &[]);
    let below = format!("pods/{pod}/volumes/kubernetes.io~csi/pv-f/mount");
    let target = testbed.kubelet.root().join(below);
    mount_device(&disk.device, "ext4", &target, "");
    target
}

#[tokio::test]
async fn another_drivers_mount_is_waited_for_and_its_unmount_by_others_is_seen() {
    let node = Node::start(ALLOWED).await;
    let target = foreign(&node.testbed, "pod-f");
    let detail = node.until("pod-f", State::Foreign).await;
    assert!(detail.contains(&target.display().to_string()), "{detail}");
    for _ in 0..3 {
        assert_eq!(node.state("pod-f").await.0, State::Foreign);
    }
    umount(&target);
    assert_eq!(node.state("pod-f").await.0, State::Absent);
}

#[tokio::test]
async fn a_mount_that_hangs_is_named_and_delays_neither_the_daemon_nor_other_pods() {
    let node = Node::start(ALLOWED).await;
    let volume = node.volume("a").await;
    let below = "pods/pod-h/volumes/kubernetes.io~csi/pv-h/mount";
    let target = node.testbed.kubelet.root().join(below);
    let backing = node.testbed.image("hung", 1 << 20);
    let server = FuseServer::mount(&target, &backing);
    // The kubelet's record makes it a volume, which is probed.
    let record = target.parent().expect("a folder").join("vol_data.json");
    let text = r#"{"driverName":"f.example","volumeHandle":"h","specVolID":"pv-h","volumeLifecycleMode":"Persistent"}"#;
    std::fs::write(&record, text).expect("the record");
    assert_eq!(node.state("pod-h").await.0, State::InUse);
    // The kubelet's own unmount hangs: its record stays.
    server.set(Mode::Hang);
    forget(&volume);
    let uid = uid(&volume.target);
    node.until(&uid, State::Cleaned).await;
    let detail = node.until("pod-h", State::Hung).await;
    assert!(detail.contains(&target.display().to_string()), "{detail}");
    assert!(node.daemon.client.node().await.settled);
    server.set(Mode::Pass);
}

#[tokio::test]
async fn a_daemon_that_is_killed_in_the_middle_of_an_order_finishes_it_after_its_start() {
    let mut node = Node::start(ALLOWED).await;
    for round in 0..3 {
        let volume = node.volume(&"abc"[round..=round]).await;
        let uid = uid(&volume.target);
        forget(&volume);
        node.order(&[&uid]).await;
        // In one of the rounds between two unmounts.
        crate::support::pause(std::time::Duration::from_millis(30 * round as u64)).await;
        node = node.again(ALLOWED).await;
        eventually("nothing is left", SOON, async || {
            let answer = node.order(&[&uid]).await;
            println!("{answer:?}");
            let clean = [State::Cleaned, State::Absent].contains(&answer.pods[0].state());
            (clean && answer.left.is_empty()).then_some(())
        })
        .await;
        assert_eq!(mounts_below(node.testbed.kubelet.root()), [""; 0]);
    }
}
