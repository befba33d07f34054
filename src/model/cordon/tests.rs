use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::fixture::at;
use crate::fixture::{add_finding, published};
use crate::snapshot::NodeContext;
use crate::volume::Stack;
use diskvitals_finding::{Acknowledgement, Subject};

fn drive_of(serial: &str) -> Stack {
    Stack::Drive(DriveId::new(serial))
}

fn mirror(serials: [&str; 2]) -> Stack {
    Stack::Redundant {
        level: "raid1 md0".into(),
        tolerates: 1,
        parts: serials.map(drive_of).to_vec(),
    }
}

/// The pool's folder on `folder`, its volume group on `group`; drives sda (A) to sdd (D).
fn snapshot(folder: Stack, group: Stack) -> Snapshot {
    let context = NodeContext {
        driver: Some("own".into()),
        pool: BTreeMap::from([(BackingKind::Loop, folder), (BackingKind::Lvm, group)]),
        ..NodeContext::default()
    };
    let drives = [("sda", "A"), ("sdb", "B"), ("sdc", "C"), ("sdd", "D")];
    let drives =
        drives.map(|(name, serial)| (DriveId::new(serial), Arc::new(published(name, serial))));
    Snapshot {
        settled: true,
        node_context: Arc::new(context),
        drives: drives.into(),
        ..Snapshot::default()
    }
}

fn edit(snapshot: &mut Snapshot, serial: &str, edit: impl FnOnce(&mut Drive)) {
    let drive = snapshot.drives.get_mut(&DriveId::new(serial));
    edit(Arc::make_mut(drive.expect("there")));
}

fn fail(snapshot: &mut Snapshot, serial: &str, reason: Reason) {
    edit(snapshot, serial, |drive| drive.health = Health::Bad);
    add_finding(snapshot, Subject::Drive(DriveId::new(serial)), reason);
}

fn cordoned(snapshot: &Snapshot, kind: BackingKind) -> Option<(String, Reason)> {
    let cordon = of_pool(snapshot, kind).expect("known");
    cordon.map(|cordon| (cordon.drive.to_string(), cordon.reason))
}

#[test]
fn a_bad_drive_without_redundancy_cordons_what_is_on_it_and_nothing_else() {
    let mut snapshot = snapshot(drive_of("A"), Stack::All(vec![drive_of("B"), drive_of("C")]));
    fail(&mut snapshot, "D", Reason::SmartFailing);
    for kind in [BackingKind::Loop, BackingKind::Lvm] {
        assert_eq!(cordoned(&snapshot, kind), None);
    }
    fail(&mut snapshot, "C", Reason::PendingSectors);
    assert_eq!(cordoned(&snapshot, BackingKind::Loop), None);
    assert_eq!(
        cordoned(&snapshot, BackingKind::Lvm),
        Some(("C".into(), Reason::PendingSectors)),
        "one physical volume of the group"
    );
    assert_eq!(all(&snapshot).count(), 1);
}

#[test]
fn redundancy_that_covers_the_bad_drive_lets_volumes_be_placed() {
    let mut snapshot = snapshot(mirror(["A", "B"]), Stack::Nothing);
    fail(&mut snapshot, "A", Reason::PendingSectors);
    assert_eq!(cordoned(&snapshot, BackingKind::Loop), None);
    fail(&mut snapshot, "B", Reason::MediaErrors);
    let both = of_pool(&snapshot, BackingKind::Loop).expect("known");
    assert_eq!(both.map(|cordon| cordon.others), Some(1));
}

#[test]
fn a_suspect_or_unknown_drive_is_no_cordon() {
    let mut snapshot = snapshot(drive_of("A"), Stack::Nothing);
    for health in [Health::Suspect, Health::Unknown] {
        edit(&mut snapshot, "A", |drive| drive.health = health);
        assert_eq!(cordoned(&snapshot, BackingKind::Loop), None, "{health:?}");
    }
}

#[test]
fn neither_an_acknowledgement_nor_maintenance_lifts_it_and_the_end_of_the_finding_does() {
    let mut snapshot = snapshot(drive_of("A"), Stack::Nothing);
    fail(&mut snapshot, "A", Reason::SmartFailing);
    for finding in snapshot.findings.values_mut() {
        Arc::make_mut(finding).acknowledged = Some(Acknowledgement {
            by: "uid 0 (root)".into(),
            time: at(1),
            note: "ordered".into(),
        });
    }
    edit(&mut snapshot, "A", |drive| drive.maintenance = true);
    assert!(cordoned(&snapshot, BackingKind::Loop).is_some());
    snapshot.findings.clear();
    edit(&mut snapshot, "A", |drive| {
        drive.findings.clear();
        drive.health = Health::Good;
    });
    assert_eq!(cordoned(&snapshot, BackingKind::Loop), None);
}

