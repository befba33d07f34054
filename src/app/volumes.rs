//! The volumes that this node provides itself: from options and configuration to the engine's
//! settings.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::app::options::Options;
use crate::attach::engine::{Settings, StaticVolume};
use crate::attach::step::Wipe;
use crate::config::{Config, provision};
use crate::model::attach::Kind;
use crate::model::path::HostPath;

/// A little less than callers on the agent's socket are given (`Limits::agent_request`): the answer
/// then says what it waits in.
const PATIENCE: Duration = Duration::from_secs(85);
const LOOK_EVERY: Duration = Duration::from_secs(30);

pub fn settings(config: &Config, options: &Options) -> Settings {
    let folder = config
        .pool
        .directory
        .clone()
        .unwrap_or_else(|| absolute(&options.state_dir).join("pool"));
    let entry = |entry: &provision::StaticEntry| {
        let (kind, path) = match &entry.what {
            provision::What::Device(path) => (Kind::StaticDevice, path),
            provision::What::Directory(path) => (Kind::StaticDirectory, path),
        };
        StaticVolume {
            name: entry.name.clone(),
            kind,
            path: HostPath::from(path.as_path()),
        }
    };
    Settings {
        driver: config.csi.driver_name.clone(),
        folder: HostPath::from(folder.as_path()),
        folder_given: config.pool.directory.is_some(),
        group: config.pool.volume_group.clone(),
        kubelet_root: HostPath::from(options.kubelet_root.as_path()),
        roots: config
            .csi
            .static_roots
            .iter()
            .map(|root| HostPath::from(root.as_path()))
            .collect(),
        wipe: match config.pool.wipe {
            provision::Wipe::Zero => Wipe::Zero,
            provision::Wipe::Discard => Wipe::Discard,
            provision::Wipe::None => Wipe::None,
        },
        statics: config.statics.iter().map(entry).collect(),
        patience: PATIENCE,
        look_every: LOOK_EVERY,
    }
}

/// What a reload changes: static volumes, their roots and how is wiped. Where volumes lie and whose
/// they are stays until the next start.
pub fn reload(settings: &watch::Sender<Arc<Settings>>, config: &Config, options: &Options) {
    let before = settings.borrow().clone();
    let wanted = self::settings(config, options);
    if (&wanted.folder, &wanted.group, &wanted.driver)
        != (&before.folder, &before.group, &before.driver)
    {
        tracing::warn!(
            "pool.directory, pool.volume_group and csi.driver_name take effect at the next start only"
        );
    }
    let (folder, group, driver) = (
        before.folder.clone(),
        before.group.clone(),
        before.driver.clone(),
    );
    settings.send_replace(Arc::new(Settings {
        folder,
        folder_given: before.folder_given,
        group,
        driver,
        ..wanted
    }));
}

/// Workers have another working directory.
fn absolute(path: &Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn the_pool_lies_in_the_state_directory_unless_it_is_told_otherwise() {
        let options = Options::parse_from(["diskvitalsd", "--state-dir", "/var/lib/dv"]);
        let mut config = Config::default();
        assert_eq!(
            settings(&config, &options).folder,
            HostPath::from("/var/lib/dv/pool")
        );
        config.pool.directory = Some("/data/pool".into());
        assert_eq!(
            settings(&config, &options).folder,
            HostPath::from("/data/pool")
        );
    }

    #[test]
    fn a_reload_moves_no_pool_and_renames_no_driver() {
        let options = Options::parse_from(["diskvitalsd"]);
        let mut config = Config::default();
        let sender = watch::Sender::new(Arc::new(settings(&config, &options)));
        config.pool.directory = Some("/data/pool".into());
        config.pool.volume_group = Some("vg".into());
        config.pool.wipe = provision::Wipe::None;
        config.statics = vec![provision::StaticEntry {
            name: "a".into(),
            what: provision::What::Device("/dev/disk/by-id/a".into()),
        }];
        reload(&sender, &config, &options);
        let after = sender.borrow().clone();
        assert_eq!(
            (after.folder.to_string().as_str(), &after.group),
            ("/var/lib/diskvitals/pool", &None)
        );
        assert_eq!((after.wipe, after.statics.len()), (Wipe::None, 1));
    }
}
