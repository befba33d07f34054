//! The chart on the cluster, for one test: its disks, pool, smartctl and values. At the end, even
//! after a failure, the fixture checks for leftovers.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use crate::claims::{As, DRIVER, claim, is_registered, is_running, pod};
use crate::cluster::{self, SOON, TIME_LIMIT, apply, kubectl, try_kubectl, until};
use crate::fake_disks::{self, FakeDisks};
use crate::nodes::{OtherNode, hide_from_first_node, show_all_on_first_node};
use crate::programs::built_program;
use crate::smartctl::Smartctl;
use crate::support::tools::{mount_device, run};
use crate::support::{Disk, FuseServer, Testbed};

pub const NAMESPACE: &str = "diskvitals";

/// The chart's manifest with these values. `home`: the directory for helm's own files.
pub fn render_chart(values: &Path, home: &Path) -> String {
    let mut helm = cluster::command(cluster::tool("helm"));
    helm.args([
        "template",
        "diskvitals",
        "helm/diskvitals",
        "--namespace",
        NAMESPACE,
        "--kube-version",
        "1.37.1",
        "--values",
    ])
    .arg(values);
    for variable in ["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"] {
        helm.env(variable, home);
    }
    let output = cluster::output(helm, "");
    assert!(
        output.status.success(),
        "helm, {}: {}",
        values.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// The chart's namespace, if it does not exist yet.
pub fn create_namespace() {
    let namespace = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}, labels: {{pod-security.kubernetes.io/enforce: privileged}}}}\n"
    );
    try_kubectl(&["apply", "-f", "-"], &namespace).expect("the namespace");
}

pub const CLASS: &str = "lab";
/// Short intervals, and no drive admitted except those that a test names.
pub const CONFIG: &str = r#"
[log]
level = "info"
[volumes]
not_mounted_after = "5s"
[probes]
interval = "1s"
timeout = "2s"
[io]
interval = "1s"
stalled_after = "5s"
[counters]
interval = "1s"
[errors]
quiet_after = "5s"
bad_quiet_after = "5s"
[smart]
command = "/smart/smartctl"
interval = "5s"
suspect_interval = "5s"
idle_interval = "5s"
shortest_interval = "1s"
[space]
raise_percent = 1
raise_bytes = 1048576
clear_percent = 2
"#;

/// As shipped, except for the smartctl command and the admitted drives.
const SHIPPED: &str = "[smart]\ncommand = \"/smart/smartctl\"\n[drives]\n";

pub struct Fixture {
    testbed: Testbed,
    pub smartctl: Smartctl,
    served: Vec<FuseServer>,
    admitted: Vec<String>,
    statics: String,
    base: String,
    /// A pool on a disk of its own; claims of it become volumes.
    pooled: bool,
    manifest: Option<String>,
}

impl Fixture {
    pub fn new() -> Fixture {
        let testbed = Testbed::new();
        fake_disks::end();
        let smartctl = smartctl(&testbed.path("smart"));
        for folder in ["pool", "static"] {
            std::fs::create_dir(testbed.path(folder)).expect("a folder");
        }
        Fixture {
            testbed,
            smartctl,
            served: Vec::new(),
            admitted: Vec::new(),
            statics: String::new(),
            base: format!("{CONFIG}[drives]\nreconcile_interval = \"10s\"\n"),
            pooled: false,
            manifest: None,
        }
    }

    /// A pool on a disk of its own, and one pod with a volume of it, both called `a`.
    pub fn with_a_pod(mode: As) -> (Fixture, FakeDisks) {
        let mut fixture = Fixture::new();
        let drive = fixture.sata(1, 2048).remove(0);
        fixture.pool_on(&drive.disk);
        fixture.install(&json!({}));
        apply(&[claim("a", CLASS, "64Mi", mode), pod("a", &["a"], mode)]);
        until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
        (fixture, drive)
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.testbed.path(below)
    }

    fn formatted(&self, name: &str, mib: u64) -> PathBuf {
        let image = self.testbed.image(name, mib << 20);
        run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
        image
    }

