use proptest::prelude::*;

use crate::fixture::*;
use crate::graph::kube::{CsiPath, parse_csi_path};
use crate::source_update::SourceUpdate;
use crate::stale::GRACE;
use diskvitals_finding::kubelet::PodName;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;

const K: &str = "/var/lib/kubelet";
const GRACE_SECONDS: i64 = GRACE.as_secs() as i64;

fn target() -> String {
    format!("{K}/pods/u1/volumes/kubernetes.io~csi/pv-h/mount")
}

fn staging() -> String {
    format!("{K}/plugins/kubernetes.io/csi/d/0af/globalmount")
}

/// Staged and published to pod u1, by mounts and by records.
fn host() -> TestHost {
    TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", &staging(), "ext4", "/dev/sda")
        .mounted("8:0", "/", &target(), "ext4", "/dev/sda")
        .csi("d", "h", Some(&staging()), &[("u1", &target())])
}

fn stale(host: &TestHost) -> Vec<String> {
    host.facts
        .attachments
        .values()
        .filter(|it| it.stale_cause().is_some())
        .map(|it| it.path.to_string())
        .collect()
}

fn forget_pod(host: &mut TestHost) {
    host.kubelet.volumes[0].publications.clear();
    host.kubelet.pods.clear();
}

#[test]
fn a_recorded_attachment_is_never_stale() {
    let mut host = host();
    for seconds in [0, 60, 3600, 86_400] {
        host.read_all(seconds);
        assert!(stale(&host).is_empty());
    }
    let attachments: Vec<_> = host.facts.attachments.values().collect();
    assert_eq!(attachments.len(), 2);
    assert!(attachments.iter().all(|it| it.driver == "d"
        && it.handle == "h"
        && it.since == at(0)
        && it.used_by.is_some()));
}

#[test]
fn a_pods_mount_is_stale_when_record_and_logs_are_gone_for_longer_than_the_grace() {
    let mut host = host();
    host.read_all(0);
    forget_pod(&mut host);
    host.kubelet.pod_uids = vec!["u1".into()];
    host.read_kubelet(10);
    assert!(stale(&host).is_empty());
    host.read_kubelet(9 + GRACE_SECONDS);
    assert!(stale(&host).is_empty(), "within the grace");
    host.read_kubelet(10 + GRACE_SECONDS);
    assert_eq!(stale(&host), [target()], "what is staged has its record still");
    let why = host.facts.attachments[&HostPath::from(target().as_str())]
        .stale_cause()
        .expect("stale")
        .to_owned();
    assert_eq!(why, "pod u1 is gone: it has no record of the volume and no folder of logs");
    host.kubelet.volumes.clear();
    host.read_kubelet(20 + GRACE_SECONDS);
    host.read_kubelet(20 + 2 * GRACE_SECONDS);
    assert_eq!(stale(&host), [staging(), target()]);
    let left = &host.facts.attachments[&HostPath::from(target().as_str())];
    assert_eq!(
        (left.driver.as_str(), left.handle.as_str()),
        ("d", "h"),
        "what the record said is remembered"
    );
    assert_eq!(
        left.volume.as_str(),
        format!("mnt:{}", staging()),
        "and what it is now is told by what lies there"
    );
}

#[test]
fn logs_or_an_unreadable_record_keep_an_attachment() {
    let mut host = host();
    host.read_all(0);
    forget_pod(&mut host);
    host.kubelet
        .pods
        .insert("u1".into(), PodName { namespace: "default".into(), name: "web".into() });
    host.read_kubelet(10);
    host.read_kubelet(1000);
    assert!(stale(&host).is_empty(), "its logs are there");
    host.kubelet.pods.clear();
    host.kubelet.warnings = vec![format!(
        "{K}/pods/u1/volumes/kubernetes.io~csi/pv-h/vol_data.json: it names no volume"
    )];
    host.read_kubelet(2000);
    host.read_kubelet(3000);
    assert!(stale(&host).is_empty(), "a record that cannot be read is a record");
}

