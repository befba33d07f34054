//! The cluster on one screen: nodes by health, drives to replace, claims affected, actions that wait
//! for a person, nodes that do not report, stale mounts.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::render::{actions, ago, claims, drives, gaps, marked, shown, stale, unclean};
use crate::view::Gap;
use crate::view::actions::{ActionRow, PolicyRow, State};
use crate::view::claims::{ClaimRow, StaleRow};
use crate::view::drives::DriveRow;
use crate::view::nodes::{NodeView, Report};
use crate::view::unclean::{Clean, UncleanRow, clean};
use crate::view::unreachable::{TerminatingRow, UnreachableRow};
use diskvitals_cluster::node_storage::Health;
use diskvitals_terminal::layout::{counted, heading};
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::table::{Cell, Column, column, plain, strong, toned};
use diskvitals_terminal::verdict::Verdict;

pub(crate) const UNCLEAN_TITLE: &str = "nodes that are not clean of deleted pods";
/// Rows of one table, before "and N more".
const MAX_ROWS: usize = 12;

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct NodeCounts {
    pub good: usize,
    pub suspect: usize,
    pub bad: usize,
    pub unknown: usize,
    /// Their storage is good, and something of deleted pods is left there, or they are in quarantine.
    pub unclean: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SilentRow {
    pub node: String,
    pub report: Report,
}

/// Everything on the screen.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Overview {
    pub context: String,
    pub server: String,
    pub nodes: NodeCounts,
    pub drives_to_replace: Vec<DriveRow>,
    /// Drives that are not good and not to be replaced.
    pub other_drives: usize,
    pub claims: Vec<ClaimRow>,
    /// Volumes of nodes that are no claims: /, the runtime's filesystem.
    pub filesystems: Vec<ClaimRow>,
    /// Actions of the controller that have not ended.
    pub actions: Vec<ActionRow>,
    pub open_breakers: Vec<PolicyRow>,
    /// Actions or policies cannot be read.
    pub is_remediation_unknown: bool,
    pub silent: Vec<SilentRow>,
    pub former_reports: usize,
    /// Nodes in quarantine, and what is left on them.
    pub unclean: Vec<UncleanRow>,
    pub stale: Vec<StaleRow>,
    pub stale_count: u64,
    /// Drivers whose storage a node does not reach, or of which that is not known.
    pub unreachable: Vec<UnreachableRow>,
    /// Pods on such nodes that do not end.
    pub terminating: Vec<TerminatingRow>,
    /// Nodes cannot be listed: how many there are is not known.
    pub are_nodes_unknown: bool,
    pub gaps: Vec<Gap>,
}

