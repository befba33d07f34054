//! Walks the kubelet's directory: lists directories and reads records. A mount point is only
//! listed, never opened or stat'ed: it may hang.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;

use crate::kubelet::records::{RecordError, VolumeData, parse_pod_log_folder, parse_volume_data};
use diskvitals_finding::kubelet::{KubeletRecords, KubeletVolume, Publication};
use diskvitals_finding::path::HostPath;
use diskvitals_host::root::HostRoot;

const POD_LOGS: &str = "/var/log/pods";
/// The kubelet's own records have a few hundred bytes.
const MAX_RECORD: u64 = 64 * 1024;

#[derive(Debug, thiserror::Error)]
#[error("reading {path}")]
pub struct KubeletError {
    path: HostPath,
    #[source]
    source: io::Error,
}

/// None if there is no kubelet directory. An unreadable directory is an error: its content is
/// unknown, not absent.
pub fn scan(
    root: &HostRoot,
    kubelet_root: &HostPath,
) -> Result<Option<KubeletRecords>, KubeletError> {
    let resolved = resolve(root, kubelet_root)
        .map_err(|source| KubeletError { path: kubelet_root.clone(), source })?;
    let Some(kubelet_root) = resolved else {
        return Ok(None);
    };
    let kubelet_root = &kubelet_root;
    let mut scan = Scan { root, volumes: BTreeMap::new(), warnings: Vec::new() };
    let csi = kubelet_root.join("plugins/kubernetes.io/csi");
    for folder in scan.list(&csi)? {
        match folder.as_slice() {
            b"pv" => scan.scan_staged(&csi.join("pv"), true)?,
            b"volumeDevices" => scan.scan_block_volumes(&csi.join("volumeDevices"))?,
            driver => scan.scan_staged(&csi.join(driver), false)?,
        }
    }
    let pods = kubelet_root.join("pods");
    let mut pod_uids = Vec::new();
    for uid in scan.list(&pods)? {
        let uid_text = String::from_utf8_lossy(&uid).into_owned();
        scan.scan_published(&pods.join(&uid), &uid_text)?;
        pod_uids.push(uid_text);
    }
    let names = scan.list(&HostPath::from(POD_LOGS))?;
    let pods = names
        .iter()
        .filter_map(|name| parse_pod_log_folder(std::str::from_utf8(name).ok()?))
        .collect();
    Ok(Some(KubeletRecords {
        root: kubelet_root.clone(),
        volumes: scan.volumes.into_values().collect(),
        pods,
        pod_uids,
        warnings: scan.warnings,
    }))
}

/// The path without symbolic links, as the host resolves it: an absolute link starts at the host's
/// root. None if a component is missing.
fn resolve(root: &HostRoot, path: &HostPath) -> io::Result<Option<HostPath>> {
    let mut remaining: Vec<Vec<u8>> = parts(path).rev().collect();
    let mut resolved: Vec<Vec<u8>> = Vec::new();
    let mut links = 0;
    while let Some(part) = remaining.pop() {
        if part == b".." {
            resolved.pop();
            continue;
        }
        resolved.push(part);
        let here = joined(&resolved);
        let local = root.at_host_path(&here);
        match std::fs::symlink_metadata(&local) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(found) if found.is_symlink() => {
                links += 1;
                // The limit of the kernel (path_resolution(7)).
                if links > 40 {
                    return Err(io::Error::from_raw_os_error(nix::errno::Errno::ELOOP as i32));
                }
                let target = HostPath::from(std::fs::read_link(&local)?.as_path());
                resolved.pop();
                if target.as_bytes().starts_with(b"/") {
                    resolved.clear();
                }
                remaining.extend(parts(&target).rev());
            }
            Ok(_) => {}
        }
    }
    Ok(Some(joined(&resolved)))
}

fn parts(path: &HostPath) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    let parts =
        path.as_bytes().split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.map(<[u8]>::to_vec).collect::<Vec<_>>().into_iter()
}

fn joined(parts: &[Vec<u8>]) -> HostPath {
    let mut path = b"/".to_vec();
    path.extend_from_slice(&parts.join(&b'/'));
    HostPath::new(path)
}

struct Scan<'a> {
    root: &'a HostRoot,
    /// By driver and handle.
    volumes: BTreeMap<(String, String), KubeletVolume>,
    warnings: Vec<String>,
}

