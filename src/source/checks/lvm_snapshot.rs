//! LVM snapshots for checks: device-mapper freezes the filesystem while it makes the snapshot
//! (lvmthin(7), lvcreate(8)). The log is replayed in the snapshot, and the origin is never touched.
//!
//! In: a logical volume. Out: a device that nothing else writes to. The snapshot is removed on
//! every path; one that a killed daemon left is found by its name and tag. Never for btrfs: the
//! kernel would take the snapshot for another device of the same filesystem.

use std::path::Path;

use serde::Deserialize;
use tokio::sync::oneshot;

use crate::host::blocking::BlockingLane;
use crate::host::clock::now;
use crate::host::exec::{ExecError, Output};
use crate::host::root::HostRoot;
use crate::model::causes::with_causes;
use crate::model::check::{Filesystem, FilesystemSignal, SignalKind};
use crate::model::dev::DevNo;
use crate::model::finding::Evidence;
use crate::model::ids::CheckId;
use crate::model::policy::checks::Tools;
use crate::source::checks::freezer::Freezer;
use crate::source::checks::lvm::{HostLvm, Lvm};
use crate::source::checks::runner::Device;
use crate::source::checks::tools;
use crate::source::worker_main::REPLAY_DAMAGED;

static DEVICES: BlockingLane = BlockingLane::new();

/// The prefix of each name, and the tag: a volume that has both is ours.
pub(crate) const PREFIX: &str = "diskvitals-check-";
const TAG: &str = "diskvitals";
/// Space of a classic snapshot for changes of the origin: a twentieth of its size, and at least
/// this, in bytes.
const MIN_SNAPSHOT_BYTES: u64 = 64 << 20;
const ORIGIN_DIVISOR: u64 = 20;
/// A thin pool that is fuller (in percent) gets no snapshot: each block that is overwritten
/// meanwhile takes a new one.
const MAX_POOL_PERCENT: f64 = 90.0;
/// udev opens each new device for a moment, and it is busy then.
const MAX_REMOVE_ATTEMPTS: u32 = 5;
const RETRY_DELAY: std::time::Duration = std::time::Duration::from_secs(2);
/// An lvm process that outlived its daemon waits for the I/O of the origin and for udev: two
/// minutes, as for one of our own.
const MAX_RESUME_ATTEMPTS: u32 = 60;
const FIELDS: &str = "vg_name,lv_name,lv_size,vg_free,segtype,pool_lv,origin,lv_attr,lv_tags,data_percent,metadata_percent,lv_snapshot_invalid,lv_kernel_major,lv_kernel_minor";

#[derive(Clone, Debug)]
pub(crate) struct LvmSnapshotRequest {
    pub check: CheckId,
    /// Of the origin.
    pub group: String,
    pub volume: String,
    pub filesystem: Filesystem,
    /// As the host names it.
    pub lvm: std::path::PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LvmSnapshotError {
    /// No snapshot can be made here; the text says why.
    #[error("{0}")]
    Refused(String),
    /// The kernel reports that the content is damaged.
    #[error("the snapshot cannot be mounted: {}", .0.evidence.text)]
    Damaged(Box<FilesystemSignal>),
    #[error("{0}")]
    Failed(String),
}

/// Dropping it removes it.
#[derive(Debug)]
pub(crate) struct LvmSnapshot<L: Lvm> {
    lvm: L,
    group: String,
    /// Its origin.
    volume: String,
    name: String,
    thin: bool,
    pub device: Device,
    remove_on_drop: bool,
}

/// One line of `lvs --reportformat json --units b --nosuffix`; all its values are text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LvsRow {
    vg_name: String,
    lv_name: String,
    lv_size: String,
    vg_free: String,
    segtype: String,
    pool_lv: String,
    origin: String,
    lv_attr: String,
    lv_tags: String,
    data_percent: String,
    metadata_percent: String,
    lv_snapshot_invalid: String,
    lv_kernel_major: String,
    lv_kernel_minor: String,
}

impl LvsRow {
    fn is_ours(&self) -> bool {
        self.lv_name.starts_with(PREFIX) && self.lv_tags.split(',').any(|tag| tag == TAG)
    }

