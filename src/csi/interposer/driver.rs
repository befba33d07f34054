//! What is known of the upstream as a CSI driver: its name, and what it announces itself. Asked
//! when it is needed, then remembered.
//!
//! In: answers that pass by, and answers to questions of our own. Out: the name, the capabilities.
//! A new connection may reach another version of the driver, so capabilities are forgotten with the
//! connection; the name is what makes it the driver that it is, and stays.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tonic::Code;

use crate::csi::interposer::method::{GET_PLUGIN_INFO, Service};
use crate::csi::interposer::upstream::Upstream;
use crate::csi::interposer::verdict::WitnessError;
use crate::csi::interposer::{merge, raw};

/// For capabilities that a caller waits for.
const PATIENCE: Duration = Duration::from_millis(500);

pub struct Driver {
    pub upstream: Upstream,
    name: OnceCell<String>,
    announced: Mutex<[Option<Announced>; 2]>,
}

struct Announced {
    generation: u64,
    numbers: Vec<i32>,
}

impl Driver {
    pub fn new(upstream: Upstream) -> Driver {
        Driver {
            upstream,
            name: OnceCell::new(),
            announced: Mutex::new([None, None]),
        }
    }

    /// The error says that the daemon cannot be asked: not because it is away, but because we do
    /// not know of what.
    pub async fn name(&self) -> Result<&str, WitnessError> {
        let asked = || async {
            let answer = self
                .upstream
                .ask(GET_PLUGIN_INFO, &[])
                .await
                .map_err(|status| nameless(status.message()))?;
            match raw::text(&answer, 1) {
                Ok(name) if !name.is_empty() => Ok(name.to_owned()),
                _ => Err(nameless("it gives no name")),
            }
        };
        self.name.get_or_try_init(asked).await.map(String::as_str)
    }

    /// What passed by, before anything was added to it.
    pub fn learn(&self, service: Service, numbers: Vec<i32>) {
        let announced = Announced {
            generation: self.upstream.generation(),
            numbers,
        };
        self.lock()[service as usize] = Some(announced);
    }

    /// Whether the upstream announces the capability itself. None: it does not say.
    pub async fn announces(&self, service: Service, number: i32) -> Option<bool> {
        if let Some(known) = self.known(service, number) {
            return Some(known);
        }
        let answered = tokio::time::timeout(
            PATIENCE,
            self.upstream.ask(service.capabilities_call(), &[]),
        )
        .await
        .ok()?;
        let numbers = match answered {
            Ok(answer) => merge::announced(&answer).ok()?,
            // No such service at all.
            Err(status) if status.code() == Code::Unimplemented => Vec::new(),
            Err(_) => return None,
        };
        self.learn(service, numbers);
        self.known(service, number)
    }

    fn known(&self, service: Service, number: i32) -> Option<bool> {
        let generation = self.upstream.generation();
        let announced = self.lock();
        let known = announced[service as usize]
            .as_ref()
            .filter(|known| known.generation == generation)?;
        Some(known.numbers.contains(&number))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Option<Announced>; 2]> {
        self.announced
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn nameless(why: &str) -> WitnessError {
    WitnessError::Unknown(format!("the name of the upstream driver ({why})"))
}
