//! The state of a bcache (`state`, drivers/md/bcache/sysfs.c: `no cache`, `clean`, `dirty`,
//! `inconsistent`). Reading takes the lock that a registration holds during its I/O.

use crate::layers::LayerError;
use diskvitals_host::root::HostRoot;
use diskvitals_model::stack::BlockCache;

pub fn read(root: &HostRoot, device: &str) -> Result<BlockCache, LayerError> {
    let text = |path: String| match root.read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
        Err(source) => Err(LayerError::Read { path, source }),
    };
    let path = format!("/sys/block/{device}/bcache/state");
    let state = text(path.clone())?;
    if !matches!(state.as_str(), "no cache" | "clean" | "dirty" | "inconsistent") {
        return Err(LayerError::Malformed { path, text: state });
    }
    let dir = format!("/sys/block/{device}/slaves");
    let failed = |source| LayerError::Read { path: dir.clone(), source };
    let mut devices = Vec::new();
    for entry in std::fs::read_dir(root.at(&dir)).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let member = format!("/sys/class/block/{name}");
        // A backing device has no such file.
        if root.at(format!("{member}/bcache/cache_replacement_policy")).exists() {
            let path = format!("{member}/dev");
            let dev = text(path.clone())?;
            devices.push(dev.parse().map_err(|_| LayerError::Malformed { path, text: dev })?);
        }
    }
    devices.sort_unstable();
    Ok(BlockCache {
        kind: "bcache".to_owned(),
        devices,
        is_dirty: state == "dirty",
        fault: (state == "inconsistent").then(|| state.clone()),
        status_line: state,
    })
}
