//! The daemon on the host, as its unit starts it, and only the shim on Kubernetes.

use serde_json::json;

use crate::claims::{As, DRIVER, given, is_running, pod, volume_health};
use crate::cluster::{self, HostProgram, SOON, TIME_LIMIT, apply, until};
use crate::fixture::Fixture;
use crate::programs::built_program;

/// The chart's `shim.runAsUser`.
const SHIM: u32 = 65_532;
/// The chart's `report.runAsUser`.
const READER: u32 = 65533;

fn daemon(fixture: &Fixture, config: &str) -> HostProgram {
    let file = fixture.path("host.toml");
    std::fs::write(&file, config).expect("the configuration");
    for folder in ["/run/diskvitals", "/run/diskvitals/csi"] {
        std::fs::create_dir_all(folder).expect("what the unit's RuntimeDirectory makes");
    }
    let mut daemon = cluster::command(built_program("diskvitalsd"));
    daemon
        .arg("--config")
        .arg(&file)
        .arg("--kubelet-root")
        .arg(cluster::kubelet_root())
        .arg("--state-dir")
        .arg(fixture.path("state"));
    daemon.args(["--log-format", "text"]).env_remove("NOTIFY_SOCKET");
    HostProgram::start("diskvitalsd", &mut daemon)
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_shim_pod_with_a_host_daemon_mounts_volumes_and_reports_their_health() {
    let mut fixture = Fixture::new();
    let drive = fixture.sata(1, 256).remove(0);
    let smartctl = fixture.path("smart/on-host");
    // The tests' smartctl unchanged, for a host that has a shell.
    let on_host = std::fs::read_to_string(fixture.smartctl.program())
        .expect("the program")
        .replacen("#!/usr/bin/busybox sh\nPATH=/smart/bin\n", "#!/bin/sh\n", 1);
    std::fs::write(&smartctl, on_host).expect("the program");
    std::fs::set_permissions(&smartctl, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("a program");
    let config = format!(
        "{}[csi]\nallow_uids = [{SHIM}]\nread_uids = [{READER}]\nread_gids = [{READER}]\n[[static]]\nname = \"disk-1\"\ndevice = \"{}\"\n",
        crate::fixture::CONFIG.replace("/smart/smartctl", &smartctl.display().to_string()),
        drive.disk.device.display()
    );
    let daemon = daemon(&fixture, &config);
    until("the daemon answers", SOON, || fixture.ask(&["status"]).ok());
    fixture.install_only(&json!({
        "kubeletRoot": cluster::kubelet_root(), "hostNetwork": true, "image": {"pullPolicy": "Never"}, "networkPolicy": {"enabled": false}, "daemon": {"enabled": false}
    }));
    let mut objects = given("a", DRIVER, "disk-1", As::Filesystem);
    objects.push(pod("a", &["a"], As::Filesystem));
    apply(&objects);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    fixture.fails(&drive, true);
    until("the volume health names its drive", SOON, || {
        volume_health("a", 0).filter(|conditions| !conditions.is_empty())
    });
    fixture.fails(&drive, false);
    until("the findings are cleared", SOON, || volume_health("a", 0).filter(Vec::is_empty));
    // Its sockets disappear with it: it is not part of the chart.
    fixture.end_with(|| drop(daemon));
}
