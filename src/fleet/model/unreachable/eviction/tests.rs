use super::*;
use crate::model::Volume;
use crate::model::pin::Pin;
use crate::model::release::tests::wall;

pub(crate) fn pod(name: &str) -> PodReading {
    PodReading {
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        owner: Some(Owner { kind: "StatefulSet".into(), uid: "owner".into() }),
        created: Some(wall(-60)),
        is_ready: true,
        volumes: Reading::Read(vec!["net".into()]),
        ..PodReading::default()
    }
}

/// Volume `net` of driver d, volume `own` on a node's disk, `other` of another driver.
fn view() -> View {
    let mut view = View::default();
    let volume =
        |driver: &str, pins| Volume { csi: Some((driver.into(), "h".into())), claim: None, pins };
    let pin = Pin::Label { key: "kubernetes.io/hostname".into(), value: "a".into() };
    let zone = Pin::Label { key: "topology.kubernetes.io/zone".into(), value: "z".into() };
    view.volumes.insert("net".into(), volume("d", vec![zone]));
    view.volumes.insert("own".into(), volume("d", vec![pin]));
    view.volumes.insert("other".into(), volume("e", vec![]));
    view
}

fn chosen(pods: &[PodReading]) -> Option<String> {
    choose(pods, "d", &view(), &BTreeSet::new(), wall(0)).map(|it| it.pod)
}

#[test]
fn the_first_pod_by_name_is_chosen_and_a_refused_one_is_left_alone() {
    let pods = [pod("b"), pod("a")];
    assert_eq!(chosen(&pods).as_deref(), Some("a"));
    let refused = ["uid-a"].into();
    let next = choose(&pods, "d", &view(), &refused, wall(0)).expect("the other");
    assert_eq!(
        (next.pod.as_str(), next.pod_uid.as_str(), next.owner_uid.as_str()),
        ("b", "uid-b", "owner")
    );
}

#[test]
fn a_pod_moves_only_if_another_one_can_run_elsewhere() {
    type Spoil = fn(&mut PodReading);
    let spoil: [(&str, Spoil); 11] = [
        ("nobody replaces it", |pod| pod.owner = None),
        ("a DaemonSet's", |pod| {
            pod.owner.as_mut().expect("one").kind = "DaemonSet".into();
        }),
        ("a mirror pod", |pod| {
            pod.owner.as_mut().expect("one").kind = "Node".into();
        }),
        ("it ends already", |pod| pod.is_terminating = true),
        ("it has ended", |pod| pod.has_ended = true),
        ("it tolerates the taint", |pod| pod.tolerates = true),
        ("another driver's volume", |pod| {
            pod.volumes = Reading::Read(vec!["other".into()]);
        }),
        ("no volume", |pod| pod.volumes = Reading::Read(vec![])),
        ("a second volume on the node's disk", |pod| {
            pod.volumes = Reading::Read(vec!["net".into(), "own".into()]);
        }),
        ("an unknown volume", |pod| {
            pod.volumes = Reading::Read(vec!["net".into(), "unknown".into()]);
        }),
        ("a claim that could not be read", |pod| {
            pod.volumes = Reading::Failed("500".into());
        }),
    ];
    for (what, spoil) in spoil {
        let mut pod = pod("a");
        spoil(&mut pod);
        assert_eq!(chosen(&[pod]), None, "{what}");
    }
    let mut inline = pod("a");
    inline.volumes = Reading::Read(vec![]);
    inline.inline_drivers = ["d".to_owned()].into();
    assert!(chosen(&[inline]).is_some());
}

fn step(of: Option<PodReading>, group: &[PodReading], is_wanted: bool) -> Next {
    let eviction =
        choose(&[pod("a")], "d", &view(), &BTreeSet::new(), wall(0)).expect("an eviction");
    let readings =
        EvictionReadings { pod: Reading::Read(of), group: Reading::Read(group.to_vec()) };
    next(&eviction, &readings, is_wanted, false)
}

fn young(is_ready: bool) -> PodReading {
    PodReading { uid: "uid-2".into(), created: Some(wall(3)), is_ready, ..pod("a") }
}

#[test]
fn the_next_pod_follows_when_the_replacement_is_ready() {
    assert_eq!(step(Some(pod("a")), &[pod("a")], true), Next::Evict);
    let ending = PodReading { is_terminating: true, ..pod("a") };
    let waits = |what| Next::Wait(what);
    assert_eq!(
        step(Some(ending.clone()), &[ending, young(true)], true),
        waits(Waiting::Terminating),
        "also when the replacement is ready before"
    );
    assert_eq!(
        step(None, &[pod("b")], true),
        waits(Waiting::Replacement),
        "an older pod of the group is no replacement"
    );
    assert_eq!(step(None, &[young(false), pod("b")], true), waits(Waiting::Replacement));
    let unready = PodReading { is_ready: false, ..pod("b") };
    assert_eq!(step(None, &[young(true), unready], true), waits(Waiting::Replacement));
    assert_eq!(step(None, &[young(true), pod("b")], true), Next::Done);
}

#[test]
fn what_is_no_longer_wanted_is_not_begun_and_what_was_begun_is_waited_for() {
    assert_eq!(step(Some(pod("a")), &[pod("a")], false), Next::Done);
    let ending = PodReading { is_terminating: true, ..pod("a") };
    assert_eq!(step(Some(ending), &[], false), Next::Wait(Waiting::Terminating));
    assert_eq!(step(None, &[pod("b")], false), Next::Done);
    assert_eq!(step(None, &[young(false)], false), Next::Wait(Waiting::Replacement));
}

#[test]
fn a_replacement_that_never_comes_is_waited_for_and_then_it_is_not_wanted() {
    let eviction =
        choose(&[pod("a")], "d", &view(), &BTreeSet::new(), wall(0)).expect("an eviction");
    let gone = EvictionReadings { pod: Reading::Read(None), group: Reading::Read(vec![]) };
    let step = |is_wanted, has_waited| next(&eviction, &gone, is_wanted, has_waited);
    for is_wanted in [true, false] {
        let waits = Next::Wait(Waiting::Replacement);
        assert_eq!(step(is_wanted, false), waits, "a StatefulSet is about to make it");
        assert_eq!(step(is_wanted, true), Next::Done);
    }
}

#[test]
fn a_failed_reading_is_no_step_forward() {
    let eviction =
        choose(&[pod("a")], "d", &view(), &BTreeSet::new(), wall(0)).expect("an eviction");
    let unread = EvictionReadings::default();
    assert_eq!(next(&eviction, &unread, true, true), Next::Wait(Waiting::Unread));
    let gone = EvictionReadings { pod: Reading::Read(None), ..unread };
    assert_eq!(next(&eviction, &gone, true, true), Next::Wait(Waiting::Unread));
}
