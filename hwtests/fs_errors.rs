//! Filesystem errors as the kernel reports them (fanotify, FAN_FS_ERROR), received by the helper
//! process that the daemon runs.

use std::path::Path;
use std::time::Duration;

use diskvitals_finding::dev::DevNo;
use diskvitals_host::helper::{Helper, Program};
use diskvitals_host::root::HostRoot;
use diskvitals_model::source_update::FsErrorNotice;
use diskvitals_source::fs_errors::protocol::{Filesystem, HelperMessage, MarkRequest, MarkResult};
use diskvitals_source::worker_main::{WorkerRole, arguments};
use diskvitals_wire::source_state::State;
use tokio::time::timeout;

use crate::programs::built_program;
use crate::support::tools::{mount_device, umount};
use crate::support::{Daemon, Disk, FuseServer, Mode, SOON, Testbed, damage, eventually, pause};

const EFSCORRUPTED: i32 = nix::libc::EUCLEAN;

/// The helper, which has reported its start without an error.
async fn helper() -> Helper {
    let program = Program {
        program: built_program("diskvitalsd").into(),
        args: arguments(WorkerRole::FsErrors, &HostRoot::new("/")),
    };
    let mut helper = Helper::start(&program).await.expect("starts");
    assert_eq!(hear(&mut helper).await, HelperMessage::Hello { limitations: Vec::new() });
    helper
}

async fn hear(helper: &mut Helper) -> HelperMessage {
    timeout(SOON, helper.recv()).await.expect("something is said").expect("it lives")
}

async fn want(helper: &mut Helper, wanted: &[(DevNo, &Path)]) {
    let filesystem = |(dev, path): &(DevNo, &Path)| Filesystem {
        dev: *dev,
        kind: "ext4".into(),
        paths: vec![(*path).into()],
    };
    helper
        .send(&MarkRequest { filesystems: wanted.iter().map(filesystem).collect() })
        .await
        .expect("it listens");
}

async fn error(helper: &mut Helper) -> FsErrorNotice {
    match hear(helper).await {
        HelperMessage::Error { error } => error,
        other => panic!("an error was to be told: {other:?}"),
    }
}

fn dev(path: &Path) -> DevNo {
    use std::os::unix::fs::MetadataExt;
    let data = std::fs::metadata(path).expect("there");
    let number = if path.is_dir() { data.dev() } else { data.rdev() };
    let part = |number: u64| u32::try_from(number).expect("a device number");
    DevNo::new(part(nix::sys::stat::major(number)), part(nix::sys::stat::minor(number)))
}

