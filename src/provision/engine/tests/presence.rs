//! Static volumes whose device or directory is not there.

use super::fake::{FakeHost, InjectedFault, PoolDisk};
use super::lifecycle::fake_host;
use super::*;
use crate::step::StepErrorKind;
use diskvitals_finding::provision::VolumePresence;

const FAST: &str = "/dev/disk/by-id/fast";
const NAMES: [&str; 2] = ["fast", "scratch"];
/// Each with its pod.
const USES: [(&str, &str); 2] = [("fast", "a"), ("scratch", "b")];

/// Neither the device nor the directory is there.
fn pull(fake: &FakeHost) {
    fake.with_state(|state| {
        state.devices.clear();
        state.folders.clear();
    });
}

fn presence(daemon: &Daemon) -> [VolumePresence; 2] {
    NAMES.map(|name| daemon.engine.view().find(name).expect(name).provided.presence)
}

async fn restart(daemon: Daemon) -> Daemon {
    let daemon = Daemon::start(daemon.kill().await);
    daemon.wait_recovered().await;
    daemon
}

#[tokio::test(start_paused = true)]
async fn what_was_never_here_is_absent_and_what_is_expected_is_missing() {
    let fake = fake_host();
    pull(&fake);
    let daemon = restart(Daemon::ready(fake).await).await;
    assert_eq!(presence(&daemon), [VolumePresence::Absent; 2]);
    assert!(daemon.host.with_state(|state| state.records.is_empty()), "a look records nothing");
    let mut settings = settings();
    settings.static_volumes.iter_mut().for_each(|entry| entry.expected = true);
    daemon.settings.send_replace(Arc::new(settings.clone()));
    daemon.engine.rescan().await;
    assert_eq!(presence(&daemon), [VolumePresence::Missing; 2]);
    let daemon = Daemon::start_with(daemon.kill().await, settings);
    daemon.wait_recovered().await;
    assert_eq!(presence(&daemon), [VolumePresence::Missing; 2], "dead at the first start");
}

#[tokio::test(start_paused = true)]
async fn what_was_here_once_is_missing_over_restarts_until_it_returns() {
    let daemon = Daemon::ready(fake_host()).await;
    assert_eq!(presence(&daemon), [VolumePresence::Present; 2]);
    pull(&daemon.host);
    daemon.engine.rescan().await;
    assert_eq!(presence(&daemon), [VolumePresence::Missing; 2]);
    let daemon = restart(restart(daemon).await).await;
    assert_eq!(presence(&daemon), [VolumePresence::Missing; 2]);
    let there = fake_host().with_state(|state| state.devices[FAST].clone());
    daemon.host.with_state(|state| state.devices.insert(FAST.into(), there));
    daemon.engine.rescan().await;
    assert_eq!(presence(&daemon), [VolumePresence::Present, VolumePresence::Missing]);
    // Another device of the same name never was here.
    let mut settings = settings();
    settings.static_volumes[0].path = "/dev/disk/by-id/other".into();
    let daemon = Daemon::start_with(daemon.kill().await, settings);
    daemon.wait_recovered().await;
    assert_eq!(presence(&daemon), [VolumePresence::Absent, VolumePresence::Missing]);
}

#[tokio::test(start_paused = true)]
async fn a_record_or_a_publication_of_an_earlier_version_says_that_it_was_here() {
    let daemon = Daemon::ready(fake_host()).await;
    for (number, (handle, pod)) in USES.into_iter().enumerate() {
        let (staging_path, access) = (staging(number), writer());
        let stage = StageRequest { handle: handle.into(), staging_path, access };
        daemon.engine.stage(stage).await.unwrap();
        let staging_path = Some(staging(number));
        let request = PublishRequest { staging_path, ..publish_request(handle, pod) };
        daemon.engine.publish(request).await.unwrap();
    }
    let fake = daemon.kill().await;
    // The directory has no record of formatting, as before.
    fake.with_state(|state| {
        state.records.remove("/pool/formats/scratch.json");
        let fast = state.records.get_mut("/pool/formats/fast.json").expect("a record");
        let mut record: serde_json::Value = serde_json::from_str(fast).expect("JSON");
        assert!(record.as_object_mut().expect("an object").remove("seen").is_some());
        *fast = record.to_string();
    });
    pull(&fake);
    let daemon = Daemon::start(fake);
    daemon.wait_recovered().await;
    for (number, (handle, pod)) in USES.into_iter().enumerate() {
        daemon.unpublish(handle, pod).await.unwrap();
        daemon.engine.unstage(handle.into(), staging(number)).await.unwrap();
    }
    let daemon = restart(daemon).await;
    assert_eq!(presence(&daemon), [VolumePresence::Missing; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_takes_no_record_takes_it_later() {
    let fake = fake_host();
    fake.with_state(|state| state.pool_disk = PoolDisk::ReadOnly);
    let daemon = Daemon::ready(fake).await;
    assert_eq!(presence(&daemon), [VolumePresence::Present; 2]);
    pull(&daemon.host);
    daemon.engine.rescan().await;
    assert_eq!(presence(&daemon), [VolumePresence::Missing; 2]);
    assert!(daemon.host.with_state(|state| state.records.is_empty()));
    let good = fake_host().with_state(|state| (state.devices.clone(), state.folders.clone()));
    daemon.host.with_state(|state| {
        state.pool_disk = PoolDisk::Good;
        (state.devices, state.folders) = good;
    });
    daemon.engine.rescan().await;
    pull(&daemon.host);
    assert_eq!(presence(&restart(daemon).await), [VolumePresence::Missing; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_is_not_an_absence() {
    let fake = fake_host();
    pull(&fake);
    let daemon = Daemon::ready(fake).await;
    daemon.host.inject_at(0, InjectedFault::Fail(StepErrorKind::Other));
    daemon.engine.rescan().await;
    let known = presence(&daemon);
    assert!(known.contains(&VolumePresence::Missing), "{known:?}");
}
