//! `diskvitals-fleet` on a large cluster: kwok plays the kubelets, this test plays the reporters.
//!
//! `DISKVITALS_FLEET_NODES` sets the number of nodes (1,000; ten PersistentVolumes each). The figures
//! are printed; docs/fleet.md has those of a release build.

use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use diskvitals_cluster::node_storage::{
    Counts, DriveEntry, Health, ModelCount, NodeStorage, NodeStorageSpec, NodeStorageStatus,
    VolumeCondition, VolumeEntry, VolumeStatus,
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cluster::{self, HostProgram, command, pause, tool, try_kubectl, until};
use crate::programs::built_program;

const VOLUMES_OF_A_NODE: usize = 10;
const DRIVES_OF_A_NODE: usize = 24;
const FAILING: usize = 50;
const DRIVER: &str = "csi.diskvitals.io";
const LISTEN: &str = "127.0.0.1:29964";
/// Requests at a time.
const PARALLEL: usize = 32;

/// The budgets of docs/fleet.md.
const MAX_RSS_MIB: u64 = 150;
const FIRST_VIEW: Duration = Duration::from_secs(30);
const FAILURES_SHOWN: Duration = Duration::from_secs(60);
const MAX_WRITES_PER_SECOND: f64 = 5.0;
/// How long nothing happens, and nothing may be written.
const QUIET: Duration = Duration::from_secs(20);

fn node_count() -> usize {
    std::env::var("DISKVITALS_FLEET_NODES").map_or(1000, |text| text.parse().expect("a number"))
}

fn node_name(number: usize) -> String {
    format!("fake-{number}")
}

fn volume_name(node: usize, number: usize) -> String {
    format!("pv-{node}-{number}")
}

fn drive_id(node: usize, number: usize) -> String {
    format!("naa.5000c500{node:06x}{number:02x}")
}

/// Calls `call` for each number, several at a time; a failure ends the test.
async fn each<F>(numbers: impl Iterator<Item = usize>, call: impl Fn(usize) -> F)
where
    F: Future<Output = kube::Result<()>> + Send + 'static,
{
    let mut running: JoinSet<kube::Result<()>> = JoinSet::new();
    for number in numbers {
        if running.len() == PARALLEL {
            let ended = running.join_next().await.expect("a call runs");
            ended.expect("no panic").expect("the call succeeds");
        }
        running.spawn(call(number));
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic").expect("the call succeeds");
    }
}

fn node(number: usize) -> Node {
    serde_json::from_value(json!({
        "metadata": {
            "name": node_name(number),
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": node_name(number)},
        },
        // Pods of the lab must not be placed here.
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
    }))
    .expect("a node")
}

fn volume(node: usize, number: usize, claim: Option<&str>) -> PersistentVolume {
    let name = volume_name(node, number);
    let mut volume = json!({
        "metadata": {"name": name, "labels": {"type": "kwok"}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": DRIVER, "volumeHandle": format!("handle-{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name(node)]},
            ]}]}},
        },
    });
    if let Some(claim) = claim {
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": claim});
    }
    serde_json::from_value(volume).expect("a volume")
}

fn claim(name: &str, volume: &str) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"type": "kwok"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }))
    .expect("a claim")
}

