//! What a person reads of a volume, and who may read it.

use nix::mount::{MntFlags, MsFlags, umount2};
use serde_json::{Value, json};

use crate::claims::{As, claim, is_running, pod, volume_health};
use crate::cluster::{SOON, TIME_LIMIT, apply, kubectl, until};
use crate::controller::kubeconfig;
use crate::fixture::{CLASS, Fixture};
use crate::support::tools::remount;
use crate::transcript::shell;

/// Where the pod's volume is mounted on this node.
fn mount_of_the_pod() -> std::path::PathBuf {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let paths = table.lines().filter_map(|line| line.split(' ').nth(4));
    let mut of_pods = paths.filter(|at| at.contains("kubernetes.io~csi/"));
    of_pods.next().expect("a volume of a pod").into()
}

fn with_a_report() -> (Fixture, crate::fake_disks::FakeDisks) {
    let mut fixture = Fixture::new();
    let drive = fixture.sata(1, 2048).remove(0);
    fixture.pool_on(&drive.disk);
    fixture.install(&json!({"report": {"storage": true, "events": true}}));
    let mode = As::Filesystem;
    apply(&[claim("a", CLASS, "64Mi", mode), pod("a", &["a"], mode)]);
    until("the pod runs", TIME_LIMIT, || is_running("a").then_some(()));
    (fixture, drive)
}

/// Also a volume that never had a condition.
fn until_nothing_is_shown() {
    until("the pod's volume has no condition", SOON, || {
        volume_health("a", 0).is_none_or(|left| left.is_empty()).then_some(())
    });
}

