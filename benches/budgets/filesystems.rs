//! Scrapes of a node with hundreds of mounted volumes, and of one of which a mount hangs, compared
//! with node_exporter's filesystem collector on the same mounts. On this machine's kernel: requires
//! root and FUSE.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::json;

use crate::daemon::{Daemon, Program};
use crate::figures::{Better, Comparison, Figures, Goal, Samples, milliseconds};
use crate::fuse::{FuseServer, Mode};
use crate::peers::{self, Exporter, Peers};
use crate::process;

const VOLUMES: usize = 500;
const DRIVER: &str = "many.csi.example.org";
/// Both are scraped in turns of so many.
const SCRAPES: u32 = 50;
const TURNS: u32 = 4;
/// The interval of Prometheus, and how long both are scraped at it: longer than a probe round.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);
const QUIET_SCRAPES: u32 = 5;
const TIMEOUT: Duration = Duration::from_secs(60);
/// For a scrape while a mount hangs: twice Prometheus' own.
const HUNG_TIMEOUT: Duration = Duration::from_secs(20);
/// Until the probe of the hung mount has timed out.
const HUNG_SCRAPES: u32 = 100;
const HUNG_PAUSE: Duration = Duration::from_millis(100);

pub async fn measure(
    program: &Program,
    peers: &Peers,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        figures.remark("not root: scrapes of mounted filesystems were not measured");
        return Ok(());
    }
    let dir = tempfile::tempdir().context("making a folder for the mounts")?;
    let volumes = Volumes::mount(dir.path())?;
    let address = peers::free_address()?;
    let config = format!("[metrics]\nlisten = \"{address}\"\n[probes]\ntimeout = \"2s\"\n");
    let mut daemon = program.start_at(Path::new("/"), &volumes.kubelet, &config, None)?;
    daemon.wait_settled().await?;
    let mut ours = Scraped::Ours(daemon, address);
    ours.wait_complete().await?;
    let mut theirs = None;
    if let Some(program) = peers.find("node_exporter", figures) {
        let mut command = Command::new(program);
        command.args([
            "--collector.disable-defaults",
            "--collector.filesystem",
            "--web.disable-exporter-metrics",
        ]);
        let started = Exporter::start("node_exporter", command).await;
        match started {
            Ok(exporter) => theirs = Some(Scraped::Theirs(exporter)),
            Err(error) => figures.not_measured("node_exporter", &error),
        }
    }
    if let Some(exporter) = &mut theirs
        && let Err(error) = exporter.wait_complete().await
    {
        figures.not_measured("node_exporter", &error);
        theirs = None;
    }

    let (mut of_ours, mut of_theirs) = (Cost::default(), Cost::default());
    for _turn in 0..TURNS {
        ours.scrape_often(&mut of_ours).await?;
        if let Some(theirs) = &mut theirs {
            theirs.scrape_often(&mut of_theirs).await?;
        }
    }
    let p99 = milliseconds(of_ours.samples.quantile(0.99));
    figures.add("mounts_scrape_p99", p99, "ms", Goal::AtMost(10.0));
    figures.remark(&format!(
        "{VOLUMES} volumes, {} scrapes one after the other",
        of_ours.samples.len()
    ));
    let (begun, uevents) = ((ours.run_time()?, theirs.as_ref().map(Scraped::run_time)), uevents()?);
    for _scrape in 0..QUIET_SCRAPES {
        tokio::time::sleep(SCRAPE_INTERVAL).await;
        ours.scrape(TIMEOUT).await?;
        if let Some(theirs) = &mut theirs {
            theirs.scrape(TIMEOUT).await?;
        }
    }
    let uevents = self::uevents()? - uevents;
    let seconds = (SCRAPE_INTERVAL * QUIET_SCRAPES).as_secs_f64();
    let share = |scraped: &Scraped, before: Duration| {
        let spent = scraped.run_time()?.saturating_sub(before);
        anyhow::Ok(spent.as_secs_f64() / seconds * 100.0)
    };
    of_ours.share = share(&ours, begun.0)?;
    of_ours.memory = process::memory(ours.pid())?;
    figures.figure_without_goal("mounts_cpu_at_15s", of_ours.share, "%_of_a_core");
    if let (Some(theirs), Some(before)) = (&theirs, begun.1) {
        of_theirs.share = share(theirs, before?)?;
        of_theirs.memory = process::memory(theirs.pid())?;
        compare(&mut of_ours, &mut of_theirs, figures);
        let share = comparison("cpu_at_15s", "%_of_a_core", of_ours.share, of_theirs.share);
        // Two thirds of its processor time.
        figures.compare_with_goal(share, 1.5);
        figures.remark(&format!(
            "no goal: ours probes by itself, reads the kernel log and the hardware, and followed {uevents} events of devices meanwhile"
        ));
    }

    volumes.hung.set(Mode::Hang);
    let hung = measure_hung(&mut ours, theirs.as_mut(), figures).await;
    // Before the processes end and the mounts go.
    volumes.hung.set(Mode::Fail);
    hung
}

