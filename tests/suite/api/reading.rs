//! Calls and their answers, including invalid calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use diskvitals_daemon::state::handle::{ChangeKind, ChangedItem};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::{CauseId, DriveId};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_model::cause::{Cause, CauseKind, Hit, HitKind};
use diskvitals_model::source_update::SourceRequest;
use diskvitals_wire as wire;
use diskvitals_wire::admin_client::AdminClient;
use diskvitals_wire::inventory_client::InventoryClient;
use tonic::Code;

use super::fixture::{Served, channel, finding, now, snapshot, volume};

async fn inventory(served: &Served) -> InventoryClient<tonic::transport::Channel> {
    InventoryClient::new(channel(&served.socket()).await)
}

async fn volumes_by(
    client: &mut InventoryClient<tonic::transport::Channel>,
    page_size: i32,
) -> Vec<String> {
    let (mut ids, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = client
            .list_volumes(wire::ListVolumesRequest { page_size, page_token })
            .await
            .unwrap()
            .into_inner();
        ids.extend(page.volumes.into_iter().map(|volume| volume.id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return ids;
        }
    }
}

#[tokio::test]
async fn pages_of_any_size_make_up_the_whole_list() {
    let served = Served::start(snapshot(300)).await;
    let mut client = inventory(&served).await;
    let whole = volumes_by(&mut client, 1000).await;
    assert_eq!(whole.len(), 302);
    assert!(whole.is_sorted());
    for size in [0, 1, 2, 7, 99, 100, 101, 301, 302, 303, i32::MAX] {
        assert_eq!(volumes_by(&mut client, size).await, whole, "page size {size}");
    }
}

#[tokio::test]
async fn a_page_token_survives_removals_and_insertions() {
    let served = Served::start(snapshot(20)).await;
    let mut client = inventory(&served).await;
    let first = client
        .list_volumes(wire::ListVolumesRequest { page_size: 5, page_token: String::new() })
        .await
        .unwrap()
        .into_inner();
    let drive = DriveId::new("MODEL_S2");
    // The entry that the token names disappears, and new ones appear before and after it.
    let last = volume("more00002", "nbd2", &drive);
    assert_eq!(first.volumes.last().unwrap().id, last.facts.id.as_str());
    served.owner.change(ChangeKind::Removed, ChangedItem::Volume(Arc::new(last)));
    served
        .owner
        .change(ChangeKind::Added, ChangedItem::Volume(Arc::new(volume("aa", "nbd77", &drive))));
    served.owner.change(
        ChangeKind::Added,
        ChangedItem::Volume(Arc::new(volume("more00002x", "nbd78", &drive))),
    );
    let rest = client
        .list_volumes(wire::ListVolumesRequest {
            page_size: 1000,
            page_token: first.next_page_token,
        })
        .await
        .unwrap()
        .into_inner();
    let rest: Vec<String> = rest.volumes.into_iter().map(|volume| volume.handle).collect();
    assert_eq!(rest.first().map(String::as_str), Some("more00002x"));
    assert_eq!(rest.len(), 18);
}

#[tokio::test]
async fn findings_are_sorted_worst_first_with_stable_pages() {
    let mut snapshot = snapshot(0);
    for n in 0..50u32 {
        let since = now() - jiff::SignedDuration::from_secs(i64::from(n / 3));
        let severity = [Severity::Info, Severity::Suspect, Severity::Bad][n as usize % 3];
        let found =
            finding(Subject::Device(format!("md{n}")), Reason::RaidDegraded, severity, since);
        snapshot.findings.insert(found.id.clone(), Arc::new(found));
    }
    let served = Served::start(snapshot).await;
    let mut client = inventory(&served).await;
    let whole = served.client().await.findings(false).await.unwrap().findings;
    assert!(whole.is_sorted_by_key(|finding| -finding.severity));
    assert_eq!(whole.len(), 51);
    for page_size in [1, 2, 7, 50, 51] {
        let (mut paged, mut page_token) = (Vec::new(), String::new());
        loop {
            let request =
                wire::ListFindingsRequest { page_size, page_token, include_cleared: false };
            let page = client.list_findings(request).await.unwrap().into_inner();
            paged.extend(page.findings);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(paged, whole);
    }
}

#[tokio::test]
async fn causes_are_sorted_worst_first_with_stable_pages_and_bounded_hits() {
    let mut snapshot = snapshot(0);
    for n in 0..50u32 {
        let severity = [Severity::Info, Severity::Suspect, Severity::Bad][n as usize % 3];
        let hits = (0..n * 10).map(|hit| Hit {
            kind: HitKind::Mount,
            name: format!("/srv/a b {hit}"),
            volume: None,
            covered: false,
            last_copy: false,
            reasons: Vec::new(),
        });
        let cause = Cause {
            id: CauseId::known(format!("device:sd{n}")),
            kind: CauseKind::Device,
            subject: Subject::Device(format!("md{n}")),
            name: format!("md {n}"),
            severity,
            counted: n % 5 > 0,
            hits: hits.collect(),
            ..Cause::default()
        };
        snapshot.causes.insert(cause.id.clone(), Arc::new(cause));
    }
    let served = Served::start(snapshot).await;
    let mut client = inventory(&served).await;
    let whole = served.client().await.causes().await.unwrap();
    let whole = whole.expect("this daemon knows causes").causes;
    assert!(whole.is_sorted_by_key(|cause| (!cause.counted, -cause.severity)));
    assert_eq!(whole.len(), 50);
    let last = whole.iter().find(|cause| cause.name == "md 49").unwrap();
    assert_eq!((last.hits.len(), last.more_hits), (256, 490 - 256));
    for page_size in [1, 2, 7, 49, 50] {
        let (mut paged, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = wire::ListCausesRequest { page_size, page_token };
            let page = client.list_causes(request).await.unwrap().into_inner();
            paged.extend(page.causes);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(paged, whole);
    }
}

#[tokio::test]
async fn invalid_page_tokens_and_sizes_are_invalid_arguments_that_are_named() {
    let served = Served::start(snapshot(10)).await;
    let mut client = inventory(&served).await;
    let foreign = client
        .list_drives(wire::ListDrivesRequest { page_size: 1, page_token: String::new() })
        .await
        .unwrap()
        .into_inner()
        .next_page_token;
    assert!(!foreign.is_empty());
    for token in [foreign, "x".into(), "00".into(), "ä".into(), "f".repeat(60 << 10)] {
        let status = client
            .list_volumes(wire::ListVolumesRequest { page_size: 0, page_token: token })
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with("page_token: "), "{status}");
    }
    let status = client
        .list_volumes(wire::ListVolumesRequest { page_size: -1, page_token: String::new() })
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "page_size: is negative")
    );
}