    fn dev(&self) -> Option<DevNo> {
        Some(DevNo::new(
            self.lv_kernel_major.parse().ok()?,
            self.lv_kernel_minor.parse().ok()?,
        ))
    }
}

/// The kind of snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SnapshotPlan {
    Thin,
    /// With this many bytes of space for changes.
    Classic(u64),
}

fn parse_lvs(text: &[u8]) -> Result<Vec<LvsRow>, String> {
    #[derive(Deserialize)]
    struct LvsOutput {
        report: Vec<LvsReport>,
    }
    #[derive(Deserialize)]
    struct LvsReport {
        #[serde(default)]
        lv: Vec<LvsRow>,
    }
    let answer: LvsOutput = serde_json::from_slice(text)
        .map_err(|error| format!("what lvs says makes no sense: {error}"))?;
    Ok(answer.report.into_iter().flat_map(|part| part.lv).collect())
}

/// The error says why there can be no snapshot.
fn plan(volumes: &[LvsRow], name: &str) -> Result<SnapshotPlan, String> {
    let volume = volumes
        .iter()
        .find(|volume| volume.lv_name == name)
        .ok_or_else(|| format!("lvs does not know the logical volume {name}"))?;
    if volume.lv_attr.starts_with(['s', 'S']) {
        return Err("it is a snapshot itself".to_owned());
    }
    if !volume.pool_lv.is_empty() {
        let pool = volumes.iter().find(|pool| pool.lv_name == volume.pool_lv);
        let full = pool.and_then(|pool| {
            Some([
                pool.data_percent.parse::<f64>().ok()?,
                pool.metadata_percent.parse().ok()?,
            ])
        });
        return match full {
            None => Err(format!(
                "how full the thin pool {} is cannot be told",
                volume.pool_lv
            )),
            Some(full) if full.iter().any(|percent| *percent >= MAX_POOL_PERCENT) => Err(format!(
                "the thin pool {} is too full for a snapshot (data {} %, metadata {} %)",
                volume.pool_lv, full[0], full[1]
            )),
            Some(_) => Ok(SnapshotPlan::Thin),
        };
    }
    let bytes = |text: &str, what: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("lvs does not tell the {what}"))
    };
    let (size, free) = (
        bytes(&volume.lv_size, "size of the logical volume")?,
        bytes(&volume.vg_free, "free space of the volume group")?,
    );
    let room = (size / ORIGIN_DIVISOR).max(MIN_SNAPSHOT_BYTES);
    if free < room {
        return Err(format!(
            "the volume group has {} MiB free, and a snapshot needs {} MiB",
            free >> 20,
            room >> 20
        ));
    }
    Ok(SnapshotPlan::Classic(room))
}

fn to_args(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}

fn lvcreate_args(order: &LvmSnapshotRequest, plan: &SnapshotPlan, name: &str) -> Vec<String> {
    let origin = format!("{}/{}", order.group, order.volume);
    // It is not there for long enough to be watched by dmeventd, which would be started for it.
    let mut args = to_args(&[
        "lvcreate",
        "--yes",
        "--config",
        "activation/monitoring=0",
        "--snapshot",
        "--addtag",
        TAG,
        "--name",
        name,
    ]);
    match plan {
        SnapshotPlan::Thin => {
            args.extend(to_args(&["--setactivationskip", "n", "--activate", "y"]))
        }
        SnapshotPlan::Classic(room) => args.extend(to_args(&["--size", &format!("{room}b")])),
    }
    args.push(origin);
    args
}

async fn list_volumes<L: Lvm>(lvm: &L, of: Option<&str>) -> Result<Vec<LvsRow>, String> {
    let mut args = to_args(&[
        "lvs",
        "--all",
        "--reportformat",
        "json",
        "--units",
        "b",
        "--nosuffix",
        "--options",
        FIELDS,
    ]);
    args.extend(of.map(str::to_owned));
    parse_lvs(&require_success(lvm.query(args).await, "lvs")?.stdout).map(|volumes| {
        // Hidden ones are in brackets.
        let shown = |name: String| name.trim_matches(['[', ']']).to_owned();
        volumes
            .into_iter()
            .map(|volume| LvsRow {
                lv_name: shown(volume.lv_name),
                pool_lv: shown(volume.pool_lv),
                ..volume
            })
            .collect()
    })
}