/// What the reporter of a node writes. Of a failing node the first drive is dying, and the volume
/// on it is inaccessible.
fn status(number: usize, uid: &str, is_failing: bool, now: &Time) -> NodeStorageStatus {
    let mut status = NodeStorageStatus {
        node_uid: uid.into(),
        machine_id: format!("{number:032x}"),
        boot_id: format!("{number:08x}-0000-4000-8000-000000000000"),
        daemon_version: env!("CARGO_PKG_VERSION").into(),
        reported_at: Some(now.clone()),
        health: Health::Good,
        counts: Counts {
            drives: u32::try_from(DRIVES_OF_A_NODE).expect("few"),
            volumes: u32::try_from(VOLUMES_OF_A_NODE).expect("few"),
            ..Counts::default()
        },
        drive_ids: (0..DRIVES_OF_A_NODE).map(|drive| drive_id(number, drive)).collect(),
        models: vec![ModelCount {
            model: "ST16000NM001G".into(),
            firmware: format!("SN0{}", number % 4),
            kind: "ATA".into(),
            count: u32::try_from(DRIVES_OF_A_NODE).expect("few"),
        }],
        conditions: vec![Condition {
            type_: "DaemonReachable".into(),
            status: "True".into(),
            reason: "Answers".into(),
            message: String::new(),
            last_transition_time: now.clone(),
            observed_generation: None,
        }],
        ..NodeStorageStatus::default()
    };
    if is_failing {
        status.health = Health::Bad;
        (status.counts.bad, status.counts.affected) = (1, 1);
        status.drives.push(DriveEntry {
            id: drive_id(number, 0),
            name: "sda".into(),
            model: "ST16000NM001G".into(),
            serial: format!("ZL2{number:05}"),
            slot: "00".into(),
            health: Health::Bad,
            reason: "DriveOffline".into(),
            since: Some(now.clone()),
            ..DriveEntry::default()
        });
        status.volumes.push(VolumeEntry {
            driver: DRIVER.into(),
            handle: format!("handle-{}", volume_name(number, 0)),
            persistent_volume: volume_name(number, 0),
            health: Health::Bad,
            health_conditions: vec![VolumeCondition {
                status: VolumeStatus::Inaccessible,
                reason: "DriveOffline".into(),
                message: "the drive below it does not answer".into(),
            }],
            drive_ids: vec![drive_id(number, 0)],
            since: Some(now.clone()),
            ..VolumeEntry::default()
        });
    }
    status
}

#[expect(clippy::disallowed_methods, reason = "the reporters that this test plays have a clock")]
fn current_time() -> Time {
    Time(k8s_openapi::jiff::Timestamp::now())
}

async fn report(
    api: Api<NodeStorage>,
    name: String,
    status: NodeStorageStatus,
) -> kube::Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(&name, &PatchParams::default(), &patch).await.map(drop)
}