#[tokio::test]
async fn unknown_empty_and_huge_ids_are_clear_errors() {
    let served = Served::start(snapshot(0)).await;
    let mut client = inventory(&served).await;
    let mut ask = async |id: String| {
        client.get_volume(wire::GetVolumeRequest { id, ..Default::default() }).await.unwrap_err()
    };
    let unknown = ask("no-such".into()).await;
    assert_eq!(
        (unknown.code(), unknown.message()),
        (Code::NotFound, "nothing here is known as `no-such`")
    );
    let empty = ask(String::new()).await;
    assert_eq!((empty.code(), empty.message()), (Code::InvalidArgument, "id: is empty"));
    let huge = ask("x".repeat(60 << 10)).await;
    assert_eq!(
        (huge.code(), huge.message()),
        (Code::InvalidArgument, "id: has 61440 bytes, at most 4096 are allowed")
    );
    let long = ask("x".repeat(4096)).await;
    assert_eq!(long.code(), Code::NotFound);
    assert!(long.message().len() < 300);
    // Larger than the largest message: the transport refuses it, and the next call is answered.
    assert_eq!(ask("x".repeat(65 << 10)).await.code(), Code::OutOfRange);
    assert_eq!(ask("no-such".into()).await.code(), Code::NotFound);
}

#[tokio::test]
async fn a_volume_is_resolved_by_any_of_its_names() {
    let served = Served::start(snapshot(3)).await;
    let client = served.client().await;
    for query in [
        "csi:d.example/a",
        "a",
        "d.example/a",
        "pv-a",
        "sda1",
        "/dev/sda1",
        "uuid-a",
        "default/pod-a",
        "uid-a",
        "/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/a/globalmount",
        "/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/a/globalmount/",
    ] {
        assert_eq!(
            client.volume(query).await.map(|volume| volume.id).map_err(|error| error.to_string()),
            Ok("csi:d.example/a".to_owned()),
            "{query}"
        );
    }
    for query in ["vg-data", "/dev/mapper/vg-data", "/dev/vg/data", "dm-0", "sda2"] {
        assert_eq!(client.volume(query).await.unwrap().id, "csi:d.example/b", "{query}");
    }
    assert_eq!(client.volume_by_handle("d.example", "a").await.unwrap().id, "csi:d.example/a");
    assert!(client.volume_by_handle("d.example", "zz").await.is_err());
    for query in [
        "sda",
        "/dev/sda",
        "S1",
        "naa.5000s1",
        "0x5000s1",
        "ata-MODEL_S1",
        "/dev/disk/by-id/ata-MODEL_S1",
        "sda1",
        "default/pod-b",
    ] {
        assert_eq!(client.drive(query).await.unwrap().id, "MODEL_S1", "{query}");
    }
}

