//! Calls about the node's own `NodeStorage` object, as JSON: the reporter needs neither the types of
//! custom resources nor a watch.
//!
//! In: a merge patch of the status. Out: the object's status as the API server has stored it.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{GROUP, VERSION};
use crate::csi::report::api::{
    ApiError, ApiServer, CallError, FIELD_MANAGER, already_exists, classify_error,
};

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

    /// Creates the object without a status; one that exists already counts as created.
    pub(crate) async fn create_storage(&self) -> Result<(), ApiError> {
        let mut object = DynamicObject::new(&self.node, &resource());
        object.data = json!({"spec": {}});
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.into()),
            ..PostParams::default()
        };
        let storages = self.node_storages();
        match self
            .with_timeout(storages.create(&parameters, &object))
            .await
        {
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
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({"status": status}));
        let storages = self.node_storages();
        let patched = self.with_timeout(storages.patch_status(&self.node, &parameters, &patch));
        patched.await.map(status_of).map_err(classify_error)
    }

    fn node_storages(&self) -> kube::Api<DynamicObject> {
        kube::Api::all_with(self.client.clone(), &resource())
    }
}

fn status_of(mut object: DynamicObject) -> Value {
    object
        .data
        .get_mut("status")
        .map(Value::take)
        .unwrap_or_default()
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
