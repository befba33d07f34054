//! Nothing is formatted on a sample: only what is new by our record, what read as zero, or what root
//! permits.

use super::fake::{DiskContent, FakeHost, HIDDEN_AT, InjectedFault};
use super::lifecycle::fake_host;
use super::*;
use crate::step::StepErrorKind;

const FAST: &str = "/dev/disk/by-id/fast";
const RECORD: &str = "/pool/formats/fast.json";

fn with_fast(content: DiskContent) -> FakeHost {
    let fake = fake_host();
    fake.with_state(|state| state.devices.get_mut(FAST).unwrap().content = content);
    fake
}

fn content(fake: &FakeHost) -> DiskContent {
    fake.with_state(|state| state.devices[FAST].content.clone())
}

fn count(fake: &FakeHost, step: &str) -> usize {
    fake.with_state(|state| {
        let steps = state.executed.iter();
        steps.filter(|executed| executed.starts_with(step)).count()
    })
}

#[tokio::test]
async fn a_device_with_data_between_the_samples_is_not_formatted() {
    let daemon = Daemon::ready(with_fast(DiskContent::Hidden)).await;
    for _ in 0..2 {
        let refused = daemon.stage("fast").await.unwrap_err();
        assert!(
            matches!(&refused, ProvisionError::FailedPrecondition(why)
                if why.contains(&format!("at byte {HIDDEN_AT}")) && why.contains("diskvitals format-authorize fast")),
            "{refused:?}"
        );
    }
    assert_eq!(content(&daemon.host), DiskContent::Hidden);
    assert_eq!(count(&daemon.host, "Format"), 0);
    // Somebody has cleared it.
    daemon
        .host
        .with_state(|state| state.devices.get_mut(FAST).unwrap().content = DiskContent::Blank);
    daemon.stage("fast").await.unwrap();
}

#[tokio::test]
async fn a_large_device_is_read_in_the_background_and_formatted_when_all_of_it_is_zero() {
    let fake = with_fast(DiskContent::Blank);
    fake.with_state(|state| state.scan_part = 128 << 20);
    let daemon = Daemon::ready(fake).await;
    let waiting = daemon.stage("fast").await.unwrap_err();
    assert!(
        matches!(&waiting, ProvisionError::Unavailable(why) if why.contains("12 % of 1073741824 bytes")),
        "{waiting:?}"
    );
    let scanned = |state: &mut super::fake::HostState| {
        let text = state.records[RECORD].clone();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["scan"]["position"]
            .as_u64()
            .unwrap()
    };
    while daemon.host.with_state(scanned) < 512 << 20 {
        tokio::task::yield_now().await;
    }
    // The next daemon goes on where the last one was killed.
    let fake = daemon.kill().await;
    let before = count(&fake, "Scan");
    let daemon = Daemon::ready(fake).await;
    while daemon.host.with_state(scanned) < 1 << 30 {
        tokio::task::yield_now().await;
    }
    assert!(count(&daemon.host, "Scan") - before <= 5);
    daemon.stage("fast").await.unwrap();
    assert_eq!(content(&daemon.host), DiskContent::Filesystem("ext4".into()));
}

#[tokio::test]
async fn a_volume_of_the_pool_is_new_until_it_is_used() {
    for kind in [BackingKind::Loop, BackingKind::Lvm] {
        let daemon = Daemon::ready(fake_host()).await;
        let request = CreateRequest { kind: Some(kind), ..create_request("pvc-1") };
        let handle = daemon.engine.create(request).await.unwrap().provided.handle;
        let record = format!("/pool/formats/{handle}.json");
        let is_new = |state: &mut super::fake::HostState| state.records.contains_key(&record);
        assert!(daemon.host.with_state(is_new));
        daemon.stage(&handle).await.unwrap();
        assert!(!daemon.host.with_state(is_new));
        assert_eq!(count(&daemon.host, "Scan"), 0);
        daemon.unstage(&handle).await.unwrap();
        // Whatever has cleared it, the record says no longer that it is new.
        daemon.host.with_state(|state| {
            let logical = state.logical.values_mut().map(|(image, _)| image);
            for image in state.images.values_mut().chain(logical) {
                image.content = DiskContent::Hidden;
            }
        });
        let daemon = Daemon::ready(daemon.kill().await).await;
        assert!(
            matches!(daemon.stage(&handle).await, Err(ProvisionError::FailedPrecondition(why)) if why.contains("format-authorize"))
        );
        daemon.engine.delete(handle).await.unwrap();
    }
}

