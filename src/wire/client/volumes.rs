//! Client calls of the Volumes service: volumes that the node provides itself. Served on the
//! agent's socket only.

use crate::client::{Client, ClientError, PAGE_SIZE};

impl Client {
    pub async fn pool(&self) -> Result<crate::Pool, ClientError> {
        let request = crate::GetPoolRequest {};
        self.call(self.volumes_client().get_pool(request)).await
    }

    pub async fn create(
        &self,
        request: crate::CreateRequest,
    ) -> Result<crate::ProvidedVolume, ClientError> {
        self.call(self.volumes_client().create(request)).await
    }

    pub async fn delete(&self, handle: &str) -> Result<(), ClientError> {
        let handle = handle.to_owned();
        let request = crate::DeleteRequest { handle };
        self.call_unit(self.volumes_client().delete(request)).await
    }

    pub async fn provisioned_volume(
        &self,
        handle: &str,
    ) -> Result<crate::ProvidedVolume, ClientError> {
        let handle = handle.to_owned();
        let request = crate::GetProvidedRequest { handle };
        self.call(self.volumes_client().get_provided(request)).await
    }

    /// The node's own volumes, sorted by handle.
    pub async fn provisioned_volumes(&self) -> Result<Vec<crate::ProvidedVolume>, ClientError> {
        let list: crate::ListProvidedResponse = self
            .all_pages(|page_token| async move {
                let request = crate::ListProvidedRequest { page_size: PAGE_SIZE, page_token };
                self.volumes_client().list_provided(request).await
            })
            .await?;
        Ok(list.volumes)
    }

    pub async fn expand(
        &self,
        request: crate::ExpandRequest,
    ) -> Result<crate::ExpandResponse, ClientError> {
        self.call(self.volumes_client().expand(request)).await
    }

    pub async fn stage(&self, request: crate::StageRequest) -> Result<(), ClientError> {
        self.call_unit(self.volumes_client().stage(request)).await
    }

    pub async fn unstage(&self, handle: &str, staging_path: &str) -> Result<(), ClientError> {
        let request = crate::UnstageRequest {
            handle: handle.to_owned(),
            staging_path: staging_path.to_owned(),
        };
        self.call_unit(self.volumes_client().unstage(request)).await
    }

    pub async fn publish(&self, request: crate::PublishRequest) -> Result<(), ClientError> {
        self.call_unit(self.volumes_client().publish(request)).await
    }

    pub async fn unpublish(&self, handle: &str, target_path: &str) -> Result<(), ClientError> {
        let request = crate::UnpublishRequest {
            handle: handle.to_owned(),
            target_path: target_path.to_owned(),
        };
        self.call_unit(self.volumes_client().unpublish(request)).await
    }
}
