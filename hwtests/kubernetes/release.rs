//! A drive dies under one member of a database: the proposal, a person's approval, and the member on
//! another node with an empty volume. Real kubelets, daemons, provisioners, scheduler and controllers.

use serde_json::{Value, json};

use crate::claims::stateful_set;
use crate::cluster::{SOON, TIME_LIMIT, apply, get, kubectl, pause, until};
use crate::controller;
use crate::fixture::{CLASS, Fixture};
use crate::nodes::{API_ADDRESS, OtherNode};
use crate::support::{FuseServer, Mode};
use crate::transcript::Transcript;

const SET: &str = "orders";
/// Ten minutes of hold become ten seconds, and so on.
pub const TIMING: &str = "hold=10,node-ready=5,daemon-age=5,controller-age=5,round=2,reread=1,ask=5,good=5,lease=6,lease-left=1";

/// A member is Ready while it can write to its volume.
fn database(members: usize) -> Value {
    let serve = "while :; do busybox date >>/data/log; busybox sleep 1; done";
    let is_written = "busybox dd if=/dev/zero of=/data/ready bs=1 count=1 conv=fsync";
    let label = ("app.kubernetes.io/instance", SET);
    let mut set = stateful_set(SET, label, members, CLASS, serve);
    set["metadata"]["annotations"] = json!({"diskvitals.io/empty-member": "rejoins-any"});
    set["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = json!({
        "exec": {"command": ["/usr/bin/busybox", "sh", "-c", is_written]},
        "periodSeconds": 2, "timeoutSeconds": 10, "failureThreshold": 1,
    });
    set["spec"]["volumeClaimTemplates"][0]["metadata"]["labels"] =
        json!({"diskvitals.io/on-dead-drive": "release"});
    set
}

fn policy(peers: usize) -> Value {
    json!({
        "apiVersion": "diskvitals.io/v1alpha1", "kind": "StoragePolicy", "metadata": {"name": "databases"},
        "spec": {"mode": "Propose", "hold": "10m", "claims": {"storageClassNames": [CLASS]},
            "group": {"labelKeys": ["app.kubernetes.io/instance"]}, "minReadyPeers": peers},
    })
}

fn members() -> Vec<Value> {
    let all = get("pods").unwrap_or_default();
    let all = all["items"].as_array().cloned().unwrap_or_default();
    let of_set = |pod: &Value| pod["metadata"]["labels"]["app.kubernetes.io/instance"] == SET;
    all.into_iter().filter(of_set).collect()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
}

fn all_ready(number: usize) -> Option<Vec<Value>> {
    let pods = members();
    (pods.len() == number && pods.iter().all(is_ready)).then_some(pods)
}

pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let value = object.pointer(pointer).and_then(Value::as_str);
    value.unwrap_or_else(|| panic!("{pointer} in {object:#}"))
}

pub fn action() -> Option<Value> {
    let all = get("storageactions")?["items"].as_array()?.clone();
    assert!(all.len() <= 1, "one action only: {all:#?}");
    all.into_iter().next()
}

/// Status of a condition of the action.
pub fn condition(action: &Value, name: &str) -> Option<String> {
    let all = action["status"]["conditions"].as_array()?;
    let found = all.iter().find(|it| it["type"] == name)?;
    found["status"].as_str().map(str::to_owned)
}

/// The member of the database on the node whose drive will die.
pub struct Member {
    pub pod: Value,
    pub claim: Value,
    pub volume: String,
}

impl Member {
    /// Creates the database and its policy; the member on this node.
    pub fn on(node: &str, members: usize) -> (Vec<Value>, Member) {
        apply(&[policy(members - 1), database(members)]);
        let all = until("the members are Ready", TIME_LIMIT, || all_ready(members));
        let pod = all.iter().find(|pod| text(pod, "/spec/nodeName") == node);
        let pod = pod.expect("a member on the node").clone();
        let claim = get(&format!("pvc/data-{}", text(&pod, "/metadata/name"))).expect("its claim");
        let volume = text(&claim, "/spec/volumeName").to_owned();
        (all, Member { pod, claim, volume })
    }