impl Overview {
    pub(crate) fn count(nodes: &[NodeView<'_>]) -> NodeCounts {
        let mut counts = NodeCounts::default();
        for node in nodes.iter().filter(|node| {
            node.report.is_of_a_node() || matches!(node.report, Report::OtherNode { .. })
        }) {
            *match (node.health, clean(node)) {
                (Health::Good, Clean::Yes) => &mut counts.good,
                (Health::Good, Clean::No) => &mut counts.unclean,
                (Health::Suspect, _) => &mut counts.suspect,
                (Health::Bad, _) => &mut counts.bad,
                (Health::Unknown, _) | (Health::Good, Clean::Unknown) => &mut counts.unknown,
            } += 1;
        }
        counts
    }

    fn count_actions(&self, state: State) -> u64 {
        let actions = self.actions.iter().filter(|row| row.state == state);
        actions.count() as u64
    }

    fn waits_for_a_person(&self) -> bool {
        self.count_actions(State::Stuck) > 0
            || !self.open_breakers.is_empty()
            || self.unreached() > 0
            || self.unclean.iter().any(|row| row.clean == Clean::No)
    }

    fn in_quarantine(&self) -> u64 {
        let nodes = self.unclean.iter().filter(|row| row.is_in_quarantine);
        nodes.map(|row| &row.node).collect::<BTreeSet<_>>().len() as u64
    }

    fn second_writers(&self) -> u64 {
        self.unclean.iter().filter(|row| row.is_second_writer()).count() as u64
    }

    /// Pairs of a node and a driver that it does not reach.
    fn unreached(&self) -> u64 {
        self.unreachable.iter().filter(|row| !row.unknown).count() as u64
    }

    /// Critical before warning before unknown before good.
    pub(crate) fn verdict(&self) -> Verdict {
        match &self.nodes {
            NodeCounts { bad: 1.., .. } => Verdict::Critical,
            _ if self.second_writers() > 0 => Verdict::Critical,
            NodeCounts { suspect: 1.., .. } | NodeCounts { unclean: 1.., .. } => Verdict::Warning,
            _ if self.waits_for_a_person() => Verdict::Warning,
            NodeCounts { unknown: 1.., .. } | NodeCounts { good: 0, .. } => Verdict::Unknown,
            _ if self.are_nodes_unknown || self.is_remediation_unknown => Verdict::Unknown,
            _ if !self.silent.is_empty() || !self.unclean.is_empty() => Verdict::Unknown,
            _ => Verdict::Good,
        }
    }
}

pub(crate) fn screen(view: &Overview, wide: bool, screen: &Screen) -> String {
    let mut text = head(view, screen);
    section(&mut text, "drives to replace", &view.drives_to_replace, "drives", screen, |rows| {
        drives(rows, wide, screen)
    });
    if view.other_drives > 0 {
        text.push_str(&format!(
            "\n{} not good as well, or put aside: kubectl diskvitals drives\n",
            match view.other_drives {
                1 => "1 drive is".to_owned(),
                more => format!("{more} drives are"),
            }
        ));
    }
    section(&mut text, "claims affected", &view.claims, "claims -A", screen, |rows| {
        claims(rows, wide, screen)
    });
    section(&mut text, "actions", &view.actions, "actions -A", screen, |rows| {
        actions::actions(rows, wide, screen)
    });
    if !view.open_breakers.is_empty() {
        text.push_str(&format!("\n{}", heading("open breakers", screen)));
        text.push_str(&actions::policies(&view.open_breakers, screen));
    }
    section(
        &mut text,
        "storage that nodes do not reach",
        &view.unreachable,
        "-o json",
        screen,
        |rows| shown(&UNREACHABLE, rows, wide, screen),
    );
    section(
        &mut text,
        "pods that do not end there",
        &view.terminating,
        "-o json",
        screen,
        |rows| shown(&TERMINATING, rows, wide, screen),
    );
    section(&mut text, "filesystems of nodes", &view.filesystems, "claims -A", screen, |rows| {
        claims(rows, wide, screen)
    });
    section(&mut text, "nodes that do not report", &view.silent, "-o json", screen, |rows| {
        shown(&SILENT, rows, wide, screen)
    });
    section(&mut text, UNCLEAN_TITLE, &view.unclean, "stale", screen, |rows| {
        unclean(rows, wide, screen)
    });
    section(&mut text, "stale mounts", &view.stale, "stale", screen, |rows| {
        stale(rows, wide, screen)
    });
    if view.former_reports > 0 {
        text.push_str(&format!(
            "\n{} of deleted or replaced nodes: kubectl diskvitals drives\n",
            counted(view.former_reports as u64, "report")
        ));
    }
    text.push_str(&gaps(&view.gaps, screen));
    text
}

fn head(view: &Overview, screen: &Screen) -> String {
    let NodeCounts { good, suspect, bad, unknown, unclean } = view.nodes;
    let counts = [
        (bad, "bad"),
        (suspect, "suspect"),
        (unclean, "not clean"),
        (unknown, "unknown"),
        (good, "good"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let all = (good + suspect + bad + unknown + unclean) as u64;
    let at_least = if view.are_nodes_unknown { "at least " } else { "" };
    let (word, tone) = match view.verdict() {
        Verdict::Good => ("GOOD", Tone::Good),
        Verdict::Warning => ("WARNING", Tone::Warning),
        Verdict::Critical => ("CRITICAL", Tone::Critical),
        Verdict::Unknown => ("UNKNOWN", Tone::Warning),
    };
    let mut parts = vec![match counts.is_empty() {
        true => format!("{at_least}{}", counted(all, "node")),
        false => format!("{at_least}{}: {}", counted(all, "node"), counts.join(", ")),
    }];
    let some = [
        (view.second_writers(), "second writer", ""),
        (view.drives_to_replace.len() as u64, "drive", " to replace"),
        (view.claims.len() as u64, "claim", " affected"),
        (view.count_actions(State::Stuck), "action", " STUCK"),
        (view.count_actions(State::Waiting), "action", " waiting"),
        (view.count_actions(State::ByHand), "action", " to be done by hand"),
        (view.open_breakers.len() as u64, "breaker", " open"),
        (view.in_quarantine(), "node", " in quarantine"),
        (view.stale_count, "stale mount", ""),
        (view.unreached(), "driver", " not reached from a node"),
        (view.terminating.len() as u64, "pod", " that does not end"),
    ];
    let some = some.iter().filter(|(count, ..)| *count > 0);
    parts.extend(some.map(|(count, name, end)| format!("{}{end}", counted(*count, name))));
    format!(
        "{}  {}\n{}  {}\n",
        screen.paint(Tone::Strong, escape_control(&view.context)),
        escape_control(&view.server),
        screen.paint(tone, word),
        parts.join("; ")
    )
}

fn section<T>(
    text: &mut String,
    title: &str,
    rows: &[T],
    command: &str,
    screen: &Screen,
    table: impl Fn(&[T]) -> String,
) {
    if rows.is_empty() {
        return;
    }
    let (first, rest) = rows.split_at(rows.len().min(MAX_ROWS));
    text.push('\n');
    text.push_str(&heading(title, screen));
    text.push_str(&table(first));
    if !rest.is_empty() {
        text.push_str(&format!("and {} more: kubectl diskvitals {command}\n", rest.len()));
    }
}

const SILENT: [Column<SilentRow>; 3] = [
    column("NODE", 12, 0, |it, _| strong(&it.node)),
    column("SINCE", 0, 2, |it, screen| plain(ago(it.report.since(), screen))),
    column("WHY", 24, 1, |it, _| (it.report.why(), Tone::Warning)),
];

const UNREACHABLE: [Column<UnreachableRow>; 5] = [
    column("NODE", 12, 0, |it, _| strong(&it.node)),
    column("DRIVER", 16, 0, |it, _| plain(&it.driver)),
    column("VOLUMES", 0, 3, |it, _| plain(it.volumes)),
    column("SINCE", 0, 2, |it, screen| plain(ago(it.since, screen))),
    column("WHY", 24, 1, |it, _| why_unreachable(it)),
];

fn why_unreachable(row: &UnreachableRow) -> Cell {
    let (what, tone) = match row.unknown {
        true => (format!("not known ({})", row.reason), Tone::Warning),
        false => (row.reason.clone(), Tone::Critical),
    };
    (marked(&what, &row.report), tone)
}

const TERMINATING: [Column<TerminatingRow>; 4] = [
    column("NODE", 12, 0, |it, _| strong(&it.node)),
    column("NAMESPACE", 0, 1, |it, _| plain(&it.namespace)),
    column("POD", 16, 0, |it, _| toned((&it.pod, Tone::Warning))),
    column("SINCE", 0, 2, |it, screen| plain(ago(it.since, screen))),
];
