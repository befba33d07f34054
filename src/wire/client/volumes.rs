//! Client calls of the Volumes service: volumes that the node provides itself. Served on the
//! agent's socket only.

use crate::wire;
use crate::wire::client::{Client, ClientError, PAGE_SIZE};

impl Client {
    pub(crate) async fn pool(&self) -> Result<wire::Pool, ClientError> {
        let request = wire::GetPoolRequest {};
        self.call(self.volumes_client().get_pool(request)).await
    }

    pub(crate) async fn create(
        &self,
        request: wire::CreateRequest,
    ) -> Result<wire::ProvidedVolume, ClientError> {
        self.call(self.volumes_client().create(request)).await
    }

    pub(crate) async fn delete(&self, handle: &str) -> Result<(), ClientError> {
        let handle = handle.to_owned();
        let request = wire::DeleteRequest { handle };
        self.call_unit(self.volumes_client().delete(request)).await
    }

    pub(crate) async fn provisioned_volume(
        &self,
        handle: &str,
    ) -> Result<wire::ProvidedVolume, ClientError> {
        let handle = handle.to_owned();
        let request = wire::GetProvidedRequest { handle };
        self.call(self.volumes_client().get_provided(request)).await
    }

    /// The node's own volumes, sorted by handle.
    pub(crate) async fn provisioned_volumes(
        &self,
    ) -> Result<Vec<wire::ProvidedVolume>, ClientError> {
        let list: wire::ListProvidedResponse = self
            .all_pages(|page_token| async move {
                let request = wire::ListProvidedRequest { page_size: PAGE_SIZE, page_token };
                self.volumes_client().list_provided(request).await
            })
            .await?;
        Ok(list.volumes)
    }

    pub(crate) async fn expand(
        &self,
        request: wire::ExpandRequest,
    ) -> Result<wire::ExpandResponse, ClientError> {
        self.call(self.volumes_client().expand(request)).await
    }

    pub(crate) async fn stage(&self, request: wire::StageRequest) -> Result<(), ClientError> {
        self.call_unit(self.volumes_client().stage(request)).await
    }

    pub(crate) async fn unstage(
        &self,
        handle: &str,
        staging_path: &str,
    ) -> Result<(), ClientError> {
        let request = wire::UnstageRequest {
            handle: handle.to_owned(),
            staging_path: staging_path.to_owned(),
        };
        self.call_unit(self.volumes_client().unstage(request)).await
    }

    pub(crate) async fn publish(&self, request: wire::PublishRequest) -> Result<(), ClientError> {
        self.call_unit(self.volumes_client().publish(request)).await
    }

    pub(crate) async fn unpublish(
        &self,
        handle: &str,
        target_path: &str,
    ) -> Result<(), ClientError> {
        let request = wire::UnpublishRequest {
            handle: handle.to_owned(),
            target_path: target_path.to_owned(),
        };
        self.call_unit(self.volumes_client().unpublish(request)).await
    }
}
