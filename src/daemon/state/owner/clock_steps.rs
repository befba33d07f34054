//! Steps of the wall clock: noticed, logged, shown. In: the clocks, and what the store knows of the
//! last run. Facts, findings and the store are on the steady timeline and stay as they are; texts and
//! the times on the wire follow the new clock.

use jiff::{SignedDuration, Timestamp};

use crate::state::owner::Owner;
use diskvitals_host::clock;
use diskvitals_model::timeline::{ClockStep, describe_step};

impl Owner {
    pub(super) fn follow_clock(&mut self) {
        if let Some(by) = clock::follow() {
            self.apply_clock_step(by);
        }
    }

    /// After a start, from the store: a step while no daemon ran, and a long break.
    pub(super) fn restore_clock(&mut self, step: SignedDuration, is_quiet_lost: bool) {
        if is_quiet_lost {
            self.facts.restart_quiet_times(clock::now());
        }
        if step.unsigned_abs() >= clock::MIN_STEP.unsigned_abs() {
            self.apply_clock_step(step);
        }
    }

    pub(super) fn apply_clock_step(&mut self, by: SignedDuration) {
        let change = describe_step(by);
        tracing::warn!(
            change,
            seconds = by.as_secs(),
            "the wall clock was stepped; ages and quiet times are not affected"
        );
        let at = clock::now();
        self.clock_step = Some(ClockStep { at, by });
        // The next run compares its clocks with those of the last write.
        self.store_sync.require_full_write();
        self.publish_soon();
    }

    pub(super) fn clock_warning(&self, now: Timestamp) -> Option<String> {
        let step = self.clock_step?;
        step.warning(self.facts.wall_time(step.at), now)
    }
}
