//! podmon's connectivity check, based on the daemon's answer: whether the drives of the volumes are
//! present, and whether I/O reaches them.

use std::time::Duration;

use tonic::Status;

use crate::agent::Agent;
use crate::driver::Driver;
use crate::podmon::{Connectivity, ConnectivityStatus};

/// Time for the answer in addition to the sample.
const RESPONSE_MARGIN: Duration = Duration::from_secs(5);

impl Connectivity for Driver {
    async fn check(
        &self,
        handles: Vec<String>,
        sample: Duration,
    ) -> Result<ConnectivityStatus, Status> {
        check(&self.agent, &self.name, handles, sample).await
    }
}

/// Checks volumes of any driver.
pub(crate) async fn check(
    agent: &Agent,
    driver: &str,
    handles: Vec<String>,
    sample: Duration,
) -> Result<ConnectivityStatus, Status> {
    let checked = agent.execute(sample + RESPONSE_MARGIN, |client| {
        let (driver, handles) = (driver.to_owned(), handles.clone());
        async move { client.connectivity(&driver, handles, sample).await }
    });
    let checked = checked.await?;
    Ok(ConnectivityStatus {
        connected: checked.connected,
        ios_in_progress: checked.io_in_progress,
        messages: checked.messages,
    })
}
