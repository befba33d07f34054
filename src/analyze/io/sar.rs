//! The text of `sar -d`: shown, and not judged. It has one time for both directions, in steps of ten
//! minutes.

use std::collections::BTreeMap;
use std::io::BufRead;

use super::{IoAnalysis, IoDrive, IoError, Times, Verdict};
use crate::input_source::Lines;

/// Where the header of a block has the device and the mean time.
struct Columns {
    device: usize,
    time: usize,
}

pub(super) fn read(mut lines: Lines<impl BufRead>, file: String) -> Result<IoAnalysis, IoError> {
    let mut columns: Option<Columns> = None;
    let mut worst: BTreeMap<String, f64> = BTreeMap::new();
    while let Some(line) = lines.next()? {
        let line = String::from_utf8_lossy(line);
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let place = |name: &str| words.iter().position(|word| *word == name);
        if let (Some(device), Some(time)) = (place("DEV"), place("await")) {
            columns = Some(Columns { device, time });
        } else if let Some(columns) = &columns
            && !line.starts_with("Average")
            && let (Some(device), Some(Ok(time))) =
                (words.get(columns.device), words.get(columns.time).map(|word| word.parse::<f64>()))
        {
            let highest = worst.entry((*device).to_owned()).or_default();
            *highest = highest.max(time);
        }
    }
    if columns.is_none() {
        return Err(IoError::Unknown);
    }
    let drive = |(name, time): (String, f64)| IoDrive {
        name,
        model: String::new(),
        verdict: Verdict::NotJudged,
        not_judged: vec!["sar has one time for reads and writes, in long steps".to_owned()],
        judged: 0,
        slow: 0,
        slow_hours: Vec::new(),
        common_cause_hours: 0,
        worst: Some(Times {
            requests: "all requests, with their wait".to_owned(),
            now: time,
            peers: None,
            peer_count: None,
            usual: None,
        }),
        cells: Vec::new(),
    };
    let drives = worst.into_iter().map(drive).collect();
    Ok(IoAnalysis { file, begin: None, end: None, drives })
}
