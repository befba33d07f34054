//! Durations of the controller. Tests shorten them in programs that are built for tests
//! (feature `hwtests`); a released program has no such switch.

use std::time::Duration;

use crate::claims::ledger::Pauses;
use crate::model::Policy;
use crate::model::quarantine::QuarantineLimits;
use crate::model::release::Limits;
use crate::model::release::breaker::BreakerLimits;
use crate::model::release::steps::StepLimits;
use crate::model::unreachable::UnreachableLimits;
use diskvitals_cluster::node_condition::HEARTBEAT_INTERVAL;
use diskvitals_kubernetes::lease::LeaseTiming;
use diskvitals_kubernetes::retry_delay::RetryDelay;
use diskvitals_kubernetes::watch::WatchTiming;

#[derive(Clone, Debug)]
pub struct Timing {
    pub policy: Policy,
    pub lease: LeaseTiming,
    pub pauses: Pauses,
    pub release: ReleaseTiming,
    pub quarantine: QuarantineTiming,
    pub unreachable: UnreachableTiming,
    pub lost: LostNodeTiming,
    pub request_timeout: Duration,
    /// Of one page of a list: then the API server gives up too (its --request-timeout).
    pub page_timeout: Duration,
    /// How long changes are collected before decisions.
    pub debounce: Duration,
    /// How often old reports are looked for.
    pub retention_interval: Duration,
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct QuarantineTiming {
    pub limits: QuarantineLimits,
    /// From the end of a round to the next one.
    pub round: Duration,
    /// A node that is away, and has its list and taint, is read again after this many rounds.
    pub rounds_away: u32,
}

impl Default for QuarantineTiming {
    fn default() -> QuarantineTiming {
        QuarantineTiming {
            limits: QuarantineLimits::default(),
            round: Duration::from_secs(10),
            rounds_away: 6,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct UnreachableTiming {
    pub limits: UnreachableLimits,
    /// From the end of a round to the next one.
    pub round: Duration,
    /// A pod whose eviction was refused is left alone for this time.
    pub refused: Duration,
}

impl Default for UnreachableTiming {
    fn default() -> UnreachableTiming {
        UnreachableTiming {
            limits: UnreachableLimits::default(),
            round: Duration::from_secs(10),
            refused: Duration::from_secs(60),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct LostNodeTiming {
    /// A reporter that has not written its condition for this time is silent.
    pub silent_after: Duration,
    /// From the end of a round to the next one.
    pub round: Duration,
}

impl Default for LostNodeTiming {
    fn default() -> LostNodeTiming {
        LostNodeTiming {
            // Longer than one interval: a reporter that is cut off and comes back has a write due.
            silent_after: 2 * HEARTBEAT_INTERVAL,
            round: Duration::from_secs(10),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ReleaseTiming {
    pub limits: Limits,
    pub breaker: BreakerLimits,
    pub steps: StepLimits,
    /// From the end of a round to the next one.
    pub round: Duration,
    /// What is held back by the node's report alone is read again after this time.
    pub reread: Duration,
    /// A node is asked again after this time without an answer.
    pub ask_again: Duration,
}

impl Default for ReleaseTiming {
    fn default() -> ReleaseTiming {
        ReleaseTiming {
            limits: Limits::default(),
            breaker: BreakerLimits::default(),
            steps: StepLimits::default(),
            round: Duration::from_secs(30),
            reread: Duration::from_secs(300),
            ask_again: Duration::from_secs(300),
        }
    }
}

impl Default for Timing {
    fn default() -> Timing {
        let seconds = Duration::from_secs;
        Timing {
            policy: Policy::default(),
            lease: LeaseTiming::default(),
            pauses: Pauses { refused: seconds(1800), probe: seconds(1800) },
            release: ReleaseTiming::default(),
            quarantine: QuarantineTiming::default(),
            unreachable: UnreachableTiming::default(),
            lost: LostNodeTiming::default(),
            request_timeout: seconds(15),
            page_timeout: seconds(60),
            debounce: Duration::from_millis(500),
            retention_interval: seconds(600),
            initial_backoff: seconds(1),
            max_backoff: seconds(120),
        }
    }
}

impl Timing {
    /// Of the program.
    pub(crate) fn of_environment() -> Result<Timing, String> {
        let timing = Timing::default();
        #[cfg(feature = "hwtests")]
        let timing = timing.shortened()?;
        Ok(timing)
    }

    pub fn retry_delay(&self, client: &str) -> RetryDelay {
        RetryDelay::new(self.initial_backoff, self.max_backoff, client)
    }

    pub fn watch(&self) -> WatchTiming {
        WatchTiming {
            page_timeout: self.page_timeout,
            initial_backoff: self.initial_backoff,
            max_backoff: self.max_backoff,
        }
    }

    /// `DISKVITALS_FLEET_TIMING=unavailable=2,keep=5`: in seconds.
    #[cfg(feature = "hwtests")]
    fn shortened(mut self) -> Result<Timing, String> {
        let given = std::env::var("DISKVITALS_FLEET_TIMING").unwrap_or_default();
        for pair in given.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value
                .parse()
                .map(Duration::from_secs)
                .map_err(|_| format!("DISKVITALS_FLEET_TIMING: {pair}"))?;
            match key {
                "unavailable" => self.policy.unavailable_after = value,
                "shared" => self.policy.shared_after = value,
                "keep" => self.policy.keep_reports = value,
                "stale" => self.policy.stale_after = value,
                "absent" => self.policy.absent_before_delete = value,
                "refused" => self.pauses.refused = value,
                "probe" => self.pauses.probe = value,
                "retention" => self.retention_interval = value,
                "lease" => {
                    self.lease.duration = value;
                    self.lease.renew_deadline = value * 4 / 5;
                    self.lease.retry = value / 6;
                }
                "round" => {
                    self.release.round = value;
                    self.quarantine.round = value;
                    self.unreachable.round = value;
                    self.lost.round = value;
                }
                "proof" => self.quarantine.limits.proof = value,
                "silent" => self.lost.silent_after = value,
                "orphan" => self.quarantine.limits.orphan = value,
                "unreachable" => self.unreachable.limits.hold = value,
                "reached" => self.unreachable.limits.good = value,
                "empty" => self.unreachable.limits.empty = value,
                "patience" => self.unreachable.limits.patience = value,
                "evict-again" => self.unreachable.refused = value,
                "reread" => self.release.reread = value,
                "ask" => self.release.ask_again = value,
                "node-ready" => self.release.limits.node_ready = value,
                "daemon-age" => self.release.limits.daemon_age = value,
                "controller-age" => self.release.limits.controller_age = value,
                "approval" => self.release.limits.approval = value,
                "answer-age" => self.release.limits.answer_age = value,
                "eviction" => self.release.steps.eviction = value,
                "replacement" => self.release.steps.replacement = value,
                "missing-claim" => self.release.steps.missing_claim = value,
                "good" => self.release.breaker.good_time = value,
                // A lease that is shorter has less left.
                "lease-left" => self.release.limits.lease_left = value,
                // The policy's ten minutes become this many seconds.
                "hold" => {
                    let seconds = u32::try_from(value.as_secs()).unwrap_or(u32::MAX);
                    self.release.limits.hold_divisor = 600 / seconds.max(1);
                }
                _ => return Err(format!("DISKVITALS_FLEET_TIMING: {key}")),
            }
        }
        Ok(self)
    }
}
