//! The Controller service's lists: all volumes of the driver, and those with adverse health. Both
//! are sorted by id and paged.

use std::collections::BTreeMap;

use tonic::Status;

use crate::driver::{Driver, provided_volume_health};
use crate::health::{self, HealthUnknown, VolumeHealth};
use crate::pages::{ListKind, PageRequest};
use crate::wire;
use crate::wire::list_volumes_response::{Entry, VolumeStatus};
use diskvitals_wire as daemon;
use diskvitals_wire::client::{Client, ClientError};

/// The driver's volumes by id.
struct VolumesById {
    /// The volumes that this node provides.
    provided: BTreeMap<String, daemon::ProvidedVolume>,
    /// The health of these volumes and of all others in the daemon's snapshot of the node.
    health: BTreeMap<String, VolumeHealth>,
}

pub(crate) async fn list_volumes(
    driver: &Driver,
    request: &wire::ListVolumesRequest,
) -> Result<wire::ListVolumesResponse, Status> {
    let page = PageRequest::parse(ListKind::Volumes, request.max_entries, &request.starting_token)?;
    let VolumesById { provided, mut health } = query_all(driver).await?;
    let entries = provided.into_iter().map(|(id, volume)| {
        let health = health.remove(&id).unwrap_or_else(|| provided_volume_health(&volume));
        let status = VolumeStatus {
            published_node_ids: driver.published_node_ids(&volume),
            volume_condition: driver.wire_condition(health),
        };
        let entry = Entry { volume: Some(driver.wire_volume(&volume)), status: Some(status) };
        (id, entry)
    });
    let (entries, next_token) = page.take_page(entries);
    Ok(wire::ListVolumesResponse { entries, next_token })
}

/// Lists only volumes with adverse health. An unlisted volume counts as healthy, so unknown health
/// of any volume is an error.
pub(crate) async fn list_volume_health(
    driver: &Driver,
    request: &wire::ControllerListVolumeHealthRequest,
) -> Result<wire::ControllerListVolumeHealthResponse, Status> {
    let page = PageRequest::parse(ListKind::Health, request.max_entries, &request.starting_token)?;
    if driver.withdrawal.is_active() {
        return Ok(wire::ControllerListVolumeHealthResponse::default());
    }
    let health = query_all(driver).await?.health;
    let unknown: Vec<(&String, &HealthUnknown)> = health
        .iter()
        .filter_map(|(id, health)| Some((id, health.statuses.as_ref().err()?)))
        .collect();
    if let [(id, why), more @ ..] = unknown.as_slice() {
        let more =
            if more.is_empty() { String::new() } else { format!(", and of {} more", more.len()) };
        return Err(Status::unavailable(format!("the health of `{id}` is not known: {why}{more}")));
    }
    let mut adverse = Vec::new();
    for (id, health) in health {
        let health = driver.wire_volume_health(&id, health)?;
        if !health.health_statuses.is_empty() {
            adverse.push((id, health));
        }
    }
    let (entries, next_token) = page.take_page(adverse);
    Ok(wire::ControllerListVolumeHealthResponse { entries, next_token })
}

async fn query_all(driver: &Driver) -> Result<VolumesById, Status> {
    driver.agent.query(|client| fetch_all(client, driver.name.clone())).await
}

async fn fetch_all(client: Client, driver: String) -> Result<VolumesById, ClientError> {
    let provided: BTreeMap<_, _> = client
        .provisioned_volumes()
        .await?
        .into_iter()
        .map(|volume| (volume.handle.clone(), volume))
        .collect();
    let ours = client.volumes().await?.volumes.into_iter().filter(|volume| volume.driver == driver);
    let mut health: BTreeMap<_, _> =
        ours.map(|volume| (volume.handle.clone(), health::of_volume(&volume))).collect();
    for (id, volume) in &provided {
        health.entry(id.clone()).or_insert_with(|| provided_volume_health(volume));
    }
    Ok(VolumesById { provided, health })
}
