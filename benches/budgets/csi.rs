//! The shim under load: health and statistics of 1,000 volumes, one of which hangs; the cost of the
//! interposer; the time to provision volumes. csi-mock is measured beside it, if it is built.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use diskvitals_csi::wire;
use diskvitals_csi::wire::controller_client::ControllerClient;
use diskvitals_csi::wire::identity_client::IdentityClient;
use diskvitals_csi::wire::node_client::NodeClient;
use diskvitals_csi::wire::volume_capability::access_mode::Mode;
use diskvitals_csi::wire::volume_capability::{AccessMode, AccessType, MountVolume};
use diskvitals_wire as api;
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::calls::{self, Calls};
use crate::client::channel;
use crate::daemon::{Daemon, Host, Program, check_snapshot};
use crate::figures::{Better, Comparison, Figures, Goal, Samples, milliseconds};
use crate::peers::Peers;
use crate::process::{self, Running};
use crate::tree::Plan;

const CONNECTIONS: usize = 16;
/// The rate of csi-driver-host-path's NodeGetVolumeStats on 16 connections, measured on a similar
/// machine; the goal is ten times as much.
const HOST_PATH_RATE: f64 = 499.0;
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const PROVISIONED_VOLUMES: usize = 50;
const MIB: i64 = 1 << 20;

pub async fn measure(
    program: &Program,
    peers: &Peers,
    figures: &mut Figures,
    load: Duration,
) -> anyhow::Result<()> {
    let shim = program.path.with_file_name("diskvitals-csi");
    measure_shim(program, &shim, peers, figures, load).await?;
    if nix::unistd::geteuid().is_root() {
        measure_provisioning(program, &shim, figures).await?;
    } else {
        figures.remark("not root: no volumes are brought up");
    }
    Ok(())
}

