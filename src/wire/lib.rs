//! The wire: the messages and services of proto/diskvitals/v1, `client`, which calls the daemon,
//! and `node_watch`, which follows it.

#![warn(unreachable_pub)]

pub mod client;
pub mod node_watch;
pub mod unimplemented;

mod generated {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)]
    tonic::include_proto!("diskvitals.v1");
}

pub use generated::*;

/// The descriptor set, for reflection and for canonical JSON.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/diskvitals.bin"));

/// The revision of the API: it grows with every incompatible change.
pub const API_REVISION: u32 = 1;
