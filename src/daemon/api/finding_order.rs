//! The order of findings in lists: active first, worst first, among equally severe ones what is
//! below first, newest first. The order is total, so a page can continue after any finding.

use std::collections::BTreeMap;

use crate::api::resolve::stack_depth;
use diskvitals_finding::{Finding, Subject};
use diskvitals_model::snapshot::Snapshot;

/// Sort key of a finding in a list. Its last part, the id, makes it unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FindingRank {
    /// What counts before what is set aside before cleared.
    pub group: u8,
    /// Less for worse ones; among equally severe ones, less for those that lead.
    pub severity: u8,
    /// Drives, the devices above them from the bottom up, volumes.
    pub layer: u8,
    /// 255 minus status.
    pub status: u8,
    /// Negated, in nanoseconds, so that the newest comes first.
    pub since: i128,
    pub id: String,
}

impl FindingRank {
    /// Sort key of a finding in an explanation: what is below first, whatever its severity, because
    /// it often explains what is above.
    pub(crate) fn lowest_first(self) -> (u8, u8, FindingRank) {
        (self.group, self.layer, self)
    }
}

pub(crate) fn rank(snapshot: &Snapshot, finding: &Finding) -> FindingRank {
    let group = match (finding.is_active(), finding.is_set_aside()) {
        (false, _) => 2,
        (true, true) => 1,
        (true, false) => 0,
    };
    FindingRank {
        group,
        severity: u8::MAX - 2 * finding.severity as u8 - u8::from(finding.reason.leads()),
        layer: layer(snapshot, &finding.subject),
        status: u8::MAX - finding.status as u8,
        since: -finding.since.as_nanosecond(),
        id: finding.id.to_string(),
    }
}

fn layer(snapshot: &Snapshot, subject: &Subject) -> u8 {
    match subject {
        // Without it, the others may be incomplete.
        Subject::Drive(_) | Subject::Source(_) => 0,
        Subject::Device(name) => {
            let depth = stack_depth(snapshot, name, &mut BTreeMap::new());
            u8::try_from(depth).map_or(u8::MAX - 1, |depth| depth.clamp(1, u8::MAX - 1))
        }
        Subject::Volume(_) => u8::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_finding::Status;
    use diskvitals_finding::ids::{DriveId, FindingId, VolumeId};
    use diskvitals_finding::reason::Reason;
    use diskvitals_finding::severity::Severity;
    use diskvitals_model::block::Layer;
    use diskvitals_model::fixture::{TestHost, device, dm};

    #[test]
    fn what_is_below_comes_first_among_equally_severe_findings_and_always_in_explanations() {
        let host = TestHost::default()
            .with(device("md0", "9:0", Layer::Md { level: None }, &["sda"]))
            .with(dm("dm-0", "253:0", "crypt", "CRYPT-x", &["md0"]));
        let snapshot = Snapshot { inventory: host.inventory.into(), ..Snapshot::default() };
        let now = "2026-03-01T12:00:00Z".parse().expect("a time");
        let finding = |subject: Subject, severity: Severity| Finding {
            id: FindingId::known(format!("{subject:?}")),
            subject,
            reason: Reason::IoErrors,
            severity,
            status: Status::Degraded,
            message: String::new(),
            since: now,
            last_seen: now,
            count: 1,
            evidence: Vec::new(),
            clears_when: String::new(),
            advice: None,
            acknowledged: None,
            maintained: false,
            cleared: None,
            follows: None,
        };
        let volume = || Subject::Volume(VolumeId::known("fs:1"));
        let drive = || Subject::Drive(DriveId::known("naa.1"));
        let layer = |name: &str| Subject::Device(name.to_owned());
        let mut findings = [
            finding(volume(), Severity::Bad),
            finding(layer("dm-0"), Severity::Bad),
            finding(layer("md0"), Severity::Bad),
            finding(drive(), Severity::Suspect),
        ];
        let subjects = |findings: &[Finding]| -> Vec<Subject> {
            findings.iter().map(|it| it.subject.clone()).collect()
        };
        findings.sort_by_key(|it| rank(&snapshot, it));
        assert_eq!(subjects(&findings), [layer("md0"), layer("dm-0"), volume(), drive()]);
        findings.sort_by_key(|it| rank(&snapshot, it).lowest_first());
        assert_eq!(subjects(&findings), [drive(), layer("md0"), layer("dm-0"), volume()]);
    }
}