/// The program's metrics; None while it does not answer.
fn scrape() -> Option<String> {
    let mut connection = TcpStream::connect(LISTEN).ok()?;
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    connection.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The sum of the series whose text contains each of `parts`.
fn sum(parts: &[&str]) -> Option<f64> {
    let text = scrape()?;
    let of_series =
        |line: &&str| parts.iter().all(|part| line.contains(part)) && !line.starts_with('#');
    let values = text
        .lines()
        .filter(of_series)
        .filter_map(|line| line.split(' ').nth(1)?.parse::<f64>().ok());
    values.reduce(|sum, value| sum + value)
}

fn rss_mib(program: &HostProgram) -> u64 {
    let status = procfs::process::Process::new(program.pid())
        .and_then(|process| process.status())
        .expect("it runs");
    status.vmrss.expect("its memory") / 1024
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn fleet_shows_fifty_failing_drives_of_a_thousand_nodes_within_a_minute() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(large_cluster());
}

async fn large_cluster() {
    let nodes = node_count();
    let definitions = cluster::output(
        {
            let mut fleet = command(built_program("diskvitals-fleet"));
            fleet.arg("crds");
            fleet
        },
        "",
    );
    let definitions = String::from_utf8(definitions.stdout).expect("text");
    try_kubectl(&["apply", "-f", "-"], &definitions).expect("the definitions are accepted");
    until("the API server serves NodeStorage", Duration::from_secs(30), || {
        try_kubectl(&["get", "nodestorages"], "").ok()
    });

    let client = Client::try_default().await.expect("a client");
    let kwok = HostProgram::start(
        "kwok",
        command(tool("kwok"))
            .arg("--kubeconfig")
            .arg(std::env::var("KUBECONFIG").expect("the cluster's"))
            .args([
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                "--node-lease-duration-seconds=200",
                "--config",
            ])
            .arg(tool("../share/kwok/stages.yaml")),
    );

    let begun = Instant::now();
    let all_nodes: Api<Node> = Api::all(client.clone());
    each(0..nodes, |number| {
        let api = all_nodes.clone();
        async move { api.create(&PostParams::default(), &node(number)).await.map(drop) }
    })
    .await;
    until("kwok makes its nodes Ready", Duration::from_secs(300), || {
        let text = try_kubectl(&["get", "nodes", "-l", "type=kwok", "--no-headers"], "").ok()?;
        (text.lines().filter(|line| line.contains(" Ready ")).count() == nodes).then_some(())
    });
    println!("{nodes} nodes Ready after {:.1?}", begun.elapsed());

    let begun = Instant::now();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    each(0..nodes * VOLUMES_OF_A_NODE, |number| {
        let api = volumes.clone();
        let (node, number) = (number / VOLUMES_OF_A_NODE, number % VOLUMES_OF_A_NODE);
        async move {
            let bound = (number == 0 && node < FAILING).then(|| format!("data-{node}"));
            let volume = volume(node, number, bound.as_deref());
            api.create(&PostParams::default(), &volume).await.map(drop)
        }
    })
    .await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    each(0..FAILING, |number| {
        let api = claims.clone();
        async move {
            let claim = claim(&format!("data-{number}"), &volume_name(number, 0));
            api.create(&PostParams::default(), &claim).await.map(drop)
        }
    })
    .await;
    println!("{} volumes after {:.1?}", nodes * VOLUMES_OF_A_NODE, begun.elapsed());

    let begun = Instant::now();
    let uids: Vec<String> = {
        let list = all_nodes.list(&ListParams::default().labels("type=kwok")).await;
        let mut uids = vec![String::new(); nodes];
        for node in list.expect("the nodes") {
            let name = node.metadata.name.expect("a name");
            let number: usize = name["fake-".len()..].parse().expect("a number");
            uids[number] = node.metadata.uid.expect("a uid");
        }
        uids
    };
    let storages: Api<NodeStorage> = Api::all(client.clone());
    let now = current_time();
    each(0..nodes, |number| {
        let (api, status) = (storages.clone(), status(number, &uids[number], false, &now));
        async move {
            let object = NodeStorage::new(&node_name(number), NodeStorageSpec::default());
            api.create(&PostParams::default(), &object).await?;
            report(api, node_name(number), status).await
        }
    })
    .await;
    println!("{nodes} NodeStorages after {:.1?}", begun.elapsed());
    until("the claims are bound", Duration::from_secs(300), || {
        let text = try_kubectl(&["get", "pvc", "-l", "type=kwok", "--no-headers"], "").ok()?;
        (text.lines().filter(|line| line.contains(" Bound ")).count() == FAILING).then_some(())
    });

    let begun = Instant::now();
    let fleet = HostProgram::start(
        "fleet",
        command(built_program("diskvitals-fleet")).args([
            "--duties",
            "claims,shared-drives",
            "--lease-namespace",
            "default",
            "--listen",
            LISTEN,
        ]),
    );
    until("it has seen all nodes", FIRST_VIEW, || {
        (sum(&["diskvitals_fleet_nodes{", "\"good\""])? >= nodes as f64).then_some(())
    });
    println!("first view after {:.1?}, {} MiB", begun.elapsed(), rss_mib(&fleet));

    let begun = Instant::now();
    let now = current_time();
    each(0..FAILING, |number| {
        report(storages.clone(), node_name(number), status(number, &uids[number], true, &now))
    })
    .await;
    until("every claim on a failing drive is Inaccessible", FAILURES_SHOWN, || {
        let text = try_kubectl(&["get", "pvc", "-l", "type=kwok", "-o", "json"], "").ok()?;
        let list: Value = serde_json::from_str(&text).ok()?;
        let shown = list["items"].as_array()?.iter().filter(|claim| {
            claim["status"]["healthStatus"]["healthConditions"][0]["status"] == "Inaccessible"
        });
        (shown.count() == FAILING).then_some(())
    });
    println!("{FAILING} failing drives shown on their claims after {:.1?}", begun.elapsed());

    let writes = || sum(&["diskvitals_fleet_writes_total"]).expect("its metrics");
    let before = writes();
    pause(QUIET);
    let rate = (writes() - before) / QUIET.as_secs_f64();
    let rss = rss_mib(&fleet);
    println!("steady: {rate:.2} writes/s, {rss} MiB");
    assert!(rate <= MAX_WRITES_PER_SECOND, "{rate} writes/s");
    assert!(rss <= MAX_RSS_MIB, "{rss} MiB");
    drop((fleet, kwok));

    let selected = ListParams::default().labels("type=kwok");
    delete_all(&claims, &selected).await;
    delete_all(&volumes, &selected).await;
    delete_all(&all_nodes, &selected).await;
    delete_all(&storages, &ListParams::default()).await;
}

/// The API server gives one call a minute: of 50,000 objects it then leaves some.
async fn delete_all<K>(objects: &Api<K>, selected: &ListParams)
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    for _ in 0..10 {
        let parameters = DeleteParams::default();
        match objects.delete_collection(&parameters, selected).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if [500, 504].contains(&status.code) => {}
            Err(error) => panic!("deleting a collection: {error}"),
        }
    }
    panic!("a collection is not deleted in ten minutes");
}
