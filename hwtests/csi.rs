//! The shim and the daemon with real volumes on loop devices: created, staged, published and
//! deleted, while either process is killed, and queried for health as the kubelet does.

pub(crate) mod clean_stale;
mod cordon;
mod crash;
mod dead_pool;
mod fixture;
mod health;
mod invalid_requests;
mod lifecycle;
