//! Finding a CSI volume in a snapshot, by driver and volume handle.

use tonic::Status;

use crate::api::status::{not_found, unavailable};
use diskvitals_model::snapshot::{Snapshot, Volume};
use diskvitals_model::storage;
use diskvitals_text::echo::echo;

/// Returns NOT_FOUND only if the snapshot is complete, otherwise UNAVAILABLE.
pub(crate) fn find<'a>(
    snapshot: &'a Snapshot,
    driver: &str,
    handle: &str,
) -> Result<&'a Volume, Status> {
    if let Some(volume) = snapshot.csi_volume(driver, handle) {
        return Ok(volume);
    }
    // The node's own volumes are known without the kubelet's records.
    let is_provided = snapshot.settled && snapshot.node_context.driver.as_deref() == Some(driver);
    match storage::incomplete_cause(snapshot).filter(|_| !is_provided) {
        Some(why) => {
            Err(unavailable(format!("whether there is such a volume is not known: {why}")))
        }
        None => Err(not_found(format!(
            "no volume of driver `{}` has the handle `{}`",
            echo(driver),
            echo(handle)
        ))),
    }
}
