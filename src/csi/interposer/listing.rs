//! ControllerListVolumeHealth: the upstream's pages, and behind them the volumes of which only we
//! know something.
//!
//! In: requests for pages. Out: pages. Tokens are the upstream's own as long as it has pages; ours
//! begin with [`TOKEN`] and name the volume after which to go on, so that nothing is remembered
//! between two calls. Which volumes the upstream has listed before is asked again where it matters.

use std::collections::{HashMap, HashSet};

use http::Request;
use tonic::{Code, Status};

use crate::csi::interposer::body::Body;
use crate::csi::interposer::calls::{Answered, Proxy, answered, both};
use crate::csi::interposer::method::{LIST_VOLUME_HEALTH, Method};
use crate::csi::interposer::raw::Junk;
use crate::csi::interposer::reply::{Good, Reply};
use crate::csi::interposer::verdict::{HealthStatus, Listed, Witness, WitnessError};
use crate::csi::interposer::{merge, ours, raw};

const TOKEN: &str = "diskvitals.io/after/";
/// An upstream whose pages never end is not followed further.
const PAGES: usize = 1000;

type Adverse = HashMap<String, Vec<HealthStatus>>;

impl<W: Witness> Proxy<W> {
    pub async fn list_health(
        &self,
        method: Method,
        request: Request<Body>,
        message: &[u8],
    ) -> Answered {
        let (Ok(token), Ok(most)) = (raw::text(message, 2), raw::int32(message, 1)) else {
            return Ok(self.reply(request).await?.untouched());
        };
        if let Some(after) = token.strip_prefix(TOKEN) {
            return Ok(answered(self.after(message, after, most).await));
        }
        let (reply, listed) = both(self.reply(request), self.listed()).await?;
        match reply {
            Reply::Refusal(code, _) if self.lacks(method, code).await => {
                Ok(answered(alone(token, listed, most)))
            }
            Reply::Good(good) => match listed {
                Ok(listed) => {
                    self.joined(method, good, message, known(listed), most)
                        .await
                }
                Err(_) => Ok(good.untouched()),
            },
            other => Ok(other.untouched()),
        }
    }

    /// A page of the upstream's, and behind its last one as many of ours as there is room for.
    async fn joined(
        &self,
        method: Method,
        good: Good,
        request: &[u8],
        ours: Adverse,
        most: i32,
    ) -> Answered {
        let token = raw::text(request, 2).unwrap_or_default();
        let mut rest: Vec<(String, Vec<HealthStatus>)> = Vec::new();
        let mut next = String::new();
        if let Ok(page) = merge::page(&good.message) {
            next.clone_from(&page.next_token);
            let here: HashSet<String> = page.handles.iter().cloned().collect();
            let missing = |listed: &HashSet<String>| remaining(&ours, listed, "");
            if page.next_token.is_empty() && !missing(&here).is_empty() {
                // One page alone is the whole list; of a later one we must know what went before.
                let before = if token.is_empty() {
                    Ok(HashSet::new())
                } else {
                    self.upstreams(request, Some(token)).await
                };
                if let Ok(mut listed) = before {
                    listed.extend(here);
                    (rest, next) = paged(missing(&listed), room(most, page.handles.len()), "");
                }
            }
        }
        Ok(self.merged(method, good, |message| {
            merge::continued(&merge::listed_health(message, &ours)?, &rest, &next)
        }))
    }

    /// A page of ours alone, behind the volume `after`.
    async fn after(&self, request: &[u8], after: &str, most: i32) -> Result<Vec<u8>, Status> {
        let most = entries(most)?;
        let listed = match self.upstreams(request, None).await {
            Ok(listed) => listed,
            Err(status)
                if self
                    .lacks(Method::ControllerListVolumeHealth, status.code())
                    .await =>
            {
                HashSet::new()
            }
            Err(status) => return Err(status),
        };
        let ours = if listed.is_empty() {
            all(self.listed().await)?
        } else {
            known(self.listed().await.map_err(|error| ours::refused(&error))?)
        };
        let (page, next) = paged(remaining(&ours, &listed, after), most, after);
        merge::continued(&[], &page, &next).map_err(ours::unexpected)
    }

    /// Whom the upstream lists, on its pages before `end`; on all of them where there is no end.
    async fn upstreams(
        &self,
        request: &[u8],
        end: Option<&str>,
    ) -> Result<HashSet<String>, Status> {
        let unreadable = |junk: Junk| {
            Status::unavailable(format!("the upstream's list of volume health: {junk}"))
        };
        let mut listed = HashSet::new();
        let mut token = String::new();
        for _ in 0..PAGES {
            let asked = merge::another_page(request, &token).map_err(unreadable)?;
            let page = merge::page(&self.driver.upstream.ask(LIST_VOLUME_HEALTH, &asked).await?)
                .map_err(unreadable)?;
            listed.extend(page.handles);
            if page.next_token.is_empty() || Some(page.next_token.as_str()) == end {
                return Ok(listed);
            }
            token = page.next_token;
        }
        Err(Status::unavailable(
            "the upstream's list of volume health does not end",
        ))
    }
}

/// Where the upstream has no such list.
fn alone(
    token: &str,
    listed: Result<Vec<Listed>, WitnessError>,
    most: i32,
) -> Result<Vec<u8>, Status> {
    let most = entries(most)?;
    if !token.is_empty() {
        return Err(Status::new(
            Code::Aborted,
            "starting_token is not one of this driver's: begin again without it",
        ));
    }
    let (page, next) = paged(remaining(&all(listed)?, &HashSet::new(), ""), most, "");
    merge::continued(&[], &page, &next).map_err(ours::unexpected)
}

