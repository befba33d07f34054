//! Settings of the volumes that this node provides itself: `[pool]`, `[[static]]` and `[csi]`. Each
//! value is checked when it is read, so that an error shows its file, line and key; contradictions
//! between several values are checked afterwards.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::InvalidValue;
use diskvitals_finding::provision::Wipe;
use diskvitals_text::naming;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CsiConfig {
    /// Uids that may call on the agent socket, besides uid 0.
    pub allow_uids: Vec<u32>,
    /// Uids that may only read there.
    pub read_uids: Vec<u32>,
    /// Groups that may only read there, whatever the uid.
    pub read_gids: Vec<u32>,
    /// The name of the CSI driver of this node's own volumes.
    #[serde(deserialize_with = "driver_name")]
    pub driver_name: String,
    /// Folders that may contain static volumes.
    #[serde(deserialize_with = "clean_paths")]
    pub static_roots: Vec<PathBuf>,
}

impl Default for CsiConfig {
    fn default() -> Self {
        CsiConfig {
            allow_uids: Vec::new(),
            read_uids: Vec::new(),
            read_gids: Vec::new(),
            driver_name: "csi.diskvitals.io".into(),
            static_roots: vec!["/mnt".into(), "/srv".into()],
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    /// The pool's folder, as the host names it. None: `pool` in the state directory.
    #[serde(deserialize_with = "some_clean_path")]
    pub directory: Option<PathBuf>,
    #[serde(deserialize_with = "volume_group")]
    pub volume_group: Option<String>,
    pub wipe: Wipe,
}

/// A volume that already exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawEntry")]
pub struct StaticEntry {
    /// The PV's handle.
    pub name: String,
    #[serde(flatten)]
    pub source: StaticSource,
    /// It is missed on this node although its device was never seen here.
    #[serde(skip_serializing_if = "is_false")]
    pub expected: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature.
fn is_false(value: &bool) -> bool {
    !value
}

/// The names of the entries that are directories.
pub(crate) fn directories(entries: &[StaticEntry]) -> Vec<String> {
    let is_directory = |entry: &&StaticEntry| matches!(entry.source, StaticSource::Directory(_));
    entries.iter().filter(is_directory).map(|entry| entry.name.clone()).collect()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StaticSource {
    Device(PathBuf),
    Directory(PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    name: String,
    device: Option<PathBuf>,
    directory: Option<PathBuf>,
    #[serde(default)]
    expected: bool,
}

impl TryFrom<RawEntry> for StaticEntry {
    type Error = String;

    fn try_from(raw: RawEntry) -> Result<StaticEntry, String> {
        let RawEntry { name, device, directory, expected } = raw;
        naming::validate_static_volume(&name).map_err(|why| format!("name: `{name}` {why}"))?;
        let what = match (device, directory) {
            (Some(device), None) => {
                check_clean("device", &device)?;
                if !device.starts_with("/dev") || device == Path::new("/dev") {
                    return Err(format!("device: `{}` is not below /dev", device.display()));
                }
                StaticSource::Device(device)
            }
            (None, Some(directory)) => {
                check_clean("directory", &directory)?;
                StaticSource::Directory(directory)
            }
            _ => return Err(format!("`{name}` needs either a device or a directory")),
        };
        Ok(StaticEntry { name, source: what, expected })
    }
}

fn check_clean(key: &str, path: &Path) -> Result<(), String> {
    if !path.is_absolute() {
        let path = path.display();
        return Err(format!("{key}: `{path}` is not an absolute path"));
    }
    // The path joined from its components differs if it has `//`, `/./` or a closing `/`.
    let clean: PathBuf = path.components().collect();
    if path.components().any(|part| part == Component::ParentDir)
        || clean.as_os_str() != path.as_os_str()
        || path == Path::new("/")
    {
        return Err(format!(
            "{key}: `{}` is not a clean path: no `.`, `..`, `//` or closing `/`, and not the root",
            path.display()
        ));
    }
    Ok(())
}

fn clean_paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    let paths: Vec<PathBuf> = Vec::deserialize(deserializer)?;
    paths
        .iter()
        .try_for_each(|path| check_clean("static_roots", path))
        .map_err(D::Error::custom)?;
    Ok(paths)
}

fn some_clean_path<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    check_clean("directory", &path).map_err(D::Error::custom)?;
    Ok(Some(path))
}

fn driver_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    naming::validate_driver(&name)
        .map_err(|why| D::Error::custom(format!("driver_name: `{name}`: {why}")))?;
    Ok(name)
}

/// Names by the rules of lvm(8), "VALID NAMES".
fn volume_group<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(deserializer)?;
    let plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'_' | b'.' | b'-'));
    if !(1..=127).contains(&name.len())
        || !plain
        || name.starts_with('-')
        || name == "."
        || name == ".."
    {
        return Err(D::Error::custom(format!(
            "volume_group: `{name}` is no name of a volume group"
        )));
    }
    Ok(Some(name))
}

