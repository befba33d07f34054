//! Causes → wire.

use crate::{severity, subject, time};
use diskvitals_model::cause::{Cause, CauseFinding, CauseKind, Hit, HitKind};
use diskvitals_model::snapshot::Snapshot;
use diskvitals_wire as wire;

/// A drive may carry hundreds of volumes.
const MAX_HITS: usize = 256;

pub fn cause(snapshot: &Snapshot, cause: &Cause) -> wire::Cause {
    use wire::cause::Kind;
    let finding = |finding: &CauseFinding| wire::CauseFinding {
        finding_id: finding.id.to_string(),
        subject: Some(subject(snapshot, &finding.subject)),
        reason: finding.reason.name().to_owned(),
        severity: severity(finding.severity).into(),
        acknowledged: finding.acknowledged,
        figure: finding.figure.clone(),
        grown_today: finding.grown_today,
        maintained: finding.maintained.then_some(true),
    };
    wire::Cause {
        id: cause.id.to_string(),
        kind: match cause.kind {
            CauseKind::Drive => Kind::Drive,
            CauseKind::Array => Kind::Array,
            CauseKind::Pool => Kind::Pool,
            CauseKind::Device => Kind::Device,
            CauseKind::Mount => Kind::Mount,
            CauseKind::Source => Kind::Source,
        }
        .into(),
        subject: Some(subject(snapshot, &cause.subject)),
        name: cause.name.clone(),
        detail: cause.detail.clone(),
        slot: cause.slot.clone(),
        model: cause.model.clone(),
        serial: cause.serial.clone(),
        severity: severity(cause.severity).into(),
        counted: cause.counted,
        since: Some(time(cause.since)),
        findings: cause.findings.iter().map(finding).collect(),
        consequences: cause.consequences.iter().map(finding).collect(),
        hits: cause.hits.iter().take(MAX_HITS).map(hit).collect(),
        more_hits: cause.hits.len().saturating_sub(MAX_HITS) as u64,
        message: cause.message.clone(),
        action: cause.action.clone(),
        explain: cause.explain.clone(),
    }
}

fn hit(hit: &Hit) -> wire::CauseHit {
    use wire::cause_hit::Kind;
    wire::CauseHit {
        kind: match hit.kind {
            HitKind::Mount => Kind::Mount,
            HitKind::Pod => Kind::Pod,
            HitKind::Pv => Kind::Pv,
            HitKind::Device => Kind::Device,
            HitKind::Swap => Kind::Swap,
        }
        .into(),
        name: hit.name.clone(),
        volume_id: hit.volume.as_ref().map(ToString::to_string).unwrap_or_default(),
        covered: hit.covered,
        last_copy: hit.last_copy,
        reasons: hit.reasons.iter().map(|reason| reason.name().to_owned()).collect(),
    }
}
