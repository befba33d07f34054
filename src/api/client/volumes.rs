//! Client calls of the Volumes service: volumes that the node provides itself. Served on the
//! agent's socket only.

use tonic::transport::Channel;

use crate::api::client::{Client, ClientError, MAX_MESSAGE_BYTES, PAGE_SIZE};
use crate::api::wire;
use crate::api::wire::volumes_client::VolumesClient;

impl Client {
    fn volumes_client(&self) -> VolumesClient<Channel> {
        VolumesClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    pub(crate) async fn pool(&self) -> Result<wire::Pool, ClientError> {
        self.call(self.volumes_client().get_pool(wire::GetPoolRequest {}))
            .await
    }

    pub(crate) async fn create(
        &self,
        request: wire::CreateRequest,
    ) -> Result<wire::ProvidedVolume, ClientError> {
        self.call(self.volumes_client().create(request)).await
    }

    pub(crate) async fn delete(&self, handle: &str) -> Result<(), ClientError> {
        self.call(self.volumes_client().delete(wire::DeleteRequest {
            handle: handle.to_owned(),
        }))
        .await
        .map(|_| ())
    }

    pub(crate) async fn provisioned_volume(
        &self,
        handle: &str,
    ) -> Result<wire::ProvidedVolume, ClientError> {
        self.call(
            self.volumes_client()
                .get_provided(wire::GetProvidedRequest {
                    handle: handle.to_owned(),
                }),
        )
        .await
    }

    /// All pages joined, sorted by handle.
    pub(crate) async fn provisioned_volumes(
        &self,
    ) -> Result<Vec<wire::ProvidedVolume>, ClientError> {
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let page = self
                .call(
                    self.volumes_client()
                        .list_provided(wire::ListProvidedRequest {
                            page_size: PAGE_SIZE,
                            page_token,
                        }),
                )
                .await?;
            all.extend(page.volumes);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    pub(crate) async fn expand(
        &self,
        request: wire::ExpandRequest,
    ) -> Result<wire::ExpandResponse, ClientError> {
        self.call(self.volumes_client().expand(request)).await
    }

    pub(crate) async fn stage(&self, request: wire::StageRequest) -> Result<(), ClientError> {
        self.call(self.volumes_client().stage(request))
            .await
            .map(|_| ())
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
        self.call(self.volumes_client().unstage(request))
            .await
            .map(|_| ())
    }

    pub(crate) async fn publish(&self, request: wire::PublishRequest) -> Result<(), ClientError> {
        self.call(self.volumes_client().publish(request))
            .await
            .map(|_| ())
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
        self.call(self.volumes_client().unpublish(request))
            .await
            .map(|_| ())
    }
}
