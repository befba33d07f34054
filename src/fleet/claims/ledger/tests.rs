use super::*;
use crate::model::claims::Condition;

fn at(seconds: u64) -> Elapsed {
    Duration::from_secs(seconds)
}

fn claim(name: &str) -> Claim {
    Claim { namespace: "shop".into(), name: name.into(), uid: format!("uid-of-{name}") }
}

fn entry(reason: &str) -> Entry {
    Entry {
        conditions: vec![Condition {
            status: "Inaccessible",
            reason: reason.into(),
            message: String::new(),
        }],
        drives: BTreeSet::new(),
    }
}

fn ledger(written: &[&str]) -> ClaimLedger {
    let pauses = Pauses { refused: at(100), probe: at(100) };
    let written = written.iter().map(|name| (claim(name), entry("Old"))).collect();
    ClaimLedger::new(pauses, written)
}

fn desire(ledger: &mut ClaimLedger, names: &[&str]) {
    ledger.set_desired(names.iter().map(|name| (claim(name), entry("New"))).collect());
}

#[test]
fn what_is_decided_again_while_it_is_being_written_is_written_once() {
    let mut ledger = ledger(&["a"]);
    desire(&mut ledger, &["b"]);
    let raised = ledger.next(at(0)).expect("a write");
    let cleared = ledger.next(at(0)).expect("a write");
    desire(&mut ledger, &["b"]);
    ledger.is_done(&raised.0, raised.1);
    ledger.is_done(&cleared.0, cleared.1);
    assert_eq!(ledger.next(at(0)), None);
}

#[test]
fn what_is_worse_is_written_before_what_is_cleared_and_nothing_twice() {
    let mut ledger = ledger(&["a"]);
    desire(&mut ledger, &["b"]);
    let raised = ledger.next(at(0)).expect("a write");
    assert_eq!(raised, (claim("b"), entry("New")));
    assert_eq!(ledger.next(at(0)), Some((claim("a"), Entry::default())));
    assert_eq!(ledger.next(at(0)), None);
    desire(&mut ledger, &["b"]);
    assert_eq!(ledger.next(at(0)), None, "both are in flight");
    ledger.is_done(&claim("b"), raised.1);
    ledger.is_done(&claim("a"), Entry::default());
    desire(&mut ledger, &["b"]);
    assert_eq!((ledger.next(at(0)), ledger.backlog()), (None, 0));
}

#[test]
fn a_claim_with_a_foreign_manager_is_left_alone_for_long_and_reported_once() {
    let mut ledger = ledger(&[]);
    desire(&mut ledger, &["a", "b"]);
    ledger.next(at(0)).expect("a write");
    assert!(ledger.refuse(&claim("a"), at(0)));
    assert!(ledger.next(at(1)).is_some_and(|(next, _)| next == claim("b")));
    assert_eq!(ledger.next(at(99)), None);
    assert!(ledger.next(at(100)).is_some_and(|(next, _)| next == claim("a")));
    assert!(!ledger.refuse(&claim("a"), at(100)));
}

#[test]
fn a_server_without_support_gets_one_probe_after_a_long_time_and_clears_at_once() {
    let mut ledger = ledger(&["old"]);
    desire(&mut ledger, &["a", "b"]);
    ledger.next(at(0)).expect("a write");
    assert!(ledger.is_not_kept(&claim("a"), at(0)));
    assert_eq!(ledger.next(at(1)), Some((claim("old"), Entry::default())));
    assert_eq!(ledger.next(at(1)), None);
    let (probe, wanted) = ledger.next(at(100)).expect("a probe");
    assert_eq!(ledger.next(at(100)), None, "one probe");
    ledger.is_done(&probe, wanted);
    assert!(ledger.next(at(101)).is_some(), "the others follow");
}

#[test]
fn a_change_during_a_write_is_written_after_it() {
    let mut ledger = ledger(&[]);
    desire(&mut ledger, &["a"]);
    let (first, wanted) = ledger.next(at(0)).expect("a write");
    desire(&mut ledger, &[]);
    assert_eq!(ledger.next(at(0)), None);
    ledger.is_done(&first, wanted);
    assert_eq!(ledger.next(at(0)), Some((claim("a"), Entry::default())));
}
