//! ControllerListVolumeHealth in the interposer: the upstream driver's pages, followed by the
//! volumes that only the daemon reports.
//!
//! In: requests for pages. Out: pages. While the upstream has pages, the tokens are its own. Local
//! tokens begin with [`TOKEN_PREFIX`] and name the volume after which to continue, so no state is
//! kept between calls. If the volumes on earlier upstream pages are needed, the upstream is queried
//! again.

use std::collections::{HashMap, HashSet};

use http::Request;
use tonic::{Code, Status};

use crate::interposer::body::Body;
use crate::interposer::health_source::{
    HealthSource, HealthSourceError, HealthStatus, ListedVolume,
};
use crate::interposer::method::{CsiMethod, LIST_VOLUME_HEALTH};
use crate::interposer::proxy::{Proxy, ProxyResult, join_bounded, local_response};
use crate::interposer::raw::DecodeError;
use crate::interposer::reply::{Reply, SuccessReply};
use crate::interposer::{local_replies, merge, raw};

const TOKEN_PREFIX: &str = "diskvitals.io/after/";
/// After this number of pages an endless upstream list is abandoned.
const MAX_UPSTREAM_PAGES: usize = 1000;

type AdverseVolumes = HashMap<String, Vec<HealthStatus>>;

impl<W: HealthSource> Proxy<W> {
    pub(crate) async fn list_health(
        &self,
        method: CsiMethod,
        request: Request<Body>,
        message: &[u8],
    ) -> ProxyResult {
        let (Ok(token), Ok(most)) = (raw::string_field(message, 2), raw::int32_field(message, 1))
        else {
            return Ok(self.forward_and_read(request).await?.untouched());
        };
        if let Some(after) = token.strip_prefix(TOKEN_PREFIX) {
            return Ok(local_response(self.local_page(message, after, most).await));
        }
        let (reply, listed) =
            join_bounded(self.forward_and_read(request), self.query_volumes()).await?;
        match reply {
            Reply::ErrorStatus(code, _) if self.is_unimplemented_upstream(method, code).await => {
                Ok(local_response(local_list(token, listed, most)))
            }
            Reply::Success(good) => match listed {
                Ok(listed) => {
                    self.merged_page(method, good, message, known_adverse(listed), most).await
                }
                Err(_) => Ok(good.untouched()),
            },
            other => Ok(other.untouched()),
        }
    }

    /// Returns a page of the upstream; its last page is filled with local entries.
    async fn merged_page(
        &self,
        method: CsiMethod,
        good: SuccessReply,
        request: &[u8],
        ours: AdverseVolumes,
        most: i32,
    ) -> ProxyResult {
        let token = raw::string_field(request, 2).unwrap_or_default();
        let mut rest: Vec<(String, Vec<HealthStatus>)> = Vec::new();
        let mut next = String::new();
        if let Ok(page) = merge::parse_page(&good.message) {
            next.clone_from(&page.next_token);
            let here: HashSet<String> = page.handles.iter().cloned().collect();
            let missing = |listed: &HashSet<String>| unlisted_after(&ours, listed, "");
            if page.next_token.is_empty() && !missing(&here).is_empty() {
                // If one page is the whole list, no query is needed; for a later page the earlier
                // ones are needed.
                let before = if token.is_empty() {
                    Ok(HashSet::new())
                } else {
                    self.upstream_handles(request, Some(token)).await
                };
                if let Ok(mut listed) = before {
                    listed.extend(here);
                    (rest, next) =
                        cut_page(missing(&listed), remaining_entries(most, page.handles.len()), "");
                }
            }
        }
        Ok(self.merge_into(method, good, |message| {
            merge::append_entries(&merge::listed_health(message, &ours)?, &rest, &next)
        }))
    }

