//! Client calls of the Storage service, which the CSI shim uses. Served on the agent's socket only.

use std::time::Duration;

use crate::api::client::{Client, ClientError};
use crate::api::wire;

impl Client {
    /// Empty `path`: wherever it is mounted.
    pub async fn usage(
        &self,
        driver: &str,
        handle: &str,
        path: &str,
    ) -> Result<wire::VolumeUsageAnswer, ClientError> {
        self.request_usage(driver, handle, path, false).await
    }

    /// With the volume itself; a daemon that is older leaves it out.
    pub async fn usage_and_volume(
        &self,
        driver: &str,
        handle: &str,
        path: &str,
    ) -> Result<wire::VolumeUsageAnswer, ClientError> {
        self.request_usage(driver, handle, path, true).await
    }

    async fn request_usage(
        &self,
        driver: &str,
        handle: &str,
        path: &str,
        with_volume: bool,
    ) -> Result<wire::VolumeUsageAnswer, ClientError> {
        let (driver, handle, volume_path) = (driver.to_owned(), handle.to_owned(), path.to_owned());
        self.call(self.storage().get_usage(wire::GetUsageRequest {
            driver,
            handle,
            volume_path,
            with_volume,
        }))
        .await
    }

    pub async fn storage_health(&self, driver: &str) -> Result<wire::StorageHealth, ClientError> {
        self.call(
            self.storage()
                .get_storage_health(wire::GetStorageHealthRequest {
                    driver: driver.to_owned(),
                }),
        )
        .await
    }

    /// No handles: of all the driver's volumes. Takes as long as `sample` more.
    pub async fn connectivity(
        &self,
        driver: &str,
        handles: Vec<String>,
        sample: Duration,
    ) -> Result<wire::Connectivity, ClientError> {
        // Longer ones than the wire can say are refused all the same.
        let told = prost_types::Duration::try_from(sample).unwrap_or(prost_types::Duration {
            seconds: i64::MAX,
            nanos: 0,
        });
        let request = wire::CheckConnectivityRequest {
            driver: driver.to_owned(),
            handles,
            sample: Some(told),
        };
        self.call_with_timeout(
            self.timeout.saturating_add(sample),
            self.storage().check_connectivity(request),
        )
        .await
    }

    pub async fn witness(&self, request: wire::WitnessRequest) -> Result<(), ClientError> {
        self.call(self.storage().witness(request)).await.map(drop)
    }
}
