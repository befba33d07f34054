//! The CSI shim's requests about volumes of any driver: codes, values with their times, and the
//! conditions for "not connected".

use std::sync::Arc;
use std::time::Duration;

use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Health, Subject};
use diskvitals_model::block::DiskStat;
use diskvitals_model::facts::kernel_log::lost_records::LostRecords;
use diskvitals_model::snapshot::{NodeContext, Presence, Snapshot, VolumeUsage};
use diskvitals_model::source_update::{SourceRequest, SourceStatus};
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};
use diskvitals_wire::witness_request::Call;
use tonic::Code;

use super::fixture::{Served, client, finding, now, snapshot};

const STAGING: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/a/globalmount";

async fn served(snapshot: Snapshot) -> (Served, Client) {
    let served = Served::start(snapshot).await;
    let uid = nix::unistd::geteuid().as_raw();
    served.allow(uid);
    let client = client(&served.agent_socket()).await;
    (served, client)
}

fn code<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (Code, String) {
    match answer.expect_err("refused") {
        ClientError::Rejected(status) => (status.code(), status.message().to_owned()),
        other => panic!("{other}"),
    }
}

fn change_volume(
    snapshot: &mut Snapshot,
    handle: &str,
    change: impl FnOnce(&mut diskvitals_model::snapshot::Volume),
) {
    change(Arc::make_mut(snapshot.volumes.get_mut(&VolumeId::csi("d.example", handle)).unwrap()));
}

fn witnessed(call: Call, driver: &str, handle: &str, path: &str) -> wire::WitnessRequest {
    wire::WitnessRequest {
        call: call.into(),
        driver: driver.into(),
        handle: handle.into(),
        path: path.into(),
    }
}

#[tokio::test]
async fn statistics_come_from_memory_with_the_time_of_measurement() {
    let (served, client) = served(snapshot(0)).await;
    let usage = client.usage("d.example", "a", STAGING).await.unwrap();
    assert_eq!(
        (usage.total_bytes, usage.available_bytes, usage.used_bytes),
        (100 << 30, 60 << 30, 40 << 30)
    );
    assert_eq!(
        (usage.total_inodes, usage.used_inodes, usage.block),
        (Some(1000), Some(100), false)
    );
    assert_eq!(usage.time.unwrap().seconds, now().as_second());
    // The probe hangs: the old values stay, with their old time.
    served.owner.modify(|snapshot| {
        change_volume(snapshot, "a", |volume| {
            if let VolumeUsage::Mounted { stale, .. } = &mut volume.usage {
                *stale = Some(now());
            }
        })
    });
    assert_eq!(
        client.usage("d.example", "a", "").await.unwrap().time.unwrap().seconds,
        now().as_second()
    );
    // Without a fixed number of inodes none are reported.
    served.owner.modify(|snapshot| {
        change_volume(snapshot, "a", |volume| {
            if let VolumeUsage::Mounted { usage, .. } = &mut volume.usage {
                usage.total_inodes = 0;
            }
        })
    });
    assert_eq!(client.usage("d.example", "a", "").await.unwrap().total_inodes, None);
    served.owner.modify(|snapshot| {
        change_volume(snapshot, "a", |volume| {
            Arc::make_mut(&mut volume.facts).block = true;
            volume.usage = VolumeUsage::Block { size_bytes: 77 };
        })
    });
    let block = client.usage("d.example", "a", "").await.unwrap();
    assert_eq!((block.block, block.total_bytes, block.total_inodes), (true, 77, None));
}

#[tokio::test]
async fn statistics_and_volume_of_one_call_are_of_one_snapshot() {
    let (_served, client) = served(snapshot(0)).await;
    let answer = client.usage_and_volume("d.example", "a", STAGING).await.unwrap();
    assert_eq!(answer.volume, Some(client.volume_by_handle("d.example", "a").await.unwrap()));
    let plain = client.usage("d.example", "a", STAGING).await.unwrap();
    assert_eq!(
        (answer.total_bytes, answer.time, plain.volume),
        (plain.total_bytes, plain.time, None)
    );
}

#[tokio::test]
async fn a_path_is_compared_in_the_form_of_the_mount_table() {
    let mut snapshot = snapshot(0);
    let named = |named: &str| NodeContext {
        configured_kubelet_root: named.into(),
        kubelet_root: "/var/lib/kubelet".into(),
        ..Default::default()
    };
    snapshot.node_context = Arc::new(named("/k"));
    let (_served, client) = served(snapshot).await;
    for path in [
        STAGING,
        "/k/plugins/kubernetes.io/csi/d.example/a/globalmount",
        "/k/plugins/kubernetes.io/csi/d.example/a/globalmount/",
    ] {
        client.usage("d.example", "a", path).await.unwrap();
    }
    for path in [
        "some/path",
        "/k/plugins",
        "/",
        "/k",
        "/kk/plugins/kubernetes.io/csi/d.example/a/globalmount",
    ] {
        assert_eq!(code(client.usage("d.example", "a", path).await).0, Code::NotFound, "{path}");
    }
}

