//! LVM snapshots as the source of a check: device-mapper itself freezes the filesystem for the
//! moment of the copy (lvmthin(7), lvcreate(8)), its log is replayed in the copy, and the origin is
//! never touched.
//!
//! In: a logical volume. Out: a device that nobody else writes to. It is removed on every path;
//! what a killed daemon left is found by its name and tag. Never for btrfs: the kernel would take
//! the copy for another device of the same filesystem.

use std::path::Path;

use serde::Deserialize;
use tokio::sync::oneshot;

use crate::host::clock::now;
use crate::host::exec::{ExecError, Output};
use crate::host::root::HostRoot;
use crate::model::causes::with_causes;
use crate::model::check::{Filesystem, Signal, SignalKind};
use crate::model::dev::DevNo;
use crate::model::finding::Evidence;
use crate::model::ids::CheckId;
use crate::model::policy::checks::Tools;
use crate::source::checks::freezer::Freezer;
use crate::source::checks::lvm::{Host, Lvm};
use crate::source::checks::runner::Device;
use crate::source::checks::tools;
use crate::source::worker::REPLAY_DAMAGED;

/// The beginning of each name, and the tag: what has both is ours.
pub const PREFIX: &str = "diskvitals-check-";
const TAG: &str = "diskvitals";
/// Room for what changes on the origin while a classic snapshot is there: a twentieth of it, and
/// not less than this, in bytes.
const LEAST_ROOM: u64 = 64 << 20;
const SHARE: u64 = 20;
/// A thin pool that is fuller (in percent) gets no snapshot: each block that is overwritten
/// meanwhile takes another one.
const FULLEST: f64 = 90.0;
/// udev opens each new device for a moment: then it is busy.
const TRIES: u32 = 5;
const BETWEEN: std::time::Duration = std::time::Duration::from_secs(2);
/// An lvm that outlived its daemon waits for the I/O of the origin and for udev: two minutes, as
/// for one of our own.
const TRIES_TO_SETTLE: u32 = 60;
const FIELDS: &str = "vg_name,lv_name,lv_size,vg_free,segtype,pool_lv,origin,lv_attr,lv_tags,data_percent,metadata_percent,lv_snapshot_invalid,lv_kernel_major,lv_kernel_minor";

#[derive(Clone, Debug)]
pub struct SnapshotOrder {
    pub check: CheckId,
    /// Of the origin.
    pub group: String,
    pub volume: String,
    pub filesystem: Filesystem,
    /// As the host names it.
    pub lvm: std::path::PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// None can be made here; says why.
    #[error("{0}")]
    Refused(String),
    /// The kernel itself says that what is in it is damaged.
    #[error("the snapshot cannot be mounted: {}", .0.evidence.text)]
    Damaged(Box<Signal>),
    #[error("{0}")]
    Failed(String),
}

/// Dropping it has it removed.
#[derive(Debug)]
pub struct Snapshot<L: Lvm> {
    lvm: L,
    group: String,
    /// Its origin.
    volume: String,
    name: String,
    thin: bool,
    pub device: Device,
    armed: bool,
}

/// One line of `lvs --reportformat json --units b --nosuffix`; all its values are text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Volume {
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

impl Volume {
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

/// How a snapshot of it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    Thin,
    /// With so many bytes of room.
    Classic(u64),
}

fn parse(text: &[u8]) -> Result<Vec<Volume>, String> {
    #[derive(Deserialize)]
    struct Answer {
        report: Vec<Part>,
    }
    #[derive(Deserialize)]
    struct Part {
        #[serde(default)]
        lv: Vec<Volume>,
    }
    let answer: Answer = serde_json::from_slice(text)
        .map_err(|error| format!("what lvs says makes no sense: {error}"))?;
    Ok(answer.report.into_iter().flat_map(|part| part.lv).collect())
}

/// The error: why there can be none.
fn plan(volumes: &[Volume], name: &str) -> Result<Plan, String> {
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
            Some(full) if full.iter().any(|percent| *percent >= FULLEST) => Err(format!(
                "the thin pool {} is too full for a snapshot (data {} %, metadata {} %)",
                volume.pool_lv, full[0], full[1]
            )),
            Some(_) => Ok(Plan::Thin),
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
    let room = (size / SHARE).max(LEAST_ROOM);
    if free < room {
        return Err(format!(
            "the volume group has {} MiB free, and a snapshot needs {} MiB",
            free >> 20,
            room >> 20
        ));
    }
    Ok(Plan::Classic(room))
}

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}