/// The line of claim `a` on the screen of claims.
fn line_of_the_claim() -> Option<String> {
    let (_, text) = shell("kubectl diskvitals claims");
    text.lines().find(|line| line.split_whitespace().nth(1) == Some("a")).map(str::to_owned)
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_claim_shows_the_worst_that_is_known_of_its_volume() {
    let (fixture, drive) = with_a_report();
    let fill = "busybox dd if=/dev/zero of=/data/0/full bs=1M; busybox sync";
    kubectl(&["exec", "a", "--", "/usr/bin/busybox", "sh", "-c", fill]);
    let line = until("it is full", TIME_LIMIT, || {
        line_of_the_claim().filter(|line| line.contains("OutOfSpace"))
    });
    println!("{line}");
    fixture.fails(&drive, true);
    let line = until("its drive fails", TIME_LIMIT, || {
        line_of_the_claim().filter(|line| line.contains("DriveFailing"))
    });
    println!("{line}");
    fixture.fails(&drive, false);
    until("it is only full", TIME_LIMIT, || {
        line_of_the_claim().filter(|line| !line.contains("DriveFailing"))
    });
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_remount_by_a_person_is_no_act_of_the_kernel() {
    let (fixture, _) = with_a_report();
    let at = mount_of_the_pod();
    remount(&at, MsFlags::MS_RDONLY);
    let is_read_only = || {
        let volumes = fixture.ask(&["volumes"]).ok()?;
        volumes.to_string().contains("\"ro\"").then_some(volumes)
    };
    let volumes = until("the daemon has read the mount", SOON, is_read_only);
    assert!(!volumes.to_string().contains("by the kernel"), "{volumes:#}");
    // What the kubelet asks for later is not the kernel's either.
    let shown = volume_health("a", 0).unwrap_or_default();
    assert!(shown.iter().all(|it| !it.message.contains("by the kernel")), "{shown:?}");
    let (_, text) = shell("kubectl diskvitals claims");
    assert!(!text.contains("by the kernel"), "{text}");
    remount(&at, MsFlags::empty());
    until_nothing_is_shown();
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_mount_that_only_the_container_still_has_is_named_as_that() {
    let (fixture, _) = with_a_report();
    umount2(&mount_of_the_pod(), MntFlags::empty()).expect("it is not busy on the node");
    let shown = until("the mount is missed", SOON, || {
        volume_health("a", 0).filter(|all| all.iter().any(|it| it.reason == "NotMounted"))
    });
    let expected = "a container that was running may still have it, one that starts now does not";
    assert!(shown.iter().any(|it| it.message.contains(expected)), "{shown:?}");
    assert_eq!(
        kubectl(&["exec", "a", "--", "/usr/bin/busybox", "cat", "/data/0/hello"]),
        "hello\n"
    );
    kubectl(&["delete", "pod/a", "--wait=true"]);
    apply(&[pod("a", &["a"], As::Filesystem)]);
    until("another pod has it", TIME_LIMIT, || is_running("a").then_some(()));
    until_nothing_is_shown();
    fixture.end();
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn the_readers_role_suffices_and_a_refusal_names_it() {
    let (fixture, drive) = with_a_report();
    fixture.fails(&drive, true);
    until("the claim is shown", TIME_LIMIT, || {
        line_of_the_claim().filter(|line| line.contains("DriveFailing"))
    });
    let bound = [("reader", Some("diskvitals-reader")), ("viewer", Some("view")), ("nobody", None)];
    for (account, role) in bound {
        kubectl(&["create", "serviceaccount", account]);
        if let Some(role) = role {
            let (role, to) = (format!("--clusterrole={role}"), format!("default:{account}"));
            let to = format!("--serviceaccount={to}");
            kubectl(&["create", "clusterrolebinding", &format!("words-{account}"), &role, &to]);
        }
    }
    let as_account = |account: &str, words: &str| {
        let file = kubeconfig(&fixture, "default", account);
        let (_, text) = shell(&format!("KUBECONFIG={} kubectl diskvitals {words}", file.display()));
        println!("{account}: kubectl diskvitals {words}\n{text}");
        text
    };
    for words in ["", "claims", "drives", "attachments a", "stale", "actions", "models"] {
        let text = as_account("reader", words);
        assert!(!text.contains("403") && !text.contains("error"), "{words}: {text}");
    }
    let text = as_account("reader", "claims");
    assert!(text.contains("DriveFailing"), "{text}");
    // `view` is not permitted to list nodes and volumes: what it sees is there, what not is said.
    let text = as_account("viewer", "");
    assert!(text.contains(&drive.ata.serial), "{text}");
    assert!(text.contains("403") && text.contains("diskvitals-reader"), "{text}");
    let text = as_account("nobody", "");
    assert!(text.contains("403") && text.contains("diskvitals-reader"), "{text}");
    kubectl(&["delete", "clusterrolebinding", "words-reader", "words-viewer"]);
    kubectl(&["delete", "serviceaccount", "reader", "viewer", "nobody"]);
    fixture.fails(&drive, false);
    fixture.end();
}

/// Names of claims that begin alike.
const LONG: &str = "orders-of-customers-database";

/// All texts within.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(all) => all.iter().for_each(|it| texts(it, found)),
        Value::Object(all) => all.values().for_each(|it| texts(it, found)),
        _ => {}
    }
}

/// Whether each name in the text is there as a whole.
fn has_whole_names(text: &str) -> bool {
    let is_whole = |rest: &str| {
        let number = rest.strip_prefix('-').and_then(|rest| rest.get(..2));
        number.is_some_and(|it| it.parse::<u8>().is_ok())
    };
    text.split(&LONG[..4]).skip(1).all(|rest| rest.strip_prefix(&LONG[4..]).is_some_and(is_whole))
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn no_message_and_no_screen_cuts_what_tells_a_name_from_others() {
    const CLAIMS: usize = 24;
    let mut fixture = Fixture::new();
    let drive = fixture.sata(1, 4096).remove(0);
    fixture.pool_on(&drive.disk);
    fixture.install(&json!({"report": {"storage": true, "events": true, "conditions": true}}));
    let mode = As::Filesystem;
    let names: Vec<String> = (10..10 + CLAIMS).map(|it| format!("{LONG}-{it}")).collect();
    let mut objects: Vec<Value> =
        names.iter().map(|name| claim(name, CLASS, "64Mi", mode)).collect();
    for of_a_pod in names.chunks(8) {
        let claims: Vec<&str> = of_a_pod.iter().map(String::as_str).collect();
        objects.push(pod(&of_a_pod[0], &claims, mode));
    }
    apply(&objects);
    for of_a_pod in names.chunks(8) {
        until("the pod runs", TIME_LIMIT, || is_running(&of_a_pod[0]).then_some(()));
    }
    fixture.fails(&drive, true);
    until("each claim is shown", TIME_LIMIT, || {
        let (_, text) = shell("kubectl diskvitals claims");
        (text.matches("DriveFailing").count() >= CLAIMS).then_some(())
    });
    let mut messages = Vec::new();
    for what in ["events", "nodes", "pods", "nodestorages", "csinodes"] {
        let json = kubectl(&["get", what, "-A", "-o", "json"]);
        texts(&serde_json::from_str(&json).expect("JSON"), &mut messages);
    }
    messages.retain(|text| text.contains(LONG));
    println!(
        "{} texts with a name, the longest: {:?}",
        messages.len(),
        messages.iter().max_by_key(|it| it.len())
    );
    assert!(messages.len() > CLAIMS, "{messages:#?}");
    for text in messages {
        assert!(has_whole_names(&text), "{text}");
    }
    // On a screen each claim keeps what tells it from the others.
    for columns in [60, 80, 120] {
        let line = format!("stty cols {columns}; kubectl diskvitals claims");
        let (_, text) = shell(&format!("script -qec '{line}' /dev/null"));
        println!("{text}");
        for name in &names {
            let (_, end) = name.rsplit_once('-').expect("a number");
            let is_its_row = |row: &str| row.contains(&format!("-{end} ")) || row.contains(name);
            assert!(text.lines().any(is_its_row), "{name} at {columns} columns");
        }
    }
    fixture.fails(&drive, false);
    fixture.end();
}
