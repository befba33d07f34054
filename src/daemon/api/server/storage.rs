//! The Storage service for the CSI shim, for volumes of any driver: usage figures, the state of the
//! underlying drives, and connectivity. All answers come from the newest snapshot.
//!
//! Only three calls take time: a sample of I/O reads the kernel's counters twice through the owner of
//! the state, and Confirm and CleanStale wait there for new readings of the sources. This module
//! accesses no device and no mount.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::api::server::caller::{AgentAccess, AgentCallers, Caller, refuse};
use crate::api::server::clean_orders::CleanOrders;
use crate::api::server::quota::SharedPlaces;
use crate::api::server::{confirm, connectivity, csi_volume};
use crate::api::status::{
    MAX_QUERY, bounded, exhausted, failed_precondition, invalid, not_found, required, unavailable,
};
use crate::state::handle::Handle;
use diskvitals_convert as convert;
use diskvitals_convert::node_facts::NodeFacts;
use diskvitals_finding::path::HostPath;
use diskvitals_model::snapshot::{Snapshot, Volume, VolumeUsage};
use diskvitals_model::source_update::SourceRequest as RefreshTarget;
use diskvitals_model::storage;
use diskvitals_quota::refusals::Refusal;
use diskvitals_text::echo::echo;
use diskvitals_wire as wire;

/// CSI limits names of drivers to 63 bytes; the kubelet's records may contain longer ones.
const MAX_DRIVER: usize = 256;
/// Maximum number of volumes in one request.
const MAX_HANDLES: usize = 1000;
/// With root's, as many as the owner of the state lets wait.
const MAX_CONFIRMS: usize = 24;
const MAX_CONFIRMS_PER_UID: usize = 8;
const MAX_SAMPLE: Duration = Duration::from_secs(60);
/// A mount appears in the snapshot some hundredths of a second after it was made.
const MOUNT_WAIT: Duration = Duration::from_millis(250);
/// The first measurement of a volume follows on request; after it, figures always exist. Shorter
/// than the shim's time-out for an answer from memory (0.9 s): the shim repeats a request that
/// takes longer.
const MEASURE_WAIT: Duration = Duration::from_millis(500);

pub(crate) struct StorageService {
    handle: Handle,
    node: Arc<NodeFacts>,
    /// None: this daemon answers no orders.
    orders: Option<CleanOrders>,
    callers: watch::Receiver<AgentCallers>,
    /// The requests that wait for new readings.
    confirms: SharedPlaces,
}

impl StorageService {
    pub(crate) fn new(
        handle: Handle,
        node: Arc<NodeFacts>,
        orders: Option<CleanOrders>,
        callers: watch::Receiver<AgentCallers>,
    ) -> StorageService {
        StorageService {
            handle,
            node,
            orders,
            callers,
            confirms: SharedPlaces::new(MAX_CONFIRMS, MAX_CONFIRMS_PER_UID),
        }
    }

    /// Answers from memory, even if devices hang. A request that comes while a volume is being
    /// mounted waits for a snapshot that contains it, but for no device.
    async fn wait_for_usage(
        &self,
        request: &wire::GetUsageRequest,
    ) -> Result<wire::VolumeUsageAnswer, Status> {
        let wire::GetUsageRequest { driver, handle, volume_path, with_volume } = request;
        let mut snapshots = self.handle.snapshots();
        let began = tokio::time::Instant::now();
        let mut requested = false;
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            let volume = csi_volume::find(&snapshot, driver, handle)?;
            let (why, timeout) = match usage_at(&snapshot, volume, volume_path) {
                UsageLookup::Measured(answer) => {
                    let volume = with_volume.then(|| convert::volume(&snapshot, volume));
                    return Ok(wire::VolumeUsageAnswer { volume, ..*answer });
                }
                UsageLookup::Rejected(status) => return Err(status),
                UsageLookup::NotMeasured(why) => (why, MEASURE_WAIT),
                UsageLookup::NotMounted(why) => (why, MOUNT_WAIT),
            };
            if timeout == MEASURE_WAIT && !std::mem::replace(&mut requested, true) {
                let mounts = volume.facts.mounts.iter();
                let paths = mounts.map(|mount| mount.path.clone()).collect();
                self.handle.refresh(RefreshTarget::Probe(paths)).await?;
            }
            // An error: the owner has ended, so no newer snapshot follows.
            let changed = tokio::time::timeout_at(began + timeout, snapshots.changed());
            if !matches!(changed.await, Ok(Ok(()))) {
                return Err(why);
            }
        }
    }
}