/// What a program says that says nothing of what did not go well.
const IGNORED_STDERR: [&str; 3] = ["WARNING", "File descriptor", "Run `"];
/// Of its last words so many lines: the last one is often but the consequence of the one before.
const STDERR_TAIL_LINES: usize = 3;

/// The error: what did not go well, with the program's last words.
fn require_success(ran: Result<Output, ExecError>, what: &str) -> Result<Output, String> {
    let output = ran.map_err(|error| format!("{what}: {}", with_causes(&error)))?;
    if output.status == 0 && !output.truncated {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let idle =
        |line: &&str| line.is_empty() || IGNORED_STDERR.iter().any(|start| line.starts_with(start));
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !idle(line))
        .collect();
    let last = lines
        .get(lines.len().saturating_sub(STDERR_TAIL_LINES)..)
        .unwrap_or_default();
    Err(format!(
        "{what}: {}",
        if last.is_empty() {
            "it failed without a word".to_owned()
        } else {
            last.join("; ")
        }
    ))
}

/// Goes on by itself when nobody waits any more: lvcreate is not stopped half-way, and what it made
/// is removed.
pub(crate) async fn create<L: Lvm>(
    lvm: L,
    order: LvmSnapshotRequest,
) -> Result<LvmSnapshot<L>, LvmSnapshotError> {
    let (tell, made) = oneshot::channel();
    tokio::spawn(async move {
        let mut tell = tell;
        let made = create_and_replay(lvm, order, &mut tell).await;
        // The receiver has gone: the snapshot is dropped, and so removed.
        let _ = tell.send(made);
    });
    made.await.unwrap_or_else(|_| {
        Err(LvmSnapshotError::Failed(
            "an internal error: the task that makes snapshots was lost".to_owned(),
        ))
    })
}

type ResultSender<L> = oneshot::Sender<Result<LvmSnapshot<L>, LvmSnapshotError>>;

async fn create_and_replay<L: Lvm>(
    lvm: L,
    order: LvmSnapshotRequest,
    tell: &mut ResultSender<L>,
) -> Result<LvmSnapshot<L>, LvmSnapshotError> {
    if order.filesystem == Filesystem::Btrfs {
        let why =
            "the kernel would take a snapshot of a btrfs for another device of the same filesystem";
        return Err(LvmSnapshotError::Refused(why.to_owned()));
    }
    let known = list_volumes(&lvm, Some(&order.group))
        .await
        .map_err(LvmSnapshotError::Failed)?;
    // There is one check a filesystem: another one of ours was left behind.
    for left in known
        .iter()
        .filter(|volume| volume.is_ours() && volume.origin == order.volume)
    {
        remove(&lvm, &left.vg_name, &left.origin, &left.lv_name)
            .await
            .map_err(LvmSnapshotError::Failed)?;
    }
    let plan = plan(&known, &order.volume).map_err(LvmSnapshotError::Refused)?;
    if tell.is_closed() {
        return Err(LvmSnapshotError::Failed(
            "it is not wanted any more".to_owned(),
        ));
    }
    let name = format!("{PREFIX}{}", order.check);
    let mut snapshot = LvmSnapshot {
        lvm: lvm.clone(),
        group: order.group.clone(),
        volume: order.volume.clone(),
        name: name.clone(),
        thin: plan == SnapshotPlan::Thin,
        device: Device {
            name: String::new(),
            dev: DevNo::default(),
        },
        // From before it is made: a lvcreate that fails or is slow may have made it all the same.
        remove_on_drop: true,
    };
    match lvm
        .change(
            &order.group,
            &order.volume,
            &name,
            lvcreate_args(&order, &plan, &name),
        )
        .await
    {
        Err(ExecError::Unkillable {
            child: remains,
            timeout,
            ..
        }) => {
            // It is never killed; what it makes at last is removed then.
            tokio::spawn(async move {
                remains.exited().await;
                drop(snapshot);
            });
            return Err(LvmSnapshotError::Failed(format!(
                "lvcreate has not ended after {} s, and is left to itself",
                timeout.as_secs()
            )));
        }
        ran => require_success(ran, "lvcreate").map_err(LvmSnapshotError::Failed)?,
    };
    let made = list_volumes(&lvm, Some(&format!("{}/{name}", order.group)))
        .await
        .map_err(LvmSnapshotError::Failed)?;
    let dev = made
        .iter()
        .find(|volume| volume.lv_name == name)
        .and_then(LvsRow::dev);
    let dev = dev.ok_or_else(|| {
        LvmSnapshotError::Failed("lvs does not tell the device of the snapshot".to_owned())
    })?;
    snapshot.device = Device {
        name: format!("dm-{}", dev.minor),
        dev,
    };
    if tell.is_closed() {
        return Err(LvmSnapshotError::Failed(
            "it is not wanted any more".to_owned(),
        ));
    }
    replay(&lvm, &order, dev).await?;
    Ok(snapshot)
}

