//! Converts options and configuration to the settings of the engine that provides this node's own
//! volumes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::app::options::Options;
use diskvitals_config::{Config, provision};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::BackingKind;
use diskvitals_provision::engine::{Settings, StaticVolume};

/// Slightly shorter than `Limits::agent_request_timeout` on the agent's socket, so that the answer
/// names the step that it waits for.
const STEP_TIMEOUT: Duration = Duration::from_secs(85);
const RESCAN_INTERVAL: Duration = Duration::from_secs(30);

pub fn settings(config: &Config, options: &Options) -> Settings {
    let folder = config.pool.directory.clone().unwrap_or_else(|| options.state_dir.join("pool"));
    let entry = |entry: &provision::StaticEntry| {
        let (kind, path) = match &entry.source {
            provision::StaticSource::Device(path) => (BackingKind::StaticDevice, path),
            provision::StaticSource::Directory(path) => (BackingKind::StaticDirectory, path),
        };
        StaticVolume {
            name: entry.name.clone(),
            kind,
            path: HostPath::from(path.as_path()),
            expected: entry.expected,
        }
    };
    let roots = config.csi.static_roots.iter();
    Settings {
        driver: config.csi.driver_name.clone(),
        directory: HostPath::from(folder.as_path()),
        directory_configured: config.pool.directory.is_some(),
        volume_group: config.pool.volume_group.clone(),
        kubelet_root: HostPath::from(options.kubelet_root.as_path()),
        static_roots: roots.map(|root| HostPath::from(root.as_path())).collect(),
        wipe: config.pool.wipe,
        static_volumes: config.statics.iter().map(entry).collect(),
        request_timeout: STEP_TIMEOUT,
        rescan_interval: RESCAN_INTERVAL,
    }
}

/// Applies the settings that a reload can change: static volumes, their roots, and the treatment of
/// deleted bytes. The pool and the driver's name stay until the next start, as `ReloadChannels` warns.
pub fn reload(settings: &watch::Sender<Arc<Settings>>, config: &Config, options: &Options) {
    let before = settings.borrow().clone();
    let wanted = self::settings(config, options);
    let (folder, group, driver) =
        (before.directory.clone(), before.volume_group.clone(), before.driver.clone());
    settings.send_replace(Arc::new(Settings {
        directory: folder,
        directory_configured: before.directory_configured,
        volume_group: group,
        driver,
        ..wanted
    }));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use diskvitals_finding::provision::Wipe;

    #[test]
    fn the_pool_defaults_to_the_state_directory() {
        let options = Options::parse_from(["diskvitalsd", "--state-dir", "/var/lib/dv"]);
        let mut config = Config::default();
        assert_eq!(settings(&config, &options).directory, HostPath::from("/var/lib/dv/pool"));
        config.pool.directory = Some("/data/pool".into());
        assert_eq!(settings(&config, &options).directory, HostPath::from("/data/pool"));
    }

    #[test]
    fn a_reload_changes_neither_pool_nor_driver_name() {
        let options = Options::parse_from(["diskvitalsd"]);
        let mut config = Config::default();
        let sender = watch::Sender::new(Arc::new(settings(&config, &options)));
        config.pool.directory = Some("/data/pool".into());
        config.pool.volume_group = Some("vg".into());
        config.pool.wipe = Wipe::None;
        config.statics = vec![provision::StaticEntry {
            name: "a".into(),
            expected: false,
            source: provision::StaticSource::Device("/dev/disk/by-id/a".into()),
        }];
        reload(&sender, &config, &options);
        let after = sender.borrow().clone();
        assert_eq!(
            (after.directory.to_string().as_str(), &after.volume_group),
            ("/var/lib/diskvitals/pool", &None)
        );
        assert_eq!((after.wipe, after.static_volumes.len()), (Wipe::None, 1));
    }
}
