//! The controller's lists: all volumes of ours, and those of them with something adverse. Both in
//! the order of their ids, in pages.

use std::collections::BTreeMap;

use tonic::Status;

use crate::api::client::{Client, ClientError};
use crate::api::wire as daemon;
use crate::csi::driver::{Driver, of_provided};
use crate::csi::health::{self, Told};
use crate::csi::pages::{List, Page};
use crate::csi::wire;
use crate::csi::wire::list_volumes_response::{Entry, VolumeStatus};

/// Those that we provide, and what is known of the driver's volumes: by id.
struct All {
    provided: BTreeMap<String, daemon::ProvidedVolume>,
    told: BTreeMap<String, Told>,
}

pub async fn volumes(
    driver: &Driver,
    request: &wire::ListVolumesRequest,
) -> Result<wire::ListVolumesResponse, Status> {
    let page = Page::asked(List::Volumes, request.max_entries, &request.starting_token)?;
    let All { provided, mut told } = driver
        .agent
        .quick(|client| all(client, driver.name.clone()))
        .await?;
    let entries = provided.into_iter().map(|(id, volume)| {
        let told = told.remove(&id).unwrap_or_else(|| of_provided(&volume));
        let status = VolumeStatus {
            published_node_ids: driver.published_on(&volume),
            volume_condition: driver.condition(told),
        };
        (
            id,
            Entry {
                volume: Some(driver.volume(&volume)),
                status: Some(status),
            },
        )
    });
    let (entries, next_token) = page.cut(entries);
    Ok(wire::ListVolumesResponse {
        entries,
        next_token,
    })
}

/// Volumes with something adverse only: who is not listed is healthy. So one whose health is not
/// known makes it an error.
pub async fn health(
    driver: &Driver,
    request: &wire::ControllerListVolumeHealthRequest,
) -> Result<wire::ControllerListVolumeHealthResponse, Status> {
    let page = Page::asked(List::Health, request.max_entries, &request.starting_token)?;
    let All { provided, mut told } = driver
        .agent
        .quick(|client| all(client, driver.name.clone()))
        .await?;
    for (id, volume) in &provided {
        told.entry(id.clone())
            .or_insert_with(|| of_provided(volume));
    }
    let unknown: Vec<(&String, &String)> = told
        .iter()
        .filter_map(|(id, told)| Some((id, told.statuses.as_ref().err()?)))
        .collect();
    if let [(id, why), more @ ..] = unknown.as_slice() {
        let more = if more.is_empty() {
            String::new()
        } else {
            format!(", and of {} more", more.len())
        };
        return Err(Status::unavailable(format!(
            "the health of `{id}` is not known: {why}{more}"
        )));
    }
    let mut adverse = Vec::new();
    for (id, told) in told {
        let health = driver.volume_health(&id, told)?;
        if !health.health_statuses.is_empty() {
            adverse.push((id, health));
        }
    }
    let (entries, next_token) = page.cut(adverse);
    Ok(wire::ControllerListVolumeHealthResponse {
        entries,
        next_token,
    })
}

async fn all(client: Client, driver: String) -> Result<All, ClientError> {
    let provided = client
        .all_provided()
        .await?
        .into_iter()
        .map(|volume| (volume.handle.clone(), volume))
        .collect();
    let ours = client
        .volumes()
        .await?
        .volumes
        .into_iter()
        .filter(|volume| volume.driver == driver);
    let told = ours
        .map(|volume| (volume.handle.clone(), health::told(&volume)))
        .collect();
    Ok(All { provided, told })
}
