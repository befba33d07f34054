use proptest::prelude::*;

use super::*;
use crate::facts::KnownVolume;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::storage;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::provision::BackingKind;
use diskvitals_finding::reason::Reason;

const K: &str = "/var/lib/kubelet";
const GRACE_SECONDS: i64 = GRACE.as_secs() as i64;

fn target(uid: &str) -> String {
    format!("{K}/pods/{uid}/volumes/kubernetes.io~csi/pv-h/mount")
}

fn staging() -> String {
    format!("{K}/plugins/kubernetes.io/csi/own/0af/globalmount")
}

fn snapshot_of(host: &TestHost) -> Snapshot {
    let volume = |known: &KnownVolume| storage::tests::volume(known);
    let volumes = host.facts.volumes.iter();
    let mut snapshot = Snapshot {
        settled: true,
        volumes: volumes.map(|(id, known)| (id.clone(), volume(known).into())).collect(),
        attachments: host.facts.attachments.clone(),
        node_context: host.facts.node_context.clone(),
        ..Snapshot::default()
    };
    let node = std::sync::Arc::make_mut(&mut snapshot.node);
    for source in [Source::Kubelet, Source::Mounts] {
        let status = SourceStatus::Active("read".into());
        node.sources.insert(source, (status, at(0)));
    }
    snapshot
}

/// A volume of this node, staged and published to u1 and u2; no pod has it.
fn own() -> TestHost {
    let mut host = storage::tests::pool(Some(&staging()), &[&target("u1"), &target("u2")]);
    host.read_all(0);
    host.read_provision(0);
    host
}

/// A volume of driver `d`, published to u1; no pod has it.
fn foreign() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", &target("u1"), "ext4", "/dev/sda")
        .csi("d", "h", None, &[]);
    host.kubelet.volumes.clear();
    host.read_all(0);
    host
}

