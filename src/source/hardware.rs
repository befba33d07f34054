//! Hardware: decides when to scan sysfs, and which md and dm devices and ZFS pools to read the state of.
//!
//! In: uevents, requests, a slow timer. Out: `SourceUpdate::Inventory`, `SourceUpdate::Layer`, and
//! `SourceUpdate::Superblock` for devices of which udev's database has no record, and for ext2 to
//! ext4 when the owner requests it or udev reports a change; in the inventory, signatures that udev
//! does not name, read once and after each event of their device; events of NVMe controllers, as a
//! `SourceRequest` to the SMART source. A worker does every reading; an event only triggers it.

mod signatures;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::context::{Context, SourceError};
use crate::events::{self, DeviceEvent};
use crate::hardware::signatures::SignatureReader;
use crate::jobs::{Job, JobResult};
use crate::status_reporter::StatusReporter;
use crate::worker_job::{JobError, answer, late_answer, run_with_retry};
use crate::zpool::ZpoolReader;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::source::Source;
use diskvitals_host::clock::now;
use diskvitals_host::worker_pool::WorkerOutcome;
use diskvitals_kernel_log::device_name::is_software_device;
use diskvitals_model::block::{BlockDevice, Inventory, Layer, LayerState};
use diskvitals_model::probe::StuckProbe;
use diskvitals_model::source_update::{SourceRequest, SourceStatus, SourceUpdate};

/// Uevents come in bursts, and one scan covers a burst. Short enough to report an unplugged drive
/// within 100 ms.
const SETTLE: Duration = Duration::from_millis(15);
/// The longest delay of a scan while events keep coming.
const MAX_SETTLE: Duration = Duration::from_millis(60);
/// The rules of udev finish some time after its first event of a device. This second scan finds
/// late links.
const RESCAN_DELAY: Duration = Duration::from_secs(3);
/// Layers change without a uevent (the progress of a rebuild, the usage of a thin pool).
const LAYERS_INTERVAL: Duration = Duration::from_secs(30);
/// Devices whose state only a new table changes are read in every tenth round, and in the next
/// round after a uevent: the kernel sends one with each new table (do_resume(),
/// drivers/md/dm-ioctl.c). A node has hundreds of logical volumes.
const FULL_ROUND_EVERY: u32 = 10;
/// Superblocks that are read at the same time.
const MAX_SUPERBLOCK_READS: usize = 4;

/// Runs until the owner of the state ends.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let context = Arc::new(context);
    let (status, mut events) = events::start(&context.root);
    let mut watch = HardwareWatch::new(!context.root.is_recorded(), status.clone());
    watch.status_reporter.report(&context, status).await?;
    let mut requests = context.requests.subscribe();
    let mut settings = context.settings.clone();

    watch.scan(&context).await?;
    let mut next_scan = context.grid.after(settings.borrow().reconcile_interval);
    let mut next_layers = context.grid.after(LAYERS_INTERVAL);
    // The first event that no scan has covered yet.
    let mut waiting_since: Option<Instant> = None;
    loop {
        tokio::select! {
            event = events.recv(), if watch.live => match event {
                Some(event @ (DeviceEvent::Changed { .. } | DeviceEvent::Overrun)) => {
                    if let DeviceEvent::Changed { devname, .. } = event {
                        watch.changed_devices.insert(devname);
                    }
                    watch.invalidate_all();
                    let first = *waiting_since.get_or_insert_with(Instant::now);
                    next_scan = (Instant::now() + SETTLE).min(first + MAX_SETTLE);
                }
                // An error: no source reads drives at the start; then all drives are read anyway.
                Some(DeviceEvent::NvmeEvent { controller }) => drop(context.requests.send(SourceRequest::NvmeEvent { controller })),
                Some(DeviceEvent::Stopped(why)) => watch.events_lost(&context, &why).await?,
                None => (watch.live, watch.without_events) = (false, true),
            },
            request = requests.recv() => match request {
                Ok(SourceRequest::All) => {
                    watch.zpool.make_due();
                    (next_scan, next_layers) = (Instant::now(), Instant::now());
                }
                Ok(SourceRequest::Inventory) | Err(RecvError::Lagged(_)) => next_scan = Instant::now(),
                Ok(SourceRequest::Superblocks) => watch.read_superblocks(&context, &BTreeSet::new()),
                Ok(SourceRequest::ExtSuperblocks(devices)) => watch.read_ext_superblocks(&context, devices),
                Ok(_) => {}
                Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
            },
            changed = settings.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                next_scan = Instant::now();
            }
            () = tokio::time::sleep_until(next_scan) => {
                watch.scan(&context).await?;
                // A second scan finds the data that udev adds after its event (links, the UUID of
                // the filesystem).
                next_scan = match waiting_since.take() {
                    Some(_) => Instant::now() + RESCAN_DELAY,
                    None => context.grid.after(settings.borrow().reconcile_interval),
                };
            }
            Some(read) = watch.reading.join_next(), if !watch.reading.is_empty() => watch.record_read(read),
            Some(read) = watch.signatures.next() => {
                if watch.signatures.record(read) {
                    // A scan reports them.
                    next_scan = next_scan.min(Instant::now() + RESCAN_DELAY);
                }
                watch.signatures.start(&context);
            }
            Some(read) = watch.superblock_reads.join_next(), if !watch.superblock_reads.is_empty() => {
                watch.superblock_read(read);
                watch.start_superblock_reads(&context);
            }
            () = tokio::time::sleep_until(next_layers) => {
                watch.start_round(&context);
                next_layers = context.grid.after(LAYERS_INTERVAL);
            }
        }
    }
}

