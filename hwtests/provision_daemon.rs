//! Provisioned volumes in the daemon as shipped: calls over the agent's socket on real loop devices
//! and filesystems, with kills of the daemon in between.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use diskvitals_wire::volumes_client::VolumesClient;
use diskvitals_wire::*;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};

use crate::support::daemon::{Arguments, config};
use crate::support::{Daemon, SOON, Testbed, eventually};

const MIB: u64 = 1 << 20;

struct Node {
    testbed: Testbed,
    daemon: Daemon,
    volumes: VolumesClient<Channel>,
}

async fn connect(socket: &Path) -> VolumesClient<Channel> {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost").timeout(Duration::from_secs(90));
    VolumesClient::new(
        endpoint.connect_with_connector(connector).await.expect("the agent's socket"),
    )
}

impl Node {
    async fn start(testbed: Testbed) -> Node {
        let arguments = Arguments::of(&testbed);
        let daemon = Daemon::start_with(&arguments).await;
        let volumes = connect(&arguments.agent_socket).await;
        let mut node = Node { testbed, daemon, volumes };
        node.ready().await;
        node
    }

    /// The engine has completed its discovery.
    async fn ready(&mut self) {
        let volumes = self.volumes.clone();
        eventually("the volumes are known", SOON, async || {
            let list = volumes
                .clone()
                .list_provided(ListProvidedRequest::default())
                .await
                .ok()?
                .into_inner();
            list.volumes.iter().all(|volume| volume.busy.is_empty()).then_some(())
        })
        .await;
    }

    /// SIGKILL, then another daemon with the same directories.
    async fn again(self) -> Node {
        self.daemon.kill().await;
        Node::start(self.testbed).await
    }

    /// A path in the kubelet's layout, in its folder.
    fn at(&self, name: &str) -> String {
        let csi = "plugins/kubernetes.io/csi";
        let below = match name {
            "staged" => format!("{csi}/csi.diskvitals.io/{}/globalmount", "0af1".repeat(16)),
            "staged-dev" => format!("{csi}/volumeDevices/staging/pv"),
            "dev" => format!("{csi}/volumeDevices/publish/pv/pod"),
            pod => format!("pods/{pod}/volumes/kubernetes.io~csi/pv/mount"),
        };
        let at = self.testbed.kubelet.root().join(below);
        std::fs::create_dir_all(at.parent().expect("a folder")).expect("the kubelet's folder");
        at.to_str().expect("text").to_owned()
    }

    fn staging(&self, block: bool) -> String {
        self.at(if block { "staged-dev" } else { "staged" })
    }

    async fn create(
        &mut self,
        name: &str,
        size: u64,
        access: Access,
    ) -> Result<ProvidedVolume, Status> {
        let request = CreateRequest {
            name: name.into(),
            required_bytes: size,
            accesses: vec![access],
            ..Default::default()
        };
        self.volumes.create(request).await.map(tonic::Response::into_inner)
    }

    async fn stage(&mut self, handle: &str, access: Access) -> Result<(), Status> {
        let request = StageRequest {
            handle: handle.into(),
            staging_path: self.staging(access.block),
            access: Some(access),
        };
        self.volumes.stage(request).await.map(drop)
    }

    /// The refusal after the whole device was read, which takes several parts on a slow machine.
    async fn stage_refused(&mut self, handle: &str) -> Status {
        loop {
            let refused = self.stage(handle, writer()).await.expect_err("refused");
            if refused.code() != Code::Unavailable {
                return refused;
            }
            assert!(refused.message().contains(" % of "), "{refused:?}");
        }
    }

    async fn publish(&mut self, handle: &str, pod: &str, access: Access) -> Result<(), Status> {
        let request = PublishRequest {
            handle: handle.into(),
            staging_path: self.staging(access.block),
            target_path: self.at(pod),
            access: Some(access),
            pod_name: pod.into(),
            pod_namespace: "shop".into(),
            ..Default::default()
        };
        self.volumes.publish(request).await.map(drop)
    }

