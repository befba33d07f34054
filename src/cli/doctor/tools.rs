//! The programs on this machine, and what there is that needs them.
//!
//! In: /sys and /proc, the programs' files. Out: one `Item` for each program. Only smartctl is started,
//! and only for its version: no program that asks a drive, a controller or a pool. A program whose
//! disk hangs delays no other.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use nix::unistd::{AccessFlags, access};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::doctor::{Item, Kind, State};
use diskvitals_checker::SEARCH_PATH;
use diskvitals_finding::source::Source;
use diskvitals_host::exec::{Exec, ExecError, run};
use diskvitals_host::root::HostRoot;
use diskvitals_model::raid_report::{ARCCONF, SSACLI, STORCLI, STORCLI2};
use diskvitals_smart::parse::{self, ParseError};
use diskvitals_text::causes::with_causes;
use diskvitals_wire as wire;
use diskvitals_wire::source_state::State as Reported;

/// For the files of one program. A file on a dead disk never answers.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_VERSION_OUTPUT: usize = 16 * 1024;
/// A thread that looks at files.
const STACK_SIZE: usize = 128 * 1024;
/// Of the first 64 KiB: the entry with the version is the first one.
const MAX_DATABASE_HEAD: u64 = 64 * 1024;
/// Models that are newer have no names for their vendor's attributes.
const DATABASE_MAX_AGE_DAYS: i32 = 2 * 365;

/// A database that `update-smart-drivedb` fetched counts before the package's (smartctl(8), -B).
const DATABASES: [&str; 4] = [
    "/var/lib/smartmontools/drivedb/drivedb.h",
    "/usr/local/share/smartmontools/drivedb.h",
    "/usr/share/smartmontools/drivedb.h",
    "/var/db/smartmontools/drivedb.h",
];

/// What there is on this machine.
#[derive(Clone, Debug, Default)]
struct Machine {
    /// `proc_name` of the SCSI hosts.
    scsi_drivers: BTreeSet<String>,
    filesystems: BTreeSet<String>,
    has_lvm: bool,
    has_zfs: bool,
    has_enclosure: bool,
}

struct Tool {
    name: &'static str,
    /// Names of the program, the best first.
    programs: &'static [&'static str],
    /// Directories beside `SEARCH_PATH`.
    places: &'static [&'static str],
    is_for: fn(&Machine) -> bool,
    subject: &'static str,
    package: &'static str,
    /// What is impossible without it.
    lost: Option<&'static str>,
    /// The source that reports whether the daemon has the program.
    source: Option<Source>,
}

const TOOLS: [Tool; 11] = [
    Tool {
        lost: Some("drives are not asked for SMART data"),
        source: Some(Source::Smart),
        ..tool("smartctl", &["smartctl"], |_| true, "drives", SMARTMONTOOLS)
    },
    checker("e2fsck", &["e2fsck"], |it| it.mounts(&["ext2", "ext3", "ext4"]), "e2fsprogs"),
    checker("xfs_repair", &["xfs_repair"], |it| it.mounts(&["xfs"]), "xfsprogs"),
    checker("btrfs", &["btrfs"], |it| it.mounts(&["btrfs"]), "btrfs-progs"),
    Tool {
        lost: Some("no check of a snapshot, and no volumes from a volume group"),
        ..tool("lvm", &["lvm"], |it| it.has_lvm, "logical volumes", "lvm2")
    },
    tool("zpool", &["zpool"], |it| it.has_zfs, "ZFS", "zfsutils-linux"),
    Tool {
        places: STORCLI.places,
        ..tool(
            STORCLI.name,
            STORCLI.programs,
            |it| it.has_driver(&["megaraid_sas"]),
            "MegaRAID or PERC controller",
            "storcli of Broadcom or perccli of Dell (never MegaCli: it stops newer controllers)",
        )
    },
    Tool {
        places: STORCLI2.places,
        ..tool(
            STORCLI2.name,
            STORCLI2.programs,
            |it| it.has_driver(&["mpi3mr"]),
            "MegaRAID 96xx or PERC 12 controller",
            "storcli2 of Broadcom or perccli2 of Dell",
        )
    },
    Tool {
        places: SSACLI.places,
        ..tool(
            SSACLI.name,
            SSACLI.programs,
            |it| it.has_driver(&["hpsa", "smartpqi", "cciss"]),
            "Smart Array controller",
            "ssacli of HPE, or arcconf for another vendor's controller",
        )
    },
    Tool {
        places: ARCCONF.places,
        ..tool(
            ARCCONF.name,
            ARCCONF.programs,
            |it| it.has_driver(&["aacraid", "smartpqi"]),
            "Adaptec or SmartRAID controller",
            "arcconf of Microchip",
        )
    },
    tool("ledctl", &["ledctl"], |it| it.has_enclosure, "enclosure of drives", "ledmon"),
];