#[tokio::test]
async fn an_ambiguous_name_lists_its_candidates() {
    let served = Served::start(snapshot(0)).await;
    let error = served.client().await.volume("sda").await.unwrap_err().to_string();
    assert!(
        error.contains("`sda` is ambiguous")
            && error.contains("csi:d.example/a")
            && error.contains("csi:d.example/b"),
        "{error}"
    );
}

#[tokio::test]
async fn explain_follows_the_chain_from_the_drive_to_the_pod() {
    let served = Served::start(snapshot(3)).await;
    let client = served.client().await;
    let explained = client.explain("default/pod-b").await.unwrap();
    let chain: Vec<&str> = explained.chain.iter().map(|node| node.kind.as_str()).collect();
    assert_eq!(
        chain,
        ["drive", "partition", "lvm", "filesystem", "mount", "mount", "volume", "pod"]
    );
    for query in ["default/pod-b", "sda", "sda1", "sda2", "csi:d.example/a"] {
        let explained = client.explain(query).await.unwrap();
        let ids: BTreeSet<&str> = explained.chain.iter().map(|node| node.id.as_str()).collect();
        assert_eq!(ids.len(), explained.chain.len(), "each node once");
        assert!(
            explained
                .chain
                .iter()
                .flat_map(|node| &node.stands_on)
                .all(|below| ids.contains(below.as_str())),
            "{query}: {:#?}",
            explained.chain
        );
    }
    let about_drive = client.explain("sda").await.unwrap();
    assert_eq!((about_drive.volumes.len(), about_drive.findings.len()), (2, 1));
    let finding = about_drive.findings[0].id.clone();
    assert_eq!(client.explain(&finding).await.unwrap().subject.unwrap().id, "csi:d.example/a");
}

#[tokio::test]
async fn a_volume_carries_its_findings() {
    let served = Served::start(snapshot(0)).await;
    let volume = served.client().await.volume("a").await.unwrap();
    assert_eq!(volume.findings[0].reason, "ReadOnly");
    assert_eq!(volume.findings[0].evidence.len(), 1);
    let node = served.client().await.node().await.unwrap();
    assert_eq!((node.drives, node.volumes, node.active_findings, node.api_revision), (2, 2, 1, 1));
}

/// As root this tests the permission; as another user, the refusal.
#[tokio::test]
async fn acknowledging_needs_root_and_validates_its_arguments() {
    let served = Served::start(snapshot(0)).await;
    let mut admin = AdminClient::new(channel(&served.socket()).await);
    let id = served.client().await.findings(false).await.unwrap().findings[0].id.clone();
    let mut ack = async |finding_id: String, note: String| {
        admin
            .acknowledge_finding(wire::AcknowledgeFindingRequest {
                finding_id,
                note,
                ..Default::default()
            })
            .await
    };
    let uid = nix::unistd::geteuid().as_raw();
    if uid != 0 {
        let status = ack(id, "known".into()).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains(&uid.to_string()));
        return;
    }
    let wrong = [
        ("", "n"),
        ("x", ""),
        ("x", " \n"),
        (&"x".repeat(60 << 10), "n"),
        ("x", &"n".repeat(1025)),
    ];
    for (finding, note) in wrong {
        assert_eq!(
            ack(finding.into(), note.into()).await.unwrap_err().code(),
            Code::InvalidArgument
        );
    }
    assert_eq!(ack("000000000000".into(), "n".into()).await.unwrap_err().code(), Code::NotFound);
    let acknowledged =
        ack(id.clone(), "known".into()).await.unwrap().into_inner().acknowledged.unwrap();
    assert_eq!((acknowledged.by.as_str(), acknowledged.note.as_str()), ("uid 0 (root)", "known"));
    let status = admin
        .unacknowledge_finding(wire::UnacknowledgeFindingRequest { finding_id: id })
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let asked = admin
        .refresh(wire::RefreshRequest { query: "sda1".into() })
        .await
        .unwrap()
        .into_inner()
        .asked;
    assert_eq!(asked, ["csi:d.example/a"]);
    admin.refresh(wire::RefreshRequest::default()).await.unwrap();
    let requests = super::fixture::within(10, async {
        loop {
            let requests = served.owner.asked.lock().unwrap().clone();
            if requests.len() == 3 {
                return requests;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(
        matches!(&requests[..], [SourceRequest::Kubelet, SourceRequest::Probe(paths), SourceRequest::All] if paths.len() == 2),
        "{requests:?}"
    );
}

#[tokio::test]
async fn what_is_worse_than_the_caller_has_seen_is_not_acknowledged() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root may acknowledge");
        return;
    }
    let served = Served::start(snapshot(0)).await;
    let all = served.client().await.findings(false).await.unwrap();
    let mut admin = AdminClient::new(channel(&served.socket()).await);
    let mut ack = async |seen: wire::Severity| {
        admin
            .acknowledge_finding(wire::AcknowledgeFindingRequest {
                finding_id: all.findings[0].id.clone(),
                note: "known".into(),
                seen_severity: seen.into(),
                ..Default::default()
            })
            .await
    };
    let refused = ack(wire::Severity::Suspect).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("has become worse"), "{refused:?}");
    assert!(ack(wire::Severity::Bad).await.is_ok());
}

