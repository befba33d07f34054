//! Name and announced capabilities of the upstream driver, queried on first use and then cached.
//!
//! In: answers that the interposer forwards, and answers to its own queries. Out: the name, the
//! capabilities. A new connection may reach another version of the driver, so the capabilities are
//! dropped with the connection. The name identifies the driver and is kept.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tonic::Code;

use crate::interposer::health_source::HealthSourceError;
use crate::interposer::method::{GET_PLUGIN_INFO, Service};
use crate::interposer::upstream::Upstream;
use crate::interposer::{merge, raw};

/// Time limit for capabilities while a caller waits.
const CAPABILITIES_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) struct UpstreamDriver {
    pub upstream: Upstream,
    name: OnceCell<String>,
    capabilities: Mutex<[Option<AnnouncedCapabilities>; 2]>,
}

struct AnnouncedCapabilities {
    generation: u64,
    numbers: Vec<i32>,
}

impl UpstreamDriver {
    pub(crate) fn new(upstream: Upstream) -> UpstreamDriver {
        UpstreamDriver { upstream, name: OnceCell::new(), capabilities: Mutex::new([None, None]) }
    }

    /// An error means that the daemon cannot be queried, because the name of the driver is unknown.
    pub(crate) async fn name(&self) -> Result<&str, HealthSourceError> {
        let asked = || async {
            let answer = self
                .upstream
                .call(GET_PLUGIN_INFO, &[])
                .await
                .map_err(|status| unknown_name(status.message()))?;
            match raw::string_field(&answer, 1) {
                Ok(name) if !name.is_empty() => Ok(name.to_owned()),
                _ => Err(unknown_name("it gives no name")),
            }
        };
        self.name.get_or_try_init(asked).await.map(String::as_str)
    }

    /// Records the upstream's own capabilities from an answer, before any are added.
    pub(crate) fn record_capabilities(&self, service: Service, numbers: Vec<i32>) {
        let announced = AnnouncedCapabilities { generation: self.upstream.generation(), numbers };
        self.lock()[service as usize] = Some(announced);
    }

    /// Whether the upstream itself announces the capability; None if this is unknown.
    pub(crate) async fn announces(&self, service: Service, number: i32) -> Option<bool> {
        if let Some(known) = self.cached(service, number) {
            return Some(known);
        }
        let answered = tokio::time::timeout(
            CAPABILITIES_TIMEOUT,
            self.upstream.call(service.capabilities_call(), &[]),
        )
        .await
        .ok()?;
        let numbers = match answered {
            Ok(answer) => merge::announced_capabilities(&answer).ok()?,
            // The service does not exist.
            Err(status) if status.code() == Code::Unimplemented => Vec::new(),
            Err(_) => return None,
        };
        self.record_capabilities(service, numbers);
        self.cached(service, number)
    }

    fn cached(&self, service: Service, number: i32) -> Option<bool> {
        let generation = self.upstream.generation();
        let announced = self.lock();
        let known =
            announced[service as usize].as_ref().filter(|known| known.generation == generation)?;
        Some(known.numbers.contains(&number))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Option<AnnouncedCapabilities>; 2]> {
        self.capabilities.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown_name(why: &str) -> HealthSourceError {
    HealthSourceError::Unknown(format!("the name of the upstream driver ({why})"))
}
