use std::collections::BTreeSet;

use super::*;
use crate::csi::report::picture::{Cleared, Drive, Volume};

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
    let health = Health::Good;
    let of_host = Volume {
        name: "filesystem /".into(),
        health,
        why: String::new(),
        pods: vec![],
        claimed: vec![],
        state: None,
        drives: vec![],
    };
    let pods = vec![PodOf {
        uid: "u1".into(),
        name: "web".into(),
        namespace: "shop".into(),
    }];
    let claimed = vec![Claimed {
        pv: "pv1".into(),
        namespaces: BTreeSet::from(["shop".into()]),
    }];
    let sda = Drive {
        name: "drive sda".into(),
        health,
        why: String::new(),
        maintenance: false,
        unasked: None,
        answered: true,
    };
    Picture {
        health,
        settled: true,
        drives: [("d1".to_owned(), sda)].into(),
        volumes: [
            ("fs:root".to_owned(), of_host.clone()),
            (
                "v1".to_owned(),
                Volume {
                    name: "volume pv1".into(),
                    pods,
                    claimed,
                    drives: vec!["d1".into()],
                    ..of_host
                },
            ),
        ]
        .into(),
        troubles: troubles
            .iter()
            .map(|(id, trouble)| ((*id).to_owned(), trouble.clone()))
            .collect(),
        over: Default::default(),
    }
}

fn over(mut picture: Picture, id: &str, trouble: &Trouble, second: i64) -> Picture {
    let cleared = Some(Cleared {
        time: at(second),
        why: "seen to be over".into(),
    });
    picture.over.insert(
        id.into(),
        Trouble {
            cleared,
            ..trouble.clone()
        },
    );
    picture
}

/// To whom, what, and in which words.
fn lines(before: Option<&Picture>, after: &Picture) -> Vec<(String, Kind, String)> {
    let to = |about: &About| match about {
        About::Node => "node".to_owned(),
        About::Pod(pod) => format!("pod {}/{}", pod.namespace, pod.name),
        About::Claim(claimed) => format!("claim of {}", claimed.pv),
    };
    news(before, after, at(NOW))
        .into_iter()
        .map(|news| (to(&news.about), news.kind, news.note))
        .collect()
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
        one(
            "pod shop/web",
            Kind::Raised,
            "volume pv1: it says that it fails",
        ),
        one(
            "claim of pv1",
            Kind::Raised,
            "volume pv1: it says that it fails",
        ),
    ];
    assert_eq!(lines(Some(&before), &after), expected);
    assert_eq!(lines(Some(&after), &after), []);
}

#[test]
fn a_volume_whose_pods_have_no_names_is_told_to_the_node_as_well_as_to_its_claim() {
    let mut after = picture(&[("0b", trouble(volume("v1"), Level::Bad))]);
    after.volumes.get_mut("v1").expect("there").pods.clear();
    let mut before = after.clone();
    before.troubles.clear();
    let to: Vec<String> = lines(Some(&before), &after)
        .into_iter()
        .map(|(to, ..)| to)
        .collect();
    assert_eq!(to, ["node", "claim of pv1"]);
}

#[test]
fn a_finding_that_gets_worse_better_and_over_is_told_each_time() {
    let quiet = picture(&[]);
    let suspect = picture(&[("0a", trouble(drive("d1"), Level::Suspect))]);
    let bad = picture(&[(
        "0a",
        Trouble {
            count: 2,
            ..trouble(drive("d1"), Level::Bad)
        },
    )]);
    let kinds = |before, after| {
        lines(Some(before), after)
            .into_iter()
            .map(|(_, kind, _)| kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&quiet, &suspect), [Kind::Raised]);
    assert_eq!(kinds(&suspect, &bad), [Kind::Worsened]);
    assert_eq!(kinds(&bad, &suspect), [Kind::Eased]);
    let done = over(quiet.clone(), "0a", &trouble(drive("d1"), Level::Bad), NOW);
    let note = "drive sda: over, seen to be over. It was: it says that it fails";
    assert_eq!(lines(Some(&bad), &done), [one("node", Kind::Cleared, note)]);
    assert_eq!(lines(Some(&done), &done), []);
    // It came and went between two looks.
    assert_eq!(kinds(&quiet, &done), [Kind::Cleared]);
}