/// Waits until the shim reports that it is ready.
pub async fn ready(running: &mut Running, socket: &Path) -> anyhow::Result<()> {
    let answers = async {
        loop {
            running.must_run()?;
            if let Ok(channel) = channel(socket).await
                && let Ok(answer) = IdentityClient::new(channel).probe(wire::ProbeRequest {}).await
                && answer.into_inner().ready.unwrap_or(true)
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(READY_TIMEOUT, answers)
        .await
        .with_context(|| format!("{} does not answer", socket.display()))?
}

pub fn start_shim(
    shim: &Path,
    daemon: &Daemon,
    socket: &Path,
    more: &[&str],
) -> anyhow::Result<Running> {
    let (endpoint, agent) =
        (format!("unix://{}", socket.display()), daemon.agent_socket().display().to_string());
    let arguments: Vec<&str> = ["--endpoint", &endpoint, "--agent", &agent, "--node-id", "node-1"]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    Running::start(Command::new(shim).args(arguments))
}

async fn measure_shim(
    program: &Program,
    shim: &Path,
    peers: &Peers,
    figures: &mut Figures,
    load: Duration,
) -> anyhow::Result<()> {
    let host = Host::recorded(Plan { drives: 64, volumes: 1000, hung: 1 })?;
    let mut daemon = program.start(host.root(), "[probes]\ntimeout = \"2s\"\n", None)?;
    let (_took, node) = daemon.wait_settled().await?;
    check_snapshot(&host, &node)?;
    daemon
        .wait_for(Duration::from_secs(90), |node| node.stuck_probes > 0)
        .await
        .context("waiting for the hung mount to be known")?;
    let driver = &host.volumes.first().context("a volume")?.driver;
    let targets = volumes(&daemon, driver).await?;
    anyhow::ensure!(
        targets.len() >= 900,
        "only {} volumes are mounted and measured",
        targets.len()
    );
    figures.remark(&format!("{} volumes of one driver, another hangs", targets.len()));

    let dir = tempfile::tempdir_in("/dev/shm").context("making a folder")?;
    let socket = dir.path().join("csi.sock");
    let mut running = start_shim(shim, &daemon, &socket, &["--driver-name", driver])?;
    ready(&mut running, &socket).await?;
    let mut one = run(&socket, &targets, 1, load, Call::Health).await?;
    one.print_median(figures, "csi_health_1_connection");
    figures.add("csi_health_1_connection_p99", one.milliseconds(0.99), "ms", Goal::AtMost(2.0));
    figures.figure_without_goal("csi_health_1_connection_rate", one.rate(), "calls/s");
    let many = run(&socket, &targets, CONNECTIONS, load, Call::Health).await?;
    figures.figure_without_goal("csi_health_16_connections_rate", many.rate(), "calls/s");
    let ours = Stats::measure(&socket, &targets, running.pid(), load).await?;
    figures.figure_without_goal("csi_stats_1_connection_p50", ours.one.0, "ms");
    figures.add("csi_stats_1_connection_p99", ours.one.1, "ms", Goal::AtMost(2.0));
    figures.add(
        "csi_stats_16_connections_rate",
        ours.rates.1,
        "calls/s",
        Goal::AtLeast(10.0 * HOST_PATH_RATE),
    );

    // For every driver the cost is that of forwarding. Our driver answers fastest, so the cost is
    // most visible.
    let through = dir.path().join("through.sock");
    let upstream = format!("unix://{}", socket.display());
    let mut interposer =
        start_shim(shim, &daemon, &through, &["--mode", "interposer", "--upstream", &upstream])?;
    ready(&mut interposer, &through).await?;
    let mut direct = run(&socket, &targets, 1, load, Call::Info).await?;
    let mut passed = run(&through, &targets, 1, load, Call::Info).await?;
    for (share, name, goal) in [(0.5, "p50", 0.3), (0.99, "p99", 1.0)] {
        let cost = passed.milliseconds(share) - direct.milliseconds(share);
        figures.add(&format!("csi_interposer_overhead_{name}"), cost, "ms", Goal::AtMost(goal));
    }
    figures.figure_without_goal("csi_daemon_memory", process::memory(daemon.pid())?, "MiB");
    if let Some(mock) = peers.find("csi-mock", figures) {
        match measure_mock(&mock, &dir, load).await {
            Ok(theirs) => compare(&ours, &theirs, figures),
            Err(error) => figures.not_measured("csi_mock", &error),
        }
    }
    Ok(())
}

/// NodeGetVolumeStats of one driver.
struct Stats {
    /// Median and 99th percentile in milliseconds, of calls one after the other.
    one: (f64, f64),
    /// The same of 16 connections that all call as fast as answers come.
    many: (f64, f64),
    /// Calls per second, on one connection and on 16.
    rates: (f64, f64),
    /// Of the driver's process, in MiB.
    memory: f64,
}

impl Stats {
    async fn measure(
        socket: &Path,
        targets: &[VolumeTarget],
        driver: i32,
        load: Duration,
    ) -> anyhow::Result<Stats> {
        let mut one = run(socket, targets, 1, load, Call::Stats).await?;
        let mut many = run(socket, targets, CONNECTIONS, load, Call::Stats).await?;
        Ok(Stats {
            one: (one.milliseconds(0.5), one.milliseconds(0.99)),
            many: (many.milliseconds(0.5), many.milliseconds(0.99)),
            rates: (one.rate(), many.rate()),
            memory: process::memory(driver)?,
        })
    }
}

fn compare(ours: &Stats, theirs: &Stats, figures: &mut Figures) {
    let comparison = |what, unit, better, of: fn(&Stats) -> f64| Comparison {
        peer: "csi_mock",
        what,
        unit,
        better,
        ours: of(ours),
        theirs: of(theirs),
    };
    let latency = |what, of| comparison(what, "ms", Better::Less, of);
    let rate = |what, of| comparison(what, "calls/s", Better::More, of);
    for comparison in [
        latency("1_connection_p50", |stats| stats.one.0),
        latency("1_connection_p99", |stats| stats.one.1),
        rate("1_connection_rate", |stats| stats.rates.0),
        latency("16_connections_p50", |stats| stats.many.0),
        latency("16_connections_p99", |stats| stats.many.1),
        rate("16_connections_rate", |stats| stats.rates.1),
    ] {
        figures.compare_without_goal(comparison);
    }
    figures
        .remark("no goal: csi-mock answers with constants, ours asks the daemon for each volume");
    figures.compare(comparison("memory", "MiB", Better::Less, |stats| stats.memory));
}

/// csi-mock answers from memory and examines nothing, for one volume that it considers published.
pub async fn start_mock(
    program: &Path,
    dir: &TempDir,
) -> anyhow::Result<(Running, PathBuf, VolumeTarget)> {
    let socket = dir.path().join("mock.sock");
    let endpoint = format!("unix://{}", socket.display());
    let mut command = Command::new(program);
    let mut mock = Running::start(command.args(["-endpoint", &endpoint, "-no-attach"]))?;
    ready(&mut mock, &socket).await?;
    let target = published_by_mock(&socket, &dir.path().join("target"))
        .await
        .context("publishing a volume of csi-mock")?;
    Ok((mock, socket, target))
}

async fn measure_mock(program: &Path, dir: &TempDir, load: Duration) -> anyhow::Result<Stats> {
    let (mock, socket, target) = start_mock(program, dir).await?;
    Stats::measure(&socket, &[target], mock.pid(), load).await
}

async fn published_by_mock(socket: &Path, target: &Path) -> anyhow::Result<VolumeTarget> {
    let capability = wire::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    };
    let request = wire::CreateVolumeRequest {
        name: "measured".into(),
        volume_capabilities: vec![capability.clone()],
        ..Default::default()
    };
    let created =
        ControllerClient::new(channel(socket).await?).create_volume(request).await?.into_inner();
    let target = VolumeTarget {
        handle: created.volume.context("a volume")?.volume_id,
        path: target.display().to_string(),
    };
    let request = wire::NodePublishVolumeRequest {
        volume_id: target.handle.clone(),
        target_path: target.path.clone(),
        volume_capability: Some(capability),
        ..Default::default()
    };
    NodeClient::new(channel(socket).await?).node_publish_volume(request).await?;
    Ok(target)
}

/// A volume, and its path in a pod.
#[derive(Clone)]
pub struct VolumeTarget {
    handle: String,
    path: String,
}

/// The responsive volumes of the driver: the statistics of the hung one may be an error.
pub async fn volumes(daemon: &Daemon, driver: &str) -> anyhow::Result<Vec<VolumeTarget>> {
    let mut inventory = daemon.connect().await?;
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = api::ListVolumesRequest { page_size: 1000, page_token };
        let page =
            inventory.list_volumes(request).await.context("asking ListVolumes")?.into_inner();
        for volume in page
            .volumes
            .into_iter()
            .filter(|volume| volume.driver == driver && volume.usage.is_some())
        {
            let mount = volume.mounts.iter().find(|mount| mount.role() == api::MountRole::Pod);
            all.extend(mount.map(|mount| VolumeTarget {
                handle: volume.handle.clone(),
                path: mount.path.clone(),
            }));
        }
        if page.next_page_token.is_empty() {
            return Ok(all);
        }
        page_token = page.next_page_token;
    }
}

