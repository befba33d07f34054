//! Releases while another container floods the kernel log, so that records of the failure are lost: to the
//! end, or held by a gate that says why; and nothing at all where the drive has returned.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::claims::IMAGE;
use crate::cluster::{HostProgram, NODE, TIME_LIMIT, apply, get, kubectl, pause, until};
use crate::controller;
use crate::fixture::Fixture;
use crate::nodes::{API_ADDRESS, OtherNode};
use crate::programs::built_program;
use crate::release::{Member, TIMING, action, condition, text};
use crate::support::{Disk, Mode, tools};
use crate::transcript::shell;

/// Rounds of the long form: DISKVITALS_ROUNDS=10.
const ROUNDS: usize = 2;

/// Two members: one on the second node, whose drive will die, and one on a drive that answers smartctl,
/// which keeps its health when records are lost.
struct Lab {
    controller: HostProgram,
    before: Vec<Value>,
    victim: Member,
    served: usize,
    disk: Disk,
    console: ConsoleLevel,
    fixture: Fixture,
    second: OtherNode,
}

/// The kernel prints only emergencies on its console, which is far slower than its log.
struct ConsoleLevel(String);

impl ConsoleLevel {
    fn lower() -> ConsoleLevel {
        let levels = std::fs::read_to_string("/proc/sys/kernel/printk").expect("the levels");
        tools::run("/usr/bin/dmesg", &[&"-n", &"1"]);
        ConsoleLevel(levels.split_whitespace().next().expect("a level").to_owned())
    }
}

impl Drop for ConsoleLevel {
    fn drop(&mut self) {
        tools::succeeds("/usr/bin/dmesg", &[&"-n", &self.0]);
    }
}

impl Lab {
    fn start() -> Lab {
        let second = OtherNode::new(2);
        let mut fixture = Fixture::new();
        let first = fixture.sata(1, 1024).remove(0).disk;
        let (disk, served) = fixture.failing_disk("second", 1024);
        fixture.pool_on(&first);
        fixture.pool_of(&second, &disk, &[first.name()]);
        second.start();
        let mut fleet = controller::values(&["claims", "release"]);
        fleet["carryOut"] = json!({"namespaces": ["default"]});
        fixture.install(&json!({
            "apiServer": {"host": API_ADDRESS}, "report": {"storage": true, "answerChallenges": true}, "fleet": fleet,
            "provisioner": {"extraArgs": ["--capacity-poll-interval=3s"]},
        }));
        let (before, victim) = Member::on(&second.name(), 2);
        // On processors that the flood uses too.
        let timing = TIMING.replace("lease=6", "lease=20");
        let arguments = ["--duties", "claims,release", "--carry-out-in", "default"];
        let controller = controller::start(&fixture, &timing, &arguments);
        let console = ConsoleLevel::lower();
        Lab { controller, before, victim, served, disk, console, fixture, second }
    }

    /// Another container, which overwrites the kernel log until it is deleted.
    fn flood(&self) {
        let folder = self.fixture.path("flood");
        std::fs::create_dir(&folder).expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("hwtests/kubernetes/flood.c");
        let program = folder.join("flood");
        tools::run("/usr/bin/gcc", &[&"-static", &"-O2", &"-o", &program, &source]);
        apply(&[json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "flood", "namespace": "default"},
            "spec": {
                "hostNetwork": true, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                "nodeSelector": {"kubernetes.io/hostname": NODE},
                "containers": [{
                    "name": "flood", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/flood/flood"],
                    "securityContext": {"privileged": true, "runAsUser": 0, "runAsGroup": 0},
                    "volumeMounts": [{"name": "flood", "mountPath": "/flood"}],
                }],
                "volumes": [{"name": "flood", "hostPath": {"path": folder, "type": "Directory"}}],
            },
        })]);
        let before = self.lost_records();
        until("records are lost", TIME_LIMIT, || (self.lost_records() > before).then_some(()));
    }

    /// Records that the second node's daemon could not read, as it says itself.
    fn lost_records(&self) -> u64 {
        let program = built_program("diskvitals");
        let socket = "--socket /run/diskvitals/diskvitals.sock";
        // Its exit status is the node's health.
        let status = format!("{program} {socket} status || true");
        let status = self.second.enter(&["/bin/sh", "-c", &status]);
        let lost = status.split_once(" records since the boot were overwritten");
        let count = lost.and_then(|(before, _)| before.rsplit([' ', '\n']).next());
        count.map_or(0, |count| count.parse().expect("a number"))
    }

    fn end(self) {
        let Lab { controller, victim, served, disk, console, fixture, second, .. } = self;
        kubectl(&["delete", "pod", "flood", "--ignore-not-found"]);
        drop((controller, console));
        // Nothing can be deleted from the pool of the dead drive.
        let kept = r#"{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}"#;
        kubectl(&["patch", "pv", &victim.volume, "--type=merge", "-p", kept]);
        fixture.served(served).set(Mode::Pass);
        second.show(&[disk.name()]);
        kubectl(&["delete", "storagepolicy", "databases", "--ignore-not-found"]);
        fixture.end();
        drop(second);
    }
}