fn uids(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[derive(Default)]
struct Ask {
    holds: Vec<PodHold>,
    unreadable: Option<&'static str>,
    missing: Vec<String>,
    progress: BTreeMap<String, PodProgress>,
    forbidden: bool,
}

impl Ask {
    fn last(uid: &str, last: CleanResult) -> Ask {
        let progress = PodProgress { last: Some(last), ..PodProgress::default() };
        Ask { progress: BTreeMap::from([(uid.to_owned(), progress)]), ..Ask::default() }
    }

    fn hold(uid: &str, kind: HoldKind, detail: &str) -> Ask {
        let hold = PodHold { pod_uid: uid.into(), kind, detail: detail.into() };
        Ask { holds: vec![hold], ..Ask::default() }
    }

    fn of(&self, snapshot: &Snapshot, pods: &[&str]) -> OrderStatus {
        judge(&OrderEvidence {
            snapshot,
            missing: &self.missing,
            holds: self.unreadable.map_or(Ok(self.holds.as_slice()), Err),
            pod_uids: &uids(pods),
            progress: &self.progress,
            is_allowed: !self.forbidden,
        })
    }

    fn state(&self, snapshot: &Snapshot) -> (PodState, String) {
        let pod = self.of(snapshot, &["u1"]).pods.remove(0);
        (pod.state, pod.detail)
    }
}

fn unmounted(plans: &[(BTreeSet<String>, CleanupPlan)]) -> Vec<String> {
    use crate::cleanup::CleanupAction::Unmount;
    let actions = plans.iter().flat_map(|(_, plan)| &plan.actions);
    actions
        .filter(|action| matches!(action, Unmount { .. }))
        .map(|action| action.path().to_string())
        .collect()
}

#[test]
fn own_mounts_of_listed_pods_are_removed_without_the_grace_and_staging_goes_first() {
    let snapshot = snapshot_of(&own());
    assert!(
        snapshot.attachments.values().all(|it| it.stale_cause().is_none()),
        "within the grace nothing is stale by the daemon's own rules"
    );
    let status = Ask::default().of(&snapshot, &["u1", "u2"]);
    assert!(status.pods.iter().all(|pod| pod.state == PodState::Cleaning && pod.is_due));
    let plans = plans(&snapshot, &status);
    assert_eq!(unmounted(&plans), [staging(), target("u2"), target("u1")]);
    assert_eq!(plans[0].0, uids(&["u1", "u2"]));
}

#[test]
fn what_the_kubelet_has_staged_by_its_record_is_unstaged_with_the_mounts_after_the_grace() {
    let mut host = own().csi("own", "v1", Some(&staging()), &[]);
    host.read_kubelet(1);
    let ordered = |host: &TestHost, listed: &[&str]| {
        let snapshot = snapshot_of(host);
        unmounted(&plans(&snapshot, &Ask::default().of(&snapshot, listed)))
    };
    assert_eq!(ordered(&host, &["u1", "u2"]), [""; 0], "it may be at work");
    assert_eq!(ordered(&host, &["u1"]), [target("u1")], "u2 keeps it staged");
    host.read_kubelet(GRACE_SECONDS + 1);
    let all = [staging(), target("u2"), target("u1")];
    assert_eq!(ordered(&host, &["u1", "u2"]), all);
    assert_eq!(ordered(&host, &["u1"]), [target("u1")]);
}

#[test]
fn a_directory_that_was_staged_without_a_mount_is_nothing_that_is_left() {
    let mut host = storage::tests::pool(Some(&staging()), &[]);
    host.mounts.mounts.retain(|mount| mount.mount_point != staging().as_str().into());
    for (kind, expected) in [(BackingKind::Loop, 1), (BackingKind::StaticDirectory, 0)] {
        let volumes = &mut host.provision.as_mut().expect("a pool").volumes;
        volumes[0].kind = kind;
        host.read_all(0);
        host.read_provision(0);
        let status = Ask::default().of(&snapshot_of(&host), &["u1"]);
        assert_eq!(status.left.len(), expected, "{kind:?}: {:?}", status.left);
    }
}

#[test]
fn a_pod_that_is_not_listed_keeps_its_mount_and_what_is_staged() {
    let snapshot = snapshot_of(&own());
    let status = Ask::default().of(&snapshot, &["u1"]);
    assert_eq!(unmounted(&plans(&snapshot, &status)), [target("u1")]);
    let left: Vec<_> = status.left.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(left, [staging()], "the other pod's is within its grace");
    assert!(!status.is_clean());
}

#[test]
fn without_permission_it_is_said_and_nothing_is_removed() {
    let snapshot = snapshot_of(&own());
    let ask = Ask { forbidden: true, ..Ask::default() };
    let status = ask.of(&snapshot, &["u1"]);
    assert_eq!(status.pods[0].state, PodState::OrdersOff);
    assert_eq!(unmounted(&plans(&snapshot, &status)), [""; 0]);
}

#[test]
fn a_pod_of_which_the_kubelet_has_a_record_or_logs_is_in_use() {
    let mut host = own().csi("own", "v1", None, &[("u1", &target("u1"))]);
    host.read_kubelet(1);
    let snapshot = snapshot_of(&host);
    let status = Ask::default().of(&snapshot, &["u1", "u2"]);
    let states: Vec<_> = status.pods.iter().map(|pod| pod.state).collect();
    assert_eq!(states[0], PodState::InUse, "{status:?}");
    assert!(!unmounted(&plans(&snapshot, &status)).contains(&target("u1")));
    assert!(!unmounted(&plans(&snapshot, &status)).contains(&staging()));
}

#[test]
fn a_process_that_keeps_the_kubelet_from_unmounting_is_to_be_ended() {
    let mut host = own().csi("own", "v1", None, &[("u1", &target("u1"))]);
    host.read_kubelet(1);
    let snapshot = snapshot_of(&host);
    assert_eq!(Ask::default().state(&snapshot).0, PodState::InUse, "the kubelet is at work");
    let (state, detail) =
        Ask::hold("u1", HoldKind::Opener, "9151 (tail) has a file open").state(&snapshot);
    assert_eq!(state, PodState::Held);
    let expected = format!("9151 (tail) has a file open; {}: the kubelet's record", target("u1"));
    assert!(detail.starts_with(&expected), "{detail}");
    let (state, detail) =
        Ask::hold("u1", HoldKind::Opener, "9151 (tail)").state(&snapshot_of(&foreign()));
    assert_eq!(
        (state, detail.as_str()),
        (PodState::Held, "9151 (tail)"),
        "its driver waits as well"
    );
}

#[test]
fn a_record_that_cannot_be_read_is_named_before_a_mount_in_use() {
    let mut host = own().csi("own", "v1", None, &[("u1", &target("u1"))]);
    host.read_kubelet(1);
    let mut snapshot = snapshot_of(&host);
    let used = &snapshot.attachments[&target("u1").as_str().into()];
    let mut other = (**used).clone();
    other.path = target("u1").replace("pv-h", "pv-later").as_str().into();
    other.used_by = Some(UNREADABLE_RECORD.into());
    snapshot.attachments.insert(other.path.clone(), other.into());
    let (state, detail) = Ask::default().state(&snapshot);
    assert_eq!(state, PodState::Unreadable, "{detail}");
    assert!(detail.contains("later"), "{detail}");
}

#[test]
fn a_record_without_a_mount_counts_for_the_grace_period() {
    let mut host =
        TestHost::default().disk("sda", "8:0", "A").csi("d", "h", None, &[("u1", &target("u1"))]);
    host.read_all(0);
    let snapshot = snapshot_of(&host);
    assert_eq!(recorded_pods(&snapshot, &uids(&["u1", "u2"])).count(), 1);
    let recorded_for = |time| {
        let progress = PodProgress { recorded_for: time, ..PodProgress::default() };
        let ask = Ask { progress: BTreeMap::from([("u1".to_owned(), progress)]), ..Ask::default() };
        ask.state(&snapshot).0
    };
    assert_eq!(recorded_for(None), PodState::InUse);
    assert_eq!(recorded_for(Some(GRACE / 2)), PodState::InUse);
    assert_eq!(recorded_for(Some(GRACE)), PodState::Absent);
}

#[test]
fn another_drivers_mount_is_waited_for_and_never_removed() {
    let snapshot = snapshot_of(&foreign());
    let status = Ask::default().of(&snapshot, &["u1"]);
    assert_eq!(status.pods[0].state, PodState::Foreign);
    assert!(status.pods[0].detail.contains(&target("u1")), "{status:?}");
    assert_eq!(unmounted(&plans(&snapshot, &status)), [""; 0]);
    let nfs = format!("{K}/pods/u1/volumes/kubernetes.io~nfs/data");
    let empty = snapshot_of(&TestHost::default());
    assert_eq!(
        Ask::hold("u1", HoldKind::Mount, &nfs).state(&empty),
        (PodState::Foreign, nfs.clone()),
        "not only CSI's"
    );
}

#[test]
fn the_same_mount_in_a_second_place_of_the_kubelets_directory_goes_with_it() {
    let second = target("u1").replace(K, "/data/kubelet");
    let held = |path: &str, host: TestHost| {
        Ask::hold("u1", HoldKind::Mount, path).state(&snapshot_of(&host)).0
    };
    assert_eq!(held(&second, own()), PodState::Cleaning);
    let other = second.replace("pv-", "pw-");
    assert_eq!(held(&other, own()), PodState::Foreign);
    // It is left although the one in the first place is gone.
    assert_eq!(held(&second, TestHost::default()), PodState::Foreign);
}

#[test]
fn a_process_of_the_pod_holds_it_and_nothing_is_unmounted_below_it() {
    let snapshot = snapshot_of(&own());
    for kind in [HoldKind::Process, HoldKind::MountElsewhere] {
        let ask = Ask::hold("u1", kind, "812 (mysqld) runs in its container");
        let status = ask.of(&snapshot, &["u1", "u2"]);
        assert_eq!(status.pods[0].state, PodState::Held);
        assert!(status.pods[0].detail.contains("812 (mysqld)"));
        assert_eq!(unmounted(&plans(&snapshot, &status)), [target("u2")]);
    }
    let nothing_mounted = snapshot_of(&TestHost::default());
    let ask = Ask::hold("u1", HoldKind::Process, "812 (mysqld) runs in its container");
    assert_eq!(ask.state(&nothing_mounted).0, PodState::Held);
}

#[test]
fn what_a_removal_met_is_shown_until_the_mount_is_gone_and_then_it_is_cleaned() {
    let snapshot = snapshot_of(&own());
    let gone = snapshot_of(&TestHost::default());
    let text = || "why".to_owned();
    for (result, state) in [
        (CleanResult::Held(text()), PodState::Held),
        (CleanResult::Failed(text()), PodState::Failed),
        (CleanResult::Hung(text()), PodState::Hung),
    ] {
        let ask = Ask::last("u1", result.clone());
        assert_eq!(ask.state(&snapshot), (state, text()));
        assert!(ask.of(&snapshot, &["u1"]).pods[0].is_due, "it is tried again");
        assert!(ask.state(&gone).0.is_clean(), "others have removed it");
    }
    let done = Ask::last("u1", CleanResult::Done);
    assert_eq!(done.state(&gone).0, PodState::Cleaned);
    assert_eq!(Ask::default().state(&gone).0, PodState::Absent);
}

#[test]
fn a_mount_that_does_not_respond_is_hung_also_while_the_kubelet_has_its_record() {
    use diskvitals_finding::ids::FindingId;
    use diskvitals_finding::severity::Severity;
    use diskvitals_finding::{Finding, Status};
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", &target("u1"), "ext4", "/dev/sda")
        .csi("d", "h", None, &[("u1", &target("u1"))]);
    host.read_all(0);
    let mut snapshot = snapshot_of(&host);
    assert_eq!(Ask::default().state(&snapshot).0, PodState::InUse);
    let volume = snapshot.volumes.keys().next().expect("one").clone();
    let mut finding = Finding {
        id: FindingId::known("f1"),
        subject: Subject::Volume(volume),
        reason: Reason::NotAccessible,
        severity: Severity::Bad,
        status: Status::Inaccessible,
        message: "the probe is pending".into(),
        since: at(0),
        last_seen: at(0),
        count: 1,
        evidence: Vec::new(),
        clears_when: String::new(),
        advice: None,
        acknowledged: None,
        maintained: false,
        cleared: None,
        follows: None,
    };
    for (reason, expected) in [
        (Reason::NotAccessible, PodState::InUse),
        (Reason::ProbeTimeout, PodState::Hung),
        (Reason::IoStalled, PodState::Hung),
    ] {
        finding.reason = reason;
        let id = finding.id.clone();
        snapshot.findings.insert(id, finding.clone().into());
        let (state, detail) = Ask::default().state(&snapshot);
        assert_eq!(state, expected, "{reason:?}");
        assert!(detail.contains(&target("u1")), "{detail}");
    }
}

#[test]
fn a_removal_that_takes_long_is_hung() {
    let snapshot = snapshot_of(&own());
    let running = |seconds| {
        let progress = PodProgress {
            running_for: Some(Duration::from_secs(seconds)),
            ..PodProgress::default()
        };
        let ask = Ask { progress: BTreeMap::from([("u1".to_owned(), progress)]), ..Ask::default() };
        ask.state(&snapshot).0
    };
    assert_eq!(running(5), PodState::Cleaning);
    assert_eq!(running(20), PodState::Hung);
}

#[test]
fn what_cannot_be_read_is_never_clean_whatever_the_rest_says() {
    let snapshot = snapshot_of(&TestHost::default());
    assert!(Ask::default().of(&snapshot, &["u1"]).is_clean());
    let unreadable = |ask: &Ask, snapshot: &Snapshot| {
        let status = ask.of(snapshot, &["u1"]);
        assert_eq!(status.pods[0].state, PodState::Unreadable);
        assert!(!status.is_clean() && plans(snapshot, &status).is_empty());
        status.unreadable.expect("a reason")
    };
    let missing = Ask {
        missing: vec!["the kubelet's directory could not be read: EIO".into()],
        ..Ask::default()
    };
    assert!(unreadable(&missing, &snapshot).contains("EIO"));
    let proc = Ask { unreadable: Some("reading /proc: EACCES"), ..Ask::default() };
    assert!(unreadable(&proc, &snapshot).contains("EACCES"));
    for source in [Source::Kubelet, Source::Mounts] {
        let states = [
            Some(SourceStatus::Down("no".into())),
            Some(SourceStatus::Absent("no kubelet here".into())),
            None,
        ];
        for state in states {
            let mut snapshot = snapshot.clone();
            let sources = &mut std::sync::Arc::make_mut(&mut snapshot.node).sources;
            match state {
                Some(state) => sources.insert(source, (state, at(0))),
                None => sources.remove(&source),
            };
            unreadable(&Ask::default(), &snapshot);
        }
    }
}

#[test]
fn a_stale_mount_of_a_pod_that_no_list_names_is_left() {
    let mut host = foreign();
    host.read_kubelet(GRACE_SECONDS);
    let snapshot = snapshot_of(&host);
    let status = Ask::default().of(&snapshot, &["u9"]);
    assert_eq!(status.pods[0].state, PodState::Absent);
    assert_eq!(status.left.len(), 1, "{status:?}");
    assert_eq!(status.left[0].0.to_string(), target("u1"));
}

#[test]
fn use_that_a_failed_reading_left_unknown_is_not_clean() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", &target("u1"), "ext4", "/dev/sda")
        .csi("d", "h", None, &[]);
    host.scan(0);
    host.read_kubelet(0);
    host.apply(SourceUpdate::Kubelet(Observation::failed(at(1), "no")), 1);
    host.read_mounts(2);
    let snapshot = snapshot_of(&host);
    let state = Ask::default().state(&snapshot).0;
    assert!(!state.is_clean(), "{state:?}");
}

