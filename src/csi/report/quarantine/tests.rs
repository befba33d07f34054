use serde_json::{Value, json};

use super::*;
use diskvitals_wire::pod_cleaning::State;

fn quarantine(pods: &[&str]) -> Quarantine {
    Quarantine {
        id: "q-1".into(),
        pod_uids: pods.iter().map(ToString::to_string).collect(),
        ..Quarantine::default()
    }
}

fn cleaning(pods: &[(&str, State)]) -> wire::StaleCleaning {
    wire::StaleCleaning {
        node: Some(wire::Node { settled: true, boot_id: "boot-1".into(), ..wire::Node::default() }),
        orders_allowed: true,
        pods: pods
            .iter()
            .map(|(uid, state)| wire::PodCleaning {
                pod_uid: (*uid).into(),
                state: (*state).into(),
                detail: "why".into(),
            })
            .collect(),
        ..wire::StaleCleaning::default()
    }
}

fn reason(quarantine: &Quarantine, cleaning: wire::StaleCleaning) -> CleanReason {
    answer(quarantine, cleaning).reason
}

#[test]
fn a_node_is_clean_when_each_pod_is_absent_or_cleaned_and_nothing_else_is_left() {
    let two = quarantine(&["a", "b"]);
    let clean = cleaning(&[("a", State::Absent), ("b", State::Cleaned)]);
    let answered = answer(&two, clean.clone());
    assert_eq!(
        (answered.reason, answered.id.as_str(), answered.boot_id.as_str()),
        (CleanReason::ProvenClean, "q-1", "boot-1")
    );
    let left = wire::StaleCleaning { left: vec!["/x: staged".into()], ..clean };
    assert_eq!(reason(&two, left), CleanReason::StaleAttachments);
}

#[test]
fn ignorance_is_never_clean() {
    let one = quarantine(&["a"]);
    let clean = || cleaning(&[("a", State::Absent)]);
    assert_eq!(reason(&one, clean()), CleanReason::ProvenClean);
    // A pod without an answer, and an answer of a newer daemon.
    assert_eq!(reason(&one, cleaning(&[])), CleanReason::NoAnswer);
    let other = cleaning(&[("b", State::Absent)]);
    assert_eq!(reason(&one, other), CleanReason::NoAnswer);
    let newer = cleaning(&[("a", State::Unspecified)]);
    assert_eq!(reason(&one, newer), CleanReason::NoAnswer);
    let mut of_nobody = clean();
    of_nobody.node = None;
    assert_eq!(reason(&one, of_nobody), CleanReason::NotSettled);
    let mut unsettled = clean();
    unsettled.node.as_mut().expect("one").settled = false;
    assert_eq!(reason(&one, unsettled), CleanReason::NotSettled);
    let mut bootless = clean();
    bootless.node.as_mut().expect("one").boot_id.clear();
    assert_eq!(reason(&one, bootless), CleanReason::Unreadable);
    let unreadable = wire::StaleCleaning { unreadable: "EIO".into(), ..clean() };
    assert_eq!(reason(&one, unreadable), CleanReason::Unreadable);
}

#[test]
fn every_state_that_is_not_clean_has_its_reason_and_the_first_of_several_is_shown() {
    let one = quarantine(&["a"]);
    for (state, expected) in [
        (State::Cleaning, CleanReason::Cleaning),
        (State::Held, CleanReason::Held),
        (State::Hung, CleanReason::Hung),
        (State::Foreign, CleanReason::Foreign),
        (State::Unreadable, CleanReason::Unreadable),
        (State::InUse, CleanReason::InUse),
        (State::Failed, CleanReason::Failed),
        (State::OrdersOff, CleanReason::OrdersOff),
    ] {
        let answered = answer(&one, cleaning(&[("a", state)]));
        assert_eq!(answered.reason, expected);
        assert_eq!(answered.message, "pod a: why");
    }
    let two = quarantine(&["a", "b"]);
    let answered = answer(&two, cleaning(&[("a", State::Foreign), ("b", State::Hung)]));
    assert_eq!(answered.reason, CleanReason::Hung);
    assert_eq!(answered.message, "pod b: why; Foreign: pod a: why");
    let uids: Vec<String> = (0..64).map(|at| format!("pod-{at}")).collect();
    let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
    let states: Vec<(&str, State)> = uids.iter().map(|uid| (*uid, State::Held)).collect();
    let answered = answer(&quarantine(&uids), cleaning(&states));
    assert!(answered.message.len() < 820, "{}", answered.message);
    assert!(answered.message.ends_with(" more)"), "{}", answered.message);
}

