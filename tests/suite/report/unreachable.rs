//! Drivers whose storage the node does not reach: from a probe of the daemon to the object.

use serde_json::{Value, json};

use super::storage::STORAGE;
use super::*;

const DRIVER: &str = "nfs.csi.example.org";

fn folder(number: usize) -> String {
    let pod = format!("00000000-0000-4000-8000-00000000000{number}");
    format!("/var/lib/kubelet/pods/{pod}/volumes/kubernetes.io~csi/pv-nfs-{number}")
}

impl Scene {
    /// Two pods have volumes of an NFS server.
    fn add_shares(&self) {
        let root = self.host.root();
        let table = root.join("proc/1/mountinfo");
        let mut mounts = std::fs::read_to_string(&table).expect("readable");
        for number in [1, 2] {
            let folder = folder(number);
            mounts.push_str(&format!(
                "{} 21 0:{} / {folder}/mount rw - nfs4 server:/export-{number} rw\n",
                900 + number,
                900 + number
            ));
            let own = root.join(&folder[1..]);
            std::fs::create_dir_all(own.join("mount")).expect("the folder");
            let record = json!({
                "driverName": DRIVER, "specVolID": format!("pv-nfs-{number}"),
                "volumeHandle": format!("share-{number}"), "volumeLifecycleMode": "Persistent",
            });
            std::fs::write(own.join("vol_data.json"), record.to_string()).expect("the record");
        }
        std::fs::write(&table, mounts).expect("the mounts");
        self.set_probes(&[1, 2], &answer());
    }

    /// How the probes of the shares are answered from now on.
    fn set_probes(&self, shares: &[usize], answer: &Value) {
        let file = self.host.root().join("exec/probes.json");
        let text = std::fs::read_to_string(&file).expect("readable");
        let mut answers: Value = serde_json::from_str(&text).expect("JSON");
        for number in shares {
            answers[format!("{}/mount", folder(*number))] = answer.clone();
        }
        // Renamed into place, so that it is never half read.
        let new = self.host.root().join("exec/probes.new");
        std::fs::write(&new, answers.to_string()).expect("written");
        std::fs::rename(&new, &file).expect("in place");
    }

    fn until_drivers(&self, what: &str, is_so: impl Fn(&[Value], &Value) -> bool) {
        self.until(what, || {
            let status = self.server.storage()?;
            let listed = status["unreachableDrivers"].as_array()?;
            is_so(listed, &status["reachedDrivers"]).then_some(())
        });
    }
}

fn answer() -> Value {
    json!({"statfs": {"total_bytes": 1000, "available_bytes": 400, "used_bytes": 600,
        "total_inodes": 10, "available_inodes": 5, "used_inodes": 5}})
}

fn is_in(list: &Value, driver: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|it| it == driver))
}

#[test]
fn a_server_that_answers_no_share_is_listed_until_one_share_answers() {
    let scene = Scene::stage();
    scene.add_shares();
    scene.host.configure_also("[probes]\ninterval = \"2s\"\ntimeout = \"1s\"\n");
    let _daemon = started(&scene);
    let _reporter = scene.report(STORAGE, brisk());
    scene.until_drivers("the server is reached", |listed, reached| {
        listed.is_empty() && is_in(reached, DRIVER)
    });
    let refused = json!({"errno": 5, "operation": "statfs"});
    scene.set_probes(&[1], &refused);
    scene.until("one share does not answer", || {
        let status = scene.server.storage()?;
        let volumes = status["volumes"].as_array()?.clone();
        let is_share = |it: &Value| it["handle"] == "share-1" && it["health"] == "Bad";
        (volumes.iter().any(is_share) && is_in(&status["reachedDrivers"], DRIVER)).then_some(())
    });
    scene.set_probes(&[2], &refused);
    scene.until_drivers("the server is not reached", |listed, reached| {
        let [entry] = listed else { return false };
        entry["driver"] == DRIVER
            && entry["unknown"].is_null()
            && entry["reason"] == "NotAccessible"
            && entry["volumes"] == 2
            && !is_in(reached, DRIVER)
    });
    scene.set_probes(&[2], &answer());
    scene.until_drivers("it is reached again", |listed, reached| {
        listed.is_empty() && is_in(reached, DRIVER)
    });
}
