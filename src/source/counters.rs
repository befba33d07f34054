//! Error counters of the kernel outside its log: SCSI commands, the superblock of ext4, the health
//! of XFS, btrfs members, md, bcache, PCIe; and what it reports of links, paths and UFS flash.
//!
//! In: the host root, the probed mounts, a timer. Out: `SourceUpdate::Counters`, complete each
//! time; a device that did not respond is missing, which is no evidence about it. May not enter:
//! growth, and whether it is bad (`model::counters`, `assess`).
//!
//! Reading causes no I/O on a device and wakes none. Counters in plain kernel memory are one job. A
//! reading that takes a lock that I/O can hold (md, bcache), needs an open directory of the mount
//! (XFS, btrfs of several devices), or asks the device or its adapter (links, UFS), is a separate job,
//! so that one that hangs delays no other.
//!
//! Not here: `diskstats` covers I/O that does not complete; the state of a multipath device
//! contains the failures of its paths (`layers`, `LayerState::Multipath`). The NVMe driver has no
//! counters in sysfs up to 6.18; its log pages belong to SMART. EDAC is about memory.

mod aer;
mod bcache;
mod btrfs;
mod btrfs_scrub;
mod ext4;
mod md;
mod nvme_paths;
mod pcie_link;
mod sas_link;
mod scsi;
mod ufs;
mod xfs;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::context::{Context, JobWorkers, SourceError};
use crate::inventory::CLASS_BLOCK;
use crate::inventory::sysfs::SysfsReader;
use crate::jobs::{CounterGroup, CounterReadings, Job, JobResult};
use crate::status_reporter::StatusReporter;
use crate::worker_job::{JobError, answer, run_with_retry_in};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::failure_domain::FailureDomains;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::source::Source;
use diskvitals_host::block::dev_no;
use diskvitals_host::btrfs::BtrfsError;
use diskvitals_host::clock::now;
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::WorkerOutcome;
use diskvitals_host::xfs::XfsError;
use diskvitals_model::counters::{CounterDevice, CounterReading};
use diskvitals_model::probe::ProbeTarget;
use diskvitals_model::source_update::{SourceRequest, SourceStatus, SourceUpdate};
use diskvitals_text::causes::with_causes;

/// At the start, drives and mounts come first: an admin waits for them, and then the XFS
/// filesystems are known.
const STARTUP_DELAY: Duration = Duration::from_secs(1);
/// ext4 counts an error some time after it has logged it (save_error_info() and
/// flush_stashed_error_work(), fs/ext4/super.c).
const CONFIRMATION_DELAY: Duration = Duration::from_secs(1);
/// Between two readings that ask a SAS expander or a UFS device.
const SLOW_INTERVAL: Duration = Duration::from_secs(3600);
/// Between two readings, however often they are requested.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    #[error("reading {CLASS_BLOCK}")]
    ListDevices(#[source] io::Error),
    #[error("finding the name of the block device {dev}")]
    DeviceName {
        dev: DevNo,
        #[source]
        source: io::Error,
    },
    #[error("reading the record of the last scrub of the btrfs {uuid}")]
    Scrub {
        uuid: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Xfs(XfsError),
    #[error(transparent)]
    Btrfs(BtrfsError),
}

/// The counters of one group could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct GroupError {
    what: String,
    source: JobError,
}

/// Runs in a worker. May block, except for `CounterGroup::Plain`.
pub fn read(root: &HostRoot, part: &CounterGroup) -> Result<CounterReadings, CountersError> {
    let reader = SysfsReader::new(root);
    let mut answer = empty();
    match part {
        CounterGroup::Plain => read_plain(&reader, &mut answer)?,
        // An array removed during the reading has no counters.
        CounterGroup::Md { array } => {
            answer.readings = md::read(&reader, array).unwrap_or_default()
        }
        CounterGroup::Bcache { devices } => {
            answer.readings = devices
                .iter()
                .filter_map(|device| bcache::read(&reader, device).ok().flatten())
                .collect();
        }
        // A device removed during the reading has none.
        CounterGroup::PcieLink { controller } => {
            answer.readings.extend(pcie_link::read(&reader, controller).ok().flatten());
        }
        CounterGroup::SasLink { device } => {
            answer.readings.extend(sas_link::read(&reader, device).ok().flatten());
        }
        CounterGroup::Ufs { device } => {
            answer.readings.extend(ufs::read(&reader, device).ok().flatten());
        }
        CounterGroup::BtrfsScrub { uuid, members } => {
            let scrub = match root.is_recorded() {
                true => btrfs_scrub::read(root, uuid, members),
                // Runs in the host's mount namespace.
                false => btrfs_scrub::read(&HostRoot::new("/"), uuid, members),
            };
            answer.readings =
                scrub.map_err(|source| CountersError::Scrub { uuid: uuid.clone(), source })?;
        }
        // Runs in the host's mount namespace, whose /sys is that of the host.
        CounterGroup::Xfs { path, dev } => answer
            .readings
            .extend(xfs::read(path, &device_name(*dev)?).map_err(CountersError::Xfs)?),
        CounterGroup::Btrfs { path } => {
            let root = HostRoot::new("/");
            let reader = SysfsReader::new(&root);
            answer.readings =
                btrfs::read_members(&reader, path, device_at).map_err(CountersError::Btrfs)?;
            answer.warnings = reader.into_warnings();
        }
    }
    answer.warnings.extend(reader.into_warnings());
    Ok(answer)
}

