//! Actions and policies of the controller, as the plugin reads them. Each object is read for itself,
//! so that one that this version cannot read does not hide the others.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use diskvitals_cluster::storage_action::{NOTE_ANNOTATION, StorageActionSpec, StorageActionStatus};
use diskvitals_cluster::storage_policy::{StoragePolicySpec, StoragePolicyStatus};

/// What every object has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    /// Empty: the object belongs to the cluster.
    pub namespace: String,
    pub name: String,
    pub resource_version: String,
    /// Of the spec.
    pub generation: Option<i64>,
    pub created: Option<Timestamp>,
    /// Value of the annotation; empty: none.
    pub note: String,
}

impl Meta {
    fn of(object: &Value) -> Meta {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Meta {
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            resource_version: text(&metadata["resourceVersion"]),
            generation: metadata["generation"].as_i64(),
            created: metadata["creationTimestamp"].as_str().and_then(|time| time.parse().ok()),
            note: text(&metadata["annotations"][NOTE_ANNOTATION]),
        }
    }
}

/// Spec and status, or why this version cannot read them.
type Content<Spec, Status> = Result<(Spec, Status), String>;

fn content<Spec, Status>(object: &mut Value) -> Content<Spec, Status>
where
    Spec: DeserializeOwned,
    Status: DeserializeOwned + Default,
{
    let spec = serde_json::from_value(object["spec"].take());
    let spec = spec.map_err(|error| format!("spec: {error}"))?;
    let status: Option<Status> = serde_json::from_value(object["status"].take())
        .map_err(|error| format!("status: {error}"))?;
    Ok((spec, status.unwrap_or_default()))
}

#[derive(Clone, Debug)]
pub(crate) struct ActionRecord {
    pub meta: Meta,
    /// The words of the object: one of a newer version reads as another value in the spec.
    pub kind: String,
    pub approval: String,
    pub content: Content<StorageActionSpec, StorageActionStatus>,
}

impl From<Value> for ActionRecord {
    fn from(mut object: Value) -> ActionRecord {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        ActionRecord {
            meta: Meta::of(&object),
            kind: word(&object["spec"]["type"]),
            approval: word(&object["spec"]["approval"]),
            content: content(&mut object),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PolicyRecord {
    pub meta: Meta,
    pub mode: String,
    pub content: Content<StoragePolicySpec, StoragePolicyStatus>,
}

impl From<Value> for PolicyRecord {
    fn from(mut object: Value) -> PolicyRecord {
        PolicyRecord {
            meta: Meta::of(&object),
            mode: object["spec"]["mode"].as_str().unwrap_or("Observe").to_owned(),
            content: content(&mut object),
        }
    }
}
