//! The cost of a mount cycle after thousands of bind mounts, and some loop devices, came and went,
//! compared with the start: nothing of them may remain. On this machine's kernel: requires root and
//! loop devices.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use diskvitals_wire as wire;
use diskvitals_wire::watch_event::Item;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::daemon::{Daemon, Program};
use crate::events::{Events, Loop, ext4_image, next, run, watch};
use crate::figures::{Figures, Goal, milliseconds};
use crate::process::run_time;

const MOUNTS: usize = 10_000;
const BASE: &str = "base";
const CYCLES: u32 = 40;
/// `mount -o loop` and `umount`: the loop device is detached with the unmount.
const LOOPS: usize = 30;
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

pub async fn measure(program: &Program, figures: &mut Figures) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        figures.remark("not root: the cost of a mount cycle was not measured");
        return Ok(());
    }
    let dir = tempfile::tempdir().context("making a folder for the image")?;
    let image = ext4_image(dir.path())?;
    let device = Loop::attach(&image)?;
    let points = Points::new(dir.path())?;
    mount(Some(&device.path), &points.base, Some("ext4"), MsFlags::empty(), None::<&str>)
        .context("mounting the image")?;
    let config = "[drives]\nadmit = [\"loop*\"]\n";
    let mut daemon = program.start(Path::new("/"), config, None)?;
    daemon.wait_settled().await?;
    let mut events = watch(&daemon).await?;

    // The first cycles also fill caches.
    cycle(&daemon, &points, &mut events).await?;
    let before = cycle(&daemon, &points, &mut events).await?;
    figures.figure_without_goal("mount_cycle_at_start", milliseconds(before), "ms_cpu");

    let began = Instant::now();
    for point in &points.many {
        bind(&points.base, point)?;
    }
    mounts_reach(&mut events, &points.base, |count| count > MOUNTS).await?;
    for point in &points.many {
        unmount(point).await?;
    }
    mounts_reach(&mut events, &points.base, |count| count == 1).await?;
    figures.remark(&format!("{MOUNTS} bind mounts came and went in {:?}", began.elapsed()));
    let after = cycle(&daemon, &points, &mut events).await?;
    figures.figure_without_goal("mount_cycle_after_mounts", milliseconds(after), "ms_cpu");
    let ratio = |after: Duration| after.as_secs_f64() / before.as_secs_f64();
    figures.add("mount_cycle_growth", ratio(after), "x", Goal::AtMost(1.5));

    let copy = dir.path().join("copy");
    for (number, point) in points.many.iter().take(LOOPS).enumerate() {
        let copy = copy.with_extension(number.to_string());
        std::fs::copy(&image, &copy).context("copying the image")?;
        let words = ["-o".as_ref(), "loop".as_ref(), copy.as_ref(), point.as_ref()];
        run("/bin/mount", &words)?;
        shown(&mut events, point, true).await?;
        unmount(point).await?;
    }
    let after = cycle(&daemon, &points, &mut events).await?;
    figures.add("mount_cycle_growth_loops", ratio(after), "x", Goal::AtMost(1.5));
    let mut inventory = daemon.connect().await?;
    let node =
        inventory.get_node(wire::GetNodeRequest {}).await.context("asking GetNode")?.into_inner();
    figures.remark(&format!("{} drives, {} volumes known", node.drives, node.volumes));
    Ok(())
}

/// The mount points; unmounted when dropped.
struct Points {
    base: PathBuf,
    one: PathBuf,
    many: Vec<PathBuf>,
}

impl Points {
    fn new(dir: &Path) -> anyhow::Result<Points> {
        let points = Points {
            base: dir.join(BASE),
            // Longer than the base, which stays the mount that names the volume.
            one: dir.join("another"),
            many: (0..MOUNTS).map(|number| dir.join(format!("many/{number}"))).collect(),
        };
        for point in points.all() {
            std::fs::create_dir_all(point)
                .with_context(|| format!("making {}", point.display()))?;
        }
        Ok(points)
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.many.iter().chain([&self.one, &self.base])
    }
}

impl Drop for Points {
    fn drop(&mut self) {
        for point in self.all() {
            // After an error: nothing of ours may stay mounted. EINVAL: it is not mounted.
            match umount2(point, MntFlags::MNT_DETACH) {
                Ok(()) | Err(Errno::EINVAL) => {}
                Err(error) => eprintln!("error: unmounting {}: {error}", point.display()),
            }
        }
    }
}

/// The mean processor time that the daemon and its workers need for a mount and its unmount, until
/// Watch has reported both.
async fn cycle(daemon: &Daemon, points: &Points, events: &mut Events) -> anyhow::Result<Duration> {
    let before = run_time(daemon.pid())?;
    for _ in 0..CYCLES {
        bind(&points.base, &points.one)?;
        shown(events, &points.one, true).await?;
        unmount(&points.one).await?;
        shown(events, &points.one, false).await?;
    }
    Ok(run_time(daemon.pid())?.saturating_sub(before) / CYCLES)
}

fn bind(from: &Path, to: &Path) -> anyhow::Result<()> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("mounting {}", to.display()))
}

/// A probe keeps a mount busy for a moment.
async fn unmount(point: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match umount2(point, MntFlags::empty()) {
            Err(Errno::EBUSY) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            done => return done.with_context(|| format!("unmounting {}", point.display())),
        }
    }
}

async fn shown(events: &mut Events, point: &Path, mounted: bool) -> anyhow::Result<()> {
    let what = if mounted { "a mount" } else { "an unmount" };
    let shows = |volume: &wire::Volume, point: &Path| {
        volume.mounts.iter().any(|mount| Path::new(&mount.path) == point)
    };
    let base = point.with_file_name(BASE);
    let wanted = |event: &wire::WatchEvent| match &event.item {
        Some(Item::Volume(volume)) => {
            let removed = event.change() == wire::watch_event::Change::Removed;
            let is_so = match mounted {
                true => shows(volume, point) && !removed,
                // Its other mount is left.
                false => shows(volume, &base) && !shows(volume, point),
            };
            is_so.then_some(())
        }
        _ => None,
    };
    next(events, what, wanted).await.map(drop)
}

async fn mounts_reach(
    events: &mut Events,
    base: &Path,
    is_so: impl Fn(usize) -> bool,
) -> anyhow::Result<()> {
    let wanted = |event: &wire::WatchEvent| match &event.item {
        Some(Item::Volume(volume)) => {
            let mounts = || volume.mounts.iter();
            let is_it = mounts().any(|mount| Path::new(&mount.path) == base);
            (is_it && is_so(mounts().count())).then_some(())
        }
        _ => None,
    };
    next(events, "the number of mounts", wanted).await.map(drop)
}
