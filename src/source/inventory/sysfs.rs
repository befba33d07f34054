//! Reads attributes, links and directories of the host for the scan, and collects warnings.
//!
//! There are three kinds of failure: an attribute that does not apply (None), a device that is
//! removed during the reading (`DeviceRemoved`: the caller drops the device, and an event will
//! follow), and any other error (None, and a warning that names the file).

use std::cell::RefCell;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;

use crate::inventory::udev_db::{self, UdevRecord};
use diskvitals_finding::path::HostPath;
use diskvitals_host::root::HostRoot;

/// sysfs gives a page at most; udev's records stay far below this.
const MAX_FILE_SIZE: u64 = 256 * 1024;
/// A limit for the result on a badly damaged tree.
const MAX_WARNINGS: usize = 100;

/// The device vanished between two reads (hot-unplug).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRemoved;

pub struct SysfsReader<'a> {
    root: &'a HostRoot,
    warnings: RefCell<Vec<String>>,
}

impl<'a> SysfsReader<'a> {
    pub fn new(root: &'a HostRoot) -> SysfsReader<'a> {
        SysfsReader { root, warnings: RefCell::default() }
    }

    pub(crate) fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner()
    }

    /// The only failure that prevents a scan: the directory of all block devices is unreadable.
    pub(crate) fn try_list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.root.at(dir))? {
            match entry?.file_name().into_string() {
                Ok(name) => names.push(name),
                Err(name) => self.warn(format!("{dir}/{}: the name is no UTF-8", name.display())),
            }
        }
        names.sort();
        Ok(names)
    }

    /// Names in a directory, sorted; empty if there is no such directory.
    pub fn list(&self, dir: &str) -> Vec<String> {
        self.try_list(dir).unwrap_or_else(|error| {
            if !is_absent(&error) && !is_device_removed(&error) {
                self.warn_reading(dir, &error);
            }
            Vec::new()
        })
    }

    pub fn is_dir(&self, path: &str) -> bool {
        self.root.at(path).is_dir()
    }

    pub fn exists(&self, path: &str) -> bool {
        self.root.at(path).symlink_metadata().is_ok()
    }

    /// An attribute's bytes. None where the device has no such attribute.
    pub fn bytes(&self, path: &str) -> Result<Option<Vec<u8>>, DeviceRemoved> {
        let mut bytes = Vec::new();
        let read = std::fs::File::open(self.root.at(path))
            .and_then(|file| file.take(MAX_FILE_SIZE).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if is_device_removed(&error) => Err(DeviceRemoved),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => {
                self.warn_reading(path, &error);
                Ok(None)
            }
        }
    }

    /// An attribute's text without surrounding white space; None if empty. Invalid UTF-8 becomes
    /// U+FFFD, with a warning.
    pub fn text(&self, path: &str) -> Result<Option<String>, DeviceRemoved> {
        let Some(bytes) = self.bytes(path)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&bytes);
        if matches!(text, std::borrow::Cow::Owned(_)) {
            self.warn(format!("{path}: not UTF-8: {text:.80}"));
        }
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// The inode number. The kernel makes a directory of sysfs anew with what it stands for, under a
    /// number that this boot has not used.
    pub fn inode(&self, path: &str) -> Option<u64> {
        let of_file = self.root.at(path).symlink_metadata();
        of_file.ok().map(|of_file| of_file.ino())
    }

    /// None in a recorded tree.
    pub fn boot_id(&self) -> Result<Option<String>, DeviceRemoved> {
        match self.root.is_recorded() {
            true => Ok(None),
            false => self.text("/proc/sys/kernel/random/boot_id"),
        }
    }

    pub fn number(&self, path: &str) -> Result<Option<u64>, DeviceRemoved> {
        let Some(text) = self.text(path)? else {
            return Ok(None);
        };
        let number = text.parse().ok();
        if number.is_none() {
            self.warn(format!("{path}: `{text:.40}` is not a number"));
        }
        Ok(number)
    }

    /// 0 or 1.
    pub fn flag(&self, path: &str) -> Result<Option<bool>, DeviceRemoved> {
        Ok(self.number(path)?.map(|number| number != 0))
    }

    /// The target of a sysfs link, as a path on the host. Links in sysfs are relative and cross no
    /// other link, so they are resolved by name, which also works on a recorded tree.
    pub fn link(&self, path: &str) -> Option<String> {
        let target = match std::fs::read_link(self.root.at(path)) {
            Ok(target) => target,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.warn_reading(path, &error);
                }
                return None;
            }
        };
        let base = Path::new(path).parent()?;
        let mut resolved = PathBuf::new();
        for component in base.join(target).components() {
            match component {
                Component::ParentDir => {
                    resolved.pop();
                }
                Component::CurDir => {}
                other => resolved.push(other),
            }
        }
        match resolved.into_os_string().into_string() {
            Ok(text) => Some(text),
            Err(text) => {
                self.warn(format!(
                    "{path}: leads to {}, which is no UTF-8",
                    HostPath::from(Path::new(&text))
                ));
                None
            }
        }
    }

    /// udev's record of a device; None if there is none (or udev does not run).
    pub fn udev(&self, id: &str) -> Option<UdevRecord> {
        let path = format!("/run/udev/data/{id}");
        // A record vanishes with its device; the device's own attributes show that.
        let record = udev_db::parse(&self.bytes(&path).ok().flatten()?);
        if record.has_invalid_utf8 {
            self.warn(format!("{path}: not UTF-8 in places"));
        }
        Some(record)
    }

    pub fn warn(&self, text: String) {
        let mut warnings = self.warnings.borrow_mut();
        match warnings.len() {
            0..MAX_WARNINGS => warnings.push(text),
            MAX_WARNINGS => warnings.push("more warnings of this scan are not shown".to_owned()),
            _ => {}
        }
    }

    fn warn_reading(&self, path: &str, error: &io::Error) {
        self.warn(format!("reading {path}: {error}"));
    }
}

/// Errors that drivers return for an attribute that this device does not have. sd and the SCSI core
/// return EINVAL and ENXIO for missing pages (scsi_sysfs.c); 524 is the kernel's ENOTSUPP, which
/// has no name in user space.
fn is_absent(error: &io::Error) -> bool {
    const ENOTSUPP: i32 = 524;
    let absent = [
        Errno::ENOENT,
        Errno::ENOTDIR,
        Errno::EINVAL,
        Errno::ENXIO,
        Errno::EOPNOTSUPP,
        Errno::ENODATA,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| code == ENOTSUPP || absent.iter().any(|errno| *errno as i32 == code))
}

fn is_device_removed(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENODEV as i32)
}