    pub fn name(&self) -> &str {
        text(&self.pod, "/metadata/name")
    }

    pub fn claim_name(&self) -> &str {
        text(&self.claim, "/metadata/name")
    }

    /// Its drive does not answer, and then is gone.
    pub fn lose_drive(&self, served: &FuseServer, node: &OtherNode, drive: &str) {
        served.set(Mode::Gone);
        until("the member is not Ready", SOON, || {
            let pod = get(&format!("pod/{}", self.name()))?;
            (!is_ready(&pod)).then_some(())
        });
        node.hide(&[drive]);
        until("the node reports drive and volume", SOON, || {
            let status = get(&format!("nodestorage/{}", node.name()))?["status"].clone();
            let lists = |list: &str, is_it: &dyn Fn(&Value) -> bool| {
                status[list].as_array().is_some_and(|all| all.iter().any(is_it))
            };
            let is_lost = |it: &Value| {
                let conditions = it["healthConditions"].as_array();
                it["persistentVolume"] == self.volume.as_str()
                    && conditions
                        .is_some_and(|all| all.iter().any(|it| it["status"] == "Inaccessible"))
            };
            let is_reported =
                lists("drives", &|it| it["reason"] == "DriveMissing") && lists("volumes", &is_lost);
            is_reported.then_some(())
        });
    }

    /// Neither claim nor pod is another one or being deleted.
    pub fn assert_untouched(&self) {
        for (kind, before) in [("pvc", &self.claim), ("pod", &self.pod)] {
            let now = get(&format!("{kind}/{}", text(before, "/metadata/name")));
            let now = now.unwrap_or_else(|| panic!("the {kind} was deleted"));
            assert_eq!(now["metadata"]["uid"], before["metadata"]["uid"]);
            assert_eq!(now["metadata"]["deletionTimestamp"], Value::Null);
        }
    }

    /// Nor is its volume prepared for that.
    pub fn assert_unprepared(&self) {
        self.assert_untouched();
        let volume = get(&format!("pv/{}", self.volume)).expect("the volume");
        assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    }