#[test]
fn what_is_left_of_each_pod_is_listed_with_the_volumes_of_its_paths() {
    let root = "/var/lib/kubelet/pods/a/volumes/kubernetes.io~csi";
    let of = |detail: &str| {
        let mut cleaning = cleaning(&[("a", State::Held), ("b", State::Absent)]);
        cleaning.pods[0].detail = detail.to_owned();
        cleaning.left = vec!["/var/lib/kubelet/pods/c/volumes/x/pv-3/mount: no pod".to_owned()];
        answer(&quarantine(&["a", "b"]), cleaning).remaining
    };
    let left = of(&format!(
        "7 (sh) has {root}/pv-2/mount/pods/a/volumes/x/pv-9 open, {root}/pv-1/mount: b"
    ));
    assert_eq!(left[0].persistent_volumes, ["pv-1", "pv-2"]);
    assert_eq!((left[0].pod_uid.as_str(), left[0].reason.as_str()), ("a", "Held"));
    assert_eq!((left[1].pod_uid.as_str(), left[1].reason.as_str()), ("", "StaleAttachments"));
    assert_eq!(left[1].persistent_volumes, ["pv-3"]);
    assert_eq!(left.len(), 2);
    let block = of("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv-4/a: by");
    assert_eq!(block[0].persistent_volumes, ["pv-4"]);
    // Paths of another pod, and of none.
    let others = of("812 (/volumes/x/pv-5) runs in its container, /pods/b/volumes/x/pv-6");
    assert_eq!(others[0].persistent_volumes, Vec::<String>::new());
    let mut unread = cleaning(&[("a", State::Unreadable)]);
    unread.unreadable = "EIO".into();
    assert_eq!(answer(&quarantine(&["a"]), unread).remaining, []);
}

#[test]
fn a_cut_list_is_clean_in_another_boot_only() {
    let clean = || cleaning(&[("a", State::Absent)]);
    let cut =
        |boot: &str| Quarantine { truncated: true, boot_id: boot.into(), ..quarantine(&["a"]) };
    assert_eq!(reason(&cut(""), clean()), CleanReason::Truncated);
    assert_eq!(reason(&cut("boot-1"), clean()), CleanReason::Truncated);
    assert_eq!(reason(&cut("boot-0"), clean()), CleanReason::ProvenClean);
    // By proof as well.
    let held = cleaning(&[("a", State::Held)]);
    assert_eq!(reason(&cut("boot-0"), held), CleanReason::Held);
}

fn ordered(spec: Value) -> Ordered {
    ordered_by(&StorageObject::Present(Arc::new(json!({"spec": spec}))))
}

#[test]
fn a_quarantine_that_cannot_be_read_is_none_that_is_answered() {
    assert_eq!(ordered(json!({})), Ordered::Nothing);
    assert_eq!(ordered_by(&StorageObject::Absent), Ordered::Nothing);
    assert_eq!(ordered_by(&StorageObject::Unknown), Ordered::Unknown);
    let read = ordered(json!({"quarantine": {"id": "q-1", "podUIDs": ["a"], "novelty": 1}}));
    assert_eq!(read, Ordered::Quarantine(quarantine(&["a"])));
    for odd in [json!({"podUIDs": ["a"]}), json!({"id": ""}), json!({"id": 7})] {
        let read = ordered(json!({"quarantine": odd}));
        assert!(matches!(read, Ordered::Unreadable(_)), "{read:?}");
    }
}

fn timing() -> ReportTiming {
    ReportTiming::default()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stays_unclean_is_an_event_once_for_each_reason_and_says_what_to_do() {
    let (states, _kept) = watch::channel(QuarantineState::Unknown);
    let (events, mut published) = mpsc::channel(8);
    let mut present = Present::new(quarantine(&["a"]), None, &timing());
    let asked = |state| Ok(answer(&quarantine(&["a"]), cleaning(&[("a", state)])));
    let record = |present: &mut Present, state| present.record(asked(state), "n", &states, &events);
    assert!(!record(&mut present, State::Held));
    published.try_recv().expect_err("not yet");
    tokio::time::advance(timing().unclean_after).await;
    for state in [State::Held, State::Held, State::Hung] {
        assert!(!record(&mut present, state));
    }
    let first = published.try_recv().expect("an event");
    assert_eq!(first.reason, "AttachmentsUnclean");
    assert!(
        first.note.contains("Held: pod a: why; end the process, or restart the node"),
        "{}",
        first.note
    );
    assert!(published.try_recv().expect("another reason").note.contains("Hung"));
    published.try_recv().expect_err("once for each");
    // The same quarantine with other pods does not begin anew.
    let mut again = Present::new(quarantine(&["a", "b"]), Some(present), &timing());
    record(&mut again, State::Held);
    published.try_recv().expect_err("once for each");
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_takes_the_proof_back() {
    let (states, state) = watch::channel(QuarantineState::Unknown);
    let (events, _published) = mpsc::channel(8);
    let mut present = Present::new(quarantine(&["a"]), None, &timing());
    let clean = answer(&quarantine(&["a"]), cleaning(&[("a", State::Absent)]));
    assert!(present.record(Ok(clean), "n", &states, &events));
    assert!(matches!(&*state.borrow(), QuarantineState::Answered(_)));
    assert!(!present.record(Err(Status::unavailable("gone")), "n", &states, &events));
    let why = match &*state.borrow() {
        QuarantineState::NoAnswer(why) => why.clone(),
        other => panic!("{other:?}"),
    };
    assert!(why.contains("gone"), "{why}");
}
