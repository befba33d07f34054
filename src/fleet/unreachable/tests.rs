use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::model::release::Now;
use crate::model::release::tests::wall;
use crate::model::unreachable::eviction::EvictionReadings;
use crate::model::unreachable::eviction::tests::pod;
use crate::model::unreachable::tests::report;
use crate::model::{Node, View, Volume};
use diskvitals_cluster::node_storage::UnreachableDriver;

const KEY: &str = "diskvitals.io/storage-unreachable";

/// Three nodes with driver d, of which these do not reach it.
fn view(unreachable: &[&str]) -> View {
    let mut view = View::default();
    for name in ["a", "b", "c"] {
        let node = Node { uid: format!("uid-{name}"), is_ready: true, ..Node::default() };
        let entry = UnreachableDriver { driver: "d".into(), ..UnreachableDriver::default() };
        let listed = unreachable.contains(&name).then_some(entry);
        let reached: &[&str] = if listed.is_none() { &["d"] } else { &[] };
        let report = report(&node.uid, Some(listed.into_iter().collect()), reached);
        view.nodes.insert(name.into(), node);
        view.reports.insert(name.into(), report);
        view.drivers.insert(name.into(), ["d".to_owned()].into());
    }
    let volume = Volume { csi: Some(("d".into(), "h".into())), ..Volume::default() };
    view.volumes.insert("net".into(), volume);
    view
}

fn tainted(mut view: View) -> View {
    let node = view.nodes.get_mut("a").expect("a");
    node.taints = [(KEY.to_owned(), "d".to_owned())].into();
    view
}

fn at(view: &View, seconds: u64) -> Context<'_> {
    Context {
        view,
        now: Now { elapsed: Duration::from_secs(seconds), wall: wall(0) },
        server: Some(wall(0)),
        lease_left: None,
    }
}

fn duty() -> UnreachableStorage {
    UnreachableStorage::new(&Timing::default(), KEY, true)
}

/// The duty for a node that has had the taint for a moment.
fn evicting() -> (UnreachableStorage, View) {
    let mut duty = duty();
    let view = tainted(view(&["a"]));
    duty.observe(at(&view, 0));
    duty.observe(at(&view, 300));
    (duty, view)
}

fn listed(pods: Vec<PodReading>) -> Done {
    Done::Listed { node: "a".into(), driver: "d".into(), pods: Reading::Read(pods) }
}

fn announced(duty: &mut UnreachableStorage) -> Vec<&'static str> {
    duty.take_announcements().iter().map(|it| it.reason).collect()
}

#[test]
fn a_standby_that_takes_over_knows_how_long_it_has_lasted() {
    let mut duty = duty();
    let view = view(&["a"]);
    duty.observe(at(&view, 0));
    duty.reset(Duration::from_secs(300));
    let job = duty.next_job(at(&view, 300));
    assert!(
        matches!(&job, Some(Job::Taint { node, uid, value: Some(value), .. }) if node == "a" && uid == "uid-a" && value == "d"),
        "{job:?}"
    );
    let wrote = Done::Tainted { node: "a".into(), value: Some("d".into()), wrote: Ok(true) };
    duty.finish(wrote, at(&view, 300)).expect("written");
    assert_eq!(announced(&mut duty), ["StorageUnreachable"]);
    assert!(duty.next_job(at(&view, 301)).is_none(), "one round at a time");
}

#[test]
fn a_second_taint_within_the_hour_is_another_event() {
    let mut duty = duty();
    let view = view(&["a"]);
    let mut notes = BTreeSet::new();
    for (minute, value) in [(1, Some("d")), (5, None), (9, Some("d")), (14, None)] {
        let wrote =
            Done::Tainted { node: "a".into(), value: value.map(Into::into), wrote: Ok(true) };
        let mut now = at(&view, minute * 60);
        now.now.wall = wall(i64::try_from(minute).expect("a minute"));
        duty.finish(wrote, now).expect("written");
        notes.extend(duty.take_announcements().into_iter().map(|it| it.note));
    }
    assert_eq!(notes.len(), 4, "{notes:?}");
}

