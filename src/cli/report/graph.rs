//! The part of the node's graph that the map draws: drive → layers → volume → pod.
//!
//! In: the chains of the explanations. Out: groups of connected nodes, those with findings first, each
//! node in a column and a row; what is not drawn is counted. Knows nothing of coordinates.

use std::collections::{BTreeMap, BTreeSet};

use crate::answers::Answers;
use crate::render::drives::rank;
use diskvitals_model::label;
use diskvitals_wire as wire;

/// Nodes of one column in one group that are drawn on their own.
const MAX_IN_COLUMN: usize = 16;
/// Rows of the whole map. Groups in good health are drawn only while these suffice.
const MAX_ROWS: usize = 140;
const MAX_ROWS_WITH_GOOD: usize = 24;
/// Layers of one stack that have a column of their own; more share the last one.
const MAX_LAYERS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    Drive,
    /// Number of layers below it.
    Layer(usize),
    Volume,
    Pod,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub column: Column,
    pub name: String,
    pub detail: String,
    pub health: i32,
    /// Its own health, or the worst below it: the color of what leads on from it.
    pub flow: i32,
    pub row: usize,
    /// Indices in the same group.
    pub below: Vec<usize>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Group {
    pub nodes: Vec<Node>,
    pub rows: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Graph {
    pub groups: Vec<Group>,
    pub columns: Vec<Column>,
    /// Drives and volumes that the map does not contain, and how many of these are not good.
    pub hidden_drives: (usize, usize),
    pub hidden_volumes: (usize, usize),
}

/// A node of the chains whose filesystems and mounts are left out.
struct Raw<'a> {
    node: &'a wire::ChainNode,
    below: BTreeSet<&'a str>,
}

pub(super) fn graph(answers: &Answers) -> Graph {
    let chain = answers.explanations.iter().flat_map(|it| &it.chain);
    let mut all: BTreeMap<&str, (&wire::ChainNode, BTreeSet<&str>)> = BTreeMap::new();
    for node in chain {
        let (_, below) = all.entry(&node.id).or_insert_with(|| (node, BTreeSet::new()));
        below.extend(node.stands_on.iter().map(String::as_str));
    }
    let raw: BTreeMap<&str, Raw> = all
        .iter()
        .filter(|(_, (node, _))| is_drawn(&node.kind))
        .map(|(id, (node, _))| {
            let below = drawn_below(id, &all);
            (*id, Raw { node, below })
        })
        .collect();
    let mut graph = Graph::default();
    let mut rows = 0;
    let mut drawn: BTreeSet<&str> = BTreeSet::new();
    let mut groups = connected(&raw);
    groups.sort_by_cached_key(|ids| {
        let health = ids.iter().filter_map(|id| raw.get(id)).map(|it| it.node);
        let worst = health.clone().map(|node| rank(node.health)).min();
        let name = health.map(|node| label::sort_key(&node.name)).next();
        (worst, name)
    });
    for ids in groups {
        let (group, shown) = lay_out(&ids, &raw, answers);
        let is_good = group.nodes.iter().all(|node| rank(node.health) == 3);
        let limit = if is_good { MAX_ROWS_WITH_GOOD } else { MAX_ROWS };
        if rows > 0 && rows + group.rows > limit {
            continue;
        }
        rows += group.rows;
        drawn.extend(shown);
        graph.groups.push(group);
    }
    let columns: BTreeSet<Column> =
        graph.groups.iter().flat_map(|group| group.nodes.iter().map(|node| node.column)).collect();
    graph.columns = columns.into_iter().collect();
    let hidden = |kind: &str, id: &str| !drawn.contains(format!("{kind}:{id}").as_str());
    let drives = answers.drives.iter().filter(|it| hidden("drive", &it.id));
    let volumes = answers.volumes.iter().filter(|it| hidden("volume", &it.id));
    graph.hidden_drives = counts(drives.map(|it| it.health));
    graph.hidden_volumes = counts(volumes.map(|it| it.health));
    graph
}

fn counts(health: impl Iterator<Item = i32> + Clone) -> (usize, usize) {
    let adverse = health.clone().filter(|health| rank(*health) != 3);
    (health.count(), adverse.count())
}

fn is_drawn(kind: &str) -> bool {
    !matches!(kind, "filesystem" | "mount")
}

