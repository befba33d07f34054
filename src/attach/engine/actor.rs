//! The owner of the book: takes wishes (`admit`), starts operations, puts their volumes back, tells
//! what there is. It waits for nothing but its channels.

mod admit;

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::attach::engine::hand::{Hand, POOL};
use crate::attach::engine::job::{Came, Job};
use crate::attach::engine::look::{self, Found};
use crate::attach::engine::volume::{Volume, static_backing};
use crate::attach::engine::{Answer, Engine, Message, QUEUE, Reply, Settings, View};
use crate::attach::fault::Fault;
use crate::attach::step::{Room, Steps};
use crate::host::clock;
use crate::model::attach::{Kind, Provision};
use crate::model::causes::with_causes;
use crate::model::observation::Observation;
use crate::model::report::Report;

/// Until the records could be read.
const RETRY: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The end of the daemon, not a failure of the engine.
    #[error("the owner of the state is gone")]
    OwnerGone,
    #[error("nobody asks the engine any more")]
    Unasked,
    #[error("an operation on a volume has failed")]
    Operation(#[source] tokio::task::JoinError),
}

struct Entry {
    volume: Volume,
    /// While an operation has a copy of it.
    busy: Option<watch::Receiver<String>>,
    /// That operation is nobody's wish.
    settling: bool,
    /// Begins when it has been looked at.
    waiting: Option<(Job, Reply)>,
}

impl Entry {
    fn free(volume: Volume) -> Entry {
        Entry {
            volume,
            busy: None,
            settling: false,
            waiting: None,
        }
    }
}

enum Ended {
    Read(Result<Found, Fault>),
    Rooms(Vec<(Kind, Result<Room, String>)>),
    /// The volume as it is now; whoever waits is answered when the book has it.
    Operation {
        volume: Box<Volume>,
        answered: Option<(Reply, Result<Came, Fault>)>,
    },
}

pub struct Actor<S> {
    steps: Arc<S>,
    settings: watch::Receiver<Arc<Settings>>,
    messages: mpsc::Receiver<Message>,
    reports: mpsc::Sender<Report>,
    view: watch::Sender<Arc<View>>,
    tasks: JoinSet<Ended>,
    book: BTreeMap<String, Entry>,
    rooms: Vec<(Kind, Result<Room, String>)>,
    /// None once the records were read.
    unknown: Option<String>,
    group_unknown: Option<String>,
    /// Files among the records that are none; they are in the log.
    strays: BTreeSet<String>,
    reading: bool,
    measuring: bool,
    /// They wait for a look that begins after they asked.
    lookers: Vec<oneshot::Sender<()>>,
    reported: Option<Observation<Provision>>,
}

impl Engine {
    /// What is asked, and who answers: the actor is to be run.
    pub fn new<S: Steps>(
        steps: S,
        settings: watch::Receiver<Arc<Settings>>,
        reports: mpsc::Sender<Report>,
    ) -> (Engine, Actor<S>) {
        let (ask, messages) = mpsc::channel(QUEUE);
        let unknown = Some("the daemon has not looked at its volumes yet".to_owned());
        let first = Arc::new(View {
            unknown: unknown.clone(),
            ..View::default()
        });
        let (view, seen) = watch::channel(first);
        let engine = Engine {
            messages: ask,
            view: seen,
            patience: settings.borrow().patience,
        };
        let actor = Actor {
            steps: Arc::new(steps),
            settings,
            messages,
            reports,
            view,
            tasks: JoinSet::new(),
            book: BTreeMap::new(),
            rooms: Vec::new(),
            unknown,
            group_unknown: None,
            strays: BTreeSet::new(),
            reading: false,
            measuring: false,
            lookers: Vec::new(),
            reported: None,
        };
        (engine, actor)
    }
}

impl<S: Steps> Actor<S> {
    /// Until the daemon ends. Dropping it ends all operations where they are, as a kill would.
    pub async fn run(mut self) -> Result<Infallible, EngineError> {
        self.read();
        let mut tick = ticking(RETRY);
        loop {
            let known = self.unknown.is_none();
            tokio::select! {
                message = self.messages.recv() => match message.ok_or(EngineError::Unasked)? {
                    Message::Wish(wish, reply) => self.take(*wish, reply),
                    Message::LookAgain(done) => {
                        self.lookers.push(done);
                        self.look_again();
                    }
                },
                Some(ended) = self.tasks.join_next() => self.ended(ended.map_err(EngineError::Operation)?),
                Ok(()) = self.settings.changed() => self.follow_statics(),
                _ = tick.tick() => self.tick(),
            }
            if !known && self.unknown.is_none() {
                tick = ticking(self.settings.borrow().look_every);
            }
            self.tell().await?;
        }
    }