const SMARTMONTOOLS: &str = "smartmontools 7.0 or newer (7.4 for all logs of NVMe drives)";

const fn tool(
    name: &'static str,
    programs: &'static [&'static str],
    is_for: fn(&Machine) -> bool,
    subject: &'static str,
    package: &'static str,
) -> Tool {
    Tool { name, programs, places: &[], is_for, subject, package, lost: None, source: None }
}

const fn checker(
    name: &'static str,
    programs: &'static [&'static str],
    is_for: fn(&Machine) -> bool,
    package: &'static str,
) -> Tool {
    Tool {
        lost: Some("such filesystems cannot be checked"),
        source: Some(Source::Checks),
        ..tool(name, programs, is_for, "filesystem that it checks", package)
    }
}

/// The programs on this machine. What the daemon reports about its own is left out: it may run with
/// other files than this program.
pub(super) async fn examine(
    root: HostRoot,
    sources: &[wire::SourceState],
    now: Timestamp,
) -> Vec<Item> {
    let host = root.clone();
    let machine = bounded(move || Machine::read(&host)).await;
    // All threads run before the first is awaited.
    let looks: Vec<_> = TOOLS.iter().map(|tool| (tool, look(&root, tool))).collect();
    let host = root.clone();
    let database = bounded(move || find_database(&host));
    let mut items = Vec::new();
    for (tool, found) in looks {
        let found = found.await;
        let item = item(tool, machine.as_ref(), found.as_ref());
        if is_reported(tool, sources) {
            continue;
        }
        match found.flatten() {
            Some(path) if tool.source == Some(Source::Smart) && item.state == State::Works => {
                items.push(with_version(item, &path).await);
            }
            Some(_) => items.push(match reported_failure(tool, sources) {
                Some((state, detail)) => {
                    let is_odd = state == State::NotUnderstood;
                    let newer = is_odd.then(|| format!("install a newer {}", tool.package));
                    Item { state, detail, action: newer.unwrap_or_default(), ..item }
                }
                None => item,
            }),
            None => items.push(item),
        }
    }
    items.extend(database_item(database.await, now));
    items
}

fn is_reported(tool: &Tool, sources: &[wire::SourceState]) -> bool {
    let Some(source) = tool.source else { return false };
    match sources.iter().find(|it| it.name == source.name()).map(wire::SourceState::state) {
        Some(Reported::Active | Reported::Absent) => true,
        Some(Reported::Limited | Reported::Down) => source == Source::Smart,
        Some(Reported::Unspecified) | None => false,
    }
}

/// Why the daemon's last run of the program has no answer: its source names the program.
fn reported_failure(tool: &Tool, sources: &[wire::SourceState]) -> Option<(State, String)> {
    let source = sources.iter().find(|it| it.name == Source::Smart.name())?;
    let prefix = format!("{}: ", tool.name);
    let why = source.detail.split("; ").find_map(|part| part.strip_prefix(&prefix))?;
    let state = match () {
        () if why.starts_with("timed out") => State::TimedOut,
        () if why.starts_with("not understood") => State::NotUnderstood,
        () => State::Failed,
    };
    Some((state, why.to_owned()))
}

/// Runs it on a thread of its own. None: it did not end in time.
fn bounded<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Option<T>> {
    let (tell, answer) = oneshot::channel();
    // A thread that cannot be started drops the sender: there is no answer.
    let _ = std::thread::Builder::new().stack_size(STACK_SIZE).spawn(move || tell.send(work()));
    let deadline = Instant::now() + LOOK_TIMEOUT;
    async move { tokio::time::timeout_at(deadline, answer).await.ok()?.ok() }
}

