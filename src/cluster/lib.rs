//! The objects of diskvitals in the Kubernetes API (group `diskvitals.io`, version `v1alpha1`):
//! their names, fields and limits. The reporter writes `NodeStorage`; people write `StoragePolicy`;
//! `diskvitals-fleet` writes `StorageAction`, and people approve it. The kubectl plugin reads all.
//!
//! In: nothing. Out: plain data that serde reads and writes, and, with the feature `fleet`, the
//! custom resource definitions. No client, no I/O.
//!
//! A field that a newer version adds is ignored by an older reader. An enum value that a reader
//! does not know reads as the one that claims and does the least, never as good.

#![warn(unreachable_pub)]

#[cfg(feature = "fleet")]
pub mod current_report;
pub mod gate;
pub mod naming;
pub mod node_condition;
pub mod node_storage;
pub mod storage_action;
pub mod storage_policy;

#[cfg(feature = "fleet")]
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
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
        for version in &mut definition.spec.versions {
            let schema = version.schema.as_mut();
            if let Some(schema) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
                remove_unsigned_formats(schema);
            }
        }
        definition.metadata.annotations =
            Some([("helm.sh/resource-policy".to_owned(), "keep".to_owned())].into());
    }
    definitions
}

/// The API server knows no format of unsigned numbers, and warns of it at each apply. That a number
/// is not negative is its `minimum`.
#[cfg(feature = "fleet")]
fn remove_unsigned_formats(schema: &mut JSONSchemaProps) {
    let is_unsigned = |format: &String| format.starts_with("uint");
    schema.format = schema.format.take().filter(|format| !is_unsigned(format));
    for property in schema.properties.iter_mut().flat_map(|it| it.values_mut()) {
        remove_unsigned_formats(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        remove_unsigned_formats(items);
    }
}
