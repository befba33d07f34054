//! Fixture of the check tests: a filesystem on a loop device that is always thawed at the end, a
//! daemon that may freeze it, scripts that replace a checker and follow the test's orders, and
//! requests for checks.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use diskvitals_finding::path::HostPath;
use diskvitals_fscheck::Filesystem;
use diskvitals_host::freeze::OpenMount;
use diskvitals_wire::check::{Mode, State, Verdict};
use diskvitals_wire::{
    CancelCheckRequest, Check, GetCheckRequest, ListChecksRequest, StartCheckRequest,
};
use nix::errno::Errno;
use tonic::Status;

use crate::support::checkers::loops_over;
use crate::support::daemon::{Arguments, config};
use crate::support::tools::{mount_device, run, umount};
use crate::support::{Client, Daemon, Disk, FuseServer, SOON, Testbed, eventually};

/// The longest check of a small filesystem on a busy machine with all its runs, without the minute
/// between two frozen runs.
pub const CHECK_LIMIT: Duration = Duration::from_secs(60);
/// After SIGKILL of the process that held the writers, they continue within this time.
pub const THAW_LIMIT: Duration = Duration::from_secs(5);

pub const ALL: [Filesystem; 3] = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];

/// Frozen runs only on request. More keys of `[checks]` can be appended.
pub const ON_DEMAND: &str = "[checks]\nfreeze = \"on-demand\"\n";

pub fn configure(testbed: &Testbed, checks: &str) {
    std::fs::write(testbed.path("diskvitals.toml"), format!("{}{checks}", config()))
        .expect("the configuration");
}

pub async fn start(testbed: &Testbed, checks: &str) -> Daemon {
    configure(testbed, checks);
    Daemon::start_with(&Arguments::of(testbed)).await
}

/// Mounted below the testbed and always thawed at the end. Must be dropped before its testbed.
pub struct Volume {
    pub disk: Disk,
    pub at: PathBuf,
    pub kept: Option<OpenMount>,
}

impl Volume {
    pub fn mount(testbed: &Testbed, disk: Disk, fs_type: &str, options: &str) -> Volume {
        let at = testbed.path(format!("mnt/{}", disk.name()));
        mount_device(&disk.device, fs_type, &at, options);
        let kept = OpenMount::open(&HostPath::from(at.as_path())).expect("opens");
        Volume { disk, at, kept: Some(kept) }
    }

    /// With some files.
    pub fn filled(testbed: &Testbed, filesystem: Filesystem) -> Volume {
        let disk = make(testbed, filesystem);
        let volume = Volume::mount(testbed, disk, filesystem.name(), "");
        fill(&volume.at, 300);
        volume
    }

    /// Waits until the content is on disk.
    pub async fn is_writable(&self, within: Duration) {
        let at = self.at.join("written");
        let written = tokio::task::spawn_blocking(move || std::fs::write(at, b"x"));
        tokio::time::timeout(within, written)
            .await
            .expect("nothing holds the writers")
            .expect("no panic")
            .expect("written");
    }

    /// Fails if another process has frozen it.
    pub fn umount(&mut self) {
        self.kept = None;
        umount(&self.at);
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        match self.kept.as_ref().map(OpenMount::thaw) {
            Some(Ok(())) => {
                eprintln!("{} was left frozen, and is thawed by the test", self.at.display())
            }
            None | Some(Err(Errno::EINVAL)) => {}
            Some(Err(errno)) => eprintln!("thawing {}: {errno}", self.at.display()),
        }
    }
}

pub fn make(testbed: &Testbed, filesystem: Filesystem) -> Disk {
    match filesystem {
        Filesystem::Ext4 => testbed.ext4("e.img", 128, &[]),
        Filesystem::Xfs => testbed.xfs("x.img"),
        Filesystem::Btrfs => {
            let image = testbed.image("b.img", 256 << 20);
            run("/usr/sbin/mkfs.btrfs", &[&"-q", &image]);
            testbed.attach(&image)
        }
    }
}

/// With some files, not mounted.
pub fn filled(testbed: &Testbed, filesystem: Filesystem, files: usize) -> Disk {
    let disk = make(testbed, filesystem);
    let at = testbed.path("mnt/once");
    mount_device(&disk.device, filesystem.name(), &at, "");
    fill(&at, files);
    umount(&at);
    disk
}