/// The first file of these names; None inside: there is none.
fn look(root: &HostRoot, tool: &Tool) -> impl Future<Output = Option<Option<PathBuf>>> + use<> {
    let (root, programs, places) = (root.clone(), tool.programs, tool.places);
    bounded(move || {
        let in_places = |program| {
            places.iter().chain(&SEARCH_PATH).map(move |place| Path::new(place).join(program))
        };
        let mut paths = programs.iter().flat_map(in_places).map(|path| root.at(path));
        paths.find(|path| std::fs::metadata(path).is_ok_and(|file| file.is_file()))
    })
}

/// `found`: None if the search did not end, or the machine could not be read.
fn item(tool: &Tool, machine: Option<&Machine>, found: Option<&Option<PathBuf>>) -> Item {
    let is_for = machine.map(tool.is_for);
    let missing = |state, detail: String, action: String| {
        let lost = tool.lost.filter(|_| state != State::NotNeeded);
        let detail = lost.map_or(detail.clone(), |lost| format!("{detail}: {lost}"));
        Item {
            kind: Kind::Tool,
            name: tool.name.to_owned(),
            state,
            detail,
            action,
            is_problem: lost.is_some(),
        }
    };
    match (is_for, found) {
        (Some(false), _) => {
            missing(State::NotNeeded, format!("there is no {} here", tool.subject), String::new())
        }
        (None, _) => missing(State::Unknown, NO_MACHINE.to_owned(), String::new()),
        (_, None) => missing(State::TimedOut, "its file does not answer".to_owned(), String::new()),
        (_, Some(None)) => {
            missing(State::Absent, "not installed".to_owned(), format!("install {}", tool.package))
        }
        (_, Some(Some(path))) => match access(path, AccessFlags::X_OK) {
            Ok(()) => Item {
                kind: Kind::Tool,
                name: tool.name.to_owned(),
                state: State::Works,
                detail: path.display().to_string(),
                action: String::new(),
                is_problem: false,
            },
            Err(error) => missing(
                State::NoPermission,
                format!("executing {}: {}", path.display(), error.desc()),
                String::new(),
            ),
        },
    }
}

const NO_MACHINE: &str = "/sys and /proc do not answer, so whether it is needed is not known";

async fn with_version(item: Item, path: &Path) -> Item {
    let exec = Exec {
        program: path.to_owned(),
        args: vec!["--version".to_owned()],
        stdin: Vec::new(),
        timeout: VERSION_TIMEOUT,
        max_output: MAX_VERSION_OUTPUT,
    };
    let failed = |state, detail: String| Item {
        state,
        detail,
        action: format!("install {SMARTMONTOOLS}"),
        is_problem: true,
        ..item.clone()
    };
    match run(&exec).await {
        Ok(output) => match parse::version(&output.stdout) {
            Ok([major, minor]) => {
                Item { detail: format!("{major}.{minor}, {}", item.detail), ..item }
            }
            Err(ParseError::TooOld([major, minor])) => {
                failed(State::TooOld, format!("version {major}.{minor} writes no JSON"))
            }
            Err(error) => failed(State::NotUnderstood, with_causes(&error)),
        },
        Err(error @ (ExecError::TimedOut { .. } | ExecError::Unkillable { .. })) => {
            failed(State::TimedOut, error.to_string())
        }
        Err(error) => failed(State::Failed, with_causes(&error)),
    }
}

/// The first database, with its beginning.
fn find_database(root: &HostRoot) -> Option<(PathBuf, std::io::Result<String>)> {
    let path = DATABASES.iter().map(|path| root.at(path)).find(|path| path.exists())?;
    let head = std::fs::File::open(&path).and_then(|file| {
        let mut head = Vec::new();
        file.take(MAX_DATABASE_HEAD).read_to_end(&mut head)?;
        Ok(String::from_utf8_lossy(&head).into_owned())
    });
    Some((path, head))
}

