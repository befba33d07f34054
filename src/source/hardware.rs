//! Hardware: when to scan sysfs anew, and which md and dm devices to ask for their state.
//!
//! In: uevents, requests, a slow timer. Out: `Report::Inventory`, `Report::Layer`; NVMe
//! controllers' own events, as a `Request` to whoever asks them. Every reading is done by a worker;
//! events only say when.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::host::clock::now;
use crate::host::worker::Outcome;
use crate::model::block::{BlockDevice, Inventory, Layer, LayerState};
use crate::model::observation::Observation;
use crate::model::probe::Stuck;
use crate::model::report::{Report, Request, Source, SourceStatus};
use crate::source::context::{Context, SourceError};
use crate::source::events::{self, Event};
use crate::source::jobs::{Answer, Job};

/// Uevents come in bursts; one scan answers all that came before it. Short enough for an unplugged
/// drive to be told within 100 ms.
const SETTLE: Duration = Duration::from_millis(15);
/// While events keep coming, a scan is made at least this often.
const LONGEST_WAIT: Duration = Duration::from_millis(60);
/// udev's rules finish some time after its first event of a device; the scan behind the last event
/// catches late links.
const LATE_LOOK: Duration = Duration::from_secs(3);
/// Layers change without a uevent (a rebuild's progress, a thin pool's use).
const LAYERS_EVERY: Duration = Duration::from_secs(30);
/// What only a new table changes is asked in every round of so many, and in the next one after a
/// uevent: the kernel sends one with each new table (do_resume(), drivers/md/dm-ioctl.c). A node
/// has hundreds of logical volumes.
const ROUNDS_TO_ALL: u32 = 10;

/// Runs until the owner of the state is gone.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let context = Arc::new(context);
    let (status, mut events) = events::start(&context.root);
    let mut watch = Watch::new(!context.root.is_recorded(), status.clone());
    context
        .report(Report::Source {
            source: Source::Udev,
            status,
        })
        .await?;
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
                    watch.ask_all();
                    let first = *waiting_since.get_or_insert_with(Instant::now);
                    next_scan = (Instant::now() + SETTLE).min(first + LONGEST_WAIT);
                }
                // Nobody asks drives at the start; then all are asked anyhow.
                Some(Event::Nvme { controller }) => drop(context.requests.send(Request::NvmeEvent { controller })),
                Some(Event::Lost(why)) => watch.events_lost(&context, &why).await?,
                None => (watch.live, watch.deaf) = (false, true),
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
                // What udev adds after its event (links, the filesystem's UUID) is seen by a second
                // look.
                let after = if waiting_since.take().is_some() { LATE_LOOK } else { settings.borrow().reconcile_interval };
                next_scan = Instant::now() + after;
            }
            Some(read) = watch.reading.join_next(), if !watch.reading.is_empty() => watch.was_read(read),
            () = tokio::time::sleep_until(next_layers) => {
                watch.next_round(&context);
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
    /// Those of them that said that only a new table changes their state, since the last event.
    constant: BTreeSet<String>,
    /// Grows when `constant` begins anew.
    asked: u32,
    /// Events were lost: nothing is constant.
    deaf: bool,
    reading: JoinSet<Read>,
    /// Rounds of questions so far.
    rounds: u32,
    status: SourceStatus,
    /// What was last said of this source, so that only transitions are told.
    told: Option<SourceStatus>,
    layers_told: Option<SourceStatus>,
}

/// How the question about a layer ended.
struct Read {
    device: String,
    /// `Watch::asked` when it was asked.
    asked: u32,
    constant: bool,
}

impl Watch {
    fn new(live: bool, status: SourceStatus) -> Watch {
        Watch {
            live,
            known: BTreeMap::new(),
            constant: BTreeSet::new(),
            asked: 0,
            deaf: false,
            reading: JoinSet::new(),
            rounds: 0,
            status,
            told: None,
            layers_told: None,
        }
    }