/// Like `filled`, on a device whose I/O the test answers.
pub fn on_a_server(testbed: &Testbed, filesystem: Filesystem) -> (FuseServer, Disk) {
    let disk = filled(testbed, filesystem, 1000);
    disk.detach();
    let served = FuseServer::mount(&testbed.path("fuse"), &disk.image);
    let disk = Disk { image: disk.image, ..testbed.attach(&served.file()) };
    run("/usr/sbin/blockdev", &[&"--flushbufs", &disk.device]);
    (served, disk)
}

pub fn fill(at: &Path, files: usize) {
    for number in 0..files {
        let folder = at.join(format!("d{}", number / 100));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(format!("f{number}")), vec![b'x'; number % 5000])
            .expect("a file");
    }
}

// --- requests

pub fn of(target: &Path) -> StartCheckRequest {
    StartCheckRequest { target: target.display().to_string(), ..Default::default() }
}

/// Without udev the node does not know the content of a device that is not mounted.
pub fn of_device(disk: &Disk, filesystem: Filesystem) -> StartCheckRequest {
    StartCheckRequest { filesystem: filesystem.name().to_owned(), ..of(&disk.device) }
}

pub fn frozen(request: StartCheckRequest) -> StartCheckRequest {
    StartCheckRequest { freeze: true, ..request }
}

pub async fn try_begin(client: &Client, request: &StartCheckRequest) -> Result<Check, Status> {
    client.checks().start_check(request.clone()).await.map(tonic::Response::into_inner)
}

/// As soon as the target is known: it was created a moment ago.
pub async fn begin(client: &Client, request: StartCheckRequest) -> Check {
    eventually(&format!("{} can be checked", request.target), SOON, async || {
        match try_begin(client, &request).await {
            Ok(check) => Some(check),
            Err(status) => {
                let unknown =
                    status.message().contains("no block device of this node is beneath it");
                assert!(
                    unknown
                        || matches!(
                            status.code(),
                            tonic::Code::NotFound | tonic::Code::InvalidArgument
                        ),
                    "{status}"
                );
                None
            }
        }
    })
    .await
}

pub async fn get(client: &Client, id: &str) -> Check {
    let request = GetCheckRequest { id: id.to_owned(), without_output: false };
    client
        .checks()
        .get_check(request)
        .await
        .unwrap_or_else(|status| panic!("GetCheck {id}: {status}"))
        .into_inner()
}

pub async fn cancel(client: &Client, id: &str) -> Check {
    let request = CancelCheckRequest { id: id.to_owned() };
    client
        .checks()
        .cancel_check(request)
        .await
        .unwrap_or_else(|status| panic!("CancelCheck {id}: {status}"))
        .into_inner()
}

pub async fn history(client: &Client) -> Vec<Check> {
    client
        .checks()
        .list_checks(ListChecksRequest::default())
        .await
        .expect("ListChecks")
        .into_inner()
        .checks
}

/// Waits until the check is in a phase whose text contains `text`.
pub async fn phase(client: &Client, id: &str, text: &str) -> Check {
    let mut last = None;
    let found = tokio::time::timeout(CHECK_LIMIT, async {
        loop {
            let check = get(client, id).await;
            if check.phase.contains(text) {
                return check;
            }
            assert!(check.state() != State::Ended, "it has ended before `{text}`: {check:#?}");
            last = Some(check);
            crate::support::pause(Duration::from_millis(20)).await;
        }
    })
    .await;
    found.unwrap_or_else(|_| panic!("never in `{text}`: {last:#?}"))
}

pub async fn ended(client: &Client, id: &str, within: Duration) -> Check {
    eventually(&format!("check {id} ends"), within, async || {
        Some(get(client, id).await).filter(|check| check.state() == State::Ended)
    })
    .await
}

pub async fn check(client: &Client, request: StartCheckRequest) -> Check {
    let begun = begin(client, request).await;
    ended(client, &begun.id, CHECK_LIMIT + Duration::from_secs(90)).await
}

/// Repeats until the daemon knows how the filesystem is mounted: a check that started before is
/// inconclusive and says why.
pub async fn check_as(client: &Client, request: StartCheckRequest, mode: Mode) -> Check {
    eventually("it is known to be mounted so", SOON + CHECK_LIMIT, async || {
        let check = check(client, request.clone()).await;
        if check.mode() != mode || check.reason.contains("while it was checked") {
            // A filesystem that was live at first and is read-only now gives a weaker verdict,
            // never a wrong one.
            let weaker = check.mode() == Mode::Live && check.verdict() == Verdict::Clean;
            let nothing = matches!(check.verdict(), Verdict::Inconclusive | Verdict::Failed);
            assert!(weaker || nothing, "of another mode than it was: {check:#?}");
            return None;
        }
        Some(check)
    })
    .await
}

