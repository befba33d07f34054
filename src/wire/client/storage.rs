//! Client calls of the Storage service, which the CSI shim uses. Served on the agent's socket only.

use std::time::Duration;

use crate::client::{Client, ClientError};

impl Client {
    /// An empty `path` matches any mount of the volume.
    pub async fn usage(
        &self,
        driver: &str,
        handle: &str,
        path: &str,
    ) -> Result<crate::VolumeUsageAnswer, ClientError> {
        self.request_usage(driver, handle, path, false).await
    }

    /// Usage together with the volume itself; an older daemon leaves the volume out.
    pub async fn usage_and_volume(
        &self,
        driver: &str,
        handle: &str,
        path: &str,
    ) -> Result<crate::VolumeUsageAnswer, ClientError> {
        self.request_usage(driver, handle, path, true).await
    }

    async fn request_usage(
        &self,
        driver: &str,
        handle: &str,
        path: &str,
        with_volume: bool,
    ) -> Result<crate::VolumeUsageAnswer, ClientError> {
        let request = crate::GetUsageRequest {
            driver: driver.to_owned(),
            handle: handle.to_owned(),
            volume_path: path.to_owned(),
            with_volume,
        };
        self.call(self.storage().get_usage(request)).await
    }

    pub async fn storage_health(&self, driver: &str) -> Result<crate::StorageHealth, ClientError> {
        let driver = driver.to_owned();
        let request = crate::GetStorageHealthRequest { driver };
        self.call(self.storage().get_storage_health(request)).await
    }

    /// No handles: all of the driver's volumes. The call takes longer by the time of `sample`.
    pub async fn connectivity(
        &self,
        driver: &str,
        handles: Vec<String>,
        sample: Duration,
    ) -> Result<crate::Connectivity, ClientError> {
        // The server also refuses a sample that is too long for the wire.
        let sample_on_wire = prost_types::Duration::try_from(sample)
            .unwrap_or(prost_types::Duration { seconds: i64::MAX, nanos: 0 });
        let request = crate::CheckConnectivityRequest {
            driver: driver.to_owned(),
            handles,
            sample: Some(sample_on_wire),
        };
        self.call_with_timeout(
            self.timeout.saturating_add(sample),
            self.storage().check_connectivity(request),
        )
        .await
    }

    /// Waits for the daemon's patience, which the request names.
    pub async fn confirm(
        &self,
        request: crate::ConfirmRequest,
    ) -> Result<crate::Confirmation, ClientError> {
        self.call(self.storage().confirm(request)).await
    }

    pub async fn clean_stale(
        &self,
        request: crate::CleanStaleRequest,
    ) -> Result<crate::StaleCleaning, ClientError> {
        self.call(self.storage().clean_stale(request)).await
    }

    pub async fn witness(&self, request: crate::WitnessRequest) -> Result<(), ClientError> {
        self.call_unit(self.storage().witness(request)).await
    }
}