    async fn scan(&mut self, context: &Arc<Context>) -> Result<(), SourceError> {
        let (job, timeout) = {
            let settings = context.settings.borrow();
            (
                Job::Inventory {
                    admit: settings.admit.clone(),
                    ignore: settings.ignore.clone(),
                },
                settings.worker_timeout,
            )
        };
        let outcome = match context.workers.ask("inventory", job.clone(), timeout).await {
            // A worker that died (short memory, say) is no reason to call every drive unknown: the
            // next one is asked.
            Outcome::Failed(_) => context.workers.ask("inventory", job, timeout).await,
            outcome => outcome,
        };
        let (observation, status) = match outcome {
            Outcome::Answer(Answer::Inventory(inventory)) => {
                let layered = layers_of(&inventory);
                if layered != self.known || self.layers_told.is_none() {
                    self.known = layered;
                    self.tell_layers(context).await?;
                    self.ask_all();
                    self.read_layers(context);
                }
                (Observation::ok(now(), inventory), self.status.clone())
            }
            Outcome::Answer(Answer::Failed { error }) => (
                Observation::failed(now(), &error),
                SourceStatus::Down(error),
            ),
            Outcome::Answer(_) => {
                let error = "a worker answered another question than was asked".to_owned();
                (
                    Observation::failed(now(), &error),
                    SourceStatus::Down(error),
                )
            }
            Outcome::Stuck {
                since, waiting_in, ..
            } => {
                let what = match waiting_in {
                    // /proc/PID/stat, state R: it waits for nothing but a processor.
                    Some(place) if place.starts_with("R ") => {
                        ": this machine is too busy to run it".to_owned()
                    }
                    Some(place) => {
                        format!(", waiting in {place}: a device does not answer even the kernel")
                    }
                    None => ": a device does not answer even the kernel".to_owned(),
                };
                let error = format!("reading /sys has not returned since {since}{what}");
                (
                    Observation::failed(now(), &error),
                    SourceStatus::Down(error),
                )
            }
            Outcome::Failed(error) => (
                Observation::failed(now(), &error),
                SourceStatus::Down(error),
            ),
        };
        context.report(Report::Inventory(observation)).await?;
        if self.told.as_ref() != Some(&status) {
            self.told = Some(status.clone());
            context
                .report(Report::Source {
                    source: Source::Udev,
                    status,
                })
                .await?;
        }
        Ok(())
    }

    /// What there is to ask. That one of them does not answer is told of its volumes.
    async fn tell_layers(&mut self, context: &Context) -> Result<(), SourceError> {
        let status = match self.known.is_empty() {
            true => SourceStatus::Absent("no md or device-mapper device".into()),
            false => SourceStatus::Active(format!(
                "state of md and device-mapper devices, every {} s",
                LAYERS_EVERY.as_secs()
            )),
        };
        if self.layers_told.as_ref() == Some(&status) {
            return Ok(());
        }
        self.layers_told = Some(status.clone());
        context
            .report(Report::Source {
                source: Source::Layers,
                status,
            })
            .await
    }

    /// In the next round. What is on its way does not count for it.
    fn ask_all(&mut self) {
        self.constant.clear();
        self.asked = self.asked.wrapping_add(1);
    }

    fn next_round(&mut self, context: &Arc<Context>) {
        self.rounds = self.rounds.wrapping_add(1);
        if self.deaf || self.rounds.is_multiple_of(ROUNDS_TO_ALL) {
            self.ask_all();
        }
        self.read_layers(context);
    }

    /// Asks for the state of each layered device that may have another one, one task each: one that
    /// hangs holds up no other.
    fn read_layers(&mut self, context: &Arc<Context>) {
        for (device, layer) in self
            .known
            .iter()
            .filter(|(device, _)| !self.constant.contains(*device))
        {
            // Ends by itself: `ask` is bounded by its time-out, and a late answer ends with its
            // worker.
            self.reading.spawn(read_layer(
                context.clone(),
                device.clone(),
                layer.clone(),
                self.asked,
            ));
        }
    }

