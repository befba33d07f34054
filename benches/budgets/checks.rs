//! The cost of checks: how long writers wait while a filesystem is frozen, the resources of a check
//! of a filesystem with 100,000 files, and the effect of a live check on other users of the drive,
//! throttled and not.
//!
//! All values are measured from outside (a writer's clock, the kernel's counters, /proc), on loop
//! devices; root is required. The big filesystems are created once, in the build folder.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::daemon::{Daemon, Program};
use crate::figures::{Figures, Goal, Samples, milliseconds};
use crate::footprint::process_tree;
use crate::load::Load;
use crate::populate::{self, USUAL};
use crate::process::{self, TOOL_TIMEOUT};
use crate::random::Random;

const FILESYSTEMS: [&str; 2] = ["ext4", "xfs"];
/// Number of frozen checks of each filesystem, idle and loaded.
const FREEZE_ROUNDS: usize = 20;
const FILES: usize = 100_000;
const BIG_BYTES: u64 = 10 << 30;
/// Minimum time for which other users are measured in each case.
const SAMPLE_TIME: Duration = Duration::from_secs(10);
/// Size of the file that is read at random, in bytes.
const READ_BYTES: u64 = 64 << 20;
/// Of one check; a throttled one of the big filesystem takes a minute.
const CHECK_TIMEOUT: Duration = Duration::from_secs(300);
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(60);
const MIB: f64 = 1_048_576.0;

pub async fn measure(program: &Program, figures: &mut Figures) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        figures.remark("not root: checks are not measured");
        return Ok(());
    }
    let folder = program
        .path
        .parent()
        .and_then(Path::parent)
        .context("the folder of the build")?
        .join("checks");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let free = start(program, 0)?;
    let held_back = start(program, 20_000_000)?;
    let (free, held_back) = (wait_settled(free).await?, wait_settled(held_back).await?);
    for filesystem in FILESYSTEMS {
        freezes(&free, filesystem, figures).await?;
        let image = big_image(&folder, filesystem, figures)?;
        measure_check_cost(&free, &image, filesystem, figures).await?;
        measure_other_users(&free, &held_back, &image, filesystem, figures).await?;
    }
    Ok(())
}

/// A daemon on this machine, and the client that queries it.
struct CheckHost {
    daemon: Daemon,
    client: PathBuf,
}

/// `rate`: the read limit of a live run per second; 0: unlimited.
fn start(program: &Program, rate: u64) -> anyhow::Result<CheckHost> {
    let config = format!(
        "[drives]\nadmit = [\"loop*\"]\nreconcile_interval = \"10s\"\n[io]\nstalled_after = \"60s\"\n[checks]\nfreeze = \"on-demand\"\nread_bytes_per_second = {rate}\n"
    );
    let daemon = program.start(Path::new("/"), &config, None)?;
    Ok(CheckHost { daemon, client: program.path.with_file_name("diskvitals") })
}

async fn wait_settled(mut asked: CheckHost) -> anyhow::Result<CheckHost> {
    asked.daemon.wait_settled().await?;
    Ok(asked)
}

impl CheckHost {
    /// Runs a check that must end with CLEAN; without the permission to freeze, a busy filesystem
    /// may be INCONCLUSIVE. Returns the duration and the number of frozen runs.
    fn check(
        &self,
        target: &Path,
        filesystem: &str,
        freeze: bool,
    ) -> anyhow::Result<(Duration, usize)> {
        let begun = Instant::now();
        loop {
            let mut command = Command::new(&self.client);
            command
                .arg("--socket")
                .arg(self.daemon.socket())
                .args(["--output", "json", "check"])
                .arg(target);
            // Without udevd, the content of a device that is not mounted is unknown.
            command.args(["--filesystem", filesystem]);
            if freeze {
                command.arg("--freeze");
            }
            let started = Instant::now();
            let output = process::output(&mut command, CHECK_TIMEOUT)?;
            let took = started.elapsed();
            let answer =
                serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_default();
            let check = answer.get("check").unwrap_or(&answer);
            match check["verdict"].as_str() {
                Some(verdict)
                    if verdict == "VERDICT_CLEAN"
                        || !freeze && verdict == "VERDICT_INCONCLUSIVE" =>
                {
                    let runs = check["runs"].as_array().into_iter().flatten();
                    return Ok((took, runs.filter(|run| run["mode"] == "MODE_FROZEN").count()));
                }
                Some(other) => bail!(
                    "{} is healthy, and the check says {other}: {}",
                    target.display(),
                    check["reason"]
                ),
                // The target was mounted or attached a moment ago.
                None if begun.elapsed() < DISCOVERY_TIMEOUT => {
                    std::thread::sleep(Duration::from_millis(500))
                }
                None => bail!(
                    "no check of {}: {}",
                    target.display(),
                    String::from_utf8_lossy(&output.stderr)
                ),
            }
        }
    }
}