/// An old database makes no verdict wrong: attributes of newer models have no names. None: there is no
/// database, as where smartctl was built without one.
fn database_item(
    found: Option<Option<(PathBuf, std::io::Result<String>)>>,
    now: Timestamp,
) -> Option<Item> {
    let item = |state, detail: String, action: &str| Item {
        kind: Kind::Tool,
        name: "drivedb".to_owned(),
        state,
        detail,
        action: action.to_owned(),
        is_problem: false,
    };
    let Some(found) = found else {
        return Some(item(State::TimedOut, "its file does not answer".to_owned(), ""));
    };
    let (path, head) = found?;
    let path = path.display();
    Some(match head.as_deref().map(database_date) {
        Err(error) => item(State::Failed, format!("reading {path}: {error}"), ""),
        Ok(None) => item(State::NotUnderstood, format!("{path} names no date"), ""),
        Ok(Some(date)) => {
            let today = now.to_zoned(TimeZone::UTC).date();
            let is_old = date.until(today).is_ok_and(|age| age.get_days() > DATABASE_MAX_AGE_DAYS);
            match is_old {
                true => item(
                    State::TooOld,
                    format!("{path} is of {date}: newer models are not in it"),
                    "run update-smart-drivedb",
                ),
                false => item(State::Works, format!("of {date}, {path}"), ""),
            }
        }
    })
}

/// `{ "VERSION: 7.3 $Id: drivedb.h 5319 2022-02-19 17:48:34Z name $",`
fn database_date(head: &str) -> Option<Date> {
    let line = head.lines().find(|line| line.contains("\"VERSION: "))?;
    line.split_ascii_whitespace().find_map(|word| word.parse().ok())
}

impl Machine {
    fn read(root: &HostRoot) -> Machine {
        let names = |path: &str| -> Vec<PathBuf> {
            let listed = std::fs::read_dir(root.at(path));
            listed.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let mounts = root.read("/proc/1/mountinfo").or_else(|_| root.read("/proc/self/mountinfo"));
        Machine {
            scsi_drivers: names("/sys/class/scsi_host")
                .into_iter()
                .map(|host| text(host.join("proc_name")).trim().to_owned())
                .collect(),
            filesystems: filesystems(&String::from_utf8_lossy(&mounts.unwrap_or_default())),
            has_lvm: names("/sys/block")
                .into_iter()
                .any(|device| text(device.join("dm/uuid")).starts_with("LVM-")),
            has_zfs: root.at("/sys/module/zfs").is_dir(),
            has_enclosure: !names("/sys/class/enclosure").is_empty(),
        }
    }

    fn has_driver(&self, drivers: &[&str]) -> bool {
        drivers.iter().any(|driver| self.scsi_drivers.contains(*driver))
    }

    fn mounts(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| self.filesystems.contains(*kind))
    }
}