fn compare(ours: &mut Cost, theirs: &mut Cost, figures: &mut Figures) {
    let mut both = |what, unit, of: fn(&mut Cost) -> f64| {
        figures.compare(comparison(what, unit, of(ours), of(theirs)));
    };
    both("scrape_p50", "ms", |cost| milliseconds(cost.samples.quantile(0.5)));
    both("scrape_p99", "ms", |cost| milliseconds(cost.samples.quantile(0.99)));
    both("scrape_cpu", "ms", |cost| milliseconds(cost.spent) / cost.samples.len() as f64);
    both("memory", "MiB", |cost| cost.memory);
}

fn comparison(what: &'static str, unit: &'static str, ours: f64, theirs: f64) -> Comparison {
    Comparison { peer: "node_exporter", what, unit, better: Better::Less, ours, theirs }
}

/// How many the kernel has sent since the boot: another program that attaches devices makes the
/// daemon examine the hardware.
fn uevents() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/sys/kernel/uevent_seqnum");
    let text = text.context("reading /sys/kernel/uevent_seqnum")?;
    text.trim().parse().context("the number of uevents")
}

/// Scrapes while a mount does not answer: ours over the time in which its probe hangs and times out,
/// theirs once, and once again when it knows.
async fn measure_hung(
    ours: &mut Scraped,
    theirs: Option<&mut Scraped>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let first_of_theirs = async {
        let Some(theirs) = theirs else {
            return anyhow::Ok(None);
        };
        let first = theirs.scrape(HUNG_TIMEOUT).await?;
        let second = theirs.scrape(HUNG_TIMEOUT).await?;
        Ok(Some((first, second)))
    };
    let all_of_ours = async {
        let mut samples = Samples::default();
        for _scrape in 0..HUNG_SCRAPES {
            samples.push(ours.answer().await?.1);
            tokio::time::sleep(HUNG_PAUSE).await;
        }
        anyhow::Ok(samples)
    };
    let (mut samples, theirs) = tokio::try_join!(all_of_ours, first_of_theirs)?;
    let median = milliseconds(samples.quantile(0.5));
    figures.figure_without_goal("mounts_scrape_one_hung_p50", median, "ms");
    let p99 = milliseconds(samples.quantile(0.99));
    figures.add("mounts_scrape_one_hung_p99", p99, "ms", Goal::AtMost(10.0));
    let Some((first, second)) = theirs else {
        return Ok(());
    };
    if first.is_none() {
        figures.remark(&format!(
            "node_exporter with one hung mount: no answer within {HUNG_TIMEOUT:?}; the ratio is at least so large"
        ));
    }
    let took = first.map_or(HUNG_TIMEOUT, |(_text, took)| took);
    figures.compare(comparison("scrape_one_hung", "ms", p99, milliseconds(took)));
    figures.remark(&match second {
        Some((_text, took)) => format!("its next scrape takes {took:?}, without the hung mount"),
        None => format!("its next scrape does not answer within {HUNG_TIMEOUT:?} either"),
    });
    Ok(())
}

/// What scrapes cost.
#[derive(Default)]
struct Cost {
    samples: Samples,
    /// The processor time of them.
    spent: Duration,
    /// In per cent of a core, at Prometheus' interval: with all that runs meanwhile.
    share: f64,
    memory: f64,
}

