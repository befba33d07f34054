mod drive_failure;

use proptest::prelude::*;

use super::*;
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::{Evidence, MAX_EVIDENCE, SeenLevel, Status, WitnessKind};

/// By whom, and why.
fn known() -> (String, String) {
    ("uid 0".to_owned(), "known".to_owned())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn volume(name: &str) -> Subject {
    Subject::Volume(VolumeId::filesystem(name))
}

fn raised(severity: Severity, status: Status, text: &str) -> FindingDetails {
    let evidence = vec![Evidence {
        source: "statfs /data".to_owned(),
        time: at(0),
        text: text.to_owned(),
        witness: WitnessKind::Other,
        present: false,
    }];
    FindingDetails {
        severity,
        status,
        message: text.to_owned(),
        evidence,
        clears_when: "it answers".to_owned(),
        advice: None,
        since: None,
        of_drive_failure: false,
    }
}

fn judgement(verdict: Verdict) -> Vec<Judgement> {
    vec![Judgement { subject: volume("a"), reason: Reason::NotAccessible, verdict }]
}

fn bad(text: &str) -> Vec<Judgement> {
    judgement(Verdict::Raised(raised(Severity::Bad, Status::Inaccessible, text)))
}

fn suspect(text: &str) -> Vec<Judgement> {
    judgement(Verdict::Raised(raised(Severity::Suspect, Status::Degraded, text)))
}

fn only(ledger: &Ledger) -> Finding {
    let mut active = ledger.active();
    let finding = active.next().unwrap();
    assert!(active.next().is_none());
    (**finding).clone()
}

fn kinds(transitions: &[Transition]) -> Vec<TransitionKind> {
    transitions.iter().map(|transition| transition.kind).collect()
}

#[test]
fn a_finding_raised_again_gets_a_new_id_even_with_the_same_since() {
    let mut ledger = Ledger::default();
    let again = || {
        let mut raised = raised(Severity::Bad, Status::Inaccessible, "gone");
        raised.since = Some(at(-5));
        judgement(Verdict::Raised(raised))
    };
    ledger.apply(again(), at(0));
    let first = only(&ledger);
    assert_eq!(first.since, at(-5));
    assert_eq!(kinds(&ledger.apply(judgement(Verdict::Clear), at(1))), [TransitionKind::Cleared]);
    assert_eq!(ledger.history()[0].cleared.as_ref().unwrap().time, at(1));
    ledger.apply(again(), at(2));
    let second = only(&ledger);
    ledger.apply(judgement(Verdict::Clear), at(2));
    ledger.apply(again(), at(2));
    assert!(first.id != second.id && second.id != only(&ledger).id);
    assert_eq!(second.since, at(-5));
}

#[test]
fn a_since_in_the_future_becomes_now() {
    let mut ledger = Ledger::default();
    let mut raised = raised(Severity::Bad, Status::Inaccessible, "gone");
    raised.since = Some(at(100));
    ledger.apply(judgement(Verdict::Raised(raised)), at(0));
    assert_eq!(only(&ledger).since, at(0));
}

#[test]
fn worsening_counts_and_ends_the_acknowledgement_and_easing_does_neither() {
    let mut ledger = Ledger::default();
    ledger.apply(suspect("x"), at(0));
    let id = only(&ledger).id;
    ledger.acknowledge(&id, known(), SeenLevel::default(), at(1)).unwrap();
    assert!(ledger.apply(suspect("y"), at(2)).is_empty());
    assert!(only(&ledger).acknowledged.is_some());
    let worse = ledger.apply(bad("z"), at(3));
    assert_eq!(
        (kinds(&worse), worse[0].from, worse[0].to),
        (vec![TransitionKind::Worsened], Some(Severity::Suspect), Some(Severity::Bad))
    );
    assert!(only(&ledger).acknowledged.is_none());
    assert_eq!(only(&ledger).count, 2);
    ledger.acknowledge(&id, known(), SeenLevel::default(), at(4)).unwrap();
    assert_eq!(kinds(&ledger.apply(suspect("x"), at(5))), [TransitionKind::Eased]);
    assert!(only(&ledger).acknowledged.is_some());
    assert_eq!((only(&ledger).count, only(&ledger).id), (2, id));
}

#[test]
fn what_has_become_worse_since_it_was_seen_is_not_acknowledged() {
    let mut ledger = Ledger::default();
    ledger.apply(suspect("x"), at(0));
    let listed = only(&ledger);
    let seen = SeenLevel { severity: Some(listed.severity), status: Some(listed.status) };
    ledger.apply(bad("y"), at(1));
    assert_eq!(
        ledger.acknowledge(&listed.id, known(), seen, at(2)),
        Err(LedgerError::Worsened(listed.id.clone()))
    );
    assert!(only(&ledger).acknowledged.is_none());
    // A finding that has become milder is as acceptable as it was.
    ledger.apply(suspect("x"), at(3));
    assert!(ledger.acknowledge(&listed.id, known(), seen, at(4)).is_ok());
}

#[test]
fn a_named_repair_is_why_a_finding_clears_unless_it_has_become_worse_since() {
    let of_errors = |severity| {
        vec![Judgement {
            subject: volume("a"),
            reason: Reason::IoErrors,
            verdict: Verdict::Raised(raised(severity, Status::Degraded, "x")),
        }]
    };
    let over = || {
        vec![Judgement { subject: volume("a"), reason: Reason::IoErrors, verdict: Verdict::Clear }]
    };
    let cleared_why = |ledger: &mut Ledger| {
        let cleared = ledger.apply(over(), at(9)).remove(0).finding.cleared.clone();
        cleared.expect("cleared").why
    };
    let seen = SeenLevel::default();
    let mut ledger = Ledger::default();
    ledger.apply(of_errors(Severity::Suspect), at(0));
    let id = only(&ledger).id;
    assert!(ledger.acknowledge_repair(&id, known(), seen, at(1)).is_ok());
    assert_eq!(cleared_why(&mut ledger), "repaired: known, acknowledged by uid 0");
    ledger.apply(of_errors(Severity::Suspect), at(10));
    let id = only(&ledger).id;
    assert!(ledger.acknowledge_repair(&id, known(), seen, at(11)).is_ok());
    ledger.apply(of_errors(Severity::Bad), at(12));
    assert_eq!(cleared_why(&mut ledger), "the condition is over");
    // What is so now is not ended by a word.
    ledger.apply(bad("x"), at(20));
    let id = only(&ledger).id;
    assert_eq!(
        ledger.acknowledge_repair(&id, known(), seen, at(21)),
        Err(LedgerError::NotOfErrors(id, Reason::NotAccessible))
    );
    assert!(only(&ledger).acknowledged.is_none());
}

#[test]
fn acknowledging_an_unknown_finding_is_an_error() {
    let mut ledger = Ledger::default();
    let id = FindingId::known("nope");
    assert_eq!(
        ledger.acknowledge(&id, known(), SeenLevel::default(), at(0)),
        Err(LedgerError::NoSuchFinding(id.clone()))
    );
    ledger.apply(bad("x"), at(0));
    let id = only(&ledger).id;
    assert_eq!(ledger.unacknowledge(&id), Err(LedgerError::NotAcknowledged(id.clone())));
}

#[test]
fn removed_subjects_have_no_findings() {
    let mut ledger = Ledger::default();
    ledger.apply(bad("x"), at(0));
    assert!(ledger.clear_subjects(|_| false, at(1)).is_empty());
    let gone = ledger.clear_subjects(|subject| *subject == volume("a"), at(1));
    assert_eq!(
        gone[0].finding.cleared.as_ref().unwrap().why,
        "no longer applicable: it is no longer there"
    );
    assert_eq!(ledger.active().count(), 0);
}

#[test]
fn a_restored_finding_keeps_its_id_and_acknowledgement() {
    let mut before = Ledger::default();
    before.apply(bad("x"), at(0));
    let old = only(&before);
    before.acknowledge(&old.id, known(), SeenLevel::default(), at(1)).unwrap();
    let mut after = Ledger::default();
    after.apply(bad("x"), at(50));
    let young = only(&after).id;
    assert_eq!(after.restore(vec![only(&before)], at(51)), [young]);
    assert_eq!((only(&after).id, only(&after).since), (old.id, at(0)));
    assert!(only(&after).acknowledged.is_some());
    assert!(after.apply(bad("x"), at(52)).is_empty());
}

#[test]
fn history_is_bounded_by_number_and_age() {
    let mut ledger = Ledger::default();
    for round in 0..20 {
        ledger.apply(bad("x"), at(round * 10));
        ledger.apply(judgement(Verdict::Clear), at(round * 10 + 1));
    }
    let bounds = RetentionLimits { max_age: Duration::from_secs(1000), max_count: 5 };
    assert_eq!(ledger.prune(bounds, at(200)).len(), 15);
    assert_eq!(ledger.history()[0].cleared.as_ref().unwrap().time, at(191));
    assert!(ledger.prune(bounds, at(200)).is_empty());
    assert_eq!(ledger.prune(bounds, at(1165)).len(), 2);
}

/// Raises and clears one finding.
fn past(ledger: &mut Ledger, subject: &Subject, second: i64, is_user_made: bool) {
    let judged =
        |verdict| vec![Judgement { subject: subject.clone(), reason: Reason::OutOfSpace, verdict }];
    let full = raised(Severity::Bad, Status::Degraded, "full");
    ledger.apply(judged(Verdict::Raised(full)), at(second));
    let ended = ledger.apply(judged(Verdict::Clear), at(second + 1));
    assert_eq!(ended.len(), 1);
    ledger.note_origins(&ended, |_| is_user_made);
}

fn count(ledger: &Ledger, is_wanted: impl Fn(&Finding) -> bool) -> usize {
    let history = ledger.history().iter();
    history.filter(|finding| is_wanted(finding)).count()
}

#[test]
fn what_users_make_fills_at_most_half_of_the_history_and_leaves_the_rest_to_the_node() {
    let bounds = RetentionLimits { max_count: 50, ..RetentionLimits::default() };
    let is_own = |finding: &Finding| finding.subject == volume("srv");
    let mut ledger = Ledger::default();
    past(&mut ledger, &volume("srv"), 0, false);
    for number in 0..500 {
        // Always another one, or always the same ones.
        let name = format!("user{}", if number % 2 == 0 { number } else { 7 });
        past(&mut ledger, &volume(&name), 10 + number, true);
        ledger.prune(bounds, at(1000));
    }
    assert_eq!(ledger.history().len(), 50, "room that nobody else needs");
    assert_eq!(count(&ledger, is_own), 1);
    for number in 0..500 {
        past(&mut ledger, &volume("srv"), 2000 + number * 2, false);
        ledger.prune(bounds, at(4000));
    }
    assert_eq!(count(&ledger, is_own), 25);
    assert_eq!(ledger.history().len(), 50);
}

#[test]
fn a_subject_that_fails_again_and_again_pushes_no_other_out_of_the_history() {
    let bounds = RetentionLimits { max_count: 50, ..RetentionLimits::default() };
    let mut ledger = Ledger::default();
    for number in 0..20 {
        past(&mut ledger, &volume(&format!("v{number}")), number, false);
    }
    for number in 0..500 {
        past(&mut ledger, &volume("flapping"), 100 + number * 2, false);
        assert!(ledger.prune(bounds, at(2000)).len() <= 1);
    }
    assert_eq!(count(&ledger, |it| it.subject != volume("flapping")), 20);
    assert_eq!(ledger.history().len(), 50);
    let newest = ledger.history()[0].cleared.as_ref().unwrap().time;
    assert_eq!(newest, at(100 + 499 * 2 + 1));
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    let severity = prop_oneof![Just(Severity::Info), Just(Severity::Suspect), Just(Severity::Bad)];
    let status =
        prop_oneof![Just(Status::Degraded), Just(Status::Inaccessible), Just(Status::DataLoss)];
    let evidence = proptest::collection::vec(0..20u8, 0..12);
    prop_oneof![
        Just(Verdict::Clear),
        "[ab]".prop_map(|why| Verdict::Unknown { why }),
        (severity, status, "[xyz]", evidence).prop_map(|(severity, status, text, evidence)| {
            let record = |n: u8| Evidence {
                source: "s".to_owned(),
                time: at(0),
                text: n.to_string(),
                witness: WitnessKind::Other,
                present: false,
            };
            Verdict::Raised(FindingDetails {
                evidence: evidence.into_iter().map(record).collect(),
                ..raised(severity, status, &text)
            })
        }),
    ]
}

fn any_judgements() -> impl Strategy<Value = Vec<Judgement>> {
    let reason = prop_oneof![Just(Reason::NotAccessible), Just(Reason::OutOfSpace)];
    let judgement = ("[abc]", reason, any_verdict())
        .prop_map(|(name, reason, verdict)| Judgement { subject: volume(&name), reason, verdict });
    proptest::collection::vec(judgement, 0..12)
}

fn contents(ledger: &Ledger) -> Vec<Finding> {
    ledger.active().chain(ledger.history().iter()).map(|finding| (**finding).clone()).collect()
}

proptest! {
    #[test]
    fn no_sequence_of_unknown_clears_or_raises(rounds in proptest::collection::vec(any_judgements(), 0..4), unknown in any_judgements(), times in 1..20i64) {
        let mut ledger = Ledger::default();
        for (n, round) in rounds.into_iter().enumerate() {
            ledger.apply(round, at(n as i64));
        }
        let before = contents(&ledger);
        for n in 0..times {
            let all = unknown.iter().map(|j| Judgement { verdict: Verdict::Unknown { why: "no answer".to_owned() }, ..j.clone() });
            prop_assert!(ledger.apply(all.collect(), at(100 + n * 1000)).is_empty());
        }
        prop_assert_eq!(before, contents(&ledger));
    }

    #[test]
    fn applying_the_same_judgements_twice_changes_nothing(rounds in proptest::collection::vec(any_judgements(), 1..4)) {
        let mut ledger = Ledger::default();
        for (n, round) in rounds.into_iter().enumerate() {
            ledger.apply(round.clone(), at(n as i64 * 100));
            let before = contents(&ledger);
            prop_assert!(ledger.apply(round, at(n as i64 * 100 + 30)).is_empty());
            prop_assert_eq!(before, contents(&ledger));
        }
    }

    #[test]
    fn the_order_of_judgements_does_not_matter(
        (said, shuffled) in any_judgements().prop_flat_map(|said| (Just(said.clone()), Just(said).prop_shuffle())),
        before in any_judgements(),
    ) {
        let mut one = Ledger::default();
        one.apply(before, at(0));
        let mut other = one.clone();
        prop_assert_eq!(one.apply(said, at(1)), other.apply(shuffled, at(1)));
        prop_assert_eq!(contents(&one), contents(&other));
    }

    #[test]
    fn evidence_is_bounded_and_keeps_the_first_record(rounds in proptest::collection::vec(any_judgements(), 1..8)) {
        let mut ledger = Ledger::default();
        let mut firsts = BTreeMap::new();
        for (n, round) in rounds.into_iter().enumerate() {
            ledger.apply(round, at(n as i64));
            for finding in ledger.active() {
                prop_assert!(finding.evidence.len() <= MAX_EVIDENCE);
                if let Some(first) = finding.evidence.first() {
                    prop_assert_eq!(firsts.entry(finding.id.clone()).or_insert_with(|| first.clone()), first);
                }
            }
        }
    }
}

/// A finding whose evidence is a record and a scan; the scan's holds.
fn witnessed() -> Vec<Judgement> {
    let mut details = raised(Severity::Bad, Status::Inaccessible, "gone");
    details.evidence[0].witness = WitnessKind::KernelLog;
    details.evidence.push(Evidence {
        source: "/sys/class/block".to_owned(),
        time: at(0),
        text: "not there".to_owned(),
        witness: WitnessKind::Inventory,
        present: true,
    });
    judgement(Verdict::Raised(details))
}

fn present(ledger: &Ledger) -> Vec<WitnessKind> {
    let findings = ledger.active().chain(ledger.history().iter());
    let evidence = findings.flat_map(|finding| &finding.evidence);
    let present = evidence.filter(|evidence| evidence.present);
    present.map(|evidence| evidence.witness).collect()
}

#[test]
fn evidence_holds_as_long_as_the_newest_judgement_says_so() {
    let mut ledger = Ledger::default();
    ledger.apply(witnessed(), at(1));
    assert_eq!(present(&ledger), [WitnessKind::Inventory]);
    // A source that fails leaves the finding, and no witness.
    let unknown = Verdict::Unknown { why: "no sysfs".to_owned() };
    let transitions = ledger.apply(judgement(unknown), at(2));
    assert!(transitions.is_empty() && ledger.active().count() == 1);
    assert_eq!(present(&ledger), []);
    ledger.apply(witnessed(), at(3));
    assert_eq!(present(&ledger), [WitnessKind::Inventory]);
    // Not judged at all.
    ledger.apply(Vec::new(), at(4));
    assert_eq!(present(&ledger), []);
    ledger.apply(witnessed(), at(5));
    ledger.apply(judgement(Verdict::Clear), at(6));
    assert_eq!((ledger.active().count(), present(&ledger)), (0, Vec::new()));
}

#[test]
fn a_finding_of_an_earlier_run_has_no_witness_before_it_is_judged_again() {
    let mut before = Ledger::default();
    before.apply(witnessed(), at(1));
    let stored = serde_json::to_string(&before.active().collect::<Vec<_>>()).unwrap();
    // A row of a version that did not name the kind, and of one that names a newer one.
    let old = stored.replace(r#","witness":"inventory""#, "");
    let newer = stored.replace(r#""witness":"inventory""#, r#""witness":"oracle""#);
    assert_ne!(old, stored);
    for rows in [stored, old, newer] {
        let mut ledger = Ledger::default();
        ledger.restore(serde_json::from_str(&rows).unwrap(), at(10));
        assert_eq!(present(&ledger), []);
        ledger.apply(witnessed(), at(11));
        assert_eq!(present(&ledger), [WitnessKind::Inventory]);
        let finding = ledger.active().next().unwrap();
        assert_eq!((finding.evidence.len(), finding.evidence[1].time), (2, at(0)));
    }
}
