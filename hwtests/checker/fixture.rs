//! Fixture of the checker tests: filesystems on loop devices, a run of a checker or of a script
//! that replaces it, and checks for leftovers.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use diskvitals_fscheck::{Filesystem, Mode, Run, RunActivity};
use diskvitals_host::helper::Program;
use diskvitals_source::checks::runner::{self, Device, OrphanedRuns, ReapedRun, RunRequest};
use tokio::sync::watch;

use crate::programs::built_program;
use crate::support::tools::run;
use crate::support::{Disk, Testbed};

pub fn program() -> Program {
    Program {
        program: built_program("diskvitalsd").into(),
        args: ["worker", "check", "/"].map(Into::into).to_vec(),
    }
}

/// Starts a program that finds no control groups mounted, as the first process of a PID namespace.
pub const WITHOUT_CONTROL_GROUPS: [&str; 10] = [
    "/usr/bin/unshare",
    "--mount",
    "--pid",
    "--fork",
    "--mount-proc",
    "--kill-child",
    "/bin/sh",
    "-c",
    "umount --recursive --lazy /sys/fs/cgroup && exec \"$@\"",
    "sh",
];

pub fn device(disk: &Disk) -> Device {
    let dev =
        std::fs::read_to_string(format!("/sys/block/{}/dev", disk.name())).expect("its number");
    Device { name: disk.name().to_owned(), dev: dev.parse().expect("a number") }
}

pub fn order(disk: &Disk, filesystem: Filesystem, mode: Mode) -> RunRequest {
    let (name, _) = filesystem.checker();
    let command = ["/usr/sbin", "/usr/bin"]
        .map(|dir| Path::new(dir).join(name))
        .into_iter()
        .find(|path| path.exists())
        .expect("the checker");
    RunRequest {
        filesystem,
        mode,
        device: device(disk),
        members: Vec::new(),
        command,
        timeout: Duration::from_secs(60),
        memory: 1 << 30,
        bytes_per_second: None,
    }
}

pub async fn ran(order: RunRequest) -> ReapedRun {
    match runner::prepare(&program(), &OrphanedRuns::default(), order).await {
        Ok(prepared) => {
            prepared.run(&watch::Sender::new(RunActivity::default())).await.reap().await
        }
        Err(ran) => *ran,
    }
}

pub fn text(run: &Run) -> String {
    let mut text = String::new();
    std::io::Read::read_to_string(
        &mut flate2::read::GzDecoder::new(&run.output.gzip[..]),
        &mut text,
    )
    .expect("gzip of text");
    text
}

/// A shell script instead of a checker. Its last argument is the device node.
pub fn script(testbed: &Testbed, name: &str, body: &str) -> PathBuf {
    let path = testbed.path(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    // The testbed's directory is accessible to its owner only, but the script is run as the user
    // nobody.
    std::fs::set_permissions(testbed.path(""), std::fs::Permissions::from_mode(0o711))
        .expect("the folder's mode");
    path
}

pub fn digest(path: &Path) -> String {
    run("/usr/bin/sha256sum", &[&path])
}

/// Sectors written, from /sys/block/NAME/stat.
pub fn written(name: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat")).expect("its counters");
    stat.split_whitespace().nth(6).and_then(|sectors| sectors.parse().ok()).expect("a number")
}

pub fn btrfs(testbed: &Testbed, name: &str) -> Disk {
    let image = testbed.image(name, 256 << 20);
    run("/usr/sbin/mkfs.btrfs", &[&"-q", &image]);
    testbed.attach(&image)
}

pub fn make(testbed: &Testbed, filesystem: Filesystem) -> Disk {
    match filesystem {
        Filesystem::Ext4 => testbed.ext4("e.img", 256, &[]),
        Filesystem::Xfs => testbed.xfs("x.img"),
        Filesystem::Btrfs => btrfs(testbed, "b.img"),
    }
}

pub const ALL: [Filesystem; 3] = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];

pub fn fill(at: &Path, files: usize) {
    for number in 0..files {
        let folder = at.join(format!("d{}", number / 100));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(format!("f{number}")), vec![b'x'; number % 5000])
            .expect("a file");
    }
}

/// Ids of the processes with the argument `word`.
pub fn processes(word: &str) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split('\0').any(|part| part == word))
    })
    .collect()
}

/// The directories of the run's control group, from the lines of /proc/PID/cgroup in `text`.
pub fn groups(text: &str) -> Vec<PathBuf> {
    let found: BTreeSet<PathBuf> = text
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
        .filter(|(_, path)| path.contains("diskvitals-check-"))
        .map(|(controllers, path)| {
            let all = Path::new("/sys/fs/cgroup");
            let hierarchy = match controllers {
                "" if all.join("unified").exists() => "unified",
                controllers => controllers,
            };
            all.join(hierarchy).join(path.trim_start_matches('/'))
        })
        .collect();
    assert!(!found.is_empty(), "no control group of its own: {text}");
    found.into_iter().collect()
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
