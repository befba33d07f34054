//! What holds whatever happens: no filesystem is frozen but for a run that was ordered, at the end
//! none is, each check ends once.

use std::time::Duration;

use proptest::prelude::*;

use super::fake::{How, Lab, lab, scheduled, signal, wanted};
use crate::source::checks::freezer::FreezeError;

const DEVICES: [&str; 3] = ["sda1", "sdb1", "sdc1"];

#[derive(Clone, Debug)]
enum Event {
    Want {
        device: usize,
        freeze: bool,
        snapshot: bool,
        scheduled: bool,
    },
    Stop(usize),
    Forget(usize),
    Speak(usize),
    AtOnce(usize),
    How {
        device: usize,
        how: Box<How>,
    },
    Pass(u32),
    Release,
}

fn how() -> impl Strategy<Value = How> {
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
            )| How {
                prepares,
                unpreparable: !sound && runs.as_millis().is_multiple_of(3),
                runs,
                unkillable,
                panics: runs.as_millis().is_multiple_of(11),
                syncs: syncs.ok_or_else(|| "EIO".to_owned()),
                freezes,
                refuses: match refuses {
                    0 => Some(FreezeError::NotOurs),
                    1 => Some(FreezeError::Failed("EIO".to_owned())),
                    _ => None,
                },
                early,
                thaws,
                overflown,
                ..How::default()
            },
        )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..3usize, any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(device, freeze, snapshot, scheduled)| Event::Want { device, freeze, snapshot, scheduled }),
        2 => (0..12usize).prop_map(Event::Stop),
        1 => (0..12usize).prop_map(Event::Forget),
        1 => (0..12usize).prop_map(Event::Speak),
        1 => (1..4usize).prop_map(Event::AtOnce),
        3 => (0..3usize, how()).prop_map(|(device, how)| Event::How { device, how: Box::new(how) }),
        6 => (0..30_000u32).prop_map(Event::Pass),
        1 => Just(Event::Release),
    ]
}

fn release(lab: &Lab) {
    // Nobody may wait for it any more.
    lab.world.look(|world| world.held.clear());
}

/// Passes the time in small steps, and looks at each.
async fn pass(lab: &Lab, millis: u32) -> Result<(), TestCaseError> {
    let mut left = millis;
    loop {
        lab.world.look(|world| {
            prop_assert!(world.wrong.is_empty(), "{:?}", world.wrong);
            let frozen_runs = world
                .running
                .iter()
                .filter(|(_, mode)| *mode == crate::model::check::Mode::Frozen)
                .count();
            prop_assert!(
                frozen_runs <= world.frozen.len() + 1,
                "{:?} {:?}",
                world.running,
                world.frozen
            );
            prop_assert!(world.running.len() <= 3);
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
    let lab = lab(Vec::new());
    let mut ids = Vec::new();
    for event in events {
        match event {
            Event::Want {
                device,
                freeze,
                snapshot,
                scheduled: by_itself,
            } => {
                let id = format!("{}/{}", DEVICES[device], ids.len());
                let mut new = if by_itself {
                    scheduled(&id)
                } else {
                    wanted(&id)
                };
                new.terms.freeze = freeze;
                new.terms.snapshot = snapshot;
                new.target.logical_volume =
                    snapshot.then(|| ("vg".to_owned(), DEVICES[device].to_owned()));
                lab.want(|all| all.push(new));
                ids.push(id);
            }
            Event::Stop(number) => ids.get(number).into_iter().for_each(|id| lab.stop(id)),
            Event::Forget(number) => lab.want(|all| {
                all.retain(|wanted| ids.get(number).is_none_or(|id| wanted.id.as_str() != id));
            }),
            Event::Speak(number) => lab.want(|all| {
                all.iter_mut()
                    .filter(|wanted| ids.get(number).is_some_and(|id| wanted.id.as_str() == id))
                    .for_each(|wanted| wanted.signals = vec![signal()]);
            }),
            Event::AtOnce(number) => lab.settings(|settings| settings.at_once = number),
            Event::How { device, how } => lab.how(DEVICES[device], |old| *old = *how),
            Event::Pass(millis) => pass(&lab, millis).await?,
            Event::Release => release(&lab),
        }
    }
    // All that was wanted and seen comes to its end by itself.
    for _ in 0..100 {
        pass(&lab, 60_000).await?;
        release(&lab);
        if ids
            .iter()
            .all(|id| lab.told(id).is_empty() || lab.ended(id).is_some())
        {
            break;
        }
    }
    for id in &ids {
        prop_assert!(
            lab.told(id).is_empty() || lab.ended(id).is_some(),
            "{} has not ended: {:?}",
            id,
            lab.told(id).last()
        );
    }
    pass(&lab, 30_000).await?;
    lab.nothing_is_left();
    prop_assert!(lab.wanted.borrow().is_empty());
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
