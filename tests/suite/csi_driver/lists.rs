//! Paged lists, and foreign tokens.

use diskvitals_csi::wire;
use diskvitals_wire as daemon;
use tonic::Code;

use super::*;

async fn ids(shim: &Shim, max_entries: i32) -> Vec<String> {
    let (mut ids, mut starting_token) = (Vec::new(), String::new());
    loop {
        let request = wire::ListVolumesRequest { max_entries, starting_token };
        let page = shim.controller().list_volumes(request).await.expect("a page").into_inner();
        assert!(
            max_entries == 0
                || page.entries.len() <= usize::try_from(max_entries).expect("positive")
        );
        ids.extend(page.entries.into_iter().map(|entry| entry.volume.expect("given").volume_id));
        starting_token = page.next_token;
        if starting_token.is_empty() {
            return ids;
        }
    }
}

#[tokio::test]
async fn a_controller_that_lists_nothing_still_announces_lists() {
    let shim = Shim::start(&["--mode=controller", "--list-nothing"]).await;
    assert_eq!(ids(&shim, 0).await, [""; 0]);
    let capabilities = shim
        .controller()
        .controller_get_capabilities(wire::ControllerGetCapabilitiesRequest {})
        .await
        .expect("capabilities")
        .into_inner();
    assert!(capabilities.capabilities.len() > 1);
}

#[tokio::test]
async fn volumes_are_listed_completely_with_any_page_size_and_their_conditions() {
    let shim = Shim::start(&[]).await;
    let all: Vec<String> = (0..23).map(|n| format!("dv-{n:02}")).collect();
    for id in &all {
        shim.provide(id);
    }
    let bad = vec![finding(
        daemon::Severity::Bad,
        daemon::FindingStatus::DataLoss,
        "FilesystemCorrupted",
        "x",
    )];
    shim.set_volume("dv-03", daemon::Health::Bad, bad);
    shim.set_volume("not-ours", daemon::Health::Good, vec![]);
    for most in [0, 1, 4, 23, 24, 1000] {
        assert_eq!(ids(&shim, most).await, all, "{most}");
    }
    let page = shim
        .controller()
        .list_volumes(wire::ListVolumesRequest::default())
        .await
        .expect("a page")
        .into_inner();
    let abnormal = |entry: &wire::list_volumes_response::Entry| {
        entry
            .status
            .as_ref()
            .is_some_and(|s| s.volume_condition.as_ref().is_some_and(|c| c.abnormal))
    };
    let abnormal: Vec<_> = page
        .entries
        .iter()
        .filter(|entry| abnormal(entry))
        .map(|entry| entry.volume.as_ref().expect("given").volume_id.as_str())
        .collect();
    assert_eq!(abnormal, ["dv-03"]);
    assert!(page.entries.iter().all(|entry| {
        entry.status.as_ref().is_some_and(|status| status.volume_condition.is_some())
    }));
}

#[tokio::test]
async fn pages_stay_right_while_volumes_come_and_go() {
    let shim = Shim::start(&[]).await;
    for id in ["a", "b", "c", "d"] {
        shim.provide(id);
    }
    let first = shim
        .controller()
        .list_volumes(wire::ListVolumesRequest { max_entries: 2, ..Default::default() })
        .await
        .expect("a page")
        .into_inner();
    shim.daemon.state().provided.remove("b");
    shim.provide("bb");
    let request = wire::ListVolumesRequest { max_entries: 9, starting_token: first.next_token };
    let rest = shim.controller().list_volumes(request).await.expect("a page").into_inner();
    let ids: Vec<_> =
        rest.entries.into_iter().map(|entry| entry.volume.expect("given").volume_id).collect();
    assert_eq!(ids, ["bb", "c", "d"]);
}

#[tokio::test]
async fn only_adverse_volumes_of_this_driver_are_in_the_list_of_health() {
    let shim = Shim::start(&[]).await;
    let bad = || {
        vec![finding(
            daemon::Severity::Suspect,
            daemon::FindingStatus::Degraded,
            "DriveFailing",
            "x",
        )]
    };
    for id in ["a", "b", "c", "d", "e"] {
        shim.provide(id);
    }
    shim.set_volume("a", daemon::Health::Good, vec![]);
    shim.set_volume("b", daemon::Health::Suspect, bad());
    shim.set_volume("d", daemon::Health::Suspect, bad());
    shim.daemon.state().provided.get_mut("e").expect("there").problem =
        "its record cannot be read".into();
    let foreign = daemon::Volume {
        driver: "other".into(),
        handle: "f".into(),
        health: 3,
        findings: bad(),
        ..Default::default()
    };
    shim.daemon.state().volumes.insert(("other".into(), "f".into()), foreign);
    let (mut listed, mut starting_token) = (Vec::new(), String::new());
    loop {
        let request = wire::ControllerListVolumeHealthRequest {
            max_entries: 2,
            starting_token,
            ..Default::default()
        };
        let page = shim
            .controller()
            .controller_list_volume_health(request)
            .await
            .expect("a page")
            .into_inner();
        listed.extend(
            page.entries
                .into_iter()
                .map(|entry| (entry.volume_id, entry.health_statuses[0].status)),
        );
        starting_token = page.next_token;
        if starting_token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, [("b".to_owned(), 1), ("d".to_owned(), 1), ("e".to_owned(), 2)]);
}

#[tokio::test]
async fn a_token_of_another_list_is_aborted() {
    let shim = Shim::start(&[]).await;
    for id in ["a", "b", "c"] {
        shim.provide(id);
    }
    let page = shim
        .controller()
        .list_volumes(wire::ListVolumesRequest { max_entries: 1, ..Default::default() })
        .await
        .expect("a page");
    let volumes_token = page.into_inner().next_token;
    for token in ["invalid-token", "1", "../../etc", "\0", &"x".repeat(100_000)] {
        let request =
            wire::ListVolumesRequest { starting_token: token.into(), ..Default::default() };
        refused(shim.controller().list_volumes(request).await, Code::Aborted, "starting_token");
    }
    for token in ["invalid-token", &volumes_token] {
        let request = wire::ControllerListVolumeHealthRequest {
            starting_token: token.into(),
            ..Default::default()
        };
        refused(
            shim.controller().controller_list_volume_health(request).await,
            Code::Aborted,
            "starting_token",
        );
    }
    let request = wire::ListVolumesRequest { max_entries: -1, ..Default::default() };
    refused(shim.controller().list_volumes(request).await, Code::InvalidArgument, "max_entries");
}
