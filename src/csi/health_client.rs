//! [`HealthSource`] over the daemon's agent socket: health and usage of another driver's volumes,
//! and notifications of lifecycle calls.
//!
//! In: driver names, handles, lifecycle events. Out: the daemon's answers as the interposer's plain
//! values. The module does not depend on CSI requests.

use tonic::{Code, Status};

use crate::agent::Agent;
use crate::interposer::health_source::{
    HealthSource, HealthSourceError, HealthStatus, LifecycleEvent, ListedVolume, Usage,
    VolumeHealth,
};
use crate::{health, stats};
use diskvitals_wire as daemon;
use diskvitals_wire::client::{Client, ClientError};
use diskvitals_wire::witness_request::Call;

pub(crate) struct HealthClient {
    pub agent: Agent,
}

impl HealthSource for HealthClient {
    async fn health(&self, driver: &str, handle: &str) -> Result<VolumeHealth, HealthSourceError> {
        let found = self.agent.query(|client: Client| {
            let (driver, handle) = (driver.to_owned(), handle.to_owned());
            async move { probed_volume(&client, &driver, &handle).await }
        });
        Ok(health::of_volume(&found.await.map_err(to_error)?))
    }

    async fn usage(
        &self,
        driver: &str,
        handle: &str,
        path: &str,
    ) -> Result<Usage, HealthSourceError> {
        let answered = self.agent.query(|client: Client| {
            let (driver, handle, path) = (driver.to_owned(), handle.to_owned(), path.to_owned());
            async move { client.usage(&driver, &handle, &path).await }
        });
        Ok(stats::from_daemon(&answered.await.map_err(to_error)?))
    }

    async fn storage_health(&self, driver: &str) -> Result<Vec<HealthStatus>, HealthSourceError> {
        let answered = self.agent.query(|client: Client| {
            let driver = driver.to_owned();
            async move { client.storage_health(&driver).await }
        });
        Ok(health::of_storage(&answered.await.map_err(to_error)?))
    }

    async fn volumes(&self, driver: &str) -> Result<Vec<ListedVolume>, HealthSourceError> {
        let answered = self.agent.query(|client: Client| async move { client.volumes().await });
        let all = answered.await.map_err(to_error)?.volumes;
        Ok(all
            .into_iter()
            .filter(|volume| volume.driver == driver && !volume.handle.is_empty())
            .map(listed_volume)
            .collect())
    }

    async fn notify(&self, driver: &str, event: &LifecycleEvent) -> Result<(), HealthSourceError> {
        let request = to_request(driver, event);
        let answered = self.agent.query(|client: Client| {
            let request = request.clone();
            async move { client.witness(request).await }
        });
        answered.await.map_err(to_error)
    }
}

/// A volume of the daemon's snapshot. While its first probe is outstanding, the daemon is asked for
/// it: the answer waits half a second at most (`GetUsage`).
pub(crate) async fn probed_volume(
    client: &Client,
    driver: &str,
    handle: &str,
) -> Result<daemon::Volume, ClientError> {
    let volume = client.volume_by_handle(driver, handle).await?;
    if volume.health_unknown_cause() != daemon::UnknownCause::Pending {
        return Ok(volume);
    }
    // Without figures, the volume's own health tells why.
    let _ = client.usage(driver, handle, "").await;
    client.volume_by_handle(driver, handle).await
}

fn to_request(driver: &str, passing: &LifecycleEvent) -> daemon::WitnessRequest {
    let (call, handle, path) = match passing {
        LifecycleEvent::Staged { handle, path } => (Call::Staged, handle, path.as_str()),
        LifecycleEvent::Published { handle, path } => (Call::Published, handle, path.as_str()),
        LifecycleEvent::Unpublished { handle, path } => (Call::Unpublished, handle, path.as_str()),
        LifecycleEvent::Unstaged { handle, path } => (Call::Unstaged, handle, path.as_str()),
        LifecycleEvent::Bypassed { handle } => (Call::Bypassed, handle, ""),
    };
    daemon::WitnessRequest {
        call: call.into(),
        driver: driver.to_owned(),
        handle: handle.clone(),
        path: path.to_owned(),
    }
}

fn to_error(status: Status) -> HealthSourceError {
    let why = status.message().to_owned();
    match status.code() {
        Code::NotFound => HealthSourceError::NotFound(why),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            HealthSourceError::Unavailable(why)
        }
        _ => HealthSourceError::Unknown(why),
    }
}

fn listed_volume(volume: daemon::Volume) -> ListedVolume {
    let here =
        matches!(volume.csi_status(), daemon::CsiStatus::Staged | daemon::CsiStatus::Published);
    ListedVolume { attached: here, health: health::of_volume(&volume), handle: volume.handle }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{HealthErrorType, HealthUnknown, VolumeCondition};

    fn finding(
        severity: daemon::Severity,
        status: daemon::FindingStatus,
        reason: &str,
    ) -> daemon::Finding {
        daemon::Finding {
            severity: severity.into(),
            status: status.into(),
            reason: reason.into(),
            message: "m".into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_listed_volume_carries_its_statuses_worst_first() {
        let findings = vec![
            finding(daemon::Severity::Suspect, daemon::FindingStatus::Degraded, "DriveFailing"),
            finding(daemon::Severity::Bad, daemon::FindingStatus::DataLoss, "FilesystemCorrupted"),
        ];
        let volume = daemon::Volume {
            handle: "v".into(),
            health: daemon::Health::Bad.into(),
            csi_status: daemon::CsiStatus::Published.into(),
            findings,
            condition: Some(daemon::Condition { abnormal: true, message: "corrupted".into() }),
            ..Default::default()
        };
        let status = |status, reason: &str| HealthStatus {
            status,
            reason: reason.into(),
            message: "m".into(),
        };
        let health = VolumeHealth {
            statuses: Ok(vec![
                status(HealthErrorType::DataLoss, "FilesystemCorrupted"),
                status(HealthErrorType::Degraded, "DriveFailing"),
            ]),
            condition: Some(VolumeCondition { abnormal: true, message: "corrupted".into() }),
            local: true,
        };
        assert_eq!(
            listed_volume(volume),
            ListedVolume { handle: "v".into(), attached: true, health }
        );
    }

    #[test]
    fn a_volume_whose_health_is_unknown_has_no_list_but_a_condition() {
        let volume = daemon::Volume {
            health: daemon::Health::Unknown.into(),
            health_unknown_why: "smartctl does not answer".into(),
            remote: true,
            condition: Some(daemon::Condition {
                abnormal: false,
                message: "fine (unknown since …)".into(),
            }),
            ..Default::default()
        };
        let health = health::of_volume(&volume);
        assert_eq!(health.statuses, Err(HealthUnknown("smartctl does not answer".into())));
        assert!(!health.local && !health.condition.expect("the last known one").abnormal);
    }

    #[test]
    fn an_unavailable_daemon_differs_from_an_unknown_volume() {
        let why = String::from("x");
        assert_eq!(to_error(Status::not_found("x")), HealthSourceError::NotFound(why.clone()));
        assert_eq!(to_error(Status::unavailable("x")), HealthSourceError::Unavailable(why.clone()));
        assert_eq!(
            to_error(Status::deadline_exceeded("x")),
            HealthSourceError::Unavailable(why.clone())
        );
        assert_eq!(to_error(Status::internal("x")), HealthSourceError::Unknown(why));
    }
}