/// A loop device and its mount; both are removed when it is dropped.
struct LoopMount {
    device: PathBuf,
    at: Option<tempfile::TempDir>,
}

impl LoopMount {
    fn attached(image: &Path) -> anyhow::Result<LoopMount> {
        // Direct I/O bypasses the page cache, so reads cost as much as on the drive.
        let device = run("losetup", &["--find", "--show", "--direct-io=on"], image)?;
        Ok(LoopMount { device: device.trim().into(), at: None })
    }

    fn mounted(image: &Path, filesystem: &str) -> anyhow::Result<LoopMount> {
        let mut stage = LoopMount::attached(image)?;
        let at = tempfile::Builder::new()
            .prefix("diskvitals-checks-")
            .tempdir()
            .context("making a mount point")?;
        mount(Some(&stage.device), at.path(), Some(filesystem), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("mounting {}", image.display()))?;
        stage.at = Some(at);
        Ok(stage)
    }

    fn at(&self) -> anyhow::Result<&Path> {
        self.at.as_ref().map(tempfile::TempDir::path).context("it is not mounted")
    }

    /// Sectors read from the device since it was attached: /sys/block/NAME/stat, the third number.
    fn sectors_read(&self) -> anyhow::Result<u64> {
        let name =
            self.device.file_name().and_then(|name| name.to_str()).context("a kernel name")?;
        let file = format!("/sys/block/{name}/stat");
        let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        text.split_whitespace()
            .nth(2)
            .and_then(|number| number.parse().ok())
            .with_context(|| format!("reading {file}: {text}"))
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        if let Some(at) = &self.at {
            let path = at.path().to_owned();
            // It waits for ever on a filesystem that stayed frozen.
            let unmount = move || {
                umount2(&path, MntFlags::empty()).or_else(|_| umount2(&path, MntFlags::MNT_DETACH))
            };
            if let Err(error) = process::within("an unmount", TOOL_TIMEOUT, unmount)
                .and_then(|unmounted| unmounted.context("umount2"))
            {
                eprintln!("error: unmounting {}: {error:#}", at.path().display());
            }
        }
        if let Err(error) = run("losetup", &["--detach"], &self.device) {
            eprintln!("error: {error:#}");
        }
    }
}

