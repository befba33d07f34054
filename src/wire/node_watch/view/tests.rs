use super::*;

use Change::{Added, Modified, Removed, SnapshotBegin as Begin, SnapshotEnd as End};
use Standing::{Behind, Current, Unsettled};

fn drive(id: &str) -> Option<Item> {
    Some(Item::Drive(Drive { id: id.into(), ..Default::default() }))
}

fn cleared_at(id: &str, seconds: i64) -> Finding {
    let time = Some(prost_types::Timestamp { seconds, nanos: 0 });
    let cleared = Some(crate::Cleared { time, ..Default::default() });
    Finding { id: id.into(), cleared, ..Default::default() }
}

fn event(revision: u64, change: Change, item: Option<Item>) -> WatchEvent {
    WatchEvent { revision, change: change.into(), item, ..Default::default() }
}

fn keys<T>(objects: &BTreeMap<String, T>) -> Vec<&str> {
    objects.keys().map(String::as_str).collect()
}

#[test]
fn a_view_is_current_only_when_it_is_complete_settled_and_as_new_as_the_daemon() {
    let mut view = NodeView::default();
    // The event; the node's revision and whether it is settled; then the drives, where a watch that
    // is interrupted now resumes, and the standing.
    for (revision, change, item, (node, settled), (drives, resume, standing)) in [
        (7, Begin, None, (7, true), (&[][..], 0, Behind)),
        (7, Added, drive("a"), (7, true), (&[], 0, Behind)),
        (7, Added, drive("b"), (0, true), (&[], 0, Behind)),
        (7, End, None, (7, false), (&["a", "b"], 7, Unsettled)),
        (8, Modified, drive("a"), (9, true), (&["a", "b"], 8, Behind)),
        (9, Removed, drive("b"), (9, true), (&["a"], 9, Current)),
        (10, Added, None, (9, true), (&["a"], 10, Current)),
        // Another list, as after a restart or a lag: the old one is kept, and is not current.
        (12, Begin, None, (9, true), (&["a"], 0, Behind)),
        (12, Added, drive("c"), (9, true), (&["a"], 0, Behind)),
        // It was interrupted.
        (14, Begin, None, (9, true), (&["a"], 0, Behind)),
        (14, Added, drive("d"), (9, true), (&["a"], 0, Behind)),
        (14, End, None, (14, true), (&["d"], 14, Current)),
    ] {
        let place = format!("{revision} {change:?}");
        view.apply(event(revision, change, item));
        view.node = Node { revision: node, settled, ..Default::default() };
        assert_eq!(keys(&view.objects.drives), drives, "{place}");
        assert_eq!((view.resume.revision, view.standing()), (resume, standing), "{place}");
    }
}

#[test]
fn the_objects_stay_as_they_are_while_a_list_is_received() {
    let mut view = NodeView::default();
    for (change, is_listing) in [(Begin, true), (Added, true), (End, false), (Added, false)] {
        view.apply(event(1, change, drive("a")));
        assert_eq!(view.is_listing(), is_listing, "{change:?}");
    }
}

#[test]
fn a_finding_is_active_until_an_event_or_a_list_says_that_it_has_cleared() {
    let mut view = NodeView::default();
    let finding = |id: &str| Finding { id: id.into(), ..Default::default() };
    view.apply(event(1, Begin, None));
    view.add_cleared(vec![finding("a"), cleared_at("x", 1)]);
    for id in ["a", "b", "c"] {
        view.apply(event(1, Added, Some(Item::Finding(finding(id)))));
    }
    assert_eq!(keys(&view.objects.cleared), [""; 0], "the list is not complete");
    view.apply(event(1, End, None));
    view.apply(event(2, Removed, Some(Item::Finding(cleared_at("a", 2)))));
    view.apply(event(3, Removed, Some(Item::Finding(finding("b")))));
    assert_eq!(keys(&view.objects.findings), ["c"]);
    assert_eq!(keys(&view.objects.cleared), ["a", "x"]);
}

#[test]
fn the_oldest_cleared_findings_are_forgotten() {
    let mut view = NodeView::default();
    let count = i64::try_from(MAX_CLEARED).expect("a small number");
    for second in 0..=count {
        let finding = cleared_at(&second.to_string(), second);
        view.apply(event(1, Removed, Some(Item::Finding(finding))));
    }
    assert_eq!(view.objects.cleared.len(), MAX_CLEARED);
    assert!(!view.objects.cleared.contains_key("0"));
}
