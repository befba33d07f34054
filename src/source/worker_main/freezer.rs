//! The helper that holds a filesystem's writers. It checks that nothing essential needs the
//! filesystem and that it outlives the daemon, freezes, and thaws in every case: on request, when
//! the pipe closes (the daemon's death), at SIGTERM and similar signals, at the limit.
//!
//! In, one line each: `FreezerRequest`. Out, one line each: `FreezerEvent`. While writers are held
//! it writes only to its pipe and to its intent in /run, which already exists; it opens, allocates
//! and logs nothing. PDEATHSIG could not replace the pipe: it fires when the *thread* that started
//! the helper ends.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Pid, getppid};

use super::host_mounts::enter_host_mounts;
use super::{WorkerRole, thaw};
use crate::checks::freezer::protocol::{FreezerEvent, FreezerRequest};
use crate::checks::freezer::refusal::{HostLayout, SYSTEM_PATHS, overlay_layers_of, refusal};
use crate::checks::freezer::{FreezeRequest, intent_name};
use crate::mounts;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;
use diskvitals_host::block::dev_no;
use diskvitals_host::clock::monotonic;
use diskvitals_host::freeze::OpenMount;
use diskvitals_host::intents::{self, FreezeIntent, IntentFile, Stage};
use diskvitals_host::root::HostRoot;
use diskvitals_host::signals::{BlockedSignals, WakeReason};
use diskvitals_host::{memory, namespace, own_cgroup};
use diskvitals_model::graph::mounts::MountTree;
use diskvitals_text::causes::with_causes;

/// Maximum length of a request, in bytes: two paths of PATH_MAX, each byte escaped.
const MAX_REQUEST: usize = 64 * 1024;
/// The main function of the process. `needed`: paths of the daemon whose filesystems must not be
/// frozen.
pub fn serve(root: &HostRoot, needed: impl Iterator<Item = OsString>) -> io::Result<()> {
    let parent = getppid();
    silence_stderr()?;
    let said = match serde_json::from_slice(&read_request()?) {
        Ok(FreezerRequest::Freeze { freeze: request, intents }) => {
            let needed: Vec<PathBuf> = needed.map(PathBuf::from).collect();
            match prepare_and_freeze(root, &request, &intents, &needed, parent) {
                Ok(said) | Err(said) => said,
            }
        }
        Ok(FreezerRequest::Repair { intents, only }) => {
            FreezerEvent::Repaired(thaw::repair(root, &intents, only.as_deref()))
        }
        Ok(FreezerRequest::Resume { intents, forget }) => {
            FreezerEvent::Resumed(thaw::resume_on_host(root, &intents, forget))
        }
        Ok(FreezerRequest::Thaw) => return Ok(()),
        Err(error) => FreezerEvent::Failed {
            why: format!("the freezer was asked what it does not understand: {error}"),
        },
    };
    send(&said)
}

/// Redirects standard error and disables core dumps: both may write to the frozen filesystem.
fn silence_stderr() -> io::Result<()> {
    nix::unistd::dup2_stderr(File::options().write(true).open("/dev/null")?)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    // A name of at most 15 bytes, for ps(1).
    let _ = nix::sys::prctl::set_name(c"diskvitals-frz");
    // The last process to be killed when memory is short. Needs CAP_SYS_RESOURCE, which the unit
    // does not grant: there it keeps the daemon's score (OOMScoreAdjust).
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    Ok(())
}