    fn was_read(&mut self, read: Result<Read, JoinError>) {
        match read {
            Ok(Read {
                device,
                asked,
                constant: true,
            }) if asked == self.asked => drop(self.constant.insert(device)),
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "the question for a layer's state was lost"),
        }
    }

    async fn events_lost(&mut self, context: &Context, why: &str) -> Result<(), SourceError> {
        (self.live, self.deaf) = (false, true);
        let every = context.settings.borrow().reconcile_interval.as_secs();
        self.status = SourceStatus::Limited(format!(
            "no events ({why}); /sys is read every {every} s, and on request"
        ));
        context
            .report(Report::Source {
                source: Source::Udev,
                status: self.status.clone(),
            })
            .await
    }
}

fn layers_of(inventory: &Inventory) -> BTreeMap<String, Layer> {
    let has_state =
        |device: &&BlockDevice| matches!(device.layer, Layer::Md { .. } | Layer::Dm { .. });
    inventory
        .devices
        .values()
        .filter(has_state)
        .map(|device| (device.name.clone(), device.layer.clone()))
        .collect()
}

async fn read_layer(context: Arc<Context>, device: String, layer: Layer, asked: u32) -> Read {
    let timeout = context.settings.borrow().worker_timeout;
    let target = format!("layer {device}");
    let outcome = context
        .workers
        .ask(
            &target,
            Job::Layer {
                device: device.clone(),
                layer,
            },
            timeout,
        )
        .await;
    let tell = async |report| {
        // The owner gone is told by the sources' own loops.
        let _ = context.report(report).await;
    };
    let state = match outcome {
        Outcome::Stuck {
            since,
            waiting_in,
            late,
        } => {
            let path = crate::model::path::HostPath::new(format!("/dev/{device}"));
            tell(Report::LayerStuck {
                device: device.clone(),
                stuck: Stuck {
                    since,
                    waiting_in,
                    path,
                },
            })
            .await;
            let Some(late) = late else {
                return Read {
                    device,
                    asked,
                    constant: false,
                };
            };
            match late.await {
                Ok(Ok(answer)) => observed(answer),
                Ok(Err(error)) => Observation::failed(now(), error),
                Err(_) => Observation::failed(now(), "the worker that hung has ended"),
            }
        }
        Outcome::Answer(answer) => observed(answer),
        Outcome::Failed(error) => Observation::failed(now(), error),
    };
    let constant = matches!(
        state.value(),
        Some(LayerState::Plain | LayerState::Linear { .. })
    );
    tell(Report::Layer {
        device: device.clone(),
        state,
    })
    .await;
    Read {
        device,
        asked,
        constant,
    }
}

fn observed(answer: Answer) -> Observation<LayerState> {
    match answer {
        Answer::Layer(state) => Observation::ok(now(), state),
        Answer::Failed { error } => Observation::failed(now(), error),
        _ => Observation::failed(now(), "a worker answered another question than was asked"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch::new(true, SourceStatus::Active(String::new()))
    }

    fn read(device: &str, asked: u32, constant: bool) -> Result<Read, JoinError> {
        Ok(Read {
            device: device.to_owned(),
            asked,
            constant,
        })
    }

    #[test]
    fn what_only_a_new_table_changes_is_left_alone_until_the_next_event() {
        let mut watch = watch();
        watch.was_read(read("dm-0", 0, true));
        watch.was_read(read("md0", 0, false));
        assert_eq!(watch.constant.iter().collect::<Vec<_>>(), ["dm-0"]);
        watch.ask_all();
        assert!(watch.constant.is_empty());
    }

    #[test]
    fn what_was_asked_before_an_event_does_not_count_after_it() {
        let mut watch = watch();
        watch.ask_all();
        watch.was_read(read("dm-0", 0, true));
        assert!(watch.constant.is_empty());
        watch.was_read(read("dm-0", 1, true));
        assert!(watch.constant.contains("dm-0"));
    }
}
