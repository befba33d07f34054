//! Volumes that hang, on a recorded host: those of one pod do not keep the others from being
//! probed.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Daemon, TIMEOUT};
use crate::programs::built_program;
use crate::tree::{self, KUBELET_ROOT, Plan};

/// Sorts before all others: its volumes are probed first.
const POD: &str = "00000000-0000-4000-8000-000000000000";
const HANGING: usize = 60;
/// Three eighths of the default of `[probes] max_stuck`.
const PER_POD: usize = 12;

/// Adds hanging volumes of one pod and of a FUSE driver; their source names a drive of the host.
fn add_hanging_volumes(root: &Path) {
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect("readable");
    let mut mounts = read("proc/1/mountinfo");
    let mut answers: Value = serde_json::from_str(&read("exec/probes.json")).expect("JSON");
    for number in 0..HANGING {
        let folder = format!("{KUBELET_ROOT}/pods/{POD}/volumes/kubernetes.io~csi/pv-{number}");
        let path = format!("{folder}/mount");
        writeln!(
            mounts,
            "{} 21 0:{} / {path} rw - fuse.s3 /dev/sda rw",
            900 + number,
            900 + number
        )
        .expect("a line");
        answers[&path] = json!({"hang": true});
        let folder = root.join(&folder[1..]);
        std::fs::create_dir_all(folder.join("mount")).expect("the folder");
        let record = json!({
            "driverName": "s3.csi.example.org", "specVolID": format!("pv-{number}"),
            "volumeHandle": format!("bucket-{number}"), "volumeLifecycleMode": "Persistent",
        });
        std::fs::write(folder.join("vol_data.json"), record.to_string()).expect("the record");
    }
    std::fs::write(root.join("proc/1/mountinfo"), mounts).expect("the mounts");
    std::fs::write(root.join("exec/probes.json"), answers.to_string()).expect("the answers");
}

#[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
fn volumes(daemon: &Daemon) -> Vec<Value> {
    let output = Command::new(built_program("diskvitals"))
        .arg("--socket")
        .arg(daemon.dir.path().join("d.sock"))
        .args(["-o", "json", "volumes"])
        .output()
        .expect("runs");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    answer["volumes"].as_array().cloned().unwrap_or_default()
}

#[test]
#[allow(clippy::disallowed_methods)] // No event announces the end of changes.
fn sixty_hanging_volumes_of_one_pod_do_not_blind_the_node() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = Plan { drives: 3, volumes: 30, hung: 0 };
    tree::write(dir.path(), plan).expect("the tree");
    add_hanging_volumes(dir.path());
    let config = "[probes]\ninterval = \"2s\"\ntimeout = \"1s\"\n";
    let daemon = Daemon::start(dir.path(), config, None);
    let end = Instant::now() + TIMEOUT;
    let (hanging, others) = loop {
        let (hanging, others): (Vec<Value>, Vec<Value>) = volumes(&daemon)
            .into_iter()
            .partition(|volume| volume["driver"] == "s3.csi.example.org");
        let decided = hanging.iter().all(|volume| {
            volume["health"] == "HEALTH_BAD"
                || volume["healthUnknownWhy"].to_string().contains("not tried")
        });
        let probed = others.iter().all(|volume| volume["lastProbe"].is_string());
        if hanging.len() == HANGING && decided && others.len() > 30 && probed {
            break (hanging, others);
        }
        assert!(Instant::now() < end, "{hanging:#?}\n{others:#?}");
        std::thread::sleep(Duration::from_millis(100));
    };
    for volume in others {
        assert_eq!(volume["health"], "HEALTH_GOOD", "{volume:#}");
    }
    let (stuck, skipped): (Vec<&Value>, Vec<&Value>) =
        hanging.iter().partition(|volume| volume["health"] == "HEALTH_BAD");
    assert_eq!(stuck.len(), PER_POD);
    for volume in skipped {
        assert_eq!(volume["health"], "HEALTH_UNKNOWN", "{volume:#}");
        let why = volume["healthUnknownWhy"].as_str().expect("a text");
        assert!(why.contains(&format!("{PER_POD} others of pod {POD} do not answer")), "{why}");
        assert_eq!(volume["driveIds"], json!([]), "a source text is not a drive");
    }
    daemon.stop();
}
