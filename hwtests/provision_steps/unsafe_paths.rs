//! Paths that lead elsewhere (links, `..`): nothing is created, mounted or removed there.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use diskvitals::provision::step::{BindSource, RootedPath, Step, StepErrorKind};

use super::fixture::{Fixture, MIB, mount, path};

fn mounts_below(dir: &std::path::Path) -> usize {
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    text.lines()
        .filter(|line| {
            line.split(' ')
                .nth(4)
                .is_some_and(|at| std::path::Path::new(at).starts_with(dir))
        })
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn symlinks_and_dot_dot_are_refused_by_every_step_that_takes_a_path() {
    let fixture = Fixture::new();
    let loop_device = fixture.attached("v.img", 64 * MIB).await;
    fixture
        .run(super::fixture::format(&loop_device, "ext4"))
        .await
        .expect("blank");
    fixture
        .twice(mount(&loop_device, fixture.target("staged"), "ext4", false))
        .await;
    let staged = |place: RootedPath| BindSource::Staged {
        place,
        device: loop_device.node.clone(),
    };
    let elsewhere = fixture.testbed.path("elsewhere");
    std::fs::create_dir_all(elsewhere.join("empty")).expect("a folder");
    symlink(&elsewhere, fixture.at("folder")).expect("a link");
    symlink(elsewhere.join("empty"), fixture.at("target")).expect("a link");
    let mut places: Vec<RootedPath> = [
        "folder/empty",
        "target",
        "../elsewhere/empty",
        "a/../../elsewhere/empty",
    ]
    .map(|below| fixture.target(below))
    .into();
    places.push(RootedPath {
        path: path(&elsewhere.join("empty")),
        ..fixture.target("x")
    });
    for place in places {
        let source = staged(fixture.target("staged"));
        for step in [
            mount(&loop_device, place.clone(), "ext4", false),
            Step::Bind {
                source: source.clone(),
                target: place.clone(),
                read_only: false,
            },
            Step::Bind {
                source: staged(place.clone()),
                target: fixture.target("pod"),
                read_only: false,
            },
            Step::BindDevice {
                device: loop_device.node.clone(),
                target: place.clone(),
                read_only: false,
            },
            Step::Unmount {
                target: place.clone(),
                lazy: false,
            },
            Step::RemoveTarget {
                target: place.clone(),
            },
            Step::FindMount {
                target: place.clone(),
            },
        ] {
            let (kind, why) = fixture.refused(step.clone()).await;
            assert_eq!(kind, StepErrorKind::InvalidPath, "{step:?}: {why}");
        }
    }
    assert_eq!(mounts_below(&elsewhere), 0);
    assert!(elsewhere.join("empty").is_dir());
    assert!(!fixture.at("pod").exists());
    let bare = Step::Bind {
        source: staged(fixture.target("bare")),
        target: fixture.target("pod"),
        read_only: false,
    };
    std::fs::create_dir(fixture.at("bare")).expect("a folder");
    assert_eq!(
        fixture.refused(bare).await.0,
        StepErrorKind::NotFound,
        "nothing is mounted there: the host's own disk is not shown"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_swapped_for_a_symlink_in_a_race_redirects_no_step() {
    let fixture = Fixture::new();
    let elsewhere = fixture.testbed.path("elsewhere");
    let shown = fixture.testbed.path("images");
    std::fs::create_dir_all(elsewhere.join("pod")).expect("a folder");
    let over = Arc::new(AtomicBool::new(false));
    let swapping = std::thread::spawn({
        let (over, at, aside, elsewhere) = (
            over.clone(),
            fixture.at("a"),
            fixture.at("aside"),
            elsewhere.clone(),
        );
        move || {
            std::fs::create_dir_all(&at).expect("a folder");
            while !over.load(Ordering::Relaxed) {
                // Also acceptable: the step is refused while a mount moves with the directory.
                std::fs::rename(&at, &aside).ok();
                symlink(&elsewhere, &at).ok();
                std::fs::remove_file(&at).ok();
                std::fs::rename(&aside, &at).ok();
            }
        }
    });
    let (mut done, mut refused) = (0, 0);
    for _ in 0..150 {
        let source = BindSource::Directory { path: path(&shown) };
        match fixture
            .run(Step::Bind {
                source,
                target: fixture.target("a/pod"),
                read_only: false,
            })
            .await
        {
            Ok(_) => done += 1,
            Err(_) => refused += 1,
        }
        assert_eq!(mounts_below(&elsewhere), 0);
        // One of these finds the mount where it is; the fixture removes the rest.
        fixture
            .run(Step::Unmount {
                target: fixture.target("a/pod"),
                lazy: false,
            })
            .await
            .ok();
        assert_eq!(std::fs::read_dir(&elsewhere).expect("elsewhere").count(), 1);
    }
    over.store(true, Ordering::Relaxed);
    swapping.join().expect("the swapping thread");
    assert!(done + refused == 150, "{done} done, {refused} refused");
}
