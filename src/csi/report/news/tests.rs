use std::collections::BTreeSet;

use super::*;
use crate::csi::report::picture::{Cleared, Drive};

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

const NOW: i64 = 1_000_000;

pub fn trouble(about: Subject, level: Level) -> Trouble {
    Trouble {
        about,
        level,
        status: 2,
        reason: "SmartFailing".into(),
        message: "it says that it fails".into(),
        since: Some(at(NOW)),
        count: 1,
        acknowledged: false,
        cleared: None,
    }
}

pub fn drive(id: &str) -> Subject {
    Subject::Drive(id.into())
}

pub fn volume(id: &str) -> Subject {
    Subject::Volume(id.into())
}

/// A drive `d1`, a filesystem of the host `fs:root`, and a volume `v1` of a pod and a claim.
pub fn picture(troubles: &[(&str, Trouble)]) -> Picture {
    let of_host = Volume { name: "filesystem /".into(), health: Health::Good, why: String::new(), pods: vec![], claimed: vec![], state: None };
    let pods = vec![PodOf { uid: "u1".into(), name: "web".into(), namespace: "shop".into() }];
    let claimed = vec![Claimed { pv: "pv1".into(), namespaces: BTreeSet::from(["shop".into()]) }];
    let sda = Drive { name: "drive sda".into(), health: Health::Good, why: String::new(), maintenance: false, unasked: None };
    Picture {
        health: Health::Good,
        settled: true,
        drives: [("d1".to_owned(), sda)].into(),
        volumes: [
            ("fs:root".to_owned(), of_host.clone()),
            ("v1".to_owned(), Volume { name: "volume pv1".into(), pods, claimed, ..of_host }),
        ]
        .into(),
        troubles: troubles.iter().map(|(id, trouble)| ((*id).to_owned(), trouble.clone())).collect(),
        over: Default::default(),
    }
}

fn over(mut picture: Picture, id: &str, trouble: &Trouble, second: i64) -> Picture {
    let cleared = Some(Cleared { time: at(second), why: "seen to be over".into() });
    picture.over.insert(id.into(), Trouble { cleared, ..trouble.clone() });
    picture
}

/// To whom, what, and in which words.
fn told(before: Option<&Picture>, after: &Picture) -> Vec<(String, Kind, String)> {
    let to = |about: &About| match about {
        About::Node => "node".to_owned(),
        About::Pod(pod) => format!("pod {}/{}", pod.namespace, pod.name),
        About::Claim(claimed) => format!("claim of {}", claimed.pv),
    };
    news(before, after, at(NOW)).into_iter().map(|news| (to(&news.about), news.kind, news.note)).collect()
}

fn one(to: &str, kind: Kind, note: &str) -> (String, Kind, String) {
    (to.into(), kind, note.into())
}

#[test]
fn a_drives_finding_is_told_to_the_node_and_a_volumes_to_its_pod_and_claim() {
    let before = picture(&[]);
    let after = picture(&[
        ("0a", trouble(drive("d1"), Level::Bad)),
        ("0b", trouble(volume("v1"), Level::Suspect)),
        ("0c", trouble(volume("fs:root"), Level::Bad)),
    ]);
    let expected = [
        one("node", Kind::Raised, "drive sda: it says that it fails"),
        one("node", Kind::Raised, "filesystem /: it says that it fails"),
        one("pod shop/web", Kind::Raised, "volume pv1: it says that it fails"),
        one("claim of pv1", Kind::Raised, "volume pv1: it says that it fails"),
    ];
    assert_eq!(told(Some(&before), &after), expected);
    assert_eq!(told(Some(&after), &after), []);
}

#[test]
fn a_volume_whose_pods_have_no_names_is_told_to_the_node_as_well_as_to_its_claim() {
    let mut after = picture(&[("0b", trouble(volume("v1"), Level::Bad))]);
    after.volumes.get_mut("v1").expect("there").pods.clear();
    let mut before = after.clone();
    before.troubles.clear();
    let to: Vec<String> = told(Some(&before), &after).into_iter().map(|(to, ..)| to).collect();
    assert_eq!(to, ["node", "claim of pv1"]);
}

#[test]
fn a_finding_that_gets_worse_better_and_over_is_told_each_time() {
    let quiet = picture(&[]);
    let suspect = picture(&[("0a", trouble(drive("d1"), Level::Suspect))]);
    let bad = picture(&[("0a", Trouble { count: 2, ..trouble(drive("d1"), Level::Bad) })]);
    let kinds = |before, after| told(Some(before), after).into_iter().map(|(_, kind, _)| kind).collect::<Vec<_>>();
    assert_eq!(kinds(&quiet, &suspect), [Kind::Raised]);
    assert_eq!(kinds(&suspect, &bad), [Kind::Worsened]);
    assert_eq!(kinds(&bad, &suspect), [Kind::Eased]);
    let done = over(quiet.clone(), "0a", &trouble(drive("d1"), Level::Bad), NOW);
    let note = "drive sda: over, seen to be over. It was: it says that it fails";
    assert_eq!(told(Some(&bad), &done), [one("node", Kind::Cleared, note)]);
    assert_eq!(told(Some(&done), &done), []);
    // It came and went between two looks.
    assert_eq!(kinds(&quiet, &done), [Kind::Cleared]);
}

