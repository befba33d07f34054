//! Follows the node's own `NodeStorage` object, for those who answer what the cluster writes into its
//! spec.
//!
//! In: a watch of the object on the API server. Out: the newest object. It is continued after any
//! failure.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::report::ReportTiming;
use crate::report::api::{ApiServer, StorageChange};
use crate::report::attempts::Attempts;
use diskvitals_kubernetes::api_error::ApiError;

/// More than the time after which the API server ends a watch (kube's default: 290 s).
const WATCH_SILENCE: Duration = Duration::from_secs(330);

/// The object as the API server has it.
#[derive(Clone, Debug)]
pub(crate) enum StorageObject {
    /// It has not been read yet.
    Unknown,
    Absent,
    Present(Arc<Value>),
}

pub(crate) async fn run(
    api: &ApiServer,
    node: &str,
    timing: &ReportTiming,
    object: &watch::Sender<StorageObject>,
) -> Infallible {
    let mut attempts = Attempts::new(timing, node, "the watch of NodeStorage");
    loop {
        let error = match follow(api, object, &mut attempts).await {
            Err(error) => error,
            Ok(never) => match never {},
        };
        attempts.record_failure(error);
        tokio::time::sleep_until(attempts.earliest()).await;
    }
}

async fn follow(
    api: &ApiServer,
    object: &watch::Sender<StorageObject>,
    attempts: &mut Attempts<'_>,
) -> Result<Infallible, ApiError> {
    let (listed, mut version) = api.list_storage().await?;
    object.send_replace(match listed {
        Some(data) => StorageObject::Present(Arc::new(data)),
        None => StorageObject::Absent,
    });
    loop {
        let mut changes = api.watch_storage(&version).await?;
        let began = Instant::now();
        loop {
            let change = match timeout_at(began + WATCH_SILENCE, changes.next()).await {
                Ok(Some(change)) => change?,
                // It is continued.
                Ok(None) | Err(_) => break,
            };
            attempts.record_success();
            match change {
                StorageChange::Set { data, version: newer } => {
                    object.send_replace(StorageObject::Present(Arc::new(data)));
                    version = newer.unwrap_or(version);
                }
                // The next version of the same name is an object of its own.
                StorageChange::Deleted => drop(object.send_replace(StorageObject::Absent)),
                StorageChange::Unchanged { version: newer } => version = newer,
            }
        }
        // A server that ends each watch at once is not asked again at once.
        tokio::time::sleep_until(began + Duration::from_secs(1)).await;
    }
}

/// Passes on one part of the object, when it changes: most changes are of the status, which this
/// process writes itself.
pub(crate) async fn follow_part<T: PartialEq>(
    mut objects: watch::Receiver<StorageObject>,
    part: &watch::Sender<T>,
    read: impl Fn(&StorageObject) -> T,
) -> Infallible {
    loop {
        let new = read(&objects.borrow_and_update());
        part.send_if_modified(|part| {
            let changed = *part != new;
            *part = new;
            changed
        });
        if objects.changed().await.is_err() {
            // The process is ending.
            std::future::pending::<()>().await;
        }
    }
}
