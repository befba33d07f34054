//! Scored checks of real filesystems: healthy ones under load, and ones with every kind of damage
//! that `support::corrupt` knows. A real daemon checks each of them. The context truth is the
//! offline checker's result for the unmounted image.
//!
//! In: options. Out: a table on standard output; exit status 1 when a goal is missed (of a sample:
//! when a verdict is wrong). Run by hwtests/fscheck-trials.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use diskvitals_fscheck::Filesystem;
use plan::{Plan, Trial};
use score::Score;
use support::Testbed;
use support::daemon::{Arguments, Daemon};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use trial::{Context, Outcome};

#[path = "../tests/support/programs.rs"]
mod programs;
mod support;

#[path = "fscheck_trials/check_command.rs"]
mod check_command;
#[path = "fscheck_trials/fixture.rs"]
mod fixture;
#[path = "fscheck_trials/offline_baseline.rs"]
mod offline_baseline;
#[path = "fscheck_trials/plan.rs"]
mod plan;
#[path = "fscheck_trials/score.rs"]
mod score;
#[path = "fscheck_trials/trial.rs"]
mod trial;
#[path = "fscheck_trials/write_detection.rs"]
mod write_detection;

#[derive(Parser)]
#[command(about = "Checks of healthy and damaged filesystems, scored")]
struct Options {
    /// All kinds of damage and 30 healthy filesystems of each type (btrfs: 10); else a sample that
    /// fits the minutes
    #[arg(long)]
    full: bool,
    /// How long a sample may take
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(3..))]
    minutes: u64,
    /// Only this one: ext4, xfs, btrfs
    #[arg(long, value_parser = filesystem)]
    filesystem: Option<Filesystem>,
    /// The same seed gives the same filesystems and the same damage
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only shows which damage the offline checkers find, and which of it can be mounted; needs no
    /// daemon
    #[arg(long)]
    truth_only: bool,
    /// Shows the daemon's log at the end
    #[arg(long)]
    verbose: bool,
}

/// Loop devices count as drives, a slow machine does not count as a hang, and frozen runs are
/// allowed on request.
const CONFIG: &str = r#"
[log]
level = "debug"
[drives]
admit = ["loop*"]
offline_after = "2s"
reconcile_interval = "10s"
[volumes]
not_mounted_after = "1s"
[probes]
interval = "10s"
timeout = "10s"
[io]
interval = "5s"
stalled_after = "60s"
[counters]
interval = "2s"
[checks]
freeze = "on-demand"
# What is scored is what is answered, not how fast: many filesystems under load share this machine.
budget = "20s"
at_once = 2
max_queued = 500
"#;

fn filesystem(name: &str) -> Result<Filesystem, String> {
    Filesystem::from_name(name).ok_or_else(|| "ext4, xfs or btrfs".to_owned())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let all = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];
    let filesystems: Vec<Filesystem> = options.filesystem.map_or(all.to_vec(), |only| vec![only]);
    let good = if options.truth_only {
        offline_baseline::show(&filesystems, options.seed)
    } else {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(trials(&options, &filesystems))
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns whether every goal is met.
async fn trials(options: &Options, filesystems: &[Filesystem]) -> bool {
    let began = Instant::now();
    let plan = match options.full {
        true => Plan::full(filesystems, options.seed),
        false => Plan::sample(filesystems, options.seed, options.minutes),
    };
    println!("{} trials, seed {}", plan.trials.len(), options.seed);
    let testbed = Testbed::new();
    std::fs::write(testbed.path("diskvitals.toml"), CONFIG).expect("the configuration");
    let daemon = Daemon::start_with(&Arguments::of(&testbed)).await;
    let context = Arc::new(Context {
        socket: daemon.socket().to_owned(),
        testbed,
        seed: options.seed,
        making: Arc::new(Semaphore::new(2)),
        loading: Arc::new(Semaphore::new(2)),
        loading_damaged: Arc::new(Semaphore::new(3)),
        at_once: Arc::new(Semaphore::new(24)),
    });

    let mut score = Score::default();
    for filesystem in filesystems {
        for trace in
            write_detection::watch(&context.testbed, &context.socket, *filesystem, options.seed)
                .await
        {
            score::print_writes(&trace);
            score.write_traces.push(trace);
        }
    }

    let mut pristine: BTreeMap<&'static str, Arc<Path>> = BTreeMap::new();
    for filesystem in filesystems {
        let name = format!("{}-pristine", filesystem.name());
        pristine.insert(
            filesystem.name(),
            fixture::pristine(&context.testbed, *filesystem, &name, options.seed).into(),
        );
    }
    let last_begin = began + plan.last_begin;
    let mut running = JoinSet::new();
    for trial in plan.trials {
        let context = context.clone();
        let pristine = pristine.clone();
        running.spawn(async move { (trial, begin(context, trial, &pristine, last_begin).await) });
    }
    let mut left_out = 0;
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok((_, Ok(Some(outcome)))) => {
                score::print_outcome(&outcome);
                score.outcomes.push(outcome);
            }
            Ok((_, Ok(None))) => left_out += 1,
            Ok((trial, Err(why))) => score.broken.push(format!("{trial:?}: {why}")),
            Err(error) => score.broken.push(error.to_string()),
        }
    }
    let good = score.print(filesystems, !options.full);
    println!(
        "# {:.0} s, seed {}; {left_out} trials were left out for lack of time",
        began.elapsed().as_secs_f64(),
        options.seed
    );
    if options.verbose || !good {
        let log = std::fs::read_to_string(context.testbed.path("daemon.log")).unwrap_or_default();
        let kept = std::env::temp_dir().join(format!("fscheck-trials-{}.log", std::process::id()));
        std::fs::write(&kept, log).expect("the log");
        println!("# the daemon's log: {}", kept.display());
    }
    daemon.stop().await;
    good
}

/// None: there was no time for it.
async fn begin(
    context: Arc<Context>,
    trial: Trial,
    pristine: &BTreeMap<&'static str, Arc<Path>>,
    last_begin: Instant,
) -> Result<Option<Outcome>, String> {
    match trial {
        Trial::Healthy(filesystem, number) => {
            let _loading =
                context.loading.clone().acquire_owned().await.map_err(|error| error.to_string())?;
            if Instant::now() > last_begin {
                return Ok(None);
            }
            Ok(Some(trial::healthy(context, filesystem, number).await))
        }
        Trial::Damaged(filesystem, kind, loaded) => {
            // Writers of many filesystems would leave the checkers no processor time. A trial that
            // waits for this limit occupies no other slot.
            let turn = async |of: &Arc<Semaphore>| {
                of.clone().acquire_owned().await.map_err(|error| error.to_string())
            };
            let _loading = if loaded { Some(turn(&context.loading_damaged).await?) } else { None };
            let _place = turn(&context.at_once).await?;
            let pristine = pristine.get(filesystem.name()).ok_or("no pristine one")?.clone();
            trial::damaged(context, filesystem, kind, pristine, loaded, last_begin).await
        }
    }
}
