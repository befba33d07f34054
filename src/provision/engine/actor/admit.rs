//! Which wishes are taken: what is wrong with a wish itself, what is not known yet, what is busy.

use crate::host::{clock, random};
use crate::model::provision::BackingKind;
use crate::provision::engine::actor::{Actor, VolumeEntry};
use crate::provision::engine::job::VolumeJob;
use crate::provision::engine::step_context::pool_backing;
use crate::provision::engine::volume::{Backing, Volume, not_found};
use crate::provision::engine::{CreateRequest, Reply, Request, Response, pool};
use crate::provision::error::ProvisionError;
use crate::provision::record::{VERSION, VolumeRecord};
use crate::provision::rules::{access, names, paths};
use crate::provision::step::StepExecutor;

/// What is answered at once, without an operation.
type ImmediateReply = (Result<Response, ProvisionError>, Reply);

impl<S: StepExecutor> Actor<S> {
    /// The first checks need nothing but the wish; a caller's mistake is told before what is not
    /// known.
    pub(super) fn accept(&mut self, wish: Request, reply: Reply) {
        if let Err((fault, reply)) = self.admit(wish, reply) {
            // A caller that is gone has no use for it.
            let _ = reply.send(fault);
        }
    }

    fn admit(&mut self, wish: Request, reply: Reply) -> Result<(), ImmediateReply> {
        let root = self.settings().kubelet_root.clone();
        let checked = match &wish {
            Request::Create(wish) => pool::check_request(wish).map(drop),
            Request::Expand(wish) => wish.range.check(),
            Request::Stage(wish) => access::check(&wish.access).and_then(|()| {
                paths::rooted_path(&root, "staging_path", &wish.staging_path).map(drop)
            }),
            Request::Unstage { staging_path, .. } => {
                paths::rooted_path(&root, "staging_path", staging_path).map(drop)
            }
            Request::Publish(wish) => access::check(&wish.access)
                .and_then(|()| paths::rooted_path(&root, "target_path", &wish.target_path))
                .and_then(|_| {
                    wish.staging_path.as_deref().map_or(Ok(()), |path| {
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
        match wish {
            Request::Create(wish) => self.admit_create(wish, reply),
            Request::Delete { handle } => match self.check_idle(&handle) {
                Err(ProvisionError::NotFound(_)) => Err((Ok(Response::Done), reply)),
                _ => self.start_or_queue(&handle, VolumeJob::Delete, reply),
            },
            Request::Expand(wish) => {
                self.start_or_queue(&wish.handle.clone(), VolumeJob::Expand(wish), reply)
            }
            Request::Stage(wish) => {
                self.start_or_queue(&wish.handle.clone(), VolumeJob::Stage(wish), reply)
            }
            Request::Unstage {
                handle,
                staging_path,
            } => self.start_or_queue(&handle, VolumeJob::Unstage(staging_path), reply),
            Request::Publish(wish) => {
                self.start_or_queue(&wish.handle.clone(), VolumeJob::Publish(wish), reply)
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
            // It is only being looked at: that is no operation of anybody's.
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

    /// What waited for a look to end.
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
                _ => Err(not_found(handle)),
            },
        }
    }

    fn admit_create(&mut self, wish: CreateRequest, reply: Reply) -> Result<(), ImmediateReply> {
        let kind = wish.kind.unwrap_or_else(|| self.settings().default_kind());
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
        let least = match pool::check_request(&wish) {
            Ok(least) => least,
            Err(fault) => return refused(fault, reply),
        };
        let namesake = self
            .volumes
            .iter()
            .find(|(_, entry)| !entry.volume.is_static() && entry.volume.name == wish.name);
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
                        .unwrap_or_else(|| not_found(&handle)),
                    reply,
                );
            }
            Some((_, entry)) if entry.volume.exists => {
                let answer = pool::check_same_volume(&entry.volume, &wish)
                    .map(|()| Response::Volume(Box::new(entry.volume.view(None))));
                return Err((answer, reply));
            }
            // One that was given up in the middle: put right first, then made anew.
            Some((handle, _)) => handle.clone(),
            None => match self.reserve_name(kind, &wish) {
                Ok(handle) => handle,
                Err(fault) => return refused(fault, reply),
            },
        };
        self.start_job(&handle, VolumeJob::Create(wish, least), Some(reply));
        Ok(())
    }

    /// The name is taken from now on, by a volume that is not there yet.
    fn reserve_name(
        &mut self,
        kind: BackingKind,
        wish: &CreateRequest,
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
            name: wish.name.clone(),
            kind,
            size: 0,
            created: clock::now(),
            mkfs_options: wish.mkfs_options.clone(),
            accesses: wish.accesses.clone(),
            unknown_fields: serde_json::Map::new(),
        };
        let mut volume = Volume::new(&handle, kind, backing).with_record(record);
        volume.exists = false;
        self.volumes
            .insert(handle.clone(), VolumeEntry::idle(volume));
        Ok(handle)
    }
}
