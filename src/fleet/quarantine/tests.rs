use std::time::Duration;

use super::*;
use crate::model::Report;
use crate::model::quarantine::{NodeReading, PodReading, ReportReading, Word};
use crate::model::release::Now;
use crate::model::release::evidence::Reading;
use crate::model::release::tests::wall;

const KEY: &str = "diskvitals.io/unclean";

fn at(view: &View, seconds: u64) -> Context<'_> {
    Context {
        view,
        now: Now { elapsed: Duration::from_secs(seconds), wall: wall(0) },
        server: None,
        lease_left: None,
    }
}

fn view(is_ready: bool) -> View {
    let mut view = View::default();
    let node = Node { is_ready, ..Node::default() };
    view.nodes.insert("a".into(), node);
    view.nodes.insert("good".into(), Node { is_ready: true, ..Node::default() });
    view.reports.insert("a".into(), Report::default());
    view
}

fn taint(key: &str) -> Taint {
    Taint { key: key.into(), effect: "NoExecute".into(), ..Taint::default() }
}

#[test]
fn only_a_node_that_is_away_tainted_or_listed_is_read() {
    let mut quarantines = Quarantines::new(QuarantineTiming::default(), KEY);
    let away = view(false);
    let job = quarantines.next_job(at(&away, 0));
    assert!(matches!(job, Some(Job::Read(name, _)) if name == "a"));
    let mut quarantines = Quarantines::new(QuarantineTiming::default(), KEY);
    let mut back = view(true);
    assert!(quarantines.next_job(at(&back, 0)).is_none());
    back.nodes.get_mut("a").expect("a").taints = [(KEY.into(), "q".into())].into();
    assert!(quarantines.next_job(at(&back, 20)).is_some());
    let mut quarantines = Quarantines::new(QuarantineTiming::default(), KEY);
    let mut listed = view(true);
    listed.reports.get_mut("a").expect("a").is_quarantined = true;
    assert!(quarantines.next_job(at(&listed, 0)).is_some());
}

#[test]
fn a_lost_node_is_read_before_its_round() {
    let mut quarantines = Quarantines::new(QuarantineTiming::default(), KEY);
    let (good, away) = (view(true), view(false));
    assert!(quarantines.next_job(at(&good, 0)).is_none());
    assert_eq!(quarantines.next_time(Elapsed::ZERO), Some(Duration::from_secs(10)));
    quarantines.observe(at(&away, 1));
    assert!(quarantines.next_job(at(&away, 1)).is_some());
}

#[test]
fn the_list_is_written_and_then_the_taint_beside_those_of_others() {
    let mut quarantines = Quarantines::new(QuarantineTiming::default(), KEY);
    let away = view(false);
    let mut readings = NodeReadings {
        node: Reading::Read(Some(NodeReading::default())),
        report: Reading::Read(Some(ReportReading::default())),
        pods: Reading::Read(vec![PodReading {
            uid: "u1".into(),
            is_movable: true,
            ..PodReading::default()
        }]),
    };
    let versions =
        Versions { taints: vec![taint("example.com/other"), taint(KEY)], ..Versions::default() };
    let read = |readings: &NodeReadings| {
        Done::Read("a".into(), Box::new((readings.clone(), versions.clone())))
    };
    assert!(quarantines.next_job(at(&away, 0)).is_some());
    quarantines.finish(read(&readings), at(&away, 0)).expect("read");
    let Some(Job::Write(_, _, Some(quarantine))) = quarantines.next_job(at(&away, 0)) else {
        panic!("a list");
    };
    quarantines.finish(Done::Written("a".into(), Ok(true)), at(&away, 0)).expect("written");
    assert!(matches!(quarantines.next_job(at(&away, 0)), Some(Job::Read(..))));
    readings.report =
        Reading::Read(Some(ReportReading { quarantine: Some(*quarantine.clone()), word: None }));
    quarantines.finish(read(&readings), at(&away, 0)).expect("read");
    let Some(Job::Taints(_, written, own)) = quarantines.next_job(at(&away, 0)) else {
        panic!("a taint");
    };
    let keys: Vec<&str> = written.taints.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(keys, ["example.com/other", KEY]);
    assert_eq!(written.taints[1].value.as_ref(), Some(&quarantine.id));
    assert_eq!(written.taints[1].effect, "NoSchedule");
    assert_eq!(own, OwnTaint::Set(quarantine.id.clone()));
    quarantines.finish(Done::Tainted("a".into(), own, Ok(true)), at(&away, 0)).expect("tainted");
    let announced: Vec<&str> =
        quarantines.take_announcements().iter().map(|it| it.reason).collect();
    assert_eq!(announced, ["NodeQuarantined"]);
}

#[test]
fn two_quarantines_of_a_node_have_no_event_in_common() {
    // The name of an event is made of its object, its reason and its note.
    let notes = |id: &str| {
        let mut quarantines = Quarantines::new(QuarantineTiming::default(), KEY);
        let (away, id) = (view(false), id.to_owned());
        for own in [OwnTaint::Set(id.clone()), OwnTaint::Removed(id.clone())] {
            let done = Done::Tainted("a".into(), own, Ok(true));
            quarantines.finish(done, at(&away, 0)).expect("written");
        }
        let node =
            NodeReading { is_ready: true, taint: Some(id.clone()), ..NodeReading::default() };
        let word = Word { of: id.clone(), reason: "Held".into(), ..Word::default() };
        let quarantine = Quarantine { id, pod_uids: vec!["u1".into()], ..Quarantine::default() };
        let report = ReportReading { quarantine: Some(quarantine), word: Some(word) };
        let readings = NodeReadings {
            node: Reading::Read(Some(node)),
            report: Reading::Read(Some(report)),
            pods: Reading::Read(Vec::new()),
        };
        let read = Done::Read("a".into(), Box::new((readings, Versions::default())));
        quarantines.finish(read, at(&away, 0)).expect("read");
        let announced = quarantines.take_announcements().into_iter();
        announced.map(|it| (it.reason, it.note)).collect::<Vec<_>>()
    };
    let (first, second) = (notes("q1"), notes("q2"));
    let reasons = |of: &[(&'static str, String)]| of.iter().map(|it| it.0).collect::<Vec<_>>();
    assert_eq!(reasons(&first), ["NodeQuarantined", "NodeClean", "NodeUnclean"]);
    assert!(first.iter().all(|it| !second.contains(it)), "{first:?}");
}

#[test]
fn a_write_that_is_refused_for_its_version_is_decided_anew_in_the_next_round() {
    let mut quarantines = Quarantines::new(QuarantineTiming::default(), KEY);
    let away = view(false);
    assert!(quarantines.next_job(at(&away, 0)).is_some());
    quarantines.finish(Done::Written("a".into(), Ok(false)), at(&away, 0)).expect("answered");
    assert!(quarantines.next_job(at(&away, 1)).is_none());
    assert!(quarantines.next_job(at(&away, 10)).is_some());
}
