//! What a user of the cluster creates, as JSON (claims, volumes, pods), and what Kubernetes shows
//! of it.

use serde_json::{Value, json};

use crate::cluster::{NODE, get, metric};

pub const DRIVER: &str = "csi.diskvitals.io";
/// As scripts/image names it.
pub const CURRENT: &str = env!("CARGO_PKG_VERSION");
pub const IMAGE: &str = concat!("localhost/diskvitals:", env!("CARGO_PKG_VERSION"));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    Filesystem,
    Block,
}

impl As {
    fn mode(self) -> &'static str {
        match self {
            As::Filesystem => "Filesystem",
            As::Block => "Block",
        }
    }
}

/// A claim of a StorageClass.
pub fn claim(name: &str, class: &str, size: &str, mode: As) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": mode.mode(), "storageClassName": class, "resources": {"requests": {"storage": size}}}
    })
}

/// An existing volume, of any driver, with its claim.
pub fn given(name: &str, driver: &str, handle: &str, mode: As) -> Vec<Value> {
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "64Mi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "given",
            "volumeMode": mode.mode(), "claimRef": {"namespace": "default", "name": name}, "csi": {"driver": driver, "volumeHandle": handle}}
    });
    if mode == As::Filesystem {
        volume["spec"]["csi"]["fsType"] = json!("ext4");
    }
    let mut claim = claim(name, "given", "64Mi", mode);
    claim["spec"]["volumeName"] = json!(name);
    vec![volume, claim]
}

/// A pod that writes `hello` into each of its volumes (`data-0`, `data-1`, … at /data/N) and stays.
pub fn pod(name: &str, claims: &[&str], mode: As) -> Value {
    let names: Vec<String> = (0..claims.len()).map(|number| format!("data-{number}")).collect();
    let volumes: Vec<Value> = names
        .iter()
        .zip(claims)
        .map(|(name, claim)| json!({"name": name, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    let volume_mounts: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(number, name)| match mode {
            As::Filesystem => json!({"name": name, "mountPath": format!("/data/{number}")}),
            As::Block => json!({"name": name, "devicePath": format!("/dev/data-{number}")}),
        })
        .collect();
    let hello = match mode {
        As::Filesystem => "for path in /data/*; do echo hello >$path/hello || exit 1; done",
        As::Block => "for path in /dev/data-*; do echo hello >$path || exit 1; done",
    };
    // A file `stop` in its /tmp ends it: it is restarted.
    let script = format!("set -e; {hello}; while ! [ -e /tmp/stop ]; do busybox sleep 0.2; done");
    let mut container = json!({
        "name": "box", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/usr/bin/busybox", "sh", "-c", script],
        "securityContext": {"runAsUser": 0, "runAsGroup": 0}
    });
    container[if mode == As::Block { "volumeDevices" } else { "volumeMounts" }] =
        json!(volume_mounts);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"hostNetwork": true, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "containers": [container], "volumes": volumes}
    })
}

/// A StatefulSet of pods with this label, each on a node of its own if that is possible, and each with a
/// claim `data` at /data. Their one container runs the script.
pub fn stateful_set(
    name: &str,
    (label, value): (&str, &str),
    replicas: usize,
    class: &str,
    script: &str,
) -> Value {
    let labels = json!({label: value});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "hostNetwork": true, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
                    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm":
                        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}}]}},
                    "containers": [{
                        "name": "box", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/usr/bin/busybox", "sh", "-c", script],
                        "securityContext": {"runAsUser": 0, "runAsGroup": 0}, "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "64Mi"}}},
            }],
        },
    })
}

/// One condition of a volume in `pod.status.volumeHealth`, or of a driver in
/// `csinode.status.storageHealth`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition {
    pub status: String,
    pub reason: String,
    pub message: String,
}

fn conditions(entry: &Value) -> Vec<Condition> {
    let text = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let listed = entry["healthConditions"].as_array().into_iter().flatten();
    listed
        .map(|of| Condition {
            status: text(of, "status"),
            reason: text(of, "reason"),
            message: text(of, "message"),
        })
        .collect()
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|entry| entry["name"] == name)
}

/// Of the pod's volume with that number. None: it has no entry, because it has always been healthy.
pub fn volume_health(pod: &str, number: usize) -> Option<Vec<Condition>> {
    let pod = get(&format!("pod/{pod}"))?;
    named(&pod["status"]["volumeHealth"], &format!("data-{number}")).map(conditions)
}

/// Of a driver on this node. Empty: healthy.
pub fn storage_health(driver: &str) -> Vec<Condition> {
    let node = get(&format!("csinode/{NODE}")).unwrap_or_default();
    named(&node["status"]["storageHealth"], driver).map(conditions).unwrap_or_default()
}

pub fn is_registered(driver: &str) -> bool {
    let node = get(&format!("csinode/{NODE}")).unwrap_or_default();
    named(&node["spec"]["drivers"], driver).is_some()
}

pub fn is_running(pod: &str) -> bool {
    get(&format!("pod/{pod}")).is_some_and(|pod| {
        pod["status"]["phase"] == "Running"
            && pod["status"]["containerStatuses"][0]["ready"] == true
    })
}

/// How often its container was restarted.
pub fn restarts(pod: &str) -> Option<u64> {
    get(&format!("pod/{pod}"))?["status"]["containerStatuses"][0]["restartCount"].as_u64()
}

/// The kubelet's calls of one method of a driver's node service.
pub fn calls(driver: &str, method: &str) -> Option<f64> {
    metric(
        "csi_operations_seconds_count",
        &[&format!("driver_name=\"{driver}\""), &format!("/csi.v1.Node/{method}\"")],
    )
}
