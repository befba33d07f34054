//! Runs a filesystem checker once, in its jail: builds the arguments of each checker, and finds its
//! program. `output` reads its output, `run` throttles and ends it.
//!
//! In: a request, and a descriptor that stops the run. Out: one `fscheck::Run` with its
//! result. It blocks, so it runs in a helper process or on its own thread. The caller opens the
//! device and freezes the filesystem. Used by the daemon's helper (`source::worker_main`) and by
//! `check --image`.

pub mod output;
mod run;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diskvitals_fscheck::Filesystem;
use diskvitals_fscheck::policy::Tools;

pub use run::{RunCallbacks, RunSpec, not_started, run};

/// The arguments that start our binary as the jail; `host::jail::enter` parses those after them.
pub const JAIL_ARGS: [&str; 2] = ["worker", "jail"];

/// The input of a checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckerInput<'a> {
    /// A block device's node.
    BlockDevice(&'a Path),
    /// A file that holds a filesystem.
    Image(&'a Path),
}

/// The arguments with which the checker changes nothing and never prompts (e2fsck(8),
/// xfs_repair(8), btrfs-check(8)).
pub fn arguments(filesystem: Filesystem, source: CheckerInput<'_>) -> Vec<OsString> {
    let (path, image) = match source {
        CheckerInput::BlockDevice(path) => (path, false),
        CheckerInput::Image(path) => (path, true),
    };
    let options: &[&str] = match (filesystem, image) {
        (Filesystem::Ext4, _) => &["-fn"],
        // A small buffer cache: a quarter of the memory, at the same speed (docs/checks.md).
        (Filesystem::Xfs, false) => &["-n", "-o", "bhash=256"],
        (Filesystem::Xfs, true) => &["-n", "-f", "-o", "bhash=256"],
        (Filesystem::Btrfs, false) => &["check", "--readonly", "--force"],
        (Filesystem::Btrfs, true) => &["check", "--readonly"],
    };
    options.iter().map(OsString::from).chain([path.as_os_str().to_owned()]).collect()
}

/// Whether the checker reports its progress on a descriptor of its own (e2fsck(8), -C).
pub fn reports_on_descriptor(filesystem: Filesystem) -> bool {
    filesystem == Filesystem::Ext4
}

/// xfs_repair sets RLIMIT_FSIZE to infinity and exits if that is refused (increase_rlimit(),
/// repair/init.c).
pub fn needs_unlimited_file_size(filesystem: Filesystem) -> bool {
    filesystem == Filesystem::Xfs
}

/// The command as a user would type it in a shell.
pub fn command_line(command: &Path, args: &[OsString]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=./:+,@%".contains(&byte);
    let quoted = |word: &std::ffi::OsStr| {
        let text = word.to_string_lossy();
        if !text.is_empty() && word.as_bytes().iter().copied().all(plain) {
            text.into_owned()
        } else {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
    };
    let name = command.file_name().unwrap_or(command.as_os_str());
    std::iter::once(name)
        .chain(args.iter().map(OsString::as_os_str))
        .map(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The directories in which distributions install the programs of administrators.
pub const SEARCH_PATH: [&str; 6] =
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"];

/// Why no program was found, and what to change.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{} is not there: `checks.tools.{name}` names it", path.display())]
    NotConfigured { path: PathBuf, name: &'static str },
    #[error("{name} is not installed: install the package {package}")]
    NotInstalled { name: &'static str, package: &'static str },
}

/// The program that checks this filesystem: the configured one, else the first in `SEARCH_PATH`.
pub fn find_program(tools: &Tools, filesystem: Filesystem) -> Result<PathBuf, ProgramError> {
    let (name, package) = filesystem.checker();
    let set = match filesystem {
        Filesystem::Ext4 => &tools.e2fsck,
        Filesystem::Xfs => &tools.xfs_repair,
        Filesystem::Btrfs => &tools.btrfs,
    };
    match set {
        Some(path) if path.is_file() => Ok(path.clone()),
        Some(path) => Err(ProgramError::NotConfigured { path: path.clone(), name }),
        None => SEARCH_PATH
            .iter()
            .map(|folder| Path::new(folder).join(name))
            .find(|path| path.is_file())
            .ok_or(ProgramError::NotInstalled { name, package }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkers_are_called_in_read_only_mode() {
        let node = CheckerInput::BlockDevice(Path::new("/dev/sda1"));
        let told = |filesystem, source| {
            command_line(Path::new("/usr/sbin/x"), &arguments(filesystem, source))
        };
        assert_eq!(told(Filesystem::Ext4, node), "x -fn /dev/sda1");
        assert_eq!(told(Filesystem::Xfs, node), "x -n -o bhash=256 /dev/sda1");
        assert_eq!(told(Filesystem::Btrfs, node), "x check --readonly --force /dev/sda1");
        assert_eq!(
            told(Filesystem::Xfs, CheckerInput::Image(Path::new("/a b"))),
            "x -n -f -o bhash=256 '/a b'"
        );
    }

    #[test]
    fn a_missing_program_says_what_to_install() {
        let tools = Tools { btrfs: Some("/nonexistent/btrfs".into()), ..Tools::default() };
        assert_eq!(
            find_program(&tools, Filesystem::Btrfs).unwrap_err().to_string(),
            "/nonexistent/btrfs is not there: `checks.tools.btrfs` names it"
        );
    }
}
