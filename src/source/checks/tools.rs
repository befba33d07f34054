//! Finds the checker programs and their versions. A filesystem whose program is missing cannot be
//! checked, and the source's status reports that.
//!
//! Checkers are searched in the daemon's mount namespace, lvm in the host's, where it runs.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use diskvitals_checker as checker;
use diskvitals_fscheck::Filesystem;
use diskvitals_fscheck::policy::Tools;
use diskvitals_host::blocking::BlockingLane;
use diskvitals_host::exec::{Exec, run};
use diskvitals_host::root::HostRoot;
use diskvitals_model::source_update::SourceStatus;

static PROGRAM_FILES: BlockingLane = BlockingLane::new();

/// The directories in which distributions install lvm.
const SEARCH_PATH: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
const FILESYSTEMS: [Filesystem; 3] = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];
/// Printing the version takes no time.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_OUTPUT_BYTES: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableTools {
    /// The errors name the packages to install.
    checkers: BTreeMap<Filesystem, Result<CheckerProgram, String>>,
    /// Path on the host.
    pub lvm: Option<PathBuf>,
    /// No check is possible here; the text contains the reason.
    pub absent: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckerProgram {
    pub path: PathBuf,
    /// `1.47.0`; empty when the program did not print it.
    pub version: String,
    /// Distinguishes versions of the program at this path: inode, size, modification time in
    /// seconds.
    pub file_identity: (u64, u64, i64),
}

impl AvailableTools {
    #[cfg(test)]
    pub fn new(
        checkers: impl IntoIterator<Item = (Filesystem, CheckerProgram)>,
        lvm: Option<PathBuf>,
    ) -> AvailableTools {
        let mut all: BTreeMap<_, _> = FILESYSTEMS
            .into_iter()
            .map(|filesystem| {
                (filesystem, Err(format!("{} is not installed", filesystem.checker().0)))
            })
            .collect();
        all.extend(checkers.into_iter().map(|(filesystem, checker)| (filesystem, Ok(checker))));
        AvailableTools { checkers: all, lvm, absent: None }
    }

    pub fn unavailable(why: &str) -> AvailableTools {
        AvailableTools { absent: Some(why.to_owned()), ..AvailableTools::default() }
    }

    /// The error contains the reason, and what to do.
    pub fn checker(&self, filesystem: Filesystem) -> Result<&Path, String> {
        if let Some(why) = &self.absent {
            return Err(format!("nothing can be checked here: {why}"));
        }
        match self.checkers.get(&filesystem) {
            Some(Ok(checker)) => Ok(&checker.path),
            Some(Err(why)) => Err(format!("{} cannot be checked: {why}", filesystem.name())),
            None => Err(format!("{} cannot be checked", filesystem.name())),
        }
    }

    pub fn status(&self) -> SourceStatus {
        if let Some(why) = &self.absent {
            return SourceStatus::Absent(why.clone());
        }
        let (mut names, mut missing) = (Vec::new(), Vec::new());
        for (filesystem, checker) in &self.checkers {
            match checker {
                Ok(checker) => names.push(
                    format!("{} {}", filesystem.checker().0, checker.version).trim_end().to_owned(),
                ),
                Err(why) => missing.push(format!("{} cannot be checked: {why}", filesystem.name())),
            }
        }
        match (names.is_empty(), missing.is_empty()) {
            (true, _) => SourceStatus::Down(missing.join("; ")),
            (false, true) => SourceStatus::Active(names.join(", ")),
            (false, false) => {
                SourceStatus::Limited(format!("{}; {}", names.join(", "), missing.join("; ")))
            }
        }
    }
}

/// `before`: the last result; a program that is unchanged is not started again for its version.
pub(crate) async fn find_tools(
    root: &HostRoot,
    tools: Tools,
    before: Option<AvailableTools>,
) -> AvailableTools {
    if root.is_recorded() {
        return AvailableTools::unavailable("a recorded tree has no filesystems to check");
    }
    let host = root.clone();
    // The programs may be on a failing disk.
    let looked = PROGRAM_FILES.run(move || {
        let paths = FILESYSTEMS.map(|filesystem| {
            let found =
                checker::find_program(&tools, filesystem).map_err(|error| error.to_string());
            let there = found.and_then(|path| {
                let file = std::fs::metadata(&path)
                    .map_err(|error| format!("looking at {}: {error}", path.display()))?;
                Ok((path, (file.ino(), file.size(), file.mtime())))
            });
            (filesystem, there)
        });
        (paths, find_program(&host, tools.lvm.as_deref(), "lvm"))
    });
    let Ok((paths, lvm)) = looked.await else {
        return AvailableTools::unavailable("looking for the programs: the task was lost");
    };
    let mut checkers = BTreeMap::new();
    for (filesystem, there) in paths {
        let checker = match there {
            Err(why) => Err(why),
            Ok((path, stamp)) => {
                let known = before
                    .as_ref()
                    .and_then(|before| before.checkers.get(&filesystem)?.as_ref().ok());
                let version = match known
                    .filter(|known| known.path == path && known.file_identity == stamp)
                {
                    Some(known) => known.version.clone(),
                    None => version(filesystem, &path).await,
                };
                Ok(CheckerProgram { path, version, file_identity: stamp })
            }
        };
        checkers.insert(filesystem, checker);
    }
    AvailableTools { checkers, lvm, absent: None }
}