#[tokio::test]
async fn an_unknown_volume_is_not_found_only_after_a_complete_scan() {
    let (served, client) = served(snapshot(0)).await;
    assert_eq!(code(client.usage("d.example", "nope", "").await).0, Code::NotFound);
    assert_eq!(code(client.usage("d.example", "a/../a\0", "").await).0, Code::NotFound);
    assert_eq!(
        code(client.usage("", "a", "").await),
        (Code::InvalidArgument, "driver: is empty".to_owned())
    );
    assert_eq!(code(client.usage("d.example", "", "").await).0, Code::InvalidArgument);
    assert_eq!(
        code(client.usage("d.example", &"x".repeat(5000), "").await).0,
        Code::InvalidArgument
    );
    served.owner.modify(|snapshot| {
        change_volume(snapshot, "b", |volume| volume.usage = VolumeUsage::NotMeasured)
    });
    assert_eq!(
        code(client.usage("d.example", "b", "").await),
        (Code::Unavailable, "the volume has not been measured yet".to_owned())
    );
    let down = |snapshot: &mut Snapshot| {
        let node = Arc::make_mut(&mut snapshot.node);
        node.sources.insert(Source::Kubelet, (SourceStatus::Down("no permission".into()), now()));
    };
    served.owner.modify(down);
    let (code_, said) = code(client.usage("d.example", "nope", "").await);
    assert_eq!((code_, said.contains("no permission")), (Code::Unavailable, true), "{said}");
    client.usage("d.example", "a", "").await.unwrap();
}

#[tokio::test]
async fn storage_health_names_the_drives_and_is_an_error_when_unknown() {
    let (served, client) = served(snapshot(0)).await;
    assert!(client.storage_health("d.example").await.unwrap().faults.is_empty());
    assert!(client.storage_health("another").await.unwrap().faults.is_empty());
    let id = DriveId::new("MODEL_S1");
    served.owner.modify(|snapshot| {
        Arc::make_mut(snapshot.drives.get_mut(&id).unwrap()).health = Health::Unknown
    });
    assert_eq!(code(client.storage_health("d.example").await).0, Code::Unavailable);
    served.owner.modify(|snapshot| {
        Arc::make_mut(snapshot.drives.get_mut(&id).unwrap()).health = Health::Bad
    });
    let fault = client.storage_health("d.example").await.unwrap().faults.remove(0);
    assert_eq!(
        (fault.unreachable, fault.reason.as_str(), fault.message.contains("sda (MODEL_S1)")),
        (false, "DriveFailing", true)
    );
    served.owner.modify(|snapshot| {
        Arc::make_mut(snapshot.drives.get_mut(&id).unwrap()).presence =
            Presence::Missing { since: now() };
    });
    let fault = client.storage_health("d.example").await.unwrap().faults.remove(0);
    assert_eq!((fault.unreachable, fault.reason.as_str()), (true, "DriveMissing"));
    served.owner.modify(|snapshot| snapshot.settled = false);
    assert!(client.storage_health("another").await.is_err());
}

fn stat(completed: u64) -> Vec<DiskStat> {
    vec![DiskStat {
        dev: DevNo::new(8, 1),
        name: "sda1".into(),
        completed,
        sectors_written: 0,
        in_flight: 0,
        transfers: Default::default(),
        line: "".into(),
    }]
}

#[tokio::test]
async fn io_is_in_progress_when_the_volumes_own_device_completes_some() {
    let (served, client) = served(snapshot(0)).await;
    let sample = Duration::from_millis(10);
    for (before, after, expected) in [(1, 1, false), (1, 2, true)] {
        *served.owner.io.lock().unwrap() = [stat(before), stat(after)].into();
        let answer = client.connectivity("d.example", vec!["a".into()], sample).await.unwrap();
        assert_eq!((answer.connected, answer.io_in_progress), (true, expected));
    }
    // Without a sample the counters are not read, and a failed reading is an error.
    assert!(
        !client
            .connectivity("d.example", vec!["a".into()], Duration::ZERO)
            .await
            .unwrap()
            .io_in_progress
    );
    assert_eq!(
        code(client.connectivity("d.example", vec!["a".into()], sample).await).0,
        Code::Unavailable
    );
    *served.owner.io.lock().unwrap() = [stat(1), stat(1)].into();
    // The counters of b's device are missing: this is not the absence of I/O.
    let (code, why) =
        code(client.connectivity("d.example", vec!["a".into(), "b".into()], sample).await);
    assert_eq!(code, Code::Unavailable);
    assert!(why.contains("does not count the I/O of dm-0"), "{why}");
}

