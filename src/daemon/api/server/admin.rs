//! The Admin service: acknowledgements, maintenance, locate lamps, refreshes, self-tests, clean-ups and authorizations to format,
//! for uid 0 only.

use std::time::Duration;

use tonic::{Request, Response, Status};

use crate::api::resolve::{resolve, resolve_drive, resolve_whole_drive};
use crate::api::server::caller::authorize_change;
use crate::api::server::cleanup::Cleaner;
use crate::api::server::lamps::Lamps;
use crate::api::status::{
    MAX_NOTE, MAX_QUERY, bounded, failed_precondition, invalid, provisioning, required, unresolved,
    valid_finding_id,
};
use crate::state::handle::Handle;
use diskvitals_convert as convert;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::FindingId;
use diskvitals_finding::path::HostPath;
use diskvitals_model::block::Layer;
use diskvitals_model::maintenance::MaintenanceTarget;
use diskvitals_model::snapshot::Snapshot;
use diskvitals_model::source_update::SourceRequest as RefreshTarget;
use diskvitals_provision::engine::{Engine, VolumeView};
use diskvitals_provision::error::ProvisionError;
use diskvitals_smart::SelfTestKind;
use diskvitals_wire as wire;

const MIN_MAINTENANCE: Duration = Duration::from_secs(1);
/// Longer than a person remembers it.
const MAX_MAINTENANCE: Duration = Duration::from_secs(30 * 24 * 3600);

pub(crate) struct AdminService {
    handle: Handle,
    /// None: this daemon cannot unmount.
    cleaner: Option<Cleaner>,
    /// None: this daemon provides no volumes.
    engine: Option<Engine>,
    /// None: this daemon reads a recorded tree.
    lamps: Option<Lamps>,
}

impl AdminService {
    pub(crate) fn new(
        handle: Handle,
        cleaner: Option<Cleaner>,
        engine: Option<Engine>,
        lamps: Option<Lamps>,
    ) -> AdminService {
        AdminService { handle, cleaner, engine, lamps }
    }

    fn engine(&self) -> Result<&Engine, Status> {
        let missing = || failed_precondition("this daemon provides no volumes");
        self.engine.as_ref().ok_or_else(missing)
    }
}

/// None without one that is still valid.
fn format_authorization(volume: &VolumeView) -> Option<wire::FormatAuthorization> {
    let authorization = volume.valid_authorization()?;
    Some(wire::FormatAuthorization {
        handle: volume.provided.handle.clone(),
        device: authorization.device.to_string(),
        expires: Some(convert::time(authorization.expires())),
    })
}

#[tonic::async_trait]
impl wire::admin_server::Admin for AdminService {
    async fn acknowledge_finding(
        &self,
        request: Request<wire::AcknowledgeFindingRequest>,
    ) -> Result<Response<wire::Finding>, Status> {
        let uid = authorize_change(&request, "acknowledge findings")?;
        let request = request.into_inner();
        let seen = convert::seen_level(&request);
        let wire::AcknowledgeFindingRequest { finding_id: id, note, repaired, .. } = request;
        valid_finding_id(&id)?;
        required("note", &note, MAX_NOTE)?;
        if note.trim().is_empty() {
            return Err(invalid(
                "note",
                "is blank: say why the finding needs no further attention",
            ));
        }
        // Only uid 0 reaches this line, and it is named root everywhere.
        let by = format!("uid {uid} (root)");
        let id = FindingId::known(id);
        let finding = self.handle.acknowledge(id, by, note, seen, repaired).await?;
        let snapshot = self.handle.snapshot();
        Ok(Response::new(convert::finding(&snapshot, &finding)))
    }

    async fn unacknowledge_finding(
        &self,
        request: Request<wire::UnacknowledgeFindingRequest>,
    ) -> Result<Response<wire::Finding>, Status> {
        authorize_change(&request, "take acknowledgements back")?;
        let id = request.into_inner().finding_id;
        valid_finding_id(&id)?;
        let finding = self.handle.unacknowledge(FindingId::known(id)).await?;
        let snapshot = self.handle.snapshot();
        Ok(Response::new(convert::finding(&snapshot, &finding)))
    }