struct HardwareWatch {
    /// False for a recorded tree: it has no events.
    live: bool,
    /// The md and dm devices and ZFS pools of the last scan, whose states are read, with the devices
    /// below them. None before the first scan.
    layers: Option<BTreeMap<String, (Layer, Vec<String>)>>,
    /// Devices whose state only a new table changes, as read since the last event.
    stable_devices: BTreeSet<String>,
    /// Grows whenever `stable_devices` is cleared.
    generation: u32,
    /// There are no more events: no device counts as stable.
    without_events: bool,
    reading: JoinSet<LayerRead>,
    /// Devices of the last scan whose filesystem only their superblock names.
    without_udev: Vec<(String, DevNo)>,
    /// Those that were read.
    superblocks_read: BTreeSet<(String, DevNo)>,
    /// Those to be read next, and those that are being read.
    superblock_queue: VecDeque<SuperblockRead>,
    superblocks_in_flight: BTreeSet<String>,
    superblock_reads: JoinSet<(SuperblockRead, bool)>,
    signatures: SignatureReader,
    /// Devices of uevents since the last scan: a program that wrote to one, as e2fsck does, has
    /// closed it (udevd's watch on closing after writing).
    changed_devices: BTreeSet<String>,
    /// Superblocks of ext2 to ext4 that could not be read: the next scan tries them again.
    unread_ext: BTreeSet<SuperblockRead>,
    /// Rounds of reading layers so far.
    rounds: u32,
    status: SourceStatus,
    status_reporter: StatusReporter,
    layers_reporter: StatusReporter,
    zpool: Arc<ZpoolReader>,
}

/// One superblock to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SuperblockRead {
    device: String,
    dev: DevNo,
    /// Of an ext2 to ext4 that udev's database names.
    only_ext: bool,
}

/// The end of reading one layer's state.
struct LayerRead {
    device: String,
    /// `HardwareWatch::generation` when the reading was started.
    generation: u32,
    is_stable: bool,
}

impl HardwareWatch {
    fn new(live: bool, status: SourceStatus) -> HardwareWatch {
        HardwareWatch {
            live,
            layers: None,
            stable_devices: BTreeSet::new(),
            generation: 0,
            without_events: false,
            reading: JoinSet::new(),
            without_udev: Vec::new(),
            superblocks_read: BTreeSet::new(),
            superblock_queue: VecDeque::new(),
            superblocks_in_flight: BTreeSet::new(),
            superblock_reads: JoinSet::new(),
            signatures: SignatureReader::default(),
            changed_devices: BTreeSet::new(),
            unread_ext: BTreeSet::new(),
            rounds: 0,
            status,
            status_reporter: StatusReporter::new(Source::Udev),
            layers_reporter: StatusReporter::new(Source::Layers),
            zpool: Arc::new(ZpoolReader::new()),
        }
    }

