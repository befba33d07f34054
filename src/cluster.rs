//! The objects of diskvitals in the Kubernetes API (group `diskvitals.io`, version `v1alpha1`):
//! their names, fields and limits. The reporter writes `NodeStorage`; people write `StoragePolicy`;
//! `diskvitals-fleet` writes `StorageAction`, and people approve it. The kubectl plugin reads all.
//!
//! In: nothing. Out: plain data that serde reads and writes, and, with the feature `fleet`, the
//! custom resource definitions. No client, no I/O.
//!
//! A field that a newer version adds is ignored by an older reader. An enum value that a reader
//! does not know reads as the one that claims and does the least, never as good.

pub mod gate;
pub mod node_storage;
pub mod storage_action;
pub mod storage_policy;

#[cfg(feature = "fleet")]
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
#[cfg(feature = "fleet")]
use kube::CustomResourceExt;

/// API group of all kinds.
pub const GROUP: &str = "diskvitals.io";
/// Version of the group.
pub const VERSION: &str = "v1alpha1";

/// The custom resource definitions, as the chart installs them: Helm keeps them, and with them all
/// objects, when the chart is removed.
#[cfg(feature = "fleet")]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut definitions = vec![
        node_storage::NodeStorage::crd(),
        storage_action::StorageAction::crd(),
        storage_policy::StoragePolicy::crd(),
    ];
    for definition in &mut definitions {
        definition.metadata.annotations =
            Some([("helm.sh/resource-policy".to_owned(), "keep".to_owned())].into());
    }
    definitions
}
