//! The cordon of the pool, as the scheduler and the provisioner see it.

use serde_json::{Value, json};

use crate::claims::{As, claim, is_running, pod};
use crate::cluster::{NODE, SOON, TIME_LIMIT, apply, get, get_in, kubectl, until};
use crate::fixture::{CLASS, Fixture, NAMESPACE};

/// What CSIStorageCapacity says about the pool's class.
fn capacity() -> Option<String> {
    let all = get_in(NAMESPACE, "csistoragecapacities")?;
    let of_class = |it: &&Value| it["storageClassName"] == CLASS;
    let capacity = all["items"].as_array()?.iter().find(of_class)?["capacity"].clone();
    capacity.as_str().map(str::to_owned)
}

fn until_capacity(what: &str, is_it: impl Fn(&str) -> bool) {
    until(what, TIME_LIMIT, || capacity().filter(|now| is_it(now)));
}

fn cordon(fixture: &Fixture) -> Option<Value> {
    let node = fixture.ask(&["status"]).ok()?;
    node["poolCordons"].as_array()?.first().cloned()
}

/// The messages of the events of a claim.
fn events(claim: &str) -> String {
    let of = format!("involvedObject.kind=PersistentVolumeClaim,involvedObject.name={claim}");
    kubectl(&["get", "events", "--field-selector", &of, "-o", "jsonpath={.items[*].message}"])
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn the_scheduler_places_no_claim_on_a_failing_pool_until_the_finding_ends() {
    let mut fixture = Fixture::new();
    let drive = fixture.sata(1, 2048).remove(0);
    fixture.pool_on(&drive.disk);
    fixture.install(&json!({"provisioner": {"extraArgs": ["--capacity-poll-interval=3s"]}}));
    until_capacity("the pool has room", |now| now != "0");

    fixture.fails(&drive, true);
    let cordon_now = until("the pool is cordoned", SOON, || cordon(&fixture));
    let message = cordon_now["message"].as_str().expect("text");
    assert!(message.contains("WX000000") && message.contains("SmartFailing since"), "{message}");
    until_capacity("the scheduler is told that there is no room", |now| now == "0");
    let findings = fixture.ask(&["findings"]).expect("an answer");
    let of_drive = |it: &&Value| it["reason"] == "SmartFailing";
    let finding = findings["findings"]
        .as_array()
        .and_then(|all| all.iter().find(of_drive))
        .expect("the drive's finding");
    let id = finding["id"].as_str().expect("its id");
    fixture.ask(&["ack", id, "--note", "a new drive is ordered"]).expect("acknowledged");

    apply(&[claim("a", CLASS, "64Mi", As::Filesystem), pod("a", &["a"], As::Filesystem)]);
    until("the scheduler finds no node", SOON, || {
        let conditions = get("pod/a")?["status"]["conditions"].clone();
        let unschedulable = |it: &Value| {
            it["reason"] == "Unschedulable"
                && it["message"]
                    .as_str()
                    .is_some_and(|why| why.contains("did not have enough free storage"))
        };
        conditions.as_array()?.iter().any(unschedulable).then_some(())
    });
    // A claim that is bound to this node all the same, as a scheduler with old capacities would.
    let mut placed = claim("b", CLASS, "64Mi", As::Filesystem);
    placed["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": NODE});
    apply(&[placed]);
    until("the claim says why it gets no volume", SOON, || {
        let told = events("b");
        (told.contains("no new volume is placed in the pool") && told.contains("WX000000"))
            .then_some(())
    });
    for name in ["a", "b"] {
        let claim = get(&format!("pvc/{name}")).expect("the claim");
        assert_eq!(claim["status"]["phase"], "Pending", "{claim:#}");
    }
    assert_eq!(capacity().as_deref(), Some("0"), "an acknowledgement does not lift it");

    fixture.fails(&drive, false);
    until_capacity("there is room again", |now| now != "0");
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    assert_eq!(cordon(&fixture), None);
    fixture.end();
}
