//! LVM snapshots for checks: device-mapper freezes the filesystem while it creates the snapshot
//! (lvmthin(7), lvcreate(8)). The log is replayed in the snapshot; the origin is never modified.
//!
//! In: a logical volume. Out: a device that nothing else writes to. The snapshot is removed on
//! every path; one that a killed daemon left is found by its name and tag. Never for btrfs: the
//! kernel would treat the snapshot as another device of the filesystem.

pub mod lvs;

use std::path::Path;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::checks::freezer::Freezer;
use crate::checks::lvm::{HostLvm, Lvm};
pub use crate::checks::lvm_snapshot::lvs::{LvmError, PlanError};
use crate::checks::lvm_snapshot::lvs::{LvsRow, SnapshotPlan, list_volumes, plan, require_success};
use crate::checks::runner::Device;
use crate::checks::tools;
use crate::worker_main::REPLAY_DAMAGED;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::CheckId;
use diskvitals_finding::{Evidence, WitnessKind};
use diskvitals_fscheck::policy::Tools;
use diskvitals_fscheck::{Filesystem, FilesystemSignal, SignalKind};
use diskvitals_host::blocking::BlockingLane;
use diskvitals_host::clock::now;
use diskvitals_host::exec::ExecError;
use diskvitals_host::root::HostRoot;
use diskvitals_text::causes::with_causes;

static DEVICES: BlockingLane = BlockingLane::new();

/// The prefix of each name, and the tag: a volume that has both is ours.
pub const PREFIX: &str = "diskvitals-check-";
const TAG: &str = "diskvitals";

/// udev opens each new device for a moment, during which the device is busy.
const MAX_REMOVE_ATTEMPTS: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// An lvm process that outlived its daemon waits for the I/O of the origin and for udev: two
/// minutes, the limit for our own lvm processes.
const MAX_RESUME_ATTEMPTS: u32 = 60;