#[test]
fn other_words_numbers_and_acknowledgements_are_no_news() {
    let before = picture(&[("0a", trouble(drive("d1"), Level::Bad))]);
    let again = Trouble { message: "now 9".into(), acknowledged: true, ..trouble(drive("d1"), Level::Bad) };
    assert_eq!(told(Some(&before), &picture(&[("0a", again)])), []);
    let info = picture(&[("0b", trouble(drive("d1"), Level::Info))]);
    assert_eq!(told(Some(&picture(&[])), &info), []);
    assert_eq!(told(Some(&info), &picture(&[])), []);
}

#[test]
fn at_the_first_sight_only_what_is_fresh_is_told_and_under_the_name_that_it_had() {
    let fresh = trouble(drive("d1"), Level::Bad);
    let old = Trouble { since: Some(at(NOW - 45 * 60 - 1)), ..fresh.clone() };
    let seen = picture(&[("0a", fresh.clone()), ("0b", old.clone())]);
    let first = news(None, &seen, at(NOW));
    let live = news(Some(&picture(&[])), &picture(&[("0a", fresh.clone())]), at(NOW));
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].key, live[0].key);
    // The same of what is over.
    let done = |second| over(picture(&[]), "0a", &fresh, second);
    assert_eq!(told(None, &done(NOW - 45 * 60 - 1)), []);
    let first = news(None, &done(NOW), at(NOW + 5));
    let live = news(Some(&seen), &done(NOW), at(NOW));
    assert_eq!((first.len(), &first[0].key), (1, &live[0].key));
}

#[test]
fn each_transition_of_a_finding_has_a_key_of_its_own() {
    let stages = [(Level::Suspect, 1), (Level::Bad, 2), (Level::Suspect, 2), (Level::Bad, 3), (Level::Suspect, 3)];
    let mut keys = BTreeSet::new();
    let mut before = picture(&[]);
    for (level, count) in stages {
        let after = picture(&[("0a", Trouble { count, ..trouble(drive("d1"), level) })]);
        keys.extend(news(Some(&before), &after, at(NOW)).into_iter().map(|news| news.key));
        before = after;
    }
    assert_eq!(keys.len(), stages.len());
}

#[test]
fn health_that_can_no_longer_be_told_is_told_and_that_it_can_be_again() {
    let good = picture(&[]);
    let mut unknown = picture(&[]);
    *unknown.drives.get_mut("d1").expect("there") =
        Drive { health: Health::Unknown, why: "smartctl does not answer".into(), ..good.drives["d1"].clone() };
    let lost = one("node", Kind::Lost, "drive sda: how it is cannot be told: smartctl does not answer");
    assert_eq!(told(Some(&good), &unknown), [lost]);
    assert_eq!(told(Some(&unknown), &unknown), []);
    let found = one("node", Kind::Found, "drive sda: how it is can be told again, and nothing is found against it");
    assert_eq!(told(Some(&unknown), &good), [found]);
    // Who has just come does not know since when it is so.
    assert_eq!(told(None, &unknown), []);
}

#[test]
fn a_state_is_over_only_where_the_volume_is_known_to_have_it_no_more() {
    let state = Trouble { since: None, count: 0, ..trouble(volume("v1"), Level::Bad) };
    let before = picture(&[("state of v1", state)]);
    assert_eq!(told(None, &before), []);
    assert_eq!(told(Some(&picture(&[])), &before).len(), 2);
    assert_eq!(told(Some(&before), &picture(&[])).len(), 2);
    // An acknowledged finding is left.
    let with = |health, state: Option<&str>| {
        let mut picture = picture(&[]);
        let volume = picture.volumes.get_mut("v1").expect("there");
        (volume.health, volume.state) = (health, state.map(str::to_owned));
        picture
    };
    assert_eq!(told(Some(&before), &with(Health::Suspect, Some("NotHealthy"))).len(), 2);
    // A finding says it by now.
    assert_eq!(told(Some(&before), &with(Health::Bad, Some("SmartFailing"))), []);
    let unknown = with(Health::Unknown, None);
    assert!(told(Some(&before), &unknown).iter().all(|(_, kind, _)| *kind == Kind::Lost));
    let mut gone = picture(&[]);
    gone.volumes.remove("v1");
    assert_eq!(told(Some(&before), &gone), []);
}

#[test]
fn a_drive_that_is_gone_is_called_as_it_was() {
    let finding = trouble(drive("d1"), Level::Bad);
    let before = picture(&[("0a", finding.clone())]);
    let mut after = over(picture(&[]), "0a", &finding, NOW);
    after.drives.clear();
    assert!(told(Some(&before), &after)[0].2.starts_with("drive sda: over"));
}