#[test]
fn other_words_numbers_and_acknowledgements_are_no_news() {
    let before = picture(&[("0a", trouble(drive("d1"), Level::Bad))]);
    let again = Trouble {
        message: "now 9".into(),
        acknowledged: true,
        ..trouble(drive("d1"), Level::Bad)
    };
    assert_eq!(lines(Some(&before), &picture(&[("0a", again)])), []);
    let info = picture(&[("0b", trouble(drive("d1"), Level::Info))]);
    assert_eq!(lines(Some(&picture(&[])), &info), []);
    assert_eq!(lines(Some(&info), &picture(&[])), []);
}

#[test]
fn at_the_first_sight_only_what_is_fresh_is_told_and_under_the_name_that_it_had() {
    let fresh = trouble(drive("d1"), Level::Bad);
    let old = Trouble {
        since: Some(at(NOW - 45 * 60 - 1)),
        ..fresh.clone()
    };
    let seen = picture(&[("0a", fresh.clone()), ("0b", old.clone())]);
    let first = news(None, &seen, at(NOW));
    let live = news(
        Some(&picture(&[])),
        &picture(&[("0a", fresh.clone())]),
        at(NOW),
    );
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].key, live[0].key);
    // The same of what is over.
    let done = |second| over(picture(&[]), "0a", &fresh, second);
    assert_eq!(lines(None, &done(NOW - 45 * 60 - 1)), []);
    let first = news(None, &done(NOW), at(NOW + 5));
    let live = news(Some(&seen), &done(NOW), at(NOW));
    assert_eq!((first.len(), &first[0].key), (1, &live[0].key));
}

#[test]
fn each_transition_of_a_finding_has_a_key_of_its_own() {
    let stages = [
        (Level::Suspect, 1),
        (Level::Bad, 2),
        (Level::Suspect, 2),
        (Level::Bad, 3),
        (Level::Suspect, 3),
    ];
    let mut keys = BTreeSet::new();
    let mut before = picture(&[]);
    for (level, count) in stages {
        let after = picture(&[(
            "0a",
            Trouble {
                count,
                ..trouble(drive("d1"), level)
            },
        )]);
        keys.extend(
            news(Some(&before), &after, at(NOW))
                .into_iter()
                .map(|news| news.key),
        );
        before = after;
    }
    assert_eq!(keys.len(), stages.len());
}

#[test]
fn health_that_can_no_longer_be_told_is_told_and_that_it_can_be_again() {
    let good = picture(&[]);
    let mut unknown = picture(&[]);
    *unknown.drives.get_mut("d1").expect("there") = Drive {
        health: Health::Unknown,
        why: "smartctl does not answer".into(),
        ..good.drives["d1"].clone()
    };
    let lost = one(
        "node",
        Kind::Lost,
        "drive sda: how it is cannot be told: smartctl does not answer",
    );
    assert_eq!(lines(Some(&good), &unknown), [lost]);
    assert_eq!(lines(Some(&unknown), &unknown), []);
    let found = one(
        "node",
        Kind::Found,
        "drive sda: how it is can be told again, and nothing is found against it",
    );
    assert_eq!(lines(Some(&unknown), &good), [found]);
    // Who has just come does not know since when it is so.
    assert_eq!(lines(None, &unknown), []);
}

#[test]
fn a_state_is_over_only_where_the_volume_is_known_to_have_it_no_more() {
    let state = Trouble {
        since: None,
        count: 0,
        ..trouble(volume("v1"), Level::Bad)
    };
    let before = picture(&[("state of v1", state)]);
    assert_eq!(lines(None, &before), []);
    assert_eq!(lines(Some(&picture(&[])), &before).len(), 2);
    assert_eq!(lines(Some(&before), &picture(&[])).len(), 2);
    // An acknowledged finding is left.
    let with = |health, state: Option<&str>| {
        let mut picture = picture(&[]);
        let volume = picture.volumes.get_mut("v1").expect("there");
        (volume.health, volume.state) = (health, state.map(str::to_owned));
        picture
    };
    assert_eq!(
        lines(Some(&before), &with(Health::Suspect, Some("NotHealthy"))).len(),
        2
    );
    // A finding says it by now.
    assert_eq!(
        lines(Some(&before), &with(Health::Bad, Some("SmartFailing"))),
        []
    );
    let unknown = with(Health::Unknown, None);
    assert!(
        lines(Some(&before), &unknown)
            .iter()
            .all(|(_, kind, _)| *kind == Kind::Lost)
    );
    let mut gone = picture(&[]);
    gone.volumes.remove("v1");
    assert_eq!(lines(Some(&before), &gone), []);
}