/// No counters.
pub fn empty() -> CounterReadings {
    CounterReadings::default()
}

fn read_plain(reader: &SysfsReader<'_>, answer: &mut CounterReadings) -> Result<(), CountersError> {
    let names = reader.try_list(CLASS_BLOCK).map_err(CountersError::ListDevices)?;
    answer.readings.extend(names.iter().filter_map(|name| scsi::read(reader, name).ok().flatten()));
    answer.readings.extend(ext4::read(reader));
    answer.readings.extend(btrfs::read(reader));
    answer.readings.extend(aer::read(reader, &names));
    answer.readings.extend(nvme_paths::read(reader, &names));
    let controllers = pcie_link::controllers(reader).into_iter();
    answer.drives.extend(controllers.map(|controller| CounterGroup::PcieLink { controller }));
    let on_sas = names.iter().filter(|name| sas_link::has_port(reader, name)).cloned();
    answer.drives.extend(on_sas.map(|device| CounterGroup::SasLink { device }));
    let on_ufs = names.iter().filter(|name| ufs::is_awake(reader, name)).cloned();
    answer.drives.extend(on_ufs.map(|device| CounterGroup::Ufs { device }));
    answer.arrays = names
        .iter()
        .filter(|name| reader.is_dir(&format!("/sys/block/{name}/md")))
        .cloned()
        .collect();
    answer.bcache = names.into_iter().filter(|name| bcache::is_member(reader, name)).collect();
    Ok(())
}

fn block_reading(
    device: &str,
    source: &str,
    file: String,
    values: BTreeMap<String, u64>,
    details: BTreeMap<String, String>,
) -> CounterReading {
    CounterReading {
        device: CounterDevice::Block(device.to_owned()),
        source: source.to_owned(),
        file,
        values,
        details,
    }
}

/// The kernel's name of the block device at `path`.
fn device_at(path: &HostPath) -> Option<String> {
    let data = std::fs::metadata(path.as_path()).ok()?;
    device_name(dev_no(data.file_type().is_block_device().then_some(data.rdev())?)).ok()
}

fn device_name(dev: DevNo) -> Result<String, CountersError> {
    let failed = |source| CountersError::DeviceName { dev, source };
    let link = std::fs::read_link(format!("/sys/dev/block/{dev}")).map_err(failed)?;
    link.file_name()
        .and_then(|name| name.to_str())
        .map(str::to_owned)
        .ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))
}

/// Runs until the owner of the state ends.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    let mut status_reporter = StatusReporter::new(Source::Counters);
    let mut warned: Vec<String> = Vec::new();
    // A time-out, or the end of the owner, which ends the loop below.
    let _ = tokio::time::timeout(
        STARTUP_DELAY,
        context.targets.clone().wait_for(|targets| !targets.is_empty()),
    )
    .await;
    let mut has_reported = false;
    let mut next_slow = Instant::now();
    loop {
        // What is logged from here on may be missing in them, however long the others take.
        let begun = now();
        let plain = read_plain_group(&context).await;
        if let (Ok(plain), false) = (&plain, has_reported) {
            // Evidence about the drives does not wait for a filesystem that hangs.
            has_reported = true;
            let first = Observation::ok(begun, plain.readings.clone());
            context.report(SourceUpdate::Counters(first)).await?;
        }
        let (observation, status, warnings) = match plain {
            Ok(mut plain) => {
                if Instant::now() < next_slow {
                    plain.drives.retain(|group| !is_slow(group));
                } else {
                    next_slow = Instant::now() + SLOW_INTERVAL;
                }
                let CounterReadings { readings, warnings, .. } = read_others(&context, plain).await;
                let status = status(&readings, &warnings);
                (Observation::ok(begun, readings), status, warnings)
            }
            Err(error) => {
                let error = with_causes(&error);
                (Observation::failed(now(), &error), SourceStatus::Down(error), Vec::new())
            }
        };
        context.report(SourceUpdate::Counters(observation)).await?;
        if warned != warnings {
            for warning in warnings.iter().filter(|warning| !warned.contains(warning)) {
                tracing::warn!(%warning, "a counter of errors is not read");
            }
            warned = warnings;
        }
        status_reporter.report(&context, status).await?;
        let read = Instant::now();
        let mut next = context.grid.after(context.settings.borrow().counters_interval);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => break,
                request = requests.recv() => match request {
                    Ok(SourceRequest::All) => {
                        next_slow = Instant::now();
                        break;
                    }
                    Ok(SourceRequest::Counters) => {
                        let soon = Instant::now() + CONFIRMATION_DELAY;
                        next = next.min(soon.max(read + SHORTEST_INTERVAL));
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
                },
            }
        }
    }
}