#[test]
fn before_the_first_complete_look_a_cordon_holds_and_its_absence_is_unknown() {
    let mut snapshot = snapshot(drive_of("A"), Stack::Nothing);
    snapshot.settled = false;
    assert!(of_pool(&snapshot, BackingKind::Loop).is_err());
    fail(&mut snapshot, "A", Reason::SmartFailing);
    assert!(cordoned(&snapshot, BackingKind::Loop).is_some());
    snapshot.settled = true;
    let context = Arc::make_mut(&mut snapshot.node_context);
    context.pool.remove(&BackingKind::Loop);
    assert!(
        of_pool(&snapshot, BackingKind::Loop).is_err(),
        "the devices below the pool are not known"
    );
}

#[test]
fn the_text_names_the_drive_its_slot_the_finding_and_what_to_do() {
    let mut snapshot = snapshot(drive_of("A"), Stack::Nothing);
    edit(&mut snapshot, "A", |drive| {
        drive.facts.location.slot = Some("3".into());
    });
    fail(&mut snapshot, "A", Reason::SmartFailing);
    let cordon = of_pool(&snapshot, BackingKind::Loop).expect("known").expect("cordoned");
    assert_eq!(
        cordon.text("2026-11-24T08:00:00.123Z".parse().expect("a time")),
        "no new volume is placed in the pool (loop): drive sda (Test Disk, serial A, slot 3) below it is failing and has no redundancy: \
         SmartFailing since 2026-11-24T08:00:00Z: it is so. Replace it now. No volume is known to be on it. \
         The pool takes new volumes again when the finding clears; an acknowledgement does not lift this."
    );
}

fn any_stack() -> impl Strategy<Value = Stack> {
    let leaf = prop_oneof![
        Just(Stack::Nothing),
        prop::sample::select(vec!["A", "B", "C", "D"]).prop_map(drive_of)
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let parts = prop::collection::vec(inner, 1..4);
        prop_oneof![
            parts.clone().prop_map(Stack::All),
            (parts, 0..3usize).prop_map(|(parts, tolerates)| Stack::Redundant {
                level: "raid".into(),
                tolerates,
                parts
            }),
        ]
    })
}

proptest! {
    /// Whatever else fails or becomes unknown, a cordon that holds goes on.
    #[test]
    fn more_trouble_never_lifts_a_cordon(
        stack in any_stack(),
        bad in prop::collection::btree_set(prop::sample::select(vec!["A", "B", "C", "D"]), 0..4),
        more in prop::sample::select(vec!["A", "B", "C", "D"]),
        unknown in prop::sample::select(vec!["A", "B", "C", "D"]),
    ) {
        let mut snapshot = snapshot(stack, Stack::Nothing);
        for serial in &bad {
            fail(&mut snapshot, serial, Reason::SmartFailing);
        }
        let before = of_pool(&snapshot, BackingKind::Loop).expect("known").is_some();
        if !bad.contains(unknown) {
            edit(&mut snapshot, unknown, |drive| drive.health = Health::Unknown);
        }
        let doubted = of_pool(&snapshot, BackingKind::Loop).expect("known").is_some();
        prop_assert_eq!(before, doubted, "an unknown drive changes nothing");
        if !bad.contains(more) {
            fail(&mut snapshot, more, Reason::SmartFailing);
        }
        snapshot.settled = false;
        let after = of_pool(&snapshot, BackingKind::Loop);
        prop_assert!(!before || after.is_ok_and(|cordon| cordon.is_some()));
    }

    #[test]
    fn the_text_fits_and_always_ends_with_what_to_do(name in any::<String>(), message in ".{0,3000}", slot in any::<String>()) {
        let mut snapshot = snapshot(drive_of("A"), Stack::Nothing);
        edit(&mut snapshot, "A", |drive| {
            drive.facts.model = Some(name);
            drive.facts.location.slot = Some(slot);
        });
        fail(&mut snapshot, "A", Reason::SmartFailing);
        for finding in snapshot.findings.values_mut() {
            Arc::make_mut(finding).message = message.clone();
        }
        let text = of_pool(&snapshot, BackingKind::Loop).expect("known").expect("cordoned").text(at(0));
        prop_assert!(text.len() <= MAX_MESSAGE, "{} bytes", text.len());
        prop_assert!(text.ends_with("an acknowledgement does not lift this."));
    }
}
