//! One filesystem, healthy or damaged, and the daemon's verdicts on it: live, and with frozen runs
//! allowed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use diskvitals_fscheck::Filesystem;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::check_command::{self, Answer, Verdict};
use crate::fixture::{self, DamagedImage, Mountable, MountedImage};
use crate::support::load::{Load, Written};
use crate::support::offline::{self, OfflineResult};
use crate::support::{Testbed, pause};

/// The load's operations before the first check: by then there are orphans, and the log is in use.
const WARM: u64 = 400;
const WRITER_TIME_LIMIT: Duration = Duration::from_secs(10);

/// What trials share.
pub struct Context {
    pub testbed: Testbed,
    pub socket: PathBuf,
    pub seed: u64,
    /// Filesystems that are created or damaged at a time.
    pub making: Arc<Semaphore>,
    /// Healthy filesystems under load at a time, and damaged ones: these wait for a minute each.
    pub loading: Arc<Semaphore>,
    pub loading_damaged: Arc<Semaphore>,
    /// Filesystems at a time in all.
    pub at_once: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Idle,
    Loaded,
    Unmounted,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Loaded => "loaded",
            State::Unmounted => "unmounted",
        }
    }
}

pub struct Outcome {
    pub filesystem: Filesystem,
    /// None: healthy.
    pub damage: Option<Damage>,
    pub state: State,
    /// None where it is not mounted: one check is enough.
    pub live: Option<Answer>,
    /// With frozen runs allowed; of an unmounted filesystem, the only verdict.
    pub frozen: Answer,
    pub written: Written,
    /// The offline checker's result at the end.
    pub after: OfflineResult,
}

pub struct Damage {
    pub kind: &'static str,
    pub what: String,
    /// Why it was not tried while mounted.
    pub unmounted: Option<String>,
}

impl Outcome {
    pub fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.live.iter().chain(std::iter::once(&self.frozen))
    }

    /// It was damaged all the time: mounting, writing and unmounting did not repair it.
    pub fn is_damaged(&self) -> bool {
        self.damage.is_some() && self.after != OfflineResult::Clean
    }

    pub fn has(&self, verdict: Verdict) -> bool {
        self.answers().any(|answer| answer.verdict == verdict)
    }
}

pub async fn healthy(context: Arc<Context>, filesystem: Filesystem, number: u64) -> Outcome {
    let name = format!("{}-healthy-{number}", filesystem.name());
    let seed = context.seed * 1000 + number;
    let image = make(&context, {
        let name = name.clone();
        move |testbed| fixture::pristine(testbed, filesystem, &name, seed)
    })
    .await;
    let mounted = MountedImage::new(&context.testbed, filesystem, &image, &name)
        .expect("a healthy filesystem mounts");
    let (live, frozen, written) = under_load(&context, filesystem, &mounted.at, seed).await;
    let after = finish(mounted, filesystem, image).await;
    Outcome {
        filesystem,
        damage: None,
        state: State::Loaded,
        live: Some(live),
        frozen,
        written,
        after,
    }
}

/// None: there was no time for it. `Err`: why there is no such damage.
pub async fn damaged(
    context: Arc<Context>,
    filesystem: Filesystem,
    kind: (&'static str, Option<&'static str>),
    pristine: Arc<Path>,
    loaded: bool,
    last_begin: Instant,
) -> Result<Option<Outcome>, String> {
    let seed = context.seed;
    let made = make(&context, move |testbed| {
        (Instant::now() <= last_begin)
            .then(|| fixture::damaged(testbed, filesystem, kind, &pristine, seed))
    });
    let Some(damaged) = made.await.transpose()? else {
        return Ok(None);
    };
    let DamagedImage { kind, image, what, mount, .. } = damaged;
    match mount {
        Mountable::No(why) => {
            let disk = context.testbed.attach(&image);
            let frozen = check_command::ask(&context.socket, filesystem, &disk.device, true).await;
            disk.detach();
            let after = blocking(move || ended(filesystem, &image)).await;
            let damage = Some(Damage { kind, what, unmounted: Some(why) });
            Ok(Some(Outcome {
                filesystem,
                damage,
                state: State::Unmounted,
                live: None,
                frozen,
                written: Written::default(),
                after,
            }))
        }
        Mountable::Yes => {
            let name = format!("{}-{kind}", filesystem.name());
            let mounted = MountedImage::new(&context.testbed, filesystem, &image, &name)
                .map_err(|error| format!("it mounted before, and now not: {error}"))?;
            let (live, frozen, written) = if loaded {
                under_load(&context, filesystem, &mounted.at, seed).await
            } else {
                let live =
                    check_command::ask(&context.socket, filesystem, &mounted.at, false).await;
                (
                    live,
                    check_command::ask(&context.socket, filesystem, &mounted.at, true).await,
                    Written::default(),
                )
            };
            let after = finish(mounted, filesystem, image).await;
            let state = if loaded { State::Loaded } else { State::Idle };
            let damage = Some(Damage { kind, what, unmounted: None });
            Ok(Some(Outcome {
                filesystem,
                damage,
                state,
                live: Some(live),
                frozen,
                written,
                after,
            }))
        }
    }
}

async fn under_load(
    context: &Context,
    filesystem: Filesystem,
    at: &Path,
    seed: u64,
) -> (Answer, Answer, Written) {
    let load = Load::start(at, 2, seed);
    let operations = load.counter();
    // A damaged filesystem may refuse everything: then there is no load.
    let latest = Instant::now() + WRITER_TIME_LIMIT;
    while operations.load(Ordering::Relaxed) < WARM && Instant::now() < latest {
        pause(Duration::from_millis(20)).await;
    }
    let live = check_command::ask(&context.socket, filesystem, at, false).await;
    let frozen = check_command::ask(&context.socket, filesystem, at, true).await;
    (live, frozen, blocking(move || load.stop()).await)
}

async fn make<T: Send + 'static>(
    context: &Arc<Context>,
    making: impl FnOnce(&Testbed) -> T + Send + 'static,
) -> T {
    let _turn = context.making.clone().acquire_owned().await.expect("open");
    let context = context.clone();
    blocking(move || making(&context.testbed)).await
}

pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("it does not panic")
}

async fn finish(mounted: MountedImage, filesystem: Filesystem, image: PathBuf) -> OfflineResult {
    blocking(move || {
        mounted.end();
        ended(filesystem, &image)
    })
    .await
}

fn ended(filesystem: Filesystem, image: &Path) -> OfflineResult {
    let truth = offline::check(filesystem, image);
    // The directory is removed with the testbed at the latest.
    let _ = std::fs::remove_file(image);
    truth
}
