//! Which wishes are taken: what is wrong with a wish itself, what is not known yet, what is busy.

use crate::attach::engine::actor::{Actor, Entry};
use crate::attach::engine::hand::pool_backing;
use crate::attach::engine::job::Job;
use crate::attach::engine::volume::{Backing, Volume, unknown};
use crate::attach::engine::{Answer, CreateWish, Reply, Wish, pool};
use crate::attach::fault::Fault;
use crate::attach::record::{VERSION, VolumeRecord};
use crate::attach::rules::{access, names, paths};
use crate::attach::step::Steps;
use crate::host::{clock, random};
use crate::model::attach::Kind;

/// What is answered at once, without an operation.
type AtOnce = (Result<Answer, Fault>, Reply);

impl<S: Steps> Actor<S> {
    /// The first checks need nothing but the wish; a caller's mistake is told before what is not
    /// known.
    pub(super) fn take(&mut self, wish: Wish, reply: Reply) {
        if let Err((fault, reply)) = self.begin(wish, reply) {
            // A caller that is gone has no use for it.
            let _ = reply.send(fault);
        }
    }

    fn begin(&mut self, wish: Wish, reply: Reply) -> Result<(), AtOnce> {
        let root = self.settings().kubelet_root.clone();
        let checked = match &wish {
            Wish::Create(wish) => pool::check(wish).map(drop),
            Wish::Expand(wish) => wish.range.check(),
            Wish::Stage(wish) => access::check(&wish.access)
                .and_then(|()| paths::place(&root, "staging_path", &wish.staging_path).map(drop)),
            Wish::Unstage { staging_path, .. } => {
                paths::place(&root, "staging_path", staging_path).map(drop)
            }
            Wish::Publish(wish) => access::check(&wish.access)
                .and_then(|()| paths::place(&root, "target_path", &wish.target_path))
                .and_then(|_| {
                    wish.staging_path.as_deref().map_or(Ok(()), |path| {
                        paths::place(&root, "staging_path", path).map(drop)
                    })
                }),
            Wish::Unpublish { target_path, .. } => {
                paths::place(&root, "target_path", target_path).map(drop)
            }
            Wish::Delete { .. } => Ok(()),
        };
        if let Err(fault) = checked {
            return Err((Err(fault), reply));
        }
        if let Some(why) = &self.unknown {
            return Err((Err(Fault::Unavailable(why.clone())), reply));
        }
        match wish {
            Wish::Create(wish) => self.create(wish, reply),
            Wish::Delete { handle } => match self.free(&handle) {
                Err(Fault::NotFound(_)) => Err((Ok(Answer::Done), reply)),
                _ => self.on(&handle, Job::Delete, reply),
            },
            Wish::Expand(wish) => self.on(&wish.handle.clone(), Job::Expand(wish), reply),
            Wish::Stage(wish) => self.on(&wish.handle.clone(), Job::Stage(wish), reply),
            Wish::Unstage {
                handle,
                staging_path,
            } => self.on(&handle, Job::Unstage(staging_path), reply),
            Wish::Publish(wish) => self.on(&wish.handle.clone(), Job::Publish(wish), reply),
            Wish::Unpublish {
                handle,
                target_path,
            } => self.on(&handle, Job::Unpublish(target_path), reply),
        }
    }

    fn on(&mut self, handle: &str, job: Job, reply: Reply) -> Result<(), AtOnce> {
        if let Some(entry) = self.book.get_mut(handle)
            && entry.settling
            && entry.waiting.is_none()
        {
            // It is only being looked at: that is no operation of anybody's.
            entry.waiting = Some((job, reply));
            return Ok(());
        }
        match self.free(handle) {
            Ok(()) => {
                self.start(handle, job, Some(reply));
                Ok(())
            }
            Err(fault) => Err((Err(fault), reply)),
        }
    }

    /// What waited for a look to end.
    pub(super) fn go_on(&mut self, handle: &str, (job, reply): (Job, Reply)) {
        let refused = match (self.free(handle), &job) {
            (Ok(()), _) => return self.start(handle, job, Some(reply)),
            (Err(Fault::NotFound(_)), Job::Delete) => Ok(Answer::Done),
            (Err(fault), _) => Err(fault),
        };
        // As above.
        let _ = reply.send(refused);
    }

    /// Whether an operation on the volume can begin.
    fn free(&self, handle: &str) -> Result<(), Fault> {
        match self.book.get(handle) {
            Some(Entry {
                busy: Some(doing), ..
            }) => Err(Fault::Aborted(format!(
                "volume {handle} is busy: {}",
                doing.borrow().clone()
            ))),
            Some(_) => Ok(()),
            None => match &self.group_unknown {
                Some(why) if names::is_pool_handle(handle) => Err(Fault::Unavailable(why.clone())),
                _ => Err(unknown(handle)),
            },
        }
    }

    fn create(&mut self, wish: CreateWish, reply: Reply) -> Result<(), AtOnce> {
        let kind = wish.kind.unwrap_or_else(|| self.settings().default_kind());
        let refused = |fault, reply| Err((Err(fault), reply));
        if kind == Kind::Lvm {
            if self.settings().group.is_none() {
                return refused(
                    Fault::invalid(
                        "kind",
                        "is not configured here: [pool] volume_group is not set",
                    ),
                    reply,
                );
            }
            if let Some(why) = &self.group_unknown {
                return refused(Fault::Unavailable(why.clone()), reply);
            }
        }
        let least = match pool::check(&wish) {
            Ok(least) => least,
            Err(fault) => return refused(fault, reply),
        };
        let namesake = self
            .book
            .iter()
            .find(|(_, entry)| !entry.volume.is_static() && entry.volume.name == wish.name);
        let handle = match namesake {
            Some((handle, Entry { busy: Some(_), .. })) => {
                let handle = handle.clone();
                return refused(
                    self.free(&handle).err().unwrap_or_else(|| unknown(&handle)),
                    reply,
                );
            }
            Some((_, entry)) if entry.volume.made => {
                let answer = pool::same(&entry.volume, &wish)
                    .map(|()| Answer::Volume(Box::new(entry.volume.seen(None))));
                return Err((answer, reply));
            }
            // One that was given up in the middle: put right first, then made anew.
            Some((handle, _)) => handle.clone(),
            None => match self.reserve(kind, &wish) {
                Ok(handle) => handle,
                Err(fault) => return refused(fault, reply),
            },
        };
        self.start(&handle, Job::Create(wish, least), Some(reply));
        Ok(())
    }

    /// The name is taken from now on, by a volume that is not there yet.
    fn reserve(&mut self, kind: Kind, wish: &CreateWish) -> Result<String, Fault> {
        let bits = random::bits().map_err(|error| {
            Fault::Unavailable(format!("reading random bits for a handle: {error}"))
        })?;
        let handle = names::handle(bits);
        let settings = self.settings();
        let backing = pool_backing(&settings, kind, &handle)
            .unwrap_or(Backing::Image(settings.folder.clone()));
        let record = VolumeRecord {
            version: VERSION,
            handle: handle.clone(),
            name: wish.name.clone(),
            kind,
            size: 0,
            created: clock::now(),
            mkfs_options: wish.mkfs_options.clone(),
            accesses: wish.accesses.clone(),
            other: serde_json::Map::new(),
        };
        let mut volume = Volume::new(&handle, kind, backing).with_record(record);
        volume.made = false;
        self.book.insert(handle.clone(), Entry::free(volume));
        Ok(handle)
    }
}
