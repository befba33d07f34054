//! The lease: taken by another one, or not to be renewed, in the middle of a write.

use super::*;

/// Another process holds the lease from now on, and renews it each time this is called.
fn renew_by_other(cluster: &Cluster) {
    let mut state = cluster.state();
    let transitions = &state.leases[LEASE]["spec"]["leaseTransitions"];
    let transitions = transitions.as_i64().unwrap_or_default() + 1;
    state.set_lease(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "diskvitals"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": transitions},
    }));
}

#[tokio::test(start_paused = true)]
async fn leadership_that_is_lost_during_a_write_ends_it_and_the_next_leader_reads_what_came_of_it()
{
    for fault in [Fault::Silence, Fault::AnswerLost] {
        let mut cluster = Cluster::with_volumes(2);
        cluster.controlled().await;
        cluster.state().of_path = Some(("/claim-v0/status", fault));
        cluster.state().set(REPORTS, report("a", &volumes(0..1)));
        cluster.until("it writes", |state| state.asked.iter().any(|it| it.method == "PATCH")).await;
        renew_by_other(&cluster);
        // It learns of it when it renews.
        sleep(Duration::from_secs(5)).await;
        cluster.state().of_path = None;
        let before = cluster.writes().len();
        // While another one leads, this one writes nothing.
        cluster.state().set(REPORTS, report("a", &volumes(0..2)));
        for _ in 0..120 {
            renew_by_other(&cluster);
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(cluster.writes().len(), before, "{fault:?}");
        assert_eq!(cluster.written("v1"), 0);
        // The other one is gone.
        sleep(SOON).await;
        assert_eq!(holder(&cluster.state()), "one");
        for volume in ["v0", "v1"] {
            assert_eq!(cluster.health(volume), ["DriveOffline"], "{fault:?}");
            assert_eq!(cluster.written(volume), 1, "{volume}, {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_cannot_renew_stops_before_another_may_take_over() {
    let mut cluster = Cluster::with_volumes(1);
    let metrics = cluster.control("one");
    cluster.until("it leads", |state| holder(state) == "one").await;
    sleep(SOON).await;
    for fault in [Fault::Silence, Fault::Break, Fault::AnswerLost] {
        cluster.until("it leads again", |_| metrics().contains("diskvitals_fleet_leader 1")).await;
        cluster.state().of_path = Some(("leases", fault));
        // Twelve seconds from the last renewal, which was up to two seconds ago.
        sleep(Duration::from_secs(9)).await;
        assert!(metrics().contains("diskvitals_fleet_leader 1"), "{fault:?}");
        sleep(Duration::from_secs(4)).await;
        assert!(metrics().contains("diskvitals_fleet_leader 0"), "{fault:?}");
        cluster.state().set(REPORTS, report("a", &volumes(0..1)));
        sleep(SOON).await;
        assert_eq!(cluster.writes().len(), 0, "{fault:?}");
        cluster.state().set(REPORTS, report("a", &[]));
        sleep(SOON).await;
        cluster.state().of_path = None;
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_one_writes() {
    let mut cluster = Cluster::with_volumes(5);
    let _one = cluster.control("one");
    let _two = cluster.control("two");
    sleep(SOON).await;
    cluster.state().set(REPORTS, report("a", &volumes(0..5)));
    sleep(SOON).await;
    for volume in volumes(0..5) {
        assert_eq!(cluster.written(&volume), 1, "{volume}");
    }
}

/// A paused clock stands still between two readings; a real one does not.
#[tokio::test]
async fn it_writes_while_time_passes() {
    let mut cluster = Cluster::with_volumes(1);
    cluster.state().set(REPORTS, report("a", &volumes(0..1)));
    let _metrics = cluster.control("one");
    cluster
        .until("it writes", |state| {
            let is_write = |asked: &Asked| asked.method == "PATCH" && asked.code == 200;
            state.asked.iter().any(is_write)
        })
        .await;
}