    async fn scan(&mut self, context: &Arc<Context>) -> Result<(), SourceError> {
        let (job, timeout) = {
            let settings = context.settings.borrow();
            (
                Job::Inventory { admit: settings.admit.clone(), ignore: settings.ignore.clone() },
                settings.worker_timeout,
            )
        };
        // A scan is as old as its start: a drive may vanish while it runs.
        let begun = now();
        let outcome = run_with_retry(&context.workers, "inventory", job, timeout).await;
        let scanned = answer(outcome, |result| match result {
            JobResult::Inventory(inventory) => Some(inventory),
            _ => None,
        });
        let (mut observation, status) = match scanned {
            Ok(inventory) => {
                let layered = layers_of(&inventory);
                if self.layers.as_ref() != Some(&layered) {
                    self.layers = Some(layered);
                    self.report_layers_status(context).await?;
                    self.invalidate_all();
                    self.read_layers(context);
                }
                (Observation::ok(begun, inventory), self.status.clone())
            }
            Err(error) => {
                let error = match &error {
                    JobError::Stuck { waiting_in, .. } => {
                        let reason = match waiting_in {
                            // /proc/PID/stat, state R: the process only waits for a processor.
                            Some(place) if place.starts_with("R ") => {
                                "this machine is too busy to run it"
                            }
                            _ => "a device does not answer even the kernel",
                        };
                        format!("/sys: {error}: {reason}")
                    }
                    _ => error.to_string(),
                };
                (Observation::failed(begun, &error), SourceStatus::Down(error))
            }
        };
        // Read before, and not written since: a reading could wake the drive.
        let mut at_rest = BTreeSet::new();
        if let Observation::Ok { value: inventory, .. } = &mut observation
            && !context.root.is_recorded()
        {
            self.signatures.complete(inventory, &self.changed_devices);
            self.signatures.start(context);
            self.without_udev = devices_without_udev(inventory);
            self.superblocks_read.retain(|read| self.without_udev.contains(read));
            let targets = context.smart_targets.borrow().clone();
            let idle = targets.iter().filter(|target| target.idle);
            let idle: BTreeSet<&DriveId> = idle.map(|target| &target.drive).collect();
            let is_idle = |name: &str| !inventory.drives_below(name).is_disjoint(&idle);
            let has_changed = |name: &String| self.changed_devices.contains(name);
            let read = self.superblocks_read.iter();
            let read = read.filter(|read| is_idle(&read.0) && !has_changed(&read.0));
            at_rest = read.cloned().collect();
            let changed = std::mem::take(&mut self.changed_devices);
            let unread = std::mem::take(&mut self.unread_ext);
            let is_due =
                |read: &SuperblockRead| changed.contains(&read.device) || unread.contains(read);
            let due = ext_devices(inventory).filter(is_due);
            self.superblock_queue.extend(due);
        }
        context.report(SourceUpdate::Inventory(observation)).await?;
        self.read_superblocks(context, &at_rest);
        self.status_reporter.report(context, status).await
    }

    /// Reads again what udev does not know, `except` some, a few at a time.
    fn read_superblocks(&mut self, context: &Arc<Context>, except: &BTreeSet<(String, DevNo)>) {
        self.superblock_queue.retain(|read| read.only_ext);
        let all = self.without_udev.iter().filter(|it| !except.contains(it)).cloned();
        self.superblock_queue.extend(all.map(|(device, dev)| SuperblockRead {
            device,
            dev,
            only_ext: false,
        }));
        self.start_superblock_reads(context);
    }

    fn read_ext_superblocks(&mut self, context: &Arc<Context>, devices: Vec<(String, DevNo)>) {
        if context.root.is_recorded() {
            return;
        }
        for (device, dev) in devices {
            let read = SuperblockRead { device, dev, only_ext: true };
            if !self.superblock_queue.contains(&read) {
                self.superblock_queue.push_back(read);
            }
        }
        self.start_superblock_reads(context);
    }

    /// Devices that do not answer take a bounded number of the workers that scans need, too. A
    /// device whose reading hangs is not read again until it has ended.
    fn start_superblock_reads(&mut self, context: &Arc<Context>) {
        while self.superblocks_in_flight.len() < MAX_SUPERBLOCK_READS
            && let Some(read) = self.superblock_queue.pop_front()
        {
            if self.superblocks_in_flight.insert(read.device.clone()) {
                self.superblock_reads.spawn(read_superblock(context.clone(), read));
            } else if read.only_ext {
                // What is being read may be older than the change.
                self.unread_ext.insert(read);
            }
        }
    }

