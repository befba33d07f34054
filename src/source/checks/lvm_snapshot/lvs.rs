//! The volumes of a volume group from lvs(8), and whether there is space for a snapshot.

use serde::Deserialize;

use crate::checks::lvm::Lvm;
use crate::checks::lvm_snapshot::{PREFIX, TAG, to_args};
use diskvitals_finding::dev::DevNo;
use diskvitals_host::exec::{ExecError, Output};

/// Space of a classic snapshot for changes of the origin: a twentieth of its size, but at least
/// this, in bytes.
const MIN_SNAPSHOT_BYTES: u64 = 64 << 20;
const ORIGIN_DIVISOR: u64 = 20;

/// A thin pool that is fuller than this (in percent) gets no snapshot: each block that is
/// overwritten during the check takes a new one.
const MAX_POOL_PERCENT: f64 = 90.0;

const FIELDS: &str = "vg_name,lv_name,lv_size,vg_free,segtype,pool_lv,origin,lv_attr,lv_tags,data_percent,metadata_percent,lv_snapshot_invalid,lv_kernel_major,lv_kernel_minor";

/// Why an LVM program failed.
#[derive(Debug, thiserror::Error)]
pub enum LvmError {
    #[error("{0}")]
    Exec(&'static str, #[source] ExecError),
    /// With the last lines of its standard error.
    #[error("{program}: {stderr}")]
    Failed { program: &'static str, stderr: String },
    #[error("the report of lvs makes no sense")]
    Malformed(#[source] serde_json::Error),
}

/// Why no snapshot of a volume is possible.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(
        "the kernel would take a snapshot of a btrfs for another device of the same filesystem"
    )]
    Btrfs,
    #[error("lvs does not report the logical volume {0}")]
    UnknownVolume(String),
    #[error("it is a snapshot itself")]
    IsSnapshot,
    #[error("lvs does not report how full the thin pool {0} is")]
    PoolUsageUnknown(String),
    #[error(
        "the thin pool {pool} is too full for a snapshot (data {data} %, metadata {metadata} %)"
    )]
    PoolFull { pool: String, data: f64, metadata: f64 },
    #[error("lvs does not report the {0}")]
    SizeUnknown(&'static str),
    #[error("the volume group has {} MiB free, and a snapshot needs {} MiB", free >> 20, needed >> 20)]
    NoSpace { free: u64, needed: u64 },
}

/// One line of `lvs --reportformat json --units b --nosuffix`; all its values are text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LvsRow {
    pub vg_name: String,
    pub lv_name: String,
    pub lv_size: String,
    pub vg_free: String,
    pub segtype: String,
    pub pool_lv: String,
    pub origin: String,
    pub lv_attr: String,
    pub lv_tags: String,
    pub data_percent: String,
    pub metadata_percent: String,
    pub lv_snapshot_invalid: String,
    pub lv_kernel_major: String,
    pub lv_kernel_minor: String,
}

impl LvsRow {
    pub(super) fn is_ours(&self) -> bool {
        self.lv_name.starts_with(PREFIX) && self.lv_tags.split(',').any(|tag| tag == TAG)
    }

    pub fn dev(&self) -> Option<DevNo> {
        Some(DevNo::new(self.lv_kernel_major.parse().ok()?, self.lv_kernel_minor.parse().ok()?))
    }
}

/// The kind of snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotPlan {
    Thin,
    /// With this many bytes of space for changes.
    Classic(u64),
}

pub fn parse_lvs(text: &[u8]) -> Result<Vec<LvsRow>, LvmError> {
    #[derive(Deserialize)]
    struct LvsOutput {
        report: Vec<LvsReport>,
    }
    #[derive(Deserialize)]
    struct LvsReport {
        #[serde(default)]
        lv: Vec<LvsRow>,
    }
    let output: LvsOutput = serde_json::from_slice(text).map_err(LvmError::Malformed)?;
    Ok(output.report.into_iter().flat_map(|part| part.lv).collect())
}

pub fn plan(volumes: &[LvsRow], name: &str) -> Result<SnapshotPlan, PlanError> {
    let volume = volumes
        .iter()
        .find(|volume| volume.lv_name == name)
        .ok_or_else(|| PlanError::UnknownVolume(name.to_owned()))?;
    if volume.lv_attr.starts_with(['s', 'S']) {
        return Err(PlanError::IsSnapshot);
    }
    if !volume.pool_lv.is_empty() {
        let pool = volumes.iter().find(|pool| pool.lv_name == volume.pool_lv);
        let usage = pool.and_then(|pool| {
            Some((
                pool.data_percent.parse::<f64>().ok()?,
                pool.metadata_percent.parse::<f64>().ok()?,
            ))
        });
        let pool = volume.pool_lv.clone();
        return match usage {
            None => Err(PlanError::PoolUsageUnknown(pool)),
            Some((data, metadata)) if data.max(metadata) >= MAX_POOL_PERCENT => {
                Err(PlanError::PoolFull { pool, data, metadata })
            }
            Some(_) => Ok(SnapshotPlan::Thin),
        };
    }
    let bytes = |text: &str, what| text.parse::<u64>().map_err(|_| PlanError::SizeUnknown(what));
    let (size, free) = (
        bytes(&volume.lv_size, "size of the logical volume")?,
        bytes(&volume.vg_free, "free space of the volume group")?,
    );
    let needed = (size / ORIGIN_DIVISOR).max(MIN_SNAPSHOT_BYTES);
    if free < needed {
        return Err(PlanError::NoSpace { free, needed });
    }
    Ok(SnapshotPlan::Classic(needed))
}

pub(super) async fn list_volumes<L: Lvm>(
    lvm: &L,
    of: Option<&str>,
) -> Result<Vec<LvsRow>, LvmError> {
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
    let mut volumes = parse_lvs(&require_success(lvm.query(args).await, "lvs")?.stdout)?;
    for volume in &mut volumes {
        // The names of hidden volumes are in brackets.
        for name in [&mut volume.lv_name, &mut volume.pool_lv] {
            *name = name.trim_matches(['[', ']']).to_owned();
        }
    }
    Ok(volumes)
}

/// The beginnings of lines that do not name the cause of a failure.
const IGNORED_STDERR: [&str; 3] = ["WARNING", "File descriptor", "Run `"];
/// Number of last lines that are quoted: the last one often only follows from the one before.
const STDERR_TAIL_LINES: usize = 3;

pub(super) fn require_success(
    ran: Result<Output, ExecError>,
    program: &'static str,
) -> Result<Output, LvmError> {
    let output = ran.map_err(|error| LvmError::Exec(program, error))?;
    if output.status == 0 && !output.truncated {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let ignored =
        |line: &&str| line.is_empty() || IGNORED_STDERR.iter().any(|start| line.starts_with(start));
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !ignored(line)).collect();
    if lines.is_empty() {
        lines.push("it failed without a message");
    }
    let stderr = lines[lines.len().saturating_sub(STDERR_TAIL_LINES)..].join("; ");
    Err(LvmError::Failed { program, stderr })
}
