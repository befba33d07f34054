//! Topology of this node's volumes: one label, whose key is a setting and whose value is derived
//! from the node id.
//!
//! In: node id and key. Out: the label, and whether a caller's topology includes this node. No I/O.
//!
//! PersistentVolumes store the value for their whole life. A volume keeps it in its context
//! ([`CONTEXT_KEY`]). A node with another value refuses to stage the volume, because the cluster
//! expects its data on a node with the old value.

use std::collections::HashMap;

use tonic::Status;

use crate::wire;
use diskvitals_text::hash::fnv1a_128;

/// The key in a volume's context for the value at its creation.
pub(crate) const CONTEXT_KEY: &str = "diskvitals.io/topology";
/// Longest value of a label, in bytes (Kubernetes, Labels and Selectors).
const MAX_VALUE_LEN: usize = 63;
/// Length in bytes of the hash at a value's end, in hex.
const HASH_LEN: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    pub key: String,
    pub value: String,
}

impl Topology {
    pub(crate) fn of_node(key: &str, node_id: &str) -> Topology {
        Topology { key: key.to_owned(), value: label_value(node_id) }
    }

    pub(crate) fn to_wire(&self) -> wire::Topology {
        wire::Topology { segments: HashMap::from([(self.key.clone(), self.value.clone())]) }
    }

    /// The context of a new volume, which each later call contains.
    pub(crate) fn volume_context(&self) -> HashMap<String, String> {
        HashMap::from([(CONTEXT_KEY.to_owned(), self.value.clone())])
    }

    /// Whether `topology` includes this node. A topology without segments includes every node; one
    /// with another key does not include this node.
    pub(crate) fn is_within(&self, topology: &wire::Topology) -> bool {
        topology.segments.iter().all(|(key, value)| *key == self.key && *value == self.value)
    }

    /// RESOURCE_EXHAUSTED if the volume is required on another node (CSI, CreateVolume: unable to
    /// provision in accessible_topology). A preference for another node is not an error.
    pub(crate) fn require_accessible(
        &self,
        requirement: Option<&wire::TopologyRequirement>,
    ) -> Result<(), Status> {
        let Some(requirement) = requirement.filter(|requirement| !requirement.requisite.is_empty())
        else {
            return Ok(());
        };
        if requirement.requisite.iter().any(|topology| self.is_within(topology)) {
            return Ok(());
        }
        let Topology { key, value } = self;
        Err(Status::resource_exhausted(format!(
            "accessibility_requirements.requisite: excludes this node, which is {key}={value}"
        )))
    }

    /// FAILED_PRECONDITION if the volume was created with another topology value.
    pub(crate) fn require_created_here(
        &self,
        volume_context: &HashMap<String, String>,
    ) -> Result<(), Status> {
        match volume_context.get(CONTEXT_KEY) {
            Some(value) if *value != self.value => Err(Status::failed_precondition(format!(
                "volume_context: the volume was made on a node whose topology value was `{}`, this one's is `{}`: give diskvitals-csi its former --node-id",
                value.escape_debug(),
                self.value
            ))),
            _ => Ok(()),
        }
    }
}

/// The id itself if it is a valid label value; otherwise a readable prefix and a hash. Volumes and
/// the node's label keep the value, so it stays FNV-1a. Nobody gains from a collision: a
/// kubelet may give its own node any value of this label.
fn label_value(node_id: &str) -> String {
    let inside = node_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = node_id.as_bytes();
    if inside && ends(bytes.first()) && ends(bytes.last()) && bytes.len() <= MAX_VALUE_LEN {
        return node_id.to_owned();
    }
    let fitting = node_id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let begun: String =
        fitting.skip_while(|c| *c == '-').take(MAX_VALUE_LEN - HASH_LEN - 1).collect();
    let begun = if begun.is_empty() { "node" } else { &begun };
    format!("{begun}-{:032x}", fnv1a_128(node_id.bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    fn place(segments: &[(&str, &str)]) -> wire::Topology {
        wire::Topology {
            segments: segments
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn ours() -> Topology {
        Topology::of_node("topology.diskvitals.io/node", "worker-1.example")
    }

    proptest! {
        #[test]
        fn the_value_is_always_the_value_of_a_label(id in "\\PC{1,300}") {
            let value = label_value(&id);
            prop_assert!(value.len() <= MAX_VALUE_LEN);
            prop_assert!(value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{}", value);
            let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            prop_assert!(ends(value.as_bytes().first()) && ends(value.as_bytes().last()), "{}", value);
        }

        #[test]
        fn nodes_with_long_names_that_begin_alike_stay_apart(begun in "[a-z]{63}", one in "[a-z]{1,9}", other in "[a-z]{1,9}") {
            prop_assume!(one != other);
            prop_assert_ne!(label_value(&format!("{begun}{one}")), label_value(&format!("{begun}{other}")));
        }
    }

    #[test]
    fn a_value_once_given_never_changes() {
        assert_eq!(label_value("worker-1.example"), "worker-1.example");
        assert_eq!(label_value(&"a".repeat(63)), "a".repeat(63));
        assert_eq!(label_value("-"), "node-d228cb69231a8caf78912b704e4a2be0");
    }

    #[test]
    fn a_requirement_is_met_when_one_requisite_topology_includes_this_node() {
        let need = |requisite: Vec<wire::Topology>, preferred| wire::TopologyRequirement {
            requisite,
            preferred,
        };
        let here = place(&[("topology.diskvitals.io/node", "worker-1.example")]);
        let there = place(&[("topology.diskvitals.io/node", "worker-2")]);
        let elsewhere = place(&[
            ("topology.kubernetes.io/zone", "a"),
            ("topology.diskvitals.io/node", "worker-1.example"),
        ]);
        assert!(ours().require_accessible(None).is_ok());
        assert!(ours().require_accessible(Some(&need(vec![], vec![there.clone()]))).is_ok());
        assert!(ours().require_accessible(Some(&need(vec![there.clone(), here], vec![]))).is_ok());
        let status = ours()
            .require_accessible(Some(&need(vec![there, elsewhere], vec![])))
            .expect_err("elsewhere");
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().starts_with("accessibility_requirements.requisite: "));
    }

    #[test]
    fn a_volume_created_under_another_topology_value_is_not_staged() {
        assert!(ours().require_created_here(&ours().volume_context()).is_ok());
        assert!(ours().require_created_here(&HashMap::new()).is_ok());
        let status = ours()
            .require_created_here(&HashMap::from([(CONTEXT_KEY.into(), "worker-2".into())]))
            .expect_err("another's");
        assert_eq!(status.code(), Code::FailedPrecondition);
    }
}