#[tokio::test]
async fn explain_takes_its_argument_by_both_names_but_not_by_both_at_once() {
    let served = Served::start(snapshot(0)).await;
    let mut client = inventory(&served).await;
    let mut explain = async |id: &str, query: &str| {
        let request = wire::ExplainRequest { id: id.into(), query: query.into() };
        client.explain(request).await.map(tonic::Response::into_inner)
    };
    let by_id = explain("default/pod-a", "").await.unwrap();
    assert_eq!(by_id, explain("", "default/pod-a").await.unwrap());
    assert_eq!(by_id.subjects.len(), 1);
    for (id, query, message) in [
        ("", "", "id: is empty"),
        ("sda", "sdb", "query: is the former name of id: give one"),
        ("sdc", "", "nothing here is known as `sdc`; did you mean `sda` or `sdb`?"),
    ] {
        assert_eq!(explain(id, query).await.unwrap_err().message(), message);
    }
}

#[tokio::test]
async fn slots_ends_of_serials_and_bare_names_of_pods_are_names_where_they_are_unique() {
    let mut snapshot = snapshot(0);
    for (name, serial, slot) in [
        ("sdx", "WD-WX61A79ABCD", "Slot 05"),
        ("sdy", "WD-WX61A79ZZZZ", "Slot 06"),
        ("sdz", "ST-0001A79ZZZZ", "Slot 06"),
    ] {
        let mut drive = super::fixture::drive(name, serial);
        drive.facts.location.slot = Some(slot.into());
        snapshot.drives.insert(drive.facts.id.clone(), Arc::new(drive));
    }
    let served = Served::start(snapshot).await;
    let client = served.client().await;
    for name in ["slot 05", "Slot 5", "slot:05", "abcd", "79ABCD"] {
        assert_eq!(client.drive(name).await.expect(name).name, "sdx");
    }
    let pod = client.explain("pod-b").await.expect("the pod");
    assert_eq!(pod, client.explain("default/pod-b").await.expect("the pod"));
    for (name, candidate) in [("slot 6", "(sdy)"), ("zzzz", "(sdz)")] {
        let error = client.drive(name).await.expect_err(name).to_string();
        assert!(error.contains("is ambiguous") && error.contains(candidate), "{error}");
    }
    // Nearly a name, and too short an end.
    let error = client.drive("slot 55").await.expect_err("none").to_string();
    assert!(error.contains("did you mean"), "{error}");
    assert!(client.drive("bcd").await.is_err());
}

#[tokio::test]
async fn whether_a_drive_can_be_pulled_is_answered_for_a_whole_serial_only() {
    let mut snapshot = snapshot(0);
    let drive = super::fixture::drive("sdx", "WD-WX61A79ABCD");
    snapshot.drives.insert(drive.facts.id.clone(), Arc::new(drive));
    let served = Served::start(snapshot).await;
    let client = served.client().await;
    for name in ["sdx", "WD-WX61A79ABCD", "/dev/sdx"] {
        let answer = client.removal(name, "").await.expect(name);
        assert_eq!(answer.drive.as_ref().expect("the drive").name, "sdx");
        assert_eq!(answer.answer(), wire::removal::Answer::No);
        assert_eq!(answer.objections[0].text, "no sound copy of / elsewhere");
        assert_eq!(answer.step.expect("a step").kind(), wire::replacement_step::Kind::Save);
    }
    let error = client.removal("79ABCD", "").await.expect_err("an end").to_string();
    assert!(error.contains("give the whole serial"), "{error}");
    assert!(client.removal("sdq", "").await.is_err());
    assert!(client.removal("sdx", "79ABCD").await.is_err());
}
