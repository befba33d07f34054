//! The result of `analyze io`: which drives were slow, by recorded I/O counters.
//!
//! In: a file of `diskvitals record io`, iostat's JSON, or the text of `sar -d`. Out: `IoAnalysis`.
//! The judgement is `diskvitals_slow`'s; a recording of less than 14 days has only peers to compare.

mod iostat;
mod recording;
mod sar;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::io::{BufRead, Read};

use jiff::Timestamp;
use serde::Serialize;

use crate::EXIT_UNKNOWN;
use crate::input_source::InputSource;
use diskvitals_slow::{
    Cell, CellNow, Direction, Drive, Kind, Level, Limits, Medium, Node, NodeHour, Outcome, Piece,
    Silence, SizeClass, SlowHour,
};

pub use recording::HEADER;

/// A day of a busy node's iostat is some MiB.
const MAX_JSON_BYTES: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum IoError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("longer than {} MiB", MAX_JSON_BYTES >> 20)]
    TooLong,
    #[error("no file of `diskvitals record io`, no iostat JSON, and no text of `sar -d`")]
    Unknown,
    #[error("iostat's JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "the readings have no times; record with `S_TIME_FORMAT=ISO iostat -d -x -t -o JSON 60`"
    )]
    NoTimes,
    #[error("line {0}: {1}")]
    Line(u64, &'static str),
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IoAnalysis {
    pub file: String,
    /// Of the first and the last reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    pub drives: Vec<IoDrive>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    NotJudged,
    Usual,
    /// Slow hours, too few or too near to each other for more.
    SlowHours,
    /// Slow hours that are no accident (`Level::Persistent`).
    Slow,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IoDrive {
    pub name: String,
    pub model: String,
    pub verdict: Verdict,
    /// Why nothing was judged, or what of it was not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_judged: Vec<String>,
    /// Samples (a minute and a direction) that had something to be compared with, and slow ones.
    pub judged: u64,
    pub slow: u64,
    /// The beginnings of the slow hours.
    pub slow_hours: Vec<Timestamp>,
    /// Hours in which it was slow with too many others.
    pub common_cause_hours: u64,
    /// The slow hour with the highest time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Times>,
    /// Of each cell, the last hour that had it.
    pub cells: Vec<Times>,
}

/// Milliseconds that a request took, without the wait for those before it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Times {
    /// As "reads of up to 24 KiB".
    pub requests: String,
    pub now: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_count: Option<u16>,
    /// What 95 of 100 of its own minutes had at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual: Option<f64>,
}

/// 1: the file could not be read; 3: it allows no verdict on any drive.
pub fn exit_status(answer: &Result<IoAnalysis, IoError>) -> u8 {
    match answer {
        Ok(answer) if answer.drives.iter().any(|it| it.verdict != Verdict::NotJudged) => 0,
        Err(IoError::Read(_)) => 1,
        Ok(_) | Err(_) => EXIT_UNKNOWN,
    }
}

/// Reads one file. `peers`: names of drives of one model each, which iostat does not tell.
pub fn io(source: &InputSource, peers: &[Vec<String>]) -> Result<IoAnalysis, IoError> {
    let mut reader = source.reader()?;
    let start = reader.fill_buf()?.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    let name = source.name();
    if start == Some(b'{') {
        let mut bytes = Vec::new();
        reader.take(MAX_JSON_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_JSON_BYTES {
            return Err(IoError::TooLong);
        }
        return iostat::read(&bytes, peers, name);
    }
    let mut lines = crate::input_source::Lines::new(reader);
    match lines.next()? {
        Some(first) if first.starts_with(recording::HEADER.as_bytes()) => {
            let kernel = String::from_utf8_lossy(&first[recording::HEADER.len()..]).into_owned();
            recording::read(lines, kernel.trim(), name)
        }
        Some(first) if first.starts_with(b"Linux ") => sar::read(lines, name),
        _ => Err(IoError::Unknown),
    }
}

/// What the hours of a series add up to.
struct Series {
    node: Node<String>,
    models: BTreeMap<String, String>,
    times: Option<(Timestamp, Timestamp)>,
    /// Readings whose distance makes no windows of a minute.
    has_odd_steps: bool,
    sums: BTreeMap<String, Sum>,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    judged: u64,
    slow: u64,
    slow_hours: Vec<Timestamp>,
    common_cause_hours: u64,
    worst: Option<SlowHour>,
    level: Level,
}

impl Series {
    fn new() -> Series {
        Series {
            node: Node::new(Limits::default()),
            models: BTreeMap::new(),
            times: None,
            has_odd_steps: false,
            sums: BTreeMap::new(),
        }
    }

    /// Drives of one group are peers.
    fn drive(&mut self, name: &str, model: &str, group: &str, medium: Medium) {
        self.node.add(name.to_owned(), Kind { medium, model: group.into() });
        self.models.insert(name.to_owned(), model.to_owned());
    }

    fn has(&self, name: &str) -> bool {
        self.models.contains_key(name)
    }

    fn observe(&mut self, name: &str, at: Timestamp, piece: Option<&Piece>) {
        let begin = self.times.map_or(at, |(begin, _)| begin);
        self.times = Some((begin, at));
        self.has_odd_steps |= piece.is_some_and(|piece| {
            piece.length > 30_000 && !(48_000..=72_000).contains(&piece.length)
        });
        let second = u64::try_from(at.as_second()).unwrap_or(0);
        if let Some(hour) = self.node.observe(&name.to_owned(), second, piece) {
            self.add(hour);
        }
    }

    fn add(&mut self, hour: NodeHour<String>) {
        let begin = Timestamp::from_second(i64::from(hour.hour) * 3600);
        for (name, of_drive) in hour.drives {
            let level = self.node.drives().get(&name).map_or(Level::Usual, Drive::level);
            let sum = self.sums.entry(name).or_default();
            sum.judged += u64::from(of_drive.judged);
            sum.slow += u64::from(of_drive.slow);
            // The worst of the recording: it may have cleared before its end.
            sum.level = sum.level.max(level);
            match of_drive.outcome {
                Outcome::Slow(slow) => {
                    sum.slow_hours.extend(begin.iter().copied());
                    if sum.worst.is_none_or(|worst| worst.now.service < slow.now.service) {
                        sum.worst = Some(slow);
                    }
                }
                Outcome::CommonCause => sum.common_cause_hours += 1,
                Outcome::NotJudged | Outcome::Usual => {}
            }
        }
    }

    fn finish(mut self, file: String) -> IoAnalysis {
        if let Some(hour) = self.node.finish() {
            self.add(hour);
        }
        let drives = self.node.drives().iter().map(|(name, drive)| {
            let sum = self.sums.get(name).cloned().unwrap_or_default();
            let model = self.models.get(name).cloned().unwrap_or_default();
            answer(name, model, drive, sum, self.has_odd_steps)
        });
        IoAnalysis {
            file,
            begin: self.times.map(|(begin, _)| begin),
            end: self.times.map(|(_, end)| end),
            drives: drives.collect(),
        }
    }
}

fn answer(name: &str, model: String, drive: &Drive, sum: Sum, has_odd_steps: bool) -> IoDrive {
    let verdict = match (sum.judged, sum.level) {
        (0, _) => Verdict::NotJudged,
        (_, Level::Usual) => Verdict::Usual,
        (_, Level::Slow) => Verdict::SlowHours,
        (_, Level::Persistent) => Verdict::Slow,
    };
    let tally = drive.tally();
    let windows = |count: u32| if count == 1 { "minute" } else { "minutes" };
    let mut not_judged: Vec<String> = tally
        .silenced()
        .map(|(silence, count)| format!("{count} {}: {}", windows(count), silence.words()))
        .collect();
    if sum.judged == 0 && tally.judged() > 0 {
        not_judged.push(
            "fewer than three drives of its model with the same kind of load, and no past of 14 days"
                .to_owned(),
        );
    } else if sum.judged == 0 && not_judged.is_empty() {
        not_judged.push(match has_odd_steps {
            true => "the readings are neither about 60 s nor up to 30 s apart".to_owned(),
            false => "too little load".to_owned(),
        });
    }
    IoDrive {
        name: name.to_owned(),
        model,
        verdict,
        not_judged,
        judged: sum.judged,
        slow: sum.slow,
        slow_hours: sum.slow_hours,
        common_cause_hours: sum.common_cause_hours,
        worst: sum.worst.map(|slow| times(slow.cell, &slow.now)),
        cells: drive.cells().map(|(cell, now)| times(cell, now)).collect(),
    }
}

fn times(cell: Cell, now: &CellNow) -> Times {
    let direction = match cell.direction() {
        Direction::Read => "reads",
        Direction::Write => "writes",
    };
    let size = match cell.size() {
        SizeClass::Small => "up to 24 KiB",
        SizeClass::Medium => "24 to 192 KiB",
        SizeClass::Large => "more than 192 KiB",
    };
    let load = ["", ", 1 to 4 at a time", ", 4 to 16 at a time", ", more than 16 at a time"];
    let milliseconds = |microseconds: u32| f64::from(microseconds) / 1_000.0;
    Times {
        requests: format!("{direction} of {size}{}", load[cell.load() as usize]),
        now: milliseconds(now.service),
        peers: now.peers.map(|(peers, _)| milliseconds(peers)),
        peer_count: now.peers.map(|(_, count)| count),
        usual: now.usual.map(milliseconds),
    }
}
