//! The Checks service: starts and cancels filesystem checks for uid 0, and shows their results to
//! every client.

use tonic::{Request, Response, Status};

use crate::api::resolve::resolve;
use crate::api::server::caller::authorize_change;
use crate::api::server::paging::{self, List};
use crate::api::status::{
    MAX_QUERY, bounded, failed_precondition, invalid, not_found, required, unresolved,
};
use crate::state::handle::Handle;
use diskvitals_convert as convert;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::CheckId;
use diskvitals_fscheck::{Check, Filesystem};
use diskvitals_model::facts::checks::{CheckRequest, RequestedTarget};
use diskvitals_model::snapshot::Snapshot;
use diskvitals_text::echo::echo;
use diskvitals_wire as wire;

pub(crate) struct ChecksService {
    handle: Handle,
}

impl ChecksService {
    pub(crate) fn new(handle: Handle) -> ChecksService {
        ChecksService { handle }
    }
}

#[tonic::async_trait]
impl wire::checks_server::Checks for ChecksService {
    async fn start_check(
        &self,
        request: Request<wire::StartCheckRequest>,
    ) -> Result<Response<wire::Check>, Status> {
        let uid = authorize_change(&request, "check filesystems")?;
        let request = request.into_inner();
        required("target", &request.target, MAX_QUERY)?;
        if request.runs != 0 && !(3..=20).contains(&request.runs) {
            return Err(invalid("runs", format_args!("{} is not between 3 and 20", request.runs)));
        }
        let filesystem = match request.filesystem.as_str() {
            "" => None,
            name => Some(
                Filesystem::from_name(name)
                    .ok_or_else(|| invalid("filesystem", "is none of ext4, xfs and btrfs"))?,
            ),
        };
        let snapshot = self.handle.snapshot();
        let target = check_target(&snapshot, &request.target)?;
        let validated = CheckRequest {
            target,
            filesystem,
            runs: Some(request.runs).filter(|runs| *runs != 0),
            freeze: request.freeze,
            snapshot: request.snapshot,
            force: request.force,
            requested_by: format!("uid {uid} (root)"),
        };
        let check = self.handle.start_check(validated).await?;
        Ok(Response::new(convert::check::check(&check)))
    }

    async fn get_check(
        &self,
        request: Request<wire::GetCheckRequest>,
    ) -> Result<Response<wire::Check>, Status> {
        let wire::GetCheckRequest { id, without_output } = request.get_ref();
        let snapshot = self.handle.snapshot();
        let found = find_check(&snapshot, id)?;
        Ok(Response::new(if *without_output {
            convert::check::running_check(&snapshot, found)
        } else {
            convert::check::check_with_output(found)
        }))
    }

    async fn list_checks(
        &self,
        request: Request<wire::ListChecksRequest>,
    ) -> Result<Response<wire::ListChecksResponse>, Status> {
        let request = request.get_ref();
        let size = paging::size(request.page_size)?;
        bounded("target", &request.target, MAX_QUERY)?;
        let after = paging::key(List::Checks, &request.page_token)?;
        let snapshot = self.handle.snapshot();
        // A target that no longer exists is found by the name under which it was checked.
        let called =
            |check: &Check| [&check.target.name, &check.target.device].contains(&&request.target);
        let wanted = match request.target.as_str() {
            "" => None,
            target => match check_target(&snapshot, target) {
                Err(_) if snapshot.checks.values().any(|check| called(check)) => {
                    Some(CheckFilter::RecordedName)
                }
                named => Some(CheckFilter::Target(named?)),
            },
        };
        let of = |check: &&Check| match &wanted {
            None => true,
            Some(CheckFilter::RecordedName) => called(check),
            Some(CheckFilter::Target(RequestedTarget::Volume(id))) => {
                snapshot.is_check_of(check, id)
            }
            Some(CheckFilter::Target(RequestedTarget::Device(name))) => {
                check.target.device == *name
            }
        };
        // Newest first: a later request has the greater key.
        let mut entries: Vec<(String, &Check)> = snapshot
            .checks
            .values()
            .map(AsRef::as_ref)
            .filter(of)
            .map(|check| (sort_key(check), check))
            .collect();
        entries.retain(|(key, _)| after.as_ref().is_none_or(|after| key < after));
        entries.sort_by(|(one, _), (other, _)| other.cmp(one));
        let (checks, next_page_token) = paging::fill_page(
            List::Checks,
            entries.iter(),
            size,
            |(_, check)| convert::check::running_check(&snapshot, check),
            |(key, _)| key.clone(),
        );
        Ok(Response::new(wire::ListChecksResponse { checks, next_page_token }))
    }

    async fn cancel_check(
        &self,
        request: Request<wire::CancelCheckRequest>,
    ) -> Result<Response<wire::Check>, Status> {
        authorize_change(&request, "cancel checks")?;
        let snapshot = self.handle.snapshot();
        let check = find_check(&snapshot, &request.get_ref().id)?;
        if check.is_over() {
            return Err(failed_precondition(format!("check {} has ended", check.id)));
        }
        let check = self.handle.cancel_check(check.id.clone()).await?;
        Ok(Response::new(convert::check::check(&check)))
    }
}

enum CheckFilter {
    Target(RequestedTarget),
    RecordedName,
}

/// A sortable key: the time of the request, then the id.
fn sort_key(check: &Check) -> String {
    format!("{:020} {}", check.asked.as_microsecond(), check.id)
}

fn find_check<'a>(snapshot: &'a Snapshot, id: &str) -> Result<&'a Check, Status> {
    required("id", id, MAX_QUERY)?;
    let found = snapshot.checks.get(&CheckId::known(id));
    found.map(AsRef::as_ref).ok_or_else(|| {
        not_found(format!("no check has the id `{}`: it never was, or is forgotten", echo(id)))
    })
}

/// A volume or a device can be checked; a drive means the filesystem on the whole drive.
fn check_target(snapshot: &Snapshot, query: &str) -> Result<RequestedTarget, Status> {
    let named = resolve(snapshot, query).map_err(unresolved("target"))?;
    let subjects = named.subjects();
    let volumes: Vec<_> = subjects
        .iter()
        .filter_map(|subject| match subject {
            Subject::Volume(id) => Some(id),
            Subject::Drive(_) | Subject::Device(_) | Subject::Source(_) => None,
        })
        .collect();
    match (volumes.as_slice(), subjects.as_slice()) {
        ([one], _) => Ok(RequestedTarget::Volume((*one).clone())),
        ([], [Subject::Device(name)]) => Ok(RequestedTarget::Device(name.clone())),
        ([], [Subject::Drive(id)]) => {
            // A filesystem may be on the whole disk. Filesystems on its partitions have their own
            // names.
            let device = snapshot.drives.get(id).and_then(|drive| drive.facts.devices.first());
            device.map(|device| RequestedTarget::Device(device.name.clone())).ok_or_else(|| {
                failed_precondition(format!(
                    "drive {id} has no block device: name the volume or partition to check"
                ))
            })
        }
        (several, _) => {
            let list: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(invalid(
                "target",
                format_args!(
                    "`{}` has several volumes: name one of {}",
                    echo(query),
                    list.join(", ")
                ),
            ))
        }
    }
}