fn run(program: &str, arguments: &[&str], last: &Path) -> anyhow::Result<String> {
    let output = process::output(Command::new(program).args(arguments).arg(last), TOOL_TIMEOUT)?;
    if !output.status.success() {
        bail!("{program} {}: {}", last.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn make(filesystem: &str, image: &Path, bytes: u64) -> anyhow::Result<()> {
    File::create(image)
        .and_then(|file| file.set_len(bytes))
        .with_context(|| format!("making {}", image.display()))?;
    let arguments: &[&str] = if filesystem == "ext4" {
        &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
    } else {
        &["-q"]
    };
    run(&format!("mkfs.{filesystem}"), arguments, image).map(drop)
}

/// Measures a writer's longest wait in each of many frozen checks.
async fn freezes(asked: &CheckHost, filesystem: &str, figures: &mut Figures) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("making a folder")?;
    let image = dir.path().join("image");
    make(filesystem, &image, 1 << 30)?;
    let stage = LoopMount::mounted(&image, filesystem)?;
    populate::populate(stage.at()?, USUAL, 1).context("filling the filesystem")?;
    for (name, loaded) in [("idle", false), ("loaded", true)] {
        let load = loaded.then(|| {
            Load::start(stage.at.as_ref().map_or(Path::new("/"), tempfile::TempDir::path), 2, 1)
        });
        let (mut windows, mut held) = (Samples::default(), 0);
        for _ in 0..FREEZE_ROUNDS {
            let mut waits = BackgroundLoad::start({
                let file = File::create(stage.at()?.join("waits")).context("making a file")?;
                move |_: &mut Random| {
                    std::thread::sleep(Duration::from_millis(1));
                    let started = Instant::now();
                    file.write_all_at(b"x", 0).map(|()| started.elapsed())
                }
            });
            held += asked.check(stage.at()?, filesystem, true)?.1;
            windows.push(waits.end()?.max());
        }
        figures.remark(&format!(
            "{filesystem}, {name}: {held} of {FREEZE_ROUNDS} checks held the writers; what a live run finds clean is not frozen"
        ));
        if let Some(load) = load {
            let written =
                process::within("the end of the load", TOOL_TIMEOUT, move || load.stop())?;
            figures.remark(&format!(
                "{filesystem}: {} operations of two writers meanwhile",
                written.operations
            ));
        }
        figures.figure_without_goal(
            &format!("check_{filesystem}_freeze_{name}_p50"),
            milliseconds(windows.quantile(0.5)),
            "ms",
        );
        let limit = if loaded { 2000.0 } else { 1000.0 };
        figures.add(
            &format!("check_{filesystem}_freeze_{name}_p99"),
            milliseconds(windows.quantile(0.99)),
            "ms",
            Goal::AtMost(limit),
        );
    }
    figures.remark(&format!(
        "{FREEZE_ROUNDS} frozen checks each of a filesystem with 3,000 inodes; a window is the longest wait of a writer in one check"
    ));
    Ok(())
}

/// Returns the big filesystem; creates it if it does not exist.
fn big_image(folder: &Path, filesystem: &str, figures: &mut Figures) -> anyhow::Result<PathBuf> {
    let image = folder.join(format!("{filesystem}-100000"));
    if image.exists() {
        return Ok(image);
    }
    figures.remark(&format!("making {} (once)", image.display()));
    let unfinished = image.with_extension("unfinished");
    make(filesystem, &unfinished, BIG_BYTES)?;
    let stage = LoopMount::mounted(&unfinished, filesystem)?;
    let top = stage.at()?;
    let mut random = Random::new(1);
    for folder in 0..FILES / 500 {
        let folder = top.join(format!("{:03}/{folder:03}", folder % 20));
        fs::create_dir_all(&folder).context("making a folder")?;
        for file in 0..500 {
            // Every fifth file has data.
            let data = if file % 5 == 0 { random.bytes(2000) } else { Vec::new() };
            fs::write(folder.join(format!("{file:03}-{:016x}", random.next())), data)
                .context("writing a file")?;
        }
    }
    let mut file = File::create(top.join("read")).context("making the file that is read")?;
    for _ in 0..READ_BYTES >> 20 {
        file.write_all(&random.bytes(1 << 20)).context("writing the file that is read")?;
    }
    file.sync_all().context("writing the file that is read")?;
    drop(file);
    drop(stage);
    fs::rename(&unfinished, &image).context("naming the filesystem")?;
    Ok(image)
}

/// Measures one check of an unmounted filesystem: one run, not throttled.
async fn measure_check_cost(
    asked: &CheckHost,
    image: &Path,
    filesystem: &str,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let stage = LoopMount::attached(image)?;
    let before = stage.sectors_read()?;
    let pid = asked.daemon.pid();
    let stop = Arc::new(AtomicBool::new(false));
    let peak = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let mut peak = 0;
            while !stop.load(Ordering::Relaxed) {
                // A process that has ended cannot be queried.
                for process in process_tree(pid).unwrap_or_default() {
                    if let Ok(status) = process.status()
                        && matches!(status.name.as_str(), "e2fsck" | "xfs_repair")
                    {
                        peak = peak.max(status.vmhwm.unwrap_or_default());
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            peak
        }
    });
    let took = asked.check(&stage.device, filesystem, false);
    stop.store(true, Ordering::Relaxed);
    let peak = peak.join().map_err(|_| anyhow::anyhow!("watching memory"))?;
    let read = (stage.sectors_read()? - before) as f64 * 512.0 / MIB;
    // Twice the measured values for such filesystems, with a margin for a slower machine.
    let (seconds, memory, bytes) =
        if filesystem == "ext4" { (3.0, 64.0, 100.0) } else { (5.0, 256.0, 300.0) };
    figures.add(
        &format!("check_{filesystem}_100k_time"),
        took?.0.as_secs_f64(),
        "s",
        Goal::AtMost(seconds),
    );
    figures.add(&format!("check_{filesystem}_100k_read"), read, "MiB", Goal::AtMost(bytes));
    figures.add(
        &format!("check_{filesystem}_100k_checker_rss"),
        peak as f64 / 1024.0,
        "MiB",
        Goal::AtMost(memory),
    );
    figures.remark("reads of the daemon itself, when it learns of the device, are among them");
    Ok(())
}

/// Measures the effect on a reader and a writer on the same filesystem.
async fn measure_other_users(
    free: &CheckHost,
    held_back: &CheckHost,
    image: &Path,
    filesystem: &str,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let stage = LoopMount::mounted(image, filesystem)?;
    let mut before = None;
    for (name, asked) in
        [("no_check", None), ("check", Some(free)), ("check_held_back", Some(held_back))]
    {
        if let Some(asked) = asked {
            // The check makes the target known before the measurement.
            asked.check(stage.at()?, filesystem, false)?;
        }
        let mut reads = reader(stage.at()?)?;
        let mut appends = appender(stage.at()?)?;
        let started = Instant::now();
        let mut checks = 0;
        match asked {
            None => std::thread::sleep(SAMPLE_TIME),
            Some(asked) => {
                while started.elapsed() < SAMPLE_TIME {
                    asked.check(stage.at()?, filesystem, false)?;
                    checks += 1;
                }
            }
        }
        let (mut read, mut append) = (reads.end()?, appends.end()?);
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        figures.figure_without_goal(
            &format!("others_{filesystem}_{name}_read_p50"),
            microseconds(read.quantile(0.5)),
            "us",
        );
        let p99 = microseconds(read.quantile(0.99));
        match (asked, before) {
            (Some(_), Some(without)) if name == "check_held_back" => {
                figures.add(
                    &format!("others_{filesystem}_{name}_read_p99"),
                    p99,
                    "us",
                    Goal::AtMost(f64::round(without * 2.0)),
                );
            }
            _ => figures.figure_without_goal(
                &format!("others_{filesystem}_{name}_read_p99"),
                p99,
                "us",
            ),
        }
        if asked.is_none() {
            before = Some(p99);
        }
        figures.figure_without_goal(
            &format!("others_{filesystem}_{name}_fsync_p50"),
            milliseconds(append.quantile(0.5)),
            "ms",
        );
        figures.figure_without_goal(
            &format!("others_{filesystem}_{name}_fsync_p99"),
            milliseconds(append.quantile(0.99)),
            "ms",
        );
        figures.remark(&format!(
            "{} reads, {} appends, {checks} checks in {:.1} s",
            read.len(),
            append.len(),
            started.elapsed().as_secs_f64()
        ));
    }
    fs::remove_file(stage.at()?.join("appended")).context("removing what was appended")
}

/// Reads 4 KiB at random offsets, bypassing the page cache.
fn reader(top: &Path) -> anyhow::Result<BackgroundLoad> {
    let file = File::options()
        .read(true)
        .custom_flags(nix::libc::O_DIRECT)
        .open(top.join("read"))
        .context("opening the file that is read")?;
    let mut room = vec![0_u8; 8192];
    Ok(BackgroundLoad::start(move |random| {
        // Direct reads need aligned memory.
        let from = room.as_ptr().align_offset(4096);
        let block = &mut room[from..from + 4096];
        let at = random.below(READ_BYTES / 4096) * 4096;
        let started = Instant::now();
        file.read_exact_at(block, at).map(|()| started.elapsed())
    }))
}

/// Appends small records and syncs each; at most a hundred per second, like a log.
fn appender(top: &Path) -> anyhow::Result<BackgroundLoad> {
    let mut file =
        File::create(top.join("appended")).context("making the file that is appended to")?;
    Ok(BackgroundLoad::start(move |random| {
        std::thread::sleep(Duration::from_millis(10));
        let text = random.bytes(400);
        let started = Instant::now();
        file.write_all(&text).and_then(|()| file.sync_data()).map(|()| started.elapsed())
    }))
}

/// Repeats one operation on its own thread, and records the duration of each.
struct BackgroundLoad {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<Samples>>>,
}

impl BackgroundLoad {
    fn start(
        mut once: impl FnMut(&mut Random) -> std::io::Result<Duration> + Send + 'static,
    ) -> BackgroundLoad {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut samples, mut random) = (Samples::default(), Random::new(7));
            while !stopped.load(Ordering::Relaxed) {
                samples.push(once(&mut random)?);
            }
            Ok(samples)
        });
        BackgroundLoad { stop, thread: Some(thread) }
    }

    fn end(&mut self) -> anyhow::Result<Samples> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it ends once")?;
        // A write into a filesystem that stayed frozen never returns.
        process::within("the load beside a check", TOOL_TIMEOUT, || thread.join())?
            .map_err(|_| anyhow::anyhow!("a measuring thread panicked"))?
            .context("reading or writing beside a check")
    }
}

/// The filesystem must not be in use when it is unmounted.
impl Drop for BackgroundLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // An error is already being reported.
            let _ = process::within("the load beside a check", TOOL_TIMEOUT, || thread.join());
        }
    }
}