#[test]
fn a_backend_that_is_away_for_all_is_one_statement_when_it_begins_and_one_when_it_ends() {
    let mut duty = duty();
    let away = view(&["a", "b", "c"]);
    for seconds in (0..900).step_by(10) {
        assert!(duty.next_job(at(&away, seconds)).is_none());
    }
    assert_eq!(announced(&mut duty), ["StorageAway"]);
    let two = view(&["a", "b"]);
    assert!(duty.next_job(at(&two, 900)).is_none());
    assert_eq!(announced(&mut duty), Vec::<&str>::new());
    let back = view(&[]);
    assert!(duty.next_job(at(&back, 910)).is_none());
    assert_eq!(announced(&mut duty), ["StorageAwayCleared"]);
}

#[test]
fn a_pod_is_noted_before_it_is_evicted_and_the_next_one_waits_for_its_replacement() {
    let (mut duty, view) = evicting();
    let now = at(&view, 301);
    assert!(matches!(duty.next_job(now), Some(Job::ListPods { .. })));
    duty.finish(listed(vec![pod("web-1"), pod("web-2")]), now).expect("read");
    let Some(Job::Ask(node, eviction)) = duty.next_job(now) else {
        panic!("a question");
    };
    assert_eq!((node.as_str(), eviction.pod.as_str()), ("a", "web-1"));
    duty.finish(Done::Asked(node, eviction, Ok(Acted::Done)), now).expect("answered");
    let Some(Job::Record(_, Some(eviction))) = duty.next_job(now) else {
        panic!("a note");
    };
    let noted = Done::Recorded("a".into(), Some(eviction.clone()), Ok(true));
    duty.finish(noted, now).expect("written");
    assert!(matches!(duty.next_job(now), Some(Job::Look(..))));
    let looked = |pod: Option<PodReading>, group: Vec<PodReading>| {
        let readings = EvictionReadings { pod: Reading::Read(pod), group: Reading::Read(group) };
        Done::Looked("a".into(), eviction.clone(), Box::new(readings))
    };
    duty.finish(looked(Some(pod("web-1")), vec![]), now).expect("read");
    assert!(matches!(duty.next_job(now), Some(Job::Evict(..))));
    let evicted = Done::Evicted("a".into(), eviction.clone(), Ok(Acted::Done));
    duty.finish(evicted, now).expect("evicted");
    assert_eq!(announced(&mut duty), ["EvictedFromUnreachableStorage"]);
    // The watch has not shown the note yet.
    let later = at(&view, 400);
    assert!(matches!(duty.next_job(later), Some(Job::Look(..))));
    let ending = PodReading { is_terminating: true, ..pod("web-1") };
    duty.finish(looked(Some(ending.clone()), vec![]), later).expect("read");
    assert!(duty.next_job(later).is_none());
    // It does not end: said once.
    for seconds in [2200, 2300] {
        let late = at(&view, seconds);
        assert!(matches!(duty.next_job(late), Some(Job::Look(..))));
        duty.finish(looked(Some(ending.clone()), vec![]), late).expect("read");
    }
    assert_eq!(announced(&mut duty), ["EvictionStuck", "EvictionStuck"], "node and pod");
    assert!(duty.figures().waiting.is_some_and(|(it, _)| it.pod == "web-1"));
    let end = at(&view, 2400);
    assert!(matches!(duty.next_job(end), Some(Job::Look(..))));
    let young = PodReading { uid: "uid-3".into(), created: Some(wall(9)), ..pod("web-3") };
    duty.finish(looked(None, vec![young]), end).expect("read");
    assert!(matches!(duty.next_job(end), Some(Job::Record(_, None))));
    duty.finish(Done::Recorded("a".into(), None, Ok(true)), end).expect("written");
    assert_eq!(duty.figures().waiting, None);
    let next = at(&view, 2500);
    assert!(matches!(duty.next_job(next), Some(Job::ListPods { .. })));
}

