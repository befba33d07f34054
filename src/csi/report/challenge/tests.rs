use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::report::Outage;
use crate::report::transitions::tests::{at, snapshot};

#[test]
fn a_challenge_is_what_has_a_nonce_and_is_answered_by_the_same_nonce() {
    let asked = |spec: Value, status: Value| {
        asked_by(&json!({"spec": spec, "status": {"challenge": status}}))
    };
    assert_eq!(asked(json!({}), Value::Null), Asked::Nothing);
    assert_eq!(asked(json!({"challenge": {"nonce": ""}}), Value::Null), Asked::Nothing);
    // Of a version that we do not know.
    assert_eq!(asked(json!({"challenge": {"nonce": {"a": 1}}}), Value::Null), Asked::Nothing);
    for (status, answered) in
        [(Value::Null, false), (json!({"nonce": "a"}), false), (json!({"nonce": "b"}), true)]
    {
        let spec = json!({"challenge": {"nonce": "b", "novelty": 1, "driveIDs": ["d"]}});
        let Asked::Challenge { challenge, is_answered } = asked(spec, status) else {
            panic!("a challenge")
        };
        assert_eq!((is_answered, challenge.drive_ids), (answered, vec!["d".to_owned()]));
    }
}

#[test]
fn an_answer_stays_until_there_is_another_or_no_challenge() {
    let stored = ChallengeAnswer { nonce: "a".into(), ..ChallengeAnswer::default() };
    let newer = ChallengeAnswer { nonce: "b".into(), ..ChallengeAnswer::default() };
    let stored = Some(&stored);
    assert_eq!(AnswerState::initial(true).apply(stored), stored);
    assert_eq!(AnswerState::initial(false).apply(stored), None);
    let set = AnswerState::Set(Arc::new(newer.clone()));
    assert_eq!(set.apply(stored), Some(&newer));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_run_of_the_daemon_than_the_rest_of_the_object_is_none() {
    let mut of_run = snapshot(&[]);
    of_run.node.boot_id = "boot".into();
    of_run.node.started = Some(at(10));
    let node = |boot: &str, started: i64| wire::Node {
        boot_id: boot.into(),
        started: Some(prost_types::Timestamp { seconds: at(started).as_second(), nanos: 0 }),
        ..wire::Node::default()
    };
    let (view, mut views) =
        watch::channel(DaemonView { snapshot: Some(Arc::new(of_run.clone())), outage: None });
    let until = || Instant::now() + Duration::from_secs(40);
    let same = node("boot", 10);
    wait_for_same_run(&mut views, Some(&same), until()).await.expect("the same");
    for other in [Some(node("another", 10)), Some(node("boot", 11)), None] {
        wait_for_same_run(&mut views, other.as_ref(), until()).await.expect_err("another run");
    }
    // The snapshot of the run before is no basis.
    view.send_modify(|view| {
        view.outage = Some(Outage { since: Instant::now(), why: "gone".into() });
    });
    wait_for_same_run(&mut views, Some(&same), until()).await.expect_err("it is away");
    // The view of the new run may come a little later than its answer.
    let later = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        of_run.node.started = Some(at(11));
        view.send_replace(DaemonView { snapshot: Some(Arc::new(of_run)), outage: None });
        view
    });
    wait_for_same_run(&mut views, Some(&node("boot", 11)), until()).await.expect("it follows");
    later.await.expect("no panic");
}
