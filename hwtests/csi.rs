//! The shim and the daemon with real volumes: made, staged, published and taken away on real loop
//! devices, while one or the other is killed, and as the kubelet asks for their health.
mod support;

#[path = "csi/crash.rs"]
mod crash;
#[path = "csi/health.rs"]
mod health;
#[path = "csi/life.rs"]
mod life;
#[path = "csi/refused.rs"]
mod refused;
#[path = "csi/stage.rs"]
mod stage;
