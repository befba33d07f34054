//! The delay until Watch reports a mount, an unmount, an added drive and a removed drive. On this
//! machine's kernel: requires root and loop devices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use diskvitals_wire as wire;
use diskvitals_wire::watch_event::{Change, Item};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tokio::sync::mpsc;

use crate::daemon::{Daemon, Program};
use crate::figures::{Figures, Goal, Samples, milliseconds};
use crate::process::{self, TOOL_TIMEOUT};

const ROUNDS: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(10);
const LOSETUP: &str = "/sbin/losetup";

pub type Events = mpsc::UnboundedReceiver<(Instant, wire::WatchEvent)>;

/// A file of 64 MiB with an ext4.
pub fn ext4_image(dir: &Path) -> anyhow::Result<PathBuf> {
    let image = dir.join("image");
    std::fs::File::create(&image)
        .and_then(|file| file.set_len(64 << 20))
        .context("making an image")?;
    let words = ["-q".as_ref(), "-F".as_ref(), image.as_ref()];
    run("/sbin/mkfs.ext4", &words)?;
    Ok(image)
}

pub async fn measure(program: &Program, figures: &mut Figures) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        figures.remark("not root: events on Watch were not measured");
        return Ok(());
    }
    let dir = tempfile::tempdir().context("making a folder for the image")?;
    let image = ext4_image(dir.path())?;
    let mut daemon = program.start(Path::new("/"), "[drives]\nadmit = [\"loop*\"]\n", None)?;
    daemon.wait_settled().await?;
    let mut events = watch(&daemon).await?;

    drives(&image, &mut events, figures).await?;
    let device = Loop::attach(&image)?;
    let point = dir.path().join("mnt");
    std::fs::create_dir(&point).context("making a mount point")?;
    mounts(&device.path, &point, &mut events, figures).await
}

async fn mounts(
    device: &Path,
    point: &Path,
    events: &mut Events,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let (mut seen, mut gone, mut busy) = (Samples::default(), Samples::default(), 0);
    let shows = |event: &wire::WatchEvent| match &event.item {
        Some(Item::Volume(volume)) => volume
            .mounts
            .iter()
            .any(|mount| Path::new(&mount.path) == point)
            .then(|| volume.id.clone()),
        _ => None,
    };
    for _turn in 0..ROUNDS {
        let (from, to) = (device.to_owned(), point.to_owned());
        // The mount runs on another thread, so that it does not delay the reader of events.
        let mounted = tokio::task::spawn_blocking(move || {
            mount(Some(&from), &to, Some("ext4"), MsFlags::empty(), None::<&str>)
                .map(|()| Instant::now())
        });
        let mounted = mounted.await.context("mounting")?.context("mounting the image")?;
        let unmount = Unmount(point);
        let (arrived, id) = next(events, "a mount", shows).await?;
        seen.push(arrived.saturating_duration_since(mounted));
        let (unmounted, refused) = unmount.unmount_now().await?;
        busy += refused;
        let (arrived, ()) = next(events, "an unmount", |event| match &event.item {
            Some(Item::Volume(volume)) if volume.id == id => {
                (event.change() == Change::Removed || volume.mounts.is_empty()).then_some(())
            }
            _ => None,
        })
        .await?;
        gone.push(arrived.saturating_duration_since(unmounted));
    }
    figures.figure_without_goal("mount_on_watch_p50", milliseconds(seen.quantile(0.5)), "ms");
    figures.add("mount_on_watch_max", milliseconds(seen.max()), "ms", Goal::AtMost(100.0));
    if busy > 0 {
        figures.remark(&format!(
            "umount2 was refused {busy} times with EBUSY, while a probe had the folder open"
        ));
    }
    figures.figure_without_goal("unmount_on_watch_p50", milliseconds(gone.quantile(0.5)), "ms");
    figures.add("unmount_on_watch_max", milliseconds(gone.max()), "ms", Goal::AtMost(100.0));
    Ok(())
}

