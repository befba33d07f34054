//! CSI's Identity: name and version, no capabilities yet, and whether the daemon has ever been reached. Answers from memory.

use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::csi::wire;
use crate::csi::wire::identity_server::Identity;

pub struct IdentityService {
    driver_name: String,
    /// Once true, never false again: Probe is what liveness probes ask, and a shim that is restarted because the daemon is away helps nobody.
    ready: watch::Receiver<bool>,
}

impl IdentityService {
    pub fn new(driver_name: String, ready: watch::Receiver<bool>) -> IdentityService {
        IdentityService { driver_name, ready }
    }
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(&self, _: Request<wire::GetPluginInfoRequest>) -> Result<Response<wire::GetPluginInfoResponse>, Status> {
        Ok(Response::new(wire::GetPluginInfoResponse {
            name: self.driver_name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        }))
    }

    /// None: there is no controller service, and volumes are not ours to place or to grow.
    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<wire::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(wire::GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Result<Response<wire::ProbeResponse>, Status> {
        Ok(Response::new(wire::ProbeResponse { ready: Some(*self.ready.borrow()) }))
    }
}
