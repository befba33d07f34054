//! `status`: the node, its verdict, causes worst first, and what the daemon cannot observe;
//! if all is good, drives and volumes in brief.

use jiff::Timestamp;

use crate::render::{causes, drives, findings, lamps, maintenance, volumes};
use diskvitals_model::label;
use diskvitals_terminal::layout::{counted, heading, wrapped};
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::verdict::Verdict;
use diskvitals_terminal::width::shortened;
use diskvitals_wire as wire;
use diskvitals_wire::source_state::State;

/// Maximum number of causes, and of warnings, before "and N more".
const MAX_SHOWN: usize = 12;
/// Maximum number of drives and volumes that are listed when all is good.
const MAX_BRIEF_ROWS: usize = 10;

pub struct StatusView<'a> {
    pub node: &'a wire::Node,
    pub drives: &'a [wire::Drive],
    pub volumes: &'a [wire::Volume],
    pub findings: &'a [wire::Finding],
    /// Worst first; None from a daemon that does not know causes yet.
    pub causes: Option<&'a [wire::Cause]>,
}

/// Critical before warning before unknown before good. The daemon's own verdict covers drives and
/// volumes; findings about other block devices are added here. Acknowledged findings and those
/// that maintenance explains do not count.
pub fn verdict(view: &StatusView) -> Verdict {
    let node = match view.node.health() {
        wire::Health::Good if view.node.settled => Verdict::Good,
        wire::Health::Suspect => Verdict::Warning,
        wire::Health::Bad => Verdict::Critical,
        _ => Verdict::Unknown,
    };
    let counted = view.findings.iter().filter(|finding| finding.is_counted());
    let worst = counted.map(|finding| match finding.severity() {
        wire::Severity::Bad => Verdict::Critical,
        wire::Severity::Suspect => Verdict::Warning,
        _ => Verdict::Good,
    });
    worst.fold(node, Ord::max)
}

pub fn screen(view: &StatusView, screen: &Screen) -> String {
    let mut text = head(view, screen);
    text.push_str(&problems(view, screen));
    text.push_str(&cordons(view.node, screen));
    if !view.node.maintenance.is_empty() {
        text.push('\n');
        text.push_str(&maintenance::list(&view.node.maintenance, screen));
    }
    text.push_str(&lamps::lit(view.drives, screen));
    text.push_str(&monitoring_gaps(view.node, screen));
    if view.findings.is_empty() {
        text.push_str(&brief("drives", view.drives, drives::table, screen));
        text.push_str(&brief("volumes", view.volumes, volumes::table, screen));
    }
    text
}

/// Two lines: the node, and its verdict.
pub(super) fn head(view: &StatusView, screen: &Screen) -> String {
    let node = view.node;
    let mut text = format!(
        "{}  Linux {}, diskvitalsd {} started {}\n",
        screen.paint(Tone::Strong, escape_control(&node.name)),
        escape_control(&node.kernel),
        escape_control(&node.version),
        screen.ago(node.started.as_ref()),
    );
    text.push_str(&verdict_line(view, screen));
    text
}

fn verdict_line(view: &StatusView, screen: &Screen) -> String {
    let (word, tone) = match verdict(view) {
        Verdict::Good => ("GOOD", Tone::Good),
        Verdict::Warning => ("WARNING", Tone::Warning),
        Verdict::Critical => ("CRITICAL", Tone::Critical),
        Verdict::Unknown => ("UNKNOWN", Tone::Warning),
    };
    format!("{}  {}\n", screen.paint(tone, word), summary(view))
}

/// `6 drives, 9 volumes, 6 causes (18 findings)`.
pub fn summary(view: &StatusView) -> String {
    let active = view.findings.iter().filter(|finding| finding.is_counted()).count();
    let aside = view.findings.len() - active;
    let mut words = vec![
        counted(view.drives.len() as u64, "drive"),
        counted(view.volumes.len() as u64, "volume"),
    ];
    words.extend(unknown_count(view.drives, view.volumes));
    let causes = view.causes.unwrap_or_default();
    let causes = causes.iter().filter(|cause| cause.counted).count();
    words.push(match (active, causes) {
        (0, _) if verdict(view) == Verdict::Good => "nothing wrong".to_owned(),
        (0, _) => "no findings".to_owned(),
        (_, 0) => counted(active as u64, "finding"),
        _ => format!("{} ({})", counted(causes as u64, "cause"), counted(active as u64, "finding")),
    });
    if aside > 0 {
        words.push(format!("{aside} acknowledged or under maintenance"));
    }
    let settled = if view.node.settled { "" } else { "; the first scan is not complete yet" };
    format!("{}{settled}", words.join(", "))
}

/// `12 drives and 1 volume unknown`; None if all are known. Drives that sleep do not count.
pub(crate) fn unknown_count(drives: &[wire::Drive], volumes: &[wire::Volume]) -> Option<String> {
    let unknown_drive = |it: &&wire::Drive| {
        it.health() == wire::Health::Unknown
            && it.health_unknown_cause() != wire::UnknownCause::Asleep
    };
    let drives = drives.iter().filter(unknown_drive).count();
    let unknown_volume = |it: &&wire::Volume| it.health() == wire::Health::Unknown;
    let volumes = volumes.iter().filter(unknown_volume).count();
    let words: Vec<String> = [(drives, "drive"), (volumes, "volume")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| counted(count as u64, name))
        .collect();
    (!words.is_empty()).then(|| format!("{} unknown", words.join(" and ")))
}

