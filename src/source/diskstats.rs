//! I/O counters of the block layer, from /proc/diskstats (Documentation/admin-guide/iostats.rst).
//! Reading them causes no I/O.
//!
//! In: the host root, a timer, requests. Out: `SourceUpdate::DiskStats`, and `CountedIo` on
//! request. `assess` judges I/O that does not complete.

use std::convert::Infallible;
use std::io::ErrorKind;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::context::{Context, SourceError};
use crate::status_reporter::StatusReporter;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::source::Source;
use diskvitals_host::clock::now;
use diskvitals_host::root::HostRoot;
use diskvitals_model::block::{DiskStat, Transfers};
use diskvitals_model::facts::disk_io::WAIT_BEFORE_PROBE;
use diskvitals_model::source_update::{SourceRequest, SourceStatus, SourceUpdate};
use diskvitals_text::causes::with_causes;

const DISKSTATS: &str = "/proc/diskstats";

#[derive(Debug, thiserror::Error)]
pub enum DiskStatsError {
    #[error("reading {DISKSTATS}")]
    Read(#[source] std::io::Error),
    #[error("{DISKSTATS}: not a device's counters: {0}")]
    Line(String),
}

/// Parses all lines; kernels before 4.18 have no discards, before 5.5 no flushes.
pub fn parse(text: &str) -> Result<Vec<DiskStat>, DiskStatsError> {
    text.lines()
        .map(|line| parse_line(line).ok_or_else(|| DiskStatsError::Line(line.to_owned())))
        .collect()
}

fn parse_line(line: &str) -> Option<DiskStat> {
    let mut fields = line.split_ascii_whitespace();
    let dev = DevNo::new(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let name = fields.next()?.to_owned();
    let counts: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    // 1 reads, 3 sectors read, 4 ms reading, 5 writes, 7 sectors written, 8 ms writing, 9 in flight,
    // 12 discards, 16 flushes; numbered from 1 as in iostats.rst.
    let transfers = Transfers {
        reads: *counts.first()?,
        writes: *counts.get(4)?,
        sectors_read: *counts.get(2)?,
        read_milliseconds: *counts.get(3)?,
        write_milliseconds: *counts.get(7)?,
    };
    let rest = counts.get(11).unwrap_or(&0).wrapping_add(*counts.get(15).unwrap_or(&0));
    Some(DiskStat {
        dev,
        name,
        completed: transfers.reads.wrapping_add(transfers.writes).wrapping_add(rest),
        sectors_written: *counts.get(6)?,
        in_flight: *counts.get(8)?,
        transfers,
        line: line.trim().into(),
    })
}

/// Whether the kernel counts this device's I/O: `queue/iostats` of the whole device is not 0
/// (Documentation/ABI/stable/sysfs-block). Otherwise its line is there, and never changes.
fn is_counted(root: &HostRoot, dev: DevNo) -> bool {
    let queue = |at: &str| root.at(format!("/sys/dev/block/{dev}/{at}queue/iostats"));
    // A partition has no queue; its link leads into the directory of the whole device.
    let read = match std::fs::read_to_string(queue("")) {
        Err(error) if error.kind() == ErrorKind::NotFound => std::fs::read_to_string(queue("../")),
        read => read,
    };
    match read {
        Ok(flag) => flag.trim() != "0",
        // No such attribute, or the device has disappeared: its counters are compared.
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Runs until the owner of the state ends.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    let mut status_reporter = StatusReporter::new(Source::DiskStats);
    let mut is_requested = false;
    loop {
        let read =
            std::fs::read_to_string(context.root.at(DISKSTATS)).map_err(DiskStatsError::Read);
        let (observation, status) = match read.and_then(|text| parse(&text)) {
            Ok(stats) => (Observation::ok(now(), stats), SourceStatus::Active(DISKSTATS.into())),
            Err(error) => {
                let error = with_causes(&error);
                (Observation::failed(now(), &error), SourceStatus::Down(error))
            }
        };
        if is_requested {
            let mut counted = observation.clone();
            if let Observation::Ok { value: stats, .. } = &mut counted {
                stats.retain(|stat| is_counted(&context.root, stat.dev));
            }
            context.report(SourceUpdate::CountedIo(counted)).await?;
        }
        let interval = context.settings.borrow().disk_stats_interval;
        // I/O that is in flight may not complete.
        let is_busy = |stats: &Vec<DiskStat>| stats.iter().any(|stat| stat.in_flight > 0);
        let next = match observation.value().is_some_and(is_busy) {
            true => Instant::now() + interval.min(WAIT_BEFORE_PROBE),
            false => context.grid.after(interval),
        };
        context.report(SourceUpdate::DiskStats(observation)).await?;
        status_reporter.report(&context, status).await?;
        is_requested = loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => break false,
                request = requests.recv() => match request {
                    Ok(SourceRequest::All | SourceRequest::DiskStats) | Err(RecvError::Lagged(_)) => break true,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
                },
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_of_all_kinds_are_counted() {
        let stats = parse(" 254 0 vda 100 8507 2206898 9544 20 8288 791080 2020 3 7020 12001 4 5 245696 419 7 17\n").expect("good");
        assert_eq!(
            (stats[0].dev, stats[0].completed, stats[0].in_flight),
            (DevNo::new(254, 0), 131, 3)
        );
        assert_eq!(stats[0].sectors_written, 791_080);
    }

    #[test]
    fn io_is_counted_unless_the_whole_device_says_no() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = HostRoot::new(dir.path());
        let disk = dir.path().join("sys/devices/sda");
        std::fs::create_dir_all(disk.join("sda1")).expect("created");
        std::fs::create_dir_all(disk.join("queue")).expect("created");
        let links = dir.path().join("sys/dev/block");
        std::fs::create_dir_all(&links).expect("created");
        for (number, target) in [("8:0", "sda"), ("8:1", "sda/sda1")] {
            std::os::unix::fs::symlink(format!("../../devices/{target}"), links.join(number))
                .expect("linked");
        }
        let counted = || [0, 1, 9].map(|minor| is_counted(&root, DevNo::new(8, minor)));
        assert_eq!(counted(), [true; 3], "an old kernel has no such attribute");
        for (flag, expected) in [("1", true), ("0", false)] {
            std::fs::write(disk.join("queue/iostats"), format!("{flag}\n")).expect("written");
            assert_eq!(counted(), [expected, expected, true]);
        }
    }

    #[test]
    fn an_old_kernels_shorter_lines_are_understood_and_junk_is_an_error_that_shows_the_line() {
        assert_eq!(parse("8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n").expect("good")[0].completed, 6);
        assert!(parse("8 0 sda 1 2 x\n").expect_err("junk").to_string().contains("8 0 sda 1 2 x"));
    }
}