/// The types in mountinfo (proc_pid_mountinfo(5)): the field behind the separator.
fn filesystems(mountinfo: &str) -> BTreeSet<String> {
    let kind = |line: &str| Some(line.split_once(" - ")?.1.split(' ').next()?.to_owned());
    mountinfo.lines().filter_map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool_named(name: &str) -> &'static Tool {
        TOOLS.iter().find(|tool| tool.name == name).unwrap()
    }

    fn machine(filesystem: &str, driver: &str) -> Machine {
        Machine {
            scsi_drivers: [driver.to_owned()].into(),
            filesystems: [filesystem.to_owned()].into(),
            ..Machine::default()
        }
    }

    #[test]
    fn a_program_is_needed_only_where_there_is_something_for_it() {
        let (nothing, xfs) = (machine("ext4", "ahci"), machine("xfs", "megaraid_sas"));
        let state = |machine: &Machine, name: &str| {
            let it = item(tool_named(name), Some(machine), Some(&None));
            (it.state, it.is_problem)
        };
        assert_eq!(state(&nothing, "xfs_repair"), (State::NotNeeded, false));
        assert_eq!(state(&xfs, "xfs_repair"), (State::Absent, true));
        assert_eq!(state(&nothing, "storcli"), (State::NotNeeded, false));
        assert_eq!(state(&xfs, "storcli"), (State::Absent, false));
        assert_eq!(state(&xfs, "ssacli"), (State::NotNeeded, false));
        assert_eq!(state(&nothing, "smartctl"), (State::Absent, true));
    }

    #[test]
    fn what_did_not_answer_is_never_absent_or_unneeded() {
        let smartctl = tool_named("smartctl");
        let xfs = machine("xfs", "ahci");
        assert_eq!(item(smartctl, Some(&xfs), None).state, State::TimedOut);
        assert_eq!(item(tool_named("zpool"), None, Some(&None)).state, State::Unknown);
        let database = database_item(None, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(database.state, State::TimedOut);
    }

    #[test]
    fn a_file_that_may_not_be_executed_is_no_working_program() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = Some(file.path().to_owned());
        let found = item(tool_named("smartctl"), Some(&Machine::default()), Some(&path));
        assert_eq!((found.state, found.is_problem), (State::NoPermission, true));
    }

    #[test]
    fn the_daemon_knows_its_own_programs() {
        let source = |name: &str, state: Reported| wire::SourceState {
            name: name.into(),
            state: state.into(),
            ..wire::SourceState::default()
        };
        let states = [source("smart", Reported::Down), source("checks", Reported::Limited)];
        assert!(is_reported(tool_named("smartctl"), &states));
        assert!(!is_reported(tool_named("xfs_repair"), &states), "which one is missing");
        assert!(!is_reported(tool_named("smartctl"), &[]));
        assert!(is_reported(tool_named("btrfs"), &[source("checks", Reported::Active)]));
    }

    #[test]
    fn the_daemon_says_whether_a_controllers_tool_answered() {
        let of = |detail: &str| {
            let source = wire::SourceState {
                name: "smart".into(),
                detail: detail.into(),
                ..wire::SourceState::default()
            };
            reported_failure(tool_named("storcli"), &[source])
        };
        let slow = "smartctl 7.3, 6 drives; storcli: timed out: killed; not asked again for a day";
        assert_eq!(of(slow), Some((State::TimedOut, "timed out: killed".into())));
        let odd = of("smartctl 7.3, 1 drive; storcli: not understood: the answer is no JSON");
        assert_eq!(odd.unwrap().0, State::NotUnderstood);
        assert_eq!(of("smartctl 7.3, 6 drives"), None);
    }

    #[test]
    fn the_age_of_the_drive_database_is_that_of_its_entry() {
        let head =
            "/* 2011-01-01 */\n { \"VERSION: 7.3 $Id: drivedb.h 5319 2022-02-19 17:48:34Z n $\",\n";
        assert_eq!(database_date(head), Some(jiff::civil::date(2022, 2, 19)));
        assert_eq!(database_date("nothing"), None);
        let of = |now: &str, head: &str| {
            let found = (PathBuf::from("/d"), Ok(head.to_owned()));
            let it = database_item(Some(Some(found)), now.parse().unwrap()).unwrap();
            assert!(!it.is_problem);
            it.state
        };
        assert_eq!(of("2023-02-19T00:00:00Z", head), State::Works);
        assert_eq!(of("2026-02-19T00:00:00Z", head), State::TooOld);
        assert_eq!(of("2026-02-19T00:00:00Z", "x"), State::NotUnderstood);
        assert_eq!(database_item(Some(None), Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn the_machine_is_read_from_sys_and_proc() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/class/scsi_host/host0/proc_name", "megaraid_sas\n");
        write("sys/block/dm-0/dm/uuid", "LVM-abc\n");
        write("proc/1/mountinfo", "36 35 98:0 / /a\\040b rw - xfs /dev/sda1 rw\n");
        let read = Machine::read(&HostRoot::new(dir.path()));
        assert!(read.has_driver(&["megaraid_sas"]) && read.has_lvm && read.mounts(&["xfs"]));
        assert!(!read.has_zfs && !read.has_enclosure && !read.mounts(&["ext4"]));
    }

    #[tokio::test]
    async fn the_version_decides_whether_smartctl_works() {
        let dir = tempfile::tempdir().unwrap();
        let of = async |script: &str| {
            let path = dir.path().join("smartctl");
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).unwrap();
            let found =
                item(tool_named("smartctl"), Some(&Machine::default()), Some(&Some(path.clone())));
            with_version(found, &path).await.state
        };
        assert_eq!(of("echo smartctl 7.3 2022-02-28 r5338").await, State::Works);
        assert_eq!(of("echo smartctl 6.6 2016-05-31 r4324").await, State::TooOld);
        assert_eq!(of("echo something else").await, State::NotUnderstood);
    }
}
