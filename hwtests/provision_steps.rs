//! Every step of a provisioned volume, run by the real step processes on real loop devices,
//! filesystems and mounts. A step does what it promises, is idempotent, leaves foreign objects
//! alone, and delays no other step when it hangs.

mod blank_devices;
mod fixture;
mod hung_disk;
mod lifecycle;
mod unsafe_paths;
