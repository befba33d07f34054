//! A restart of the daemon at any moment, also on a node whose pool's records are not read.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::assess::{ActiveFinding, ActiveFindings};
use crate::facts::Facts;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::storage::tests::pool;
use diskvitals_finding::mount::Mount;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::provision::BackingKind;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Judgement, Subject, Verdict};

const KUBELET: &str = "/var/lib/kubelet";

fn staging(handle: &str) -> String {
    format!("{KUBELET}/plugins/kubernetes.io/csi/own/{handle}/globalmount")
}

fn target(handle: &str) -> String {
    format!("{KUBELET}/pods/u-{handle}/volumes/kubernetes.io~csi/pv-{handle}/mount")
}

/// Pods have the volume v1 of the pool, the directory `scratch` on the drive S, the device `fast`, and
/// a volume of another driver. All is well.
fn node() -> TestHost {
    let mut host = pool(Some(&staging("v1")), &[&target("v1")]);
    let state = host.provision.as_mut().expect("it has a pool");
    let mut volume = |handle: &str, kind, backing: &str, device: Option<&str>| {
        let mut volume = state.volumes[0].clone();
        (volume.handle, volume.kind, volume.backing) = (handle.into(), kind, backing.into());
        volume.device = device.map(str::to_owned);
        volume.staged.as_mut().expect("staged").path = staging(handle).as_str().into();
        volume.published[0].path = target(handle).as_str().into();
        state.volumes.push(volume);
    };
    volume("scratch", BackingKind::StaticDirectory, "/srv/scratch", None);
    volume("fast", BackingKind::StaticDevice, "/dev/sdf", Some("sdf"));
    host = host
        .disk("sds", "8:32", "S")
        .disk("sdf", "8:48", "F")
        .disk("sdo", "8:64", "O")
        .mounted("8:32", "/", "/srv", "ext4", "/dev/sds")
        .mounted("8:32", "/scratch", &target("scratch"), "ext4", "/dev/sds")
        .mounted("8:48", "/", &staging("fast"), "ext4", "/dev/sdf")
        .mounted("8:48", "/", &target("fast"), "ext4", "/dev/sdf")
        .mounted("8:64", "/", &staging("other"), "ext4", "/dev/sdo")
        .mounted("8:64", "/", &target("other"), "ext4", "/dev/sdo");
    for (driver, handle) in [("own", "v1"), ("own", "scratch"), ("own", "fast"), ("d", "other")] {
        let uid = format!("u-{handle}");
        host = host.csi(driver, handle, Some(&staging(handle)), &[(&uid, &target(handle))]);
    }
    host.settings.own_driver = Some("own".into());
    host
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Good,
    Dead,
}

/// What the sources read, in an order.
fn read(host: &mut TestHost, pool: Pool, order: [usize; 4], seconds: i64) {
    for source in order {
        match (source, pool) {
            (0, _) => drop(host.scan(seconds)),
            (1, _) => drop(host.read_mounts(seconds)),
            (2, _) => drop(host.read_kubelet(seconds)),
            (_, Pool::Good) => drop(host.read_provision(seconds)),
            (_, Pool::Dead) => {
                let error = Observation::failed(at(seconds), "its records cannot be read");
                host.apply(SourceUpdate::Provision(error), seconds);
            }
        }
    }
}

const IN_ORDER: [usize; 4] = [0, 1, 2, 3];

/// The next run of the daemon, with what the store keeps of this one.
fn restarted(before: &TestHost, seconds: i64) -> TestHost {
    let stored: Vec<_> = before.facts.stored_volumes().into_values().collect();
    let mut host = before.clone();
    host.facts = Facts { drives: before.facts.drives.clone(), ..Facts::default() };
    host.restore_volumes(stored, seconds);
    host
}

/// `read` over so much time that every grace is over.
fn settle(host: &mut TestHost, pool: Pool, seconds: i64) -> Vec<String> {
    for second in [0, 150, 300] {
        read(host, pool, IN_ORDER, seconds + second);
    }
    host.raised(seconds + 300)
}

#[test]
fn a_directory_of_a_healthy_pod_is_no_finding_while_the_pool_is_dead() {
    for is_configured in [true, false] {
        let mut host = node();
        if is_configured {
            host.settings.static_directories = vec!["scratch".into()];
        }
        assert_eq!(settle(&mut host, Pool::Good, 0), [""; 0]);
        let mut after = restarted(&host, 400);
        assert_eq!(settle(&mut after, Pool::Dead, 400), [""; 0], "{is_configured}");
        // Also in another boot, or without a store.
        after.facts = Facts::default();
        assert_eq!(settle(&mut after, Pool::Dead, 800), [""; 0], "{is_configured}");
    }
}

#[test]
fn a_false_finding_of_an_earlier_version_ends_although_the_pool_is_dead() {
    let mut host = node();
    host.settings.own_driver = None;
    let raised = settle(&mut host, Pool::Dead, 0);
    assert_eq!(raised, ["csi:own/scratch StagingNotMounted Suspect Degraded"]);
    host.settings.own_driver = Some("own".into());
    host.settings.static_directories = vec!["scratch".into()];
    let mut host = restarted(&host, 400);
    assert_eq!(settle(&mut host, Pool::Dead, 400), [""; 0]);
    assert!(host.active.is_empty(), "{:?}", host.active);
}

