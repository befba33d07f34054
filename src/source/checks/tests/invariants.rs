//! What holds whatever happens: no filesystem is frozen but for a run that was ordered, at the end
//! none is, each check ends once.

use std::time::Duration;

use proptest::prelude::*;

use super::fake::{FakeBehavior, Harness, desired, desired_scheduled, harness, signal};
use crate::checks::freezer::FreezeError;
use crate::worker_job::JobError;

const DEVICES: [&str; 3] = ["sda1", "sdb1", "sdc1"];

#[derive(Clone, Debug)]
enum Event {
    Request { device: usize, freeze: bool, snapshot: bool, scheduled: bool },
    Cancel(usize),
    Forget(usize),
    KernelSignal(usize),
    AtOnce(usize),
    SetBehavior { device: usize, how: Box<FakeBehavior> },
    Advance(u32),
    Release,
}

fn behavior() -> impl Strategy<Value = FakeBehavior> {
    let millis = |most: u64| (0..most).prop_map(Duration::from_millis);
    (
        (millis(800), any::<bool>(), millis(9000), any::<bool>()),
        (
            prop::option::weighted(0.8, millis(7000)),
            millis(3000),
            0..4u8,
            prop::option::weighted(0.3, millis(4000)),
            millis(1500),
        ),
        any::<bool>(),
    )
        .prop_map(
            |(
                (prepares, sound, runs, unkillable),
                (syncs, freezes, refuses, early, thaws),
                overflown,
            )| FakeBehavior {
                prepare_takes: prepares,
                unpreparable: !sound && runs.as_millis().is_multiple_of(3),
                run_takes: runs,
                unkillable,
                panics: runs.as_millis().is_multiple_of(11),
                syncfs: syncs.ok_or_else(|| JobError::Failed("EIO".to_owned())),
                freeze_takes: freezes,
                freeze_error: match refuses {
                    0 => Some(FreezeError::AlreadyFrozen),
                    1 => Some(FreezeError::Failed("EIO".to_owned())),
                    _ => None,
                },
                thawed_early_after: early,
                thaw_takes: thaws,
                snapshot_overflows: overflown,
                ..FakeBehavior::default()
            },
        )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..3usize, any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(device, freeze, snapshot, scheduled)| Event::Request { device, freeze, snapshot, scheduled }),
        2 => (0..12usize).prop_map(Event::Cancel),
        1 => (0..12usize).prop_map(Event::Forget),
        1 => (0..12usize).prop_map(Event::KernelSignal),
        1 => (1..4usize).prop_map(Event::AtOnce),
        3 => (0..3usize, behavior()).prop_map(|(device, how)| Event::SetBehavior { device, how: Box::new(how) }),
        6 => (0..30_000u32).prop_map(Event::Advance),
        1 => Just(Event::Release),
    ]
}

fn release(lab: &Harness) {
    // Nobody may still wait for it.
    lab.backend.with_state(|state| state.unkillable.clear());
}

/// Passes the time in small steps, and looks at each.
async fn advance(lab: &Harness, millis: u32) -> Result<(), TestCaseError> {
    let mut left = millis;
    loop {
        lab.backend.with_state(|state| {
            prop_assert!(state.violations.is_empty(), "{:?}", state.violations);
            let frozen_runs = state
                .running
                .iter()
                .filter(|(_, mode)| *mode == diskvitals_fscheck::Mode::Frozen)
                .count();
            prop_assert!(
                frozen_runs <= state.frozen.len() + 1,
                "{:?} {:?}",
                state.running,
                state.frozen
            );
            prop_assert!(state.running.len() <= 3);
            Ok(())
        })?;
        if left == 0 {
            return Ok(());
        }
        let step = left.min(370);
        tokio::time::sleep(Duration::from_millis(u64::from(step))).await;
        left -= step;
    }
}

async fn play(events: Vec<Event>) -> Result<(), TestCaseError> {
    let lab = harness(Vec::new());
    let mut ids = Vec::new();
    for event in events {
        match event {
            Event::Request { device, freeze, snapshot, scheduled: by_itself } => {
                let id = format!("{}/{}", DEVICES[device], ids.len());
                let mut new = if by_itself { desired_scheduled(&id) } else { desired(&id) };
                new.terms.freeze = freeze;
                new.terms.snapshot = snapshot;
                new.target.logical_volume =
                    snapshot.then(|| ("vg".to_owned(), DEVICES[device].to_owned()));
                lab.change_desired(|all| all.push(new));
                ids.push(id);
            }
            Event::Cancel(number) => ids.get(number).into_iter().for_each(|id| lab.cancel(id)),
            Event::Forget(number) => lab.change_desired(|all| {
                all.retain(|wanted| ids.get(number).is_none_or(|id| wanted.id.as_str() != id));
            }),
            Event::KernelSignal(number) => lab.change_desired(|all| {
                all.iter_mut()
                    .filter(|wanted| ids.get(number).is_some_and(|id| wanted.id.as_str() == id))
                    .for_each(|wanted| wanted.signals = vec![signal()]);
            }),
            Event::AtOnce(number) => lab.settings(|settings| settings.at_once = number),
            Event::SetBehavior { device, how } => {
                lab.set_behavior(DEVICES[device], |old| *old = *how)
            }
            Event::Advance(millis) => advance(&lab, millis).await?,
            Event::Release => release(&lab),
        }
    }
    // All that was wanted and seen comes to its end by itself.
    for _ in 0..100 {
        advance(&lab, 60_000).await?;
        release(&lab);
        if ids.iter().all(|id| lab.progress_of(id).is_empty() || lab.outcome_of(id).is_some()) {
            break;
        }
    }
    for id in &ids {
        prop_assert!(
            lab.progress_of(id).is_empty() || lab.outcome_of(id).is_some(),
            "{} has not ended: {:?}",
            id,
            lab.progress_of(id).last()
        );
    }
    advance(&lab, 30_000).await?;
    lab.assert_clean();
    prop_assert!(lab.desired.borrow().is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_nothing_stays_frozen_and_every_check_ends_once(events in proptest::collection::vec(event(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play(events))?;
    }
}
