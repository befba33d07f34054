//! The composition root: settings, then locks and sockets, then tasks, then the wait for the end.
//!
//! Everything is built here and passed down; no other module reads arguments or the environment. A
//! task that ends unexpectedly ends the daemon with its error: a daemon that runs only in part is
//! the worst state.

mod cleanup;
mod error;
mod lamps;
mod metrics;
pub mod node;
pub mod options;
pub mod provisioning;
mod run;
mod settings;
mod systemd;
pub mod watchdog;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::app::options::Options;
use diskvitals_checker as checker;
use diskvitals_config as config;
use diskvitals_config::{Config, LogLevel};
use diskvitals_fscheck::Filesystem;
use diskvitals_host::memory;
use diskvitals_host::root::HostRoot;
use diskvitals_host::trusted_file;
use diskvitals_program::logging;
use diskvitals_program::logging::complain;
use diskvitals_program::manual::DAEMON;
use diskvitals_text::causes::with_causes;
use diskvitals_text::echo::Shown;

/// Exit statuses, as documented in the help.
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// Stack frames are small, and all stacks are locked in memory. A filesystem check needs the
/// deepest stack: without optimization, 256 KiB are too small for it.
const STACK_SIZE: usize = 512 * 1024;

/// One thread for each `BlockingLane` (two of SMART, three of the filesystem checks), one for each
/// socket that reads who its callers are (two), one for subordinate uids, and one for reading the
/// configuration; two are spare.
const BLOCKING_THREADS: usize = 11;

/// Runs the daemon until it ends.
pub fn main(options: Options) -> ExitCode {
    if options.program.man {
        return print_man_page();
    }
    let (config, refused) = match options.load_config() {
        Ok(config) => (config, Vec::new()),
        Err(error) if options.check_config || error.is_missing() => {
            return fail(USAGE, &with_causes(&error));
        }
        // A node that is not monitored, or whose volumes cannot be mounted, would be worse.
        Err(_) => options.load_what_is_good(),
    };
    if options.check_config {
        return check_config(&options, &config);
    }
    // Before other threads exist: of their stacks, only what is used is locked.
    let locked = memory::lock_all();
    let logging = match logging::init(options.program.log_format, level(config.log.level)) {
        Ok(logging) => logging,
        Err(error) => return fail(FAILED, &with_causes(&error)),
    };
    diskvitals_host::heap::configure_malloc();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_stack_size(STACK_SIZE)
        .thread_name("diskvitalsd")
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(run::run(options, config, refused, &logging, locked));
            // The runtime's threads are never joined: one may hang on a disk.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(error::RunError::Runtime(error)),
    };
    let status = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = with_causes(&error), "diskvitalsd ends");
            ExitCode::from(FAILED)
        }
    };
    logging.flush();
    status
}

fn fail(status: u8, message: &str) -> ExitCode {
    complain("diskvitalsd", message);
    ExitCode::from(status)
}

fn print_man_page() -> ExitCode {
    let printed =
        DAEMON.man(Options::command()).and_then(|page| std::io::stdout().write_all(&page));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &format!("writing the man page: {error}")),
    }
}

/// A program that the file names must exist; without one that is only a default, less is known.
fn check_config(options: &Options, config: &Config) -> ExitCode {
    let root = HostRoot::new(&options.host_root);
    let exists = |key: &str, program: &Path| match key {
        // It runs in the host's mount namespace.
        "checks.tools.lvm" => root.at(program).is_file(),
        _ => program.is_file(),
    };
    let (file, overrides) = (options.config.as_deref(), &options.config_override);
    if let Err(error) = config::check_programs(file, overrides, config, exists) {
        return fail(USAGE, &with_causes(&error));
    }
    for (key, program) in config::programs(config) {
        let Some(program) = program else { continue };
        let checked = match key {
            "checks.tools.lvm" => trusted_file::check_program(&root.at(program)),
            _ => trusted_file::check_program(program),
        };
        match checked {
            // What is missing was reported above, or is only a default.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return fail(USAGE, &format!("{key}: {error}"));
            }
            _ => {}
        }
    }
    let smartctl = &config.smart.command;
    if config.smart.enabled && !smartctl.is_file() {
        let missing = format!(
            "warning: smartctl is not installed (no {}): drives with SMART will be unknown",
            smartctl.display()
        );
        complain("diskvitalsd", &missing);
    }
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
        if let Err(error) = checker::find_program(&config.checks.tools, filesystem) {
            let name = filesystem.name();
            let warning = format!("warning: {name} cannot be checked: {error}");
            complain("diskvitalsd", &warning);
        }
    }
    print_settings(options, config)
}

fn print_settings(options: &Options, config: &Config) -> ExitCode {
    match toml::to_string(config) {
        Ok(text) => {
            let files = options.config_files().into_iter().map(|file| match file.exists() {
                true => file.display().to_string(),
                false => format!("{} (missing)", file.display()),
            });
            let head = format!("# in force with {}\n", files.collect::<Vec<_>>().join(", "));
            print!("{}", Shown::screen(&(head + &text)));
            ExitCode::SUCCESS
        }
        Err(error) => fail(FAILED, &format!("printing the settings: {error}")),
    }
}

fn level(level: LogLevel) -> tracing_subscriber::filter::LevelFilter {
    use tracing_subscriber::filter::LevelFilter;
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
