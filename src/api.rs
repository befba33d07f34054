//! The gRPC API diskvitals.v1 over unix sockets. `server` answers from snapshots; `resolve` and
//! `explain` are pure functions of a snapshot; `convert` maps the model to wire messages; `status`
//! makes every gRPC status; `client` calls the daemon.

pub mod client;
pub(crate) mod convert;
mod explain;
mod finding_order;
mod node_facts;
mod resolve;
pub mod server;
mod status;

/// Generated from proto/diskvitals/v1.
pub mod wire {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)]
    tonic::include_proto!("diskvitals.v1");

    /// The descriptor set, for reflection and for canonical JSON.
    pub(crate) const DESCRIPTORS: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/diskvitals.bin"));
}

/// The revision of the API: it grows with every incompatible change.
pub const API_REVISION: u32 = 1;
