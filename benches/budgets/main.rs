//! Measures the budgets of diskvitals: each figure is a line `name value unit goal ok|SHORT`; facts
//! and remarks are lines that start with `#`.
//!
//! In: the daemon's program (release build). Out: lines on standard output. Nothing is asserted: a
//! missed goal is printed as SHORT. What could not be measured is printed as NOT MEASURED, the
//! others are measured, and the exit status is 1.
//!
//! Run by `scripts/bench`. The daemon is a separate process, as in production; recorded host trees
//! supply hardware that this machine does not have.

// The measuring program starts processes itself; src/host applies to the daemon only.
#![allow(clippy::disallowed_methods)]

mod calibration;
mod calls;
mod checks;
mod classify;
mod client;
mod csi;
mod daemon;
mod events;
mod figures;
mod filesystems;
mod footprint;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../hwtests/support/fuse.rs"]
mod fuse;
mod getvolume;
mod growth;
mod kernel_log;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../hwtests/support/load.rs"]
mod load;
mod metrics;
mod mounts;
mod peers;
mod picture;
#[path = "../../hwtests/support/populate.rs"]
mod populate;
mod process;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../hwtests/support/random.rs"]
mod random;
mod smart;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../tests/support/smartctl.rs"]
mod smartctl;
mod soak;
mod start;
mod straight_line;
#[path = "../../tests/support/tree.rs"]
mod tree;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};

use crate::figures::Figures;
use crate::peers::Peers;

#[derive(Parser)]
#[command(
    about = "Measures diskvitalsd against its budgets",
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    /// The daemon's program.
    #[arg(long, global = true, default_value = "target/release/diskvitalsd")]
    daemon: PathBuf,
    /// How long the idle processor time is measured: two probe rounds and a bit is 125.
    #[arg(long, default_value_t = 65)]
    seconds: u64,
    /// How long each load of GetVolume lasts.
    #[arg(long, default_value_t = 5)]
    load_seconds: u64,
    /// How long records of the kernel log come at the rate of a storm.
    #[arg(long, default_value_t = 20)]
    storm_seconds: u64,
    /// The folder of the programs to measure beside (benches/build-peers).
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Where the curves of the group `growth` are drawn.
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    /// Only these groups.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Group>,
    /// Only writes the recorded host of the measurements into this empty folder (64 drives, 500
    /// volumes), to look at or to start a daemon on.
    #[arg(long, value_name = "DIR")]
    write_host: Option<PathBuf>,
    /// Shows the daemon's log.
    #[arg(long, global = true)]
    verbose: bool,
    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Subcommand)]
enum Mode {
    /// Churn for a long time, and whether the daemon grows meanwhile (scripts/soak; as root).
    Soak {
        #[arg(long)]
        minutes: u64,
        /// Where soak.csv and soak.svg are written.
        #[arg(long, value_name = "DIR")]
        folder: PathBuf,
    },
}

impl Arguments {
    fn program(&self) -> daemon::Program {
        daemon::Program { path: self.daemon.clone(), verbose: self.verbose }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    Start,
    Footprint,
    Getvolume,
    Events,
    Mounts,
    Filesystems,
    KernelLog,
    Smart,
    Checks,
    Csi,
    Metrics,
    Writes,
    Growth,
}

const GROUPS: [Group; 13] = [
    Group::Start,
    Group::Events,
    Group::Mounts,
    Group::Filesystems,
    Group::Getvolume,
    Group::KernelLog,
    Group::Smart,
    Group::Metrics,
    Group::Writes,
    Group::Checks,
    Group::Csi,
    Group::Growth,
    Group::Footprint,
];

impl Group {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// For one group, beside the durations that the arguments set.
const GROUP_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// For threads that are in a call when everything else has ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

// One thread: the load comes from one core, so the daemon can use the other.
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.context("starting the runtime") {
        Ok(runtime) => {
            let code = runtime.block_on(run(arguments));
            // A thread that hangs in a call does not hold up the end.
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
            code
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> ExitCode {
    if let Some(dir) = &arguments.write_host {
        return match tree::write(dir, tree::Plan { drives: 64, volumes: 500, hung: 0 }) {
            Ok(_volumes) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: writing {}: {error}", dir.display());
                ExitCode::FAILURE
            }
        };
    }
    let mut figures = Figures::default();
    if let Some(Mode::Soak { minutes, folder }) = &arguments.mode {
        let duration = Duration::from_secs(minutes * 60);
        let program = arguments.program();
        let soaked = soak::measure(&program, &mut figures, duration, folder).await;
        return match soaked {
            Ok(()) if figures.short() == 0 => ExitCode::SUCCESS,
            Ok(()) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let limit = GROUP_TIMEOUT
        + Duration::from_secs(
            2 * arguments.seconds + 8 * arguments.load_seconds + 2 * arguments.storm_seconds,
        );
    for group in GROUPS {
        if !arguments.only.is_empty() && !arguments.only.contains(&group) {
            continue;
        }
        figures.remark(&format!("load average {}", load_average()));
        let measured = tokio::time::timeout(limit, measure(group, &arguments, &mut figures)).await;
        let measured = measured.with_context(|| format!("not within {limit:?}")).flatten();
        if let Err(error) = measured {
            figures.not_measured(&format!("the rest of {}", group.name()), &error);
        }
    }
    if figures.missing().is_empty() {
        ExitCode::SUCCESS
    } else {
        eprintln!("error: not measured: {}", figures.missing().join("; "));
        ExitCode::FAILURE
    }
}

async fn measure(group: Group, arguments: &Arguments, figures: &mut Figures) -> anyhow::Result<()> {
    // An earlier group that failed may have left this thread on one core.
    daemon::pin(None)?;
    let program = arguments.program();
    let peers = Peers(arguments.peers.clone());
    let load = Duration::from_secs(arguments.load_seconds);
    match group {
        Group::Start => start::measure(&program, figures).await,
        Group::Events => events::measure(&program, figures).await,
        Group::Mounts => mounts::measure(&program, figures).await,
        Group::Filesystems => filesystems::measure(&program, &peers, figures).await,
        Group::Getvolume => getvolume::measure(&program, &peers, figures, load).await,
        Group::KernelLog => {
            classify::measure(figures)?;
            let time = Duration::from_secs(arguments.storm_seconds);
            kernel_log::measure(&program, &peers, figures, time).await
        }
        Group::Smart => smart::measure(&program, &peers, figures).await,
        Group::Checks => checks::measure(&program, figures).await,
        Group::Csi => csi::measure(&program, &peers, figures, load).await,
        Group::Metrics => metrics::measure(&program, figures).await,
        Group::Writes => {
            let idle = Duration::from_secs(arguments.seconds);
            writes::measure(&program, figures, idle).await
        }
        Group::Growth => growth::measure(&program, figures, arguments.picture.as_deref()).await,
        Group::Footprint => {
            let idle = Duration::from_secs(arguments.seconds);
            footprint::measure(&program, figures, idle).await
        }
    }
}

fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(
        |error| error.to_string(),
        |text| text.split(' ').take(3).collect::<Vec<_>>().join(" "),
    )
}
