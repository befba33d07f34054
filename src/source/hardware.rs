//! Hardware: when to scan sysfs anew, and which md and dm devices to ask for their state.
//!
//! In: uevents, requests, a slow timer. Out: `Report::Inventory`, `Report::Layer`. Every reading is done by a worker; events only say when.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::host::clock::now;
use crate::host::worker::Outcome;
use crate::model::block::{BlockDevice, Inventory, Layer};
use crate::model::observation::Observation;
use crate::model::probe::Stuck;
use crate::model::report::{Report, Request, Source, SourceStatus};
use crate::source::context::{Context, SourceError};
use crate::source::events::{self, Event};
use crate::source::jobs::{Answer, Job};

/// Uevents come in bursts; one scan answers all that came before it. Short enough for an unplugged drive to be told within 100 ms.
const SETTLE: Duration = Duration::from_millis(15);
/// While events keep coming, a scan is made at least this often.
const LONGEST_WAIT: Duration = Duration::from_millis(60);
/// udev's rules finish some time after its first event of a device; the scan behind the last event catches late links.
const LATE_LOOK: Duration = Duration::from_secs(3);
/// Layers change without a uevent (a rebuild's progress, a thin pool's use).
const LAYERS_EVERY: Duration = Duration::from_secs(30);

/// Runs until the owner of the state is gone.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let (status, mut events) = events::start(&context.root);
    let mut watch =
        Watch { live: !context.root.is_recorded(), known: BTreeMap::new(), status: status.clone(), told: None, layers_told: None };
    context.report(Report::Source { source: Source::Udev, status }).await?;
    let mut requests = context.requests.subscribe();
    let mut settings = context.settings.clone();

    watch.scan(&context).await?;
    let mut next_scan = Instant::now() + settings.borrow().reconcile_interval;
    let mut next_layers = Instant::now() + LAYERS_EVERY;
    // First event not yet answered by a scan.
    let mut waiting_since: Option<Instant> = None;
    loop {
        tokio::select! {
            event = events.recv(), if watch.live => match event {
                Some(Event::Changed { .. } | Event::Overrun) => {
                    let first = *waiting_since.get_or_insert_with(Instant::now);
                    next_scan = (Instant::now() + SETTLE).min(first + LONGEST_WAIT);
                }
                Some(Event::Lost(why)) => watch.events_lost(&context, &why).await?,
                None => watch.live = false,
            },
            request = requests.recv() => match request {
                Ok(Request::All | Request::Inventory) | Err(RecvError::Lagged(_)) => next_scan = Instant::now(),
                Ok(_) => {}
                Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
            },
            changed = settings.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                next_scan = Instant::now();
            }
            () = tokio::time::sleep_until(next_scan) => {
                watch.scan(&context).await?;
                // What udev adds after its event (links, the filesystem's UUID) is seen by a second look.
                let after = if waiting_since.take().is_some() { LATE_LOOK } else { settings.borrow().reconcile_interval };
                next_scan = Instant::now() + after;
            }
            () = tokio::time::sleep_until(next_layers) => {
                watch.read_layers(&context);
                next_layers = Instant::now() + LAYERS_EVERY;
            }
        }
    }
}

struct Watch {
    /// A recorded tree has no events.
    live: bool,
    /// md and dm devices of the last scan: they are asked for their state.
    known: BTreeMap<String, Layer>,
    status: SourceStatus,
    /// What was last said of this source, so that only transitions are told.
    told: Option<SourceStatus>,
    layers_told: Option<SourceStatus>,
}