enum Scraped {
    Ours(Daemon, std::net::SocketAddr),
    Theirs(Exporter),
}

impl Scraped {
    fn pid(&self) -> i32 {
        match self {
            Scraped::Ours(daemon, _) => daemon.pid(),
            Scraped::Theirs(exporter) => exporter.pid(),
        }
    }

    fn run_time(&self) -> anyhow::Result<Duration> {
        process::run_time(self.pid())
    }

    /// The name of the metric that each volume with a reading has.
    fn size_metric(&self) -> &'static str {
        match self {
            Scraped::Ours(..) => "diskvitals_volume_size_bytes{",
            Scraped::Theirs(_) => "node_filesystem_size_bytes{",
        }
    }

    async fn scrape(&mut self, limit: Duration) -> anyhow::Result<Option<(String, Duration)>> {
        match self {
            Scraped::Ours(daemon, address) => {
                daemon.must_run()?;
                peers::scrape(*address, limit).await
            }
            Scraped::Theirs(exporter) => exporter.scrape(limit).await,
        }
    }

    async fn answer(&mut self) -> anyhow::Result<(String, Duration)> {
        let scraped = self.scrape(TIMEOUT).await?;
        scraped.with_context(|| format!("no scrape within {TIMEOUT:?}"))
    }

    async fn scrape_often(&mut self, cost: &mut Cost) -> anyhow::Result<()> {
        let before = self.run_time()?;
        for _ in 0..SCRAPES {
            cost.samples.push(self.answer().await?.1);
        }
        cost.spent += self.run_time()?.saturating_sub(before);
        Ok(())
    }

    /// Until all volumes have a size.
    async fn wait_complete(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (text, _took) = self.answer().await?;
            let wanted = |line: &&str| line.starts_with(self.size_metric());
            let sizes = text
                .lines()
                .filter(|line| {
                    line.contains(DRIVER) || line.contains("/volumes/kubernetes.io~csi/")
                })
                .filter(wanted)
                .count();
            if sizes > VOLUMES {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "{sizes} volumes have a size within {TIMEOUT:?}, of {VOLUMES} and the one that will hang"
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Small filesystems at paths of pods, and one that will hang; unmounted when dropped.
struct Volumes {
    kubelet: PathBuf,
    paths: Vec<PathBuf>,
    hung: FuseServer,
}

impl Volumes {
    fn mount(dir: &Path) -> anyhow::Result<Volumes> {
        let kubelet = dir.join("kubelet");
        let last = publish(&kubelet, VOLUMES)?;
        let content = dir.join("content");
        std::fs::write(&content, [0; 4096]).context("writing a file")?;
        let mut volumes =
            Volumes { hung: FuseServer::mount(&last, &content), kubelet, paths: vec![last] };
        for number in 0..VOLUMES {
            let path = publish(&volumes.kubelet, number)?;
            mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some("size=1m"))
                .with_context(|| format!("mounting {}", path.display()))?;
            volumes.paths.push(path);
        }
        Ok(volumes)
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        self.hung.set(Mode::Fail);
        for path in &self.paths {
            match umount2(path, MntFlags::MNT_DETACH) {
                Ok(()) | Err(Errno::EINVAL) => {}
                Err(error) => eprintln!("error: unmounting {}: {error}", path.display()),
            }
        }
    }
}

/// Writes the kubelet's record of a volume in a pod. Returns the path of its mount.
fn publish(kubelet: &Path, number: usize) -> anyhow::Result<PathBuf> {
    let pod = format!("pods/3e000000-0000-4000-8000-{number:012}/volumes/kubernetes.io~csi");
    let folder = kubelet.join(pod).join(format!("pvc-{number}"));
    let path = folder.join("mount");
    std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
    let record = json!({
        "attachmentID": format!("csi-{number:064x}"), "driverName": DRIVER, "nodeName": "node-1", "specVolID": format!("pvc-{number}"),
        "volumeHandle": format!("vol-{number}"), "volumeLifecycleMode": "Persistent",
    });
    std::fs::write(folder.join("vol_data.json"), record.to_string())
        .context("writing the kubelet's record")?;
    Ok(path)
}