    /// Returns a page of local entries only, after the volume `after`.
    async fn local_page(&self, request: &[u8], after: &str, most: i32) -> Result<Vec<u8>, Status> {
        let most = max_entries(most)?;
        let listed = match self.upstream_handles(request, None).await {
            Ok(listed) => listed,
            Err(status)
                if self
                    .is_unimplemented_upstream(CsiMethod::ControllerListVolumeHealth, status.code())
                    .await =>
            {
                HashSet::new()
            }
            Err(status) => return Err(status),
        };
        let ours = if listed.is_empty() {
            all_adverse(self.query_volumes().await)?
        } else {
            known_adverse(
                self.query_volumes().await.map_err(|error| local_replies::to_status(&error))?,
            )
        };
        let (page, next) = cut_page(unlisted_after(&ours, &listed, after), most, after);
        merge::append_entries(&[], &page, &next).map_err(local_replies::internal_error)
    }

    /// Volumes that the upstream lists on its pages before `end`, or on all pages if `end` is None.
    async fn upstream_handles(
        &self,
        request: &[u8],
        end: Option<&str>,
    ) -> Result<HashSet<String>, Status> {
        let unreadable = |junk: DecodeError| {
            Status::unavailable(format!("the upstream's list of volume health: {junk}"))
        };
        let mut listed = HashSet::new();
        let mut token = String::new();
        for _ in 0..MAX_UPSTREAM_PAGES {
            let asked = merge::request_for_page(request, &token).map_err(unreadable)?;
            let page =
                merge::parse_page(&self.driver.upstream.call(LIST_VOLUME_HEALTH, &asked).await?)
                    .map_err(unreadable)?;
            listed.extend(page.handles);
            if page.next_token.is_empty() || Some(page.next_token.as_str()) == end {
                return Ok(listed);
            }
            token = page.next_token;
        }
        Err(Status::unavailable("the upstream's list of volume health does not end"))
    }
}

/// The list for an upstream without a list of its own.
fn local_list(
    token: &str,
    listed: Result<Vec<ListedVolume>, HealthSourceError>,
    most: i32,
) -> Result<Vec<u8>, Status> {
    let most = max_entries(most)?;
    if !token.is_empty() {
        return Err(Status::new(
            Code::Aborted,
            "starting_token is not one of this driver's: begin again without it",
        ));
    }
    let (page, next) =
        cut_page(unlisted_after(&all_adverse(listed)?, &HashSet::new(), ""), most, "");
    merge::append_entries(&[], &page, &next).map_err(local_replies::internal_error)
}

/// None means all entries.
fn max_entries(most: i32) -> Result<Option<usize>, Status> {
    match usize::try_from(most) {
        Ok(0) => Ok(None),
        Ok(most) => Ok(Some(most)),
        Err(_) => Err(Status::invalid_argument("max_entries is negative")),
    }
}

fn remaining_entries(most: i32, taken: usize) -> Option<usize> {
    usize::try_from(most).ok().filter(|most| *most > 0).map(|most| most.saturating_sub(taken))
}

/// All volumes with adverse health. A purely local list must not omit a volume of unknown health,
/// because an omitted volume counts as healthy.
fn all_adverse(
    listed: Result<Vec<ListedVolume>, HealthSourceError>,
) -> Result<AdverseVolumes, Status> {
    let listed = listed.map_err(|error| local_replies::to_status(&error))?;
    if let Some((handle, why)) = listed
        .iter()
        .find_map(|volume| volume.health.statuses.as_ref().err().map(|why| (&volume.handle, why)))
    {
        return Err(local_replies::to_status(&HealthSourceError::Unknown(format!(
            "the health of volume {handle} ({why})"
        ))));
    }
    Ok(known_adverse(listed))
}

fn known_adverse(listed: Vec<ListedVolume>) -> AdverseVolumes {
    let statuses = |volume: ListedVolume| {
        volume.health.for_controller().statuses.ok().map(|statuses| (volume.handle, statuses))
    };
    listed.into_iter().filter_map(statuses).filter(|(_, statuses)| !statuses.is_empty()).collect()
}