    async fn start_maintenance(
        &self,
        request: Request<wire::StartMaintenanceRequest>,
    ) -> Result<Response<wire::Maintenance>, Status> {
        let uid = authorize_change(&request, "put things under maintenance")?;
        let wire::StartMaintenanceRequest { query, length, note } = request.into_inner();
        required("query", &query, MAX_QUERY)?;
        required("note", &note, MAX_NOTE)?;
        let length = Duration::try_from(length.unwrap_or_default());
        let length = length.ok().filter(|it| (MIN_MAINTENANCE..=MAX_MAINTENANCE).contains(it));
        let length = length.ok_or_else(|| invalid("length", "is a second to 30 days"))?;
        let target = maintenance_target(&self.handle.snapshot(), &query)?;
        let by = format!("uid {uid} (root)");
        let order = self.handle.start_maintenance(target.clone(), by, note, length).await?;
        let snapshot = self.handle.snapshot();
        Ok(Response::new(convert::maintenance(&snapshot, &target, &order)))
    }

    async fn end_maintenance(
        &self,
        request: Request<wire::EndMaintenanceRequest>,
    ) -> Result<Response<wire::Maintenance>, Status> {
        authorize_change(&request, "end maintenance")?;
        let query = request.into_inner().query;
        required("query", &query, MAX_QUERY)?;
        let target = maintenance_target(&self.handle.snapshot(), &query)?;
        let order = self.handle.end_maintenance(target.clone()).await?;
        let snapshot = self.handle.snapshot();
        Ok(Response::new(convert::maintenance(&snapshot, &target, &order)))
    }

    async fn set_lamp(
        &self,
        request: Request<wire::SetLampRequest>,
    ) -> Result<Response<wire::Lamp>, Status> {
        let uid = authorize_change(&request, "switch locate lamps")?;
        let wire::SetLampRequest { id, on } = request.into_inner();
        required("id", &id, MAX_QUERY)?;
        let snapshot = self.handle.snapshot();
        let drive = resolve_whole_drive(&snapshot, &id).map_err(unresolved("id"))?;
        let lamps = self
            .lamps
            .as_ref()
            .ok_or_else(|| failed_precondition("a recorded tree has no lamps"))?;
        let order = match on {
            true => lamps.light(drive, format!("uid {uid} (root)")).await?,
            false => lamps.turn_off(drive).await?,
        };
        Ok(Response::new(order))
    }

    async fn refresh(
        &self,
        request: Request<wire::RefreshRequest>,
    ) -> Result<Response<wire::RefreshResponse>, Status> {
        authorize_change(&request, "ask for a refresh")?;
        let query = request.into_inner().query;
        bounded("query", &query, MAX_QUERY)?;
        let (targets, asked) = if query.is_empty() {
            (vec![RefreshTarget::All], vec!["everything".to_owned()])
        } else {
            let snapshot = self.handle.snapshot();
            let named = resolve(&snapshot, &query).map_err(unresolved("query"))?;
            refresh_targets(&snapshot, &named.subjects())
        };
        for target in targets {
            self.handle.refresh(target).await?;
        }
        Ok(Response::new(wire::RefreshResponse { asked }))
    }

    async fn start_self_test(
        &self,
        request: Request<wire::StartSelfTestRequest>,
    ) -> Result<Response<wire::StartSelfTestResponse>, Status> {
        authorize_change(&request, "start self-tests")?;
        let request = request.into_inner();
        required("id", &request.id, MAX_QUERY)?;
        let kind = match request.kind() {
            wire::SelfTestKind::Short => SelfTestKind::Short,
            wire::SelfTestKind::Long => SelfTestKind::Long,
            wire::SelfTestKind::Unspecified => {
                return Err(invalid("kind", "is SELF_TEST_KIND_SHORT or SELF_TEST_KIND_LONG"));
            }
        };
        let snapshot = self.handle.snapshot();
        let drive = resolve_drive(&snapshot, &request.id).map_err(unresolved("id"))?;
        if drive.smart.is_none() {
            return Err(failed_precondition(format!(
                "drive {} is not polled for SMART data: its self-test cannot be started",
                drive.facts.id
            )));
        }
        let drive_id = drive.facts.id.clone();
        self.handle.refresh(RefreshTarget::SelfTest { drive: drive_id.clone(), kind }).await?;
        Ok(Response::new(wire::StartSelfTestResponse { drive_id: drive_id.to_string() }))
    }

    async fn authorize_format(
        &self,
        request: Request<wire::AuthorizeFormatRequest>,
    ) -> Result<Response<wire::FormatAuthorization>, Status> {
        authorize_change(&request, "authorize formatting")?;
        let wire::AuthorizeFormatRequest { handle, revoke } = request.into_inner();
        required("handle", &handle, MAX_QUERY)?;
        let engine = self.engine()?;
        engine.authorize_format(handle.clone(), revoke).await.map_err(provisioning)?;
        let view = engine.view();
        let none = wire::FormatAuthorization { handle: handle.clone(), ..Default::default() };
        let answer =
            format_authorization(view.find(&handle).map_err(provisioning)?).unwrap_or(none);
        Ok(Response::new(answer))
    }

