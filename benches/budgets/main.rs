//! Measures the budgets of diskvitals: each figure is a line `name value unit goal ok|SHORT`; facts
//! and remarks are lines that start with `#`.
//!
//! In: the daemon's program (release build). Out: lines on standard output. Nothing is asserted: a
//! missed goal is printed as SHORT, and the exit status is 0 unless a measurement failed.
//!
//! Run by `scripts/bench`. The daemon is a separate process, as in production; recorded host trees
//! supply hardware that this machine does not have.

// The measuring program starts processes itself; src/host applies to the daemon only.
#![allow(clippy::disallowed_methods)]

mod calls;
mod checks;
mod classify;
mod client;
mod csi;
mod daemon;
mod events;
mod figures;
mod footprint;
mod getvolume;
mod kernel_log;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../hwtests/support/load.rs"]
mod load;
mod metrics;
mod mounts;
#[path = "../../hwtests/support/populate.rs"]
mod populate;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../hwtests/support/random.rs"]
mod random;
mod smart;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../tests/support/smartctl.rs"]
mod smartctl;
mod start;
#[path = "../../tests/support/tree.rs"]
mod tree;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::figures::Figures;

#[derive(Parser)]
#[command(about = "Measures diskvitalsd against its budgets")]
struct Arguments {
    /// The daemon's program.
    #[arg(long, default_value = "target/release/diskvitalsd")]
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
    /// node-problem-detector, to measure beside; with --peer-rules.
    #[arg(long, value_name = "PROGRAM", requires = "peer_rules")]
    peer: Option<PathBuf>,
    /// Its kernel-monitor.json.
    #[arg(long, value_name = "FILE")]
    peer_rules: Option<PathBuf>,
    /// smartctl_exporter, to measure beside.
    #[arg(long, value_name = "PROGRAM")]
    smart_peer: Option<PathBuf>,
    /// Only these groups.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Group>,
    /// Only writes the recorded host of the measurements into this empty folder (64 drives, 500
    /// volumes), to look at or to start a daemon on.
    #[arg(long, value_name = "DIR")]
    write_host: Option<PathBuf>,
    /// Shows the daemon's log.
    #[arg(long)]
    verbose: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    Start,
    Footprint,
    Getvolume,
    Events,
    Mounts,
    KernelLog,
    Smart,
    Checks,
    Csi,
    Metrics,
}

const GROUPS: [Group; 10] = [
    Group::Start,
    Group::Events,
    Group::Mounts,
    Group::Getvolume,
    Group::KernelLog,
    Group::Smart,
    Group::Metrics,
    Group::Checks,
    Group::Csi,
    Group::Footprint,
];

// One thread: the load comes from one core, so the daemon can use the other.
#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    if let Some(dir) = &arguments.write_host {
        return match tree::write(
            dir,
            tree::Plan {
                drives: 64,
                volumes: 500,
                hung: 0,
            },
        ) {
            Ok(_volumes) => std::process::ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: writing {}: {error}", dir.display());
                std::process::ExitCode::FAILURE
            }
        };
    }
    let program = daemon::Program {
        path: arguments.daemon,
        verbose: arguments.verbose,
    };
    let peer = arguments
        .peer
        .zip(arguments.peer_rules)
        .map(|(program, rules)| kernel_log::Peer { program, rules });
    let mut figures = Figures::default();
    let mut failed = false;
    for group in GROUPS {
        if !arguments.only.is_empty() && !arguments.only.contains(&group) {
            continue;
        }
        figures.remark(&format!("load average {}", load_average()));
        let done = match group {
            Group::Start => start::measure(&program, &mut figures).await,
            Group::Events => events::measure(&program, &mut figures).await,
            Group::Mounts => mounts::measure(&program, &mut figures).await,
            Group::Getvolume => {
                getvolume::measure(
                    &program,
                    &mut figures,
                    Duration::from_secs(arguments.load_seconds),
                )
                .await
            }
            Group::KernelLog => {
                let peer = peer.as_ref().filter(|_| nix::unistd::geteuid().is_root());
                match classify::measure(&mut figures) {
                    Ok(()) => {
                        kernel_log::measure(
                            &program,
                            peer,
                            &mut figures,
                            Duration::from_secs(arguments.storm_seconds),
                        )
                        .await
                    }
                    Err(error) => Err(error),
                }
            }
            Group::Smart => {
                smart::measure(&program, arguments.smart_peer.as_deref(), &mut figures).await
            }
            Group::Checks => checks::measure(&program, &mut figures).await,
            Group::Csi => {
                csi::measure(
                    &program,
                    &mut figures,
                    Duration::from_secs(arguments.load_seconds),
                )
                .await
            }
            Group::Metrics => metrics::measure(&program, &mut figures).await,
            Group::Footprint => {
                footprint::measure(
                    &program,
                    &mut figures,
                    Duration::from_secs(arguments.seconds),
                )
                .await
            }
        };
        if let Err(error) = done {
            eprintln!("error: {error:#}");
            failed = true;
        }
    }
    if failed {
        std::process::ExitCode::FAILURE
    } else {
        std::process::ExitCode::SUCCESS
    }
}

fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(
        |error| error.to_string(),
        |text| text.split(' ').take(3).collect::<Vec<_>>().join(" "),
    )
}
