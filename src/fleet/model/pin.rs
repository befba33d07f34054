//! The one node that a volume is tied to by its node affinity.
//!
//! In: requirements with one value each. Out: the name of a node. A zone is no node: a requirement
//! counts only if its value is the name or the host name of a node.

use crate::model::View;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// One requirement `key In [value]` of a node affinity with one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// Field `metadata.name`.
    Name(String),
    Label {
        key: String,
        value: String,
    },
}

impl Pin {
    /// Whether it ties a volume to one node: by its form, even to a node that does not exist, or because
    /// a node has the name.
    pub(crate) fn ties(&self, view: &View) -> bool {
        let is_of_node = match self {
            Pin::Name(_) => true,
            Pin::Label { key, .. } => key == HOSTNAME,
        };
        is_of_node || self.node(view).is_some()
    }

    /// Of a deleted node: the name under which its report is still there.
    pub(crate) fn node<'v>(&self, view: &'v View) -> Option<&'v str> {
        let by_name = |name: &str| {
            view.nodes
                .get_key_value(name)
                .map(|(name, _)| name.as_str())
                .or_else(|| view.reports.get_key_value(name).map(|(name, _)| name.as_str()))
        };
        match self {
            Pin::Name(name) => by_name(name),
            Pin::Label { key, value } if key == HOSTNAME => match by_hostname(view, value) {
                Lookup::One(name) => Some(name),
                Lookup::Many => None,
                // A node of this name with another host name is another node.
                Lookup::None if view.nodes.contains_key(value) => None,
                Lookup::None => by_name(value),
            },
            Pin::Label { value, .. } if view.nodes.contains_key(value) => by_name(value),
            Pin::Label { value, .. } => match by_hostname(view, value) {
                Lookup::One(name) => Some(name),
                Lookup::Many => None,
                Lookup::None => by_name(value),
            },
        }
    }
}

enum Lookup<'v> {
    None,
    One(&'v str),
    Many,
}

fn by_hostname<'v>(view: &'v View, hostname: &str) -> Lookup<'v> {
    match view.hostnames.get(hostname).map(|names| (names.first(), names.len())) {
        Some((Some(name), 1)) => Lookup::One(name),
        Some((Some(_), _)) => Lookup::Many,
        _ => Lookup::None,
    }
}
