//! CSI Identity service: name, version and capabilities of the driver, and whether the daemon has
//! answered at least once. It answers from memory.

use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::wire;
use crate::wire::identity_server::Identity;
use crate::wire::plugin_capability::service::Type as Service;
use crate::wire::plugin_capability::volume_expansion::Type as Expansion;
use crate::wire::plugin_capability::{self, Type};

pub(crate) struct IdentityService {
    pub driver_name: String,
    /// It never returns to false: liveness probes call Probe, and a restart of the shim does not
    /// help against an absent daemon.
    pub ready: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Result<Response<wire::GetPluginInfoResponse>, Status> {
        Ok(Response::new(wire::GetPluginInfoResponse {
            name: self.driver_name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        }))
    }

    /// Announces a controller service, and volumes that are reachable from one node only and can
    /// grow while they are in use.
    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<wire::GetPluginCapabilitiesResponse>, Status> {
        let service =
            |service: Service| Type::Service(plugin_capability::Service { r#type: service.into() });
        let grows = Type::VolumeExpansion(plugin_capability::VolumeExpansion {
            r#type: Expansion::Online.into(),
        });
        let all = [
            service(Service::ControllerService),
            service(Service::VolumeAccessibilityConstraints),
            grows,
        ];
        let capabilities =
            all.into_iter().map(|one| wire::PluginCapability { r#type: Some(one) }).collect();
        Ok(Response::new(wire::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(
        &self,
        _: Request<wire::ProbeRequest>,
    ) -> Result<Response<wire::ProbeResponse>, Status> {
        Ok(Response::new(wire::ProbeResponse { ready: Some(*self.ready.borrow()) }))
    }
}