#[derive(Clone, Debug)]
pub struct LvmSnapshotRequest {
    pub check: CheckId,
    /// Volume group of the origin.
    pub group: String,
    pub volume: String,
    pub filesystem: Filesystem,
    /// Path on the host.
    pub lvm: std::path::PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum LvmSnapshotError {
    /// No snapshot can be created here.
    #[error(transparent)]
    Refused(PlanError),
    /// The kernel reports that the content is damaged.
    #[error("the snapshot cannot be mounted: {}", .0.evidence.text)]
    Damaged(Box<FilesystemSignal>),
    #[error(transparent)]
    Lvm(#[from] LvmError),
    #[error("lvcreate has not ended after {} s, and is left to itself", .0.as_secs())]
    StillRunning(Duration),
    #[error("lvs does not report the device of the snapshot")]
    NoDevice,
    #[error("it is no longer wanted")]
    NotWanted,
    #[error("an internal error: the task that makes snapshots was lost")]
    TaskLost,
}

/// Dropping it removes the snapshot.
#[derive(Debug)]
pub struct LvmSnapshot<L: Lvm> {
    lvm: L,
    group: String,
    /// The origin.
    volume: String,
    name: String,
    thin: bool,
    pub device: Device,
    remove_on_drop: bool,
}

fn to_args(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}

fn lvcreate_args(request: &LvmSnapshotRequest, plan: &SnapshotPlan, name: &str) -> Vec<String> {
    let origin = format!("{}/{}", request.group, request.volume);
    // Without monitoring, which would start dmeventd: the snapshot exists only briefly.
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

/// Continues when the future is dropped: lvcreate is not stopped half-way, and the snapshot is then
/// removed.
pub async fn create<L: Lvm>(
    lvm: L,
    request: LvmSnapshotRequest,
) -> Result<LvmSnapshot<L>, LvmSnapshotError> {
    let (tell, made) = oneshot::channel();
    tokio::spawn(async move {
        let mut tell = tell;
        let made = create_and_replay(lvm, request, &mut tell).await;
        // If the receiver was dropped, the snapshot is dropped, which removes it.
        let _ = tell.send(made);
    });
    made.await.unwrap_or(Err(LvmSnapshotError::TaskLost))
}

type ResultSender<L> = oneshot::Sender<Result<LvmSnapshot<L>, LvmSnapshotError>>;

async fn create_and_replay<L: Lvm>(
    lvm: L,
    request: LvmSnapshotRequest,
    tell: &mut ResultSender<L>,
) -> Result<LvmSnapshot<L>, LvmSnapshotError> {
    if request.filesystem == Filesystem::Btrfs {
        return Err(LvmSnapshotError::Refused(PlanError::Btrfs));
    }
    let known = list_volumes(&lvm, Some(&request.group)).await?;
    // There is one check per filesystem, so any other snapshot of ours is a leftover.
    for left in known.iter().filter(|volume| volume.is_ours() && volume.origin == request.volume) {
        remove(&lvm, &left.vg_name, &left.origin, &left.lv_name).await?;
    }
    let plan = plan(&known, &request.volume).map_err(LvmSnapshotError::Refused)?;
    if tell.is_closed() {
        return Err(LvmSnapshotError::NotWanted);
    }
    let name = format!("{PREFIX}{}", request.check);
    let mut snapshot = LvmSnapshot {
        lvm: lvm.clone(),
        group: request.group.clone(),
        volume: request.volume.clone(),
        name: name.clone(),
        thin: plan == SnapshotPlan::Thin,
        device: Device { name: String::new(), dev: DevNo::default() },
        // Set before the creation: a lvcreate that fails or is slow may still create the snapshot.
        remove_on_drop: true,
    };
    match lvm
        .change(&request.group, &request.volume, &name, lvcreate_args(&request, &plan, &name))
        .await
    {
        Err(ExecError::Unkillable { child, timeout, .. }) => {
            // lvcreate is never killed; a snapshot that it creates later is removed then.
            tokio::spawn(async move {
                child.exited().await;
                drop(snapshot);
            });
            return Err(LvmSnapshotError::StillRunning(timeout));
        }
        ran => require_success(ran, "lvcreate")?,
    };
    let made = list_volumes(&lvm, Some(&format!("{}/{name}", request.group))).await?;
    let dev = made
        .iter()
        .find(|volume| volume.lv_name == name)
        .and_then(LvsRow::dev)
        .ok_or(LvmSnapshotError::NoDevice)?;
    snapshot.device = Device { name: format!("dm-{}", dev.minor), dev };
    if tell.is_closed() {
        return Err(LvmSnapshotError::NotWanted);
    }
    replay(&lvm, &request, dev).await?;
    Ok(snapshot)
}

async fn replay<L: Lvm>(
    lvm: &L,
    request: &LvmSnapshotRequest,
    dev: DevNo,
) -> Result<(), LvmSnapshotError> {
    let ran = lvm.replay(request.filesystem, dev).await;
    let damaged = ran.as_ref().is_ok_and(|output| output.status == i32::from(REPLAY_DAMAGED) << 8);
    match require_success(ran, "replaying the log of a snapshot") {
        Ok(_) => Ok(()),
        Err(error) if damaged => {
            let source = format!("mount of a snapshot of {}/{}", request.group, request.volume);
            let evidence = Evidence {
                source,
                time: now(),
                text: with_causes(&error),
                witness: WitnessKind::Check,
                present: false,
            };
            Err(LvmSnapshotError::Damaged(Box::new(FilesystemSignal {
                kind: SignalKind::Corrupted,
                evidence,
            })))
        }
        Err(error) => Err(error.into()),
    }
}

async fn remove<L: Lvm>(lvm: &L, group: &str, origin: &str, name: &str) -> Result<(), LvmError> {
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
            // The snapshot never existed, or is already removed.
            Err(_)
                if list_volumes(lvm, Some(group))
                    .await
                    .is_ok_and(|left| left.iter().all(|volume| volume.lv_name != name)) =>
            {
                return Ok(());
            }
            Err(error) if tried >= MAX_REMOVE_ATTEMPTS => return Err(error),
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

async fn remove_or_log<L: Lvm>(lvm: L, group: String, origin: String, name: String) {
    if let Err(error) = remove(&lvm, &group, &origin, &name).await {
        tracing::error!(
            group,
            name,
            error = with_causes(&error),
            "a snapshot of a check could not be removed: remove it with lvremove"
        );
    }
}

impl<L: Lvm> LvmSnapshot<L> {
    /// Why the data read from it is invalid. A thin snapshot uses its pool; when the pool is full,
    /// reads fail.
    pub(crate) async fn overflow_reason(&self) -> Option<String> {
        if self.thin {
            return None;
        }
        let state = list_volumes(&self.lvm, Some(&format!("{}/{}", self.group, self.name))).await;
        let volumes = match state {
            Ok(volumes) => volumes,
            Err(error) => {
                return Some(format!(
                    "whether the snapshot is whole is unknown: {}",
                    with_causes(&error)
                ));
            }
        };
        let Some(volume) = volumes.iter().find(|volume| volume.lv_name == self.name) else {
            return Some("the snapshot has gone in the middle of it".to_owned());
        };
        let full = volume.data_percent.parse::<f64>().ok();
        let invalid = !matches!(volume.lv_snapshot_invalid.as_str(), "" | "0");
        (invalid || full.is_none_or(|percent| percent >= 100.0))
            .then(|| "the snapshot had no more room for what changed on the origin: what was read of it counts for nothing".to_owned())
    }

    pub async fn remove(mut self) {
        self.remove_on_drop = false;
        remove_or_log(self.lvm.clone(), self.group.clone(), self.volume.clone(), self.name.clone())
            .await;
    }
}

impl<L: Lvm> Drop for LvmSnapshot<L> {
    fn drop(&mut self) {
        // Without a runtime the daemon is ending: the next start removes it.
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

/// Removes the snapshots of an earlier daemon. lvm runs only if device-mapper has a device with our
/// name, or an lvm of ours was about to create one: its scan wakes every disk of the node.
pub async fn clean_up(
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
        DEVICES.run(move || has_own_snapshot(&root)).await.unwrap_or(true)
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

/// Resumes volumes that a killed lvm left suspended, and waits for an lvm that outlived its daemon.
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
        Err(error) => {
            return vec![format!(
                "looking for snapshots that were left behind: {}",
                with_causes(&error)
            )];
        }
    };
    let mut lines = Vec::new();
    for LvsRow { vg_name, lv_name, origin, .. } in known.iter().filter(|volume| volume.is_ours()) {
        lines.push(match remove(lvm, vg_name, origin, lv_name).await {
            Ok(()) => format!("the snapshot {vg_name}/{lv_name} of a check was left behind, and is removed"),
            Err(error) => format!("the snapshot {vg_name}/{lv_name} of a check was left behind, and could not be removed: {}", with_causes(&error)),
        });
    }
    lines
}

#[cfg(test)]
mod tests;
