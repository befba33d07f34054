//! Admission of requests: refuses those that are invalid, that name an unknown volume, or whose
//! volume
//! is busy; starts or queues the others.

use crate::host::{clock, random};
use crate::model::provision::BackingKind;
use crate::provision::engine::actor::{Actor, VolumeEntry};
use crate::provision::engine::job::VolumeJob;
use crate::provision::engine::pool;
use crate::provision::engine::request::{CreateRequest, Reply, Request, Response};
use crate::provision::engine::step_context::pool_backing;
use crate::provision::engine::volume::{Backing, Volume};
use crate::provision::error::ProvisionError;
use crate::provision::record::{VERSION, VolumeRecord};
use crate::provision::rules::{access, names, paths};
use crate::provision::step::StepExecutor;

/// A reply that needs no operation.
type ImmediateReply = (Result<Response, ProvisionError>, Reply);

impl<S: StepExecutor> Actor<S> {
    /// The first checks need only the request: a caller's mistake is reported before missing
    /// records.
    pub(super) fn accept(&mut self, request: Request, reply: Reply) {
        if let Err((fault, reply)) = self.admit(request, reply) {
            // The caller may have stopped waiting.
            let _ = reply.send(fault);
        }
    }

    fn admit(&mut self, request: Request, reply: Reply) -> Result<(), ImmediateReply> {
        let root = self.settings().kubelet_root.clone();
        let checked = match &request {
            Request::Create(request) => pool::check_request(request).map(drop),
            Request::Expand(request) => request.range.check(),
            Request::Stage(request) => access::check(&request.access).and_then(|()| {
                paths::rooted_path(&root, "staging_path", &request.staging_path).map(drop)
            }),
            Request::Unstage { staging_path, .. } => {
                paths::rooted_path(&root, "staging_path", staging_path).map(drop)
            }
            Request::Publish(request) => access::check(&request.access)
                .and_then(|()| paths::rooted_path(&root, "target_path", &request.target_path))
                .and_then(|_| {
                    request.staging_path.as_deref().map_or(Ok(()), |path| {
                        paths::rooted_path(&root, "staging_path", path).map(drop)
                    })
                }),
            Request::Unpublish { target_path, .. } => {
                paths::rooted_path(&root, "target_path", target_path).map(drop)
            }
            Request::Delete { .. } => Ok(()),
        };
        if let Err(fault) = checked {
            return Err((Err(fault), reply));
        }
        if let Some(why) = &self.records_error {
            return Err((Err(ProvisionError::Unavailable(why.clone())), reply));
        }
        match request {
            Request::Create(request) => self.admit_create(request, reply),
            Request::Delete { handle } => match self.check_idle(&handle) {
                Err(ProvisionError::NotFound(_)) => Err((Ok(Response::Done), reply)),
                _ => self.start_or_queue(&handle, VolumeJob::Delete, reply),
            },
            Request::Expand(request) => {
                self.start_or_queue(&request.handle.clone(), VolumeJob::Expand(request), reply)
            }
            Request::Stage(request) => {
                self.start_or_queue(&request.handle.clone(), VolumeJob::Stage(request), reply)
            }
            Request::Unstage {
                handle,
                staging_path,
            } => self.start_or_queue(&handle, VolumeJob::Unstage(staging_path), reply),
            Request::Publish(request) => {
                self.start_or_queue(&request.handle.clone(), VolumeJob::Publish(request), reply)
            }
            Request::Unpublish {
                handle,
                target_path,
            } => self.start_or_queue(&handle, VolumeJob::Unpublish(target_path), reply),
        }
    }

    fn start_or_queue(
        &mut self,
        handle: &str,
        job: VolumeJob,
        reply: Reply,
    ) -> Result<(), ImmediateReply> {
        if let Some(entry) = self.volumes.get_mut(handle)
            && entry.is_recovering
            && entry.queued.is_none()
        {
            // A recovery is no caller's operation: the request waits for it.
            entry.queued = Some((job, reply));
            return Ok(());
        }
        match self.check_idle(handle) {
            Ok(()) => {
                self.start_job(handle, job, Some(reply));
                Ok(())
            }
            Err(fault) => Err((Err(fault), reply)),
        }
    }

    /// Starts or answers a request that waited for a recovery to end.
    pub(super) fn resume_queued(&mut self, handle: &str, (job, reply): (VolumeJob, Reply)) {
        let refused = match (self.check_idle(handle), &job) {
            (Ok(()), _) => return self.start_job(handle, job, Some(reply)),
            (Err(ProvisionError::NotFound(_)), VolumeJob::Delete) => Ok(Response::Done),
            (Err(fault), _) => Err(fault),
        };
        // As above.
        let _ = reply.send(refused);
    }

    /// Whether an operation on the volume can begin.
    fn check_idle(&self, handle: &str) -> Result<(), ProvisionError> {
        match self.volumes.get(handle) {
            Some(VolumeEntry {
                activity: Some(doing),
                ..
            }) => Err(ProvisionError::Aborted(format!(
                "volume {handle} is busy: {}",
                doing.borrow().clone()
            ))),
            Some(_) => Ok(()),
            None => match &self.volume_group_error {
                Some(why) if names::is_pool_handle(handle) => {
                    Err(ProvisionError::Unavailable(why.clone()))
                }
                _ => Err(ProvisionError::volume_not_found(handle)),
            },
        }
    }

    fn admit_create(&mut self, request: CreateRequest, reply: Reply) -> Result<(), ImmediateReply> {
        let kind = request
            .kind
            .unwrap_or_else(|| self.settings().default_kind());
        let refused = |fault, reply| Err((Err(fault), reply));
        if kind == BackingKind::Lvm {
            if self.settings().volume_group.is_none() {
                return refused(
                    ProvisionError::invalid_argument(
                        "kind",
                        "is not configured here: [pool] volume_group is not set",
                    ),
                    reply,
                );
            }
            if let Some(why) = &self.volume_group_error {
                return refused(ProvisionError::Unavailable(why.clone()), reply);
            }
        }
        let least = match pool::check_request(&request) {
            Ok(least) => least,
            Err(fault) => return refused(fault, reply),
        };
        let namesake = self
            .volumes
            .iter()
            .find(|(_, entry)| !entry.volume.is_static() && entry.volume.name == request.name);
        let handle = match namesake {
            Some((
                handle,
                VolumeEntry {
                    activity: Some(_), ..
                },
            )) => {
                let handle = handle.clone();
                return refused(
                    self.check_idle(&handle)
                        .err()
                        .unwrap_or_else(|| ProvisionError::volume_not_found(&handle)),
                    reply,
                );
            }
            Some((_, entry)) if entry.volume.exists => {
                let answer = pool::check_same_volume(&entry.volume, &request)
                    .map(|()| Response::Volume(Box::new(entry.volume.view(None))));
                return Err((answer, reply));
            }
            // An interrupted creation: recovered first, then repeated.
            Some((handle, _)) => handle.clone(),
            None => match self.reserve_name(kind, &request) {
                Ok(handle) => handle,
                Err(fault) => return refused(fault, reply),
            },
        };
        self.start_job(&handle, VolumeJob::Create(request, least), Some(reply));
        Ok(())
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
            created: clock::now(),
            mkfs_options: request.mkfs_options.clone(),
            accesses: request.accesses.clone(),
            unknown_fields: serde_json::Map::new(),
        };
        let mut volume = Volume::new(&handle, kind, backing).with_record(record);
        volume.exists = false;
        self.volumes
            .insert(handle.clone(), VolumeEntry::idle(volume));
        Ok(handle)
    }
}
