//! Keeps up a picture of the node by the daemon's Watch, and says when that cannot be done.
//!
//! In: the connection to the daemon. Out: what is seen of it. Pictures are whole and settled; half
//! ones are never shown.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;

use crate::api::client::Client;
use crate::csi::agent::Agent;
use crate::csi::report::picture::{Picture, Step};
use crate::csi::report::{Lost, Pace, Sight, at, now};

pub async fn run(agent: Agent, sight: watch::Sender<Sight>, pace: &Pace) -> Infallible {
    loop {
        let status = match follow(&agent, &sight, pace).await {
            Err(status) => status,
            Ok(never) => match never {},
        };
        lost(&sight, status.message());
        // The next question has the connection made at once, if it can be.
        tokio::time::sleep(pace.first_pause).await;
    }
}

/// Since when it is lost is what it was; why may have become another thing.
fn lost(sight: &watch::Sender<Sight>, why: &str) {
    sight.send_if_modified(|sight| {
        let same = sight.lost.as_ref().is_some_and(|lost| lost.why == why);
        let since = sight
            .lost
            .as_ref()
            .map_or_else(Instant::now, |lost| lost.since);
        sight.lost = Some(Lost {
            since,
            why: why.to_owned(),
        });
        !same
    });
}

async fn follow(
    agent: &Agent,
    sight: &watch::Sender<Sight>,
    pace: &Pace,
) -> Result<Infallible, Status> {
    let mut events = agent
        .quick(|client: Client| async move { client.watch(0).await })
        .await?;
    let mut picture = Picture::default();
    // When the daemon is to be asked for its node; None until all of the picture is there.
    let mut due = None;
    // How long half a picture is waited for, or one that is behind the node's own words.
    let mut whole_by = Some(Instant::now() + pace.look);
    let mut revision = 0;
    loop {
        tokio::select! {
            event = events.message() => {
                let event = event?.ok_or_else(|| Status::unavailable("it has ended the watch"))?;
                revision = event.revision;
                match picture.apply(event) {
                    Step::Partial => (due, whole_by) = (None, whole_by.or(Some(Instant::now() + pace.look))),
                    Step::Whole => {
                        for finding in agent.quick(|client: Client| async move { client.findings(true).await }).await?.findings {
                            picture.cleared(finding);
                        }
                        (due, whole_by) = (Some(Instant::now()), None);
                    }
                    Step::Changed => due = due.map(|due: Instant| due.min(Instant::now() + pace.gather)),
                }
            }
            () = at(due) => {
                let node = agent.quick(|client: Client| async move { client.node().await }).await?;
                // What it has just become, settled for one, may be told before all the changes that
                // made it so have come.
                if revision < node.revision {
                    whole_by = whole_by.or(Some(Instant::now() + pace.look));
                    due = Some(Instant::now() + pace.gather);
                    continue;
                }
                picture.node(&node, now());
                show(sight, &picture);
                (due, whole_by) = (Some(Instant::now() + pace.look), None);
            }
            () = at(whole_by) => return Err(Status::unavailable("it does not tell all of its picture in its time")),
        }
    }
}

fn show(sight: &watch::Sender<Sight>, picture: &Picture) {
    if !picture.settled {
        return lost(sight, "it has been started and does not know all yet");
    }
    sight.send_if_modified(|sight| {
        let same = sight.lost.is_none() && sight.picture.as_deref() == Some(picture);
        if !same {
            *sight = Sight {
                picture: Some(Arc::new(picture.clone())),
                lost: None,
            };
        }
        !same
    });
}