/// Name of the action once it waits for a person.
fn proposed() -> String {
    let waiting = until("an action waits for approval", TIME_LIMIT, || {
        action().filter(|action| action["status"]["blockedBy"] == "NotApproved")
    });
    text(&waiting, "/metadata/name").to_owned()
}

/// The reason of the step that waits.
fn waits_for(action: &Value) -> String {
    let conditions = action["status"]["conditions"].as_array().into_iter().flatten();
    let waiting = conditions.filter(|it| it["status"] == "False");
    let texts = waiting.map(|it| it["message"].as_str().unwrap_or_default());
    texts.collect::<Vec<_>>().join("; ")
}

/// None: the member is replaced. Otherwise the gate that holds the action, with its text.
fn release_in_a_flood() -> Option<String> {
    let lab = Lab::start();
    lab.flood();
    let lost = lab.lost_records();
    let drive = lab.disk.name();
    lab.victim.lose_drive(lab.fixture.served(lab.served), &lab.second, drive);
    let name = proposed();
    lab.victim.assert_unprepared();
    let begun = Instant::now();
    let held = loop {
        let action = action().expect("the action");
        for end in ["Stuck", "Aborted"] {
            assert_ne!(condition(&action, end).as_deref(), Some("True"), "{action:#}");
        }
        if condition(&action, "Replaced").as_deref() == Some("True") {
            break None;
        }
        // Also anew, if what was approved has changed.
        if action["spec"]["approval"] == "Pending" && action["status"]["blockedBy"] == "NotApproved"
        {
            let (_, answer) = shell(&format!("kubectl diskvitals approve {name} --yes"));
            println!("{answer}");
        }
        if begun.elapsed() > TIME_LIMIT * 2 {
            let gate = action["status"]["blockedBy"].as_str().unwrap_or_default();
            break Some(format!("{gate}: {}", waits_for(&action)));
        }
        pause(std::time::Duration::from_secs(1));
    };
    let now = lab.lost_records();
    assert!(now > lost, "records are lost while it goes on: {lost}, {now}");
    println!("{} records lost; held: {held:?}", now - lost);
    match &held {
        None => lab.victim.assert_replaced(&lab.before, &name),
        Some(gate) => {
            lab.victim.assert_untouched();
            for part in ["kernel-log", "since", "until"] {
                assert!(gate.contains(part), "{part} in {gate}");
            }
        }
    }
    lab.end();
    held
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_release_goes_to_its_end_while_the_kernel_log_loses_records() {
    let rounds = std::env::var("DISKVITALS_ROUNDS");
    let rounds = rounds.map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let mut held = Vec::new();
    for round in 1..=rounds {
        println!("round {round} of {rounds}");
        held.extend(release_in_a_flood());
    }
    assert!(held.len() * 10 <= rounds, "{} of {rounds} were held: {held:#?}", held.len());
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn nothing_is_deleted_when_the_drive_is_back_before_the_approval() {
    let lab = Lab::start();
    lab.flood();
    let drive = lab.disk.name();
    lab.victim.lose_drive(lab.fixture.served(lab.served), &lab.second, drive);
    let name = proposed();
    lab.fixture.served(lab.served).set(Mode::Pass);
    lab.second.show(&[drive]);
    // The person has not seen that it is back. Whether the approval is still accepted is a race.
    let (is_approved, answer) = shell(&format!("kubectl diskvitals approve {name} --yes"));
    println!("approved: {is_approved}\n{answer}");
    let ended = until("the action ends", TIME_LIMIT, || {
        action().filter(|action| condition(action, "Aborted").as_deref() == Some("True"))
    });
    assert_eq!(ended["status"]["blockedBy"], "FindingGone", "{ended:#}");
    pause(std::time::Duration::from_secs(10));
    lab.victim.assert_unprepared();
    lab.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_proposal_rests_on_the_log_and_is_held_while_its_policy_is_gone() {
    let lab = Lab::start();
    lab.victim.lose_drive(lab.fixture.served(lab.served), &lab.second, lab.disk.name());
    let name = proposed();
    // The log's records of the failure count, however short `[errors] quiet_after` is: five seconds here.
    pause(std::time::Duration::from_secs(15));
    let node = lab.second.name();
    let report = get(&format!("nodestorage/{node}")).expect("its report")["status"].clone();
    let findings = report["challenge"]["findings"].as_array().expect("its answer");
    let lost = findings.iter().find(|finding| finding["reason"] == "DriveMissing");
    let witnesses = &lost.expect("the drive's")["witnesses"];
    assert!(witnesses.to_string().contains("KernelLog"), "{report:#}");
    assert_eq!(action().expect("the action")["status"]["blockedBy"], "NotApproved");

    kubectl(&["delete", "storagepolicy", "databases"]);
    until("the action says why it is held", TIME_LIMIT, || {
        let text = waits_for(&action()?);
        text.contains("policy databases was deleted").then_some(())
    });
    let (_, shown) = shell(&format!("kubectl diskvitals actions {name}"));
    assert!(!shown.contains("no time"), "{shown}");
    lab.victim.assert_untouched();
    lab.end();
}
