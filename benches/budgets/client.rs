//! Connections to the daemon under measurement.

use std::path::Path;

use anyhow::Context;
use diskvitals::api::wire::inventory_client::InventoryClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

pub type Inventory = InventoryClient<Channel>;

/// A connection of its own.
pub async fn connect(socket: &Path) -> anyhow::Result<Inventory> {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_: tonic::codegen::http::Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // The address is not used: the connector has it.
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connector).await;
    Ok(InventoryClient::new(channel.with_context(|| format!("connecting to {}", socket.display()))?))
}
