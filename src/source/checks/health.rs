//! What an XFS says of its own health, asked by a helper of its own: telling of every inode may
//! take long, and is ended with whoever wants to know.
//!
//! In: a mount of it. Out: signals. What cannot be told in time, or at all, is not told: that is no
//! signal, and no proof of health either.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::host::clock::now;
use crate::host::helper::{Helper, HelperError, Program};
use crate::model::causes::with_causes;
use crate::model::check::{Signal, SignalKind};
use crate::model::dev::DevNo;
use crate::model::finding::Evidence;
use crate::model::path::HostPath;

/// For all of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Allocation groups: as many questions as there are groups.
    Groups,
    /// The inodes as well, all of which are read for it.
    Inodes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// In the host's mount namespace.
    pub mount: HostPath,
    pub dev: DevNo,
    pub extent: Extent,
}

/// Something that the kernel says is sick, or an error that says as much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sickness {
    pub kind: SignalKind,
    pub text: String,
}

/// One for the groups, then one for the inodes where they were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Sick(Vec<Sickness>),
    Failed { error: String },
}

/// Dropping it ends the helper. The error: it could not be asked.
pub async fn ask(
    program: &Program,
    mount: HostPath,
    dev: DevNo,
    extent: Extent,
) -> Result<Vec<Signal>, String> {
    let until = Instant::now() + PATIENCE;
    let late = || {
        format!(
            "the XFS at {mount} has not told its health in {} s",
            PATIENCE.as_secs()
        )
    };
    let begun = timeout_at(
        until,
        begin(
            program,
            Ask {
                mount: mount.clone(),
                dev,
                extent,
            },
        ),
    )
    .await
    .map_err(|_| late())?;
    let (mut helper, mut said) = begun.map_err(|error| with_causes(&error))??;
    if extent == Extent::Inodes && said.is_empty() {
        match timeout_at(until, helper.hear::<Said>()).await {
            Ok(Ok(Said::Sick(inodes))) => said.extend(inodes),
            // The groups have told that they are well: the rest is not known.
            Ok(Ok(Said::Failed { error })) => {
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
    let signal = |Sickness { kind, text }| Signal {
        kind,
        evidence: Evidence {
            source: format!("xfs {mount}"),
            time: now(),
            text,
        },
    };
    Ok(said.into_iter().map(signal).collect())
}

type Begun = Result<(Helper, Vec<Sickness>), String>;

async fn begin(program: &Program, ask: Ask) -> Result<Begun, HelperError> {
    let mut helper = Helper::start(program).await?;
    helper.tell(&ask).await?;
    Ok(match helper.hear::<Said>().await? {
        Said::Sick(groups) => Ok((helper, groups)),
        Said::Failed { error } => Err(error),
    })
}
