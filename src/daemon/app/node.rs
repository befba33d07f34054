//! The node's name, kernel and version: fixed while the daemon runs, returned by `GetNode`.

use crate::api::server::NodeFacts;
use diskvitals_host::clock;
use diskvitals_host::root::HostRoot;

/// The facts of a recorded tree come from the recording.
pub fn node_facts(root: &HostRoot, limitations: Vec<String>) -> NodeFacts {
    let read = |path: &str| {
        root.read(path)
            .ok()
            .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
            .filter(|text| !text.is_empty())
    };
    // The host's own name, also in a pod: /proc/sys contains the pod's, so the file comes first.
    let name = read("/etc/hostname")
        .or_else(|| sysinfo::System::host_name().ok())
        .unwrap_or_else(|| "localhost".into());
    let kernel = read("/proc/sys/kernel/osrelease")
        .or_else(|| sysinfo::System::kernel_version().ok())
        .unwrap_or_else(|| "unknown".into());
    let boot_id = read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let machine_id = read("/etc/machine-id").unwrap_or_default();
    NodeFacts {
        name,
        kernel,
        boot_id,
        machine_id,
        version: env!("CARGO_PKG_VERSION").into(),
        started: clock::now(),
        limitations,
    }
}
