//! Queries the health that the kernel tracks for an XFS, through a helper process: reading every
//! inode may take long, and dropping the query ends it.
//!
//! In: a mount of the XFS. Out: signals. A part that cannot be read in time gives no signal, and
//! does not prove health either.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::{Evidence, WitnessKind};
use diskvitals_fscheck::{FilesystemSignal, SignalKind};
use diskvitals_host::clock::now;
use diskvitals_host::helper::{Helper, HelperError, Program};
use diskvitals_text::causes::with_causes;

/// For the whole query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(60);

/// The scope of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthScope {
    /// Allocation groups: one ioctl for each group.
    Groups,
    /// The groups and all inodes; every inode is read.
    Inodes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthQuery {
    /// In the host's mount namespace.
    pub mount: HostPath,
    pub dev: DevNo,
    pub scope: HealthScope,
}

/// A part that the kernel reports as sick, or an error with the same meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sickness {
    pub kind: SignalKind,
    pub text: String,
}

/// One response for the groups, then one for the inodes where the query includes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthResponse {
    Sick(Vec<Sickness>),
    Failed { error: String },
}

#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    #[error("the XFS at {} has not reported its health within {} s", .0, QUERY_TIMEOUT.as_secs())]
    TimedOut(HostPath),
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// The helper's error, with its causes.
    #[error("{0}")]
    Failed(String),
}

/// Dropping the future ends the helper.
pub async fn query(
    program: &Program,
    mount: HostPath,
    dev: DevNo,
    scope: HealthScope,
) -> Result<Vec<FilesystemSignal>, HealthError> {
    let until = Instant::now() + QUERY_TIMEOUT;
    let late = || HealthError::TimedOut(mount.clone());
    let query = HealthQuery { mount: mount.clone(), dev, scope };
    let (mut helper, mut sick) =
        timeout_at(until, start_query(program, query)).await.map_err(|_| late())??;
    if scope == HealthScope::Inodes && sick.is_empty() {
        match timeout_at(until, helper.recv::<HealthResponse>()).await {
            Ok(Ok(HealthResponse::Sick(inodes))) => sick.extend(inodes),
            // The groups are healthy; the state of the inodes is unknown.
            Ok(Ok(HealthResponse::Failed { error })) => {
                tracing::info!(%mount, error, "the inodes of an XFS were not asked for their health")
            }
            Ok(Err(error)) => {
                tracing::info!(%mount, error = with_causes(&error), "the inodes of an XFS were not asked for their health")
            }
            Err(_) => {
                helper.kill();
                tracing::info!(%mount, "{}: its inodes are no longer asked for it", late());
            }
        }
    }
    let signal = |Sickness { kind, text }| FilesystemSignal {
        kind,
        evidence: Evidence {
            source: format!("xfs {mount}"),
            time: now(),
            text,
            witness: WitnessKind::Check,
            present: false,
        },
    };
    Ok(sick.into_iter().map(signal).collect())
}

async fn start_query(
    program: &Program,
    query: HealthQuery,
) -> Result<(Helper, Vec<Sickness>), HealthError> {
    let mut helper = Helper::start(program).await?;
    helper.send(&query).await?;
    match helper.recv::<HealthResponse>().await? {
        HealthResponse::Sick(groups) => Ok((helper, groups)),
        HealthResponse::Failed { error } => Err(HealthError::Failed(error)),
    }
}
