//! Paths that lead elsewhere (links, `..`): nothing is created, mounted or removed there.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use diskvitals_provision::step::{BindSource, PathOwner, RootedPath, Step, StepErrorKind};

use super::fixture::{DRIVER, Fixture, MIB, mount, owned, path};

fn mounts_below(dir: &std::path::Path) -> usize {
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    text.lines()
        .filter(|line| {
            line.split(' ').nth(4).is_some_and(|at| std::path::Path::new(at).starts_with(dir))
        })
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn symlinks_and_dot_dot_are_refused_by_every_step_that_takes_a_path() {
    let fixture = Fixture::new();
    let loop_device = fixture.attached("v.img", 64 * MIB).await;
    fixture.run(super::fixture::format(&loop_device, "ext4")).await.expect("blank");
    fixture.twice(mount(&loop_device, fixture.target("staged"), "ext4", false)).await;
    let staged = |place: RootedPath| BindSource::Staged { place, device: loop_device.node.clone() };
    let elsewhere = fixture.testbed.path("elsewhere");
    std::fs::create_dir_all(elsewhere.join("empty")).expect("a folder");
    let folder = "volumes/kubernetes.io~csi/pv";
    std::fs::create_dir_all(elsewhere.join("pod").join(folder)).expect("a folder");
    let root = fixture.testbed.path("mnt");
    std::fs::create_dir(root.join("pods")).expect("the pods");
    symlink(elsewhere.join("pod"), root.join("pods/folder")).expect("a link");
    symlink(elsewhere.join("empty"), fixture.target("target").path.as_path()).expect("a link");
    let places = [
        root.join("pods/folder").join(folder).join("mount"),
        fixture.at("target"),
        root.join("../elsewhere/empty"),
        root.join("a/../../elsewhere/empty"),
        elsewhere.join("empty"),
    ]
    .map(|at| RootedPath { path: path(&at), root: path(&root) });
    for place in places {
        let source = staged(fixture.target("staged"));
        for step in [
            mount(&loop_device, place.clone(), "ext4", false),
            Step::Bind { source: source.clone(), target: owned(place.clone()), read_only: false },
            Step::Bind {
                source: staged(place.clone()),
                target: fixture.owned("pod"),
                read_only: false,
            },
            Step::BindDevice {
                device: loop_device.node.clone(),
                target: owned(place.clone()),
                read_only: false,
            },
            Step::Unmount { target: place.clone(), lazy: false },
            Step::RemoveTarget { target: place.clone(), owner: None },
            Step::FindMount { target: place.clone(), folder: None },
        ] {
            let (kind, why) = fixture.refused(step.clone()).await;
            assert_eq!(kind, StepErrorKind::InvalidPath, "{step:?}: {why}");
        }
    }
    assert_eq!(mounts_below(&elsewhere), 0);
    assert!(elsewhere.join("empty").is_dir());
    assert!(!elsewhere.join("pod").join(folder).join("mount").exists());
    assert!(!fixture.at("pod").exists());
    let bare = Step::Bind {
        source: staged(fixture.target("bare")),
        target: fixture.owned("pod"),
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
    let below = "volumes/kubernetes.io~csi/pv";
    std::fs::create_dir_all(elsewhere.join(below).join("mount")).expect("a folder");
    let target = fixture.owned("a");
    let pods = fixture.testbed.path("mnt/pods");
    let over = Arc::new(AtomicBool::new(false));
    let swapping = std::thread::spawn({
        let (over, at, aside, elsewhere) =
            (over.clone(), pods.join("a"), pods.join("aside"), elsewhere.clone());
        move || {
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
        match fixture.run(Step::Bind { source, target: target.clone(), read_only: false }).await {
            Ok(_) => done += 1,
            Err(_) => refused += 1,
        }
        assert_eq!(mounts_below(&elsewhere), 0);
        // One of these finds the mount where it is; the fixture removes the rest.
        fixture.run(Step::Unmount { target: target.place.clone(), lazy: false }).await.ok();
        assert_eq!(std::fs::read_dir(&elsewhere).expect("elsewhere").count(), 1);
    }
    over.store(true, Ordering::Relaxed);
    swapping.join().expect("the swapping thread");
    assert!(done + refused == 150, "{done} done, {refused} refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_kubelets_record_or_an_empty_path_of_its_form_gives_a_path_to_a_volume() {
    let fixture = Fixture::new();
    let bind = |target| Step::Bind {
        source: BindSource::Directory { path: path(&fixture.testbed.path("images")) },
        target,
        read_only: false,
    };
    let root = fixture.testbed.path("mnt");
    for below in ["pki", "plugins_registry", "pods/u/volumes/kubernetes.io~secret/a"] {
        let at = root.join(below);
        std::fs::create_dir_all(&at).expect("a folder");
        let place = RootedPath { path: path(&at), root: path(&root) };
        for step in [Step::CheckTarget { target: owned(place.clone()) }, bind(owned(place.clone()))]
        {
            let (kind, why) = fixture.refused(step).await;
            assert!(
                kind == StepErrorKind::InvalidPath && why.contains("is not where the kubelet"),
                "{why}"
            );
        }
    }
    std::fs::write(root.join("config.yaml"), "").expect("a file");
    let device = fixture.attached("v.img", 8 * MIB).await;
    let place = RootedPath { path: path(&root.join("config.yaml")), root: path(&root) };
    let step =
        Step::BindDevice { device: device.node.clone(), target: owned(place), read_only: false };
    assert_eq!(fixture.refused(step).await.0, StepErrorKind::InvalidPath);

    let target = fixture.owned("pod");
    let record = fixture.at("pod").with_file_name("vol_data.json");
    let write = |handle: &str| {
        let text =
            format!(r#"{{"driverName":"{DRIVER}","volumeHandle":"{handle}","specVolID":"pv"}}"#);
        std::fs::write(&record, text).expect("the record");
    };
    let refused = async |reason: &str| {
        for step in [Step::CheckTarget { target: target.clone() }, bind(target.clone())] {
            let (kind, why) = fixture.refused(step).await;
            assert!(kind == StepErrorKind::ForeignData && why.contains(reason), "{why}");
        }
    };
    write("another");
    refused("gives it to volume another").await;
    assert!(!fixture.at("pod").exists(), "nothing is made");
    let theirs =
        Step::RemoveTarget { target: target.place.clone(), owner: Some(target.owner.clone()) };
    std::fs::create_dir(fixture.at("pod")).expect("a folder");
    fixture.twice(theirs.clone()).await;
    assert!(fixture.at("pod").is_dir(), "another volume's target stays");
    std::fs::write(&record, "{").expect("the record");
    refused("is no record of the kubelet").await;
    std::fs::write(&record, vec![b' '; 70_000]).expect("the record");
    refused("longer than a record").await;

    // A record that others can write proves nothing: the path must be empty.
    std::fs::write(fixture.at("pod/file"), "x").expect("a file");
    write("v");
    let permit = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&record, mode).expect("its mode");
    };
    permit(0o666);
    refused("is not empty").await;
    permit(0o644);
    std::os::unix::fs::chown(&record, Some(65532), None).expect("its owner");
    refused("is not empty").await;
    std::os::unix::fs::chown(&record, Some(0), None).expect("its owner");
    let link = record.with_file_name("own.json");
    std::fs::rename(&record, &link).expect("the record");
    symlink(&link, &record).expect("a link");
    refused("is not empty").await;
    std::fs::remove_file(&record).expect("the link");
    refused("is not empty").await;
    std::fs::rename(&link, &record).expect("the record");
    fixture.twice(bind(target.clone())).await;
    std::fs::remove_file(&record).expect("the record");
    fixture.twice(bind(target.clone())).await;
    let other = PathOwner { handle: "w".to_owned(), ..target.owner.clone() };
    let elsewhere = Step::Bind {
        source: BindSource::Directory { path: path(&root.join("pki")) },
        target: diskvitals_provision::step::OwnedPath { owner: other, ..target.clone() },
        read_only: false,
    };
    assert_eq!(fixture.refused(elsewhere).await.0, StepErrorKind::AlreadyExists);
}