    async fn list_format_authorizations(
        &self,
        request: Request<wire::ListFormatAuthorizationsRequest>,
    ) -> Result<Response<wire::ListFormatAuthorizationsResponse>, Status> {
        authorize_change(&request, "list authorizations to format")?;
        let view = self.engine()?.view();
        if let Some(why) = &view.records_error {
            return Err(provisioning(ProvisionError::Unavailable(why.clone())));
        }
        let authorizations = view.volumes.values().filter_map(format_authorization);
        Ok(Response::new(wire::ListFormatAuthorizationsResponse {
            authorizations: authorizations.collect(),
        }))
    }

    async fn force_cleanup(
        &self,
        request: Request<wire::ForceCleanupRequest>,
    ) -> Result<Response<wire::ForceCleanupResponse>, Status> {
        authorize_change(&request, "clean up volumes")?;
        let request = request.into_inner();
        required("query", &request.query, MAX_QUERY)?;
        let cleaner = self.cleaner.as_ref().ok_or_else(|| {
            failed_precondition("this daemon unmounts nothing: it reads a recorded tree")
        })?;
        cleaner.run(&self.handle, &request).await.map(Response::new)
    }
}

/// `node`, an enclosure with or without that word, or one thing. An array is meant by its name, not the
/// volume on it.
fn maintenance_target(snapshot: &Snapshot, query: &str) -> Result<MaintenanceTarget, Status> {
    if query == "node" {
        return Ok(MaintenanceTarget::Node);
    }
    let enclosure = query.strip_prefix("enclosure ").unwrap_or(query);
    let mut drives = snapshot.drives.values();
    if drives.any(|it| it.facts.location.enclosure.as_deref() == Some(enclosure)) {
        return Ok(MaintenanceTarget::Enclosure(enclosure.to_owned()));
    }
    let name = query.strip_prefix("/dev/").unwrap_or(query);
    let device = snapshot.inventory.devices.get(name);
    if device.is_some_and(|device| matches!(device.layer, Layer::Md { .. })) {
        return Ok(MaintenanceTarget::Subject(Subject::Device(name.to_owned())));
    }
    let named = resolve(snapshot, query).map_err(unresolved("query"))?;
    match named.subjects().as_slice() {
        [Subject::Source(_)] => Err(invalid("query", "names a source of the daemon")),
        [subject] => Ok(MaintenanceTarget::Subject(subject.clone())),
        _ => Err(invalid("query", "names several volumes: give one of them")),
    }
}

/// A refreshed volume is probed, and its records are read again. A refreshed drive or device causes
/// a new hardware scan, and probes of the volumes on it.
pub(crate) fn refresh_targets(
    snapshot: &Snapshot,
    subjects: &[Subject],
) -> (Vec<RefreshTarget>, Vec<String>) {
    let mut targets = Vec::new();
    let mut paths: Vec<HostPath> = Vec::new();
    for subject in subjects {
        let volumes = match subject {
            Subject::Volume(id) => {
                if snapshot.volumes.get(id).is_some_and(|volume| volume.facts.driver.is_some()) {
                    targets.push(RefreshTarget::Kubelet);
                }
                vec![id.clone()]
            }
            Subject::Drive(id) => {
                targets.push(RefreshTarget::Inventory);
                targets.push(RefreshTarget::Smart(vec![id.clone()]));
                snapshot.drives.get(id).map(|drive| drive.volumes.clone()).unwrap_or_default()
            }
            // Everything that it reads.
            Subject::Source(_) => {
                targets.push(RefreshTarget::All);
                Vec::new()
            }
            Subject::Device(name) => {
                targets.push(RefreshTarget::Inventory);
                crate::api::resolve::volumes_on_device(snapshot, name)
            }
        };
        let mounts = volumes
            .iter()
            .filter_map(|id| snapshot.volumes.get(id))
            .flat_map(|volume| volume.facts.mounts.iter());
        paths.extend(mounts.map(|mount| mount.path.clone()));
    }
    paths.sort();
    paths.dedup();
    targets.dedup();
    if !paths.is_empty() {
        targets.push(RefreshTarget::Probe(paths));
    }
    (targets, subjects.iter().map(ToString::to_string).collect())
}
