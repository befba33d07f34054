//! Decides when to read the configuration again: on SIGHUP, and when a file changes. A swap of
//! the symbolic links above it (the update of a ConfigMap) counts as a change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Editors and the kubelet change a file in several steps; it is read after the last one.
const DEBOUNCE: Duration = Duration::from_millis(300);

pub(crate) type ReadFile = fn(&Path) -> std::io::Result<Vec<u8>>;

/// Reports changes of files. Dropping it ends the watch.
pub struct FileWatch {
    paths: Vec<PathBuf>,
    /// Reads the content of one, within bounds.
    read: ReadFile,
    last: Vec<Option<Vec<u8>>>,
    events: mpsc::Receiver<()>,
    /// An event has come, and the file is read at this time. It outlives a cancelled `changed`.
    read_at: Option<Instant>,
    // Owns the inotify descriptor; events end when it is dropped.
    _watcher: Option<RecommendedWatcher>,
}

impl FileWatch {
    /// Watches the folders of `paths`, because a file itself may be replaced, or not exist yet. If
    /// that fails (no inotify watch left, no folder), only SIGHUP reloads.
    pub fn start(paths: &[&Path], read: ReadFile) -> FileWatch {
        let (changed, events) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let only_read = event.is_ok_and(|event| event.kind.is_access());
            if !only_read {
                // One queued event is enough.
                let _ = changed.try_send(());
            }
        });
        let folder = |path: &Path| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            folder.unwrap_or(Path::new(".")).to_owned()
        };
        let folders: BTreeSet<PathBuf> = paths.iter().map(|path| folder(path)).collect();
        let watcher = watcher.map(|mut watcher| {
            for folder in &folders {
                if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                    unwatched(folder, &error);
                }
            }
            watcher
        });
        if let Err(error) = &watcher {
            folders.iter().for_each(|folder| unwatched(folder, error));
        }
        FileWatch {
            paths: paths.iter().map(|path| path.to_path_buf()).collect(),
            read,
            last: paths.iter().map(|path| read(path).ok()).collect(),
            events,
            read_at: None,
            _watcher: watcher.ok(),
        }
    }

    /// Returns when the content of a file has changed. Cancel-safe.
    pub async fn changed(&mut self) {
        loop {
            let read_at = match self.read_at {
                Some(time) => time,
                None => {
                    if self.events.recv().await.is_none() {
                        std::future::pending::<()>().await;
                    }
                    *self.read_at.insert(Instant::now() + DEBOUNCE)
                }
            };
            tokio::time::sleep_until(read_at).await;
            let (paths, read) = (self.paths.clone(), self.read);
            let read = move || paths.iter().map(|path| read(path).ok()).collect();
            let now: Vec<_> = tokio::task::spawn_blocking(read).await.unwrap_or_default();
            self.read_at = None;
            if now != self.last {
                self.last = now;
                return;
            }
        }
    }
}

fn unwatched(folder: &Path, error: &notify::Error) {
    tracing::info!(folder = %folder.display(), %error, "the configuration is not watched for changes; SIGHUP reads it again");
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    async fn assert_notices(watch: &mut FileWatch) {
        tokio::time::timeout(Duration::from_secs(20), watch.changed()).await.expect("noticed");
    }

    #[tokio::test]
    async fn a_rewritten_and_a_replaced_file_are_noticed() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("diskvitals.toml");
        std::fs::write(&path, "a").expect("write");
        let mut watch = FileWatch::start(&[&path], |path| std::fs::read(path));
        std::fs::write(&path, "b").expect("write");
        assert_notices(&mut watch).await;
        std::fs::write(dir.path().join("new"), "c").expect("write");
        std::fs::rename(dir.path().join("new"), &path).expect("rename");
        assert_notices(&mut watch).await;
    }

    #[tokio::test]
    async fn a_change_is_not_lost_when_the_wait_for_it_is_cancelled() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("diskvitals.toml");
        std::fs::write(&path, "a").expect("write");
        let mut watch = FileWatch::start(&[&path], |path| std::fs::read(path));
        std::fs::write(&path, "b").expect("write");
        // Another branch of a select! completes while the file may still be changing.
        while watch.read_at.is_none() {
            assert!(
                tokio::time::timeout(DEBOUNCE / 10, watch.changed()).await.is_err(),
                "not within the time for further changes"
            );
        }
        assert_notices(&mut watch).await;
    }

    #[tokio::test]
    async fn the_swap_of_a_config_maps_links_is_noticed() {
        let dir = tempfile::tempdir().expect("dir");
        for (version, text) in [("v1", "a"), ("v2", "b")] {
            std::fs::create_dir(dir.path().join(version)).expect("dir");
            std::fs::write(dir.path().join(version).join("diskvitals.toml"), text).expect("write");
        }
        symlink("v1", dir.path().join("..data")).expect("link");
        symlink("..data/diskvitals.toml", dir.path().join("diskvitals.toml")).expect("link");
        let mut watch =
            FileWatch::start(&[&dir.path().join("diskvitals.toml")], |path| std::fs::read(path));
        symlink("v2", dir.path().join("..data_tmp")).expect("link");
        std::fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).expect("rename");
        assert_notices(&mut watch).await;
    }

    #[tokio::test]
    async fn a_file_that_appears_beside_another_one_and_goes_again_is_noticed() {
        let dir = tempfile::tempdir().expect("dir");
        let (path, other) = (dir.path().join("diskvitals.toml"), dir.path().join("node.toml"));
        std::fs::write(&path, "a").expect("write");
        let mut watch = FileWatch::start(&[&path, &other], |path| std::fs::read(path));
        std::fs::write(&other, "b").expect("write");
        assert_notices(&mut watch).await;
        std::fs::remove_file(&other).expect("removed");
        assert_notices(&mut watch).await;
    }
}
