//! Hours of churn against two daemons: one on this machine's kernel (mounts, loop devices that come
//! and go, I/O errors, checks), one on a recorded host (drives whose smartctl hangs, a kernel log
//! with errors, a hung mount). Both have scrapes, watchers and reloads of the configuration.
//!
//! Out: a CSV and an SVG with memory, descriptors, threads, size of the database and latencies; and
//! for each daemon the slope of a straight line after the warm-up, against a limit.

mod churn;
mod series;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use diskvitals_wire as wire;
use tokio::time::Instant;

use crate::daemon::{Daemon, Host, Program};
use crate::events::ext4_image;
use crate::figures::{Figures, Goal, milliseconds};
use crate::footprint::process_tree;
use crate::metrics;
use crate::picture;
use crate::smart;
use crate::smartctl::Smartctl;
use crate::tree::Plan;
use churn::{Counts, Kernel, Recorded};
use series::{Sample, Series};

const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// For one GetVolume or scrape of a sample.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const END_TIMEOUT: Duration = Duration::from_secs(120);
const MIB: f64 = 1_048_576.0;

/// What may remain of the growth of a daemon that leaks nothing: `per_hour` in a long run, and
/// `per_run` in any, since a short one sees the noise of its samples.
struct Limit {
    name: &'static str,
    unit: &'static str,
    of: fn(&Sample) -> f64,
    per_hour: f64,
    per_run: f64,
}

const LIMITS: [Limit; 3] = [
    Limit {
        name: "anonymous_memory",
        unit: "MiB/h",
        of: |sample| sample.anonymous_mib,
        per_hour: 0.25,
        per_run: 0.75,
    },
    Limit {
        name: "descriptors",
        unit: "fds/h",
        of: |sample| sample.descriptors,
        per_hour: 0.25,
        per_run: 2.0,
    },
    Limit {
        name: "threads",
        unit: "threads/h",
        of: |sample| sample.threads,
        per_hour: 0.25,
        per_run: 1.5,
    },
];

/// A daemon under churn.
pub struct Subject {
    name: &'static str,
    daemon: Daemon,
    metrics: PathBuf,
    /// Configurations that replace each other.
    configs: [String; 2],
}

impl Subject {
    fn start(
        name: &'static str,
        program: &Program,
        root: &Path,
        config: &str,
    ) -> anyhow::Result<Subject> {
        // The database is on a disk, as in production.
        let dir = tempfile::tempdir().context("making a folder for the daemon")?;
        let metrics = dir.path().join("metrics.sock");
        let config = format!(
            "{config}\n[history]\nmax_findings = 50\n[metrics]\nlisten = \"unix:{}\"\n",
            metrics.display()
        );
        let configs = [
            format!("{config}[probes]\ninterval = \"5s\"\ntimeout = \"2s\"\n"),
            format!("{config}[probes]\ninterval = \"6s\"\ntimeout = \"2s\"\n"),
        ];
        let daemon = program.start(root, &configs[0], Some(dir))?;
        Ok(Subject { name, daemon, metrics, configs })
    }

    async fn sample(&mut self, started: Instant) -> anyhow::Result<Sample> {
        self.daemon.must_run().with_context(|| format!("the daemon of {}", self.name))?;
        let process = procfs::process::Process::new(self.daemon.pid()).context("reading /proc")?;
        let status = process.status().context("reading its status")?;
        let mib = |kib: Option<u64>| kib.unwrap_or_default() as f64 / 1024.0;
        let began = Instant::now();
        tokio::time::timeout(ANSWER_TIMEOUT, self.get_volume())
            .await
            .with_context(|| format!("GetVolume, for {ANSWER_TIMEOUT:?}"))??;
        let get_volume = began.elapsed();
        let (_text, scrape) = metrics::scrape(&self.metrics, metrics::PLAIN).await?;
        Ok(Sample {
            seconds: started.elapsed().as_secs_f64(),
            resident_mib: mib(status.vmrss),
            anonymous_mib: mib(status.rssanon),
            descriptors: process.fd_count().context("counting descriptors")? as f64,
            threads: status.threads as f64,
            processes: process_tree(self.daemon.pid())?.len() as f64,
            database_mib: database_bytes(&self.daemon.state_dir()) as f64 / MIB,
            get_volume_ms: milliseconds(get_volume),
            scrape_ms: milliseconds(scrape),
        })
    }

