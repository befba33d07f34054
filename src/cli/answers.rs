//! All answers of the API about a node at one time, for reports and support bundles.
//!
//! In: the daemon, or a bundle (`cli::bundle`). Out: `Answers`, with what is missing and why. It
//! evaluates nothing.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::render::drives::rank;
use diskvitals_host::clock::wall_now;
use diskvitals_text::causes::with_causes;
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};

/// Maximum number of drives, and of other causes, whose chain is requested: those with findings first.
const MAX_EXPLAINED_DRIVES: usize = 64;
const MAX_EXPLAINED_CAUSES: usize = 64;
/// Answers about single drives are left out after this time: the daemon answers each from memory.
const MAX_DURATION: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// The version of diskvitals that collected them.
    pub version: String,
    pub taken: Timestamp,
    pub node: wire::Node,
    pub drives: Vec<wire::Drive>,
    pub volumes: Vec<wire::Volume>,
    /// Active findings worst first, and those that have cleared.
    pub findings: Vec<wire::Finding>,
    /// None from a daemon that does not know causes yet.
    pub causes: Option<Vec<wire::Cause>>,
    pub checks: Vec<wire::Check>,
    pub attachments: Vec<wire::Attachment>,
    pub reasons: Vec<wire::ReasonText>,
    pub histories: Vec<wire::SmartHistory>,
    /// Chains, advice and checks with their output; what the lists have is left out.
    pub explanations: Vec<wire::Explanation>,
    /// What is missing, and why.
    pub gaps: Vec<String>,
    /// Which lists are not complete (`drives`, `volumes`, …): none of them may read as empty.
    pub lost: Vec<&'static str>,
    /// The placeholders of `--redact` are in the place of serial numbers.
    pub redacted: bool,
}

/// Requests everything from the daemon.
pub async fn collect(client: &Client) -> Result<Answers, ClientError> {
    let deadline = Instant::now() + MAX_DURATION;
    let (node, drives, volumes, findings, causes, checks, attachments, reasons) = tokio::try_join!(
        client.node(),
        client.drives(),
        client.volumes(),
        client.findings(true),
        client.causes(),
        client.checks(""),
        client.attachments("", "", false),
        client.reasons(),
    )?;
    let mut answers = Answers {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        taken: wall_now(),
        node,
        drives: drives.drives,
        volumes: volumes.volumes,
        findings: findings.findings,
        causes: causes.map(|answer| answer.causes),
        checks: checks.checks,
        attachments: attachments.attachments,
        reasons: reasons.reasons,
        ..Answers::default()
    };
    if answers.causes.is_none() {
        answers.gaps.push("causes: this daemon does not know them yet".to_owned());
    }
    let drive_ids: Vec<String> = answers.drives.iter().map(|it| it.id.clone()).collect();
    for (at, id) in drive_ids.iter().enumerate() {
        if Instant::now() >= deadline {
            let missing = drive_ids.len() - at;
            answers.gaps.push(too_slow("SMART histories", missing));
            break;
        }
        match client.smart_history(id).await {
            Ok(history) => answers.histories.push(history),
            Err(error) => answers.add_gap(&format!("SMART history of {id}"), error)?,
        }
    }
    let names = explained_names(&answers);
    for (at, name) in names.iter().enumerate() {
        if Instant::now() >= deadline {
            let missing = names.len() - at;
            answers.gaps.push(too_slow("explanations", missing));
            break;
        }
        match client.explain(name).await {
            Ok(explanation) => answers.explanations.push(wire::Explanation {
                drives: Vec::new(),
                volumes: Vec::new(),
                findings: Vec::new(),
                ..explanation
            }),
            Err(error) => answers.add_gap(&format!("explanation of {name}"), error)?,
        }
    }
    Ok(answers)
}

fn too_slow(what: &str, missing: usize) -> String {
    format!(
        "{what}: {missing} are missing, because all answers together took more than {} s",
        MAX_DURATION.as_secs()
    )
}

impl Answers {
    /// A single thing may have gone since the lists were read; without a connection nothing else is
    /// answered either.
    fn add_gap(&mut self, what: &str, error: ClientError) -> Result<(), ClientError> {
        match error {
            ClientError::Rejected(_) => {
                self.gaps.push(format!("{what}: {}", with_causes(&error)));
                Ok(())
            }
            error => Err(error),
        }
    }

    pub fn active_findings(&self) -> impl Iterator<Item = &wire::Finding> {
        self.findings.iter().filter(|it| it.cleared.is_none())
    }

    pub fn causes(&self) -> &[wire::Cause] {
        self.causes.as_deref().unwrap_or_default()
    }
}

/// Drives, the worst first, and the causes that are not drives.
fn explained_names(answers: &Answers) -> Vec<String> {
    let mut drives: Vec<&wire::Drive> = answers.drives.iter().collect();
    drives.sort_by_key(|drive| (rank(drive.health), drive.findings.is_empty()));
    let drives = drives.into_iter().take(MAX_EXPLAINED_DRIVES);
    let causes = answers.causes().iter();
    let others =
        causes.filter(|cause| cause.kind() != wire::cause::Kind::Drive).take(MAX_EXPLAINED_CAUSES);
    drives
        .map(|drive| drive.id.clone())
        .chain(others.map(|cause| cause.explain.clone()))
        .filter(|name| !name.is_empty())
        .collect()
}
