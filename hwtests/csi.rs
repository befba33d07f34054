//! The shim and the daemon with real volumes: made, staged, published and taken away on real loop
//! devices, while one or the other is killed, and as the kubelet asks for their health.

mod crash;
mod health;
mod life;
mod refused;
mod stage;
