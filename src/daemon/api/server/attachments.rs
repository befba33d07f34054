//! One page of the snapshot's attachments: where CSI volumes are staged and published. Used by
//! Inventory (for people) and Volumes (for the shim).

use tonic::Status;

use crate::api::server::paging::{self, List};
use crate::api::status::{MAX_QUERY, bounded};
use diskvitals_convert as convert;
use diskvitals_finding::path::HostPath;
use diskvitals_model::snapshot::Snapshot;
use diskvitals_wire as wire;

pub(crate) fn list(
    snapshot: &Snapshot,
    request: &wire::ListAttachmentsRequest,
) -> Result<wire::ListAttachmentsResponse, Status> {
    bounded("driver", &request.driver, MAX_QUERY)?;
    bounded("handle", &request.handle, MAX_QUERY)?;
    let size = paging::size(request.page_size)?;
    let key = paging::key(List::Attachments, &request.page_token)?
        .map(|path| HostPath::unescape(path.as_bytes()));
    let named = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
    let entries = snapshot.attachments.range(paging::range_after(key)).filter(|(_, attachment)| {
        named(&request.driver, &attachment.driver)
            && named(&request.handle, &attachment.handle)
            && (!request.only_stale || attachment.stale_cause().is_some())
    });
    let (attachments, next_page_token) = paging::fill_page(
        List::Attachments,
        entries,
        size,
        |(_, attachment)| convert::attachment::attachment(attachment),
        |(path, _)| path.to_string(),
    );
    Ok(wire::ListAttachmentsResponse { attachments, next_page_token })
}