    fn superblock_read(&mut self, read: Result<(SuperblockRead, bool), JoinError>) {
        match read {
            Ok((read, is_read)) => {
                self.superblocks_in_flight.remove(&read.device);
                if is_read && !read.only_ext {
                    self.superblocks_read.insert((read.device.clone(), read.dev));
                }
                if read.only_ext && !is_read {
                    self.unread_ext.insert(read);
                } else if self.unread_ext.remove(&read) {
                    self.superblock_queue.push_back(read);
                }
            }
            Err(error) => tracing::error!(%error, "the reading of a superblock was lost"),
        }
    }

    /// Reports the number of layers read. A layer that does not respond is reported with its
    /// volumes.
    async fn report_layers_status(&mut self, context: &Context) -> Result<(), SourceError> {
        let status = match self.layers.as_ref().is_none_or(BTreeMap::is_empty) {
            true => SourceStatus::Absent("no md or device-mapper device, no ZFS pool".into()),
            false => SourceStatus::Active(format!(
                "state of md and device-mapper devices and ZFS pools, every {} s",
                LAYERS_INTERVAL.as_secs()
            )),
        };
        self.layers_reporter.report(context, status).await
    }

    /// Makes the next round read all layers. Readings in flight do not count as stable.
    fn invalidate_all(&mut self) {
        self.stable_devices.clear();
        self.generation = self.generation.wrapping_add(1);
    }

    fn start_round(&mut self, context: &Arc<Context>) {
        self.rounds = self.rounds.wrapping_add(1);
        if self.without_events || self.rounds.is_multiple_of(FULL_ROUND_EVERY) {
            self.invalidate_all();
        }
        self.read_layers(context);
    }

    /// Reads the state of each layer that may have changed, one task each: one that hangs delays no
    /// other.
    fn read_layers(&mut self, context: &Arc<Context>) {
        let layers = self.layers.iter().flatten();
        for (device, (layer, _)) in
            layers.filter(|(device, _)| !self.stable_devices.contains(*device))
        {
            // The task ends by itself: the job has a time-out, and a late answer ends with its
            // worker.
            self.reading.spawn(read_layer(
                context.clone(),
                device.clone(),
                layer.clone(),
                self.generation,
                self.zpool.clone(),
            ));
        }
    }

    fn record_read(&mut self, read: Result<LayerRead, JoinError>) {
        match read {
            Ok(LayerRead { device, generation: asked, is_stable: true })
                if asked == self.generation =>
            {
                self.stable_devices.insert(device);
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "the question for a layer's state was lost"),
        }
    }

    async fn events_lost(&mut self, context: &Context, why: &str) -> Result<(), SourceError> {
        (self.live, self.without_events) = (false, true);
        let every = context.settings.borrow().reconcile_interval.as_secs();
        self.status = SourceStatus::Limited(format!(
            "no events ({why}); /sys is read every {every} s, and on request"
        ));
        self.status_reporter.report(context, self.status.clone()).await
    }
}

fn layers_of(inventory: &Inventory) -> BTreeMap<String, (Layer, Vec<String>)> {
    inventory
        .devices
        .values()
        .filter(|device| device.layer.has_state())
        .map(|device| (device.name.clone(), (device.layer.clone(), device.underlying.clone())))
        .collect()
}

/// Devices that can carry a filesystem, are awake and work, and that udev does not know.
fn devices_without_udev(inventory: &Inventory) -> Vec<(String, DevNo)> {
    let can_carry = |device: &BlockDevice| match &device.layer {
        Layer::Loop { backing_file } => backing_file.is_some(),
        Layer::Other => is_software_device(&device.name),
        _ => true,
    };
    inventory
        .devices
        .values()
        .filter(|device| {
            !device.has_udev_record
                && device.size_bytes > 0
                && can_carry(device)
                && is_usable(inventory, device)
        })
        .map(|device| (device.name.clone(), device.dev))
        .collect()
}

/// ext2 to ext4 that udev's database names, on drives that are awake.
fn ext_devices(inventory: &Inventory) -> impl Iterator<Item = SuperblockRead> {
    let is_ext = |device: &&BlockDevice| {
        let fs_type = device.fs_type.as_deref();
        device.has_udev_record && matches!(fs_type, Some("ext2" | "ext3" | "ext4"))
    };
    let devices = inventory.devices.values().filter(is_ext);
    devices.filter(|device| is_usable(inventory, device)).map(|device| SuperblockRead {
        device: device.name.clone(),
        dev: device.dev,
        only_ext: true,
    })
}

