//! Another CSI driver (Kubernetes' own csi-mock) with its own registrar, behind the interposer.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::claims::{As, given, is_registered, is_running, pod, volume_health};
use crate::cluster::{self, HostProgram, SOON, TIME_LIMIT, apply, get, kubectl, metric, until};
use crate::fixture::Fixture;
use crate::support::tools::{bind, mount_device, umount};
use crate::withdrawal::{stays_empty, withdraw};

const MOCK: &str = "mock.csi.lab";

fn tool(name: &str, arguments: &[String]) -> HostProgram {
    HostProgram::start(name, cluster::command(cluster::tool(name)).args(arguments))
}

fn folder() -> PathBuf {
    cluster::kubelet_root().join("plugins").join(MOCK)
}

fn announce(socket: &Path) -> HostProgram {
    let registry = cluster::kubelet_root().join("plugins_registry");
    let conditions = [
        "-name",
        MOCK,
        "-endpoint",
        &socket.display().to_string(),
        "-folder",
        &registry.display().to_string(),
    ]
    .map(str::to_owned);
    tool("announce", &conditions)
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn an_interposer_adds_health_to_a_driver_without_it() {
    let mut fixture = Fixture::new();
    let drive = fixture.sata(1, 256).remove(0);
    std::fs::create_dir_all(folder()).expect("the driver's folder");
    let socket = folder().join("csi.sock");
    let mock = tool(
        "csi-mock",
        &[
            "-endpoint".into(),
            format!("unix://{}", socket.display()),
            "-name".into(),
            MOCK.into(),
            "-no-attach".into(),
            "-any-target".into(),
        ],
    );
    until("the driver serves", SOON, || socket.exists().then_some(()));
    fixture.install(&json!({"shim": {"enabled": false}, "provisioner": {"enabled": false}, "interposers": [{"driver": MOCK}]}));
    let before = folder().join("diskvitals/csi.sock");
    until("the interposer serves", TIME_LIMIT, || before.exists().then_some(()));
    let registrar = announce(&before);
    until("the driver is registered", SOON, || is_registered(MOCK).then_some(()));

    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": MOCK}, "spec": {"attachRequired": false, "podInfoOnMount": true}});
    let mut objects = given("a", MOCK, "1", As::Filesystem);
    objects.extend([driver, pod("a", &["a"], As::Filesystem)]);
    apply(&objects);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    until("the driver's own figures come through", SOON, || {
        metric("kubelet_volume_stats_capacity_bytes", &["persistentvolumeclaim=\"a\""])
    });

    // The mock driver mounts nothing: this does what a real one would have done.
    let uid = get("pod/a")
        .and_then(|pod| Some(pod["metadata"]["uid"].as_str()?.to_owned()))
        .expect("its uid");
    let published =
        cluster::kubelet_root().join("pods").join(uid).join("volumes/kubernetes.io~csi/a/mount");
    let of_driver = cluster::kubelet_root().join("plugins/kubernetes.io/csi").join(MOCK);
    let staged = std::fs::read_dir(of_driver)
        .expect("what is staged")
        .flatten()
        .next()
        .expect("a volume")
        .path()
        .join("globalmount");
    mount_device(&drive.disk.device, "ext4", &staged, "");
    bind(&staged, &published);
    until("nothing is wrong", SOON, || {
        volume_health("a", 0).is_none_or(|conditions| conditions.is_empty()).then_some(())
    });

    fixture.fails(&drive, true);
    until("the volume health of the pod shows the drive failure", SOON, || {
        volume_health("a", 0).filter(|conditions| {
            conditions.iter().any(|condition| condition.reason == "DriveFailing")
        })
    });
    fixture.fails(&drive, false);
    until("the findings are cleared", SOON, || volume_health("a", 0).filter(Vec::is_empty));

    // The interposer is removed while the drive fails.
    fixture.fails(&drive, true);
    until("the drive failure is shown again", SOON, || {
        volume_health("a", 0).filter(|conditions| !conditions.is_empty())
    });
    withdraw("daemonset/diskvitals-for-mock-csi-lab", "/own/csi.sock");
    assert_eq!(volume_health("a", 0), Some(Vec::new()));
    drop(registrar);
    until("the driver is unregistered", SOON, || (!is_registered(MOCK)).then_some(()));
    let registrar = announce(&socket);
    until("the driver is registered by itself", SOON, || is_registered(MOCK).then_some(()));
    stays_empty("a", MOCK, "NodeGetVolumeStats");
    fixture.fails(&drive, false);

    umount(&published);
    umount(&staged);
    kubectl(&["delete", "pod", "a", "--wait=true"]);
    drop(registrar);
    until("the driver is unregistered", SOON, || (!is_registered(MOCK)).then_some(()));
    kubectl(&["delete", "csidriver", MOCK]);
    fixture.end();
    drop(mock);
    std::fs::remove_dir_all(folder()).expect("the driver's folder");
}