fn create(order: &SnapshotOrder, plan: &Plan, name: &str) -> Vec<String> {
    let origin = format!("{}/{}", order.group, order.volume);
    // It is not there for long enough to be watched by dmeventd, which would be started for it.
    let mut args = words(&[
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
        Plan::Thin => args.extend(words(&["--setactivationskip", "n", "--activate", "y"])),
        Plan::Classic(room) => args.extend(words(&["--size", &format!("{room}b")])),
    }
    args.push(origin);
    args
}

async fn volumes<L: Lvm>(lvm: &L, of: Option<&str>) -> Result<Vec<Volume>, String> {
    let mut args = words(&[
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
    parse(&said(lvm.call(args).await, "lvs")?.stdout).map(|volumes| {
        // Hidden ones are told in brackets.
        let shown = |name: String| name.trim_matches(['[', ']']).to_owned();
        volumes
            .into_iter()
            .map(|volume| Volume {
                lv_name: shown(volume.lv_name),
                pool_lv: shown(volume.pool_lv),
                ..volume
            })
            .collect()
    })
}

/// What a program says that says nothing of what did not go well.
const SAYS_NOTHING: [&str; 3] = ["WARNING", "File descriptor", "Run `"];
/// Of its last words so many lines: the last one is often but the consequence of the one before.
const LAST_WORDS: usize = 3;

/// The error: what did not go well, with the program's last words.
fn said(ran: Result<Output, ExecError>, what: &str) -> Result<Output, String> {
    let output = ran.map_err(|error| format!("{what}: {}", with_causes(&error)))?;
    if output.status == 0 && !output.truncated {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let idle =
        |line: &&str| line.is_empty() || SAYS_NOTHING.iter().any(|start| line.starts_with(start));
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !idle(line))
        .collect();
    let last = lines
        .get(lines.len().saturating_sub(LAST_WORDS)..)
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
pub async fn make<L: Lvm>(lvm: L, order: SnapshotOrder) -> Result<Snapshot<L>, SnapshotError> {
    let (tell, made) = oneshot::channel();
    tokio::spawn(async move {
        let mut tell = tell;
        let made = make_all(lvm, order, &mut tell).await;
        // Nobody waits for it any more: dropped, it is removed.
        let _ = tell.send(made);
    });
    made.await.unwrap_or_else(|_| {
        Err(SnapshotError::Failed(
            "an internal error: the task that makes snapshots was lost".to_owned(),
        ))
    })
}

type Tell<L> = oneshot::Sender<Result<Snapshot<L>, SnapshotError>>;

async fn make_all<L: Lvm>(
    lvm: L,
    order: SnapshotOrder,
    tell: &mut Tell<L>,
) -> Result<Snapshot<L>, SnapshotError> {
    if order.filesystem == Filesystem::Btrfs {
        let why =
            "the kernel would take a snapshot of a btrfs for another device of the same filesystem";
        return Err(SnapshotError::Refused(why.to_owned()));
    }
    let known = volumes(&lvm, Some(&order.group))
        .await
        .map_err(SnapshotError::Failed)?;
    // There is one check a filesystem: another one of ours was left behind.
    for left in known
        .iter()
        .filter(|volume| volume.is_ours() && volume.origin == order.volume)
    {
        remove(&lvm, &left.vg_name, &left.origin, &left.lv_name)
            .await
            .map_err(SnapshotError::Failed)?;
    }
    let plan = plan(&known, &order.volume).map_err(SnapshotError::Refused)?;
    if tell.is_closed() {
        return Err(SnapshotError::Failed(
            "it is not wanted any more".to_owned(),
        ));
    }
    let name = format!("{PREFIX}{}", order.check);
    let mut snapshot = Snapshot {
        lvm: lvm.clone(),
        group: order.group.clone(),
        volume: order.volume.clone(),
        name: name.clone(),
        thin: plan == Plan::Thin,
        device: Device {
            name: String::new(),
            dev: DevNo::default(),
        },
        // From before it is made: a lvcreate that fails or is slow may have made it all the same.
        armed: true,
    };
    match lvm
        .change(
            &order.group,
            &order.volume,
            &name,
            create(&order, &plan, &name),
        )
        .await
    {
        Err(ExecError::Unkillable {
            remains, timeout, ..
        }) => {
            // It is never killed; what it makes at last is removed then.
            tokio::spawn(async move {
                remains.gone().await;
                drop(snapshot);
            });
            return Err(SnapshotError::Failed(format!(
                "lvcreate has not ended after {} s, and is left to itself",
                timeout.as_secs()
            )));
        }
        ran => said(ran, "lvcreate").map_err(SnapshotError::Failed)?,
    };
    let made = volumes(&lvm, Some(&format!("{}/{name}", order.group)))
        .await
        .map_err(SnapshotError::Failed)?;
    let dev = made
        .iter()
        .find(|volume| volume.lv_name == name)
        .and_then(Volume::dev);
    let dev = dev.ok_or_else(|| {
        SnapshotError::Failed("lvs does not tell the device of the snapshot".to_owned())
    })?;
    snapshot.device = Device {
        name: format!("dm-{}", dev.minor),
        dev,
    };
    if tell.is_closed() {
        return Err(SnapshotError::Failed(
            "it is not wanted any more".to_owned(),
        ));
    }
    replay(&lvm, &order, dev).await?;
    Ok(snapshot)
}

async fn replay<L: Lvm>(lvm: &L, order: &SnapshotOrder, dev: DevNo) -> Result<(), SnapshotError> {
    let ran = lvm.replay(order.filesystem, dev).await;
    let damaged = ran
        .as_ref()
        .is_ok_and(|output| output.status == i32::from(REPLAY_DAMAGED) << 8);
    match said(ran, "replaying the log of a snapshot") {
        Ok(_) => Ok(()),
        Err(text) if damaged => {
            let source = format!("mount of a snapshot of {}/{}", order.group, order.volume);
            let evidence = Evidence {
                source,
                time: now(),
                text,
            };
            Err(SnapshotError::Damaged(Box::new(Signal {
                kind: SignalKind::Corrupted,
                evidence,
            })))
        }
        Err(why) => Err(SnapshotError::Failed(why)),
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
                words(&["lvremove", "--yes", "--force", &format!("{group}/{name}")]),
            )
            .await;
        match said(ran, "lvremove") {
            Ok(_) => return Ok(()),
            // It never was, or is gone: there is nothing to do.
            Err(_)
                if volumes(lvm, Some(group))
                    .await
                    .is_ok_and(|left| left.iter().all(|volume| volume.lv_name != name)) =>
            {
                return Ok(());
            }
            Err(why) if tried >= TRIES => return Err(why),
            Err(_) => tokio::time::sleep(BETWEEN).await,
        }
    }
}

async fn remove_loudly<L: Lvm>(lvm: L, group: String, origin: String, name: String) {
    if let Err(why) = remove(&lvm, &group, &origin, &name).await {
        tracing::error!(
            group,
            name,
            why,
            "a snapshot of a check could not be removed: remove it with lvremove"
        );
    }
}

impl<L: Lvm> Snapshot<L> {
    /// Why what was read of it counts for nothing. A thin one draws on its pool, whose end shows in
    /// failing reads.
    pub async fn overflown(&self) -> Option<String> {
        if self.thin {
            return None;
        }
        let state = volumes(&self.lvm, Some(&format!("{}/{}", self.group, self.name))).await;
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

    pub async fn remove(mut self) {
        self.armed = false;
        remove_loudly(
            self.lvm.clone(),
            self.group.clone(),
            self.volume.clone(),
            self.name.clone(),
        )
        .await;
    }
}

impl<L: Lvm> Drop for Snapshot<L> {
    fn drop(&mut self) {
        // Without a runtime the daemon ends: the next start removes it.
        if let (true, Ok(runtime)) = (self.armed, tokio::runtime::Handle::try_current()) {
            runtime.spawn(remove_loudly(
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
pub async fn tidy(
    root: &HostRoot,
    given: &Tools,
    program: &Path,
    freezer: &Freezer,
) -> Vec<String> {
    if root.is_recorded() {
        return Vec::new();
    }
    let (mut lines, left) = settle(freezer).await;
    let there = {
        let root = root.clone();
        tokio::task::spawn_blocking(move || has_ours(&root))
            .await
            .unwrap_or(true)
    };
    if !there && !left {
        return lines;
    }
    match tools::find_lvm(root, given).await {
        Some(lvm) => {
            let host = Host {
                root: root.clone(),
                worker: program.to_owned(),
                lvm,
                freezer: freezer.clone(),
            };
            lines.extend(sweep(&host).await);
        }
        None => lines.push(
            "there may be a snapshot of a check, and there is no lvm to remove it with".to_owned(),
        ),
    }
    if left {
        lines.extend(freezer.resume(true).await.lines);
    }
    lines
}

/// Resumes what an lvm left suspended that was killed; one that outlived its daemon is waited for.
/// Out: whether there was any.
async fn settle(freezer: &Freezer) -> (Vec<String>, bool) {
    let (mut lines, mut left) = (Vec::new(), false);
    for _ in 0..TRIES_TO_SETTLE {
        let resumed = freezer.resume(false).await;
        lines.extend(resumed.lines);
        left |= resumed.left || resumed.busy;
        if !resumed.busy {
            break;
        }
        tokio::time::sleep(BETWEEN).await;
    }
    lines.dedup();
    (lines, left)
}

/// device-mapper doubles the hyphens within names (dm_build_dm_name() of lvm2).
fn has_ours(root: &HostRoot) -> bool {
    let name = format!("-{}", PREFIX.replace('-', "--"));
    let Ok(devices) = std::fs::read_dir(root.at("/sys/block")) else {
        return false;
    };
    devices.flatten().any(|device| {
        std::fs::read_to_string(device.path().join("dm/name"))
            .is_ok_and(|text| text.contains(&name))
    })
}

async fn sweep<L: Lvm>(lvm: &L) -> Vec<String> {
    let known = match volumes(lvm, None).await {
        Ok(known) => known,
        Err(why) => {
            return vec![format!(
                "looking for snapshots that were left behind: {why}"
            )];
        }
    };
    let mut lines = Vec::new();
    for Volume {
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