/// Awake, and in a state in which it works.
fn is_usable(inventory: &Inventory, device: &BlockDevice) -> bool {
    let below = inventory.drives_below(&device.name);
    let mut drives = inventory.drives.iter().filter(|drive| below.contains(&drive.id));
    drives.all(|drive| !drive.asleep && !drive.has_abnormal_state())
}

/// Returns the device when the worker has answered, however late, and whether it could be read.
async fn read_superblock(context: Arc<Context>, read: SuperblockRead) -> (SuperblockRead, bool) {
    let timeout = context.settings.borrow().worker_timeout;
    let target = format!("superblock {}", read.device);
    let job =
        Job::Superblock { device: read.device.clone(), dev: read.dev, only_ext: read.only_ext };
    // A reading is as old as its start: it may be mounted while it is read.
    let begun = now();
    let superblock = |result| match result {
        JobResult::Superblock(superblock) => Some(superblock),
        _ => None,
    };
    let result = match context.workers.run(&target, job, timeout).await {
        WorkerOutcome::Stuck { late: Some(late), .. } => late_answer(late, superblock).await,
        outcome => answer(outcome, superblock),
    };
    let is_read = result.is_ok();
    let update = SourceUpdate::Superblock {
        device: read.device.clone(),
        dev: read.dev,
        superblock: Observation::from_result(begun, result),
    };
    // Fails at the end of the daemon: the loop of the source ends with that error.
    let _ = context.report(update).await;
    (read, is_read)
}

async fn read_layer(
    context: Arc<Context>,
    device: String,
    layer: Layer,
    generation: u32,
    zpool: Arc<ZpoolReader>,
) -> LayerRead {
    let pool = match &layer {
        Layer::ZfsPool { name } => Some(name.clone()),
        _ => None,
    };
    let timeout = context.settings.borrow().worker_timeout;
    let target = format!("layer {device}");
    let outcome =
        context.workers.run(&target, Job::Layer { device: device.clone(), layer }, timeout).await;
    let report = async |update| {
        // Fails at the end of the daemon: the loop of the source ends with that error.
        let _ = context.report(update).await;
    };
    let state = match outcome {
        WorkerOutcome::Stuck { since, waiting_in, late } => {
            pool.iter().for_each(|pool| zpool.hold(pool));
            let path = HostPath::new(format!("/dev/{device}"));
            let stuck = StuckProbe { since, waiting_in, path };
            report(SourceUpdate::LayerStuck { device: device.clone(), stuck }).await;
            let Some(late) = late else {
                return LayerRead { device, generation, is_stable: false };
            };
            late_answer(late, layer_state).await
        }
        outcome => answer(outcome, layer_state),
    };
    let state = match (state, pool) {
        (Ok(LayerState::Zfs(read)), Some(pool)) => {
            Ok(LayerState::Zfs(zpool.complete(&context.root, &pool, read.state).await))
        }
        (state, pool) => {
            pool.iter().for_each(|pool| zpool.hold(pool));
            state
        }
    };
    let is_stable = matches!(state, Ok(LayerState::Plain | LayerState::Linear { .. }));
    report(SourceUpdate::Layer {
        device: device.clone(),
        state: Observation::from_result(now(), state),
    })
    .await;
    LayerRead { device, generation, is_stable }
}

fn layer_state(result: JobResult) -> Option<LayerState> {
    match result {
        JobResult::Layer(state) => Some(state),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> HardwareWatch {
        HardwareWatch::new(true, SourceStatus::Active(String::new()))
    }

    fn read(device: &str, asked: u32, constant: bool) -> Result<LayerRead, JoinError> {
        Ok(LayerRead { device: device.to_owned(), generation: asked, is_stable: constant })
    }

    #[test]
    fn a_stable_layer_is_not_read_until_the_next_event() {
        let mut watch = watch();
        watch.record_read(read("dm-0", 0, true));
        watch.record_read(read("md0", 0, false));
        assert_eq!(watch.stable_devices.iter().collect::<Vec<_>>(), ["dm-0"]);
        watch.invalidate_all();
        assert!(watch.stable_devices.is_empty());
    }

    #[test]
    fn a_read_started_before_an_event_does_not_mark_the_layer_stable() {
        let mut watch = watch();
        watch.invalidate_all();
        watch.record_read(read("dm-0", 0, true));
        assert!(watch.stable_devices.is_empty());
        watch.record_read(read("dm-0", 1, true));
        assert!(watch.stable_devices.contains("dm-0"));
    }
}
