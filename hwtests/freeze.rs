//! Holding the writers of a filesystem on the real kernel. They wait while it is frozen and
//! continue however the freeze ends: on request, at the death of the daemon, at signals, at the
//! time limit, after SIGKILL of the freezer, and after SIGKILL of both. Only the tests' own images
//! on loop devices are frozen.
mod failures;
mod fixture;
mod isolation;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use diskvitals_finding::dev::DevNo;
use diskvitals_source::checks::freezer::{FreezeError, FreezeRequest, Freezer};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use tokio::time::timeout;

use crate::support::tools::{bind, run};
use crate::support::{SOON, eventually};
use fixture::{Fixture, LONG, THAW_LIMIT, Volume, Writer, freeze, order, refused};

async fn writers_wait_and_continue(fixture: &Fixture, volume: &Volume) {
    let writer = Writer::start(volume);
    writer.continues(SOON).await;
    let frozen = freeze(fixture, volume, LONG).await;
    writer.is_held().await;
    let thawed = frozen.thaw().await;
    writer.continues(THAW_LIMIT).await;
    assert_eq!(thawed.early_reason, None);
    assert!(thawed.held >= thawed.freeze_duration + Duration::from_millis(200), "{thawed:?}");
    println!("{}: freezing took {:?}", volume.path.display(), thawed.freeze_duration);
    fixture.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_a_frozen_ext4_wait_until_it_is_thawed() {
    let fixture = Fixture::new();
    writers_wait_and_continue(&fixture, &fixture.ext4()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_a_frozen_xfs_wait_until_it_is_thawed() {
    let fixture = Fixture::new();
    writers_wait_and_continue(&fixture, &fixture.xfs()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_a_frozen_btrfs_wait_until_it_is_thawed() {
    let fixture = Fixture::new();
    writers_wait_and_continue(&fixture, &fixture.btrfs()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_guard_of_a_frozen_filesystem_thaws_it() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let writer = Writer::start(&volume);
    let frozen = freeze(&fixture, &volume, LONG).await;
    writer.is_held().await;
    drop(frozen);
    writer.continues(THAW_LIMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_a_freeze_that_is_in_progress_thaws_the_filesystem() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    for after in [0, 5, 20, 50, 100, 200] {
        let _ =
            timeout(Duration::from_millis(after), fixture.freezer().freeze(order(&volume, LONG)))
                .await;
        // The note is removed after the thaw. Before the note exists nothing is frozen, but may
        // still become so.
        eventually("it is thawed, and nothing is left of it", SOON, async || {
            let helpers = diskvitals_host::intents::find(&fixture.intents).expect("readable");
            (helpers.is_empty() && !volume.is_frozen()).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_limit_thaws_the_filesystem_and_the_run_is_discarded() {
    let fixture = Fixture::new();
    let volume = fixture.xfs();
    let writer = Writer::start(&volume);
    let mut frozen = freeze(&fixture, &volume, Duration::from_secs(1)).await;
    writer.is_held().await;
    let why = timeout(SOON, frozen.wait_thawed_early()).await.expect("thawed");
    assert!(why.contains("longer than 1.0s"), "{why}");
    writer.continues(THAW_LIMIT).await;
    let thawed = frozen.thaw().await;
    assert_eq!(thawed.early_reason, Some(why));
    assert!(
        thawed.held >= Duration::from_secs(1) && thawed.held < Duration::from_secs(10),
        "{thawed:?}"
    );
    fixture.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_termination_signal_thaws_the_filesystem() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let writer = Writer::start(&volume);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        let mut frozen = freeze(&fixture, &volume, LONG).await;
        writer.is_held().await;
        kill(fixture.freezer_process(), signal).expect("sent");
        let why = timeout(SOON, frozen.wait_thawed_early()).await.expect("thawed");
        assert!(why.contains(&format!("signal {}", signal as i32)), "{why}");
        writer.continues(THAW_LIMIT).await;
        fixture.is_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filesystem_frozen_by_another_program_is_never_thawed() {
    let fixture = Fixture::new();
    for volume in [fixture.ext4(), fixture.xfs(), fixture.btrfs()] {
        let writer = Writer::start(&volume);
        run("/usr/sbin/fsfreeze", &[&"-f", &volume.path]);
        assert_eq!(
            refused(fixture.freezer(), order(&volume, LONG)).await,
            FreezeError::AlreadyFrozen
        );
        fixture.is_clean();
        assert_eq!(fixture.freezer().thaw_leftovers().await, Vec::<String>::new());
        writer.is_held().await;
        run("/usr/sbin/fsfreeze", &[&"-u", &volume.path]);
        writer.continues(THAW_LIMIT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thaw_by_another_program_is_reported() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let frozen = freeze(&fixture, &volume, LONG).await;
    run("/usr/sbin/fsfreeze", &[&"-u", &volume.path]);
    let thawed = frozen.thaw().await;
    assert_eq!(thawed.early_reason.as_deref(), Some("somebody else thawed it"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filesystems_that_thawing_depends_on_are_not_frozen() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let said = |error: FreezeError| match error {
        FreezeError::Refused(why) => why,
        other => panic!("to be refused: {other:?}"),
    };
    // The root filesystem: never frozen, because a mistake here would hang the machine. The request
    // names the wrong device number, which is refused before anything is opened.
    let root = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    let line = root.lines().find(|line| line.split(' ').nth(4) == Some("/")).expect("a root");
    let dev = line.split(' ').nth(2).expect("a number").parse().expect("a number");
    let why = said(
        refused(
            fixture.freezer(),
            FreezeRequest { mount: volume.path.as_path().into(), dev, ..order(&volume, LONG) },
        )
        .await,
    );
    assert!(why.contains("the system's root"), "{why}");

    let state = volume.path.join("state");
    std::fs::create_dir(&state).expect("a folder");
    let why = said(refused(fixture.freezer_that_needs(&[&state]), order(&volume, LONG)).await);
    assert!(why.contains("what diskvitals or the kubelet needs"), "{why}");

    let image = volume.path.join("inner.img");
    File::create(&image).and_then(|file| file.set_len(1 << 20)).expect("an image");
    let inner = fixture.testbed.attach(&image);
    let why = said(refused(fixture.freezer(), order(&volume, LONG)).await);
    assert!(why.contains(&format!("{} is made of {}", inner.name(), image.display())), "{why}");
    inner.detach();

    run(
        "/usr/bin/dd",
        &[
            &"if=/dev/zero",
            &format!("of={}", image.display()),
            &"bs=1M",
            &"count=4",
            &"status=none",
        ],
    );
    run("/usr/bin/chmod", &[&"600", &image]);
    run("/usr/sbin/mkswap", &[&image]);
    if Path::new("/proc/swaps").exists() {
        run("/usr/sbin/swapon", &[&image]);
        let refusal = refused(fixture.freezer(), order(&volume, LONG)).await;
        run("/usr/sbin/swapoff", &[&image]);
        assert!(said(refusal).contains("swaps to"));
    }

    let on_disk = Freezer { intents: fixture.testbed.path("notes"), ..fixture.freezer() };
    let why = said(refused(on_disk, order(&volume, LONG)).await);
    assert!(why.contains("is not in memory"), "{why}");
    // After all that, it can be frozen.
    assert_eq!(freeze(&fixture, &volume, LONG).await.thaw().await.early_reason, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_with_another_filesystem_or_none_is_not_frozen() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let wrong = FreezeRequest { dev: DevNo::new(259, 77), ..order(&volume, LONG) };
    let error = refused(fixture.freezer(), wrong).await;
    assert!(
        matches!(&error, FreezeError::Failed(why) if why.contains("another filesystem")),
        "{error}"
    );
    let gone = FreezeRequest {
        mount: fixture.testbed.path("mnt/none").as_path().into(),
        ..order(&volume, LONG)
    };
    let error = refused(fixture.freezer(), gone).await;
    assert!(matches!(&error, FreezeError::Failed(why) if why.contains("opening")), "{error}");
    let memory = Volume::at(fixture.testbed.path("memory"));
    let error = refused(fixture.freezer(), order(&memory, LONG)).await;
    assert!(
        matches!(&error, FreezeError::Refused(why) if why.contains("cannot be frozen")),
        "{error}"
    );
    fixture.is_clean();
    assert!(!volume.is_frozen());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bind_mount_freezes_and_thaws_its_filesystem_after_the_first_mount_is_gone() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let bound = fixture.testbed.path("mnt/bound");
    bind(&volume.path, &bound);
    let order = FreezeRequest { mount: bound.as_path().into(), ..order(&volume, LONG) };
    let writer = Writer::start(&volume);
    let frozen = fixture.freezer().freeze(order).await.expect("frozen");
    writer.is_held().await;
    // The pod's mount disappears while the filesystem is frozen, and then the freezer.
    umount2(&bound, MntFlags::MNT_DETACH).expect("unmounted");
    kill(fixture.freezer_process(), Signal::SIGKILL).expect("sent");
    writer.continues(THAW_LIMIT).await;
    let why = frozen.thaw().await.early_reason.expect("it was not asked for");
    assert!(why.contains("is thawed"), "{why}");
    fixture.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filesystem_unmounted_while_frozen_is_thawed() {
    let fixture = Fixture::new();
    let volume = fixture.xfs();
    let writer = Writer::start(&volume);
    let frozen = freeze(&fixture, &volume, LONG).await;
    writer.is_held().await;
    umount2(&volume.path, MntFlags::MNT_DETACH).expect("unmounted");
    assert_eq!(frozen.thaw().await.early_reason, None);
    writer.continues(THAW_LIMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_filesystem_without_a_mount_is_reported_with_its_remedy() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let frozen = freeze(&fixture, &volume, LONG).await;
    umount2(&volume.path, MntFlags::MNT_DETACH).expect("unmounted");
    kill(fixture.freezer_process(), Signal::SIGKILL).expect("sent");
    let why = timeout(SOON, frozen.thaw())
        .await
        .expect("an answer")
        .early_reason
        .expect("it was not asked for");
    assert!(why.contains("mount its device once more"), "{why}");
    // The note stays until an administrator thaws the filesystem.
    volume.kept.thaw().expect("it was frozen");
}

/// Several threads that create, fill, rename and remove files.
fn load(volume: &Volume) -> Vec<Writer> {
    let busy = |number: usize| {
        let writer = Writer { writes: Arc::default(), stop: Arc::default() };
        let (writes, stop, path) =
            (writer.writes.clone(), writer.stop.clone(), volume.path.clone());
        std::thread::spawn(move || {
            let content = vec![1; 16 << 10];
            while !stop.load(Ordering::Relaxed) {
                let count = writes.fetch_add(1, Ordering::Relaxed);
                let (a, b) = (
                    path.join(format!("{number}-{}", count % 200)),
                    path.join(format!("{number}-{}-b", count % 150)),
                );
                // Full from time to time: then there is less to write.
                let _ = std::fs::write(&a, &content).and_then(|()| std::fs::rename(&a, &b));
                if count % 3 == 0 {
                    let _ = std::fs::remove_file(&b);
                }
            }
        });
        writer
    };
    (0..4).map(busy).collect()
}

/// For the figures in the documentation: run alone, with `--ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn how_long_freezing_takes_idle_and_loaded() {
    let fixture = Fixture::new();
    for (name, volume) in
        [("ext4", fixture.ext4()), ("xfs", fixture.xfs()), ("btrfs", fixture.btrfs())]
    {
        for loaded in [false, true] {
            let writers = loaded.then(|| load(&volume));
            let (mut freezing, mut overhead, mut total) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..20 {
                let since = Instant::now();
                let frozen = freeze(&fixture, &volume, LONG).await;
                let thawed = frozen.thaw().await;
                assert_eq!(thawed.early_reason, None);
                total.push(since.elapsed());
                overhead.push(thawed.held - thawed.freeze_duration);
                freezing.push(thawed.freeze_duration);
            }
            drop(writers);
            let p = |mut times: Vec<Duration>| {
                times.sort();
                format!("{:.1?}/{:.1?}", times[times.len() / 2], times[times.len() - 1])
            };
            println!(
                "{name} loaded={loaded}: FIFREEZE p50/max {}, held beyond {}, whole {}",
                p(freezing),
                p(overhead),
                p(total)
            );
        }
    }
}