type CallFuture = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

#[derive(Clone, Copy)]
pub enum Call {
    Health,
    Stats,
    Info,
}

impl Call {
    async fn call(
        self,
        node: &mut NodeClient<Channel>,
        target: &VolumeTarget,
    ) -> Result<(), tonic::Status> {
        match self {
            Call::Health => {
                let request = wire::NodeGetVolumeHealthRequest {
                    volume_id: target.handle.clone(),
                    ..Default::default()
                };
                node.node_get_volume_health(request).await.map(drop)
            }
            Call::Stats => {
                let request = wire::NodeGetVolumeStatsRequest {
                    volume_id: target.handle.clone(),
                    volume_path: target.path.clone(),
                    ..Default::default()
                };
                node.node_get_volume_stats(request).await.map(drop)
            }
            Call::Info => node.node_get_info(wire::NodeGetInfoRequest {}).await.map(drop),
        }
    }
}

/// Each connection calls again after each answer.
async fn run(
    socket: &Path,
    targets: &[VolumeTarget],
    connections: usize,
    load: Duration,
    call: Call,
) -> anyhow::Result<Calls> {
    let mut clients = Vec::new();
    for _connection in 0..connections {
        clients.push(client(channel(socket).await?));
    }
    calls::run(clients, targets, load, None, caller(call)).await
}

pub fn client(channel: Channel) -> NodeClient<Channel> {
    NodeClient::new(channel)
}

