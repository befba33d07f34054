//! The state: one owner task that applies reports, judges, publishes an immutable snapshot and
//! tells the store. Everyone else holds a `Handle`.
//!
//! May import `model` and `host`. No lock is visible outside; nothing here waits for a device, a
//! mount or a client.

pub mod handle;
pub mod lock;
pub mod notify;
pub mod owner;
pub mod settings;
pub mod store;