    /// A new pod on another node with a new claim; the old volume is kept, and the others were not touched.
    pub fn assert_replaced(&self, before: &[Value], action: &str) {
        let after = until("all members are Ready", TIME_LIMIT, || all_ready(before.len()));
        let replaced = after.iter().find(|pod| text(pod, "/metadata/name") == self.name());
        let replaced = replaced.expect("the member");
        assert_ne!(replaced["spec"]["nodeName"], self.pod["spec"]["nodeName"]);
        let claim = get(&format!("pvc/{}", self.claim_name())).expect("its claim");
        assert_ne!(claim["metadata"]["uid"], self.claim["metadata"]["uid"]);
        assert_ne!(text(&claim, "/spec/volumeName"), self.volume);
        for pod in before.iter().filter(|pod| text(pod, "/metadata/name") != self.name()) {
            let now = get(&format!("pod/{}", text(pod, "/metadata/name"))).expect("the pod");
            assert_eq!(now["metadata"]["uid"], pod["metadata"]["uid"]);
            assert_eq!(now["status"]["containerStatuses"][0]["restartCount"], 0);
        }
        let volume = get(&format!("pv/{}", self.volume)).expect("the old volume is kept");
        assert_eq!(volume["status"]["phase"], "Released");
        assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(
            volume.pointer("/metadata/annotations/diskvitals.io~1action"),
            Some(&json!(format!("default/{action}")))
        );
    }
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_release_moves_a_member_from_a_dead_drive_after_a_persons_approval() {
    let (second, third) = (OtherNode::new(2), OtherNode::new(3));
    let mut fixture = Fixture::new();
    let first_disk = fixture.plain_disk("first", 1024);
    let (second_disk, served) = fixture.failing_disk("second", 1024);
    let third_disk = fixture.plain_disk("third", 1024);
    fixture.pool_on(&first_disk);
    fixture.pool_of(&second, &second_disk, &[first_disk.name(), third_disk.name()]);
    fixture.pool_of(&third, &third_disk, &[first_disk.name(), second_disk.name()]);
    for node in [&second, &third] {
        node.start();
    }
    let mut fleet = controller::values(&["claims", "release"]);
    fleet["carryOut"] = json!({"namespaces": ["default"]});
    fixture.install(&json!({
        "apiServer": {"host": API_ADDRESS}, "report": {"storage": true, "answerChallenges": true}, "fleet": fleet,
        "provisioner": {"extraArgs": ["--capacity-poll-interval=3s"]},
    }));
    let dying = second.name();
    let (before, victim) = Member::on(&dying, 3);

    let controller = controller::start(
        &fixture,
        TIMING,
        &["--duties", "claims,release", "--carry-out-in", "default"],
    );
    let mut transcript = Transcript::new();
    transcript.note("Three members, each with a volume in the pool of its node.");
    transcript.run("kubectl get pods -l app.kubernetes.io/instance=orders -o wide");
    transcript.run("kubectl get pvc -L diskvitals.io/on-dead-drive");
    transcript.run("kubectl get storagepolicies");

    victim.lose_drive(fixture.served(served), &second, second_disk.name());
    transcript.note("The drive of node-2 dies: first its answers, then the drive itself is gone.");
    transcript.run("kubectl diskvitals");
    transcript.run("kubectl diskvitals claims");

    let proposed = until("an action is proposed", TIME_LIMIT, action);
    let action_name = text(&proposed, "/metadata/name").to_owned();
    assert_eq!(text(&proposed, "/spec/claim/name"), victim.claim_name());
    // Without an approval nothing happens, however often it is asked.
    pause(std::time::Duration::from_secs(10));
    victim.assert_unprepared();
    transcript.note("After the hold time there is a proposal, and nothing else happens.");
    transcript.run("kubectl diskvitals actions");
    transcript.run(&format!("kubectl diskvitals actions {action_name}"));

    transcript.note("A person approves it.");
    transcript.run(&format!("kubectl diskvitals approve {action_name} --yes"));
    until("the member is replaced", TIME_LIMIT, || {
        let action = action()?;
        for end in ["Stuck", "Aborted"] {
            assert_ne!(condition(&action, end).as_deref(), Some("True"), "{action:#}");
        }
        (condition(&action, "Replaced")? == "True").then_some(())
    });
    let finished = action().expect("the action");
    for step in ["Confirmed", "Prepared", "ClaimDeleted", "PodEvicted", "Replaced"] {
        assert_eq!(condition(&finished, step).as_deref(), Some("True"), "{step}: {finished:#}");
    }
    victim.assert_replaced(&before, &action_name);

    transcript
        .note("The member runs on another node, with an empty volume; the old volume is kept.");
    transcript.run("kubectl get pods -l app.kubernetes.io/instance=orders -o wide");
    transcript.run("kubectl get pvc");
    transcript.run(&format!("kubectl diskvitals actions {action_name}"));
    transcript.run("kubectl diskvitals retained");
    let events = transcript.run("kubectl get events --sort-by=.metadata.creationTimestamp -o custom-columns=REASON:.reason,OBJECT:.involvedObject.name,FROM:.reportingComponent,MESSAGE:.message | grep -e REASON -e diskvitals.io/fleet");
    for reason in [
        "ReleaseProposed",
        "ReleaseConfirmed",
        "ReleaseVolumeKept",
        "ReleaseClaimDeleted",
        "ReleasePodEvicted",
        "ReleaseReplaced",
    ] {
        assert!(events.contains(reason), "{reason} in {events}");
    }
    assert_eq!(
        kubectl(&[
            "get",
            "pods",
            "--field-selector",
            &format!("spec.nodeName={dying}"),
            "-o",
            "name"
        ]),
        ""
    );
    until("no mount of the old volume is left", SOON, || {
        second.volume_mounts().is_empty().then_some(())
    });
    drop(controller);
    second.show(&[second_disk.name()]);
    kubectl(&["delete", "storagepolicy", "databases"]);
    fixture.end();
}