#[test]
fn a_device_left_bound_to_a_removed_pod_is_stale() {
    let path = format!("{K}/plugins/kubernetes.io/csi/volumeDevices/publish/pv-b/u9");
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("0:5", "/sda", &path, "devtmpfs", "devtmpfs");
    host.read_all(0);
    host.read_kubelet(GRACE_SECONDS);
    assert_eq!(stale(&host), std::slice::from_ref(&path));
    let left = &host.facts.attachments[&HostPath::from(path.as_str())];
    assert!(left.block && left.pod.as_ref().is_some_and(|pod| pod.uid == "u9"));
}

#[test]
fn without_a_kubelet_nothing_is_stale() {
    let mut host = host();
    host.scan(0);
    host.read_mounts(0);
    host.apply(SourceUpdate::Kubelet(Observation::Unavailable), 0);
    host.read_mounts(10_000);
    assert!(stale(&host).is_empty());
}

#[test]
fn a_remounted_attachment_restarts_the_grace_period() {
    let mut host = host();
    forget_pod(&mut host);
    host.read_all(0);
    host.umount(&target());
    host.read_mounts(100);
    host = host.mounted("8:0", "/", &target(), "ext4", "/dev/sda");
    host.read_mounts(110);
    host.read_kubelet(GRACE_SECONDS);
    assert!(stale(&host).is_empty());
    assert_eq!(host.facts.attachments[&HostPath::from(target().as_str())].since, at(110));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The records are read: with the pod's, or without.
    Records(bool),
    RecordsFail,
    Mounts,
    MountsFail,
}

fn step() -> impl Strategy<Value = (Step, i64)> {
    let step = prop_oneof![
        any::<bool>().prop_map(Step::Records),
        Just(Step::RecordsFail),
        Just(Step::Mounts),
        Just(Step::MountsFail),
    ];
    (step, 1..100i64)
}

proptest! {
    /// Two good readings the grace apart, all good ones between them without the pod: nothing less
    /// makes it stale, and no failed reading changes that.
    #[test]
    fn only_good_readings_make_stale_and_failed_ones_change_nothing(steps in proptest::collection::vec(step(), 1..40)) {
        let mut host = host();
        host.read_all(0);
        let with_pod = host.kubelet.clone();
        let (mut now, mut gone_since, mut confirmed) = (0, None::<i64>, None::<i64>);
        for (step, after) in steps {
            now += after;
            let before = stale(&host);
            match step {
                Step::Records(there) => {
                    host.kubelet = with_pod.clone();
                    if !there {
                        forget_pod(&mut host);
                    }
                    host.read_kubelet(now);
                    gone_since = if there { None } else { gone_since.or(Some(now)) };
                    confirmed = Some(now);
                }
                Step::RecordsFail => drop(host.apply(SourceUpdate::Kubelet(Observation::failed(at(now), "no")), now)),
                Step::Mounts => drop(host.read_mounts(now)),
                Step::MountsFail => drop(host.apply(SourceUpdate::Mounts(Observation::failed(at(now), "no")), now)),
            }
            if !matches!(step, Step::Records(_)) {
                prop_assert_eq!(&before, &stale(&host), "{:?} changed it", step);
            }
            let due = gone_since.zip(confirmed).is_some_and(|(since, confirmed)| confirmed - since >= GRACE_SECONDS);
            prop_assert_eq!(stale(&host), if due { vec![target()] } else { Vec::new() }, "at {} after {:?}", now, step);
        }
    }

    #[test]
    fn any_path_is_a_place_or_none(path in "(/[a-z~.]{0,8}){0,8}") {
        if let Some(CsiPath { record: Some(record), .. }) = parse_csi_path(&"/k".into(), &path.as_str().into()) {
            prop_assert!(record.strip_prefix(&"/k".into()).is_some());
        }
    }
}
