//! The command line of `diskvitals-notify`.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use crate::config::DEFAULT_FILE;
use diskvitals_program::ProgramOptions;
use diskvitals_program::manual::NOTIFY;

/// Sends mail, webhooks and heartbeats about the drives, filesystems and volumes of this node.
///
/// It follows diskvitalsd on its socket and sends one message for each cause that is raised, becomes
/// worse, is acknowledged or clears. It needs no privilege: its user is a member of the group
/// diskvitals. Messages wait in a queue on disk until they are delivered.
///
/// Signals: HUP reads the configuration again (so does a change of the file); TERM and INT stop it,
/// in 5 s at most.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "diskvitals-notify",
    version,
    max_term_width = 100,
    after_long_help = NOTIFY.help()
)]
pub struct Options {
    /// Configuration in TOML
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE, global = true)]
    pub config: PathBuf,

    /// Directory of the queue
    #[arg(long, value_name = "DIR", default_value = "/var/lib/diskvitals-notify", value_parser = PathBufValueParser::new().try_map(std::path::absolute::<PathBuf>))]
    pub state_dir: PathBuf,

    /// The socket of diskvitalsd [default: `socket` of the configuration]
    #[arg(long, value_name = "PATH", value_parser = PathBufValueParser::new().try_map(std::path::absolute::<PathBuf>))]
    pub socket: Option<PathBuf>,

    /// Check the configuration, the programs, addresses, certificates and secrets that it names, and
    /// exit; nothing is sent. 2 if the configuration is refused, 1 if a target cannot work
    #[arg(long)]
    pub check_config: bool,

    #[command(flatten)]
    pub program: ProgramOptions,

    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    Test(TestOptions),
    /// Print the completions of a shell
    #[command(hide = true)]
    Completions {
        shell: clap_complete::Shell,
    },
}

/// Send a marked test to one target or to all, with what diskvitalsd reports, and print the server's
/// answer
#[derive(Args, Clone, Debug)]
pub struct TestOptions {
    /// Name of the target [default: all]
    pub target: Option<String>,
}