/// Why a path cannot be a staging or target path. Only its text is checked, as it is a key into the
/// mount table and is not opened.
fn invalid_mount_path(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return None;
    }
    let Some(names) = path.strip_prefix('/') else {
        return Some(
            "is not absolute: give the staging or target path of the CSI call, as the kubelet sees it",
        );
    };
    let unclean = |name: &str| name.is_empty() || name == "." || name == "..";
    if path.contains('\0') || names.strip_suffix('/').unwrap_or(names).split('/').any(unclean) {
        return Some(
            "contains `.`, `..`, `//` or NUL, or is the root: give the mount point as /proc/self/mountinfo shows it",
        );
    }
    None
}

/// A volume's usage figures in a snapshot, or why there are none.
enum UsageLookup {
    Measured(Box<wire::VolumeUsageAnswer>),
    Rejected(Status),
    /// The volume is mounted, and its first measurement is running.
    NotMeasured(Status),
    /// Its mount may be slightly newer than the snapshot.
    NotMounted(Status),
}

#[tonic::async_trait]
impl wire::storage_server::Storage for StorageService {
    async fn get_usage(
        &self,
        request: Request<wire::GetUsageRequest>,
    ) -> Result<Response<wire::VolumeUsageAnswer>, Status> {
        let wire::GetUsageRequest { driver, handle, volume_path, .. } = request.get_ref();
        required("driver", driver, MAX_DRIVER)?;
        required("handle", handle, MAX_QUERY)?;
        bounded("volume_path", volume_path, MAX_QUERY)?;
        self.wait_for_usage(request.get_ref()).await.map(Response::new)
    }

    async fn get_storage_health(
        &self,
        request: Request<wire::GetStorageHealthRequest>,
    ) -> Result<Response<wire::StorageHealth>, Status> {
        let driver = &request.get_ref().driver;
        required("driver", driver, MAX_DRIVER)?;
        let known = storage::driver_storage(&self.handle.snapshot(), driver)
            .map_err(|why| unavailable(why.to_string()))?;
        let network = match known.is_network_reached {
            None => wire::NetworkStorage::Unspecified,
            Some(true) => wire::NetworkStorage::Reached,
            Some(false) => wire::NetworkStorage::CutOff,
        };
        let fault = |fault: storage::StorageFault| wire::StorageFault {
            unreachable: fault.unreachable,
            reason: fault.reason.name().to_owned(),
            message: fault.message,
            remote: fault.remote,
        };
        Ok(Response::new(wire::StorageHealth {
            faults: known.faults.into_iter().map(fault).collect(),
            network: network.into(),
        }))
    }

    async fn check_connectivity(
        &self,
        request: Request<wire::CheckConnectivityRequest>,
    ) -> Result<Response<wire::Connectivity>, Status> {
        let wire::CheckConnectivityRequest { driver, handles, sample } = request.into_inner();
        required("driver", &driver, MAX_DRIVER)?;
        if handles.len() > MAX_HANDLES {
            return Err(invalid(
                "handles",
                format_args!("has {} entries, at most {MAX_HANDLES} are allowed", handles.len()),
            ));
        }
        for handle in &handles {
            required("handles", handle, MAX_QUERY)?;
        }
        let sample = Duration::try_from(sample.unwrap_or_default())
            .map_err(|_| invalid("sample", "is negative"))?;
        if sample > MAX_SAMPLE {
            return Err(invalid(
                "sample",
                format_args!("is longer than {} s", MAX_SAMPLE.as_secs()),
            ));
        }
        connectivity::check(&self.handle, &driver, &handles, sample).await.map(Response::new)
    }

    async fn confirm(
        &self,
        request: Request<wire::ConfirmRequest>,
    ) -> Result<Response<wire::Confirmation>, Status> {
        let caller = request.extensions().get::<Caller>();
        let place = caller.and_then(|it| self.confirms.acquire_in_use(it.standing, &it.id));
        let Some((mut place, _in_use)) = place else {
            return Err(refuse(caller.map(|it| &it.refusals), Refusal::Confirmations));
        };
        tokio::select! {
            confirmed = confirm::confirm(&self.handle, &self.node, request.get_ref()) => {
                confirmed.map(Response::new)
            }
            _ = place.revoked.wait_for(|revoked| *revoked) => Err(exhausted(
                "another caller, of whom fewer requests wait, has got the place of this one",
            )),
        }
    }

    async fn clean_stale(
        &self,
        request: Request<wire::CleanStaleRequest>,
    ) -> Result<Response<wire::StaleCleaning>, Status> {
        let Some(orders) = &self.orders else {
            return Err(failed_precondition("this daemon cannot clean up"));
        };
        orders.clean_stale(request.extensions(), request.get_ref()).await.map(Response::new)
    }

