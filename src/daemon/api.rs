//! The gRPC API diskvitals.v1 over unix sockets. `server` answers from snapshots; `resolve` and
//! `explain` are pure functions of a snapshot; `status`
//! makes every gRPC status.

mod explain;
mod finding_order;
mod resolve;
pub mod server;
mod status;