/// Local entries after `after` that are not listed yet, sorted by handle.
fn unlisted_after(
    ours: &AdverseVolumes,
    listed: &HashSet<String>,
    after: &str,
) -> Vec<(String, Vec<HealthStatus>)> {
    let behind = |handle: &str| after.is_empty() || handle > after;
    let mut rest: Vec<_> =
        ours.iter().filter(|(handle, _)| behind(handle) && !listed.contains(*handle)).collect();
    rest.sort_by_key(|(handle, _)| handle.as_str());
    rest.into_iter().map(|(handle, statuses)| (handle.clone(), statuses.clone())).collect()
}

/// The entries that fit, and the token for the rest.
fn cut_page(
    mut rest: Vec<(String, Vec<HealthStatus>)>,
    room: Option<usize>,
    after: &str,
) -> (Vec<(String, Vec<HealthStatus>)>, String) {
    match room {
        Some(room) if rest.len() > room => {
            rest.truncate(room);
            let last = rest.last().map_or(after, |(handle, _)| handle);
            let next = format!("{TOKEN_PREFIX}{last}");
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
    use crate::interposer::health_source::{
        HealthErrorType, HealthUnknown, VolumeCondition, VolumeHealth,
    };
    use crate::wire;

    fn volume(handle: &str, statuses: Result<Vec<HealthStatus>, HealthUnknown>) -> ListedVolume {
        ListedVolume {
            handle: handle.into(),
            attached: true,
            health: VolumeHealth {
                statuses,
                condition: Some(VolumeCondition::default()),
                local: true,
            },
        }
    }

    fn bad(handle: &str) -> ListedVolume {
        let status = HealthStatus {
            status: HealthErrorType::Degraded,
            reason: "DriveFailing".into(),
            message: String::new(),
        };
        volume(handle, Ok(vec![status]))
    }

    #[test]
    fn a_foreign_token_aborts_and_a_negative_max_entries_is_invalid() {
        let code = |answer: Result<Vec<u8>, Status>| answer.map_err(|status| status.code());
        assert_eq!(code(local_list("invalid-token", Ok(Vec::new()), 0)), Err(Code::Aborted));
        assert_eq!(code(local_list("", Ok(Vec::new()), -1)), Err(Code::InvalidArgument));
        assert_eq!(code(local_list("", Ok(Vec::new()), 0)), Ok(Vec::new()));
    }

    #[test]
    fn a_local_list_with_an_unknown_volume_is_an_error() {
        let listed = vec![bad("a"), volume("b", Err(HealthUnknown("no SMART yet".into())))];
        let status = local_list("", Ok(listed), 0).expect_err("not known");
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unavailable, "not known: the health of volume b (no SMART yet)")
        );
    }

    proptest! {
        #[test]
        fn pages_of_any_size_list_every_volume_once(handles in prop::collection::btree_set("[a-z/]{1,4}", 0..12), size in 1i32..5) {
            let ours = known_adverse(handles.iter().map(|handle| bad(handle)).collect());
            let (mut seen, mut after) = (Vec::new(), String::new());
            loop {
                let (page, next) = cut_page(unlisted_after(&ours, &HashSet::new(), &after), max_entries(size).expect("right"), &after);
                let page = merge::append_entries(&[], &page, &next).expect("ours");
                let page = wire::ControllerListVolumeHealthResponse::decode(page.as_slice()).expect("reads");
                prop_assert!(page.entries.len() <= size as usize);
                seen.extend(page.entries.into_iter().map(|entry| entry.volume_id));
                match page.next_token.strip_prefix(TOKEN_PREFIX) {
                    Some(next) => after = next.to_owned(),
                    None => break,
                }
            }
            prop_assert_eq!(seen.len(), handles.len());
            prop_assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), handles);
        }
    }
}
