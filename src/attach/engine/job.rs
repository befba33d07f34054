//! One operation on one volume, in a task of its own: what was left over of the volume is settled
//! first, then the wish is fulfilled.

use crate::attach::engine::hand::Hand;
use crate::attach::engine::volume::Volume;
use crate::attach::engine::{
    CreateWish, ExpandWish, Expanded, PublishWish, StageWish, grow, pool, publish, settle, stage,
};
use crate::attach::fault::Fault;
use crate::attach::step::Steps;

pub enum Job {
    Settle,
    /// With the smallest size that is possible.
    Create(CreateWish, u64),
    Delete,
    Expand(ExpandWish),
    Stage(StageWish),
    Unstage(String),
    Publish(PublishWish),
    Unpublish(String),
}

/// What an operation came to; a volume's view is made when the book has it.
pub enum Came {
    Volume,
    Expanded(Expanded),
    Done,
}

impl Job {
    /// For people.
    pub fn purpose(&self) -> &'static str {
        match self {
            Job::Settle => "looking at it",
            Job::Create(..) => "creating it",
            Job::Delete => "deleting it",
            Job::Expand(_) => "growing it",
            Job::Stage(_) => "staging it",
            Job::Unstage(_) => "unstaging it",
            Job::Publish(_) => "publishing it",
            Job::Unpublish(_) => "unpublishing it",
        }
    }

    pub async fn run<S: Steps>(self, hand: &Hand<S>, volume: &mut Volume) -> Result<Came, Fault> {
        if let Job::Create(wish, least) = &self {
            return pool::create(hand, volume, wish, *least)
                .await
                .map(|()| Came::Volume);
        }
        match self {
            Job::Delete | Job::Unstage(_) | Job::Unpublish(_) => {
                settle::settle_to_unmake(hand, volume).await?
            }
            _ => settle::settle(hand, volume).await?,
        }
        if !volume.made {
            // Its deletion was cut off before, and is finished now.
            return if matches!(self, Job::Delete | Job::Settle) {
                Ok(Came::Done)
            } else {
                Err(super::volume::unknown(&volume.handle))
            };
        }
        match self {
            Job::Settle | Job::Create(..) => {}
            Job::Delete => pool::delete(hand, volume).await?,
            Job::Expand(wish) => {
                return grow::expand(hand, volume, &wish).await.map(Came::Expanded);
            }
            Job::Stage(wish) => stage::stage(hand, volume, &wish).await?,
            Job::Unstage(path) => stage::unstage(hand, volume, &path).await?,
            Job::Publish(wish) => publish::publish(hand, volume, &wish).await?,
            Job::Unpublish(path) => publish::unpublish(hand, volume, &path).await?,
        }
        settle::forget_orphan(volume);
        Ok(Came::Done)
    }
}
