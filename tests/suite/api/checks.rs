//! Filesystem checks over the socket: results, pages, and the permission to start and cancel.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use diskvitals_finding::ids::{CheckId, VolumeId};
use diskvitals_fscheck::{
    Check, CheckOrigin, CheckState, CheckTarget, CheckTerms, CheckVerdict, CheckerOutput,
    Filesystem, Mode, Problem, Run, RunResult, Termination, Weight,
};
use diskvitals_model::snapshot::Snapshot;
use diskvitals_wire as wire;
use diskvitals_wire::checks_client::ChecksClient;
use jiff::ToSpan;
use tonic::Code;

use super::fixture::{Served, channel, now, snapshot};

fn gzip(text: &str) -> CheckerOutput {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    CheckerOutput { gzip: encoder.finish().unwrap().into(), written: 5000, kept: text.len() as u64 }
}

fn check(number: i64, volume: &VolumeId) -> Check {
    let asked = now() + number.minutes();
    let run = Run {
        mode: Mode::Frozen,
        started: asked,
        duration: Duration::from_millis(1500),
        active: Duration::from_millis(1400),
        held: Some(Duration::from_millis(1550)),
        termination: Termination::Exited(4),
        result: RunResult::Findings,
        failure_reason: String::new(),
        checker_error: None,
        problems: vec![Problem {
            kind: "inode-checksum".into(),
            ids: vec!["12".into()],
            weight: Weight::Damage,
            text: "Inode 12 …".into(),
        }],
        more_problems: 3,
        no_error_found: false,
        pending_replay: None,
        bytes_read: 74 << 20,
        peak_memory: Some(4 << 20),
        command: "e2fsck -fn /dev/sda1".into(),
        output: gzip("Pass 1: Checking inodes, blocks, and sizes\n"),
        filesystem_uuid: None,
    };
    Check {
        id: CheckId::new(volume.as_str(), asked),
        target: CheckTarget {
            name: volume.to_string(),
            volume: Some(volume.clone()),
            filesystem: Filesystem::Ext4,
            uuid: None,
            device: "sda1".into(),
            dev: "8:1".parse().unwrap(),
            members: Vec::new(),
            mount: Some("/data".into()),
            mounted_dev: Some("8:1".parse().unwrap()),
            mode: Mode::Live,
            drives: Vec::new(),
            logical_volume: None,
        },
        origin: CheckOrigin::Requested("uid 0 (root)".into()),
        terms: CheckTerms {
            runs: 3,
            freeze: true,
            snapshot: false,
            force: false,
            budget: Duration::from_secs(5),
            gap: Duration::from_secs(60),
            timeout: Duration::from_secs(3600),
            memory: 1 << 30,
            bytes_per_second: Some(20_000_000),
        },
        asked,
        started: Some(asked),
        ended: Some(asked),
        state: CheckState::Ended,
        mode: Mode::Frozen,
        runs: vec![Arc::new(run)],
        signals: Vec::new(),
        verdict: Some(CheckVerdict::Corrupted),
        reason: "two frozen runs found the same".into(),
        cancelled: false,
        is_scrubbed: false,
    }
}

fn with_checks(number: i64) -> (Snapshot, Vec<Check>) {
    let mut snapshot = snapshot(0);
    let volume = VolumeId::csi("d.example", "a");
    let mut checks: Vec<Check> = (0..number).map(|number| check(number, &volume)).collect();
    checks.reverse();
    snapshot.checks =
        checks.iter().map(|check| (check.id.clone(), Arc::new(check.clone()))).collect();
    (snapshot, checks)
}

