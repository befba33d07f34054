//! Reads a device for data, a few seconds at a time, with the lowest I/O priority.
//!
//! In: a device and how far it was read. Out: how far it is read now, or the first byte that is not
//! zero. Reading starts again if the device is another one, has another size, was written to, or was
//! attached again. The device is opened exclusively and read past the page cache.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::step::{DeviceIdentity, ScanState, StepErrorKind};
use crate::worker::device;
use crate::worker::error::{StepWorkerError, io_error};
use diskvitals_finding::path::HostPath;
use diskvitals_host::block::{DeviceFile, OpenMode};
use diskvitals_host::process;
use diskvitals_host::root::HostRoot;

/// A request for the volume waits for at most one such part, and for one chunk.
const PART_TIME: Duration = Duration::from_secs(5);
const CHUNK: u64 = 4 << 20;
const STACK_BYTES: usize = 256 << 10;

pub fn scan(
    root: &HostRoot,
    device: &HostPath,
    before: &ScanState,
    tracked: bool,
) -> Result<ScanState, StepWorkerError> {
    std::thread::scope(|scope| {
        // A thread of its own: the priority is the thread's, and the next step needs the usual one.
        let thread = std::thread::Builder::new()
            .name("scan".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || {
                // A sandbox may forbid it: the scan is then as slow as its parts.
                let _ = process::lower_priority();
                read_part(root, device, before, tracked)
            })
            .map_err(io_error("starting a thread that reads", device))?;
        let ended = thread.join();
        ended
            .unwrap_or_else(|_| Err(StepErrorKind::Other.error(format!("reading {device} failed"))))
    })
}

fn read_part(
    root: &HostRoot,
    device: &HostPath,
    before: &ScanState,
    tracked: bool,
) -> Result<ScanState, StepWorkerError> {
    let block = device::open_exclusive(root, device, OpenMode::ReadDirect)?;
    let reading = io_error("reading", device);
    let mut scan = current_state(&block, device, before, tracked)?;
    if scan == *before {
        // The earlier result still holds only if these places do: what was found may be cleared, and
        // a new user of the device writes at its beginning.
        let known = scan.data_at.map_or(0, |at| at - at % CHUNK);
        let found = block.find_data(known, CHUNK).map_err(&reading)?;
        if scan.data_at.is_some() && found.is_none() {
            scan.position = 0;
        }
        scan.data_at = found;
    }
    let begun = Instant::now();
    while scan.data_at.is_none() && scan.position < block.size && begun.elapsed() < PART_TIME {
        scan.data_at = block.find_data(scan.position, CHUNK).map_err(&reading)?;
        scan.position = scan.position.saturating_add(CHUNK).min(block.size);
    }
    Ok(scan)
}

/// The state to go on from: the earlier one, or a new one for a device that has changed.
fn current_state(
    block: &DeviceFile,
    device: &HostPath,
    before: &ScanState,
    tracked: bool,
) -> Result<ScanState, StepWorkerError> {
    let (name, generation) = if tracked {
        // Data that is not written yet does not count yet.
        block.sync().map_err(io_error("synchronising", device))?;
        let name = device::identity(Path::new("/"), block.dev);
        let generation = device::generation(Path::new("/"), block.dev);
        let (Some(name), Some(generation)) = (name, generation) else {
            return Err(StepErrorKind::Unsupported.error(format!(
                "{device} has no identity, or the kernel does not count what is written to it: that it stays blank cannot be proven"
            )));
        };
        (Some(name), generation)
    } else {
        (before.device.name.clone(), String::new())
    };
    let found = DeviceIdentity { size: block.size, name };
    if (&found, &generation) == (&before.device, &before.generation) {
        return Ok(before.clone());
    }
    Ok(ScanState { device: found, generation, position: 0, data_at: None })
}

/// Refuses unless the whole device was read as zero and has not been written to since.
pub(crate) fn check_complete(
    block: &DeviceFile,
    device: &HostPath,
    scan: &ScanState,
    tracked: bool,
) -> Result<(), StepWorkerError> {
    let now = current_state(block, device, scan, tracked)?;
    if now == *scan && now.is_complete() {
        return Ok(());
    }
    Err(StepErrorKind::ForeignData
        .error(format!("{device} has changed since it was read: it is not formatted")))
}