impl Watch {
    async fn scan(&mut self, context: &Context) -> Result<(), SourceError> {
        let (job, timeout) = {
            let settings = context.settings.borrow();
            (Job::Inventory { admit: settings.admit.clone(), ignore: settings.ignore.clone() }, settings.worker_timeout)
        };
        let outcome = match context.workers.ask("inventory", job.clone(), timeout).await {
            // A worker that died (short memory, say) is no reason to call every drive unknown: the next one is asked.
            Outcome::Failed(_) => context.workers.ask("inventory", job, timeout).await,
            outcome => outcome,
        };
        let (observation, status) = match outcome {
            Outcome::Answer(Answer::Inventory(inventory)) => {
                let layered = layers_of(&inventory);
                if layered != self.known || self.layers_told.is_none() {
                    self.known = layered;
                    self.tell_layers(context).await?;
                    self.read_layers(context);
                }
                (Observation::ok(now(), inventory), self.status.clone())
            }
            Outcome::Answer(Answer::Failed { error }) => (Observation::failed(now(), &error), SourceStatus::Down(error)),
            Outcome::Answer(_) => {
                let error = "a worker answered another question than was asked".to_owned();
                (Observation::failed(now(), &error), SourceStatus::Down(error))
            }
            Outcome::Stuck { since, waiting_in, .. } => {
                let waiting = waiting_in.map_or_else(String::new, |place| format!(", waiting in {place}"));
                let error = format!("reading /sys has not returned since {since}{waiting}: a device does not answer even the kernel");
                (Observation::failed(now(), &error), SourceStatus::Down(error))
            }
            Outcome::Failed(error) => (Observation::failed(now(), &error), SourceStatus::Down(error)),
        };
        context.report(Report::Inventory(observation)).await?;
        if self.told.as_ref() != Some(&status) {
            self.told = Some(status.clone());
            context.report(Report::Source { source: Source::Udev, status }).await?;
        }
        Ok(())
    }

    /// What there is to ask. That one of them does not answer is told of its volumes.
    async fn tell_layers(&mut self, context: &Context) -> Result<(), SourceError> {
        let status = match self.known.is_empty() {
            true => SourceStatus::Absent("no md or device-mapper device".into()),
            false => SourceStatus::Active(format!("state of md and device-mapper devices, every {} s", LAYERS_EVERY.as_secs())),
        };
        if self.layers_told.as_ref() == Some(&status) {
            return Ok(());
        }
        self.layers_told = Some(status.clone());
        context.report(Report::Source { source: Source::Layers, status }).await
    }

    /// Asks for the state of each layered device, one task each: one that hangs holds up no other.
    fn read_layers(&self, context: &Context) {
        for (device, layer) in &self.known {
            let (context, device, layer) = (context.clone(), device.clone(), layer.clone());
            // Ends by itself: `ask` is bounded by its time-out, and a late answer ends with its worker.
            tokio::spawn(async move {
                // The owner gone is told by the sources' own loops.
                let _ = read_layer(&context, device, layer).await;
            });
        }
    }

    async fn events_lost(&mut self, context: &Context, why: &str) -> Result<(), SourceError> {
        self.live = false;
        let every = context.settings.borrow().reconcile_interval.as_secs();
        self.status = SourceStatus::Limited(format!("no events ({why}); /sys is read every {every} s, and on request"));
        context.report(Report::Source { source: Source::Udev, status: self.status.clone() }).await
    }
}

fn layers_of(inventory: &Inventory) -> BTreeMap<String, Layer> {
    let has_state = |device: &&BlockDevice| matches!(device.layer, Layer::Md { .. } | Layer::Dm { .. });
    inventory.devices.values().filter(has_state).map(|device| (device.name.clone(), device.layer.clone())).collect()
}

async fn read_layer(context: &Context, device: String, layer: Layer) -> Result<(), SourceError> {
    let timeout = context.settings.borrow().worker_timeout;
    let target = format!("layer {device}");
    let outcome = context.workers.ask(&target, Job::Layer { device: device.clone(), layer }, timeout).await;
    let report = |state| Report::Layer { device: device.clone(), state };
    match outcome {
        Outcome::Stuck { since, waiting_in, late } => {
            let path = crate::model::path::HostPath::new(format!("/dev/{device}"));
            context.report(Report::LayerStuck { device: device.clone(), stuck: Stuck { since, waiting_in, path } }).await?;
            if let Some(late) = late {
                let state = match late.await {
                    Ok(Ok(answer)) => observed(answer),
                    Ok(Err(error)) => Observation::failed(now(), error),
                    Err(_) => Observation::failed(now(), "the worker that hung has ended"),
                };
                context.report(report(state)).await?;
            }
            Ok(())
        }
        Outcome::Answer(answer) => context.report(report(observed(answer))).await,
        Outcome::Failed(error) => context.report(report(Observation::failed(now(), error))).await,
    }
}

fn observed(answer: Answer) -> Observation<crate::model::block::LayerState> {
    match answer {
        Answer::Layer(state) => Observation::ok(now(), state),
        Answer::Failed { error } => Observation::failed(now(), error),
        _ => Observation::failed(now(), "a worker answered another question than was asked"),
    }
}
