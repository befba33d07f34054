//! The service `pluginregistration.Registration`: describes the driver to the kubelet and receives
//! the result of the registration.
//!
//! In: the kubelet's two calls. Out: the registration state, also as grpc.health.v1 (SERVING:
//! registered). One line is logged for each change of state: a restarted kubelet calls again.

use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::wire::registration::registration_server::Registration;
use crate::wire::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

/// Maximum number of characters of the kubelet's reason that are logged.
const MAX_REASON_CHARS: usize = 1024;
/// grpc.health.v1's name for a server as a whole.
const WHOLE_SERVER: &str = "";

/// The kubelet's result of the registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RegistrationState {
    /// The kubelet has not reported a result yet.
    Unknown,
    Registered,
    /// The kubelet's reason.
    Refused(String),
}

pub(crate) struct RegistrationService {
    info: PluginInfo,
    state: watch::Sender<RegistrationState>,
    reporter: HealthReporter,
}

impl RegistrationService {
    /// The service starts as not serving, until the kubelet has registered the driver.
    pub(crate) async fn begin(
        info: PluginInfo,
        state: watch::Sender<RegistrationState>,
        reporter: HealthReporter,
    ) -> RegistrationService {
        reporter.set_service_status(WHOLE_SERVER, ServingStatus::NotServing).await;
        RegistrationService { info, state, reporter }
    }

    async fn set_state(&self, new: RegistrationState) {
        let changed = self.state.send_if_modified(|state| {
            let changed = *state != new;
            state.clone_from(&new);
            changed
        });
        if !changed {
            return;
        }
        let serving = match &new {
            RegistrationState::Registered => {
                tracing::info!(driver = self.info.name, "the kubelet has registered the driver");
                ServingStatus::Serving
            }
            RegistrationState::Refused(reason) => {
                tracing::error!(driver = self.info.name, reason, "the kubelet refuses the driver");
                ServingStatus::NotServing
            }
            RegistrationState::Unknown => ServingStatus::NotServing,
        };
        self.reporter.set_service_status(WHOLE_SERVER, serving).await;
    }
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        let state = if plugin_registered {
            RegistrationState::Registered
        } else if error.is_empty() {
            RegistrationState::Refused("it gives no reason".to_owned())
        } else {
            RegistrationState::Refused(error.chars().take(MAX_REASON_CHARS).collect())
        };
        self.set_state(state).await;
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn service() -> (RegistrationService, watch::Receiver<RegistrationState>) {
        let (state, states) = watch::channel(RegistrationState::Unknown);
        let info = PluginInfo {
            r#type: "CSIPlugin".into(),
            name: "csi.example.com".into(),
            ..Default::default()
        };
        (RegistrationService::begin(info, state, HealthReporter::new()).await, states)
    }

    async fn notified(service: &RegistrationService, plugin_registered: bool, error: &str) {
        let status = RegistrationStatus { plugin_registered, error: error.into() };
        service.notify_registration_status(Request::new(status)).await.expect("an answer");
    }

    #[tokio::test]
    async fn a_kubelet_that_registers_twice_changes_the_state_once() {
        let (service, mut states) = service().await;
        notified(&service, true, "").await;
        assert_eq!(*states.borrow_and_update(), RegistrationState::Registered);
        notified(&service, true, "").await;
        assert!(!states.has_changed().expect("alive"));
    }

    #[tokio::test]
    async fn a_refusal_carries_the_kubelets_reason_at_a_bounded_length() {
        let (service, states) = service().await;
        notified(&service, false, &"é".repeat(5000)).await;
        assert_eq!(*states.borrow(), RegistrationState::Refused("é".repeat(MAX_REASON_CHARS)));
        notified(&service, false, "").await;
        assert_eq!(*states.borrow(), RegistrationState::Refused("it gives no reason".into()));
    }
}
