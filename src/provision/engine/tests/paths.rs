//! Paths that do not belong to the volume are refused; recorded ones can always be left.

use super::fake::DiskContent;
use super::lifecycle::{assert_clean, fake_host};
use super::refusals::staged;
use super::*;

#[tokio::test]
async fn a_path_of_the_kubelet_itself_or_of_another_volume_is_refused_and_nothing_is_done() {
    let daemon = Daemon::ready(fake_host()).await;
    let secret = "/k/pods/u/volumes/kubernetes.io~secret/a";
    let theirs = target("theirs");
    let occupied = target("occupied");
    daemon.host.with_state(|state| {
        let record = theirs.replace("/mount", "/vol_data.json");
        let of = |driver: &str, handle: &str| (driver.to_owned(), handle.to_owned());
        state.vol_data.insert(record, of("other.csi", "fast"));
        let record = STAGING.replace("/globalmount", "/vol_data.json");
        state.vol_data.insert(record, of("csi.diskvitals.io", "another"));
        state.occupied.insert(occupied.clone());
    });
    let publish = async |target_path: &str, block: bool| {
        let request = PublishRequest {
            staging_path: None,
            target_path: target_path.into(),
            access: VolumeAccess { block, ..writer() },
            ..publish_request("fast", "a")
        };
        daemon.engine.publish(request).await.expect_err(target_path)
    };
    let stage = async |path: &str, block: bool| {
        let request = StageRequest {
            handle: "fast".into(),
            staging_path: path.into(),
            access: VolumeAccess { block, ..writer() },
        };
        daemon.engine.stage(request).await.expect_err(path)
    };
    for path in ["/k/pki", "/k/plugins", "/k/plugins_registry", "/k/pods", "/k/config.yaml", secret]
    {
        for block in [false, true] {
            for (refused, wrong) in [
                (publish(path, block).await, "target_path"),
                (stage(path, block).await, "staging_path"),
            ] {
                assert!(
                    matches!(&refused, ProvisionError::InvalidArgument { field, problem } if *field == wrong && problem.contains("is not where the kubelet")),
                    "{path}: {refused:?}"
                );
            }
        }
    }
    for (refused, why) in [
        (publish(&theirs, false).await, "vol_data.json"),
        (publish(&occupied, false).await, "not empty"),
        (stage(STAGING, false).await, "vol_data.json"),
    ] {
        assert!(
            matches!(&refused, ProvisionError::FailedPrecondition(text) if text.contains(why)),
            "{refused:?}"
        );
    }
    assert_clean(&daemon.host);
    daemon.host.with_state(|state| {
        assert_eq!(state.devices["/dev/disk/by-id/fast"].content, DiskContent::Blank)
    });
}

#[tokio::test]
async fn the_kubelets_record_gives_a_path_that_is_not_empty_to_its_volume() {
    let daemon = Daemon::ready(fake_host()).await;
    daemon.host.with_state(|state| {
        let ours = ("csi.diskvitals.io".to_owned(), "fast".to_owned());
        state.vol_data.insert(target("a").replace("/mount", "/vol_data.json"), ours);
        state.occupied.insert(target("a"));
    });
    daemon.stage("fast").await.unwrap();
    daemon.publish("fast", "a").await.unwrap();
}

#[tokio::test]
async fn paths_that_an_older_version_accepted_can_be_left() {
    let (daemon, handle) = staged().await;
    daemon.publish(&handle, "a").await.unwrap();
    let (staged, published) = ("/k/staged".to_owned(), "/k/device-plugins".to_owned());
    let fake = daemon.kill().await;
    fake.with_state(|state| {
        for (now, then) in [(STAGING, &staged), (&target("a"), &published)] {
            let mount = state.mounts.remove(now).expect("mounted");
            state.mounts.insert(then.clone(), mount);
            for text in state.records.values_mut() {
                *text = text.replace(now, then);
            }
        }
    });
    let daemon = Daemon::ready(fake).await;
    daemon.engine.unpublish(handle.clone(), published).await.unwrap();
    daemon.engine.unstage(handle.clone(), staged).await.unwrap();
    daemon.host.with_state(|state| assert!(state.mounts.is_empty(), "{:?}", state.mounts));
    daemon.engine.delete(handle).await.unwrap();
}

#[tokio::test]
async fn only_this_volumes_target_or_one_of_a_record_is_removed() {
    let (daemon, handle) = staged().await;
    let elsewhere = "/k/device-plugins".to_owned();
    daemon.host.with_state(|state| {
        let targets = [elsewhere.clone(), target("left"), target("theirs")];
        state.targets.extend(targets);
        let theirs = ("other.csi".to_owned(), "x".to_owned());
        let record = target("theirs").replace("/mount", "/vol_data.json");
        state.vol_data.insert(record, theirs);
    });
    for path in [elsewhere.clone(), target("left"), target("theirs")] {
        daemon.engine.unpublish(handle.clone(), path).await.unwrap();
    }
    daemon.host.with_state(|state| {
        assert_eq!(
            state.targets.iter().collect::<Vec<_>>(),
            [&elsewhere, &STAGING.to_owned(), &target("theirs")]
        )
    });
}
