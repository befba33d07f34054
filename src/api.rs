//! The wire: diskvitals.v1 over unix sockets. `server` answers from snapshots, `convert` maps model and wire (and every gRPC status), `client` asks.

/// Generated from proto/diskvitals/v1.
pub mod wire {
    #![allow(clippy::all, clippy::pedantic)]
    tonic::include_proto!("diskvitals.v1");

    /// The descriptor set, for reflection and for canonical JSON.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/diskvitals.bin"));
}