/// Finds entries that contradict each other, or `[csi]`.
pub fn check(entries: &[StaticEntry], csi: &CsiConfig) -> Result<(), InvalidValue> {
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for StaticEntry { name, source, .. } in entries {
        if !names.insert(name) {
            return Err(InvalidValue::new("static.name", format!("`{name}` is used twice")));
        }
        let (key, path) = match source {
            StaticSource::Device(path) => ("static.device", path),
            StaticSource::Directory(path) => ("static.directory", path),
        };
        let shown = path.display();
        if !paths.insert(path) {
            let problem = format!("`{shown}` of `{name}` is used twice: two volumes would be one");
            return Err(InvalidValue::new(key, problem));
        }
        let below = |root: &PathBuf| path.starts_with(root) && path != root;
        if key == "static.directory" && !csi.static_roots.iter().any(below) {
            let roots = csi.static_roots.iter().map(|root| root.display().to_string());
            let roots = roots.collect::<Vec<_>>().join(", ");
            let problem =
                format!("`{shown}` of `{name}` is not below one of csi.static_roots ({roots})");
            return Err(InvalidValue::new(key, problem));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, parse};

    fn read(text: &str) -> Result<Config, String> {
        parse(Path::new("/etc/x.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn static_volumes_are_devices_or_folders_below_an_allowed_root() {
        let text = "[[static]]\nname = \"fast-1\"\ndevice = \"/dev/disk/by-id/x\"\nexpected = true\n[[static]]\nname = \"b\"\ndirectory = \"/srv/b\"\n";
        let config = read(text).expect("good");
        let device = StaticEntry {
            name: "fast-1".into(),
            source: StaticSource::Device("/dev/disk/by-id/x".into()),
            expected: true,
        };
        assert_eq!(
            config.statics,
            [
                device,
                StaticEntry {
                    name: "b".into(),
                    source: StaticSource::Directory("/srv/b".into()),
                    expected: false
                }
            ]
        );
        let written = toml::to_string(&config).expect("serialises");
        assert_eq!(read(&written).expect("reads back"), config);
    }

    #[test]
    fn an_invalid_entry_is_reported_with_its_line_and_key() {
        let entry = |rest: &str| format!("[csi]\nallow_uids = []\n[[static]]\n{rest}\n");
        for (rest, key) in [
            ("name = \"a/b\"\ndevice = \"/dev/x\"", "name"),
            ("name = \"dv-1\"\ndevice = \"/dev/x\"", "name"),
            ("name = \"a\"\ndevice = \"sda\"", "device"),
            ("name = \"a\"\ndevice = \"/etc/passwd\"", "device"),
            ("name = \"a\"\ndevice = \"/dev/../etc\"", "device"),
            ("name = \"a\"\ndirectory = \"/srv/../etc\"", "directory"),
            ("name = \"a\"", "device"),
            ("name = \"a\"\ndevice = \"/dev/x\"\ndirectory = \"/srv/a\"", "device"),
            ("name = \"a\"\ndevice = \"/dev/x\"\nmode = 1", "mode"),
        ] {
            let error = read(&entry(rest)).expect_err(rest);
            assert!(
                error.contains("/etc/x.toml") && error.contains("line ") && error.contains(key),
                "{rest}: {error}"
            );
        }
        assert!(read("[pool]\ndirectory = \"pool\"\n").expect_err("relative").contains("line 2"));
        assert!(
            read("[pool]\nvolume_group = \"a b\"\n").expect_err("blank").contains("volume_group")
        );
        assert!(read("[pool]\nwipe = \"shred\"\n").expect_err("word").contains("line 2"));
        assert!(
            read("[csi]\ndriver_name = \"-a.io\"\n").expect_err("dash").contains("driver_name")
        );
        assert_eq!(
            read("[csi]\ndriver_name = \"a1\"\n").expect("as CSI allows it").csi.driver_name,
            "a1"
        );
    }

    #[test]
    fn entries_that_contradict_each_other_are_refused() {
        let two = |one: &str, other: &str| {
            read(&format!("[[static]]\n{one}\n[[static]]\n{other}\n")).expect_err("refused")
        };
        assert!(
            two("name = \"a\"\ndevice = \"/dev/x\"", "name = \"a\"\ndevice = \"/dev/y\"")
                .contains("static.name")
        );
        assert!(
            two("name = \"a\"\ndevice = \"/dev/x\"", "name = \"b\"\ndevice = \"/dev/x\"")
                .contains("static.device")
        );
        assert!(
            read("[[static]]\nname = \"a\"\ndirectory = \"/etc/a\"\n")
                .expect_err("outside")
                .contains("csi.static_roots")
        );
        assert!(
            read("[[static]]\nname = \"a\"\ndirectory = \"/srv\"\n")
                .expect_err("the root itself")
                .contains("csi.static_roots")
        );
    }
}