#[test]
fn a_drive_that_is_gone_is_called_as_it_was() {
    let finding = trouble(drive("d1"), Level::Bad);
    let before = picture(&[("0a", finding.clone())]);
    let mut after = over(picture(&[]), "0a", &finding, NOW);
    after.drives.clear();
    assert!(
        lines(Some(&before), &after)[0]
            .2
            .starts_with("drive sda: over")
    );
}

#[test]
fn the_same_trouble_under_another_id_is_no_news_and_is_told_when_it_gets_worse() {
    let before = picture(&[("0a", trouble(drive("d1"), Level::Suspect))]);
    assert_eq!(
        lines(
            Some(&before),
            &picture(&[("0b", trouble(drive("d1"), Level::Suspect))])
        ),
        []
    );
    let worse = picture(&[("0b", trouble(drive("d1"), Level::Bad))]);
    assert_eq!(
        lines(Some(&before), &worse)
            .iter()
            .map(|(_, kind, _)| *kind)
            .collect::<Vec<_>>(),
        [Kind::Worsened]
    );
    // Another reason, or of another drive, is another trouble.
    let other = Trouble {
        reason: "WornOut".into(),
        ..trouble(drive("d1"), Level::Suspect)
    };
    assert_eq!(
        lines(Some(&before), &picture(&[("0b", other)]))
            .last()
            .map(|(_, kind, _)| *kind),
        Some(Kind::Raised)
    );
}

#[test]
fn what_was_over_and_is_there_again_has_its_return_for_the_last_word() {
    let finding = trouble(drive("d1"), Level::Bad);
    let before = picture(&[("0a", finding.clone())]);
    let after = over(picture(&[("0b", finding.clone())]), "0a", &finding, NOW);
    let kinds = |before: &Picture, after: &Picture| {
        lines(Some(before), after)
            .into_iter()
            .map(|(_, kind, _)| kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&before, &after), [Kind::Cleared, Kind::Raised]);
    // Also where the one that was over is of a daemon that had given it another id.
    let after = over(picture(&[("0c", finding.clone())]), "0b", &finding, NOW);
    assert_eq!(kinds(&before, &after), [Kind::Cleared, Kind::Raised]);
}

#[test]
fn what_a_daemon_without_its_history_no_longer_tells_is_over_once_the_thing_is_known_to_be_well() {
    let mut before = picture(&[
        ("0a", trouble(drive("d1"), Level::Bad)),
        ("0b", trouble(volume("v1"), Level::Bad)),
    ]);
    let ended = |before: &Picture, after: &Picture| {
        lines(Some(before), after)
            .into_iter()
            .map(|(to, kind, _)| (to, kind))
            .collect::<Vec<_>>()
    };
    // It has begun anew and has not asked the drive yet.
    let mut unheard = picture(&[]);
    unheard.drives.get_mut("d1").expect("there").answered = false;
    for _ in 0..3 {
        assert_eq!(ended(&before, &unheard), []);
        before = told(&before, &unheard);
    }
    assert_eq!(before.troubles.len(), 2);
    // It says the same of itself, or it says that it is well.
    let again = picture(&[
        ("0c", trouble(drive("d1"), Level::Bad)),
        ("0d", trouble(volume("v1"), Level::Bad)),
    ]);
    assert_eq!(ended(&before, &again), []);
    let expected =
        ["node", "pod shop/web", "claim of pv1"].map(|to| (to.to_owned(), Kind::Cleared));
    assert_eq!(ended(&before, &picture(&[])), expected);
    assert!(told(&before, &picture(&[])).troubles.is_empty());
    // Nothing is left of what is not there any more.
    let mut gone = picture(&[]);
    (gone.drives, gone.volumes) = Default::default();
    assert_eq!(ended(&before, &gone), []);
    assert!(told(&before, &gone).troubles.is_empty());
}