proptest! {
    /// Only listed pods' own mounts are unmounted, whatever is listed and whoever holds it; and while
    /// one of their mounts is there, no listed pod is clean.
    #[test]
    fn nothing_but_listed_pods_own_mounts_is_unmounted(
        listed in prop::collection::btree_set("u[1-3]", 0..3),
        held in prop::collection::btree_set("u[1-3]", 0..3),
        forbidden in any::<bool>(),
        seconds in 0..(2 * GRACE_SECONDS),
    ) {
        let mut host = own();
        host.read_kubelet(seconds);
        let snapshot = snapshot_of(&host);
        let names: Vec<&str> = listed.iter().map(String::as_str).collect();
        let holds = held.iter().map(|uid| PodHold {
            pod_uid: uid.clone(),
            kind: HoldKind::Process,
            detail: "1 (x) runs in its container".into(),
        });
        let ask = Ask { holds: holds.collect(), forbidden, ..Ask::default() };
        let status = ask.of(&snapshot, &names);
        let all = unmounted(&plans(&snapshot, &status));
        for path in &all {
            let of = |uid: &str| *path == target(uid) && listed.contains(uid) && !held.contains(uid);
            let both = ["u1", "u2"].iter().all(|uid| listed.contains(*uid) && !held.contains(*uid));
            prop_assert!(of("u1") || of("u2") || (*path == staging() && both), "{path}");
        }
        prop_assert!(!forbidden || all.is_empty());
        for pod in &status.pods {
            let is_mounted = ["u1", "u2"].contains(&pod.uid.as_str());
            prop_assert!(!(pod.state.is_clean() && (is_mounted || held.contains(&pod.uid))), "{pod:?}");
        }
    }
}