async fn replay<L: Lvm>(
    lvm: &L,
    order: &LvmSnapshotRequest,
    dev: DevNo,
) -> Result<(), LvmSnapshotError> {
    let ran = lvm.replay(order.filesystem, dev).await;
    let damaged = ran
        .as_ref()
        .is_ok_and(|output| output.status == i32::from(REPLAY_DAMAGED) << 8);
    match require_success(ran, "replaying the log of a snapshot") {
        Ok(_) => Ok(()),
        Err(text) if damaged => {
            let source = format!("mount of a snapshot of {}/{}", order.group, order.volume);
            let evidence = Evidence {
                source,
                time: now(),
                text,
            };
            Err(LvmSnapshotError::Damaged(Box::new(FilesystemSignal {
                kind: SignalKind::Corrupted,
                evidence,
            })))
        }
        Err(why) => Err(LvmSnapshotError::Failed(why)),
    }
}

async fn remove<L: Lvm>(lvm: &L, group: &str, origin: &str, name: &str) -> Result<(), String> {
    let mut tried = 0;
    loop {
        tried += 1;
        let ran = lvm
            .change(
                group,
                origin,
                name,
                to_args(&["lvremove", "--yes", "--force", &format!("{group}/{name}")]),
            )
            .await;
        match require_success(ran, "lvremove") {
            Ok(_) => return Ok(()),
            // It never was, or is gone: there is nothing to do.
            Err(_)
                if list_volumes(lvm, Some(group))
                    .await
                    .is_ok_and(|left| left.iter().all(|volume| volume.lv_name != name)) =>
            {
                return Ok(());
            }
            Err(why) if tried >= MAX_REMOVE_ATTEMPTS => return Err(why),
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

async fn remove_or_log<L: Lvm>(lvm: L, group: String, origin: String, name: String) {
    if let Err(why) = remove(&lvm, &group, &origin, &name).await {
        tracing::error!(
            group,
            name,
            why,
            "a snapshot of a check could not be removed: remove it with lvremove"
        );
    }
}

impl<L: Lvm> LvmSnapshot<L> {
    /// Why what was read of it counts for nothing. A thin one draws on its pool, whose end shows in
    /// failing reads.
    pub(crate) async fn overflow_reason(&self) -> Option<String> {
        if self.thin {
            return None;
        }
        let state = list_volumes(&self.lvm, Some(&format!("{}/{}", self.group, self.name))).await;
        let volume = match state.map(|volumes| {
            volumes
                .into_iter()
                .find(|volume| volume.lv_name == self.name)
        }) {
            Ok(Some(volume)) => volume,
            Ok(None) => return Some("the snapshot has gone in the middle of it".to_owned()),
            Err(why) => {
                return Some(format!(
                    "whether the snapshot is whole cannot be told: {why}"
                ));
            }
        };
        let full = volume.data_percent.parse::<f64>().ok();
        let invalid = !matches!(volume.lv_snapshot_invalid.as_str(), "" | "0");
        (invalid || full.is_none_or(|percent| percent >= 100.0))
            .then(|| "the snapshot had no more room for what changed on the origin: what was read of it counts for nothing".to_owned())
    }

    pub(crate) async fn remove(mut self) {
        self.remove_on_drop = false;
        remove_or_log(
            self.lvm.clone(),
            self.group.clone(),
            self.volume.clone(),
            self.name.clone(),
        )
        .await;
    }
}

impl<L: Lvm> Drop for LvmSnapshot<L> {
    fn drop(&mut self) {
        // Without a runtime the daemon ends: the next start removes it.
        if let (true, Ok(runtime)) = (self.remove_on_drop, tokio::runtime::Handle::try_current()) {
            runtime.spawn(remove_or_log(
                self.lvm.clone(),
                self.group.clone(),
                self.volume.clone(),
                self.name.clone(),
            ));
        }
    }
}

/// What a daemon before left behind. lvm is asked only where device-mapper has a device with our
/// name, or an lvm of ours was about to make one: it would wake every disk of the node to look.
pub(crate) async fn clean_up(
    root: &HostRoot,
    given: &Tools,
    program: &Path,
    freezer: &Freezer,
) -> Vec<String> {
    if root.is_recorded() {
        return Vec::new();
    }
    let (mut lines, left) = resume_suspended(freezer).await;
    let there = {
        let root = root.clone();
        DEVICES
            .run(move || has_own_snapshot(&root))
            .await
            .unwrap_or(true)
    };
    if !there && !left {
        return lines;
    }
    match tools::find_lvm(root, given).await {
        Some(lvm) => {
            let host = HostLvm {
                root: root.clone(),
                worker: program.to_owned(),
                lvm,
                freezer: freezer.clone(),
            };
            lines.extend(remove_leftovers(&host).await);
        }
        None => lines.push(
            "there may be a snapshot of a check, and there is no lvm to remove it with".to_owned(),
        ),
    }
    if left {
        lines.extend(freezer.resume_suspended(true).await.lines);
    }
    lines
}

/// Resumes what an lvm left suspended that was killed; one that outlived its daemon is waited for.
/// Out: whether there was any.
async fn resume_suspended(freezer: &Freezer) -> (Vec<String>, bool) {
    let (mut lines, mut left) = (Vec::new(), false);
    for _ in 0..MAX_RESUME_ATTEMPTS {
        let resumed = freezer.resume_suspended(false).await;
        lines.extend(resumed.lines);
        left |= resumed.had_intents || resumed.still_running;
        if !resumed.still_running {
            break;
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
    lines.dedup();
    (lines, left)
}

/// device-mapper doubles the hyphens within names (dm_build_dm_name() of lvm2).
fn has_own_snapshot(root: &HostRoot) -> bool {
    let name = format!("-{}", PREFIX.replace('-', "--"));
    let Ok(devices) = std::fs::read_dir(root.at("/sys/block")) else {
        return false;
    };
    devices.flatten().any(|device| {
        std::fs::read_to_string(device.path().join("dm/name"))
            .is_ok_and(|text| text.contains(&name))
    })
}

async fn remove_leftovers<L: Lvm>(lvm: &L) -> Vec<String> {
    let known = match list_volumes(lvm, None).await {
        Ok(known) => known,
        Err(why) => {
            return vec![format!(
                "looking for snapshots that were left behind: {why}"
            )];
        }
    };
    let mut lines = Vec::new();
    for LvsRow {
        vg_name,
        lv_name,
        origin,
        ..
    } in known.iter().filter(|volume| volume.is_ours())
    {
        lines.push(match remove(lvm, vg_name, origin, lv_name).await {
            Ok(()) => format!("the snapshot {vg_name}/{lv_name} of a check was left behind, and is removed"),
            Err(why) => format!("the snapshot {vg_name}/{lv_name} of a check was left behind, and could not be removed: {why}"),
        });
    }
    lines
}

#[cfg(test)]
mod tests;