/// Measured from the start of losetup, which itself takes a few milliseconds.
async fn drives(image: &Path, events: &mut Events, figures: &mut Figures) -> anyhow::Result<()> {
    let (mut came, mut went) = (Samples::default(), Samples::default());
    for _turn in 0..ROUNDS {
        let started = Instant::now();
        let image = image.to_owned();
        let device = tokio::task::spawn_blocking(move || Loop::attach(&image))
            .await
            .context("attaching")??;
        let name = device
            .path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let here = |event: &wire::WatchEvent| match &event.item {
            Some(Item::Drive(drive)) => Some(
                drive.name == name
                    && event.change() != Change::Removed
                    && drive.presence() == wire::Presence::Present,
            ),
            _ => None,
        };
        let (arrived, ()) =
            next(events, "a drive that came", |event| here(event).filter(|here| *here).map(drop))
                .await?;
        came.push(arrived.saturating_duration_since(started));
        let started = Instant::now();
        tokio::task::spawn_blocking(move || drop(device)).await.context("detaching")?;
        let left = |event: &wire::WatchEvent| match &event.item {
            Some(Item::Drive(drive)) => {
                drive.name == name
                    && (event.change() == Change::Removed
                        || drive.presence() == wire::Presence::Missing)
            }
            _ => false,
        };
        let (arrived, ()) =
            next(events, "a drive that went", |event| left(event).then_some(())).await?;
        went.push(arrived.saturating_duration_since(started));
    }
    figures.figure_without_goal("plug_on_watch_p50", milliseconds(came.quantile(0.5)), "ms");
    figures.add("plug_on_watch_max", milliseconds(came.max()), "ms", Goal::AtMost(100.0));
    figures.figure_without_goal("unplug_on_watch_p50", milliseconds(went.quantile(0.5)), "ms");
    figures.add("unplug_on_watch_max", milliseconds(went.max()), "ms", Goal::AtMost(100.0));
    Ok(())
}

/// The stream of changes after the first snapshot, each with its arrival time.
pub async fn watch(daemon: &Daemon) -> anyhow::Result<Events> {
    let mut stream = daemon
        .connect()
        .await?
        .watch(wire::WatchRequest { resume_revision: 0 })
        .await
        .context("asking Watch")?
        .into_inner();
    loop {
        match stream.message().await.context("reading the first snapshot")? {
            Some(event) if event.change() == Change::SnapshotEnd => break,
            Some(_) => {}
            None => bail!("Watch ended within its first snapshot"),
        }
    }
    let (sender, events) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(Some(event)) = stream.message().await {
            if sender.send((Instant::now(), event)).is_err() {
                break;
            }
        }
    });
    Ok(events)
}

pub async fn next<T>(
    events: &mut Events,
    what: &str,
    wanted: impl Fn(&wire::WatchEvent) -> Option<T>,
) -> anyhow::Result<(Instant, T)> {
    let found = tokio::time::timeout(TIMEOUT, async {
        while let Some((at, event)) = events.recv().await {
            if let Some(value) = wanted(&event) {
                return Ok((at, value));
            }
        }
        bail!("Watch ended while waiting for {what}")
    });
    found.await.with_context(|| format!("{what} was not seen on Watch within {TIMEOUT:?}"))?
}

pub struct Loop {
    pub path: PathBuf,
}

impl Loop {
    pub fn attach(image: &Path) -> anyhow::Result<Loop> {
        let name = run(LOSETUP, &["--find".as_ref(), "--show".as_ref(), image.as_ref()])?;
        Ok(Loop { path: PathBuf::from(name.trim()) })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = run(LOSETUP, &["--detach".as_ref(), self.path.as_ref()]) {
            eprintln!("error: {error:#}");
        }
    }
}

struct Unmount<'a>(&'a Path);

impl Unmount<'_> {
    /// Returns the time of the unmount, and how often it was refused because a process had the
    /// mount open at that moment.
    async fn unmount_now(self) -> anyhow::Result<(Instant, u32)> {
        let deadline = Instant::now() + TIMEOUT;
        let mut refused = 0;
        loop {
            match umount2(self.0, MntFlags::empty()) {
                Ok(()) => break,
                Err(Errno::EBUSY) if Instant::now() < deadline => refused += 1,
                Err(error) => {
                    return Err(error).with_context(|| format!("unmounting {}", self.0.display()));
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let done = Instant::now();
        std::mem::forget(self);
        Ok((done, refused))
    }
}

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        // After an error: nothing of ours may stay mounted.
        if let Err(error) = umount2(self.0, MntFlags::MNT_DETACH) {
            eprintln!("error: unmounting {}: {error}", self.0.display());
        }
    }
}

pub fn run(program: &str, arguments: &[&std::ffi::OsStr]) -> anyhow::Result<String> {
    let output = process::output(Command::new(program).args(arguments), TOOL_TIMEOUT)?;
    if !output.status.success() {
        bail!("{program}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
