//! Commands without a daemon: completions, man pages, the limits of a configuration file.

use std::io;
use std::path::Path;

use clap::CommandFactory;

use crate::cli::args::Args;
use crate::config;
use crate::config::ConfigError;
use crate::model::policy::Policy;

pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "diskvitals", &mut text);
    text
}

/// Writes diskvitals(1) and one page for each command.
pub(crate) fn man(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Args::command(), dir)
}

/// The policy of the daemon's configuration; the defaults if no file is named.
pub(crate) fn policy(file: Option<&Path>) -> Result<Policy, ConfigError> {
    file.map_or_else(
        || Ok(Policy::default()),
        |file| Ok(config::load(Some(file))?.policy()),
    )
}
