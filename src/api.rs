//! The gRPC API diskvitals.v1 over unix sockets. `server` answers from snapshots; `resolve` and
//! `explain` are pure functions of a snapshot; `convert` maps the model to wire messages; `status`
//! makes every gRPC status.

pub(crate) mod convert;
mod explain;
mod finding_order;
mod node_facts;
mod resolve;
pub mod server;
mod status;