#[tokio::test]
async fn a_volume_is_not_connected_only_on_proof_and_unknown_is_an_error() {
    let (served, client) = served(snapshot(0)).await;
    let ask = |handles: &[&str]| {
        let handles = handles.iter().map(ToString::to_string).collect();
        client.connectivity("d.example", handles, Duration::ZERO)
    };
    assert!(ask(&["a", "b"]).await.unwrap().connected);
    assert!(ask(&[]).await.unwrap().connected);
    assert_eq!(code(ask(&["a", "nope"]).await).0, Code::NotFound);
    assert_eq!(code(ask(&[""]).await).0, Code::InvalidArgument);
    assert_eq!(
        code(client.connectivity("d.example", vec!["a".into(); 1001], Duration::ZERO).await).0,
        Code::InvalidArgument
    );
    assert_eq!(
        code(client.connectivity("d.example", Vec::new(), Duration::from_secs(61)).await).0,
        Code::InvalidArgument
    );
    served.owner.modify(|snapshot| {
        let found = finding(
            Subject::Volume(VolumeId::csi("d.example", "a")),
            Reason::ProbeTimeout,
            Severity::Bad,
            now(),
        );
        change_volume(snapshot, "a", |volume| volume.findings.push(found.id.clone()));
        snapshot.findings.insert(found.id.clone(), Arc::new(found));
    });
    let answer = ask(&["a", "b"]).await.unwrap();
    assert_eq!(
        (answer.connected, answer.messages),
        (false, vec!["volume csi:d.example/a: ProbeTimeout: it is so".to_owned()])
    );
    assert!(ask(&["b"]).await.unwrap().connected);
    served.owner.modify(|snapshot| {
        change_volume(snapshot, "b", |volume| {
            volume.health = Health::Unknown;
            volume.health_unknown_why = "mounts: no".into();
        })
    });
    let (code_, said) = code(ask(&["b"]).await);
    assert_eq!((code_, said.contains("mounts: no")), (Code::Unavailable, true), "{said}");
}

#[tokio::test]
async fn a_call_that_passes_the_interposer_triggers_a_scan_and_is_remembered() {
    let (served, client) = served(snapshot(0)).await;
    client
        .witness(witnessed(Call::Published, "other.example", "h", "/var/lib/kubelet/x"))
        .await
        .unwrap();
    let asked = std::mem::take(&mut *served.owner.asked.lock().unwrap());
    assert_eq!(
        asked,
        [
            SourceRequest::Mounts,
            SourceRequest::Kubelet,
            SourceRequest::Probe(vec![HostPath::from("/var/lib/kubelet/x")])
        ]
    );
    client.witness(witnessed(Call::Bypassed, "other.example", "", "")).await.unwrap();
    assert_eq!(
        *served.owner.bypassed.lock().unwrap(),
        [("other.example".to_owned(), false), ("other.example".to_owned(), true)]
    );
    assert_eq!(
        code(client.witness(witnessed(Call::Unspecified, "other.example", "h", "")).await).0,
        Code::InvalidArgument
    );
    assert_eq!(
        code(client.witness(witnessed(Call::Staged, "", "h", "")).await).0,
        Code::InvalidArgument
    );
    for (path, words) in [
        ("relative", "is not absolute: give"),
        ("/a/../b", "give the mount point as"),
        ("/", "is the root"),
        ("/a//b", "//"),
    ] {
        let (refused, said) = code(client.witness(witnessed(Call::Staged, "d", "h", path)).await);
        assert_eq!(
            (refused, said.contains(words)),
            (Code::InvalidArgument, true),
            "{path}: {said}"
        );
    }
    served.owner.asked.lock().unwrap().clear();
    client.witness(witnessed(Call::Staged, "d", "h", "/var/lib/kubelet/x/")).await.unwrap();
    let asked = std::mem::take(&mut *served.owner.asked.lock().unwrap());
    assert_eq!(
        asked.last(),
        Some(&SourceRequest::Probe(vec![HostPath::from("/var/lib/kubelet/x")])),
        "a closing `/` is the caller's way to write it"
    );
}

