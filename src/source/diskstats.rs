//! I/O counters of the block layer, from /proc/diskstats (Documentation/admin-guide/iostats.rst).
//! Reading them causes no I/O.
//!
//! In: the host root, a timer, requests. Out: `SourceUpdate::DiskStats`. `assess` judges I/O that
//! does not complete.

use std::convert::Infallible;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::host::clock::now;
use crate::model::block::DiskStat;
use crate::model::causes::with_causes;
use crate::model::dev::DevNo;
use crate::model::observation::Observation;
use crate::model::source_update::{Source, SourceRequest, SourceStatus, SourceUpdate};
use crate::source::context::{Context, SourceError};
use crate::source::status_reporter::StatusReporter;

const DISKSTATS: &str = "/proc/diskstats";

#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskStatsError {
    #[error("reading {DISKSTATS}")]
    Read(#[source] std::io::Error),
    #[error("{DISKSTATS}: not a device's counters: {0}")]
    Line(String),
}

/// Parses all lines; kernels before 4.18 have no discards, before 5.5 no flushes.
pub(crate) fn parse(text: &str) -> Result<Vec<DiskStat>, DiskStatsError> {
    text.lines()
        .map(|line| parse_line(line).ok_or_else(|| DiskStatsError::Line(line.to_owned())))
        .collect()
}

fn parse_line(line: &str) -> Option<DiskStat> {
    let mut fields = line.split_ascii_whitespace();
    let dev = DevNo::new(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let name = fields.next()?.to_owned();
    let counts: Vec<u64> = fields
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    // 1 reads, 5 writes, 7 sectors written, 9 in flight, 12 discards, 16 flushes; numbered from 1 as
    // in iostats.rst.
    let (reads, writes, in_flight) = (counts.first()?, counts.get(4)?, counts.get(8)?);
    let rest = counts
        .get(11)
        .unwrap_or(&0)
        .wrapping_add(*counts.get(15).unwrap_or(&0));
    Some(DiskStat {
        dev,
        name,
        completed: reads.wrapping_add(*writes).wrapping_add(rest),
        sectors_written: *counts.get(6)?,
        in_flight: *in_flight,
        line: line.trim().to_owned(),
    })
}

/// Runs until the owner of the state ends.
pub(crate) async fn run(context: Context) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    let mut status_reporter = StatusReporter::new(Source::DiskStats);
    loop {
        let read =
            std::fs::read_to_string(context.root.at(DISKSTATS)).map_err(DiskStatsError::Read);
        let (observation, status) = match read.and_then(|text| parse(&text)) {
            Ok(stats) => (
                Observation::ok(now(), stats),
                SourceStatus::Active(DISKSTATS.into()),
            ),
            Err(error) => {
                let error = with_causes(&error);
                (
                    Observation::failed(now(), &error),
                    SourceStatus::Down(error),
                )
            }
        };
        context.report(SourceUpdate::DiskStats(observation)).await?;
        status_reporter.report(&context, status).await?;
        let next = Instant::now() + context.settings.borrow().disk_stats_interval;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => break,
                request = requests.recv() => match request {
                    Ok(SourceRequest::All | SourceRequest::DiskStats) | Err(RecvError::Lagged(_)) => break,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
                },
            }
        }
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
    fn an_old_kernels_shorter_lines_are_understood_and_junk_is_an_error_that_shows_the_line() {
        assert_eq!(
            parse("8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n").expect("good")[0].completed,
            6
        );
        assert!(
            parse("8 0 sda 1 2 x\n")
                .expect_err("junk")
                .to_string()
                .contains("8 0 sda 1 2 x")
        );
    }
}
