//! How many kernel records are classified per second on one core: parsed from the format of
//! /dev/kmsg, and classified.
//!
//! The mix is that of a busy node: one record in a hundred is from a failing drive or filesystem.
//! Those are the recorded ones of tests/, and more if a collection of logs exists beside the
//! repository.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use diskvitals_kernel_log::classify::{Classifier, ClassifierOptions};
use diskvitals_kernel_log::record;
use jiff::Timestamp;

use crate::figures::{Figures, Goal};

const RECORDS: usize = 400_000;
const MEASURE_TIME: Duration = Duration::from_secs(3);

/// Messages of a healthy kernel, many of them about disks and filesystems.
const NOISE: [&str; 12] = [
    "usb 1-1: new high-speed USB device number 3 using xhci_hcd",
    "EXT4-fs (sda1): mounted filesystem 2a5bd0a1-3f0c-4a4b-9f1e-27d2e4a5a0f7 r/w with ordered data mode. Quota mode: none.",
    "audit: type=1400 audit(1674267904.167:199): apparmor=\"STATUS\" operation=\"profile_load\" profile=\"unconfined\" name=\"snap.x\" pid=34197",
    "eth0: renamed from veth5d3a1f2",
    "cni0: port 3(veth8a9b7c6d) entered blocking state",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth8a9b7c6d: link becomes ready",
    "sd 0:0:0:0: [sda] Write cache: enabled, read cache: enabled, doesn't support DPO or FUA",
    "nvme nvme0: 8/0/0 default/read/poll queues",
    "XFS (dm-3): Mounting V5 Filesystem 6b1d3b1e-7a57-4b61-8e0e-1b9a3d1f8a11",
    "Memory cgroup out of memory: Killed process 12345 (java) total-vm:8123456kB, anon-rss:4123456kB, file-rss:0kB, shmem-rss:0kB, UID:1000",
    "perf: interrupt took too long (2506 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
    "device veth8a9b7c6d left promiscuous mode",
];

pub fn measure(figures: &mut Figures) -> anyhow::Result<()> {
    let mut errors = Vec::new();
    for dir in ["tests/kernel_log", "../shared/corpora/kmsg"] {
        collect(Path::new(dir), &mut errors).with_context(|| format!("reading {dir}"))?;
    }
    ensure!(!errors.is_empty(), "no recorded records in tests/kernel_log");
    let records: Vec<Vec<u8>> = (0..RECORDS)
        .map(|at| {
            let text = if at % 100 == 0 {
                &errors[at / 100 % errors.len()]
            } else {
                NOISE[at % NOISE.len()]
            };
            format!("6,{at},{},-;{text}\n", at * 150).into_bytes()
        })
        .collect();
    let (mut done, mut told) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < MEASURE_TIME {
        let mut classifier = Classifier::new(ClassifierOptions::default());
        let mut events = Vec::new();
        for raw in &records {
            if let Ok(record) = record::parse(raw) {
                classifier.push(&record, Timestamp::UNIX_EPOCH, &mut events);
            }
            told += events.drain(..).map(|event| event.count).sum::<u64>();
        }
        done += records.len();
    }
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    figures.remark(&format!(
        "kernel log: {} different records of errors among {} of noise, {told} incidents in {done} records",
        errors.len(),
        NOISE.len()
    ));
    figures.add("kernel_log_records_per_s", rate, "records/s", Goal::AtLeast(500_000.0));
    Ok(())
}

/// The texts of all records of all files in `dir`, if it exists.
fn collect(dir: &Path, into: &mut Vec<String>) -> std::io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            let bytes = std::fs::read(&path)?;
            let text = String::from_utf8_lossy(&bytes);
            let bare = |line: &str| {
                line.rsplit_once("kernel: ")
                    .or_else(|| line.split_once(';'))
                    .map_or(line, |(_, text)| text)
                    .to_owned()
            };
            into.extend(text.lines().filter(|line| !line.starts_with([' ', '#'])).map(bare));
        }
    }
    Ok(())
}
