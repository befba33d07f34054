//! Calls about the node's own `NodeStorage` object, as JSON: the reporter does not need the types of
//! custom resources.
//!
//! In: a merge patch of the status. Out: the object's status as the API server has stored it, and the
//! object's changes for those who answer challenges.

use std::pin::Pin;

use kube::api::{
    ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use serde_json::{Value, json};
use tokio_stream::{Stream, StreamExt};

use crate::report::api::{ApiServer, FIELD_MANAGER};
use diskvitals_cluster::{GROUP, VERSION};
use diskvitals_kubernetes::api_error::{ApiError, CallError, already_exists, classify_error};

const KIND: &str = "NodeStorage";
const PLURAL: &str = "nodestorages";

impl ApiServer {
    /// The status of the node's object; None: there is no object. An object without a status has
    /// null.
    pub(crate) async fn storage_status(&self) -> Result<Option<Value>, ApiError> {
        let object = self
            .with_timeout(self.node_storages().get_opt(&self.node))
            .await
            .map_err(classify_error)?;
        Ok(object.map(status_of))
    }

    /// The node's object as a list that a watch can follow, and the version of the list.
    pub(crate) async fn list_storage(&self) -> Result<(Option<Value>, String), ApiError> {
        // What the API server has in its cache is enough: the watch brings what is newer.
        let parameters = ListParams::default().fields(&self.own_name()).match_any();
        let listed = self
            .with_timeout(self.node_storages().list(&parameters))
            .await
            .map_err(classify_error)?;
        let version = listed.metadata.resource_version.unwrap_or_default();
        let object = listed.items.into_iter().next();
        Ok((object.map(|object| object.data), version))
    }

    /// Changes of the node's object after `version`. The API server ends the watch after some
    /// minutes.
    pub(crate) async fn watch_storage(&self, version: &str) -> Result<StorageChanges, ApiError> {
        let parameters = WatchParams::default().fields(&self.own_name());
        let storages = self.node_storages();
        let stream = self
            .with_timeout(storages.watch(&parameters, version))
            .await
            .map_err(classify_error)?;
        Ok(StorageChanges(Box::pin(stream)))
    }

    fn own_name(&self) -> String {
        format!("metadata.name={}", self.node)
    }

    /// Creates the object without a status; one that exists already counts as created.
    pub(crate) async fn create_storage(&self) -> Result<(), ApiError> {
        let mut object = DynamicObject::new(&self.node, &resource());
        object.data = json!({"spec": {}});
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let storages = self.node_storages();
        match self.with_timeout(storages.create(&parameters, &object)).await {
            Ok(_) => Ok(()),
            Err(error) if already_exists(&error) => Ok(()),
            Err(error) if is_not_found(&error) => Err(ApiError::Retryable {
                why: format!(
                    "the cluster has no {PLURAL}.{GROUP}: install its CustomResourceDefinition (the chart does with report.storage=true)"
                ),
                after: None,
            }),
            Err(error) => Err(classify_error(error)),
        }
    }

    /// Returns the status as it is stored.
    pub(crate) async fn patch_storage_status(&self, status: &Value) -> Result<Value, ApiError> {
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"status": status}));
        let storages = self.node_storages();
        let patched = self.with_timeout(storages.patch_status(&self.node, &parameters, &patch));
        patched.await.map(status_of).map_err(classify_error)
    }

    fn node_storages(&self) -> kube::Api<DynamicObject> {
        kube::Api::all_with(self.client.clone(), &resource())
    }
}

/// A change of the node's object.
pub enum StorageChange {
    /// Its fields, and its version.
    Set {
        data: Value,
        version: Option<String>,
    },
    Deleted,
    /// Nothing has changed up to this version.
    Unchanged {
        version: String,
    },
}

pub(crate) struct StorageChanges(
    Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + Send>>,
);

impl StorageChanges {
    /// None: the API server has ended the watch.
    pub(crate) async fn next(&mut self) -> Option<Result<StorageChange, ApiError>> {
        let event = match self.0.next().await? {
            Ok(event) => event,
            Err(error) => return Some(Err(classify_error(CallError::Kube(error)))),
        };
        Some(match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Ok(StorageChange::Set {
                data: object.data,
                version: object.metadata.resource_version,
            }),
            WatchEvent::Deleted(_) => Ok(StorageChange::Deleted),
            WatchEvent::Bookmark(bookmark) => {
                Ok(StorageChange::Unchanged { version: bookmark.metadata.resource_version })
            }
            WatchEvent::Error(status) => {
                Err(classify_error(CallError::Kube(kube::Error::Api(status))))
            }
        })
    }
}

fn status_of(mut object: DynamicObject) -> Value {
    object.data.get_mut("status").map(Value::take).unwrap_or_default()
}

fn resource() -> ApiResource {
    ApiResource {
        group: GROUP.into(),
        version: VERSION.into(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: KIND.into(),
        plural: PLURAL.into(),
    }
}

fn is_not_found(error: &CallError) -> bool {
    matches!(error, CallError::Kube(kube::Error::Api(status)) if status.code == 404)
}