/// ext4 has an error, triggered as its own tests do.
fn trigger(disk: &Disk) {
    std::fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", disk.name()), "by a test")
        .expect("ext4 has an error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_a_damaged_ext4_folder_reports_its_inode() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 64, &["-b", "4096", "-O", "^metadata_csum"]);
    let mnt = testbed.path("mnt/e");
    mount_device(&disk.device, "ext4", &mnt, "");
    std::fs::create_dir(mnt.join("folder")).expect("a folder");
    umount(&mnt);
    let inode = damage::ext4_folder(&disk, "/folder");
    mount_device(&disk.device, "ext4", &mnt, "errors=continue");
    let dev = dev(&disk.device);

    let mut helper = helper().await;
    want(&mut helper, &[(dev, &mnt)]).await;
    assert_eq!(hear(&mut helper).await, HelperMessage::Mark { dev, mark: MarkResult::Set });
    std::fs::read_dir(mnt.join("folder")).expect("opens").for_each(drop);
    let error = error(&mut helper).await;
    assert_eq!(
        (error.dev, error.errno, error.inode),
        (dev, EFSCORRUPTED, Some(inode)),
        "{error:?}"
    );
    assert_eq!(error.path.as_path(), mnt);
    assert!(error.count >= 1);
    // It keeps no mount busy.
    umount(&mnt);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_filesystem_are_distinguished_and_a_new_mount_is_marked_again() {
    let testbed = Testbed::new();
    let first = testbed.ext4("a.img", 32, &[]);
    let copy = testbed.path("images/b.img");
    std::fs::copy(&first.image, &copy).expect("a copy");
    let second = testbed.attach(&copy);
    let (a, b) = (testbed.path("mnt/a"), testbed.path("mnt/b"));
    mount_device(&first.device, "ext4", &a, "errors=continue");
    mount_device(&second.device, "ext4", &b, "errors=continue");
    let wanted = [(dev(&first.device), a.as_path()), (dev(&second.device), b.as_path())];

    let mut helper = helper().await;
    want(&mut helper, &wanted).await;
    for (dev, _) in wanted {
        assert_eq!(hear(&mut helper).await, HelperMessage::Mark { dev, mark: MarkResult::Set });
    }
    for (disk, (dev, path)) in [(&second, wanted[1]), (&first, wanted[0])] {
        trigger(disk);
        let error = error(&mut helper).await;
        assert_eq!(
            (error.dev, error.path.as_path(), error.errno, error.inode),
            (dev, path, EFSCORRUPTED, None),
            "{error:?}"
        );
    }

    umount(&a);
    mount_device(&first.device, "ext4", &a, "errors=continue");
    want(&mut helper, &wanted).await;
    // Unchanged state is not reported, so the first message is the error, once the mark exists.
    let triggered_again_and_again = async {
        loop {
            pause(Duration::from_millis(500)).await;
            trigger(&first);
        }
    };
    let told = tokio::select! {
        told = error(&mut helper) => told,
        () = triggered_again_and_again => unreachable!("it goes on"),
    };
    assert_eq!(told.dev, wanted[0].0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_mount_delays_neither_marks_nor_events_of_others() {
    let testbed = Testbed::new();
    let (before, after) = (testbed.ext4("a.img", 32, &[]), testbed.ext4("b.img", 32, &[]));
    let (a, b, dead) = (testbed.path("mnt/a"), testbed.path("mnt/b"), testbed.path("mnt/dead"));
    mount_device(&before.device, "ext4", &a, "errors=continue");
    mount_device(&after.device, "ext4", &b, "errors=continue");
    let served = FuseServer::mount(&dead, &testbed.image("f.img", 1 << 20));
    let nobody = dev(&dead);
    served.set(Mode::Hang);

    let mut helper = helper().await;
    want(&mut helper, &[(dev(&before.device), &a), (nobody, &dead), (dev(&after.device), &b)])
        .await;
    assert_eq!(
        hear(&mut helper).await,
        HelperMessage::Mark { dev: dev(&before.device), mark: MarkResult::Set }
    );
    trigger(&before);
    assert_eq!(error(&mut helper).await.dev, dev(&before.device));
    assert_eq!(
        hear(&mut helper).await,
        HelperMessage::Mark { dev: nobody, mark: MarkResult::Stuck }
    );
    assert_eq!(
        hear(&mut helper).await,
        HelperMessage::Mark { dev: dev(&after.device), mark: MarkResult::Set }
    );
    trigger(&after);
    assert_eq!(error(&mut helper).await.dev, dev(&after.device));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filesystem_that_cannot_be_marked_is_reported_with_the_reason() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 32, &[]);
    let mut helper = helper().await;
    // Nothing is mounted there: the path belongs to another filesystem.
    let (dev, path) = (dev(&disk.device), testbed.path("mnt"));
    want(&mut helper, &[(dev, &path)]).await;
    let said = hear(&mut helper).await;
    assert!(
        matches!(
            &said,
            HelperMessage::Mark { mark: MarkResult::Refused { errno: nix::libc::ESTALE, .. }, .. }
        ),
        "{said:?}"
    );
}

/// Each thread of the daemon has its own list of children.
fn helper_of(daemon: nix::unistd::Pid) -> i32 {
    let tasks = std::fs::read_dir(format!("/proc/{daemon}/task")).expect("its threads");
    let children = tasks.flat_map(|task| {
        std::fs::read_to_string(task.expect("a thread").path().join("children"))
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let is_helper = |pid: &String| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"fs-errors")
    };
    children.filter(is_helper).find_map(|pid| pid.parse().ok()).expect("a helper")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_lists_watched_filesystems_and_restarts_its_helper() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 32, &[]);
    let mnt = testbed.path("mnt/e");
    mount_device(&disk.device, "ext4", &mnt, "");
    let daemon = Daemon::start(&testbed).await;
    let is = async |state: State, text: &str| {
        eventually(text, SOON, async || {
            let sources = daemon.client.node().await.sources;
            sources.into_iter().find(|source| {
                source.name == "fs-errors"
                    && source.state() == state
                    && source.detail.contains(text)
            })
        })
        .await
    };
    is(State::Active, " ext4").await;
    let helper = helper_of(daemon.pid());
    let pid = nix::unistd::Pid::from_raw(helper);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
    is(State::Down, "started again").await;
    is(State::Active, " ext4").await;
    assert!(daemon.stop().await < Duration::from_secs(10));
}
