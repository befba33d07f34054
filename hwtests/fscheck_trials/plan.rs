//! The trials to run: all of them, or a sample that fits the time and is the same for the same
//! seed.

use std::time::Duration;

use diskvitals_fscheck::Filesystem;

use crate::support::corrupt;
use crate::support::random::Random;

pub struct Plan {
    pub trials: Vec<Trial>,
    /// When no more trials are started.
    pub last_begin: Duration,
}

#[derive(Clone, Copy, Debug)]
pub enum Trial {
    Healthy(Filesystem, u64),
    /// Name of the kind, why it is not tried while mounted, under load.
    Damaged(Filesystem, (&'static str, Option<&'static str>), bool),
}

/// A check with two frozen runs takes slightly more than 60 s.
const LONGEST_CHECK: Duration = Duration::from_secs(110);

impl Plan {
    pub fn full(filesystems: &[Filesystem], seed: u64) -> Plan {
        Plan::of(filesystems, seed, Duration::from_secs(24 * 3600), |filesystem| match filesystem {
            Filesystem::Ext4 | Filesystem::Xfs => (30, usize::MAX),
            Filesystem::Btrfs => (10, usize::MAX),
        })
    }

    pub fn sample(filesystems: &[Filesystem], seed: u64, minutes: u64) -> Plan {
        let share = minutes * 3 / filesystems.len() as u64;
        Plan::of(
            filesystems,
            seed,
            Duration::from_secs(minutes * 60).saturating_sub(LONGEST_CHECK),
            |filesystem| match filesystem {
                Filesystem::Ext4 | Filesystem::Xfs => {
                    ((share / 2).max(2), (share as usize * 6 / 5).max(3))
                }
                Filesystem::Btrfs => (1, (share as usize / 2).max(2)),
            },
        )
    }

    fn of(
        filesystems: &[Filesystem],
        seed: u64,
        last_begin: Duration,
        counts: impl Fn(Filesystem) -> (u64, usize),
    ) -> Plan {
        let mut random = Random::of(seed, "plan");
        let (mut healthy, mut damaged) = (Vec::new(), Vec::new());
        for filesystem in filesystems {
            let (count, most) = counts(*filesystem);
            healthy.extend((0..count).map(|number| Trial::Healthy(*filesystem, number)));
            let mut kinds = corrupt::kinds(*filesystem);
            random.shuffle(&mut kinds);
            // Alternately idle and under load.
            damaged.extend(
                kinds
                    .into_iter()
                    .take(most)
                    .enumerate()
                    .map(|(at, kind)| Trial::Damaged(*filesystem, kind, at % 2 == 1)),
            );
        }
        // Some of every filesystem come early: what is skipped for lack of time must not be all of
        // one type.
        random.shuffle(&mut healthy);
        random.shuffle(&mut damaged);
        // The damaged ones each wait for a minute without work: they start first.
        let mut trials = damaged;
        trials.extend(healthy);
        Plan { trials, last_begin }
    }
}
