//! The arguments that choose findings.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ValueEnum};
use jiff::Timestamp;

use diskvitals_finding::reason::Reason;
use diskvitals_host::clock::wall_now;
use diskvitals_text::duration;
use diskvitals_wire as wire;

#[derive(Clone, Debug, clap::Args)]
pub struct FindingsArgs {
    /// A finding's id, or the unique beginning of one; or a thing by any of its names
    #[arg(value_name = "FINDING|ID")]
    pub id: Option<String>,
    /// Include cleared findings
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub filter: FindingFilter,
    /// Only findings that began or cleared since: a duration before now (2d, 90min), or a local date
    /// with or without a time (2026-11-20, "2026-11-20 14:00")
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<Since>,
}

/// Least severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    Info,
    Suspect,
    Bad,
}

impl Level {
    pub fn wire(self) -> wire::Severity {
        match self {
            Level::Info => wire::Severity::Info,
            Level::Suspect => wire::Severity::Suspect,
            Level::Bad => wire::Severity::Bad,
        }
    }
}

/// A point in time, given as such or as an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    Ago(Duration),
    At(Timestamp),
}

impl Since {
    pub fn time(self) -> Timestamp {
        match self {
            Since::Ago(age) => wall_now().checked_sub(age).unwrap_or(Timestamp::MIN),
            Since::At(time) => time,
        }
    }
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(age) = duration::parse(text) {
        return Ok(Since::Ago(age));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(Since::At(time));
    }
    let local = text.parse::<jiff::civil::DateTime>();
    let zoned = local.and_then(|local| local.to_zoned(jiff::tz::TimeZone::system()));
    zoned.map(|zoned| Since::At(zoned.timestamp())).map_err(|_| {
        "give a duration before now (2d, 90min) or a date (2026-11-20, \"2026-11-20 14:00\")"
            .to_owned()
    })
}

/// What `findings` lists and `watch` follows.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct FindingFilter {
    /// Only findings of this severity, or worse
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub severity: Option<Level>,
    /// Only findings about this drive, and those of volumes that follow from its failure
    #[arg(long, value_name = "ID")]
    pub drive: Option<String>,
    /// Only findings about this volume
    #[arg(long, value_name = "ID")]
    pub volume: Option<String>,
    /// Only findings with this reason; may be repeated
    #[arg(long, value_name = "REASON", value_parser = ReasonNames, hide_possible_values = true)]
    pub reason: Vec<String>,
}

/// Only for completion: a newer daemon may know more reasons, so that no name is refused here.
#[derive(Clone)]
pub struct ReasonNames;

impl TypedValueParser for ReasonNames {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Reason::ALL.iter().map(|reason| PossibleValue::new(reason.name()))))
    }
}