    /// Of the first volume in the list, over a new connection.
    async fn get_volume(&self) -> anyhow::Result<()> {
        let mut inventory = self.daemon.connect().await?;
        let request = wire::ListVolumesRequest { page_size: 1, page_token: String::new() };
        let page = inventory.list_volumes(request).await;
        let page = page.context("asking ListVolumes")?.into_inner();
        let Some(volume) = page.volumes.into_iter().next() else {
            return Ok(());
        };
        let request = wire::GetVolumeRequest { id: volume.id, ..Default::default() };
        match inventory.get_volume(request).await {
            Ok(_volume) => Ok(()),
            // It has gone since it was listed.
            Err(status) if status.code() == tonic::Code::NotFound => Ok(()),
            Err(status) => Err(status).context("asking GetVolume"),
        }
    }
}

/// The database with its log.
fn database_bytes(state: &Path) -> u64 {
    let entries = std::fs::read_dir(state).into_iter().flatten().flatten();
    // A file that SQLite has just removed counts nothing.
    let sizes = entries.filter_map(|entry| entry.metadata().ok());
    sizes.map(|metadata| metadata.len()).sum()
}

/// `folder`: where the CSV and the picture are written.
pub async fn measure(
    program: &Program,
    figures: &mut Figures,
    duration: Duration,
    folder: &Path,
) -> anyhow::Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "loop devices and mounts need root");
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let dir = tempfile::tempdir().context("making a folder")?;
    let image = ext4_image(dir.path())?;
    let host = Host::recorded(Plan { drives: smart::DRIVES, volumes: 200, hung: 1 })?;
    let smartctl = Smartctl::new(&dir.path().join("smartctl")).context("writing smartctl")?;
    let drives = smart::set_responses(&smartctl, smart::DRIVES).context("writing the answers")?;
    let recorded = Recorded::new(host, smartctl, drives)?;
    let mut subjects = [
        Subject::start("kernel", program, Path::new("/"), Kernel::CONFIG)?,
        Subject::start("recorded", program, recorded.root(), &recorded.config())?,
    ];
    for subject in &mut subjects {
        subject.daemon.wait_settled().await?;
    }

    let counts = Counts::default();
    let kernel = Kernel::new(program, &image, dir.path(), &subjects[0].daemon)?;
    let mut churning = tokio::task::JoinSet::new();
    for subject in &subjects {
        churning.spawn(churn::clients(
            subject.daemon.socket(),
            subject.metrics.clone(),
            counts.clone(),
        ));
        churning.spawn(churn::reloads(
            subject.daemon.config(),
            subject.configs.clone(),
            counts.clone(),
        ));
    }
    let of_kernel = counts.clone();
    churning.spawn_blocking(move || kernel.run(&of_kernel));
    churning.spawn(recorded.run(subjects[1].daemon.socket(), counts.clone()));

    let mut series = [Series::new("kernel"), Series::new("recorded")];
    let started = Instant::now();
    let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
    let mut stopped = Ok(());
    while started.elapsed() < duration && stopped.is_ok() {
        tokio::select! {
            _ = ticks.tick() => {}
            // None of it ends by itself.
            Some(ended) = churning.join_next() => {
                let ended = ended.context("the churn").flatten();
                stopped = ended.and_then(|()| bail!("the churn has ended"));
                continue;
            }
        }
        for (subject, series) in subjects.iter_mut().zip(&mut series) {
            match subject.sample(started).await {
                Ok(sample) => series.samples.push(sample),
                Err(error) => stopped = Err(error),
            }
        }
    }
    // What was sampled until a failure explains it.
    series::write_csv(&folder.join("soak.csv"), &series)?;
    picture::write(&folder.join("soak.svg"), &series::panels(&series), 1)?;
    figures.remark(&format!("{}: soak.csv, soak.svg", folder.display()));
    // Its mounts and loop devices are removed first.
    counts.end();
    let ended = async {
        while let Some(ended) = churning.join_next().await {
            ended.context("the churn").flatten()?;
        }
        Ok(())
    };
    let ended = tokio::time::timeout(END_TIMEOUT, ended)
        .await
        .with_context(|| format!("the end of the churn, for {END_TIMEOUT:?}"))
        .flatten();
    stopped.and(ended)?;
    counts.print(figures)?;
    judge(&series, figures)
}

fn judge(series: &[Series], figures: &mut Figures) -> anyhow::Result<()> {
    for daemon in series {
        for limit in LIMITS {
            let fit = daemon
                .fit(limit.of)
                .with_context(|| format!("too few samples of {}", daemon.name))?;
            let most = limit.per_hour + limit.per_run / fit.hours;
            figures.add(
                &format!("soak_{}_{}", daemon.name, limit.name),
                fit.per_hour,
                limit.unit,
                Goal::AtMost((most * 100.0).round() / 100.0),
            );
        }
        daemon.print(figures);
    }
    Ok(())
}
