//! What monitoring systems store of drives and volumes: names that stay, and figures. Pure.
//!
//! A figure without a current reading is unknown, never the last one and never 0. The daemon's
//! limits are not figures of the API: it judges, and the state is its verdict.

use std::collections::BTreeMap;

use crate::render::volumes;
use diskvitals_terminal::screen::escape_control;
use diskvitals_wire as wire;

/// SMART metrics that are stored beside temperature and wear.
const COUNTERS: [&str; 3] = ["reallocated", "pending", "media_errors"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    None,
    Percent,
    Bytes,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub metric: &'static str,
    /// None: not known now.
    pub value: Option<i128>,
    pub unit: Unit,
    pub min: Option<u64>,
    pub max: Option<u64>,
}

/// A counter and the like has no limits.
fn figure(metric: &'static str, value: Option<i128>, unit: Unit) -> Figure {
    Figure { metric, value, unit, min: None, max: None }
}

/// Empty for a drive that is never queried.
pub(super) fn of_drive(drive: &wire::Drive) -> Vec<Figure> {
    use wire::smart::State;
    let Some(smart) = &drive.smart else {
        return Vec::new();
    };
    let is_current = smart.state() == State::Answered
        && drive.presence() == wire::Presence::Present
        && smart.answered.is_some();
    let current = |value: i128| is_current.then_some(value);
    let mut figures = Vec::new();
    if let Some(celsius) = smart.temperature_celsius {
        let value = current(i128::from(celsius));
        figures.push(figure("temperature", value, Unit::None));
    }
    if let Some(wear) = smart.wear_percent {
        figures.push(Figure {
            min: Some(0),
            ..figure("wear", current(i128::from(wear)), Unit::Percent)
        });
    }
    for metric in COUNTERS {
        if let Some(it) = smart.values.iter().find(|it| it.metric == metric) {
            figures.push(Figure {
                min: Some(0),
                ..figure(metric, current(i128::from(it.value)), Unit::None)
            });
        }
    }
    figures
}

/// Empty for a volume without a size of its own.
pub(super) fn of_volume(volume: &wire::Volume) -> Vec<Figure> {
    let Some(usage) = &volume.usage else {
        return Vec::new();
    };
    let whole = usage.used_bytes.saturating_add(usage.available_bytes);
    let is_current = usage.stale_since.is_none();
    vec![Figure {
        min: Some(0),
        max: Some(whole),
        ..figure("used", is_current.then_some(i128::from(usage.used_bytes)), Unit::Bytes)
    }]
}

/// The kernel name of each drive, or its id where drives share one or have none.
pub(super) fn drive_names(drives: &[wire::Drive]) -> Vec<String> {
    distinct(drives.iter().map(|it| (it.name.clone(), it.id.clone())))
}

/// The mount point of a host's filesystem, the id of others: pods come and go.
pub(super) fn volume_names(all: &[wire::Volume]) -> Vec<String> {
    distinct(all.iter().map(|it| {
        let is_mounted = it.driver.is_empty() && !it.mounts.is_empty() && it.pods.is_empty();
        let name = match is_mounted {
            true => volumes::place(it),
            false => it.id.clone(),
        };
        (name, it.id.clone())
    }))
}

fn distinct(named: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let named: Vec<(String, String)> = named.collect();
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in &named {
        *uses.entry(name).or_default() += 1;
    }
    named
        .iter()
        .map(|(name, id)| match uses.get(name.as_str()) {
            Some(1) if !name.is_empty() => name.clone(),
            _ => id.clone(),
        })
        .collect()
}

/// A name without the characters that have a meaning for a monitoring system; bounded.
pub(super) fn safe_name(name: &str, forbidden: &str) -> String {
    const MAX_CHARS: usize = 120;
    let escaped = escape_control(name);
    let safe = escaped.chars().map(|c| match forbidden.contains(c) {
        true => '_',
        false => c,
    });
    safe.take(MAX_CHARS).collect()
}

/// A text of one line that does not end where performance data would begin; bounded.
pub(super) fn safe_text(text: &str, limit: usize) -> String {
    diskvitals_terminal::width::shortened(text, limit).replace('|', "\\u{7c}")
}