/// Makes this call for a volume, for `calls::run`.
pub fn caller(
    call: Call,
) -> impl Fn(NodeClient<Channel>, VolumeTarget) -> CallFuture + Clone + Send + 'static {
    move |mut client: NodeClient<Channel>, target: VolumeTarget| {
        Box::pin(async move {
            let answer = call.call(&mut client, &target).await;
            answer.with_context(|| format!("a call for {}", target.handle))
        })
    }
}

/// Create, stage and publish, one volume after the other, on this machine's loop devices.
async fn measure_provisioning(
    program: &Program,
    shim: &Path,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("making a folder")?;
    let kubelet = dir.path().join("kubelet");
    std::fs::create_dir_all(kubelet.join("pods")).context("making the kubelet's folder")?;
    // A configured folder must exist.
    let pool = dir.path().join("pool");
    std::fs::create_dir(&pool).context("making the pool's folder")?;
    let config = format!("[pool]\ndirectory = \"{}\"\n", pool.display());
    let mut daemon = program.start_at(Path::new("/"), &kubelet, &config, None)?;
    daemon.wait_settled().await?;
    let socket = dir.path().join("csi.sock");
    let mut running = start_shim(shim, &daemon, &socket, &[])?;
    ready(&mut running, &socket).await?;
    let mut controller = ControllerClient::new(channel(&socket).await?);
    let mut node = NodeClient::new(channel(&socket).await?);
    let mount = MountVolume { fs_type: "ext4".into(), ..Default::default() };
    let capability = wire::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(mount)),
    };
    let mut up = Vec::new();
    let mut samples = Samples::default();
    let started = Instant::now();
    for number in 0..PROVISIONED_VOLUMES {
        let begun = Instant::now();
        let request = wire::CreateVolumeRequest {
            name: format!("pvc-{number}"),
            capacity_range: Some(wire::CapacityRange { required_bytes: 8 * MIB, limit_bytes: 0 }),
            volume_capabilities: vec![capability.clone()],
            ..Default::default()
        };
        let handle = controller
            .create_volume(request)
            .await
            .context("CreateVolume")?
            .into_inner()
            .volume
            .context("a volume")?
            .volume_id;
        let (staging, target) = (
            kubelet.join(format!(
                "plugins/kubernetes.io/csi/csi.diskvitals.io/{number:064x}/globalmount"
            )),
            kubelet.join(format!("pods/{number}/volumes/kubernetes.io~csi/pv/mount")),
        );
        std::fs::create_dir_all(&staging).context("making the staging path")?;
        std::fs::create_dir_all(target.parent().context("a folder")?)
            .context("making the target's folder")?;
        let (staging, target) = (staging.display().to_string(), target.display().to_string());
        let request = wire::NodeStageVolumeRequest {
            volume_id: handle.clone(),
            staging_target_path: staging.clone(),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        node.node_stage_volume(request).await.context("NodeStageVolume")?;
        let request = wire::NodePublishVolumeRequest {
            volume_id: handle.clone(),
            staging_target_path: staging.clone(),
            target_path: target.clone(),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        node.node_publish_volume(request).await.context("NodePublishVolume")?;
        samples.push(begun.elapsed());
        up.push((handle, staging, target));
    }
    let took = started.elapsed();
    figures.figure_without_goal(
        "csi_create_stage_publish_p50",
        milliseconds(samples.quantile(0.5)),
        "ms",
    );
    figures.figure_without_goal(
        "csi_create_stage_publish_p99",
        milliseconds(samples.quantile(0.99)),
        "ms",
    );
    figures.figure_without_goal(
        "csi_create_stage_publish_rate",
        PROVISIONED_VOLUMES as f64 / took.as_secs_f64(),
        "volumes/s",
    );
    for (volume_id, staging_target_path, target_path) in up {
        let request =
            wire::NodeUnpublishVolumeRequest { volume_id: volume_id.clone(), target_path };
        node.node_unpublish_volume(request).await.context("NodeUnpublishVolume")?;
        let request =
            wire::NodeUnstageVolumeRequest { volume_id: volume_id.clone(), staging_target_path };
        node.node_unstage_volume(request).await.context("NodeUnstageVolume")?;
        controller
            .delete_volume(wire::DeleteVolumeRequest { volume_id, ..Default::default() })
            .await
            .context("DeleteVolume")?;
    }
    Ok(())
}
