//! An API server that is away, and lists that are expired or incomplete: nothing is decided by
//! ignorance.

use super::*;

#[tokio::test(start_paused = true)]
async fn ten_minutes_without_connection_raise_and_clear_nothing() {
    let mut cluster = Cluster::with_volumes(2);
    cluster.controlled().await;
    cluster.state().set(REPORTS, report("a", &volumes(0..1)));
    // Not ready, but not for long enough when the connection breaks.
    cluster.state().set(NODES, node("b", false));
    sleep(SOON).await;
    assert_eq!(cluster.health("v0"), ["DriveOffline"]);
    cluster.state().asked.clear();

    cluster.fail(Fault::Break);
    sleep(TEN_MINUTES).await;
    let asked = cluster.state().asked.len();
    assert!(asked < 400, "{asked}");
    cluster.state().set(REPORTS, report("a", &volumes(0..0)));
    cluster.recover();
    // The kubelet says that the node is ready as soon as it can.
    sleep(Duration::from_secs(150)).await;
    assert_eq!(cluster.health("w"), Vec::<String>::new());
    cluster.state().set(NODES, node("b", true));
    sleep(TEN_MINUTES).await;
    assert_eq!(cluster.written("w"), 0, "raised by ignorance");
    assert_eq!((cluster.health("v0"), cluster.written("v0")), (Vec::new(), 1));
    assert_eq!(cluster.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_due_before_an_outage_is_decided_anew_after_it() {
    let mut cluster = Cluster::with_volumes(2);
    cluster.controlled().await;
    cluster.state().set(NODES, node("b", false));
    sleep(Duration::from_secs(299)).await;
    cluster.fail(Fault::Break);
    sleep(TEN_MINUTES).await;
    // Ready again before the first list after the outage.
    cluster.state().set(NODES, node("b", true));
    cluster.recover();
    sleep(TEN_MINUTES).await;
    assert_eq!(cluster.writes().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stays_away_is_reported_after_its_time_has_been_seen() {
    let mut cluster = Cluster::with_volumes(2);
    cluster.controlled().await;
    cluster.state().set(NODES, node("b", false));
    sleep(Duration::from_secs(100)).await;
    cluster.fail(Fault::Break);
    sleep(TEN_MINUTES).await;
    cluster.recover();
    sleep(Duration::from_secs(190)).await;
    assert_eq!(cluster.written("w"), 0);
    sleep(Duration::from_secs(150)).await;
    assert_eq!(
        (cluster.health("w"), cluster.written("w")),
        (vec!["NodeUnavailable".to_owned()], 1)
    );
}

#[tokio::test(start_paused = true)]
async fn two_nodes_with_one_drive_are_no_news_while_nothing_is_seen() {
    let mut cluster = Cluster::with_volumes(1);
    cluster.controlled().await;
    let moved = |node: &str| {
        let mut report = report(node, &[]);
        report["status"]["driveIDs"] = json!(["naa.5000c500a1b2c3ff"]);
        report
    };
    cluster.state().set(REPORTS, moved("a"));
    cluster.state().set(REPORTS, moved("b"));
    sleep(SOON).await;
    cluster.fail(Fault::Break);
    sleep(TEN_MINUTES).await;
    cluster.state().set(REPORTS, report("a", &[]));
    cluster.recover();
    sleep(TEN_MINUTES).await;
    assert_eq!(cluster.events(), 0);
    cluster.state().set(REPORTS, moved("a"));
    sleep(Duration::from_secs(130)).await;
    // Two nodes and their reports.
    assert_eq!(cluster.events(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_lists_anew_and_writes_the_newest_state_once() {
    let mut cluster = Cluster::with_volumes(2);
    cluster.controlled().await;
    {
        let mut state = cluster.state();
        state.fail_watches(REPORTS, 410, "Expired");
        // Nobody hears of these.
        state.set(REPORTS, report("a", &volumes(0..1)));
        state.set(REPORTS, report("a", &volumes(0..2)));
    }
    sleep(SOON).await;
    for volume in ["v0", "v1"] {
        assert_eq!(
            (cluster.health(volume), cluster.written(volume)),
            (vec!["DriveOffline".to_owned()], 1)
        );
    }
    let lists = cluster
        .state()
        .asked
        .iter()
        .filter(|it| it.path == REPORTS && !it.query.contains("watch"))
        .count();
    assert_eq!(lists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_works_again_without_news_lets_writes_go_on() {
    let mut cluster = Cluster::with_volumes(1);
    cluster.controlled().await;
    // Of objects that never change.
    cluster.state().fail_watches(VOLUMES, 500, "InternalError");
    sleep(SOON).await;
    cluster.state().set(REPORTS, report("a", &volumes(0..1)));
    sleep(SOON).await;
    assert_eq!(cluster.health("v0"), ["DriveOffline"]);
}

#[tokio::test(start_paused = true)]
async fn while_a_list_is_incomplete_nothing_is_decided() {
    for fault in
        [Fault::Silence, Fault::Status { code: 504, reason: "Timeout", retry_after_seconds: None }]
    {
        let mut cluster = Cluster::with_volumes(2);
        cluster.state().set(REPORTS, report("a", &volumes(0..1)));
        cluster.controlled().await;
        assert_eq!(cluster.health("v0"), ["DriveOffline"]);
        {
            let mut state = cluster.state();
            // The list of reports: b comes on a second page, which does not come.
            state.page_size = Some(1);
            state.fault_of_continuation = Some(fault);
            state.fail_watches(REPORTS, 410, "Expired");
            state.set(REPORTS, report("a", &volumes(1..2)));
        }
        sleep(TEN_MINUTES).await;
        assert_eq!(cluster.writes().len(), 0, "{fault:?}");
        let lists = cluster.state().asked.iter().filter(|it| it.path == REPORTS).count();
        assert!((4..=40).contains(&lists), "{lists}");
        cluster.state().fault_of_continuation = None;
        sleep(TEN_MINUTES).await;
        assert_eq!(
            (cluster.health("v1"), cluster.written("v1")),
            (vec!["DriveOffline".to_owned()], 1)
        );
        assert_eq!(cluster.writes().len(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_with_an_incomplete_list_clears_nothing_and_shows_no_zeros() {
    let mut cluster = Cluster::with_volumes(1);
    cluster.state().set(REPORTS, report("a", &volumes(0..1)));
    cluster.controlled().await;
    assert_eq!(cluster.health("v0"), ["DriveOffline"]);
    for controller in cluster.controllers.drain(..) {
        controller.abort();
    }
    {
        let mut state = cluster.state();
        state.page_size = Some(1);
        state.fault_of_continuation = Some(Fault::Silence);
        state.set(REPORTS, report("a", &[]));
    }
    let metrics = cluster.control("two");
    sleep(TEN_MINUTES).await;
    assert_eq!(cluster.written("v0"), 0);
    let text = metrics();
    assert!(
        text.contains("diskvitals_fleet_leader 1") && text.contains("diskvitals_fleet_synced 0"),
        "{text}"
    );
    assert!(!text.contains("diskvitals_fleet_nodes"), "{text}");
    cluster.state().fault_of_continuation = None;
    sleep(TEN_MINUTES).await;
    assert_eq!((cluster.health("v0"), cluster.written("v0")), (Vec::new(), 1));
    assert!(metrics().contains("diskvitals_fleet_nodes{health=\"good\"} 2"), "{}", metrics());
}
