//! Admission of requests: refuses those that are invalid, that name an unknown volume, or whose volume
//! is busy; starts or queues the others.

use crate::engine::actor::detach_unrecorded::busy;
use crate::engine::actor::{Actor, VolumeEntry};
use crate::engine::backing::pool_backing;
use crate::engine::job::{Reply, Request, VolumeJob};
use crate::engine::pool;
use crate::engine::request::{CreateRequest, Response};
use crate::engine::step_context::no_volume_group;
use crate::engine::volume::{Backing, Volume};
use crate::error::ProvisionError;
use crate::record::{VERSION, VolumeRecord};
use crate::rules::{access, names, paths};
use crate::step::StepExecutor;
use diskvitals_finding::provision::BackingKind;
use diskvitals_host::{clock, random};
use diskvitals_model::cordon;

/// The action for an admitted request.
enum Admission {
    Start(String, VolumeJob),
    /// A recovery of the volume or a part of its scan runs. No caller waits for it, so the request waits for its end.
    Queue(String, VolumeJob),
    /// The response without an operation.
    Respond(Response),
}

impl<S: StepExecutor> Actor<S> {
    /// The first checks use only the request: an invalid request is reported before missing
    /// records.
    pub(super) fn accept(&mut self, request: Request, reply: Reply) {
        if let Err(error) = self.check_request(&request) {
            return self.carry_out(Err(error), reply);
        }
        if let Some(why) = self.records_error.clone() {
            if let Err(reply) = self.detach_unrecorded(request, reply, &why) {
                self.carry_out(Err(ProvisionError::Unavailable(why)), reply);
            }
            return;
        }
        let admission = match request {
            Request::Create(request) => self.admit_create(request),
            Request::Operation(handle, job) => self.admit_operation(handle, job),
        };
        self.carry_out(admission, reply);
    }

    /// Starts or answers a request that waited for the end of a recovery.
    pub(super) fn resume_queued(&mut self, handle: String, (job, reply): (VolumeJob, Reply)) {
        let admission = self.admit_operation(handle, job);
        self.carry_out(admission, reply);
    }

    fn carry_out(&mut self, admission: Result<Admission, ProvisionError>, reply: Reply) {
        let response = match admission {
            Ok(Admission::Start(handle, job)) => return self.start_job(&handle, job, Some(reply)),
            Ok(Admission::Queue(handle, job)) => {
                if let Some(entry) = self.volumes.get_mut(&handle) {
                    entry.queued = Some((job, reply));
                }
                return;
            }
            Ok(Admission::Respond(response)) => Ok(response),
            Err(error) => Err(error),
        };
        // The caller may have stopped waiting.
        let _ = reply.send(response);
    }

    fn check_request(&self, request: &Request) -> Result<(), ProvisionError> {
        let root = &self.settings().kubelet_root;
        let check_path = |field, path: &str| paths::rooted_path(root, field, path).map(drop);
        match request {
            Request::Create(request) => pool::check_request(request).map(drop),
            Request::Operation(_, job) => match job {
                VolumeJob::Recover
                | VolumeJob::Scan
                | VolumeJob::AuthorizeFormat(_)
                | VolumeJob::Create(..)
                | VolumeJob::Delete => Ok(()),
                VolumeJob::Expand(request) => request.range.check(),
                VolumeJob::Stage(request) => {
                    access::check(&request.access)?;
                    check_path("staging_path", &request.staging_path)
                }
                VolumeJob::Unstage(staging_path) => check_path("staging_path", staging_path),
                VolumeJob::Publish(request) => {
                    access::check(&request.access)?;
                    check_path("target_path", &request.target_path)?;
                    let mut staging_path = request.staging_path.iter();
                    staging_path.try_for_each(|path| check_path("staging_path", path))
                }
                VolumeJob::Unpublish(target_path) => check_path("target_path", target_path),
            },
        }
    }

