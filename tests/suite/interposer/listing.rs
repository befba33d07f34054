//! Lists: conditions in the upstream's lists, and volumes that only the daemon reports.

use diskvitals_csi::interposer::health_source::{
    HealthErrorType, HealthStatus, ListedVolume, VolumeCondition, VolumeHealth,
};
use diskvitals_csi::wire;
use http_body_util::BodyExt;
use prost::Message;
use tonic::Code;

use super::fixture::{BOTH, Caller, Said, Setup, answer, driver, handler};

const LIST_HEALTH: &str = "Controller/ControllerListVolumeHealth";

fn bad(handle: &str) -> ListedVolume {
    let status = HealthStatus {
        status: HealthErrorType::Degraded,
        reason: "DriveFailing".into(),
        message: String::new(),
    };
    let condition = VolumeCondition { abnormal: true, message: "drive failing".into() };
    ListedVolume {
        handle: handle.into(),
        attached: true,
        health: VolumeHealth {
            statuses: Ok(vec![status]),
            condition: Some(condition),
            local: true,
        },
    }
}

fn list(setup: &Setup, handles: &[&str]) {
    setup.witness.known.lock().expect("whole").listed =
        handles.iter().map(|handle| bad(handle)).collect();
}

/// All pages, each with at most `most` entries: handle and number of statuses.
async fn pages(caller: &mut Caller, most: i32) -> Vec<Vec<(String, usize)>> {
    let mut pages = Vec::new();
    let mut token = String::new();
    loop {
        let request = wire::ControllerListVolumeHealthRequest {
            max_entries: most,
            starting_token: token,
            ..Default::default()
        };
        let page: wire::ControllerListVolumeHealthResponse =
            caller.ask(LIST_HEALTH, &request).await.expect("a page");
        pages.push(
            page.entries
                .into_iter()
                .map(|entry| (entry.volume_id, entry.health_statuses.len()))
                .collect(),
        );
        token = page.next_token;
        if token.is_empty() {
            return pages;
        }
    }
}

fn page(pages: &[&[(&str, usize)]]) -> Vec<Vec<(String, usize)>> {
    pages
        .iter()
        .map(|page| {
            page.iter().map(|(handle, statuses)| ((*handle).to_owned(), *statuses)).collect()
        })
        .collect()
}

#[tokio::test]
async fn the_local_list_is_paged_where_the_upstream_has_none() {
    let setup = Setup::new(BOTH);
    let (handler, _) = driver(&[]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    assert_eq!(pages(&mut caller, 0).await, page(&[&[]]));
    list(&setup, &["c", "a", "b"]);
    assert_eq!(pages(&mut caller, 0).await, page(&[&[("a", 1), ("b", 1), ("c", 1)]]));
    assert_eq!(pages(&mut caller, 2).await, page(&[&[("a", 1), ("b", 1)], &[("c", 1)]]));
    let request = wire::ControllerListVolumeHealthRequest {
        starting_token: "invalid-token".into(),
        ..Default::default()
    };
    assert_eq!(
        caller.call(LIST_HEALTH, &request.encode_to_vec()).await.expect_err("a bad token").0,
        Code::Aborted
    );
}

#[tokio::test]
async fn local_entries_follow_the_upstreams_pages() {
    let setup = Setup::new(BOTH);
    // Two pages, with two volumes and one volume; each volume has a status from the driver.
    let _upstream = setup.upstream(handler(|request| async move {
        let call = request.uri().path().to_owned();
        let message = request.into_body().collect().await?.to_bytes();
        let said: Said = match call.trim_start_matches("/csi.v1.") {
            "Identity/GetPluginInfo" => Ok([&[0x0a, 11][..], b"example.com"].concat()),
            LIST_HEALTH => {
                let token =
                    wire::ControllerListVolumeHealthRequest::decode(&message[5..])?.starting_token;
                let status = wire::volume_health::VolumeHealthEntry {
                    status: 1,
                    reason: "Theirs".into(),
                    message: String::new(),
                };
                let entry = |id: &str| wire::VolumeHealth {
                    volume_id: id.into(),
                    health_statuses: vec![status.clone()],
                };
                match token.as_str() {
                    "" => Ok((vec![entry("b"), entry("x")], "second")),
                    "second" => Ok((vec![entry("y")], "")),
                    _ => Err(Code::Aborted),
                }
                .map(|(entries, next)| {
                    wire::ControllerListVolumeHealthResponse { entries, next_token: next.into() }
                        .encode_to_vec()
                })
            }
            _ => Err(Code::Unimplemented),
        };
        Ok(answer(&said))
    }));
    let mut caller = setup.caller().await;
    assert_eq!(pages(&mut caller, 0).await, page(&[&[("b", 1), ("x", 1)], &[("y", 1)]]));
    list(&setup, &["b", "a", "c", "y"]);
    assert_eq!(
        pages(&mut caller, 0).await,
        page(&[&[("b", 2), ("x", 1)], &[("y", 2), ("a", 1), ("c", 1)]])
    );
    assert_eq!(
        pages(&mut caller, 2).await,
        page(&[&[("b", 2), ("x", 1)], &[("y", 2), ("a", 1)], &[("c", 1)]])
    );
    assert_eq!(
        pages(&mut caller, 1).await,
        page(&[&[("b", 2), ("x", 1)], &[("y", 2)], &[("a", 1)], &[("c", 1)]])
    );
}

#[tokio::test]
async fn a_list_of_volumes_gets_conditions_and_keeps_its_token() {
    let setup = Setup::new(BOTH);
    let entry = |id: &str| wire::list_volumes_response::Entry {
        volume: Some(wire::Volume { volume_id: id.into(), ..Default::default() }),
        status: None,
    };
    let theirs = wire::ListVolumesResponse {
        entries: vec![entry("a"), entry("z")],
        next_token: "next".into(),
    };
    let one = wire::ControllerGetVolumeResponse { volume: entry("a").volume, status: None };
    let (handler, _) = driver(&[
        ("Controller/ListVolumes", Ok(theirs.encode_to_vec())),
        ("Controller/ControllerGetVolume", Ok(one.encode_to_vec())),
    ]);
    let _upstream = setup.upstream(handler);
    let mut caller = setup.caller().await;
    list(&setup, &["a"]);
    setup.witness.known.lock().expect("whole").volumes.insert("a".into(), bad("a").health);
    let got: wire::ListVolumesResponse = caller
        .ask("Controller/ListVolumes", &wire::ListVolumesRequest::default())
        .await
        .expect("a list");
    let condition = got.entries[0].status.clone().and_then(|status| status.volume_condition);
    assert_eq!(
        condition.map(|condition| (condition.abnormal, condition.message)),
        Some((true, "drive failing".into()))
    );
    assert_eq!((&got.entries[1], got.next_token.as_str()), (&entry("z"), "next"));
    let request = wire::ControllerGetVolumeRequest { volume_id: "a".into() };
    let got: wire::ControllerGetVolumeResponse =
        caller.ask("Controller/ControllerGetVolume", &request).await.expect("a volume");
    assert!(got.status.and_then(|status| status.volume_condition).expect("there").abnormal);
    setup.witness.known.lock().expect("whole").away = true;
    assert_eq!(caller.call("Controller/ListVolumes", b"").await, Ok(theirs.encode_to_vec()));
}