    /// A disk with ext4, which counts as a drive, over a file that fails or hangs on request.
    pub fn failing_disk(&mut self, name: &str, mib: u64) -> (Disk, usize) {
        let image = self.formatted(name, mib);
        let served = FuseServer::mount(&self.testbed.path(format!("fuse-{name}")), &image);
        let disk = self.testbed.attach(&served.file());
        self.admitted.push(disk.name().to_owned());
        self.served.push(served);
        (disk, self.served.len() - 1)
    }

    /// A disk with ext4, which counts as a drive.
    pub fn plain_disk(&mut self, name: &str, mib: u64) -> Disk {
        let disk = self.testbed.attach(&self.formatted(name, mib));
        self.admitted.push(disk.name().to_owned());
        disk
    }

    pub fn served(&self, number: usize) -> &FuseServer {
        &self.served[number]
    }

    /// SATA disks that answer smartctl, healthy at first; once per test.
    pub fn sata(&self, count: usize, mib: u64) -> Vec<FakeDisks> {
        let disks = (0..count)
            .map(|at| self.testbed.attach(&self.formatted(&format!("sata-{at}"), mib)))
            .collect();
        let fakes = fake_disks::create(disks);
        fakes.iter().for_each(|disk| self.fails(disk, false));
        fakes
    }

    /// This many SATA disks, and a striped array on them with ext4; once per test.
    pub fn striped(&self, count: usize, mib: u64) -> (Disk, Vec<FakeDisks>) {
        let array = self.testbed.attach(&self.formatted("array", mib));
        let disks = (0..count)
            .map(|at| self.testbed.attach(&self.testbed.image(&format!("member-{at}"), 1 << 20)))
            .collect();
        let (array, fakes) = fake_disks::create_striped(array, disks);
        fakes.iter().for_each(|disk| self.fails(disk, false));
        (array, fakes)
    }

    /// The drive reports that it fails, or that it is healthy again.
    pub fn fails(&self, drive: &FakeDisks, fails: bool) {
        let mut ata = drive.ata.clone();
        ata.passed = !fails;
        self.smartctl.set_response(&drive.name, &ata.response()).expect("an answer");
    }

    /// Puts the pool on this disk.
    pub fn pool_on(&mut self, disk: &Disk) {
        self.pooled = true;
        mount_device(&disk.device, "ext4", &self.testbed.path("pool"), "");
    }

    /// Puts the pool of another node on this disk: the disk is not seen by this node, and not
    /// `others` by that one.
    pub fn pool_of(&mut self, node: &OtherNode, disk: &Disk, others: &[&str]) {
        self.pooled = true;
        let folders = ["pool", "static", "smart"].map(|name| self.testbed.path(name));
        node.create_folders(&folders[..2]);
        node.copy_folder(&folders[2]);
        node.mount_at_boot(&disk.device, &folders[0]);
        node.hide(others);
        hide_from_first_node(disk.name());
    }

    /// With the daemon's own intervals, for figures.
    pub fn as_shipped(&mut self) {
        self.base = SHIPPED.to_owned();
    }

    /// Lines of the daemon's configuration, `[[static]]` for instance.
    pub fn configure(&mut self, lines: &str) {
        self.statics.push_str(lines);
    }

    /// With the defaults of the lab; `more` is merged over them.
    pub fn values(&self, more: &Value) -> Value {
        let admit = serde_json::to_string(&self.admitted).expect("names");
        let mut values = json!({
            "kubeletRoot": cluster::kubelet_root(), "hostNetwork": true, "apiServer": {"host": "127.0.0.1", "port": "26443"}, "image": {"pullPolicy": "Never"},
            "networkPolicy": {"enabled": false}, "pool": {"directory": self.testbed.path("pool")}, "driver": {"staticRoots": [self.testbed.path("static")]},
            "provisioner": {"enabled": self.pooled, "image": "lab.local/csi-provisioner:v6.3.0"},
            "storageClasses": [{"name": CLASS, "kind": "loop", "fsType": "ext4"}],
            "daemon": {
                "stateDir": self.testbed.path("state"), "config": format!("{}admit = {admit}\n{}", self.base, self.statics),
                "extraVolumes": [{"name": "smart", "hostPath": {"path": self.testbed.path("smart"), "type": "Directory"}}],
                "extraVolumeMounts": [{"name": "smart", "mountPath": "/smart"}]
            }
        });
        lay_over(&mut values, more);
        values
    }