/// The nodes directly below, with those that are not drawn replaced by what is below them.
fn drawn_below<'a>(
    id: &'a str,
    all: &BTreeMap<&'a str, (&'a wire::ChainNode, BTreeSet<&'a str>)>,
) -> BTreeSet<&'a str> {
    let mut below = BTreeSet::new();
    let mut visited = BTreeSet::from([id]);
    let direct = all.get(id).into_iter().flat_map(|(_, below)| below);
    let mut open: Vec<&str> = direct.copied().collect();
    while let Some(id) = open.pop() {
        if !visited.insert(id) {
            continue;
        }
        match all.get(id) {
            Some((node, _)) if is_drawn(&node.kind) => {
                below.insert(id);
            }
            Some((_, next)) => open.extend(next),
            // Named, but not in the answers.
            None => {}
        }
    }
    below
}

/// Connected nodes, each group sorted by name.
fn connected<'a>(raw: &BTreeMap<&'a str, Raw<'a>>) -> Vec<Vec<&'a str>> {
    let mut beside: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, node) in raw {
        for other in &node.below {
            beside.entry(id).or_default().push(other);
            beside.entry(other).or_default().push(id);
        }
    }
    let mut visited: BTreeSet<&str> = BTreeSet::new();
    let mut groups = Vec::new();
    for id in raw.keys() {
        let mut group = Vec::new();
        let mut open = vec![*id];
        while let Some(id) = open.pop() {
            if visited.insert(id) {
                group.push(id);
                open.extend(beside.get(id).into_iter().flatten());
            }
        }
        if !group.is_empty() {
            group.sort_by_cached_key(|id| raw.get(id).map(|it| label::sort_key(&it.node.name)));
            groups.push(group);
        }
    }
    groups
}

/// Columns and rows of one group; in a full column the nodes in good health become one. The second
/// result: the ids of the nodes that are drawn on their own.
fn lay_out<'a>(
    ids: &[&'a str],
    raw: &BTreeMap<&'a str, Raw<'a>>,
    answers: &Answers,
) -> (Group, Vec<&'a str>) {
    let mut depths = BTreeMap::new();
    let mut columns: BTreeMap<Column, Vec<&str>> = BTreeMap::new();
    for id in ids {
        let Some(it) = raw.get(id) else { continue };
        let column = match it.node.kind.as_str() {
            "drive" => Column::Drive,
            "volume" => Column::Volume,
            "pod" => Column::Pod,
            _ => Column::Layer(depth(id, raw, &mut depths).clamp(1, MAX_LAYERS)),
        };
        columns.entry(column).or_default().push(id);
    }
    let mut group = Group::default();
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    let mut shown = Vec::new();
    for (column, mut ids) in columns {
        // Near what they stand on, by the rows of the columns before.
        let rows_below = |id: &str| -> Vec<usize> {
            let below = raw.get(id).into_iter().flat_map(|it| &it.below);
            below.filter_map(|id| Some(group.nodes.get(*index.get(id)?)?.row)).collect()
        };
        ids.sort_by_cached_key(|id| {
            let rows = rows_below(id);
            rows.iter().sum::<usize>() * 100 / rows.len().max(1)
        });
        let (alone, folded) = fold(ids, raw);
        // Not above what they stand on: a straight line crosses no other node.
        let least: Vec<usize> =
            alone.iter().map(|id| rows_below(id).into_iter().min().unwrap_or(0)).collect();
        let mut next = 0;
        for (id, least) in alone.into_iter().zip(least) {
            let row = next.max(least);
            next = row + 1;
            index.insert(id, group.nodes.len());
            shown.push(id);
            group
                .nodes
                .extend(raw.get(id).map(|it| Node { row, ..node(it.node, column, answers) }));
        }
        if !folded.is_empty() {
            let at = group.nodes.len();
            let adverse = folded.iter().filter_map(|id| raw.get(id));
            let adverse = adverse.filter(|it| rank(it.node.health) != 3);
            let adverse: Vec<i32> = adverse.map(|it| it.node.health).collect();
            group.nodes.push(Node {
                column,
                name: format!("{} more", folded.len()),
                detail: match adverse.len() {
                    0 => "without findings".to_owned(),
                    count => format!("{count} of them not in good health"),
                },
                health: adverse.into_iter().min_by_key(|it| rank(*it)).unwrap_or(0),
                flow: 0,
                row: next,
                below: Vec::new(),
            });
            index.extend(folded.into_iter().map(|id| (id, at)));
        }
    }
    for (id, at) in &index {
        let below = raw.get(id).into_iter().flat_map(|it| &it.below);
        let below: Vec<usize> = below.filter_map(|id| index.get(id).copied()).collect();
        if let Some(node) = group.nodes.get_mut(*at) {
            node.below.extend(below.into_iter().filter(|other| other != at));
            node.below.sort_unstable();
            node.below.dedup();
        }
    }
    // From below upwards; layers of one column may stand on each other.
    for _ in 0..=MAX_LAYERS {
        for at in 0..group.nodes.len() {
            let node = &group.nodes[at];
            let below = node.below.iter().filter_map(|at| group.nodes.get(*at));
            let worst = below.map(|it| it.flow).min_by_key(|flow| rank(*flow));
            group.nodes[at].flow = match node.health {
                0 => worst.unwrap_or(0),
                health => health,
            };
        }
    }
    group.rows = group.nodes.iter().map(|it| it.row + 1).max().unwrap_or(0);
    (group, shown)
}

