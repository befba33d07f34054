//! Other nodes of the lab: real kubelets in namespaces of their own, which a scenario starts, stops,
//! kills and partitions (hwtests/kubernetes/README.md).

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::cluster::{SOON, TIME_LIMIT};
use crate::cluster::{get, lab, run, try_lab, until};
use crate::support::tools;

/// Where pods of all nodes find the API server.
pub const API_ADDRESS: &str = "192.0.2.1";

/// Removed when dropped, after the fixture that uses it.
pub struct OtherNode {
    number: String,
}

impl OtherNode {
    /// The node with this number, from 2, which does not run yet.
    pub fn new(number: u8) -> OtherNode {
        let node = OtherNode { number: number.to_string() };
        // What a scenario left behind that was killed.
        node.lab("remove", &[]);
        std::fs::create_dir_all(node.folder().join("tmp")).expect("its folder");
        node
    }

    pub fn name(&self) -> String {
        format!("node-{}", self.number)
    }

    fn lab(&self, what: &str, more: &[&str]) -> String {
        lab(&[&["node", what, &self.number], more].concat())
    }

    /// It boots; returns when its kubelet is Ready.
    pub fn start(&self) {
        self.lab("start", &[]);
    }

    pub fn shut_down(&self) {
        self.lab("stop", &[]);
    }

    pub fn power_off(&self) {
        self.lab("kill", &[]);
    }

    pub fn cut_network(&self) {
        self.lab("cut", &[]);
    }

    pub fn join_network(&self) {
        self.lab("join", &[]);
    }

    /// The output of a command on that machine.
    pub fn enter(&self, command: &[&str]) -> String {
        self.lab("enter", command)
    }

    /// Mounts there what is mounted here.
    pub fn lend_mount(&self, here: &Path, there: &Path) {
        let (here, there) = (here.to_string_lossy(), there.to_string_lossy());
        self.lab("lend", &[&here, &there]);
    }

    /// Its sysfs does not list these block devices.
    pub fn hide(&self, devices: &[&str]) {
        self.lab("hide", devices);
    }

    /// Its sysfs lists them again.
    pub fn show(&self, devices: &[&str]) {
        self.lab("show", devices);
    }

    fn folder(&self) -> PathBuf {
        run().join(self.name())
    }

    /// Where this process finds what is in that node's /tmp.
    fn path(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix("/").expect("an absolute path");
        assert!(below.starts_with("tmp"), "{}", path.display());
        self.folder().join(below)
    }

    pub fn create_folders(&self, paths: &[PathBuf]) {
        for path in paths {
            std::fs::create_dir_all(self.path(path)).expect("its folder");
        }
    }

    /// With the content that it has on the first node.
    pub fn copy_folder(&self, folder: &Path) {
        let to = self.path(folder);
        let parent = to.parent().expect("a folder above");
        std::fs::create_dir_all(parent).expect("its folder");
        tools::run("/usr/bin/cp", &[&"-a", &folder, &parent]);
    }

    pub fn mount_at_boot(&self, device: &Path, at: &Path) {
        let mut fstab = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder().join("fstab"))
            .expect("its fstab");
        writeln!(fstab, "{} {} ext4 defaults 0 0", device.display(), at.display())
            .expect("its fstab");
    }

    /// The node's condition `Ready`: `True`, `False` or `Unknown`.
    fn ready(&self) -> Option<String> {
        let node = get(&format!("node/{}", self.name()))?;
        let conditions = node["status"]["conditions"].as_array()?.iter();
        let ready = conditions
            .filter(|condition| condition["type"] == "Ready")
            .find_map(|condition| condition["status"].as_str());
        ready.map(str::to_owned)
    }

    pub fn until_ready(&self) {
        until("the node is Ready", SOON, || (self.ready()? == "True").then_some(()));
    }

    /// 50 seconds after its last sign of life (--node-monitor-grace-period).
    pub fn until_not_ready(&self) {
        until("the node is not Ready", TIME_LIMIT, || (self.ready()? != "True").then_some(()));
    }

    /// Mounts of volumes that are left on it.
    pub fn volume_mounts(&self) -> Vec<String> {
        let table = self.enter(&["cat", "/proc/self/mountinfo"]);
        table
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|at| at.contains("kubernetes.io~csi/") || at.contains("kubernetes.io/csi/"))
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for OtherNode {
    fn drop(&mut self) {
        if let Err(why) = try_lab(&["node", "remove", &self.number]) {
            eprintln!("removing {}: {why}", self.name());
        }
    }
}

/// The first node's sysfs does not list this block device until the fixture's end.
pub fn hide_from_first_node(device: &str) {
    lab(&["node", "hide", "1", device]);
}

/// Another scenario may get a loop device of the same name.
pub(crate) fn show_all_on_first_node() -> Result<(), String> {
    try_lab(&["node", "show", "1"]).map(drop)
}
