//! The state: one owner task that applies source updates, assesses them, publishes an immutable
//! snapshot and sends changes to the store. All other tasks hold a `Handle`.
//!
//! May import `model` and `host`. No lock is visible outside; no code here waits for a device, a
//! mount or a client.

pub mod handle;
pub mod lock;
pub mod owner;
pub mod settings;
pub mod store;
