use prost::Message;

use super::*;
use crate::report::transitions::tests::at;

fn challenge() -> Challenge {
    Challenge { nonce: "n".into(), ..Challenge::default() }
}

fn evidence(kind: wire::WitnessKind, present: bool) -> wire::Evidence {
    wire::Evidence {
        source: "s".into(),
        text: "t".into(),
        witness: kind.into(),
        present,
        ..wire::Evidence::default()
    }
}

fn confirmed(id: usize, evidence: Vec<wire::Evidence>) -> wire::ConfirmedFinding {
    wire::ConfirmedFinding {
        finding: Some(wire::Finding {
            id: format!("f{id}"),
            reason: "DriveMissing".into(),
            status: wire::FindingStatus::Inaccessible.into(),
            evidence,
            ..wire::Finding::default()
        }),
        drive_id: "d".into(),
        ..wire::ConfirmedFinding::default()
    }
}

#[test]
fn only_what_holds_now_is_a_witness_and_each_kind_counts_once() {
    use wire::WitnessKind::{Inventory, KernelLog, Other, Probe, Smart, Unspecified};
    let mut newer = evidence(Smart, true);
    newer.witness = 99;
    let lines = vec![
        evidence(KernelLog, true),
        evidence(Inventory, true),
        evidence(KernelLog, true),
        evidence(Probe, false),
        evidence(Other, true),
        // From an older daemon, and from a newer one.
        evidence(Unspecified, false),
        newer,
    ];
    let given = answer(
        &challenge(),
        wire::Confirmation { findings: vec![confirmed(1, lines)], ..wire::Confirmation::default() },
        at(5),
    );
    let [finding] = given.findings.as_slice() else { panic!("{given:?}") };
    assert_eq!(finding.witnesses, [Witness::KernelLog, Witness::Inventory]);
    assert_eq!((finding.status, finding.drive_id.as_str()), (VolumeStatus::Inaccessible, "d"));
    // What the daemon does not say is not so.
    assert!(!given.settled && !given.inventory && !given.kernel_log);
    assert_eq!((given.nonce.as_str(), given.boot_id.as_str()), ("n", ""));
}

#[test]
fn a_finding_says_when_the_kernel_log_lost_records_that_may_be_of_it() {
    let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    for (until, expected) in [(time(9), Some((at(5), at(9)))), (None, None)] {
        let lost = wire::TimeSpan { since: time(5), until };
        let finding =
            wire::ConfirmedFinding { records_lost: Some(lost), ..confirmed(1, Vec::new()) };
        let confirmed = wire::Confirmation { findings: vec![finding], ..Default::default() };
        let given = answer(&challenge(), confirmed, at(10));
        let span = given.findings[0].records_lost.as_ref();
        assert_eq!(span.map(|span| (span.since.0, span.until.0)), expected);
    }
}

#[test]
fn an_answer_is_bounded_and_says_when_it_was_cut() {
    let many = |count: usize, handle: usize| {
        let findings = (0..count).map(|id| wire::ConfirmedFinding {
            handle: "h".repeat(handle),
            ..confirmed(id, Vec::new())
        });
        answer(
            &challenge(),
            wire::Confirmation {
                findings: findings.collect(),
                missing: vec!["m".repeat(1000); 20],
                ..wire::Confirmation::default()
            },
            at(5),
        )
    };
    let few = many(16, 10);
    assert_eq!((few.findings.len(), few.truncated), (16, false));
    assert_eq!(few.missing.len(), MAX_MISSING);
    assert!(few.missing.iter().all(|text| text.len() == MAX_MESSAGE_LEN));
    let long = many(16, 2000);
    assert!(long.truncated && long.findings.len() < 5);
    assert_eq!(long.findings[0].id, "f0", "the worst stay");
    let more = many(17, 10);
    assert_eq!((more.findings.len(), more.truncated), (16, true));
}

/// Evidence as daemons without witnesses write it.
#[derive(Clone, PartialEq, Eq, Message)]
struct OldEvidence {
    #[prost(string, tag = "1")]
    source: String,
    #[prost(message, optional, tag = "2")]
    time: Option<prost_types::Timestamp>,
    #[prost(string, tag = "3")]
    text: String,
}

#[test]
fn evidence_of_an_older_daemon_is_no_witness_and_an_older_reader_reads_ours() {
    let old = OldEvidence { source: "kernel log".into(), time: None, text: "I/O error".into() };
    let read = wire::Evidence::decode(&*old.encode_to_vec()).expect("decodes");
    assert_eq!((read.witness(), read.present), (wire::WitnessKind::Unspecified, false));
    let ours =
        wire::Evidence { witness: wire::WitnessKind::KernelLog.into(), present: true, ..read };
    assert_eq!(OldEvidence::decode(&*ours.encode_to_vec()).expect("decodes"), old);
}
