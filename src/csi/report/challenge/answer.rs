//! The answer to a challenge, from what the daemon has confirmed. Pure.
//!
//! In: the challenge, the daemon's message. Out: the part of the `NodeStorage` object. A value that
//! only a newer daemon defines counts as unknown and as no witness.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::report::node_snapshot::timestamp_from_wire;
use diskvitals_cluster::node_storage::{
    AnsweredFinding, Challenge, ChallengeAnswer, MAX_CHALLENGED, MAX_MESSAGE_LEN, MAX_MISSING,
    TimeSpan, VolumeStatus, Witness,
};
use diskvitals_text::echo::truncate;
use diskvitals_wire as wire;

/// Findings are left out beyond this length as JSON, the last first.
const MAX_FINDINGS_LEN: usize = 8 * 1024;

pub(crate) fn answer(
    challenge: &Challenge,
    confirmed: wire::Confirmation,
    now: Timestamp,
) -> ChallengeAnswer {
    let node = confirmed.node.unwrap_or_default();
    let mut room = MAX_FINDINGS_LEN;
    let all = confirmed.findings.len();
    let findings: Vec<AnsweredFinding> = confirmed
        .findings
        .into_iter()
        .take(MAX_CHALLENGED)
        .filter_map(finding)
        .take_while(|finding| {
            // Plain data cannot fail; what failed would not fit.
            let len = serde_json::to_vec(finding).map_or(usize::MAX, |json| json.len());
            let left = room.checked_sub(len);
            room = left.unwrap_or(0);
            left.is_some()
        })
        .collect();
    ChallengeAnswer {
        nonce: challenge.nonce.clone(),
        time: Some(Time(now)),
        boot_id: node.boot_id,
        machine_id: node.machine_id,
        daemon_started: timestamp_from_wire(node.started).map(Time),
        settled: node.settled,
        inventory: confirmed.inventory,
        kernel_log: confirmed.kernel_log,
        missing: confirmed
            .missing
            .iter()
            .take(MAX_MISSING)
            .map(|text| truncate(text, MAX_MESSAGE_LEN))
            .collect(),
        truncated: confirmed.truncated || findings.len() < all,
        findings,
    }
}

fn finding(confirmed: wire::ConfirmedFinding) -> Option<AnsweredFinding> {
    let finding = confirmed.finding?;
    let status = match finding.status() {
        wire::FindingStatus::Degraded => VolumeStatus::Degraded,
        wire::FindingStatus::Inaccessible => VolumeStatus::Inaccessible,
        wire::FindingStatus::DataLoss => VolumeStatus::DataLoss,
        wire::FindingStatus::Information | wire::FindingStatus::Unspecified => {
            VolumeStatus::Unknown
        }
    };
    let present = finding.evidence.iter().filter(|evidence| evidence.present);
    let witnesses: BTreeSet<Witness> =
        present.filter_map(|evidence| witness(evidence.witness())).collect();
    let records_lost = confirmed.records_lost.and_then(|lost| {
        let [since, until] = [lost.since, lost.until].map(timestamp_from_wire);
        Some(TimeSpan { since: Time(since?), until: Time(until?) })
    });
    Some(AnsweredFinding {
        records_lost,
        status,
        witnesses: witnesses.into_iter().collect(),
        acknowledged: finding.acknowledged.is_some(),
        since: timestamp_from_wire(finding.since).map(Time),
        id: finding.id,
        reason: finding.reason,
        drive_id: confirmed.drive_id,
        driver: confirmed.driver,
        handle: confirmed.handle,
        persistent_volume: confirmed.persistent_volume,
    })
}

fn witness(kind: wire::WitnessKind) -> Option<Witness> {
    match kind {
        wire::WitnessKind::KernelLog => Some(Witness::KernelLog),
        wire::WitnessKind::Inventory => Some(Witness::Inventory),
        wire::WitnessKind::Probe => Some(Witness::Probe),
        wire::WitnessKind::Smart => Some(Witness::Smart),
        wire::WitnessKind::Counter => Some(Witness::Counter),
        wire::WitnessKind::Check => Some(Witness::Check),
        wire::WitnessKind::MountTable => Some(Witness::MountTable),
        wire::WitnessKind::Layer => Some(Witness::Layer),
        wire::WitnessKind::Other | wire::WitnessKind::Unspecified => None,
    }
}

#[cfg(test)]
mod tests;