#[tokio::test]
async fn checks_are_listed_newest_first_page_by_page_and_without_their_output() {
    let (snapshot, checks) = with_checks(5);
    let served = Served::start(snapshot).await;
    let mut client = ChecksClient::new(channel(&served.socket()).await);
    let (mut seen, mut page_token) = (Vec::new(), String::new());
    loop {
        let request =
            wire::ListChecksRequest { page_size: 2, page_token, target: "csi:d.example/a".into() };
        let page = client.list_checks(request).await.unwrap().into_inner();
        assert!(
            page.checks.len() <= 2
                && page.checks.iter().all(|check| check.runs[0].output.is_empty())
        );
        seen.extend(page.checks.into_iter().map(|check| check.id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, checks.iter().map(|check| check.id.to_string()).collect::<Vec<_>>());
    let other = wire::ListChecksRequest { target: "csi:d.example/b".into(), ..Default::default() };
    assert!(client.list_checks(other).await.unwrap().into_inner().checks.is_empty());
    let nothing = wire::ListChecksRequest { target: "nonsense".into(), ..Default::default() };
    assert_eq!(client.list_checks(nothing).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_check_is_returned_with_all_its_fields() {
    let (snapshot, checks) = with_checks(1);
    let served = Served::start(snapshot).await;
    let mut client = ChecksClient::new(channel(&served.socket()).await);
    let told = client
        .get_check(wire::GetCheckRequest { id: checks[0].id.to_string(), without_output: false })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (told.verdict(), told.mode(), told.filesystem.as_str()),
        (wire::check::Verdict::Corrupted, wire::check::Mode::Frozen, "ext4")
    );
    let run = &told.runs[0];
    assert_eq!(
        (run.ballot(), run.exit_status, run.signal),
        (wire::check_run::Ballot::Findings, Some(4), 0)
    );
    assert_eq!(
        (run.held.unwrap().nanos, run.more_findings, run.output_bytes),
        (550_000_000, 3, 5000)
    );
    assert_eq!(run.output, "Pass 1: Checking inodes, blocks, and sizes\n");
    assert_eq!(run.findings[0].weight(), wire::check_finding::Weight::Damage);
    let missing = client
        .get_check(wire::GetCheckRequest { id: "0123456789ab".into(), without_output: true })
        .await
        .unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    let empty = client.get_check(wire::GetCheckRequest::default()).await.unwrap_err();
    assert_eq!((empty.code(), empty.message()), (Code::InvalidArgument, "id: is empty"));
}

#[tokio::test]
async fn invalid_arguments_are_named_and_uncheckable_filesystems_fail_a_precondition() {
    let (snapshot, checks) = with_checks(1);
    let served = Served::start(snapshot).await;
    let mut client = ChecksClient::new(channel(&served.socket()).await);
    let request =
        |target: &str| wire::StartCheckRequest { target: target.into(), ..Default::default() };
    for (request, code, word) in [
        (request(""), Code::InvalidArgument, "target: is empty"),
        (request("nonsense"), Code::NotFound, "nonsense"),
        (
            wire::StartCheckRequest { runs: 2, ..request("csi:d.example/a") },
            Code::InvalidArgument,
            "runs: 2 is not between 3 and 20",
        ),
        (
            wire::StartCheckRequest { filesystem: "zfs".into(), ..request("csi:d.example/a") },
            Code::InvalidArgument,
            "filesystem: ",
        ),
        (request("csi:d.example/a"), Code::FailedPrecondition, "is not checked"),
    ] {
        let refused = client.start_check(request).await.unwrap_err();
        assert!(refused.code() == code && refused.message().contains(word), "{refused:?}");
    }
    let over = client
        .cancel_check(wire::CancelCheckRequest { id: checks[0].id.to_string() })
        .await
        .unwrap_err();
    assert_eq!(over.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn explain_shows_the_newest_check_with_its_output() {
    let (snapshot, checks) = with_checks(3);
    let served = Served::start(snapshot).await;
    let told = served.client().await.explain("csi:d.example/a").await.unwrap();
    assert_eq!(
        told.checks.iter().map(|check| check.id.as_str()).collect::<Vec<_>>(),
        [checks[0].id.as_str()]
    );
    assert!(told.checks[0].runs[0].output.contains("Pass 1"));
}