    fn settings(&self) -> Arc<Settings> {
        self.settings.borrow().clone()
    }

    fn read(&mut self) {
        if self.reading {
            return;
        }
        self.reading = true;
        let (hand, _) = Hand::new(
            self.steps.clone(),
            self.settings(),
            POOL.into(),
            "looking at the pool",
        );
        self.tasks
            .spawn(async move { Ended::Read(look::read(&hand).await) });
    }

    fn measure(&mut self) {
        if self.measuring {
            return;
        }
        self.measuring = true;
        let (hand, _) = Hand::new(
            self.steps.clone(),
            self.settings(),
            POOL.into(),
            "looking at the pool",
        );
        self.tasks
            .spawn(async move { Ended::Rooms(look::rooms(&hand).await) });
    }

    /// Everything that was left over is tried again.
    fn tick(&mut self) {
        if self.unknown.is_some() || self.group_unknown.is_some() {
            self.read();
        }
        if self.unknown.is_some() {
            return;
        }
        self.measure();
        for entry in self.book.values_mut() {
            // What static volumes are may change at any time: a drive is pulled out, and comes
            // back.
            entry.volume.looked &= !entry.volume.is_static() || entry.volume.is_attached();
        }
        self.settle_all();
    }

    fn look_again(&mut self) {
        if self.unknown.is_some() {
            return;
        }
        for entry in self.book.values_mut() {
            entry.volume.looked = false;
        }
        self.settle_all();
    }

    fn settle_all(&mut self) {
        let unsettled = |entry: &Entry| {
            entry.busy.is_none()
                && entry.volume.touchable().is_ok()
                && (!entry.volume.looked || entry.volume.intent.is_some())
        };
        let handles: Vec<String> = self
            .book
            .iter()
            .filter(|(_, entry)| unsettled(entry))
            .map(|(handle, _)| handle.clone())
            .collect();
        for handle in handles {
            self.start(&handle, Job::Settle, None);
        }
        self.answer_lookers();
    }

    fn answer_lookers(&mut self) {
        let looking = self.book.values().any(|entry| {
            entry.busy.is_some() && (!entry.volume.looked || entry.volume.intent.is_some())
        });
        if !looking {
            for looker in self.lookers.drain(..) {
                // Who does not wait any more need not be told.
                let _ = looker.send(());
            }
        }
    }

    /// An operation on a volume of the book that is free, with a copy of it. What is not settled is
    /// settled first.
    fn start(&mut self, handle: &str, job: Job, reply: Option<Reply>) {
        let (steps, settings) = (self.steps.clone(), self.settings());
        let Some(entry) = self.book.get_mut(handle) else {
            return;
        };
        let (hand, doing) = Hand::new(steps, settings, handle.to_owned(), job.purpose());
        entry.busy = Some(doing);
        entry.settling = matches!(job, Job::Settle);
        let mut volume = entry.volume.clone();
        self.tasks.spawn(async move {
            let result = job.run(&hand, &mut volume).await;
            Ended::Operation {
                volume: Box::new(volume),
                answered: reply.map(|reply| (reply, result)),
            }
        });
    }

    fn ended(&mut self, ended: Ended) {
        match ended {
            Ended::Read(found) => {
                self.reading = false;
                match found {
                    Ok(found) => self.found(found),
                    Err(fault) => {
                        self.unknown = Some(format!(
                            "the records of volumes cannot be read: {}",
                            with_causes(&fault)
                        ))
                    }
                }
            }
            Ended::Rooms(rooms) => {
                self.measuring = false;
                self.rooms = rooms;
            }
            Ended::Operation { volume, answered } => {
                let handle = volume.handle.clone();
                let changed_size = self.book.get(&handle).is_some_and(|entry| {
                    (entry.volume.size, entry.volume.made) != (volume.size, volume.made)
                });
                let stays = volume.made || volume.intent.is_some();
                let answer = answered.map(|(reply, result)| {
                    let answer = result.map(|came| match came {
                        Came::Volume => Answer::Volume(Box::new(volume.seen(None))),
                        Came::Expanded(expanded) => Answer::Expanded(expanded),
                        Came::Done => Answer::Done,
                    });
                    (reply, answer)
                });
                let before = self.book.remove(&handle);
                if stays {
                    self.book.insert(handle.clone(), Entry::free(*volume));
                }
                self.follow_statics();
                if changed_size {
                    self.measure();
                }
                self.answer_lookers();
                self.publish();
                if let Some(waiting) = before.and_then(|before| before.waiting) {
                    self.go_on(&handle, waiting);
                }
                if let Some((reply, answer)) = answer {
                    // A caller that is gone finds it done when it asks again.
                    let _ = reply.send(answer);
                }
            }
        }
    }