/// A block for each cause; a blank line before each urgent one, and before the others.
fn problems(view: &StatusView, screen: &Screen) -> String {
    let mut text = String::new();
    match view.causes {
        Some(all) => {
            let mut separate = true;
            for cause in all.iter().take(MAX_SHOWN) {
                if std::mem::replace(&mut separate, causes::is_urgent(cause)) {
                    text.push('\n');
                }
                text.push_str(&causes::block(cause, view.findings, screen));
            }
            text.push_str(&more_causes(all.get(MAX_SHOWN..).unwrap_or_default()));
        }
        None if !view.findings.is_empty() => {
            text.push('\n');
            text.push_str(&findings::table(view.findings, screen));
        }
        None => {}
    }
    text.push_str(&unknown(view, screen));
    text
}

/// Why the pool takes no new volumes.
pub fn cordons(node: &wire::Node, screen: &Screen) -> String {
    let block = |cordon: &wire::PoolCordon| {
        format!(
            "\n{} pool ({})\n{}",
            screen.paint(Tone::Critical, "CORDONED"),
            escape_control(&cordon.kind),
            wrapped(&screen.local_times(&cordon.message), "    ", screen)
        )
    };
    node.pool_cordons.iter().map(block).collect()
}

fn more_causes(rest: &[wire::Cause]) -> String {
    if rest.is_empty() {
        return String::new();
    }
    let of = |severity: wire::Severity| {
        let matching = rest.iter().filter(|cause| cause.counted && cause.severity() == severity);
        matching.count()
    };
    let counts = [(of(wire::Severity::Bad), "BAD"), (of(wire::Severity::Suspect), "SUSPECT")];
    let words: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let words = match words.is_empty() {
        true => String::new(),
        false => format!(" ({})", words.join(", ")),
    };
    format!("\nand {}{words}: diskvitals findings\n", counted(rest.len() as u64, "more cause"))
}