    async fn unpublish(&mut self, handle: &str, pod: &str) -> Result<(), Status> {
        let request = UnpublishRequest { handle: handle.into(), target_path: self.at(pod) };
        self.volumes.unpublish(request).await.map(drop)
    }

    async fn unstage(&mut self, handle: &str, block: bool) -> Result<(), Status> {
        let request = UnstageRequest { handle: handle.into(), staging_path: self.staging(block) };
        self.volumes.unstage(request).await.map(drop)
    }

    async fn delete(&mut self, handle: &str) -> Result<(), Status> {
        self.volumes.delete(DeleteRequest { handle: handle.into() }).await.map(drop)
    }

    fn files(&self) -> Vec<String> {
        let folders = ["volumes", "images", "intents", "attachments", "formats"]
            .map(|folder| self.testbed.path("state/pool").join(folder));
        let entries =
            folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
        entries.map(|entry| entry.path().display().to_string()).collect()
    }
}

fn writer() -> Access {
    Access { mode: AccessMode::SingleNodeWriter.into(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_lives_through_kills_of_the_daemon_and_leaves_nothing_behind() {
    let mut node = Node::start(Testbed::new()).await;
    let volume = node.create("pvc-1", 64 * MIB, writer()).await.expect("made");
    let handle = volume.handle;
    assert_eq!((volume.size_bytes, volume.name.as_str()), (64 * MIB, "pvc-1"));
    node = node.again().await;
    assert_eq!(node.create("pvc-1", 64 * MIB, writer()).await.expect("there").handle, handle);
    for _ in 0..2 {
        node.stage(&handle, writer()).await.expect("staged");
    }
    node = node.again().await;
    for _ in 0..2 {
        node.publish(&handle, "a", writer()).await.expect("published");
    }
    std::fs::write(format!("{}/file", node.at("a")), "kept").expect("the pod writes");
    node = node.again().await;
    let refused = node.publish(&handle, "b", writer()).await.expect_err("one writer");
    assert!(
        refused.code() == Code::FailedPrecondition && refused.message().contains("shop/a"),
        "{refused:?}"
    );
    assert_eq!(node.delete(&handle).await.expect_err("attached").code(), Code::FailedPrecondition);
    node.unpublish(&handle, "a").await.expect("unpublished");
    node.unstage(&handle, false).await.expect("unstaged");
    node.stage(&handle, writer()).await.expect("staged again");
    node.publish(&handle, "b", writer()).await.expect("published again");
    assert_eq!(
        std::fs::read_to_string(format!("{}/file", node.at("b"))).expect("the next pod reads"),
        "kept"
    );
    for _ in 0..2 {
        node.unpublish(&handle, "b").await.expect("unpublished");
    }
    for _ in 0..2 {
        node.unstage(&handle, false).await.expect("unstaged");
    }
    for _ in 0..2 {
        node.delete(&handle).await.expect("deleted");
    }
    assert!(!Path::new(&node.at("a")).exists() && !Path::new(&node.at("b")).exists());
    assert_eq!(node.files(), Vec::<String>::new());
    node.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_block_volume_is_grown_while_it_is_published() {
    let mut node = Node::start(Testbed::new()).await;
    let block = Access { block: true, ..writer() };
    let handle = node.create("b", MIB, block.clone()).await.expect("made").handle;
    node.stage(&handle, block.clone()).await.expect("staged");
    node.publish(&handle, "dev", block).await.expect("published");
    assert!(std::fs::metadata(node.at("dev")).expect("there").file_type().is_block_device());
    let request = ExpandRequest {
        handle: handle.clone(),
        required_bytes: 2 * MIB,
        volume_path: node.at("dev"),
        ..Default::default()
    };
    let grown = node.volumes.expand(request).await.expect("grown").into_inner();
    assert_eq!((grown.size_bytes, grown.node_expansion_required), (2 * MIB, false));
    node.unpublish(&handle, "dev").await.expect("unpublished");
    node.unstage(&handle, true).await.expect("unstaged");
    node.delete(&handle).await.expect("deleted");
    assert_eq!(node.files(), Vec::<String>::new());
    node.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_paths_mount_nothing_and_leave_nothing() {
    let mut node = Node::start(Testbed::new()).await;
    let handle = node.create("pvc", MIB, writer()).await.expect("made").handle;
    node.stage(&handle, writer()).await.expect("staged");
    let outside = node.testbed.path("outside");
    std::fs::create_dir(&outside).expect("a folder");
    std::fs::create_dir_all(outside.join("volumes/kubernetes.io~csi/pv")).expect("a folder");
    let root = node.testbed.kubelet.root();
    std::os::unix::fs::symlink(&outside, root.join("pods/link")).expect("a link");
    let at = |below: &str| root.join(below).to_str().expect("text").to_owned();
    for path in [
        node.at("link"),
        at("pods/link"),
        at("../outside/x"),
        at("pki"),
        "x".into(),
        "/tmp/x".into(),
    ] {
        let request = PublishRequest {
            handle: handle.clone(),
            staging_path: node.at("staged"),
            target_path: path.clone(),
            access: Some(writer()),
            ..Default::default()
        };
        let refused = node.volumes.publish(request).await.expect_err(&path);
        assert!(
            refused.code() == Code::InvalidArgument && refused.message().starts_with("target_path"),
            "{path}: {refused:?}"
        );
    }
    let left = std::fs::read_dir(outside.join("volumes/kubernetes.io~csi/pv"));
    assert_eq!(left.expect("the folder").count(), 0);
    node.unstage(&handle, false).await.expect("unstaged");
    node.delete(&handle).await.expect("deleted");
    assert_eq!(node.files(), Vec::<String>::new());
    node.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_byte_between_the_samples_prevents_formatting_until_root_permits_it_once() {
    let testbed = Testbed::new();
    let image = testbed.image("disk.img", 256 * MIB);
    let disk = testbed.attach(&image);
    let write = |bytes: &[u8]| {
        let file = std::fs::File::options().write(true).open(&disk.device);
        let file = file.expect("the device");
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 200 * MIB).expect("written");
        file.sync_all().expect("written");
    };
    write(b"x");
    let entry = format!(
        "{}[[static]]\nname = \"disk-1\"\ndevice = \"{}\"\n",
        config(),
        disk.device.display()
    );
    std::fs::write(testbed.path("diskvitals.toml"), entry).expect("the configuration");
    let before = std::fs::read(&image).expect("read");
    let mut node = Node::start(testbed).await;
    let refused = node.stage_refused("disk-1").await;
    assert!(
        refused.code() == Code::FailedPrecondition
            && refused.message().contains("at byte 209715200")
            && refused.message().contains("diskvitals format-authorize disk-1"),
        "{refused:?}"
    );
    assert!(std::fs::read(&image).expect("read") == before);
    let authorize = async |node: &Node, revoke| {
        let mut admin = node.daemon.client.admin();
        let request = AuthorizeFormatRequest { handle: "disk-1".into(), revoke };
        let answer = admin.authorize_format(request).await.expect("root may");
        let listed = admin
            .list_format_authorizations(ListFormatAuthorizationsRequest {})
            .await
            .expect("root may");
        assert_eq!(listed.into_inner().authorizations.len(), usize::from(!revoke));
        answer.into_inner()
    };
    authorize(&node, false).await;
    assert_eq!(authorize(&node, true).await.device, "");
    assert!(node.stage("disk-1", writer()).await.is_err(), "revoked");
    let permitted = authorize(&node, false).await;
    assert!(permitted.device.contains("268435456 bytes"), "{permitted:?}");
    node = node.again().await;
    node.stage("disk-1", writer()).await.expect("permitted");
    node.unstage("disk-1", false).await.expect("unstaged");
    // The permission is used up.
    crate::support::tools::run("/usr/sbin/wipefs", &[&"-q", &"-a", &disk.device]);
    write(b"x");
    let refused = node.stage_refused("disk-1").await;
    assert!(refused.message().contains("format-authorize"), "{refused:?}");
    node.daemon.stop().await;
}
