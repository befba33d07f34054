//! `status`: the node, its verdict, active findings worst first, and what the daemon cannot
//! observe; if all is good, drives and volumes in brief.

use crate::api::wire;
use crate::api::wire::source_state::State;
use crate::cli::render::{counted, drives, findings, heading, volumes, wrapped};
use crate::cli::screen::{Screen, Tone, escape_control, severity};

/// Maximum number of findings before "and N more".
const MAX_SHOWN: usize = 12;
/// Maximum number of drives and volumes that are listed when all is good.
const MAX_BRIEF_ROWS: usize = 10;

pub(crate) struct StatusView<'a> {
    pub node: &'a wire::Node,
    pub drives: &'a [wire::Drive],
    pub volumes: &'a [wire::Volume],
    pub findings: &'a [wire::Finding],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Good,
    Unknown,
    Warning,
    Critical,
}

impl Verdict {
    /// Exit codes of the monitoring-plugin convention.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Verdict::Good => 0,
            Verdict::Warning => 1,
            Verdict::Critical => 2,
            Verdict::Unknown => 3,
        }
    }
}

/// Critical before warning before unknown before good. The daemon's own verdict covers drives and
/// volumes; findings about other block devices are added here. Acknowledged findings and drives
/// under maintenance do not count.
pub(crate) fn verdict(view: &StatusView) -> Verdict {
    let node = match view.node.health() {
        wire::Health::Good if view.node.settled => Verdict::Good,
        wire::Health::Suspect => Verdict::Warning,
        wire::Health::Bad => Verdict::Critical,
        _ => Verdict::Unknown,
    };
    let worst = view
        .findings
        .iter()
        .filter(|finding| is_counted(finding, view))
        .map(|finding| match finding.severity() {
            wire::Severity::Bad => Verdict::Critical,
            wire::Severity::Suspect => Verdict::Warning,
            _ => Verdict::Good,
        });
    worst.fold(node, Ord::max)
}

fn is_counted(finding: &wire::Finding, view: &StatusView) -> bool {
    let maintained = finding.subject.as_ref().is_some_and(|subject| {
        subject.kind() == wire::SubjectKind::Drive
            && view
                .drives
                .iter()
                .any(|drive| drive.maintenance && drive.id == subject.id)
    });
    finding.acknowledged.is_none() && finding.cleared.is_none() && !maintained
}

pub(crate) fn screen(view: &StatusView, screen: &Screen) -> String {
    let node = view.node;
    let mut text = format!(
        "{}  Linux {}, diskvitalsd {} started {}\n",
        screen.paint(Tone::Strong, escape_control(&node.name)),
        escape_control(&node.kernel),
        escape_control(&node.version),
        screen.ago(node.started.as_ref()),
    );
    text.push_str(&verdict_line(view, screen));
    text.push_str(&problems(view, screen));
    text.push_str(&monitoring_gaps(node, screen));
    if view.findings.is_empty() {
        text.push_str(&brief("drives", view.drives, drives::table, screen));
        text.push_str(&brief("volumes", view.volumes, volumes::table, screen));
    }
    text
}

fn verdict_line(view: &StatusView, screen: &Screen) -> String {
    let (word, tone) = match verdict(view) {
        Verdict::Good => ("GOOD", Tone::Good),
        Verdict::Warning => ("WARNING", Tone::Warning),
        Verdict::Critical => ("CRITICAL", Tone::Critical),
        Verdict::Unknown => ("UNKNOWN", Tone::Warning),
    };
    let active = view
        .findings
        .iter()
        .filter(|finding| is_counted(finding, view))
        .count();
    let aside = view.findings.len() - active;
    let mut words = vec![
        counted(view.drives.len() as u64, "drive"),
        counted(view.volumes.len() as u64, "volume"),
    ];
    words.push(match active {
        0 => "nothing wrong".to_owned(),
        _ => counted(active as u64, "finding"),
    });
    if aside > 0 {
        words.push(format!("{aside} acknowledged or under maintenance"));
    }
    let settled = if view.node.settled {
        ""
    } else {
        "; the first scan is not complete yet"
    };
    format!(
        "{}  {}{settled}\n",
        screen.paint(tone, word),
        words.join(", ")
    )
}

fn problems(view: &StatusView, screen: &Screen) -> String {
    let mut text = String::new();
    // The daemon's order: counted findings first, worst first.
    for finding in view.findings.iter().take(MAX_SHOWN) {
        let (word, tone) = severity(finding);
        let since = screen.ago(finding.since.as_ref());
        let reason = screen.paint(Tone::Strong, escape_control(&finding.reason));
        text.push_str(&format!(
            "\n{} {reason}  {}  {since}  [{}]\n",
            screen.paint(tone, word),
            escape_control(&findings::subject(finding)),
            finding.id
        ));
        text.push_str(&wrapped(&finding.message, "    ", screen));
    }
    if view.findings.len() > MAX_SHOWN {
        text.push_str(&format!(
            "\nand {} more: diskvitals findings\n",
            view.findings.len() - MAX_SHOWN
        ));
    }
    let unknown = view
        .drives
        .iter()
        .map(|it| (&it.name, it.health, &it.health_unknown_why));
    let unknown = unknown.chain(
        view.volumes
            .iter()
            .map(|it| (&it.id, it.health, &it.health_unknown_why)),
    );
    let unknown: Vec<_> = unknown
        .filter(|(_, health, _)| *health == i32::from(wire::Health::Unknown))
        .collect();
    for (name, _, why) in unknown.iter().take(MAX_SHOWN) {
        text.push_str(&format!(
            "\n{} {}\n",
            screen.paint(Tone::Warning, "UNKNOWN"),
            escape_control(name)
        ));
        text.push_str(&wrapped(why, "    ", screen));
    }
    if unknown.len() > MAX_SHOWN {
        text.push_str(&format!(
            "\nand {} more whose health is unknown\n",
            unknown.len() - MAX_SHOWN
        ));
    }
    text
}

/// The gaps in the daemon's observations, and their consequences.
fn monitoring_gaps(node: &wire::Node, screen: &Screen) -> String {
    let mut lines = Vec::new();
    for source in &node.sources {
        let (word, tone) = match source.state() {
            State::Limited => ("limited", Tone::Warning),
            State::Down => ("DOWN", Tone::Critical),
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
    if node.store != "ok" {
        lines.push((
            "store: ".to_owned(),
            Tone::Warning,
            format!(
                "{}: history and acknowledgements are in memory only",
                node.store
            ),
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
    let mut text = String::new();
    if !lines.is_empty() {
        text.push('\n');
    }
    for (label, tone, line) in lines {
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
fn gap_consequence(source: &str) -> &'static str {
    match source {
        "udev" => "added and removed drives are not noticed",
        "mounts" => "mounts and unmounts are not noticed",
        "kubelet" => "which pods use which volumes is not known",
        "probe" => "whether volumes answer, and how full they are, is not known",
        "diskstats" => "stalled I/O is not noticed",
        "layers" => "degraded arrays and full thin pools are not noticed",
        "counters" => "errors that the kernel only counts are not noticed",
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