/// Finds lvm. Returns its path on the host.
pub(crate) async fn find_lvm(root: &HostRoot, given: &Tools) -> Option<PathBuf> {
    let (root, given) = (root.clone(), given.lvm.clone());
    PROGRAM_FILES.run(move || find_program(&root, given.as_deref(), "lvm")).await.ok().flatten()
}

/// The configured path, or the first executable in `SEARCH_PATH`.
fn find_program(root: &HostRoot, given: Option<&Path>, name: &str) -> Option<PathBuf> {
    let places = SEARCH_PATH.iter().map(|place| Path::new(place).join(name));
    let runs = |path: &PathBuf| {
        std::fs::metadata(root.at(path))
            .is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
    };
    given.map_or_else(|| places.clone().find(runs), |given| Some(given.to_owned()).filter(runs))
}

async fn version(filesystem: Filesystem, path: &Path) -> String {
    let argument = if filesystem == Filesystem::Btrfs { "--version" } else { "-V" };
    let exec = Exec {
        program: path.to_owned(),
        args: vec![argument.to_owned()],
        stdin: Vec::new(),
        timeout: VERSION_TIMEOUT,
        max_output: MAX_OUTPUT_BYTES,
    };
    match run(&exec).await {
        Ok(output) => {
            parse_version(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
                .unwrap_or_default()
        }
        Err(error) => {
            tracing::warn!(%error, program = %path.display(), "a checker does not tell its version");
            String::new()
        }
    }
}

/// `e2fsck 1.47.0 (5-Feb-2023)`, `xfs_repair version 6.1.0`, `btrfs-progs v6.2`: the first part
/// that begins with a digit, or with `v` and a digit.
fn parse_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    let number = |word: &str| word.strip_prefix('v').unwrap_or(word).to_owned();
    line.split_ascii_whitespace()
        .map(number)
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_checker_tells_its_version_in_its_own_way() {
        let of = |text| parse_version(text).unwrap();
        assert_eq!(
            of("e2fsck 1.47.0 (5-Feb-2023)\n\tUsing EXT2FS Library version 1.47.0, 5-Feb-2023\n"),
            "1.47.0"
        );
        assert_eq!(of("xfs_repair version 6.1.0\n"), "6.1.0");
        assert_eq!(of("btrfs-progs v6.2\n"), "6.2");
        assert_eq!(parse_version("no idea\n"), None);
    }

    #[test]
    fn a_missing_checker_is_reported_with_what_to_install() {
        let e2fsck = CheckerProgram {
            path: "/sbin/e2fsck".into(),
            version: "1.47.0".to_owned(),
            file_identity: (0, 0, 0),
        };
        let found = AvailableTools::new([(Filesystem::Ext4, e2fsck)], None);
        let limited = "e2fsck 1.47.0; xfs cannot be checked: xfs_repair is not installed; btrfs cannot be checked: btrfs is not installed";
        assert_eq!(found.status(), SourceStatus::Limited(limited.to_owned()));
        assert_eq!(found.checker(Filesystem::Ext4), Ok(Path::new("/sbin/e2fsck")));
        assert_eq!(
            found.checker(Filesystem::Xfs),
            Err("xfs cannot be checked: xfs_repair is not installed".to_owned())
        );
        assert!(matches!(AvailableTools::new([], None).status(), SourceStatus::Down(_)));
    }

    #[tokio::test]
    async fn a_configured_program_that_is_missing_is_not_searched_for_elsewhere() {
        let root = HostRoot::new("/");
        assert_eq!(find_program(&root, Some(Path::new("/nonexistent/sh")), "sh"), None);
        assert!(find_program(&root, None, "sh").is_some());
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(find_program(&root, Some(file.path()), "sh"), None, "not a program");
    }
}
