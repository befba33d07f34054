//! Starting and refusing to start: sockets, state directories, configuration; and mount points
//! whose names are not UTF-8.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use diskvitals_wire::*;
use nix::mount::MsFlags;

use crate::support::daemon::Arguments;
use crate::support::tools::{bind, mount_device, mount_with, remount};
use crate::support::{self, Daemon, SOON, Testbed, eventually};

/// Arguments of a second daemon that shares with the first one only what the test sets.
fn second(testbed: &Testbed) -> Arguments {
    let other = testbed.path("second");
    std::fs::create_dir_all(other.join("state")).expect("a folder");
    Arguments {
        socket: other.join("s"),
        agent_socket: other.join("agent"),
        state_dir: other.join("state"),
        log: other.join("log"),
        ..Arguments::of(testbed)
    }
}

#[track_caller]
fn assert_contains(text: &str, texts: &[&str]) {
    assert!(texts.iter().all(|part| text.contains(part)), "should contain {texts:?}:\n{text}");
    assert!(!text.contains("panicked"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_on_a_live_socket_is_refused() {
    let testbed = Testbed::new();
    let first = Arguments::of(&testbed);
    let mut daemon = Daemon::start(&testbed).await;
    for arguments in [
        Arguments { socket: first.socket.clone(), ..second(&testbed) },
        Arguments { agent_socket: first.agent_socket.clone(), ..second(&testbed) },
    ] {
        let (code, text) = arguments.refused().await;
        assert_eq!(code, 1, "{text}");
        let shared = if arguments.socket == first.socket {
            &arguments.socket
        } else {
            &arguments.agent_socket
        };
        assert_contains(&text, &[shared.to_str().expect("text")]);
    }
    daemon.must_run();
    assert!(daemon.client.node().await.settled, "the first one continues");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_on_one_state_directory_is_refused() {
    let testbed = Testbed::new();
    let daemon = Daemon::start(&testbed).await;
    let arguments = Arguments { state_dir: Arguments::of(&testbed).state_dir, ..second(&testbed) };
    let (code, text) = arguments.refused().await;
    assert_eq!(code, 1, "{text}");
    assert_contains(&text, &[arguments.state_dir.to_str().expect("text")]);
    eventually("history is on disk", SOON, async || {
        (daemon.client.node().await.store == "ok").then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_socket_is_replaced_and_a_regular_file_is_not() {
    let testbed = Testbed::new();
    let arguments = Arguments::of(&testbed);
    Daemon::start(&testbed).await.kill().await;
    assert!(
        std::fs::symlink_metadata(&arguments.socket)
            .expect("left by SIGKILL")
            .file_type()
            .is_socket()
    );
    let daemon = Daemon::start(&testbed).await;
    let mode =
        std::fs::metadata(&arguments.socket).expect("the socket").permissions().mode() & 0o777;
    assert_eq!(mode & 0o007, 0, "others may not connect: {mode:o}");
    daemon.stop().await;

    std::fs::remove_file(&arguments.socket)
        .or_else(
            |error| {
                if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
            },
        )
        .expect("removes");
    std::fs::write(&arguments.socket, b"another file").expect("writes");
    let (code, text) = arguments.refused().await;
    assert_eq!(code, 1, "{text}");
    assert_contains(&text, &[arguments.socket.to_str().expect("text")]);
    assert_eq!(std::fs::read(&arguments.socket).expect("still there"), b"another file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_read_only_state_directory_history_is_in_memory() {
    let testbed = Testbed::new();
    let arguments = Arguments::of(&testbed);
    mount_with(
        Path::new("tmpfs"),
        "tmpfs",
        &arguments.state_dir,
        MsFlags::empty(),
        "size=16m,mode=0750",
    );
    remount(&arguments.state_dir, MsFlags::MS_RDONLY);
    let daemon = Daemon::start(&testbed).await;
    let node = eventually("the store has been tried", SOON, async || {
        Some(daemon.client.node().await).filter(|node| node.store != "opening")
    })
    .await;
    assert_contains(
        &node.store,
        &[arguments.state_dir.to_str().expect("text"), "Read-only file system"],
    );
    assert!(node.settled && node.drives > 0);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_database_is_set_aside() {
    let testbed = Testbed::new();
    let arguments = Arguments::of(&testbed);
    std::fs::write(
        arguments.state_dir.join("state.db"),
        [b"SQLite format 3\0".as_slice(), &[0xee; 8192]].concat(),
    )
    .expect("writes");
    let daemon = Daemon::start(&testbed).await;
    eventually("history is on disk", SOON, async || {
        (daemon.client.node().await.store == "ok").then_some(())
    })
    .await;
    let names: Vec<String> = std::fs::read_dir(&arguments.state_dir)
        .expect("reads")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(
        names.iter().any(|name| name != "state.db"
            && name.starts_with("state.db")
            && !name.ends_with("-wal")
            && !name.ends_with("-shm")),
        "{names:?}"
    );
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_path_that_is_too_long_is_a_clear_error() {
    let testbed = Testbed::new();
    let folder = testbed.path("long").join("x".repeat(100));
    std::fs::create_dir_all(&folder).expect("a folder");
    let arguments = Arguments { socket: folder.join("s"), ..Arguments::of(&testbed) };
    let (code, text) = arguments.refused().await;
    assert!(code == 1 || code == 2, "{code}: {text}");
    assert_contains(&text, &["107", folder.to_str().expect("text")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_is_named_and_does_not_exist_is_refused() {
    let testbed = Testbed::new();
    let arguments = Arguments::of(&testbed);
    if arguments.config.exists() {
        std::fs::remove_file(&arguments.config).expect("removes");
    }
    let (code, text) = arguments.refused().await;
    assert_eq!(code, 2, "a named file must be there: {text}");
    assert_contains(&text, &[arguments.config.to_str().expect("text")]);
}

/// A mount point is bytes. Bytes that are not UTF-8 are shown with the octal escapes of mountinfo.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mount_points_with_spaces_newlines_and_bytes_that_are_no_text_are_listed() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 32, &[]);
    let base = testbed.path("mnt");
    let at = base.join(OsStr::from_bytes(b"a b\nc\xff\\d\te"));
    mount_device(&disk.device, "ext4", &at, "");
    let spaced = base.join("with space");
    bind(&at, &spaced);
    let daemon = Daemon::start(&testbed).await;
    let monitor = daemon.monitor();
    let client = &daemon.client;
    let wanted =
        [format!("{}/a b\\012c\\377\\134d\\011e", base.display()), spaced.display().to_string()];
    let volume = eventually("a volume with both mounts", SOON, async || {
        client
            .volumes()
            .await
            .into_iter()
            .find(|volume| volume.mounts.iter().any(|mount| mount.path == wanted[0]))
    })
    .await;
    let mut paths: Vec<_> = volume.mounts.iter().map(|mount| mount.path.clone()).collect();
    paths.sort();
    assert_eq!(paths, wanted);
    let volume = client.normal(&volume.id).await;
    assert!(volume.usage.is_some(), "it is probed as any other: {volume:#?}");
    assert!(
        volume.id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte)),
        "{}",
        volume.id
    );
    monitor.finish().await;
    daemon.stop().await;
}

/// A damaged record is a warning that names its file: no finding, no crash, and the other volumes
/// are unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_of_the_kubelet_is_a_warning() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 32, &[]);
    let claim = support::testbed::Claim {
        driver: "d.csi.example.com",
        handle: "good",
        pv: "pvc-good",
        pod: "5e000000-0000-4000-8000-000000000001",
    };
    testbed.stage_and_publish(&disk, "ext4", "", &claim);
    let mount = testbed.kubelet.publish(
        "d.csi.example.com",
        "bad",
        "pvc-bad",
        "5e000000-0000-4000-8000-000000000002",
    );
    let record = mount.parent().expect("its folder").join("vol_data.json");
    std::fs::write(&record, b"{\"driverName\": \"d.csi").expect("writes");
    let daemon = Daemon::start(&testbed).await;
    daemon.client.normal("csi:d.csi.example.com/good").await;
    let warnings = daemon.client.node().await.warnings;
    assert!(
        warnings.iter().any(|warning| warning.contains(record.to_str().expect("text"))),
        "{warnings:?}"
    );
    assert!(daemon.client.volumes().await.iter().all(|volume| volume.handle != "bad"));
    daemon.stop().await;
}

/// SIGHUP with an invalid file: rejected, and the old settings stay. With a valid one: applied
/// without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_configuration_comes_into_force_and_a_bad_one_does_not() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 32, &[]);
    mount_device(&disk.device, "ext4", &testbed.path("mnt"), "");
    let arguments = Arguments::of(&testbed);
    let mut daemon = Daemon::start(&testbed).await;
    let id = daemon.client.drive_named(disk.name()).await.id;
    std::fs::write(&arguments.config, "[drives]\nadmit = [\"loop*\"]\nadmitt = []\n")
        .expect("writes");
    nix::sys::signal::kill(daemon.pid(), nix::sys::signal::Signal::SIGHUP).expect("SIGHUP");
    eventually("the refusal is logged", SOON, async || {
        daemon.log().contains("admitt").then_some(())
    })
    .await;
    daemon.must_run();
    assert_eq!(
        daemon.client.drive(&id).await.expect("still a drive").presence(),
        Presence::Present
    );

    let maintained = format!(
        "{}\n",
        support::daemon::config()
            .replace("[drives]", &format!("[drives]\nmaintenance = [\"{}\"]", disk.name()))
    );
    std::fs::write(&arguments.config, maintained).expect("writes");
    nix::sys::signal::kill(daemon.pid(), nix::sys::signal::Signal::SIGHUP).expect("SIGHUP");
    eventually("the drive is under maintenance", SOON, async || {
        daemon.client.drive(&id).await.is_some_and(|drive| drive.maintenance).then_some(())
    })
    .await;
    daemon.stop().await;
}
