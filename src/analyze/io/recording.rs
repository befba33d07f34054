//! The file of `diskvitals record io`: lines of /proc/diskstats as they were, after their time.
//!
//!     diskvitals-io 1 6.18.0
//!     drive sda rotating WDC WD80EFAX-68KNBN0
//!     time 2026-11-29T13:00:00Z
//!        8       0 sda 81233 0 649864 913311 …

use std::collections::BTreeMap;
use std::io::BufRead;

use jiff::Timestamp;

use super::{IoAnalysis, IoError, Medium, Piece, Series, Silence};
use crate::input_source::Lines;
use diskvitals_slow::Counters;

/// What a recording begins with; the release of the kernel follows.
pub const HEADER: &str = "diskvitals-io 1 ";

#[derive(Default)]
struct Reading {
    at: Option<Timestamp>,
    counters: BTreeMap<String, Counters>,
}

pub(super) fn read(
    mut lines: Lines<impl BufRead>,
    kernel: &str,
    file: String,
) -> Result<IoAnalysis, IoError> {
    let mut series = Series::new();
    let mut others: Vec<String> = Vec::new();
    let (mut before, mut now) = (Reading::default(), Reading::default());
    let mut number = 1;
    while let Some(line) = lines.next()? {
        number += 1;
        let line = String::from_utf8_lossy(line);
        if let Some(time) = line.strip_prefix("time ") {
            let at: Timestamp =
                time.trim().parse().map_err(|_| IoError::Line(number, "no time"))?;
            compare(&mut series, &others, &before, &now);
            before = std::mem::replace(&mut now, Reading { at: Some(at), ..Reading::default() });
        } else if let Some(drive) = line.strip_prefix("drive ") {
            let mut words = drive.splitn(3, ' ');
            let (Some(name), Some(medium)) = (words.next(), words.next()) else {
                return Err(IoError::Line(number, "no drive"));
            };
            let model = words.next().unwrap_or_default().trim();
            others.retain(|other| other != name);
            let medium = match medium {
                "rotating" => Medium::Rotating,
                "shingled" => Medium::Shingled,
                "flash" if counts_ticks(kernel) => Medium::FlashByTicks,
                "flash" => Medium::Flash,
                _ => {
                    others.push(name.to_owned());
                    Medium::Rotating
                }
            };
            series.drive(name, model, model, medium);
        } else if !line.trim().is_empty() {
            let (name, counters) =
                counters(&line).ok_or(IoError::Line(number, "no counters of a device"))?;
            now.counters.insert(name, counters);
        }
    }
    compare(&mut series, &others, &before, &now);
    Ok(series.finish(file))
}

/// A line of /proc/diskstats.
fn counters(line: &str) -> Option<(String, Counters)> {
    let mut fields = line.split_ascii_whitespace();
    let (_major, _minor, name) = (fields.next()?, fields.next()?, fields.next()?);
    let at = name.as_ptr() as usize - line.as_ptr() as usize + name.len();
    Some((name.to_owned(), Counters::parse(&line[at..])?))
}

/// Linux counted in ticks before 4.19.
fn counts_ticks(kernel: &str) -> bool {
    let mut parts = kernel.split('.').map(|part| part.parse::<u32>().ok());
    let version = (parts.next().flatten(), parts.next().flatten());
    version < (Some(4), Some(19))
}

fn compare(series: &mut Series, others: &[String], before: &Reading, now: &Reading) {
    let (Some(then), Some(at)) = (before.at, now.at) else {
        return;
    };
    let length = u64::try_from(at.duration_since(then).as_millis()).unwrap_or(0);
    for (name, counters) in &now.counters {
        let growth = before.counters.get(name).and_then(|before| counters.since(before));
        let silence = others.contains(name).then_some(Silence::Kind);
        let piece = growth.filter(|_| at > then).map(|growth| Piece { growth, length, silence });
        series.observe(name, at, piece.as_ref());
    }
}
