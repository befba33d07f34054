//! `/etc/diskvitals/notify.toml` → settings. Unknown keys, keys of another type of target and values
//! that cannot work are errors that name the target and the key.
//!
//! In: the file's text. Out: settings. Secrets are named here and read by `secret`, never here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use serde::Deserialize;

use crate::config::target::{RawTarget, TargetError};
use crate::message::Level;
use crate::planner;
use crate::schedule::Digest;
use crate::targets::Target;
use diskvitals_host::trusted_file::read_text;
use diskvitals_text::duration;
use diskvitals_text::echo::echo;

pub(crate) mod target;

pub(crate) const DEFAULT_FILE: &str = "/etc/diskvitals/notify.toml";

const MAX_TARGETS: usize = 32;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("reading {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The text of toml's error contains the line, the column and the key.
    #[error("{}: {error}", path.display())]
    Parse { path: PathBuf, error: Box<toml::de::Error> },
    #[error("{}: {key}: {problem}", path.display())]
    Value { path: PathBuf, key: &'static str, problem: String },
    #[error("{}: target {name:?}: {error}", path.display())]
    Target { path: PathBuf, name: String, error: TargetError },
}

/// The settings of the process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub socket: PathBuf,
    /// None: the daemon's name of the node.
    pub host: Option<String>,
    pub planner: planner::Settings,
    /// Messages that wait for one target.
    pub max_queue: usize,
    pub give_up: Duration,
    pub targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Raw {
    socket: PathBuf,
    host: Option<String>,
    group_wait: String,
    repeat: String,
    repeat_max: String,
    quiet_hours: String,
    quiet_hours_pass: String,
    daily_limit: u32,
    digest: String,
    daemon_silent: String,
    min_severity: String,
    max_queue: usize,
    give_up: String,
    target: Vec<RawTarget>,
}

impl Default for Raw {
    fn default() -> Raw {
        Raw {
            socket: diskvitals_wire::client::DEFAULT_SOCKET.into(),
            host: None,
            group_wait: "3s".into(),
            repeat: "1d".into(),
            repeat_max: "7d".into(),
            quiet_hours: String::new(),
            quiet_hours_pass: "first".into(),
            daily_limit: 100,
            digest: "off".into(),
            daemon_silent: "15min".into(),
            min_severity: "suspect".into(),
            max_queue: 1000,
            give_up: "7d".into(),
            target: Vec::new(),
        }
    }
}

pub(crate) fn load(path: &Path) -> Result<Config, ConfigError> {
    let text =
        read_text(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Relative names of files in the configuration are those of systemd's credentials, or beside `path`.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let raw: Raw = toml::from_str(text)
        .map_err(|error| ConfigError::Parse { path: path.to_owned(), error: Box::new(error) })?;
    let wrong = |key: &'static str| {
        move |problem: String| ConfigError::Value { path: path.to_owned(), key, problem }
    };
    // "off" and an empty text turn it off.
    let optional = |key, text: &str| match text {
        "" | "off" => Ok(None),
        text => span(text).map(Some).map_err(wrong(key)),
    };
    let planner = planner::Settings {
        group_wait: span(&raw.group_wait).map_err(wrong("group_wait"))?,
        repeat: optional("repeat", &raw.repeat)?,
        repeat_max: span(&raw.repeat_max).map_err(wrong("repeat_max"))?,
        quiet_hours: match raw.quiet_hours.as_str() {
            "" | "off" => None,
            hours => Some(hours.parse().map_err(|error| wrong("quiet_hours")(format!("{error}")))?),
        },
        quiet_hours_bad_only: match raw.quiet_hours_pass.as_str() {
            "first" => false,
            "bad" => true,
            other => {
                return Err(wrong("quiet_hours_pass")(format!(
                    "`{}` is none: write first (each first raise, and what becomes BAD) or bad (only what is BAD)",
                    echo(other)
                )));
            }
        },
        daily_limit: Some(raw.daily_limit).filter(|limit| *limit > 0),
        digest: raw.digest.parse::<Digest>().map_err(|error| wrong("digest")(error.to_string()))?,
        daemon_silent: optional("daemon_silent", &raw.daemon_silent)?,
        min_severity: level(&raw.min_severity).map_err(wrong("min_severity"))?,
        zone: TimeZone::system(),
    };
    if planner.group_wait > SignedDuration::from_mins(10) {
        return Err(wrong("group_wait")("10min is the longest".to_owned()));
    }
    if planner.repeat.is_some_and(|repeat| repeat < SignedDuration::from_mins(1)) {
        return Err(wrong("repeat")("1min is the shortest; off turns it off".to_owned()));
    }
    if planner.repeat.is_some_and(|repeat| repeat > planner.repeat_max) {
        return Err(wrong("repeat_max")("it is shorter than repeat".to_owned()));
    }
    if planner.daemon_silent.is_some_and(|limit| limit < SignedDuration::from_secs(10)) {
        return Err(wrong("daemon_silent")(
            "10s is the shortest: the daemon needs some to restart".to_owned(),
        ));
    }
    if !(1..=100_000).contains(&raw.max_queue) {
        return Err(wrong("max_queue")("1 to 100000 messages".to_owned()));
    }
    if raw.target.is_empty() {
        return Err(wrong("target")("there is no [[target]]: nothing would be sent".to_owned()));
    }
    if raw.target.len() > MAX_TARGETS {
        return Err(wrong("target")(format!("{MAX_TARGETS} targets are the most")));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut targets: BTreeMap<String, Target> = BTreeMap::new();
    let mut order = Vec::new();
    for raw in raw.target {
        let name = echo(&raw.name);
        let in_target =
            |error| ConfigError::Target { path: path.to_owned(), name: name.clone(), error };
        let target = raw.into_target(folder).map_err(in_target)?;
        if targets.insert(target.name.clone(), target.clone()).is_some() {
            return Err(in_target(TargetError::Duplicate));
        }
        order.push(target);
    }
    Ok(Config {
        socket: std::path::absolute(&raw.socket).unwrap_or(raw.socket),
        host: raw.host.map(|host| crate::message::clean(&host)),
        planner,
        max_queue: raw.max_queue,
        give_up: duration::parse(&raw.give_up)
            .map_err(|error| wrong("give_up")(error.to_string()))?,
        targets: order,
    })
}

fn span(text: &str) -> Result<SignedDuration, String> {
    let duration = duration::parse(text).map_err(|error| error.to_string())?;
    match SignedDuration::try_from(duration) {
        Ok(span) if span <= SignedDuration::from_hours(24 * 366) => Ok(span),
        _ => Err(format!("`{}` is longer than a year", echo(text))),
    }
}

pub(crate) fn level(text: &str) -> Result<Level, String> {
    match text {
        "info" => Ok(Level::Info),
        "suspect" => Ok(Level::Suspect),
        "bad" => Ok(Level::Bad),
        other => Err(format!("`{}` is no severity: write info, suspect or bad", echo(other))),
    }
}

#[cfg(test)]
mod tests;
