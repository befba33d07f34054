//! Confirm: what is wrong with some volumes and drives, by readings that are newer than the request.
//!
//! In: names of PersistentVolumes, ids of drives. Out: the findings of one snapshot, in which a scan
//! of the hardware and probes of the mounts in question are contained, or are listed as missing. Where
//! the kernel log has lost records, the counters and the drives' own logs are read again too.

use std::collections::BTreeSet;
use std::time::Duration;

use tonic::Status;

use crate::api::finding_order::rank;
use crate::api::server::admin::refresh_targets;
use crate::api::status::{MAX_QUERY, invalid, required};
use crate::state::handle::{FreshReadings, Handle, WantedReading};
use diskvitals_convert as convert;
use diskvitals_convert::node_facts::NodeFacts;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Subject};
use diskvitals_model::snapshot::Snapshot;
use diskvitals_model::source_update::SourceRequest;
use diskvitals_text::echo::echo;
use diskvitals_wire as wire;

/// Volumes, and drives, in one request; findings in an answer.
const MAX_ENTRIES: usize = 16;
/// A probe that hangs is reported as pending within half a minute.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(45);
const MAX_PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn confirm(
    handle: &Handle,
    node: &NodeFacts,
    request: &wire::ConfirmRequest,
) -> Result<wire::Confirmation, Status> {
    let patience = validate(request)?;
    let snapshot = handle.snapshot();
    let subjects: Vec<Subject> = subjects(&snapshot, request).0.into_iter().collect();
    let (mut requests, _) = refresh_targets(&snapshot, &subjects);
    requests.push(SourceRequest::Inventory);
    requests.push(SourceRequest::Counters);
    let drives = subjects.iter().filter_map(|subject| match subject {
        Subject::Drive(id) => Some(id.clone()),
        _ => None,
    });
    let log = WantedReading::KernelLog(drives.collect());
    let probes = requests.iter().filter_map(|request| match request {
        SourceRequest::Probe(mounts) => Some(mounts.iter().cloned().map(WantedReading::Probe)),
        _ => None,
    });
    let wanted = [WantedReading::Hardware, log].into_iter().chain(probes.flatten()).collect();
    drop(snapshot);
    let fresh = handle.read_again(requests, wanted, patience).await?;
    Ok(answer(fresh, node, request))
}

fn validate(request: &wire::ConfirmRequest) -> Result<Duration, Status> {
    for (field, names) in
        [("persistent_volumes", &request.persistent_volumes), ("drive_ids", &request.drive_ids)]
    {
        if names.len() > MAX_ENTRIES {
            let entries = names.len();
            return Err(invalid(
                field,
                format_args!("has {entries} entries, at most {MAX_ENTRIES} are allowed"),
            ));
        }
        for name in names {
            required(field, name, MAX_QUERY)?;
        }
    }
    let Some(patience) = request.patience else {
        return Ok(DEFAULT_PATIENCE);
    };
    let patience = Duration::try_from(patience).map_err(|_| invalid("patience", "is negative"))?;
    if patience > MAX_PATIENCE {
        return Err(invalid(
            "patience",
            format_args!("is longer than {} s", MAX_PATIENCE.as_secs()),
        ));
    }
    Ok(patience)
}

/// What the request is about, and the names that are not known here.
fn subjects(
    snapshot: &Snapshot,
    request: &wire::ConfirmRequest,
) -> (BTreeSet<Subject>, Vec<String>) {
    if request.persistent_volumes.is_empty() && request.drive_ids.is_empty() {
        let adverse = snapshot.findings.values().filter(|it| is_adverse(it));
        return (adverse.map(|it| it.subject.clone()).collect(), Vec::new());
    }
    let (mut subjects, mut unknown) = (BTreeSet::new(), Vec::new());
    for name in &request.persistent_volumes {
        let volumes = snapshot.volumes.values();
        let mut volumes =
            volumes.filter(|volume| volume.facts.pv.as_ref() == Some(name)).peekable();
        if volumes.peek().is_none() {
            unknown.push(format!(
                "no volume of the PersistentVolume `{}` is known on this node",
                echo(name)
            ));
        }
        for volume in volumes {
            let facts = &volume.facts;
            subjects.insert(Subject::Volume(facts.id.clone()));
            subjects.extend(facts.drive_ids.iter().cloned().map(Subject::Drive));
            subjects.extend(facts.devices.iter().cloned().map(Subject::Device));
        }
    }
    for name in &request.drive_ids {
        let id = DriveId::known(name.as_str());
        if snapshot.drives.contains_key(&id) {
            subjects.insert(Subject::Drive(id));
        } else {
            unknown.push(format!("the drive `{}` is not known on this node", echo(name)));
        }
    }
    (subjects, unknown)
}

fn is_adverse(finding: &Finding) -> bool {
    finding.is_active() && finding.severity > Severity::Info
}

fn answer(
    fresh: FreshReadings,
    node: &NodeFacts,
    request: &wire::ConfirmRequest,
) -> wire::Confirmation {
    let FreshReadings { snapshot, inventory, kernel_log, mut missing } = fresh;
    let (subjects, unknown) = subjects(&snapshot, request);
    missing.extend(unknown);
    let mut findings: Vec<_> = snapshot
        .findings
        .values()
        .filter(|finding| is_adverse(finding) && subjects.contains(&finding.subject))
        .collect();
    findings.sort_by_cached_key(|finding| rank(&snapshot, finding));
    let truncated = findings.len() > MAX_ENTRIES;
    findings.truncate(MAX_ENTRIES);
    wire::Confirmation {
        node: Some(convert::node(&snapshot, node)),
        inventory,
        kernel_log,
        findings: findings.into_iter().map(|finding| confirmed(&snapshot, finding)).collect(),
        truncated,
        missing,
    }
}

fn confirmed(snapshot: &Snapshot, finding: &Finding) -> wire::ConfirmedFinding {
    let facts = match &finding.subject {
        Subject::Volume(id) => snapshot.volumes.get(id).map(|volume| &volume.facts),
        Subject::Drive(_) | Subject::Device(_) | Subject::Source(_) => None,
    };
    let drive = match &finding.subject {
        Subject::Drive(id) => Some(id),
        Subject::Volume(_) | Subject::Device(_) | Subject::Source(_) => {
            facts.and_then(|facts| match facts.drive_ids.as_slice() {
                [only] => Some(only),
                _ => None,
            })
        }
    };
    let text = |value: Option<&Option<String>>| value.cloned().flatten().unwrap_or_default();
    let mut losses = snapshot.node.kernel_log_losses.iter();
    let lost = losses.find(|lost| lost.may_include(finding.since));
    wire::ConfirmedFinding {
        finding: Some(convert::finding(snapshot, finding)),
        driver: text(facts.map(|facts| &facts.driver)),
        handle: text(facts.map(|facts| &facts.handle)),
        persistent_volume: text(facts.map(|facts| &facts.pv)),
        drive_id: drive.map(ToString::to_string).unwrap_or_default(),
        records_lost: lost.map(|lost| wire::TimeSpan {
            since: Some(convert::time(lost.from)),
            until: Some(convert::time(lost.until)),
        }),
    }
}