    /// `helm template | kubectl apply`, then waits until everything is Ready.
    pub fn install(&mut self, more: &Value) {
        let begun = Instant::now();
        self.apply(more);
        self.is_ready();
        println!("installed and ready after {:.1?}", begun.elapsed());
    }

    /// Applies the chart again with other values.
    pub fn apply(&mut self, more: &Value) {
        self.apply_only(&self.values(more));
    }

    /// With these values only, then waits until everything is Ready.
    pub fn install_only(&mut self, values: &Value) {
        self.apply_only(values);
        self.is_ready();
    }

    fn apply_only(&mut self, all: &Value) {
        let values = self.testbed.path("values.json");
        std::fs::write(&values, all.to_string()).expect("the values");
        let manifest = render_chart(&values, &self.testbed.path("helm"));
        create_namespace();
        try_kubectl(&[&self.kubeconfig(), "apply", "-f", "-"], &manifest)
            .unwrap_or_else(|error| panic!("{error}"));
        self.manifest = Some(manifest);
    }

    /// With the chart's namespace as the default: `-n` would refuse objects of others.
    fn kubeconfig(&self) -> String {
        let admin = std::fs::read_to_string(cluster::run().join("pki/admin.kubeconfig"))
            .expect("the administrator's");
        let context = "context: {cluster: lab, ";
        assert!(admin.contains(context), "{admin}");
        let file = self.testbed.path("chart.kubeconfig");
        let with_namespace = format!("{context}namespace: {NAMESPACE}, ");
        std::fs::write(&file, admin.replace(context, &with_namespace)).expect("a file");
        format!("--kubeconfig={}", file.display())
    }

    pub fn is_ready(&self) {
        for part in ["daemon", "shim", "report", "notify"] {
            let set = format!("daemonset/diskvitals-{part}");
            if cluster::get_in(NAMESPACE, &set).is_some() {
                kubectl(&[
                    "-n",
                    NAMESPACE,
                    "rollout",
                    "status",
                    &set,
                    &format!("--timeout={}s", TIME_LIMIT.as_secs()),
                ]);
            }
        }
        if cluster::get_in(NAMESPACE, "daemonset/diskvitals-shim").is_some() {
            until("the driver is registered", SOON, || is_registered(DRIVER).then_some(()));
        }
    }

    /// The command line of the daemon on its socket.
    pub fn ask(&self, arguments: &[&str]) -> Result<Value, String> {
        let mut cli = cluster::command(built_program("diskvitals"));
        cli.args(["--socket", "/run/diskvitals/diskvitals.sock"])
            .args(arguments)
            .args(["-o", "json"]);
        let output = cluster::output(cli, "");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&text)
            .map_err(|error| format!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Removes all pods and claims of the test, then the chart; nothing may be left of either.
    pub fn end(self) {
        self.end_with(|| ());
    }

    /// `host` ends what the test itself has started on the node, when no pod needs it any longer.
    pub fn end_with(mut self, host: impl FnOnce()) {
        self.clear().unwrap_or_else(|why| panic!("{why}"));
        host();
        until("the driver is no longer registered", SOON, || {
            (!is_registered(DRIVER)).then_some(())
        });
        let root = cluster::kubelet_root();
        let sockets = [
            root.join("plugins_registry"),
            root.join("plugins").join(DRIVER),
            "/run/diskvitals".into(),
        ];
        assert_eq!(
            sockets.iter().flat_map(|folder| sockets_below(folder)).collect::<Vec<_>>(),
            Vec::<PathBuf>::new(),
            "sockets are left"
        );
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
        let left: Vec<&str> = table
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|at| at.contains("kubernetes.io~csi/") || at.contains("kubernetes.io/csi/"))
            .collect();
        assert_eq!(left, Vec::<&str>::new(), "mounts are left");
    }

