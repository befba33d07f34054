//! Queries the health that the kernel tracks for an XFS, through a helper process: reading every
//! inode may take long, and dropping the query ends it.
//!
//! In: a mount of the XFS. Out: signals. A part that cannot be read in time gives no signal, and
//! does not prove health either.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::host::clock::now;
use crate::host::helper::{Helper, HelperError, Program};
use crate::model::causes::with_causes;
use crate::model::check::{FilesystemSignal, SignalKind};
use crate::model::dev::DevNo;
use crate::model::finding::Evidence;
use crate::model::path::HostPath;

/// For the whole query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(60);

/// The scope of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HealthScope {
    /// Allocation groups: one ioctl for each group.
    Groups,
    /// The inodes as well: all of them are read.
    Inodes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HealthQuery {
    /// In the host's mount namespace.
    pub mount: HostPath,
    pub dev: DevNo,
    pub scope: HealthScope,
}

/// A part that the kernel reports as sick, or an error with the same meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sickness {
    pub kind: SignalKind,
    pub text: String,
}

/// One response for the groups, then one for the inodes where the query includes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HealthResponse {
    Sick(Vec<Sickness>),
    Failed { error: String },
}

/// Dropping the future ends the helper. An error: the query failed.
pub(crate) async fn query(
    program: &Program,
    mount: HostPath,
    dev: DevNo,
    extent: HealthScope,
) -> Result<Vec<FilesystemSignal>, String> {
    let until = Instant::now() + QUERY_TIMEOUT;
    let late = || {
        format!(
            "the XFS at {mount} has not told its health in {} s",
            QUERY_TIMEOUT.as_secs()
        )
    };
    let begun = timeout_at(
        until,
        start_query(
            program,
            HealthQuery {
                mount: mount.clone(),
                dev,
                scope: extent,
            },
        ),
    )
    .await
    .map_err(|_| late())?;
    let (mut helper, mut said) = begun.map_err(|error| with_causes(&error))??;
    if extent == HealthScope::Inodes && said.is_empty() {
        match timeout_at(until, helper.recv::<HealthResponse>()).await {
            Ok(Ok(HealthResponse::Sick(inodes))) => said.extend(inodes),
            // The groups are healthy; the state of the inodes is unknown.
            Ok(Ok(HealthResponse::Failed { error })) => {
                tracing::info!(%mount, error, "the inodes of an XFS were not asked for their health")
            }
            Ok(Err(error)) => {
                tracing::info!(%mount, error = with_causes(&error), "the inodes of an XFS were not asked for their health")
            }
            Err(_) => {
                helper.kill();
                tracing::info!(%mount, "{}: its inodes are not asked for it any more", late());
            }
        }
    }
    let signal = |Sickness { kind, text }| FilesystemSignal {
        kind,
        evidence: Evidence {
            source: format!("xfs {mount}"),
            time: now(),
            text,
        },
    };
    Ok(said.into_iter().map(signal).collect())
}

type StartedQuery = Result<(Helper, Vec<Sickness>), String>;

async fn start_query(program: &Program, ask: HealthQuery) -> Result<StartedQuery, HelperError> {
    let mut helper = Helper::start(program).await?;
    helper.send(&ask).await?;
    Ok(match helper.recv::<HealthResponse>().await? {
        HealthResponse::Sick(groups) => Ok((helper, groups)),
        HealthResponse::Failed { error } => Err(error),
    })
}
