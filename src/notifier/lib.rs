//! `diskvitals-notify`: a small process without privileges that notifies people of the health of
//! the node, by mail, webhooks, programs and heartbeats.
//!
//! In: the daemon's socket, a configuration file. Out: messages. `daemon_watch` → `node_state` →
//! `planner` (pure: what is announced, and when) → `queue` (pure) and `store` (on disk) → `targets`
//! (one attempt each). `run` is the one task that owns planner and queue. It knows nothing of
//! devices, and uses of the daemon only its client.

#![warn(unreachable_pub)]

pub(crate) mod commands;
pub(crate) mod config;
pub(crate) mod daemon_watch;
pub(crate) mod message;
pub(crate) mod node_state;
pub mod options;
pub(crate) mod outgoing;
pub(crate) mod planner;
pub(crate) mod queue;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod secret;
pub(crate) mod store;
pub(crate) mod store_thread;
pub(crate) mod targets;
pub(crate) mod template;
pub(crate) mod text;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory;
use tracing_subscriber::filter::LevelFilter;

use crate::config::Config;
use crate::message::clean;
use crate::options::{Command, Options};
use diskvitals_program::logging;
use diskvitals_program::logging::complain;
use diskvitals_program::manual::NOTIFY;
use diskvitals_text::causes::with_causes;

/// Exit statuses, as documented in the help.
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// Whether the text is a configuration, as `--check-config` begins.
pub fn is_configuration(file: &Path, text: &str) -> bool {
    config::parse(file, text).is_ok()
}

/// Runs `diskvitals-notify`.
pub fn main(options: Options) -> ExitCode {
    if options.program.man {
        let page = NOTIFY.man(Options::command());
        return print(page);
    }
    if let Some(Command::Completions { shell }) = &options.command {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut Options::command(), "diskvitals-notify", &mut script);
        return print(Ok(script));
    }
    let mut config = match config::load(&options.config) {
        Ok(config) => config,
        Err(error) => return fail(USAGE, &with_causes(&error)),
    };
    if let Some(socket) = &options.socket {
        config.socket.clone_from(socket);
    }
    // One thread is enough: nothing here blocks but the disk, which has threads of its own.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(FAILED, &format!("starting the runtime: {error}")),
    };
    let status = match &options.command {
        Some(Command::Test(test)) => {
            let wanted = |name: &str| test.target.as_deref().is_none_or(|wanted| wanted == name);
            let targets: Vec<_> =
                config.targets.iter().filter(|target| wanted(&target.name)).collect();
            if targets.is_empty() {
                let names: Vec<&str> =
                    config.targets.iter().map(|target| target.name.as_str()).collect();
                let why = format!(
                    "no such target in {}; there are {}",
                    options.config.display(),
                    names.join(", ")
                );
                return fail(USAGE, &why);
            }
            let host = host_name(&config);
            report(&runtime.block_on(commands::test(&targets, &host, &config.socket)))
        }
        _ if options.check_config => report(&runtime.block_on(commands::check(&config))),
        _ => serve(&runtime, options, config),
    };
    // A thread may wait for a disk that does not respond.
    runtime.shutdown_timeout(Duration::ZERO);
    status
}

fn serve(runtime: &tokio::runtime::Runtime, options: Options, config: Config) -> ExitCode {
    let logging = match logging::init(options.program.log_format, LevelFilter::INFO) {
        Ok(logging) => logging,
        Err(error) => return fail(FAILED, &with_causes(&error)),
    };
    diskvitals_host::heap::configure_malloc();
    let status = match runtime.block_on(run::run(options, config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = with_causes(&error), "diskvitals-notify ends");
            ExitCode::from(FAILED)
        }
    };
    logging.flush();
    status
}

/// The host's name until the daemon has given the node's.
fn host_name(config: &Config) -> String {
    let own = || {
        let name = nix::unistd::gethostname().unwrap_or_default();
        clean(&name.to_string_lossy())
    };
    config.host.clone().unwrap_or_else(own)
}

fn report(outcome: &commands::Outcome) -> ExitCode {
    match (print(Ok(outcome.text.clone().into_bytes())), outcome.is_well) {
        (printed, true) => printed,
        (_, false) => ExitCode::from(FAILED),
    }
}

fn print(text: std::io::Result<Vec<u8>>) -> ExitCode {
    match text.and_then(|text| std::io::stdout().write_all(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &format!("writing to standard output: {error}")),
    }
}

fn fail(status: u8, why: &str) -> ExitCode {
    complain("diskvitals-notify", why);
    ExitCode::from(status)
}