/// It asks the device, or an expander.
fn is_slow(group: &CounterGroup) -> bool {
    matches!(group, CounterGroup::SasLink { .. } | CounterGroup::Ufs { .. })
}

/// The kinds of counters found, and how many could not be read.
fn status(readings: &[CounterReading], warnings: &[String]) -> SourceStatus {
    let sources: BTreeSet<&str> = readings.iter().map(|reading| reading.source.as_str()).collect();
    let sources = sources.into_iter().collect::<Vec<_>>().join(", ");
    match warnings {
        [] if sources.is_empty() => SourceStatus::Absent("nothing here counts errors".into()),
        [] => SourceStatus::Active(sources),
        [warning] => SourceStatus::Limited(format!("{sources}; not read: {warning}")),
        [warning, more @ ..] => SourceStatus::Limited(format!(
            "{sources}; not read: {warning}, and {} more",
            more.len()
        )),
    }
}

/// Reads the counters in the kernel's memory.
async fn read_plain_group(context: &Context) -> Result<CounterReadings, GroupError> {
    let timeout = context.settings.borrow().worker_timeout;
    read_part(
        context.workers.clone(),
        FailureDomains::default(),
        "counters".into(),
        CounterGroup::Plain,
        timeout,
        context.requests.clone(),
    )
    .await
}

/// Adds all other counters, read in parallel.
async fn read_others(context: &Context, mut all: CounterReadings) -> CounterReadings {
    let (scan_timeout, probe_timeout) = {
        let settings = context.settings.borrow();
        (settings.worker_timeout, settings.probe_timeout)
    };
    let none = FailureDomains::default();
    let query = |workers: &JobWorkers, domains: &FailureDomains, key: String, part, timeout| {
        read_part(workers.clone(), domains.clone(), key, part, timeout, context.requests.clone())
    };
    let mut rest = JoinSet::new();
    for array in std::mem::take(&mut all.arrays) {
        // The target of the layer's state query: if that hangs, this job is not tried.
        rest.spawn(query(
            &context.workers,
            &none,
            format!("layer {array}"),
            CounterGroup::Md { array },
            scan_timeout,
        ));
    }
    let devices = std::mem::take(&mut all.bcache);
    if !devices.is_empty() {
        rest.spawn(query(
            &context.workers,
            &none,
            "counters of bcache".into(),
            CounterGroup::Bcache { devices },
            scan_timeout,
        ));
    }
    for group in std::mem::take(&mut all.drives) {
        let key = what_is_read(&group);
        rest.spawn(query(&context.workers, &none, key, group, scan_timeout));
    }
    let targets = context.targets.borrow().clone();
    let xfs = mounts_of(&targets, "xfs")
        .into_iter()
        .map(|target| (target, CounterGroup::Xfs { path: target.path.clone(), dev: target.dev }));
    let btrfs = mounts_of(&targets, "btrfs")
        .into_iter()
        .map(|target| (target, CounterGroup::Btrfs { path: target.path.clone() }));
    for (target, part) in xfs.chain(btrfs) {
        // The target of the mount's probe: a filesystem that hangs blocks only one process.
        let key = format!("{} {}", target.dev, target.filesystem);
        rest.spawn(query(&context.probe_workers, &target.domains, key, part, probe_timeout));
    }
    join(&mut rest, &mut all).await;
    let awaited = targets.iter().filter_map(|target| target.awaited_scrub.as_deref());
    for (uuid, members) in btrfs_to_ask(&all.readings, &awaited.collect()) {
        let key = format!("scrub of the btrfs {uuid}");
        let part = CounterGroup::BtrfsScrub { uuid, members };
        rest.spawn(query(&context.probe_workers, &none, key, part, scan_timeout));
    }
    join(&mut rest, &mut all).await;
    // Results come in any order.
    all.readings.sort_by(|a, b| (&a.source, &a.device).cmp(&(&b.source, &b.device)));
    all.warnings.sort();
    all
}

