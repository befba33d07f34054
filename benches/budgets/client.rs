//! Connections to the daemon under measurement.

use std::path::Path;

use anyhow::Context;
use diskvitals_wire::admin_client::AdminClient;
use diskvitals_wire::inventory_client::InventoryClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

pub type Inventory = InventoryClient<Channel>;
pub type Admin = AdminClient<Channel>;

/// Opens a separate connection.
pub async fn connect(socket: &Path) -> anyhow::Result<Inventory> {
    channel(socket).await.map(InventoryClient::new)
}

pub async fn admin(socket: &Path) -> anyhow::Result<Admin> {
    channel(socket).await.map(AdminClient::new)
}

pub async fn channel(socket: &Path) -> anyhow::Result<Channel> {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_: tonic::codegen::http::Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // The address is not used: the connector contains the socket.
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connector).await;
    channel.with_context(|| format!("connecting to {}", socket.display()))
}
