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

impl Finding {
    /// It is active, nobody has acknowledged it, and maintenance does not explain it.
    pub fn is_counted(&self) -> bool {
        self.cleared.is_none() && self.acknowledged.is_none() && !self.maintained()
    }
}

/// The descriptor set, for reflection and for canonical JSON.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/diskvitals.bin"));

/// The revision of the API: it grows with every incompatible change.
pub const API_REVISION: u32 = 1;