/// None: all.
fn entries(most: i32) -> Result<Option<usize>, Status> {
    match usize::try_from(most) {
        Ok(0) => Ok(None),
        Ok(most) => Ok(Some(most)),
        Err(_) => Err(Status::invalid_argument("max_entries is negative")),
    }
}

fn room(most: i32, taken: usize) -> Option<usize> {
    usize::try_from(most)
        .ok()
        .filter(|most| *most > 0)
        .map(|most| most.saturating_sub(taken))
}

/// What is adverse, of all volumes. A volume of which we do not know must not be missing from a
/// list that is ours alone: that would say that it is well.
fn all(listed: Result<Vec<Listed>, WitnessError>) -> Result<Adverse, Status> {
    let listed = listed.map_err(|error| ours::refused(&error))?;
    if let Some((handle, why)) = listed.iter().find_map(|volume| {
        volume
            .told
            .statuses
            .as_ref()
            .err()
            .map(|why| (&volume.handle, why))
    }) {
        return Err(ours::refused(&WitnessError::Unknown(format!(
            "the health of volume {handle} ({why})"
        ))));
    }
    Ok(known(listed))
}

fn known(listed: Vec<Listed>) -> Adverse {
    let statuses = |volume: Listed| {
        volume
            .told
            .from_everywhere()
            .statuses
            .ok()
            .map(|statuses| (volume.handle, statuses))
    };
    listed
        .into_iter()
        .filter_map(statuses)
        .filter(|(_, statuses)| !statuses.is_empty())
        .collect()
}

/// Ours that are not listed yet, behind `after`, in the order of their handles.
fn remaining(
    ours: &Adverse,
    listed: &HashSet<String>,
    after: &str,
) -> Vec<(String, Vec<HealthStatus>)> {
    let behind = |handle: &str| after.is_empty() || handle > after;
    let mut rest: Vec<_> = ours
        .iter()
        .filter(|(handle, _)| behind(handle) && !listed.contains(*handle))
        .collect();
    rest.sort_by_key(|(handle, _)| handle.as_str());
    rest.into_iter()
        .map(|(handle, statuses)| (handle.clone(), statuses.clone()))
        .collect()
}

/// As many as there is room for, and the token for the rest.
fn paged(
    mut rest: Vec<(String, Vec<HealthStatus>)>,
    room: Option<usize>,
    after: &str,
) -> (Vec<(String, Vec<HealthStatus>)>, String) {
    match room {
        Some(room) if rest.len() > room => {
            rest.truncate(room);
            let last = rest.last().map_or(after, |(handle, _)| handle);
            let next = format!("{TOKEN}{last}");
            (rest, next)
        }
        _ => (rest, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::csi::interposer::verdict::{Condition, DEGRADED, Told};
    use crate::csi::wire;

    fn volume(handle: &str, statuses: Result<Vec<HealthStatus>, String>) -> Listed {
        Listed {
            handle: handle.into(),
            here: true,
            told: Told {
                statuses,
                condition: Condition::default(),
                local: true,
            },
        }
    }

    fn bad(handle: &str) -> Listed {
        let status = HealthStatus {
            status: DEGRADED,
            reason: "DriveFailing".into(),
            message: String::new(),
        };
        volume(handle, Ok(vec![status]))
    }

    #[test]
    fn a_token_that_is_not_ours_aborts_and_a_negative_number_is_no_argument() {
        let code = |answer: Result<Vec<u8>, Status>| answer.map_err(|status| status.code());
        assert_eq!(
            code(alone("invalid-token", Ok(Vec::new()), 0)),
            Err(Code::Aborted)
        );
        assert_eq!(
            code(alone("", Ok(Vec::new()), -1)),
            Err(Code::InvalidArgument)
        );
        assert_eq!(code(alone("", Ok(Vec::new()), 0)), Ok(Vec::new()));
    }

    #[test]
    fn a_list_of_ours_leaves_nobody_out_of_whom_we_do_not_know() {
        let listed = vec![bad("a"), volume("b", Err("no SMART yet".into()))];
        let status = alone("", Ok(listed), 0).expect_err("not known");
        assert_eq!(
            (status.code(), status.message()),
            (
                Code::Unavailable,
                "not known: the health of volume b (no SMART yet)"
            )
        );
    }

    proptest! {
        #[test]
        fn pages_of_any_size_list_everybody_once(handles in prop::collection::btree_set("[a-z/]{1,4}", 0..12), size in 1i32..5) {
            let ours = known(handles.iter().map(|handle| bad(handle)).collect());
            let (mut seen, mut after) = (Vec::new(), String::new());
            loop {
                let (page, next) = paged(remaining(&ours, &HashSet::new(), &after), entries(size).expect("right"), &after);
                let page = merge::continued(&[], &page, &next).expect("ours");
                let page = wire::ControllerListVolumeHealthResponse::decode(page.as_slice()).expect("reads");
                prop_assert!(page.entries.len() <= size as usize);
                seen.extend(page.entries.into_iter().map(|entry| entry.volume_id));
                match page.next_token.strip_prefix(TOKEN) {
                    Some(next) => after = next.to_owned(),
                    None => break,
                }
            }
            prop_assert_eq!(seen.len(), handles.len());
            prop_assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), handles);
        }
    }
}