/// Drives and volumes whose health is unknown, those with one reason together.
pub fn unknown(view: &StatusView, screen: &Screen) -> String {
    let by_reason = unknown_by_reason(view.drives, view.volumes);
    let limit = screen.width.map_or(usize::MAX, usize::from) / 2;
    let mut text = String::new();
    for (why, names) in by_reason.iter().take(MAX_SHOWN) {
        const MAX_NAMES: usize = 4;
        let shown = names.iter().take(MAX_NAMES);
        let shown: Vec<String> = shown.map(|name| shortened(name, limit)).collect();
        let more = match names.len().saturating_sub(MAX_NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text.push_str(&format!(
            "\n{} {}{more}\n",
            screen.paint(Tone::Warning, "UNKNOWN"),
            shown.join(", ")
        ));
        text.push_str(&wrapped(&screen.local_times(why), "    ", screen));
    }
    let hidden: usize = by_reason.iter().skip(MAX_SHOWN).map(|(_, names)| names.len()).sum();
    if hidden > 0 {
        text.push_str(&format!("\nand {hidden} more whose health is unknown\n"));
    }
    text
}

/// Names of drives and volumes whose health is unknown, by the reason. Reasons that differ only in
/// the names of what they are about, or in times, are one: the first is shown.
pub(crate) fn unknown_by_reason(
    drives: &[wire::Drive],
    volumes: &[wire::Volume],
) -> Vec<(String, Vec<String>)> {
    let is_unknown = |health: i32| health == i32::from(wire::Health::Unknown);
    let drives = drives.iter().filter(|it| is_unknown(it.health));
    let volumes = volumes.iter().filter(|it| is_unknown(it.health));
    let mut named: Vec<(String, &str, String)> = drives
        .map(|it| {
            let devices = it.devices.iter().map(|device| &device.name);
            let own = devices.chain([&it.name, &it.id, &it.serial]);
            let why = it.health_unknown_why.as_str();
            (it.name.clone(), why, without_names(why, own))
        })
        .chain(volumes.map(|it| {
            let own = it.mounts.iter().map(|mount| &mount.path);
            let why = it.health_unknown_why.as_str();
            (volumes::place(it), why, without_names(why, own.chain([&it.id])))
        }))
        .collect();
    named.sort_by_cached_key(|(name, ..)| label::sort_key(name));
    let mut groups: Vec<(String, String, Vec<String>)> = Vec::new();
    for (name, why, kind) in named {
        match groups.iter_mut().find(|(_, other, _)| *other == kind) {
            Some((shown, _, names)) => {
                if shown != why && names.len() == 1 {
                    *shown = format!("{}: {shown}", names[0]);
                }
                names.push(name);
            }
            None => groups.push((why.to_owned(), kind, vec![name])),
        }
    }
    groups.into_iter().map(|(shown, _, names)| (shown, names)).collect()
}

/// The text with a sign for each word that is one of the names, or a time.
fn without_names<'a>(text: &str, names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).filter(|it| !it.is_empty()).collect();
    let words = text.split(' ').map(|word| {
        let core = word.trim_matches(|c| ",.:;()`".contains(c));
        let name = core.strip_prefix("/dev/").unwrap_or(core);
        match names.contains(&core) || names.contains(&name) || core.parse::<Timestamp>().is_ok() {
            true => word.replacen(core, "…", 1),
            false => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// One gap: `source udev limited: `, and what it means, with local times.
pub struct Gap {
    pub label: String,
    pub tone: Tone,
    pub text: String,
}

/// The gaps in the daemon's observations, and their consequences.
pub fn gaps(node: &wire::Node, screen: &Screen) -> Vec<Gap> {
    let mut lines = Vec::new();
    for source in &node.sources {
        let (word, tone) = match source.state() {
            State::Limited => ("limited", Tone::Warning),
            State::Down => ("DOWN", Tone::Critical),
            State::Absent if source.is_missed => ("absent", Tone::Plain),
            State::Active | State::Absent | State::Unspecified => continue,
        };
        let meaning = match source.state() {
            State::Down => format!(" ({})", gap_consequence(&source.name)),
            _ => String::new(),
        };
        lines.push((
            format!("source {} {}: ", source.name, word),
            tone,
            format!(
                "{}, since {}{meaning}",
                source.detail,
                screen.date_time(source.since.as_ref())
            ),
        ));
    }
    lines.extend(
        node.limitations
            .iter()
            .map(|limitation| ("limited: ".to_owned(), Tone::Warning, limitation.clone())),
    );
    if node.stuck_probes > 0 {
        let have = match node.stuck_probes {
            1 => "1 probe has".to_owned(),
            probes => format!("{probes} probes have"),
        };
        lines.push((
            "stuck: ".to_owned(),
            Tone::Critical,
            format!(
                "{have} not returned: other programs that use those mounts or devices hang as well"
            ),
        ));
    }
    let over_limit = node.user_mounts.iter().filter(|user| user.not_listed > 0);
    lines.extend(over_limit.take(MAX_SHOWN).map(|user| {
        let text = format!(
            "uid {} has mounted {} FUSE filesystems: none is judged, {} are not listed",
            user.uid,
            user.listed + user.not_listed,
            user.not_listed
        );
        ("mounts of a user: ".to_owned(), Tone::Plain, text)
    }));
    if node.store != "ok" {
        lines.push((
            "store: ".to_owned(),
            Tone::Warning,
            format!("{}: history and acknowledgements are in memory only", node.store),
        ));
    }
    lines.extend(
        node.warnings
            .iter()
            .take(MAX_SHOWN)
            .map(|warning| ("warning: ".to_owned(), Tone::Plain, warning.clone())),
    );
    if node.warnings.len() > MAX_SHOWN {
        lines.push((
            "warning: ".to_owned(),
            Tone::Plain,
            format!("and {} more", node.warnings.len() - MAX_SHOWN),
        ));
    }
    lines
        .into_iter()
        .map(|(label, tone, line)| Gap { label, tone, text: screen.local_times(&line) })
        .collect()
}

pub(crate) fn monitoring_gaps(node: &wire::Node, screen: &Screen) -> String {
    let lines = gaps(node, screen);
    let mut text = String::new();
    if !lines.is_empty() {
        text.push('\n');
    }
    for Gap { label, tone, text: line } in lines {
        let body = wrapped(&format!("{label}{line}"), "  ", screen);
        // Only the label is colored; it is the beginning of the first line.
        let plain_label = format!("  {}", escape_control(label.trim_end()));
        match body.strip_prefix(&plain_label) {
            Some(rest) => text.push_str(&format!(
                "  {}{rest}",
                screen.paint(tone, escape_control(label.trim_end()))
            )),
            None => text.push_str(&body),
        }
    }
    text
}

/// The consequence when a source provides nothing.
pub(crate) fn gap_consequence(source: &str) -> &'static str {
    match source {
        "udev" => "added and removed drives are not noticed",
        "mounts" => "mounts and unmounts are not noticed",
        "kubelet" => "which pods use which volumes is not known",
        "probe" => "whether volumes answer, and how full they are, is not known",
        "diskstats" => "stalled I/O is not noticed",
        "layers" => "degraded arrays and full thin pools are not noticed",
        "counters" => "errors that the kernel only counts are not noticed",
        "smart" => "whether drives with SMART are failing is not known",
        "fs-errors" => "filesystem errors are noticed only from their counters and the kernel log",
        _ => "its data is unknown",
    }
}

fn brief<T>(
    name: &str,
    all: &[T],
    table: impl Fn(&[T], &Screen) -> String,
    screen: &Screen,
) -> String {
    let (first, rest) = all.split_at(all.len().min(MAX_BRIEF_ROWS));
    let more = match rest.len() {
        0 => String::new(),
        more => format!("and {more} more: diskvitals {name}\n"),
    };
    format!("\n{}{}{more}", heading(name, screen), table(first, screen))
}
