//! The interposer's witness: what it wants to know of another driver's volumes, asked of the
//! daemon, and what it tells, told.
//!
//! In: driver names, handles, calls that went by. Out: the daemon's word in the interposer's plain
//! values. Knows no requests of CSI.

use tonic::{Code, Status};

use crate::api::client::Client;
use crate::api::wire as daemon;
use crate::api::wire::witness_request::Call;
use crate::csi::agent::Agent;
use crate::csi::interposer::verdict::{
    Condition, DATA_LOSS, DEGRADED, HealthStatus, INACCESSIBLE, Listed, Passing, STORAGE_DEGRADED,
    STORAGE_UNREACHABLE, Told, Usage, Witness, WitnessError,
};
use crate::csi::{health, stats};

pub struct Daemon {
    agent: Agent,
}

impl Daemon {
    pub fn new(agent: Agent) -> Daemon {
        Daemon { agent }
    }
}

impl Witness for Daemon {
    async fn health(&self, driver: &str, handle: &str) -> Result<Told, WitnessError> {
        let found = self.agent.quick(|client: Client| {
            let (driver, handle) = (driver.to_owned(), handle.to_owned());
            async move { client.volume_by_handle(&driver, &handle).await }
        });
        Ok(told(&found.await.map_err(untold)?))
    }

    async fn usage(&self, driver: &str, handle: &str, path: &str) -> Result<Usage, WitnessError> {
        let answered = self.agent.quick(|client: Client| {
            let (driver, handle, path) = (driver.to_owned(), handle.to_owned(), path.to_owned());
            async move { client.usage(&driver, &handle, &path).await }
        });
        Ok(stats::told(&answered.await.map_err(untold)?))
    }

    async fn storage(&self, driver: &str) -> Result<Vec<HealthStatus>, WitnessError> {
        let answered = self.agent.quick(|client: Client| {
            let driver = driver.to_owned();
            async move { client.storage_health(&driver).await }
        });
        let faults = health::of_storage(&answered.await.map_err(untold)?);
        Ok(faults
            .into_iter()
            .map(|status| numbered(status, of_storage))
            .collect())
    }

    async fn volumes(&self, driver: &str) -> Result<Vec<Listed>, WitnessError> {
        let answered = self
            .agent
            .quick(|client: Client| async move { client.volumes().await });
        let all = answered.await.map_err(untold)?.volumes;
        Ok(all
            .into_iter()
            .filter(|volume| volume.driver == driver && !volume.handle.is_empty())
            .map(listed)
            .collect())
    }

    async fn told(&self, driver: &str, passing: &Passing) -> Result<(), WitnessError> {
        let request = request(driver, passing);
        let answered = self.agent.quick(|client: Client| {
            let request = request.clone();
            async move { client.witness(request).await }
        });
        answered.await.map_err(untold)
    }
}

fn request(driver: &str, passing: &Passing) -> daemon::WitnessRequest {
    let (call, handle, path) = match passing {
        Passing::Staged { handle, path } => (Call::Staged, handle, path.as_str()),
        Passing::Published { handle, path } => (Call::Published, handle, path.as_str()),
        Passing::Unpublished { handle, path } => (Call::Unpublished, handle, path.as_str()),
        Passing::Unstaged { handle, path } => (Call::Unstaged, handle, path.as_str()),
        Passing::Bypassed { handle } => (Call::Bypassed, handle, ""),
    };
    daemon::WitnessRequest {
        call: call.into(),
        driver: driver.to_owned(),
        handle: handle.clone(),
        path: path.to_owned(),
    }
}

fn untold(status: Status) -> WitnessError {
    let why = status.message().to_owned();
    match status.code() {
        Code::NotFound => WitnessError::NotFound(why),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => WitnessError::Away(why),
        _ => WitnessError::Unknown(why),
    }
}

fn told(volume: &daemon::Volume) -> Told {
    let health::Told {
        statuses,
        condition: health::Condition { abnormal, message },
    } = health::told(volume);
    Told {
        statuses: statuses.map(|statuses| {
            statuses
                .into_iter()
                .map(|status| numbered(status, of_volume))
                .collect()
        }),
        condition: Condition { abnormal, message },
        local: !volume.remote,
    }
}

fn listed(volume: daemon::Volume) -> Listed {
    let here = matches!(
        volume.csi_status(),
        daemon::CsiStatus::Staged | daemon::CsiStatus::Published
    );
    Listed {
        here,
        told: told(&volume),
        handle: volume.handle,
    }
}

fn numbered(status: health::HealthStatus, number: fn(health::Status) -> i32) -> HealthStatus {
    HealthStatus {
        status: number(status.status),
        reason: status.reason,
        message: status.message,
    }
}

fn of_volume(status: health::Status) -> i32 {
    match status {
        health::Status::Degraded => DEGRADED,
        health::Status::Inaccessible => INACCESSIBLE,
        health::Status::DataLoss => DATA_LOSS,
    }
}

fn of_storage(status: health::Status) -> i32 {
    match status {
        health::Status::Inaccessible => STORAGE_UNREACHABLE,
        health::Status::Degraded | health::Status::DataLoss => STORAGE_DEGRADED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_volume_is_told_in_csis_numbers() {
        let findings = vec![
            finding(
                daemon::Severity::Suspect,
                daemon::FindingStatus::Degraded,
                "DriveFailing",
            ),
            finding(
                daemon::Severity::Bad,
                daemon::FindingStatus::DataLoss,
                "FilesystemCorrupted",
            ),
        ];
        let volume = daemon::Volume {
            handle: "v".into(),
            health: daemon::Health::Bad.into(),
            csi_status: daemon::CsiStatus::Published.into(),
            findings,
            condition: Some(daemon::Condition {
                abnormal: true,
                message: "corrupted".into(),
            }),
            ..Default::default()
        };
        let status = |status, reason: &str| HealthStatus {
            status,
            reason: reason.into(),
            message: "m".into(),
        };
        let told = Told {
            statuses: Ok(vec![
                status(DATA_LOSS, "FilesystemCorrupted"),
                status(DEGRADED, "DriveFailing"),
            ]),
            condition: Condition {
                abnormal: true,
                message: "corrupted".into(),
            },
            local: true,
        };
        assert_eq!(
            listed(volume),
            Listed {
                handle: "v".into(),
                here: true,
                told
            }
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
        let told = told(&volume);
        assert_eq!(told.statuses, Err("smartctl does not answer".into()));
        assert!(!told.local && !told.condition.abnormal);
    }

    #[test]
    fn a_daemon_that_cannot_be_asked_is_another_thing_than_one_that_does_not_know_the_volume() {
        let why = String::from("x");
        assert_eq!(
            untold(Status::not_found("x")),
            WitnessError::NotFound(why.clone())
        );
        assert_eq!(
            untold(Status::unavailable("x")),
            WitnessError::Away(why.clone())
        );
        assert_eq!(
            untold(Status::deadline_exceeded("x")),
            WitnessError::Away(why.clone())
        );
        assert_eq!(untold(Status::internal("x")), WitnessError::Unknown(why));
    }
}
