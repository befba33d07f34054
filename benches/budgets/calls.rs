//! Clients that call a server in a loop, and the time of each call.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::time::MissedTickBehavior;

use crate::figures::{Figures, Samples, milliseconds};

/// A call that takes longer is no sample but the end of the measurement.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Calls {
    pub samples: Samples,
    took: Duration,
}

impl Calls {
    pub fn rate(&self) -> f64 {
        self.samples.len() as f64 / self.took.as_secs_f64()
    }

    pub fn milliseconds(&mut self, quantile: f64) -> f64 {
        milliseconds(self.samples.quantile(quantile))
    }

    /// Prints `{name}_p50`, a figure without a goal.
    pub fn print_median(&mut self, figures: &Figures, name: &str) {
        figures.figure_without_goal(&format!("{name}_p50"), self.milliseconds(0.5), "ms");
    }
}

/// Runs one call in flight on each client. Each client begins at its own part of the requests. With
/// an `interval`, each client calls at this interval, however long the answers take; without one,
/// it calls again after each answer.
pub async fn run<C, R, F>(
    clients: Vec<C>,
    requests: &[R],
    duration: Duration,
    interval: Option<Duration>,
    call: impl Fn(C, R) -> F + Clone + Send + 'static,
) -> anyhow::Result<Calls>
where
    C: Clone + Send + 'static,
    R: Clone + Send + Sync + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let connections = clients.len();
    let started = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for (at, client) in clients.into_iter().enumerate() {
        let mut requests = requests.to_vec();
        let first_request = at * requests.len() / connections;
        requests.rotate_left(first_request);
        let phase = interval.unwrap_or_default() * u32::try_from(at)? / u32::try_from(connections)?;
        let call = call.clone();
        callers.spawn(async move {
            let mut samples = Samples::default();
            let mut ticks = interval.map(|interval| {
                let first = tokio::time::Instant::now() + phase;
                let mut ticks = tokio::time::interval_at(first, interval);
                // A late tick is followed by immediate ones, so that the rate is kept.
                ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
                ticks
            });
            for request in requests.iter().cycle() {
                if let Some(ticks) = &mut ticks {
                    ticks.tick().await;
                }
                let sent = Instant::now();
                if sent > started + duration {
                    break;
                }
                let called = call(client.clone(), request.clone());
                tokio::time::timeout(CALL_TIMEOUT, called)
                    .await
                    .with_context(|| format!("a call, for {CALL_TIMEOUT:?}"))??;
                samples.push(sent.elapsed());
            }
            anyhow::Ok(samples)
        });
    }
    let mut samples = Samples::default();
    while let Some(done) = callers.join_next().await {
        samples.extend(done.context("calling")??);
    }
    Ok(Calls { samples, took: started.elapsed() })
}