#[test]
fn what_the_kubelets_records_and_the_mounts_prove_needs_no_pool() {
    let mut host = node();
    settle(&mut host, Pool::Good, 0);
    let mut after = restarted(&host, 400);
    after.umount(&target("scratch"));
    assert_eq!(
        settle(&mut after, Pool::Dead, 400),
        ["csi:own/scratch NotMounted Bad Inaccessible"]
    );
    // What is active stays until its record is read.
    after.umount(&staging("v1"));
    settle(&mut after, Pool::Good, 800);
    let mut again = restarted(&after, 1200);
    settle(&mut again, Pool::Dead, 1200);
    let staged = Subject::Volume(volume("csi:own/v1"));
    assert!(is_active(&again.active, &staged, Reason::StagingNotMounted));
}

#[test]
fn nobody_has_seen_a_mount_missing_while_the_daemon_was_away() {
    let mut host = node();
    settle(&mut host, Pool::Good, 0);
    host.umount(&target("other"));
    read(&mut host, Pool::Good, IN_ORDER, 400);
    // Meanwhile it was mounted again, and a moment ago the pod ended.
    let mut after = restarted(&host, 500);
    read(&mut after, Pool::Good, IN_ORDER, 500);
    assert_eq!(after.raised(501), [""; 0]);
    read(&mut after, Pool::Good, IN_ORDER, 511);
    assert_eq!(after.raised(511), ["csi:d/other NotMounted Bad Inaccessible"]);
}

/// One change of the node, by number.
fn change(host: &mut TestHost, pool: &mut Pool, kind: u8) {
    let handles = ["v1", "scratch", "fast", "other"];
    let handle = handles[usize::from(kind / 7) % 4];
    let well = node();
    let paths = [staging(handle), target(handle)];
    let path = &paths[usize::from(kind / 28) % 2];
    match kind % 7 {
        0 => host.umount(path),
        1 => {
            host.umount(path);
            let is_it = |mount: &&Mount| mount.mount_point == path.as_str().into();
            host.mounts.mounts.extend(well.mounts.mounts.iter().find(is_it).cloned());
        }
        // The pod ends.
        2 => {
            paths.iter().for_each(|path| host.umount(path));
            host.kubelet.volumes.retain(|volume| volume.handle != handle);
            let volumes = &mut host.provision.as_mut().expect("one").volumes;
            for volume in volumes.iter_mut().filter(|volume| volume.handle == handle) {
                (volume.staged, volume.published) = (None, Vec::new());
            }
        }
        3 => {
            (host.mounts, host.kubelet) = (well.mounts, well.kubelet);
            host.provision = well.provision;
        }
        4 => *pool = Pool::Dead,
        5 => *pool = Pool::Good,
        _ => {}
    }
}

fn raised(judgements: Vec<Judgement>) -> ActiveFindings {
    let raised = judgements.into_iter().filter_map(|it| match it.verdict {
        Verdict::Raised(details) => {
            let level = (details.severity, details.status);
            Some(((it.subject, it.reason), active_at(level)))
        }
        Verdict::Clear | Verdict::Unknown { .. } => None,
    });
    raised.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The daemon that was away from some moment to another one raises nothing that one which was never
    /// away does not raise as well.
    #[test]
    fn a_restart_at_any_moment_raises_nothing_more(
        changes in proptest::collection::vec((any::<u8>(), 1..200i64), 1..16),
        (down, up) in (any::<Index>(), any::<Index>()),
        order in Just(IN_ORDER).prop_shuffle(),
        is_configured in any::<bool>(),
    ) {
        let mut always = node();
        if is_configured {
            always.settings.static_directories = vec!["scratch".into()];
        }
        let mut pool = Pool::Good;
        let mut seconds = 300;
        settle(&mut always, pool, 0);
        let (down, up) = (down.index(changes.len()), up.index(changes.len()));
        let (down, up) = (down.min(up), down.max(up));
        let mut stopped: Option<TestHost> = None;
        let mut again: Option<TestHost> = None;
        for (number, (kind, pause)) in changes.into_iter().enumerate() {
            if number == down {
                stopped = Some(always.clone());
            }
            change(&mut always, &mut pool, kind);
            seconds += pause;
            read(&mut always, pool, IN_ORDER, seconds);
            if number == up {
                again = stopped.take().map(|stopped| restarted(&stopped, seconds));
            }
            let known = raised(always.judge(seconds));
            let Some(again) = &mut again else { continue };
            again.mounts = always.mounts.clone();
            (again.kubelet, again.provision) = (always.kubelet.clone(), always.provision.clone());
            // The first readings of the new run come in any order. Until the last of them, what was
            // raised before may stay.
            let mut parts = vec![IN_ORDER];
            if number == up {
                parts.splice(0..0, order[..3].iter().map(|source| [*source; 4]));
            }
            let stays = again.active.clone();
            let last = parts.len() - 1;
            for (part, sources) in parts.into_iter().enumerate() {
                read(again, pool, sources, seconds);
                for (key, ActiveFinding { level, .. }) in raised(again.judge(seconds)) {
                    let is_settling = stays.contains_key(&key);
                    let is_known = known.get(&key).is_some_and(|known| known.level >= level);
                    prop_assert!(
                        is_known || (part < last && is_settling),
                        "{key:?} {level:?} at {seconds} s, after {part}; otherwise {known:?}"
                    );
                }
            }
        }
    }
}
