//! The shim and the daemon with real volumes: made, staged, published and taken away on real loop
//! devices, while one or the other is killed, and as the kubelet asks for their health.

mod crash;
mod fixture;
mod health;
mod invalid_requests;
mod lifecycle;