    fn admit_operation(&self, handle: String, job: VolumeJob) -> Result<Admission, ProvisionError> {
        let entry = self.volumes.get(&handle);
        if entry.is_some_and(|entry| entry.is_recovering && entry.queued.is_none()) {
            return Ok(Admission::Queue(handle, job));
        }
        match (self.check_idle(&handle), &job) {
            (Ok(()), _) => Ok(Admission::Start(handle, job)),
            (Err(ProvisionError::NotFound(_)), VolumeJob::Delete) => {
                Ok(Admission::Respond(Response::Done))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Whether an operation on the volume can begin.
    fn check_idle(&self, handle: &str) -> Result<(), ProvisionError> {
        match self.volumes.get(handle) {
            Some(VolumeEntry { activity: Some(doing), .. }) => Err(busy(handle, doing)),
            Some(_) => Ok(()),
            None => match &self.volume_group_error {
                Some(why) if names::is_pool_handle(handle) => {
                    Err(ProvisionError::Unavailable(why.clone()))
                }
                _ => Err(ProvisionError::volume_not_found(handle)),
            },
        }
    }

    fn admit_create(&mut self, request: CreateRequest) -> Result<Admission, ProvisionError> {
        let settings = self.settings();
        let kind = request.kind.unwrap_or_else(|| settings.default_kind());
        if kind == BackingKind::Lvm {
            if settings.volume_group.is_none() {
                return Err(no_volume_group());
            }
            if let Some(why) = &self.volume_group_error {
                return Err(ProvisionError::Unavailable(why.clone()));
            }
        }
        let least = pool::check_request(&request)?;
        let namesake = self
            .volumes
            .iter()
            .find(|(_, entry)| !entry.volume.is_static() && entry.volume.name == request.name);
        let handle = match namesake {
            Some((handle, entry)) => {
                self.check_idle(handle)?;
                if entry.volume.exists {
                    pool::check_same_volume(&entry.volume, &request)?;
                    let view = entry.volume.view(None);
                    return Ok(Admission::Respond(Response::Volume(Box::new(view))));
                }
                self.check_cordon(entry.volume.kind)?;
                // An interrupted creation is recovered first, then repeated.
                handle.clone()
            }
            None => {
                self.check_cordon(kind)?;
                self.reserve_name(kind, &request)?
            }
        };
        Ok(Admission::Start(handle, VolumeJob::Create(request, least)))
    }

    /// Whether new volumes may be placed on the pool's drives.
    fn check_cordon(&self, kind: BackingKind) -> Result<(), ProvisionError> {
        match cordon::of_pool(&self.snapshots.borrow(), kind) {
            Ok(None) => Ok(()),
            Ok(Some(cordon)) => {
                Err(ProvisionError::ResourceExhausted(cordon.text(clock::wall(cordon.since))))
            }
            Err(unknown) => Err(ProvisionError::Unavailable(unknown.to_string())),
        }
    }

    /// Reserves the name for a volume that does not exist yet.
    fn reserve_name(
        &mut self,
        kind: BackingKind,
        request: &CreateRequest,
    ) -> Result<String, ProvisionError> {
        let bits = random::bits().map_err(|error| {
            ProvisionError::Unavailable(format!("reading random bits for a handle: {error}"))
        })?;
        let handle = names::pool_handle(bits);
        let settings = self.settings();
        let backing = pool_backing(&settings, kind, &handle)
            .unwrap_or(Backing::Image(settings.directory.clone()));
        let record = VolumeRecord {
            version: VERSION,
            handle: handle.clone(),
            name: request.name.clone(),
            kind,
            size: 0,
            created: clock::wall_now(),
            mkfs_options: request.mkfs_options.clone(),
            accesses: request.accesses.clone(),
            unknown_fields: serde_json::Map::new(),
        };
        let mut volume = Volume::new(&handle, kind, backing).with_record(record);
        volume.exists = false;
        self.volumes.insert(handle.clone(), VolumeEntry::idle(volume));
        Ok(handle)
    }
}