#[tokio::test]
async fn the_storage_service_is_on_the_agent_socket_only() {
    let served = Served::start(snapshot(0)).await;
    let refused = served.client().await.usage("d.example", "a", "").await;
    assert_eq!(code(refused).0, Code::Unimplemented);
}

fn about(volumes: &[&str], drives: &[&str]) -> wire::ConfirmRequest {
    wire::ConfirmRequest {
        persistent_volumes: volumes.iter().map(ToString::to_string).collect(),
        drive_ids: drives.iter().map(ToString::to_string).collect(),
        patience: None,
    }
}

#[tokio::test]
async fn a_confirmation_reads_again_and_names_what_is_wrong_with_the_volumes_in_question() {
    let mut snapshot = snapshot(0);
    change_volume(&mut snapshot, "a", |volume| {
        Arc::make_mut(&mut volume.facts).pv = Some("pv-a".into());
    });
    let volume = snapshot.volumes[&VolumeId::csi("d.example", "a")].clone();
    let drive = volume.facts.drive_ids[0].clone();
    let add = |snapshot: &mut Snapshot, subject, reason, severity| {
        let mut finding = finding(subject, reason, severity, now());
        if reason == Reason::OutOfSpace {
            finding.since = finding.since.checked_sub(jiff::SignedDuration::from_mins(3)).unwrap();
        }
        snapshot.findings.insert(finding.id.clone(), Arc::new(finding));
    };
    snapshot.findings.clear();
    let other = DriveId::new("another");
    for (subject, reason, severity) in [
        (Subject::Drive(drive.clone()), Reason::DriveOffline, Severity::Bad),
        (Subject::Volume(volume.facts.id.clone()), Reason::OutOfSpace, Severity::Suspect),
        (Subject::Drive(drive.clone()), Reason::SmartUnavailable, Severity::Info),
        (Subject::Drive(other), Reason::DriveOffline, Severity::Bad),
    ] {
        add(&mut snapshot, subject, reason, severity);
    }
    let lost = LostRecords { from: now(), until: now(), unread_since: None };
    Arc::make_mut(&mut snapshot.node).kernel_log_losses = vec![lost];
    let (served, client) = served(snapshot).await;
    let answer = client.confirm(about(&["pv-a"], &[])).await.unwrap();
    let seen: Vec<_> = answer
        .findings
        .iter()
        .map(|it| {
            let finding = it.finding.as_ref().unwrap();
            (
                finding.reason.as_str(),
                it.persistent_volume.as_str(),
                it.handle.as_str(),
                it.drive_id.clone(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("DriveOffline", "", "", drive.to_string()),
            ("OutOfSpace", "pv-a", "a", drive.to_string())
        ]
    );
    let evidence = &answer.findings[0].finding.as_ref().unwrap().evidence[0];
    assert_eq!((evidence.witness(), evidence.present), (wire::WitnessKind::KernelLog, true));
    assert!(answer.inventory && !answer.truncated);
    assert!(answer.kernel_log);
    assert!(answer.missing[0].ends_with("within 45 s"), "{:?}", answer.missing);
    // Only the drive's failure was within two minutes of a loss.
    let lost: Vec<_> = answer.findings.iter().map(|it| it.records_lost.is_some()).collect();
    assert_eq!(lost, [true, false]);
    let asked = served.owner.asked.lock().unwrap().clone();
    assert!(asked.contains(&SourceRequest::Inventory));
    assert!(asked.contains(&SourceRequest::Counters));
    assert!(asked.contains(&SourceRequest::Smart(vec![drive.clone()])));
    assert!(asked.iter().any(|it| matches!(it, SourceRequest::Probe(_))));
    // Without names, everything that has an adverse finding.
    let all = client.confirm(about(&[], &[])).await.unwrap();
    assert_eq!(all.findings.len(), 3);
}

#[tokio::test]
async fn a_confirmation_says_which_names_are_unknown_and_refuses_too_many() {
    let (_served, client) = served(snapshot(0)).await;
    let answer = client.confirm(about(&["pv-x"], &["naa.0"])).await.unwrap();
    assert!(answer.findings.is_empty());
    for name in ["`pv-x`", "`naa.0`"] {
        assert!(answer.missing.iter().any(|it| it.contains(name)), "{:?}", answer.missing);
    }
    let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (refused, why) = code(client.confirm(about(&many, &[])).await);
    assert_eq!(refused, Code::InvalidArgument);
    assert!(why.starts_with("persistent_volumes: "), "{why}");
    let long = wire::ConfirmRequest {
        patience: Some(prost_types::Duration { seconds: 61, nanos: 0 }),
        ..Default::default()
    };
    assert_eq!(code(client.confirm(long).await).0, Code::InvalidArgument);
}
