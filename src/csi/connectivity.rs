//! What podmon asks, answered by the daemon: whether the drives beneath volumes are there, and
//! whether I/O goes to them.

use std::time::Duration;

use tonic::Status;

use crate::csi::agent::Agent;
use crate::csi::driver::Driver;
use crate::csi::podmon::{Connected, Connectivity};

/// For the answer, beside the sample.
const ANSWER: Duration = Duration::from_secs(5);

impl Connectivity for Driver {
    async fn check(&self, handles: Vec<String>, sample: Duration) -> Result<Connected, Status> {
        check(&self.agent, &self.name, handles, sample).await
    }
}

/// Of the volumes of any driver.
pub async fn check(
    agent: &Agent,
    driver: &str,
    handles: Vec<String>,
    sample: Duration,
) -> Result<Connected, Status> {
    let checked = agent.long(sample + ANSWER, |client| {
        let (driver, handles) = (driver.to_owned(), handles.clone());
        async move { client.connectivity(&driver, handles, sample).await }
    });
    let checked = checked.await?;
    Ok(Connected {
        connected: checked.connected,
        ios_in_progress: checked.io_in_progress,
        messages: checked.messages,
    })
}