/// Adds the results of all queries.
async fn join(rest: &mut JoinSet<Result<CounterReadings, GroupError>>, all: &mut CounterReadings) {
    while let Some(ended) = rest.join_next().await {
        match ended {
            Ok(Ok(more)) => {
                all.readings.extend(more.readings);
                all.warnings.extend(more.warnings);
            }
            Ok(Err(error)) => all.warnings.push(with_causes(&error)),
            Err(error) => all.warnings.push(format!("a question for counters: {error}")),
        }
    }
}

/// The btrfs that count errors, or of which the last scrub is awaited, by UUID, with their members.
fn btrfs_to_ask(
    readings: &[CounterReading],
    awaited: &BTreeSet<&str>,
) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut found: BTreeMap<String, (bool, BTreeMap<String, String>)> = BTreeMap::new();
    for reading in readings.iter().filter(|reading| reading.source == "btrfs") {
        let details = &reading.details;
        if let (Some(uuid), Some(id), CounterDevice::Block(name)) =
            (details.get("filesystem"), details.get("devid"), &reading.device)
        {
            let (has_errors, members) = found.entry(uuid.clone()).or_default();
            let mut values = reading.values.iter();
            *has_errors |= values.any(|(name, value)| name.ends_with("_errs") && *value > 0);
            members.insert(id.clone(), name.clone());
        }
    }
    found.retain(|uuid, (has_errors, _)| *has_errors || awaited.contains(uuid.as_str()));
    found.into_iter().map(|(uuid, (_, members))| (uuid, members)).collect()
}

/// One mount of each filesystem of a type. Filesystems on sleeping drives are left out.
fn mounts_of<'a>(targets: &'a [ProbeTarget], filesystem: &str) -> Vec<&'a ProbeTarget> {
    let awake = targets.iter().filter(|target| target.filesystem == filesystem && !target.asleep);
    let by_dev: BTreeMap<DevNo, &ProbeTarget> =
        awake.rev().map(|target| (target.dev, target)).collect();
    by_dev.into_values().collect()
}

fn what_is_read(group: &CounterGroup) -> String {
    match group {
        CounterGroup::Plain => "error counters".to_owned(),
        CounterGroup::Md { array } => format!("error counters of {array}"),
        CounterGroup::Bcache { .. } => "error counters of bcache".to_owned(),
        CounterGroup::Xfs { path, .. } => format!("health of the XFS at {path}"),
        CounterGroup::Btrfs { path } => format!("error counters of the btrfs at {path}"),
        CounterGroup::BtrfsScrub { uuid, .. } => format!("last scrub of the btrfs {uuid}"),
        CounterGroup::PcieLink { controller } => format!("PCIe link of {controller}"),
        CounterGroup::SasLink { device } => format!("SAS link of {device}"),
        CounterGroup::Ufs { device } => format!("health of the UFS device of {device}"),
    }
}

async fn read_part(
    workers: JobWorkers,
    domains: FailureDomains,
    key: String,
    part: CounterGroup,
    timeout: Duration,
    requests: broadcast::Sender<SourceRequest>,
) -> Result<CounterReadings, GroupError> {
    let mount = match &part {
        CounterGroup::Xfs { path, .. } | CounterGroup::Btrfs { path } => Some(path.clone()),
        _ => None,
    };
    let what = what_is_read(&part);
    let job = Job::Counters { group: part };
    let mut outcome = run_with_retry_in(&workers, &domains, &key, job, timeout).await;
    // The late answer is not used, but it shows that the mount responds again: the probe of the
    // mount has waited for this job.
    if let (WorkerOutcome::Stuck { late, .. }, Some(path)) = (&mut outcome, mount)
        && let Some(late) = late.take()
    {
        tokio::spawn(async move {
            if matches!(late.await, Ok(Ok(_))) {
                // Fails when there are no subscribers: at the end of the daemon.
                let _ = requests.send(SourceRequest::Probe(vec![path]));
            }
        });
    }
    answer(outcome, |result| match result {
        JobResult::Counters(counters) => Some(counters),
        _ => None,
    })
    .map_err(|source| GroupError { what, source })
}

#[cfg(test)]
mod tests;
