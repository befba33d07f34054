//! The arguments of `status` and `watch`.

use clap::ValueEnum;

use crate::args::findings::FindingFilter;

#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    /// Exit with 0 good, 1 warning, 2 critical, 3 unknown (also without a daemon, after a time-out
    /// and for wrong usage); acknowledged findings do not count
    #[arg(long)]
    pub exit_code: bool,
    /// Keep the screen up to date, with drives, their I/O, checks and self-tests, until q; arrow
    /// and page keys scroll, Enter shows a cause in full; without a terminal, print one line per change; with -o json, one document per change
    #[arg(long, conflicts_with = "exit_code")]
    pub watch: bool,
    /// Print the status for a monitoring system
    #[arg(long, value_enum, conflicts_with_all = ["watch", "exit_code"])]
    pub format: Option<MonitoringFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MonitoringFormat {
    /// A plugin's output with performance data, and its exit status (also for Icinga)
    Nagios,
    /// A local check: one line for the node, each drive and each volume
    Checkmk,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub struct WatchArgs {
    /// Only changes, without the list of what there is
    #[arg(long)]
    pub changes: bool,
    #[command(flatten)]
    pub filter: FindingFilter,
}
