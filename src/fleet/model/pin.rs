//! The one node that a volume is tied to by its node affinity.
//!
//! In: requirements with one value each. Out: the name of a node. A zone is no node: a requirement
//! counts only if its value is the name or the host name of a node.

use std::collections::HashMap;

use crate::model::{View, Volume};
use diskvitals_cluster::node_storage::VolumeEntry;

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

/// The claims that a node's report is about: those of volumes that are not tied to another node, in
/// use or not.
pub(crate) struct ClaimsOfNodes<'v> {
    view: &'v View,
    /// Nodes may have volumes with one handle, each with a PersistentVolume of its own.
    by_handle: HashMap<(&'v str, &'v str), Vec<&'v Volume>>,
}

impl<'v> ClaimsOfNodes<'v> {
    pub(crate) fn new(view: &'v View) -> ClaimsOfNodes<'v> {
        let mut by_handle: HashMap<(&str, &str), Vec<&Volume>> = HashMap::new();
        for volume in view.volumes.values() {
            if let Some((driver, handle)) = &volume.csi {
                by_handle.entry((driver, handle)).or_default().push(volume);
            }
        }
        ClaimsOfNodes { view, by_handle }
    }

    /// Whether the entry is of such a claim, or of a filesystem of the node itself.
    pub(crate) fn contain(&self, node: &str, entry: &VolumeEntry) -> bool {
        if entry.driver.is_empty() && entry.persistent_volume.is_empty() {
            return true;
        }
        let named = self.view.volumes.get(&entry.persistent_volume);
        let by_handle = self.by_handle.get(&(entry.driver.as_str(), entry.handle.as_str()));
        let mut volumes = named.into_iter().chain(by_handle.into_iter().flatten().copied());
        volumes.any(|volume| volume.claim.is_some() && !self.is_elsewhere(node, volume))
    }

    fn is_elsewhere(&self, node: &str, volume: &Volume) -> bool {
        match volume.pins.iter().find_map(|pin| pin.node(self.view)) {
            Some(pinned) => pinned != node,
            None => volume.pins.iter().any(|pin| pin.ties(self.view)),
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
