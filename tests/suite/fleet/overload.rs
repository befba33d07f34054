//! An API server that is overloaded: it rejects, fails, or is slow.

use super::*;

fn too_many(seconds: u32) -> Fault {
    Fault::Status {
        code: 429,
        reason: "Too many requests, please try again later.",
        retry_after_seconds: Some(seconds),
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_write_waits_as_long_as_it_is_asked_to_and_alone() {
    let mut cluster = Cluster::with_volumes(20);
    cluster.controlled().await;
    cluster.state().of_path = Some(("/status", too_many(60)));
    cluster.state().set(REPORTS, report("a", &volumes(0..20)));
    sleep(TEN_MINUTES).await;

    let writes = cluster.writes();
    // The writes that ran when the first one was rejected, then one at a time.
    let later = &writes[4..];
    assert!((6..=10).contains(&later.len()), "{}", later.len());
    for two in writes[3..].windows(2) {
        assert!(two[1].at - two[0].at >= Duration::from_secs(60), "{two:#?}");
    }

    cluster.state().of_path = None;
    sleep(TEN_MINUTES).await;
    for volume in volumes(0..20) {
        assert_eq!(cluster.health(&volume), ["DriveOffline"]);
        assert_eq!(cluster.written(&volume), 1, "{volume}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_rejects_everything_is_asked_rarely() {
    let mut cluster = Cluster::with_volumes(2);
    cluster.controlled().await;
    cluster.fail(too_many(60));
    sleep(TEN_MINUTES).await;
    let state = cluster.state();
    // Of the lease, which may be renewed or read once, and of each of three lists.
    for path in ["leases", NODES, VOLUMES, REPORTS] {
        let asked: Vec<_> = state
            .asked
            .iter()
            .filter(|asked| asked.code == 429 && asked.path.contains(path))
            .collect();
        assert!((5..=11).contains(&asked.len()), "{path}: {}", asked.len());
        for two in asked.windows(2) {
            assert!(two[1].at - two[0].at >= Duration::from_secs(60), "{two:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_ten_minutes_of_errors_the_newest_state_is_written_once() {
    let mut cluster = Cluster::with_volumes(3);
    cluster.controlled().await;
    cluster.state().set(REPORTS, report("a", &volumes(0..1)));
    sleep(SOON).await;
    assert_eq!(cluster.health("v0"), ["DriveOffline"]);
    cluster.state().asked.clear();

    cluster.fail(Fault::Status { code: 500, reason: "InternalError", retry_after_seconds: None });
    for last in [3, 2, 3] {
        sleep(TEN_MINUTES / 3).await;
        cluster.state().set(REPORTS, report("a", &volumes(1..last)));
    }
    let asked = cluster.state().asked.len();
    assert!(asked < 400, "{asked}");
    assert_eq!(cluster.writes().len(), 0);
    assert_eq!(cluster.health("v0"), ["DriveOffline"]);

    cluster.recover();
    sleep(TEN_MINUTES).await;
    // Its drive is bad and it is no longer listed: that is no evidence that it is well.
    assert_eq!((cluster.health("v0"), cluster.written("v0")), (vec!["DriveOffline".to_owned()], 0));
    for volume in ["v1", "v2"] {
        assert_eq!(cluster.health(volume), ["DriveOffline"]);
        assert_eq!(cluster.written(volume), 1, "{volume}");
    }
    assert_eq!(cluster.writes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn with_answers_of_five_seconds_it_leads_and_writes_everything_once() {
    let mut cluster = Cluster::with_volumes(20);
    cluster.state().always = Some(Fault::Slow(Duration::from_secs(5)));
    cluster.state().set(REPORTS, report("a", &volumes(0..20)));
    let _metrics = cluster.control("one");
    sleep(TEN_MINUTES).await;
    for volume in volumes(0..20) {
        assert_eq!(cluster.health(&volume), ["DriveOffline"]);
        assert_eq!(cluster.written(&volume), 1, "{volume}");
    }
    let state = cluster.state();
    // It has not lost the lease in between, and has read the claims once.
    assert_eq!(state.leases[LEASE]["spec"]["leaseTransitions"], 1);
    let reads = state.asked.iter().filter(|it| it.path == CLAIMS).count();
    assert_eq!(reads, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_holds_up_nothing_else_and_is_asked_for_again() {
    let mut cluster = Cluster::with_volumes(20);
    cluster.controlled().await;
    cluster.state().of_path = Some(("/claim-v0/status", Fault::Silence));
    cluster.state().set(REPORTS, report("a", &volumes(0..20)));
    sleep(TEN_MINUTES).await;
    for volume in volumes(1..20) {
        assert_eq!(cluster.written(&volume), 1, "{volume}");
    }
    let asked = cluster.writes().len();
    assert!((20..=19 + 12).contains(&asked), "{asked}");
    cluster.state().of_path = None;
    sleep(TEN_MINUTES).await;
    assert_eq!((cluster.health("v0"), cluster.written("v0")), (vec!["DriveOffline".to_owned()], 1));
}