#[test]
fn a_pod_that_a_budget_protects_is_left_alone_for_a_minute_and_another_one_moves() {
    let (mut duty, view) = evicting();
    let pods = vec![pod("web-1"), pod("web-2")];
    let refused = || Acted::Refused("a PodDisruptionBudget".into());
    // The pods that are asked for in one round, all of which are refused.
    let mut asked = |seconds| {
        let now = at(&view, seconds);
        let mut asked = Vec::new();
        while let Some(job) = duty.next_job(now) {
            let done = match job {
                Job::ListPods { .. } => listed(pods.clone()),
                Job::Ask(node, eviction) => {
                    asked.push(eviction.pod.clone());
                    Done::Asked(node, eviction, Ok(refused()))
                }
                other => panic!("{other:?}"),
            };
            duty.finish(done, now).expect("answered");
        }
        asked
    };
    assert_eq!(asked(301), ["web-1", "web-2"]);
    assert_eq!(asked(320), Vec::<String>::new());
    assert_eq!(asked(400), ["web-1", "web-2"]);
    let announced = announced(&mut duty);
    assert_eq!(announced, ["EvictionRefused", "EvictionRefused"], "once for each");
    assert_eq!(duty.figures().evictions["refused"], 4);
}

#[test]
fn a_noted_eviction_that_is_refused_after_all_is_no_longer_noted() {
    let (mut duty, view) = evicting();
    let now = at(&view, 301);
    duty.next_job(now).expect("a list");
    duty.finish(listed(vec![pod("web-1")]), now).expect("read");
    let Some(Job::Ask(node, eviction)) = duty.next_job(now) else {
        panic!("a question");
    };
    let refused = Acted::Refused("a PodDisruptionBudget".into());
    duty.finish(Done::Evicted(node, eviction, Ok(refused)), now).expect("answered");
    assert!(matches!(duty.next_job(now), Some(Job::Record(_, None))));
}

#[test]
fn another_leader_goes_on_with_the_eviction_that_is_noted_and_begins_no_second_one() {
    let (mut duty, mut view) = evicting();
    let eviction = PodEviction {
        driver: "d".into(),
        namespace: "shop".into(),
        pod: "web-9".into(),
        pod_uid: "uid-web-9".into(),
        owner_uid: "owner".into(),
        since: Time(wall(0)),
    };
    view.reports.get_mut("b").expect("b").eviction = Some(eviction);
    let job = duty.next_job(at(&view, 301));
    assert!(
        matches!(&job, Some(Job::Look(node, eviction)) if node == "b" && eviction.pod == "web-9"),
        "{job:?}"
    );
}

#[test]
fn without_the_option_no_pod_is_looked_at() {
    let mut duty = UnreachableStorage::new(&Timing::default(), KEY, false);
    let view = tainted(view(&["a"]));
    duty.observe(at(&view, 0));
    assert!(duty.next_job(at(&view, 300)).is_none());
    assert!(!duty.decision.evictable.is_empty());
}

#[test]
fn a_pod_that_ended_late_has_its_replacement_waited_for_from_then_on() {
    let (mut duty, view) = evicting();
    let eviction = Box::new(PodEviction {
        driver: "d".into(),
        namespace: "shop".into(),
        pod: "db-0".into(),
        pod_uid: "uid-db-0".into(),
        owner_uid: "owner".into(),
        since: Time(wall(0)),
    });
    duty.written = Some(("a".into(), (*eviction).clone()));
    let mut look = |seconds, pod: Option<PodReading>| {
        let now = at(&view, seconds);
        assert!(matches!(duty.next_job(now), Some(Job::Look(..))));
        let readings = EvictionReadings { pod: Reading::Read(pod), group: Reading::Read(vec![]) };
        let looked = Done::Looked("a".into(), eviction.clone(), Box::new(readings));
        duty.finish(looked, now).expect("read");
        duty.next_job(now)
    };
    let ending = PodReading { is_terminating: true, ..pod("db-0") };
    assert!(look(400, Some(ending.clone())).is_none());
    assert!(look(4000, Some(ending)).is_none());
    assert!(look(4010, None).is_none());
    assert!(look(5000, None).is_none());
    assert!(matches!(look(5810, None), Some(Job::Record(_, None))));
}
