//! The runner: selects the scenarios, runs them on one guest, and reports durations and what a
//! failed scenario left behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::lab::context::{Context, FIRST_SNAPSHOT};
use crate::lab::drives::{self, Drive};
use crate::lab::guest::Guest;
use crate::lab::zfs_pools;
use crate::programs::built_program;

pub struct Scenario {
    /// A statement that is true when it passes.
    pub name: &'static str,
    /// Its own drives: it breaks them, and they must be healthy at its start.
    pub breaks: &'static [Drive],
    pub limit: Duration,
    pub run: fn(&mut Context),
}

/// Arguments as of every test program: parts of scenario names, `--list`, and options for threads
/// and output, which are ignored. DISKVITALS_LAB_REPEAT boots and runs everything that many times.
/// DISKVITALS_LAB_CAPTURES is a directory for the kernel log of each scenario. DISKVITALS_LAB_LONG
/// adds the long scenarios, which otherwise run only when named.
pub fn main(scenarios: &[Scenario], long: &[Scenario]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let named = |scenario: &&Scenario| filters.iter().any(|filter| scenario.name.contains(*filter));
    let all = filters.is_empty();
    let all_long = all && std::env::var_os("DISKVITALS_LAB_LONG").is_some();
    let short = scenarios.iter().filter(|scenario| all || named(scenario));
    let chosen: Vec<&Scenario> =
        short.chain(long.iter().filter(|scenario| all_long || named(scenario))).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        chosen.iter().for_each(|scenario| println!("{}: test", scenario.name));
        return ExitCode::SUCCESS;
    }
    let built = match prepare() {
        Ok(built) => built,
        Err(reason) => {
            println!("the QEMU lab was left out: {reason}");
            // Requested explicitly, it must not seem to have run.
            return if std::env::var_os("DISKVITALS_LAB_REQUIRED").is_some() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let zfs = chosen.iter().any(|scenario| scenario.name.starts_with("zfs_"));
    // Without it the scenarios that need it fail, and the others run.
    let zfs = zfs.then(|| built_by("build-zfs", &[&built])).and_then(|built| {
        built.inspect_err(|reason| println!("there is no ZFS for the guest: {reason}")).ok()
    });
    let rounds = std::env::var("DISKVITALS_LAB_REPEAT")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1_u32);
    let failed = (0..rounds).map(|_| round(&built, zfs.as_deref(), &chosen)).sum::<usize>();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One boot, all scenarios. Returns how many failed.
fn round(built: &Path, zfs: Option<&Path>, chosen: &[&Scenario]) -> usize {
    let started = Instant::now();
    let mut guest = Guest::boot(built, &scratch());
    println!("booted with {} in {:.1?}", guest.accelerator, guest.booted_in);
    if let Some(archive) = zfs {
        std::fs::copy(archive, guest.share().join(zfs_pools::ARCHIVE)).expect("the shared folder");
    }
    guest.start_daemon();
    println!("diskvitalsd runs under systemd after {:.1?}", started.elapsed());
    let mut context = Context::new(guest);
    // On a busy machine the first scan may take longer than the daemon waits for one.
    context.until_within(FIRST_SNAPSHOT, "the first complete snapshot", |context| {
        let settled = context.guest.ask("status").is_ok_and(|node| node["settled"] == true);
        let answer = context.guest.ask("drives").ok()?;
        let drives = answer["drives"].as_array()?;
        let is_answered = drives.iter().all(|drive| drive["health"] != "HEALTH_UNKNOWN");
        (settled && is_answered && drives.len() >= drives::ALL.len()).then_some(())
    });
    let mut failed = Vec::new();
    for scenario in chosen {
        let began = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            context.begin(scenario.limit, scenario.breaks);
            (scenario.run)(&mut context);
            context.others_are_good();
        }));
        let took = began.elapsed();
        if let Some(dir) = std::env::var_os("DISKVITALS_LAB_CAPTURES") {
            let file = Path::new(&dir).join(format!("{}.txt", scenario.name));
            std::fs::write(&file, context.raw_records())
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        match ended {
            Ok(()) => {
                println!("test {} ... ok ({took:.1?})", scenario.name);
            }
            Err(_) => {
                println!("test {} ... FAILED ({took:.1?})", scenario.name);
                let diagnostics = catch_unwind(AssertUnwindSafe(|| context.diagnostics()));
                println!("{}", diagnostics.unwrap_or_else(|_| context.guest.console(60)));
                failed.push(scenario.name);
            }
        }
    }
    if !failed.is_empty() {
        println!("what is left of the guest: {}", context.guest.keep().display());
    }
    println!(
        "lab: {} passed, {} failed, in {:.0?}",
        chosen.len() - failed.len(),
        failed.len(),
        started.elapsed()
    );
    if !failed.is_empty() {
        // In the format of every test program: scripts/test runs these again.
        println!("\nfailures:");
        failed.iter().for_each(|name| println!("    {name}"));
        println!();
    }
    failed.len()
}

/// Built guests, and the directories of running ones.
fn scratch() -> PathBuf {
    // target/PROFILE/diskvitalsd
    Path::new(built_program("diskvitalsd")).ancestors().nth(2).expect("target").join("lab")
}

/// The built guest, or why there is none.
fn prepare() -> Result<PathBuf, String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("not root".to_owned());
    }
    if !Path::new("/usr/bin/qemu-system-x86_64").exists() {
        return Err("qemu-system-x86 is not installed".to_owned());
    }
    built_by("build-guest", &[])
}

/// What a script beside this file has built, now or earlier: the last line of its output.
#[expect(clippy::disallowed_methods, reason = "the scripts that build the guest and ZFS")]
fn built_by(script: &str, arguments: &[&Path]) -> Result<PathBuf, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("hwtests/lab").join(script);
    let output = Command::new(path)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{script}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{script}: {}", output.status));
    }
    text.lines().last().map(PathBuf::from).ok_or_else(|| format!("{script} printed nothing"))
}