    /// What is in the book already is newer than what was read.
    fn found(&mut self, found: Found) {
        let group_unknown = found
            .group
            .as_ref()
            .err()
            .map(|why| format!("the volumes of the volume group are not known: {why}"));
        let strays = found.strays();
        // It is read again and again while something is not known: only what is new is told.
        match &group_unknown {
            Some(why) if self.group_unknown != group_unknown => {
                tracing::warn!(%why, "volumes may be missing")
            }
            None if self.group_unknown.is_some() => {
                tracing::info!("the volumes of the volume group are known again")
            }
            _ => {}
        }
        for file in strays.difference(&self.strays) {
            tracing::warn!(
                file,
                "a file that is no record lies among the pool's records"
            );
        }
        (self.group_unknown, self.strays) = (group_unknown, strays);
        let settings = self.settings();
        for (handle, volume) in look::book(&settings, found) {
            if let btree_map::Entry::Vacant(place) = self.book.entry(handle) {
                if let Some(why) = &volume.broken {
                    tracing::error!(volume = volume.handle, ?why, "a volume is left alone");
                }
                place.insert(Entry::free(volume));
            }
        }
        self.unknown = None;
        self.follow_statics();
        self.measure();
        self.settle_all();
    }

    /// Static volumes are those of the configuration, and those that it had while they are
    /// attached.
    fn follow_statics(&mut self) {
        if self.unknown.is_some() {
            return;
        }
        let settings = self.settings();
        let free = |entry: &Entry| {
            entry.busy.is_none() && !entry.volume.is_attached() && entry.volume.intent.is_none()
        };
        self.book.retain(|name, entry| {
            !entry.volume.is_static()
                || !free(entry)
                || entry.volume.broken.is_some()
                || settings.statics.iter().any(|wanted| wanted.name == *name)
        });
        let mut fresh = false;
        for wanted in &settings.statics {
            let backing = static_backing(wanted.kind, wanted.path.clone());
            let same = |entry: &Entry| {
                entry.volume.backing == backing || !free(entry) || entry.volume.broken.is_some()
            };
            if !self.book.get(&wanted.name).is_some_and(same) {
                self.book
                    .insert(wanted.name.clone(), Entry::free(Volume::of_static(wanted)));
                fresh = true;
            }
        }
        if fresh {
            self.settle_all();
        }
    }

    fn publish(&self) {
        let volumes = self.book.iter().filter(|(_, entry)| entry.volume.made);
        let volumes = volumes
            .map(|(handle, entry)| (handle.clone(), entry.volume.seen(entry.busy.clone())))
            .collect();
        let (unknown, group_unknown) = (self.unknown.clone(), self.group_unknown.clone());
        self.view.send_replace(Arc::new(View {
            unknown,
            group_unknown,
            volumes,
            rooms: self.rooms.clone(),
        }));
    }

    /// To whoever reads, and, when it is another than before, to the owner of the state.
    async fn tell(&mut self) -> Result<(), EngineError> {
        self.publish();
        let settings = self.settings();
        let seen = match &self.unknown {
            Some(error) => Observation::failed(clock::now(), error),
            None => {
                let volumes = self
                    .book
                    .values()
                    .filter(|entry| entry.volume.made)
                    .map(|entry| entry.volume.provided())
                    .collect();
                let (driver, folder, group) = (
                    settings.driver.clone(),
                    Some(settings.folder.clone()),
                    settings.group.clone(),
                );
                Observation::ok(
                    clock::now(),
                    Provision {
                        driver,
                        volumes,
                        folder,
                        group,
                    },
                )
            }
        };
        let same = self
            .reported
            .as_ref()
            .is_some_and(|before| before.value() == seen.value() && before.error() == seen.error());
        // Before the first look has come to an end there is nothing to tell, and nothing to take
        // back.
        if same || (self.reported.is_none() && self.reading) {
            return Ok(());
        }
        self.reported = Some(seen.clone());
        self.reports
            .send(Report::Provision(seen))
            .await
            .map_err(|_| EngineError::OwnerGone)
    }
}

fn ticking(every: Duration) -> Interval {
    let mut tick = interval(every);
    tick.reset_at(Instant::now() + every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}
