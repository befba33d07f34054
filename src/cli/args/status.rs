//! The arguments of `status` and `watch`.

use crate::cli::args::findings::FindingFilter;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Exit with 0 good, 1 warning, 2 critical, 3 unknown (also without a daemon, after a time-out
    /// and for wrong usage); acknowledged findings do not count
    #[arg(long)]
    pub exit_code: bool,
    /// Keep the screen up to date, with drives, their I/O, checks and self-tests, until q; without a
    /// terminal, print one line per change; with -o json, one document per change
    #[arg(long, conflicts_with = "exit_code")]
    pub watch: bool,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct WatchArgs {
    /// Only changes, without the list of what there is
    #[arg(long)]
    pub changes: bool,
    #[command(flatten)]
    pub filter: FindingFilter,
}