    fn clear(&mut self) -> Result<(), String> {
        for served in &self.served {
            served.fault(Vec::new());
            served.set(crate::support::Mode::Pass);
        }
        let time = format!("--timeout={}s", TIME_LIMIT.as_secs());
        let mut wrong = Vec::new();
        for kind in ["statefulset", "pod", "pvc", "pv"] {
            wrong.extend(try_kubectl(&["delete", kind, "--all", "--wait=true", &time], "").err());
        }
        wrong.extend(self.try_remove_chart().err());
        fake_disks::end();
        wrong.extend(show_all_on_first_node().err());
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }

    /// Uninstalls the chart, whatever uses its volumes.
    pub fn remove_chart(&mut self) {
        self.try_remove_chart().unwrap_or_else(|why| panic!("{why}"));
    }

    fn try_remove_chart(&mut self) -> Result<(), String> {
        let Some(manifest) = self.manifest.take() else {
            return Ok(());
        };
        let time = format!("--timeout={}s", TIME_LIMIT.as_secs());
        let deleted = try_kubectl(
            &[&self.kubeconfig(), "delete", "--ignore-not-found", "--wait=true", &time, "-f", "-"],
            &manifest,
        );
        let gone = || {
            try_kubectl(&["-n", NAMESPACE, "get", "pods", "-o", "name"], "")
                .is_ok_and(|pods| pods.trim().is_empty())
        };
        until("the chart's pods are gone", TIME_LIMIT, || gone().then_some(()));
        deleted.map(|_| ())
    }

    /// Diagnostics for a reader of the log.
    fn diagnostics(&self) {
        for arguments in [
            &["get", "pods,pvc,pv,csinodes", "-A", "-o", "wide"][..],
            &["get", "events", "-A", "--sort-by=.lastTimestamp"],
            &["describe", "pods", "-A"],
            // Not every scenario has these kinds.
            &["get", "stp,sta,nst", "-A", "-o", "yaml"],
            &["-n", NAMESPACE, "logs", "daemonset/diskvitals-daemon", "--tail=60"],
            &[
                "-n",
                NAMESPACE,
                "logs",
                "daemonset/diskvitals-shim",
                "--all-containers",
                "--tail=40",
            ],
        ] {
            let text = try_kubectl(arguments, "").unwrap_or_else(|error| error);
            let lines: Vec<&str> = text.lines().collect();
            eprintln!(
                "--- kubectl {}\n{}",
                arguments.join(" "),
                lines[lines.len().saturating_sub(120)..].join("\n")
            );
        }
        for (command, answer) in
            [("volumes", self.ask(&["volumes"])), ("findings", self.ask(&["findings"]))]
        {
            eprintln!(
                "--- diskvitals {command}\n{}",
                answer.map_or_else(|error| error, |answer| format!("{answer:#}"))
            );
        }
        eprintln!("--- the kubelet's log: {}", cluster::run().join("log/kubelet.log").display());
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.diagnostics();
            if let Err(why) = self.clear() {
                eprintln!("taking down: {why}");
            }
        }
    }
}

fn sockets_below(folder: &Path) -> Vec<PathBuf> {
    // A path that never existed has none.
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let below = entries.flat_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => sockets_below(&entry.path()),
        Ok(kind) if kind.is_socket() => vec![entry.path()],
        _ => Vec::new(),
    });
    below.collect()
}

/// The tests' own smartctl in a form that runs in the daemon's container: busybox is its shell and
/// provides all the commands it calls.
fn smartctl(dir: &Path) -> Smartctl {
    let smartctl = Smartctl::new(dir).expect("the program");
    let script = std::fs::read_to_string(smartctl.program()).expect("the program");
    let script = script.replacen("#!/bin/sh\n", "#!/usr/bin/busybox sh\nPATH=/smart/bin\n", 1);
    std::fs::write(smartctl.program(), script).expect("the program");
    std::fs::create_dir(dir.join("bin")).expect("a folder");
    for program in ["cat", "dd", "sleep", "wc", "yes"] {
        std::os::unix::fs::symlink("/usr/bin/busybox", dir.join("bin").join(program))
            .expect("a link");
    }
    smartctl
}

/// Objects are merged, everything else is replaced.
fn lay_over(below: &mut Value, above: &Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            above.iter().for_each(|(name, value)| {
                lay_over(below.entry(name.as_str()).or_insert(Value::Null), value)
            });
        }
        (below, above) => *below = above.clone(),
    }
}