/// Reads a line byte by byte: poll(2) must find all later input in the pipe.
fn read_request() -> io::Result<Vec<u8>> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    loop {
        match nix::unistd::read(io::stdin(), &mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if byte == *b"\n" => return Ok(line),
            Ok(_) if line.len() < MAX_REQUEST => line.extend_from_slice(&byte),
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// One non-blocking write: a daemon that does not read must not keep a filesystem frozen.
fn send(said: &FreezerEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    nix::unistd::write(io::stdout(), &line)?;
    Ok(())
}

fn refused(why: impl Into<String>) -> FreezerEvent {
    FreezerEvent::Refused { why: why.into() }
}

fn refused_by(error: impl std::error::Error) -> FreezerEvent {
    refused(with_causes(&error))
}

fn failed(why: impl Into<String>) -> FreezerEvent {
    FreezerEvent::Failed { why: why.into() }
}

/// An error: nothing is frozen.
fn prepare_and_freeze(
    root: &HostRoot,
    request: &FreezeRequest,
    intents: &Path,
    needed: &[PathBuf],
    parent: Pid,
) -> Result<FreezerEvent, FreezerEvent> {
    if root.is_recorded() {
        return Err(refused("a recorded tree has nothing to freeze"));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(refused("freezing needs root"));
    }
    own_cgroup::check_host_pid_namespace(root).map_err(refused_by)?;
    let (ours, layers) = daemon_devices(needed);
    enter_host_mounts(root).map_err(refused_by)?;
    own_cgroup::enter_own_cgroup().map_err(refused_by)?;
    memory::lock_all().map_err(refused_by)?;
    if let Some(why) = refusal(&read_host(needed, ours, layers)?, &[request.dev]) {
        return Err(refused(why));
    }
    thaw_earlier(intents, request.dev)?;
    let mounted = OpenMount::open(&request.mount).map_err(|error| failed(error.to_string()))?;
    if !mounted.has_dev(request.dev) {
        return Err(failed(format!(
            "another filesystem than {} is mounted at {}",
            request.dev, request.mount
        )));
    }
    let signals = BlockedSignals::block()
        .map_err(|errno| failed(format!("holding back signals: {errno}")))?;
    let noted = write_intent(request, intents)?;
    let settled = (|| {
        namespace::limit_capabilities(WorkerRole::Freezer.capabilities()).map_err(refused_by)?;
        send(&FreezerEvent::AboutToFreeze)
            .map_err(|error| failed(format!("the daemon has gone: {error}")))?;
        set_nonblocking().map_err(|errno| failed(format!("preparing the pipes: {errno}")))
    })();
    if let Err(said) = settled {
        return Err(remove_intent(&noted, said));
    }
    freeze(request, &mounted, &signals, &noted, parent)
}

/// From the call that freezes to the one that thaws, this code must not wait, allocate much, or
/// access any file but the pipe and the intent.
fn freeze(
    request: &FreezeRequest,
    mounted: &OpenMount,
    signals: &BlockedSignals,
    noted: &IntentFile,
    parent: Pid,
) -> Result<FreezerEvent, FreezerEvent> {
    // The process may have been delayed for longer than the daemon waits.
    if signals.is_cancelled(io::stdin(), parent) {
        return Err(remove_intent(noted, failed("the daemon has given it up")));
    }
    // Asked at the last moment: anybody may start one.
    match mounted.running_read() {
        Ok(None) => {}
        Ok(Some(what)) => {
            let why = format!("{what} runs on it, and a freeze would cancel it");
            return Err(remove_intent(noted, failed(why)));
        }
        Err(error) => {
            let why = format!("whether a scrub runs on it is not known: {error}");
            return Err(remove_intent(noted, failed(why)));
        }
    }
    let began = monotonic();
    if let Err(errno) = mounted.freeze() {
        return Err(remove_intent(noted, freeze_failure(errno, &request.mount)));
    }
    let freezing = monotonic().saturating_sub(began);
    // If this fails, the intent stays in the state `asking`, which is also thawed.
    let _ = noted.mark_frozen();
    let woken = if freezing > request.limit {
        None
    } else {
        // If it is not read, the daemon closes the pipe, or the limit is reached: both thaw.
        let _ = send(&FreezerEvent::Frozen { freeze_duration: freezing });
        Some(signals.wait(io::stdin(), request.limit, parent))
    };
    let thawed = mounted.thaw();
    let held = monotonic().saturating_sub(began);
    let late = matches!(woken, None | Some(WakeReason::Timeout));
    let early = match (thawed, woken) {
        // Another process has thawed it (FITHAW does not check the owner).
        (Err(Errno::EINVAL), _) => Some("somebody else thawed it".to_owned()),
        // A repair must thaw it, as after a death of this process: the intent stays.
        (Err(_), _) => std::process::exit(1),
        (Ok(()), None) => Some(format!(
            "freezing took {freezing:.1?}, longer than writers may be held ({:.1?})",
            request.limit
        )),
        (Ok(()), Some(WakeReason::Input)) => None,
        (Ok(()), Some(WakeReason::Closed)) => Some("the daemon has gone".to_owned()),
        (Ok(()), Some(WakeReason::Signal(signal))) => {
            Some(format!("the freezer got signal {signal}"))
        }
        (Ok(()), Some(WakeReason::Timeout)) => {
            Some(format!("writers may not be held longer than {:.1?}", request.limit))
        }
    };
    Ok(remove_intent(noted, FreezerEvent::Thawed { held, freeze_duration: freezing, early, late }))
}

fn freeze_failure(errno: Errno, mount: &HostPath) -> FreezerEvent {
    match errno {
        Errno::EBUSY => FreezerEvent::AlreadyFrozen,
        // No freeze_fs (tmpfs, FUSE), or a filesystem without a device.
        Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOTTY => {
            refused(format!("the filesystem at {mount} cannot be frozen ({errno})"))
        }
        errno => failed(format!("freezing the filesystem at {mount}: {errno}")),
    }
}

fn remove_intent(noted: &IntentFile, said: FreezerEvent) -> FreezerEvent {
    // An intent that remains only costs a useless FITHAW at the next start.
    let _ = noted.remove();
    said
}

fn set_nonblocking() -> Result<(), Errno> {
    for pipe in [io::stdin().as_fd(), io::stdout().as_fd()] {
        let flags = OFlag::from_bits_retain(fcntl(pipe, FcntlArg::F_GETFL)?);
        fcntl(pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    }
    Ok(())
}

/// Thaws what an earlier freezer left frozen. Fails while that freezer is still alive.
fn thaw_earlier(intents: &Path, dev: DevNo) -> Result<(), FreezerEvent> {
    let found = intents::find(intents).map_err(refused_by)?;
    for earlier in
        found.iter().filter(|found| found.intent.as_ref().is_some_and(|intent| intent.dev == dev))
    {
        if earlier.intent.as_ref().is_some_and(FreezeIntent::is_writer_alive) {
            return Err(failed(
                "an earlier freeze of it is not over: its call has not returned from the kernel, or another check holds it",
            ));
        }
        thaw::thaw(earlier);
    }
    Ok(())
}

fn write_intent(request: &FreezeRequest, intents: &Path) -> Result<IntentFile, FreezerEvent> {
    let (pid, boot_id) = (std::process::id(), intents::boot_id());
    let boot_id = boot_id.map_err(|error| failed(format!("reading the boot's id: {error}")))?;
    let started = intents::process_start_time(pid)
        .ok_or_else(|| refused("this process' own /proc cannot be read"))?;
    let (mount, dev) = (request.mount.clone(), request.dev);
    let intent = FreezeIntent { stage: Stage::Freezing, mount, dev, pid, started, boot_id };
    IntentFile::create(intents, &intent_name(&request.check), &intent).map_err(refused_by)
}

/// The filesystems that the daemon needs, by device number, since its `/var/lib/diskvitals` may be
/// another directory on the host. Called before the host's mount namespace is entered. Also returns
/// the layers of a container's root, which are paths on the host.
fn daemon_devices(needed: &[PathBuf]) -> (Vec<(DevNo, String)>, Vec<HostPath>) {
    let table = std::fs::read("/proc/self/mountinfo")
        .map(|text| mounts::parse(&text).0)
        .unwrap_or_default();
    let layers = table.iter().flat_map(overlay_layers_of).collect();
    let table = MountTree::new(&table);
    let program = std::env::current_exe().ok();
    let mut devs = Vec::new();
    for path in needed.iter().chain(&program) {
        // A path that does not exist is on no filesystem.
        let Ok(path) = path.canonicalize() else {
            continue;
        };
        let what = format!("what diskvitals needs ({})", path.display());
        devs.extend(
            std::fs::metadata(&path)
                .map(|data| (dev_no(std::os::unix::fs::MetadataExt::dev(&data)), what.clone())),
        );
        devs.extend(
            table.containing(&HostPath::from(path.as_path())).map(|mount| (mount.dev, what)),
        );
    }
    (devs, layers)
}

/// Runs in the host's mount namespace. If anything cannot be read, the freeze is refused: the thaw
/// might need it.
fn read_host(
    needed: &[PathBuf],
    needed_devs: Vec<(DevNo, String)>,
    layers: Vec<HostPath>,
) -> Result<HostLayout, FreezerEvent> {
    let read = |path: &str| {
        std::fs::read(path).map_err(|error| refused(format!("reading {path}: {error}")))
    };
    let always = SYSTEM_PATHS.iter().map(|(path, what)| (PathBuf::from(path), (*what).to_owned()));
    let ours =
        needed.iter().map(|path| (path.clone(), "what diskvitals or the kubelet needs".to_owned()));
    let resolved = always.chain(ours).filter_map(|(path, what)| {
        Some((HostPath::from(path.canonicalize().ok()?.as_path()), what))
    });
    let needed = resolved.collect();
    let swaps = match std::fs::read("/proc/swaps") {
        // The first column; the first line is a header (proc(5)). A kernel without swap has no such
        // file.
        Ok(swaps) => swaps
            .split(|byte| *byte == b'\n')
            .skip(1)
            .filter(|line| line.starts_with(b"/"))
            .map(first_field)
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(refused(format!("reading /proc/swaps: {error}"))),
    };
    Ok(HostLayout {
        mounts: mounts::parse(&read("/proc/self/mountinfo")?).0,
        needed_paths: needed,
        needed_devs,
        overlay_layers: layers,
        swaps,
        loops: list_loops()?,
    })
}

fn first_field(line: &[u8]) -> HostPath {
    HostPath::unescape(line.split(u8::is_ascii_whitespace).next().unwrap_or_default())
}

/// Loop devices and their backing files (Documentation/ABI/stable/sysfs-block-loop).
fn list_loops() -> Result<Vec<(String, HostPath)>, FreezerEvent> {
    const BLOCK: &str = "/sys/class/block";
    let entries =
        std::fs::read_dir(BLOCK).map_err(|error| refused(format!("reading {BLOCK}: {error}")))?;
    let loops = entries.flatten().filter_map(|entry| {
        // Missing if the device has no backing file.
        let file = std::fs::read(entry.path().join("loop/backing_file")).ok()?;
        let file = file.trim_ascii_end();
        let file = file.strip_suffix(b" (deleted)").unwrap_or(file);
        Some((entry.file_name().to_string_lossy().into_owned(), HostPath::new(file)))
    });
    Ok(loops.collect())
}