impl Scan<'_> {
    /// `DIRECTORY/NAME/{vol_data.json,globalmount}`: NAME is the PV's in the older layout, else a
    /// hash of the handle.
    fn scan_staged(&mut self, folder: &HostPath, name_is_pv: bool) -> Result<(), KubeletError> {
        for name in self.list(folder)? {
            let at = folder.join(&name);
            let Some((data, record)) = self.read_record(&at.join("vol_data.json")) else {
                continue;
            };
            let volume = self.volume(&data, record);
            volume.staging = Some(at.join("globalmount"));
            if name_is_pv && volume.pv.is_none() {
                volume.pv = Some(String::from_utf8_lossy(&name).into_owned());
            }
        }
        Ok(())
    }

    /// `pods/UID/volumes/kubernetes.io~csi/NAME/{vol_data.json,mount}`.
    fn scan_published(&mut self, pod: &HostPath, uid: &str) -> Result<(), KubeletError> {
        let folder = pod.join("volumes/kubernetes.io~csi");
        for name in self.list(&folder)? {
            let at = folder.join(&name);
            let Some((data, record)) = self.read_record(&at.join("vol_data.json")) else {
                continue;
            };
            let publication = Publication {
                pod_uid: uid.to_owned(),
                path: at.join("mount"),
                name: String::from_utf8_lossy(&name).into_owned(),
            };
            let volume = self.volume(&data, record);
            volume.publications.push(publication);
        }
        Ok(())
    }

    /// `volumeDevices/PV/data/vol_data.json`, `volumeDevices/staging/PV`,
    /// `volumeDevices/publish/PV/UID`.
    fn scan_block_volumes(&mut self, folder: &HostPath) -> Result<(), KubeletError> {
        for name in self.list(folder)? {
            if matches!(name.as_slice(), b"staging" | b"publish") {
                continue;
            }
            let Some((data, record)) =
                self.read_record(&folder.join(&name).join("data/vol_data.json"))
            else {
                continue;
            };
            let published = folder.join("publish").join(&name);
            let pods = self.list_matching(&published, |_| true)?;
            let pv = String::from_utf8_lossy(&name).into_owned();
            let volume = self.volume(&data, record);
            volume.block = true;
            volume.staging = Some(folder.join("staging").join(&name));
            for uid in pods {
                let path = published.join(&uid);
                volume.publications.push(Publication {
                    pod_uid: String::from_utf8_lossy(&uid).into_owned(),
                    path,
                    name: pv.clone(),
                });
            }
        }
        Ok(())
    }

    fn volume(&mut self, data: &VolumeData, record: HostPath) -> &mut KubeletVolume {
        let key = (data.driver_name.clone(), data.volume_handle.clone());
        let volume = self.volumes.entry(key).or_insert_with(|| KubeletVolume {
            driver: data.driver_name.clone(),
            handle: data.volume_handle.clone(),
            pv: None,
            block: false,
            ephemeral: false,
            staging: None,
            publications: Vec::new(),
            records: Vec::new(),
        });
        volume.ephemeral |= data.volume_lifecycle_mode == "Ephemeral";
        if volume.pv.is_none() && !volume.ephemeral && !data.spec_vol_id.is_empty() {
            volume.pv = Some(data.spec_vol_id.clone());
        }
        volume.records.push(record);
        volume
    }

    /// None: no such record, or one that cannot be parsed, which is a warning.
    fn read_record(&mut self, path: &HostPath) -> Option<(VolumeData, HostPath)> {
        let read = self.read(path).map_err(RecordError::Read);
        match read.and_then(|text| parse_volume_data(&text)) {
            Ok(data) => Some((data, path.clone())),
            // A directory that is being created or removed has no record.
            Err(RecordError::Read(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.warnings.push(format!("{path}: {error}"));
                None
            }
        }
    }

    fn read(&self, path: &HostPath) -> io::Result<Vec<u8>> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let local = self.root.at_host_path(path);
        // A regular file: opening a FIFO in its place would wait for ever.
        if !std::fs::symlink_metadata(&local)?.is_file() {
            return Err(invalid("not a regular file".to_owned()));
        }
        let mut text = Vec::new();
        File::open(local)?.take(MAX_RECORD + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_RECORD {
            return Err(invalid(format!("longer than the {MAX_RECORD} bytes a record may have")));
        }
        Ok(text)
    }

    /// Names of subdirectories, sorted; links are not followed. Empty without the directory.
    fn list(&self, path: &HostPath) -> Result<Vec<Vec<u8>>, KubeletError> {
        self.list_matching(path, |kind| kind.is_dir())
    }

    fn list_matching(
        &self,
        path: &HostPath,
        wanted: impl Fn(&std::fs::FileType) -> bool,
    ) -> Result<Vec<Vec<u8>>, KubeletError> {
        let wrong = |source| KubeletError { path: path.clone(), source };
        let entries = match std::fs::read_dir(self.root.at_host_path(path)) {
            Ok(entries) => entries,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(Vec::new());
            }
            Err(error) => return Err(wrong(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(wrong)?;
            // The type is in the directory itself (d_type): the entry is not accessed.
            if entry.file_type().is_ok_and(|kind| wanted(&kind)) {
                names.push(entry.file_name().as_bytes().to_vec());
            }
        }
        names.sort();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &tempfile::TempDir, path: &str, text: &str) {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().expect("has one")).expect("folder");
        std::fs::write(path, text).expect("written");
    }

    fn scanned(dir: &tempfile::TempDir) -> KubeletRecords {
        scan(&HostRoot::new(dir.path()), &HostPath::from("/var/lib/kubelet"))
            .expect("readable")
            .expect("there")
    }

    const RECORD: &str = r#"{"driverName":"a.csi","volumeHandle":"h1","specVolID":"pv1","volumeLifecycleMode":"Persistent"}"#;

    #[test]
    fn staged_and_published_records_are_one_volume() {
        let dir = tempfile::tempdir().expect("dir");
        write(
            &dir,
            "var/lib/kubelet/plugins/kubernetes.io/csi/a.csi/abcd/vol_data.json",
            r#"{"driverName":"a.csi","volumeHandle":"h1"}"#,
        );
        write(&dir, "var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv1/vol_data.json", RECORD);
        write(&dir, "var/log/pods/db_mysql-0_u1/x", "");
        let records = scanned(&dir);
        assert_eq!(records.volumes.len(), 1);
        let volume = &records.volumes[0];
        assert_eq!(
            (volume.pv.as_deref(), volume.publications.len(), volume.block),
            (Some("pv1"), 1, false)
        );
        assert_eq!(
            volume.staging.as_ref().expect("staged").to_string(),
            "/var/lib/kubelet/plugins/kubernetes.io/csi/a.csi/abcd/globalmount"
        );
        assert_eq!(records.pods["u1"].name, "mysql-0");
    }

    #[test]
    fn a_raw_block_volume_has_its_publications() {
        let dir = tempfile::tempdir().expect("dir");
        write(
            &dir,
            "var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pv1/data/vol_data.json",
            RECORD,
        );
        write(&dir, "var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv1/u1", "");
        let volume = &scanned(&dir).volumes[0];
        assert!(volume.block);
        assert_eq!(
            volume.publications[0].path.to_string(),
            "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv1/u1"
        );
    }

    #[test]
    fn damaged_records_are_named_and_the_others_are_there() {
        let dir = tempfile::tempdir().expect("dir");
        write(&dir, "var/lib/kubelet/plugins/kubernetes.io/csi/a.csi/1/vol_data.json", RECORD);
        write(
            &dir,
            "var/lib/kubelet/plugins/kubernetes.io/csi/a.csi/2/vol_data.json",
            "{\"driverName\":",
        );
        write(
            &dir,
            "var/lib/kubelet/plugins/kubernetes.io/csi/a.csi/3/vol_data.json",
            &"x".repeat(70_000),
        );
        std::fs::create_dir_all(
            dir.path().join("var/lib/kubelet/plugins/kubernetes.io/csi/a.csi/4/vol_data.json"),
        )
        .expect("a folder");
        let records = scanned(&dir);
        assert_eq!(
            (records.volumes.len(), records.warnings.len()),
            (1, 3),
            "{:?}",
            records.warnings
        );
        assert!(records.warnings[0].contains("a.csi/2/vol_data.json"));
    }

    #[test]
    fn a_kubelet_folder_behind_links_is_named_as_the_mount_table_names_it() {
        let dir = tempfile::tempdir().expect("dir");
        write(&dir, "data/disk1/kubelet/plugins/kubernetes.io/csi/a.csi/1/vol_data.json", RECORD);
        std::fs::create_dir_all(dir.path().join("var/lib")).expect("folders");
        std::os::unix::fs::symlink("/data/kube", dir.path().join("var/lib/kubelet")).expect("link");
        std::os::unix::fs::symlink("../data/./disk1/kubelet", dir.path().join("data/kube"))
            .expect("link");
        let records = scanned(&dir);
        assert_eq!(records.root, HostPath::from("/data/disk1/kubelet"));
        let staging = records.volumes[0].staging.as_ref().expect("staged").to_string();
        assert_eq!(staging, "/data/disk1/kubelet/plugins/kubernetes.io/csi/a.csi/1/globalmount");
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).expect("link");
        assert!(scan(&HostRoot::new(dir.path()), &HostPath::from("/loop")).is_err());
    }

    #[test]
    fn no_kubelet_is_none_and_not_empty() {
        let dir = tempfile::tempdir().expect("dir");
        assert_eq!(
            scan(&HostRoot::new(dir.path()), &HostPath::from("/var/lib/kubelet"))
                .expect("readable"),
            None
        );
    }
}