/// Those that are drawn on their own, and the others.
fn fold<'a>(ids: Vec<&'a str>, raw: &BTreeMap<&'a str, Raw<'a>>) -> (Vec<&'a str>, Vec<&'a str>) {
    if ids.len() <= MAX_IN_COLUMN {
        return (ids, Vec::new());
    }
    let health = |id: &&str| raw.get(*id).map_or(3, |it| rank(it.node.health));
    let mut worst = ids.clone();
    worst.sort_by_key(health);
    let kept: BTreeSet<&str> = worst.into_iter().take(MAX_IN_COLUMN - 1).collect();
    ids.into_iter().partition(|id| kept.contains(id))
}

/// Number of layers between the node and a drive. A cycle in the answers ends at its second visit.
fn depth<'a>(
    id: &'a str,
    raw: &BTreeMap<&'a str, Raw<'a>>,
    known: &mut BTreeMap<&'a str, usize>,
) -> usize {
    if let Some(depth) = known.get(id) {
        return *depth;
    }
    known.insert(id, 0);
    let below = raw.get(id).into_iter().flat_map(|it| &it.below);
    let depth = below.map(|id| depth(id, raw, known) + 1).max().unwrap_or(0);
    known.insert(id, depth);
    depth
}

fn node(node: &wire::ChainNode, column: Column, answers: &Answers) -> Node {
    let volume = node.id.strip_prefix("volume:");
    let volume = volume.and_then(|id| answers.volumes.iter().find(|it| it.id == id));
    // A pod has a column of its own.
    let name = match volume {
        Some(volume) if !volume.pods.is_empty() => {
            let mounts = volume.mounts.iter().chain(&volume.missing_mounts);
            let path = mounts.map(|it| it.path.as_str()).min_by_key(|it| it.len());
            let names = [volume.pv.as_str(), &volume.handle, path.unwrap_or_default()];
            let known = names.into_iter().find(|name| !name.is_empty());
            known.unwrap_or(&node.name).to_owned()
        }
        _ => node.name.clone(),
    };
    let detail = match (column, volume) {
        (Column::Drive, _) => drive_detail(node, answers),
        (Column::Layer(_), _) if node.detail.starts_with(&node.kind) => node.detail.clone(),
        (Column::Layer(_), _) => format!("{} {}", node.kind, node.detail),
        (_, Some(volume)) => volume_detail(volume),
        _ => node.detail.clone(),
    };
    Node { column, name, detail, health: node.health, flow: 0, row: 0, below: Vec::new() }
}

fn drive_detail(node: &wire::ChainNode, answers: &Answers) -> String {
    let id = node.id.strip_prefix("drive:").unwrap_or_default();
    let drive = answers.drives.iter().find(|drive| drive.id == id);
    drive.map_or_else(|| node.detail.clone(), |it| it.model.trim().to_owned())
}

fn volume_detail(volume: &wire::Volume) -> String {
    let kind = volume.filesystem.as_ref().map(|it| it.r#type.clone());
    let used = volume.usage.as_ref();
    let used = used.and_then(crate::words::used_share);
    let used = used.map(|share| format!("{share} used"));
    let parts: Vec<String> = kind.into_iter().filter(|kind| !kind.is_empty()).chain(used).collect();
    parts.join(", ")
}