#[tokio::test]
async fn root_permits_one_format_of_one_device() {
    for there in [DiskContent::Hidden, DiskContent::InterruptedMkfs] {
        let daemon = Daemon::ready(with_fast(there.clone())).await;
        let authorize = async |revoke| daemon.engine.authorize_format("fast".into(), revoke).await;
        authorize(false).await.unwrap();
        let seen = daemon.engine.view().find("fast").unwrap().authorization.clone();
        assert_eq!(seen.unwrap().device.name.as_deref(), Some("wwid naa.5000"));
        authorize(true).await.unwrap();
        assert!(daemon.stage("fast").await.is_err(), "revoked");
        authorize(false).await.unwrap();
        daemon.host.with_state(|state| {
            state.devices.get_mut(FAST).unwrap().identity = Some("wwid naa.6000".into());
        });
        assert!(daemon.stage("fast").await.is_err(), "another device");
        daemon.host.with_state(|state| {
            state.devices.get_mut(FAST).unwrap().identity = Some("wwid naa.5000".into());
        });
        // A mkfs that did not begin leaves the permission, also over a restart.
        daemon.host.inject_at_format(InjectedFault::Fail(StepErrorKind::InUse));
        assert!(daemon.stage("fast").await.is_err());
        let daemon = Daemon::ready(daemon.kill().await).await;
        daemon.stage("fast").await.unwrap();
        daemon.unstage("fast").await.unwrap();
        let record = daemon.host.with_state(|state| state.records[RECORD].clone());
        assert!(record.contains("\"permitted_by\": \"authorization\""), "{record}");
        daemon
            .host
            .with_state(|state| state.devices.get_mut(FAST).unwrap().content = there.clone());
        assert!(daemon.stage("fast").await.is_err(), "it was used");
        assert_eq!(count(&daemon.host, "Format"), 2);
    }
}

#[tokio::test]
async fn a_new_volume_with_unknown_data_needs_the_permission_too() {
    let daemon = Daemon::ready(fake_host()).await;
    let handle = daemon.create("pvc-1").await.unwrap();
    daemon.host.with_state(|state| {
        let image = state.images.values_mut().next().unwrap();
        image.content = DiskContent::InterruptedMkfs;
    });
    assert!(
        matches!(daemon.stage(&handle).await, Err(ProvisionError::FailedPrecondition(why)) if why.contains("format-authorize"))
    );
    let permitted = daemon.engine.authorize_format(handle.clone(), false).await;
    permitted.unwrap();
    daemon.stage(&handle).await.unwrap();
}

#[tokio::test]
async fn an_attached_volume_a_folder_and_a_signature_are_not_formatted_by_permission() {
    let daemon = Daemon::ready(with_fast(DiskContent::Foreign)).await;
    daemon.engine.authorize_format("fast".into(), false).await.unwrap();
    assert!(daemon.stage("fast").await.is_err());
    assert_eq!(content(&daemon.host), DiskContent::Foreign);
    let refused = daemon.engine.authorize_format("scratch".into(), false).await;
    assert!(
        matches!(refused, Err(ProvisionError::FailedPrecondition(why)) if why.contains("is a folder"))
    );
    let handle = daemon.create("pvc-1").await.unwrap();
    daemon.stage(&handle).await.unwrap();
    let refused = daemon.engine.authorize_format(handle, false).await;
    assert!(
        matches!(refused, Err(ProvisionError::FailedPrecondition(why)) if why.contains("staged at"))
    );
    assert!(matches!(
        daemon.engine.authorize_format("dv-none".into(), false).await,
        Err(ProvisionError::NotFound(_))
    ));
}
