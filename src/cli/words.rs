//! The words and tones for values of the API.

use diskvitals_model::probe;
use diskvitals_terminal::screen::Tone;
use diskvitals_wire as wire;

pub fn health(health: i32) -> (&'static str, Tone) {
    match wire::Health::try_from(health) {
        Ok(wire::Health::Good) => ("GOOD", Tone::Good),
        Ok(wire::Health::Suspect) => ("SUSPECT", Tone::Warning),
        Ok(wire::Health::Bad) => ("BAD", Tone::Critical),
        Ok(wire::Health::Unknown) => ("UNKNOWN", Tone::Warning),
        _ => ("-", Tone::Faint),
    }
}

pub fn severity(finding: &wire::Finding) -> (&'static str, Tone) {
    if finding.cleared.is_some() {
        return ("cleared", Tone::Faint);
    }
    if finding.acknowledged.is_some() {
        return ("acked", Tone::Faint);
    }
    if finding.maintained() {
        return ("maintenance", Tone::Faint);
    }
    severity_word(finding.severity())
}

pub(crate) fn severity_word(severity: wire::Severity) -> (&'static str, Tone) {
    match severity {
        wire::Severity::Bad => ("BAD", Tone::Critical),
        wire::Severity::Suspect => ("SUSPECT", Tone::Warning),
        wire::Severity::Info => ("info", Tone::Plain),
        wire::Severity::Unspecified => ("-", Tone::Faint),
    }
}

/// The value's name without the name of its enum: `DRIVE_KIND_SSD` → `ssd`.
pub(crate) fn enum_label(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase().replace('_', " ")
}

/// Used space in percent: the same figure as in a cause.
pub fn used_percent(usage: &wire::Usage) -> Option<u64> {
    probe::used_percent(usage.used_bytes, usage.available_bytes)
}

pub fn used_share(usage: &wire::Usage) -> Option<String> {
    probe::used_share(usage.used_bytes, usage.available_bytes)
}