    async fn witness(
        &self,
        request: Request<wire::WitnessRequest>,
    ) -> Result<Response<wire::WitnessResponse>, Status> {
        use wire::witness_request::Call;
        let callers = self.callers.borrow().clone();
        let may_report = callers.require(
            AgentAccess::Full,
            request.extensions(),
            "report a driver that is bypassed: it may only read",
        );
        let request = request.into_inner();
        required("driver", &request.driver, MAX_DRIVER)?;
        bounded("handle", &request.handle, MAX_QUERY)?;
        bounded("path", &request.path, MAX_QUERY)?;
        if let Some(why) = invalid_mount_path(&request.path) {
            return Err(invalid("path", why));
        }
        let call = Call::try_from(request.call).unwrap_or(Call::Unspecified);
        if call == Call::Unspecified {
            return Err(invalid("call", "is none that can be witnessed"));
        }
        // What a reader says is shown to nobody, and takes back nothing.
        match may_report {
            // The name is shown to people: control characters must not reach their terminals.
            Ok(()) => {
                self.handle.set_bypassed(echo(&request.driver), call == Call::Bypassed).await?;
            }
            Err(refusal) if call == Call::Bypassed => return Err(refusal),
            Err(_) => {}
        }
        let mut targets = vec![RefreshTarget::Mounts, RefreshTarget::Kubelet];
        if !request.path.is_empty() && matches!(call, Call::Staged | Call::Published) {
            let path = HostPath::from(request.path.as_str());
            let snapshot = self.handle.snapshot();
            let path = snapshot.node_context.resolve_kubelet_path(&path);
            targets.push(RefreshTarget::Probe(vec![path]));
        }
        for target in targets {
            self.handle.refresh(target).await?;
        }
        Ok(Response::new(wire::WitnessResponse {}))
    }
}

/// Whether the volume is mounted or, by our own records, attached at `path`: a directory and a raw
/// device are staged without a mount.
fn is_at(snapshot: &Snapshot, volume: &Volume, path: &str) -> bool {
    let wanted = snapshot.node_context.resolve_kubelet_path(&HostPath::from(path));
    let facts = &volume.facts;
    let ours = facts
        .provided
        .iter()
        .flat_map(|provided| provided.staged.iter().chain(&provided.published));
    let missing =
        |path: &HostPath| facts.missing_mounts.iter().any(|missing| missing.path == *path);
    facts
        .mounts
        .iter()
        .map(|mount| &mount.path)
        .chain(ours.map(|at| &at.path))
        .any(|path| *path == wanted && !missing(path))
}

fn usage_at(snapshot: &Snapshot, volume: &Volume, path: &str) -> UsageLookup {
    if !path.is_empty() && !is_at(snapshot, volume, path) {
        let handle = volume.facts.handle.as_deref().unwrap_or_default();
        let refusal =
            not_found(format!("volume `{}` is not mounted at `{}`", echo(handle), echo(path)));
        return if path.starts_with('/') {
            UsageLookup::NotMounted(refusal)
        } else {
            UsageLookup::Rejected(refusal)
        };
    }
    match volume.usage {
        VolumeUsage::Mounted { usage, at, .. } => {
            // A filesystem without a fixed number of inodes reports none.
            let inodes = |count: u64| (usage.total_inodes > 0).then_some(count);
            UsageLookup::Measured(Box::new(wire::VolumeUsageAnswer {
                total_bytes: usage.total_bytes,
                available_bytes: usage.available_bytes,
                used_bytes: usage.used_bytes,
                total_inodes: inodes(usage.total_inodes),
                available_inodes: inodes(usage.available_inodes),
                used_inodes: inodes(usage.used_inodes),
                time: Some(convert::time(at)),
                ..wire::VolumeUsageAnswer::default()
            }))
        }
        VolumeUsage::Block { size_bytes } if volume.facts.block => {
            UsageLookup::Measured(Box::new(wire::VolumeUsageAnswer {
                total_bytes: size_bytes,
                block: true,
                ..wire::VolumeUsageAnswer::default()
            }))
        }
        VolumeUsage::NotMeasured => UsageLookup::NotMeasured(unmeasured(snapshot, volume)),
        VolumeUsage::Unknown if !volume.facts.mounts.is_empty() => {
            UsageLookup::Rejected(unmeasured(snapshot, volume))
        }
        VolumeUsage::Block { .. } | VolumeUsage::Unknown => {
            UsageLookup::NotMounted(unmeasured(snapshot, volume))
        }
    }
}

fn unmeasured(snapshot: &Snapshot, volume: &Volume) -> Status {
    let finding = volume
        .findings
        .iter()
        .filter_map(|id| snapshot.findings.get(id))
        .find(|finding| finding.reason.is_unmeasured());
    unavailable(match finding {
        Some(finding) => format!("there are no usage figures: {}", finding.message),
        None if volume.facts.mounts.is_empty() => {
            "the volume is not mounted: there are no usage figures".to_owned()
        }
        None => "the volume has not been measured yet".to_owned(),
    })
}