#[track_caller]
pub fn expect(check: &Check, verdict: Verdict, mode: Mode) {
    assert_eq!((check.verdict(), check.mode()), (verdict, mode), "{check:#?}");
    assert!(!check.reason.is_empty(), "{check:#?}");
}

// --- leftovers

/// Ids of the processes whose command line contains `word`.
pub fn processes(word: &str) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.contains(word))
    })
    .collect()
}

/// The freezer's notes.
pub fn notes(testbed: &Testbed) -> Vec<PathBuf> {
    std::fs::read_dir(testbed.path("run/freeze"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// The process that holds the writers, once FIFREEZE has returned.
pub async fn freezer(testbed: &Testbed) -> i32 {
    eventually("it is frozen", CHECK_LIMIT, async || {
        let found = diskvitals_host::intents::find(&testbed.path("run/freeze")).ok()?;
        let intent = found.first()?.intent.clone()?;
        let text = std::fs::read_to_string(notes(testbed).first()?).ok()?;
        text.contains("frozen").then_some(i32::try_from(intent.pid).expect("a process"))
    })
    .await
}

/// No note, checker or loop is left, and the filesystem is writable.
pub async fn nothing_is_left(testbed: &Testbed, volume: Option<&Volume>) {
    if let Some(volume) = volume {
        volume.is_writable(SOON).await;
    }
    let script = testbed.path("checker").display().to_string();
    eventually("neither note nor checker nor loop is left", SOON, async || {
        let nothing = notes(testbed).is_empty()
            && processes(&script).is_empty()
            && loops_over(testbed).is_empty();
        nothing.then_some(())
    })
    .await;
}

// --- checkers that are scripts

/// Replaces e2fsck. It can read the testbed and write nothing.
pub struct Script {
    turn: PathBuf,
    pub path: PathBuf,
}

/// e2fsck's output for an inode with a wrong checksum, with status 4.
const FOUND: &str = r#"
echo 'Pass 1: Checking inodes, blocks, and sizes'
echo 'Inode 13 passes checks, but checksum does not match inode.  Fix? no'
echo
for pass in '2: Checking directory structure' '3: Checking directory connectivity' '4: Checking reference counts' \
    '5: Checking group summary information'; do echo "Pass $pass"; done
echo
for last in "$@"; do :; done
echo "$last: ********** WARNING: Filesystem still has errors **********"
echo
echo "$last: 311/32768 files (0.0% non-contiguous), 9999/131072 blocks"
exit 4
"#;

impl Script {
    /// Waits for the next turn, then reports an inode with a wrong checksum: each run takes as long
    /// as the test wants.
    pub fn by_turns(testbed: &Testbed) -> Script {
        Script::new(
            testbed,
            &format!(
                "first=$(cat {turn})\nwhile [ \"$(cat {turn})\" = \"$first\" ]; do sleep 0.02; done\n{FOUND}",
                turn = testbed.path("turn").display()
            ),
        )
    }

    pub fn new(testbed: &Testbed, body: &str) -> Script {
        let script = Script { turn: testbed.path("turn"), path: testbed.path("checker") };
        script.turn_to(0);
        let version =
            "case \"$*\" in -V|--version) echo 'e2fsck 1.47.0 (5-Feb-2023)' >&2; exit 0;; esac";
        std::fs::write(&script.path, format!("#!/bin/sh\n{version}\n{body}\n")).expect("a script");
        std::fs::set_permissions(&script.path, std::fs::Permissions::from_mode(0o755))
            .expect("its mode");
        // The testbed's directory is accessible to its owner only, but the script is run as the
        // user nobody.
        std::fs::set_permissions(testbed.path(""), std::fs::Permissions::from_mode(0o711))
            .expect("the folder's mode");
        script
    }

    pub fn turn_to(&self, turn: u32) {
        let new = self.turn.with_extension("new");
        std::fs::write(&new, turn.to_string()).expect("the turn");
        std::fs::rename(&new, &self.turn).expect("the turn");
    }

    /// The configuration section with this script.
    pub fn tools(&self) -> String {
        format!("[checks.tools]\ne2fsck = \"{}\"\n", self.path.display())
    }
}
